//! This program once more, as a process that lives on by itself.

use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{ChildStdin, Command};

use super::supervised::begin_session_apart;

/// A process that lives on when this one ends, and is no child of it.
#[derive(Debug)]
pub struct Background {
    pid: Pid,
    input: Option<ChildStdin>,
    /// Means this process alone, also when its number has become another's.
    #[cfg(target_os = "linux")]
    handle: Option<OwnedFd>,
}

impl Background {
    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Tells it something, whole, and closes its input.
    pub async fn tell(&mut self, words: &[u8]) -> io::Result<()> {
        let mut input = self.input.take().ok_or(io::ErrorKind::BrokenPipe)?;
        input.write_all(words).await?;
        input.shutdown().await
    }

    /// Ends it at once.
    pub fn end(self) {
        #[cfg(target_os = "linux")]
        if let Some(handle) = &self.handle {
            let _ = rustix::process::pidfd_send_signal(handle, Signal::KILL);
            return;
        }
        let _ = rustix::process::kill_process(self.pid, Signal::KILL);
    }
}

/// Starts this program, or another one, in a session of its own, with nothing of our environment and no
/// descriptors but a pipe to speak to it and a file for its complaints.
///
/// It is forked twice: whoever ends a program with all its children, as clients do with their servers, does not find
/// it among ours.
pub fn in_background(
    program: Option<&Path>,
    arguments: &[&str],
    variables: &[(String, String)],
    complaints: OwnedFd,
) -> io::Result<Background> {
    let own = std::env::current_exe()?;
    let mut command = match program {
        Some(program) => Command::new(program),
        // The very program that runs, also when its file was replaced meanwhile by a newer one.
        None if cfg!(target_os = "linux") => {
            let mut command = Command::new("/proc/self/exe");
            command.arg0(&own);
            command
        }
        None => Command::new(own),
    };
    command
        .args(arguments)
        .env_clear()
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::from(complaints));
    let (mut told, teller) = io::pipe()?;
    begin_session_apart(&mut command, teller);
    let mut between = command.spawn()?;
    // Said before it became the program, so it is there; with the command the other end of the pipe goes.
    drop(command);
    let input = between.stdin.take();
    let mut number = [0; 4];
    let said = told.read_exact(&mut number);
    tokio::spawn(async move {
        // It only made the other one, and is over.
        let _ = between.wait().await;
    });
    said?;
    let pid = Pid::from_raw(i32::from_ne_bytes(number)).ok_or(io::ErrorKind::InvalidData)?;
    Ok(Background {
        pid,
        input,
        #[cfg(target_os = "linux")]
        handle: rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use remote_sandbox_testkit::wait::wait_until;
    use tokio::io::AsyncReadExt as _;

    use super::*;

    fn is_no_child_of_ours(pid: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let (_, rest) = stat.rsplit_once(") ").unwrap();
        let parent = rest.split(' ').nth(1).unwrap();
        parent != std::process::id().to_string()
    }

    #[tokio::test]
    async fn this_very_program_is_started_again_and_reads_what_it_is_told() {
        const AGAIN: &str = "TESTKIT_BACKGROUND";
        if std::env::var_os(AGAIN).is_some() {
            let mut told = String::new();
            tokio::io::stdin().read_to_string(&mut told).await.unwrap();
            return eprintln!("told {told}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("complaints");
        let complaints = std::fs::File::create(&path).unwrap();
        let (_, module) = module_path!().split_once("::").unwrap();
        let name =
            format!("{module}::this_very_program_is_started_again_and_reads_what_it_is_told");
        let arguments = ["--exact", "--nocapture", &name];
        let variables = [(AGAIN.to_owned(), "1".to_owned())];
        let started = in_background(None, &arguments, &variables, complaints.into());
        let mut started = started.unwrap();
        started.tell(b"a secret").await.unwrap();
        assert!(is_no_child_of_ours(started.pid()));
        let said = || {
            std::fs::read_to_string(&path)
                .unwrap()
                .contains("told a secret")
        };
        assert!(wait_until(Duration::from_secs(10), said).await);
    }
}
