//! OpenSSH's own SFTP server as a program on two pipes, without an sshd around it.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::process;
use crate::wait::{skip, wait_until_blocking};

/// Where distributions put it.
const PLACES: [&str; 5] = [
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
    "/usr/libexec/sftp-server",
    "/usr/local/libexec/sftp-server",
];

/// A running `sftp-server`; dropping it ends the program.
#[derive(Debug)]
pub struct SftpServer {
    child: Child,
    pid: u32,
}

impl SftpServer {
    /// Starts one in a directory; gives what it says and what it is told.
    #[must_use]
    pub fn start(directory: &Path) -> Option<(Self, ChildStdout, ChildStdin)> {
        Self::launch(Command::new(Self::program()?), directory)
    }

    /// Starts one as the account `nobody`, which may do little; nothing without root.
    #[must_use]
    pub fn start_as_nobody(directory: &Path) -> Option<(Self, ChildStdout, ChildStdin)> {
        let program = Self::program()?;
        if !process::is_root() {
            skip("only root can start a program as another account");
            return None;
        }
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(program);
        Self::launch(command, directory)
    }

    fn program() -> Option<PathBuf> {
        let found = PLACES.iter().map(PathBuf::from).find(|path| path.exists());
        if found.is_none() {
            skip("there is no sftp-server on this machine");
        }
        found
    }

    fn launch(mut command: Command, directory: &Path) -> Option<(Self, ChildStdout, ChildStdin)> {
        let mut child = command
            .current_dir(directory)
            .env("HOME", directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("the SFTP server starts");
        let output = child.stdout.take().expect("it has an output");
        let input = child.stdin.take().expect("it has an input");
        let pid = child.id().expect("it has a number");
        Some((Self { child, pid }, output, input))
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Stops it where it is: it answers nothing, and its pipes stay open.
    pub fn freeze(&self) {
        process::signal(self.pid, rustix::process::Signal::STOP);
        let stopped = || process::state(self.pid) == Some('T');
        assert!(wait_until_blocking(Duration::from_secs(5), stopped));
    }

    /// Lets a frozen one go on.
    pub fn thaw(&self) {
        process::signal(self.pid, rustix::process::Signal::CONT);
    }

    /// How many files it has open.
    #[must_use]
    pub fn open_files(&self) -> usize {
        let entries = std::fs::read_dir(format!("/proc/{}/fd", self.pid));
        entries.map_or(0, Iterator::count)
    }

    /// Ends it at once, whatever it does.
    pub fn kill(&mut self) {
        self.child.start_kill().expect("the SFTP server is killed");
    }

    /// Waits until it has ended by itself.
    pub async fn ended(&mut self) {
        let ended = tokio::time::timeout(Duration::from_secs(10), self.child.wait()).await;
        ended
            .expect("the SFTP server ends")
            .expect("and is waited for");
    }
}
