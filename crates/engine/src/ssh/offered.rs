//! What a connection offers besides a shell: how many sessions, and whether files can be transferred.

use std::time::Duration;

use remote_sandbox_core::doctor::{Step, StepName, judge_sessions};
use remote_sandbox_core::failure::Failure;
use russh::client::{Handle, Msg};
use russh::{Channel, ChannelMsg};
use tokio::time::timeout;

use super::dial::HostGuard;
use crate::clock;

/// As many sessions are asked for; OpenSSH allows ten unless it is told otherwise.
const MOST_SESSIONS: usize = 12;

/// How long the host may take for one answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// How long the host may take to close everything again.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);

/// The first packet of an SFTP client: its length, its kind, and version 3.
const SFTP_HELLO: [u8; 9] = [0, 0, 0, 5, 1, 0, 0, 0, 3];

/// The kind of the server's answer.
const SFTP_VERSION: u8 = 2;

/// Why files cannot be transferred.
#[derive(Debug, thiserror::Error)]
enum SftpFault {
    #[error("no session for it")]
    NoSession(#[source] russh::Error),
    #[error("the server refuses it")]
    Refused,
    #[error("the server ends it at once")]
    Closed,
    #[error("the answer is not SFTP but begins with `{0}`")]
    Strange(String),
    #[error("no answer within {} s", ANSWER_LIMIT.as_secs())]
    Late,
}

impl SftpFault {
    fn fix(&self) -> &'static str {
        match self {
            SftpFault::Strange(_) => {
                "let the login files of the account print nothing when there is no terminal"
            }
            SftpFault::NoSession(_) | SftpFault::Late => {
                "try `sftp` to this host by hand; it may be overloaded"
            }
            SftpFault::Refused | SftpFault::Closed => {
                "add `Subsystem sftp internal-sftp` to the sshd_config of the host and reload sshd; beside Dropbear, install openssh-sftp-server"
            }
        }
    }
}

/// Opens sessions one by one until the host refuses, and closes them all.
pub(super) async fn sessions(handle: &Handle<HostGuard>) -> Step {
    let started = clock::instant();
    let mut open = Vec::new();
    let mut broken = None;
    while open.len() < MOST_SESSIONS {
        match timeout(ANSWER_LIMIT, handle.channel_open_session()).await {
            Ok(Ok(channel)) => open.push(channel),
            Ok(Err(russh::Error::ChannelOpenFailure(_))) => break,
            Ok(Err(error)) => {
                broken = Some(Failure::chain(&error));
                break;
            }
            Err(_) => {
                broken = Some(format!("no answer within {} s", ANSWER_LIMIT.as_secs()));
                break;
            }
        }
    }
    let opened = open.len();
    close_all(handle, &open).await;
    let step = match broken {
        None => judge_sessions(opened, MOST_SESSIONS),
        Some(words) => Step::warning(
            StepName::Sessions,
            &format!("{opened} were opened, then: {words}"),
            "look into the log of the SSH server there",
        ),
    };
    step.took(started.elapsed())
}

/// Closes channels and lets the host answer something afterwards, for only then their places are free.
async fn close_all(handle: &Handle<HostGuard>, channels: &[Channel<Msg>]) {
    let closing = async {
        for channel in channels {
            let _ = channel.close().await;
        }
        // The library keeps the host's own closing to itself once we have closed.
        let _ = handle
            .send_global_request("keepalive@openssh.com", &[], true)
            .await;
    };
    let _ = timeout(CLOSE_LIMIT, closing).await;
}

/// Lets the file transfer end by itself, for its session lasts as long as its process.
async fn end(channel: &mut Channel<Msg>) {
    let ending = async {
        let _ = channel.eof().await;
        while let Some(said) = channel.wait().await {
            if matches!(said, ChannelMsg::Close) {
                break;
            }
        }
    };
    let _ = timeout(CLOSE_LIMIT, ending).await;
}

/// Starts the file transfer and exchanges versions.
pub(super) async fn sftp(handle: &Handle<HostGuard>) -> Step {
    let started = clock::instant();
    let opening = timeout(ANSWER_LIMIT, handle.channel_open_session()).await;
    let version = match opening {
        Err(_) => Err(SftpFault::Late),
        Ok(Err(error)) => Err(SftpFault::NoSession(error)),
        Ok(Ok(mut channel)) => {
            let asked = timeout(ANSWER_LIMIT, ask_version(&mut channel)).await;
            if matches!(asked, Ok(Ok(_))) {
                end(&mut channel).await;
            }
            close_all(handle, &[channel]).await;
            asked.unwrap_or(Err(SftpFault::Late))
        }
    };
    let step = match version {
        Ok(version) => Step::ok(StepName::Sftp, &format!("version {version}")),
        Err(fault) => Step::warning(StepName::Sftp, &Failure::chain(&fault), fault.fix()),
    };
    step.took(started.elapsed())
}

async fn ask_version(channel: &mut Channel<Msg>) -> Result<u32, SftpFault> {
    let asked = channel.request_subsystem(true, "sftp").await;
    asked.map_err(SftpFault::NoSession)?;
    let mut answer = Vec::new();
    while let Some(said) = channel.wait().await {
        match said {
            ChannelMsg::Failure => return Err(SftpFault::Refused),
            // Before that there may be no window to send into.
            ChannelMsg::Success => {
                let hello = channel.data_bytes(SFTP_HELLO.to_vec()).await;
                hello.map_err(SftpFault::NoSession)?;
            }
            ChannelMsg::Data { data } => answer.extend_from_slice(&data),
            ChannelMsg::Close | ChannelMsg::Eof => break,
            _ => {}
        }
        if let Some(version) = read_version(&answer)? {
            return Ok(version);
        }
    }
    Err(SftpFault::Closed)
}

/// The version in the server's first packet; nothing while there are too few bytes.
fn read_version(answer: &[u8]) -> Result<Option<u32>, SftpFault> {
    let Some((head, _)) = answer.split_first_chunk::<9>() else {
        return Ok(None);
    };
    match *head {
        [_, _, _, _, SFTP_VERSION, a, b, c, d] => Ok(Some(u32::from_be_bytes([a, b, c, d]))),
        _ => {
            let text = String::from_utf8_lossy(answer);
            Err(SftpFault::Strange(remote_sandbox_core::output::clean_line(
                &text, 40,
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_read_once_there_are_enough_bytes() {
        let packet = [0, 0, 0, 9, 2, 0, 0, 0, 3, 7, 7];
        assert_eq!(read_version(&packet).unwrap(), Some(3));
        assert_eq!(read_version(&packet[..8]).unwrap(), None);
    }

    #[test]
    fn words_of_a_login_file_are_told_from_an_answer() {
        let fault = read_version(b"Welcome to gpu1\n").unwrap_err();
        assert!(fault.to_string().contains("Welcome"), "{fault}");
    }
}
