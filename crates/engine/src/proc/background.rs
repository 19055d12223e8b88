//! This program once more, as a process that lives on by itself.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;

use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

use super::supervised::begin_session;

/// A process that lives on when this one ends.
#[derive(Debug)]
pub struct Background {
    child: Child,
}

impl Background {
    /// Its number.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Tells it something, whole, and closes its input.
    pub async fn tell(&mut self, words: &[u8]) -> io::Result<()> {
        let mut input = self.child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        input.write_all(words).await?;
        input.shutdown().await
    }

    /// Waits for its end in the background, so that it does not stay as a zombie.
    pub fn reap_later(self) {
        let mut child = self.child;
        tokio::spawn(async move {
            let _ = child.wait().await;
        });
    }

    /// Ends it at once.
    pub async fn end(mut self) {
        let _ = self.child.kill().await;
    }
}

/// Starts this program, or another one, in a session of its own, with nothing of our environment and no
/// descriptors but a pipe to speak to it and a file for its complaints.
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
    begin_session(&mut command);
    let child = command.spawn()?;
    Ok(Background { child })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use remote_sandbox_testkit::wait::wait_until;
    use tokio::io::AsyncReadExt as _;

    use super::*;

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
        started.reap_later();
        let said = || {
            std::fs::read_to_string(&path)
                .unwrap()
                .contains("told a secret")
        };
        assert!(wait_until(Duration::from_secs(10), said).await);
    }
}
