//! A real OpenSSH server on a loopback port, with its own keys, its own log and its own directory.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::keys::{ClientKey, KeyFormat, set_mode};
use crate::process;
use crate::sshd_builder::{SshdBuilder, host_key_path};
use crate::wait::{free_port, wait_until_blocking};

const START_LIMIT: Duration = Duration::from_secs(20);
const SIGNAL_LIMIT: Duration = Duration::from_secs(5);
const MARKER: &str = "TESTKIT_SSHD";

/// A running OpenSSH server; dropping it ends the daemon, its sessions and what they left running.
#[derive(Debug)]
pub struct Sshd {
    settings: SshdBuilder,
    dir: TempDir,
    client_key: ClientKey,
    port: u16,
    marker: String,
    daemon: Option<Daemon>,
    own_connections: usize,
    left_sessions: Vec<u32>,
}

#[derive(Debug)]
struct Daemon {
    child: Child,
    guard: Child,
}

impl Sshd {
    /// Describes a server: an Ed25519 host key, key logins only, any local user.
    #[must_use]
    pub fn builder() -> SshdBuilder {
        SshdBuilder::default()
    }

    /// A server with all defaults.
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The private key that this server lets in.
    #[must_use]
    pub fn client_key_path(&self) -> &Path {
        self.client_key.private_path()
    }

    /// The key pair that this server lets in.
    #[must_use]
    pub fn client_key(&self) -> &ClientKey {
        &self.client_key
    }

    /// The server's own directory, removed with it.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The public host keys, one `algorithm base64` line each.
    #[must_use]
    pub fn host_public_keys(&self) -> Vec<String> {
        self.settings
            .host_keys
            .iter()
            .map(|key_type| {
                let line =
                    fs::read_to_string(host_key_path(self.dir(), *key_type).with_extension("pub"))
                        .expect("the public host key is readable");
                line.split_whitespace()
                    .take(2)
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect()
    }

    /// The `known_hosts` text that makes a client trust this server at 127.0.0.1 and this port.
    #[must_use]
    pub fn known_hosts(&self) -> String {
        self.known_hosts_for("127.0.0.1", self.port)
    }

    /// The `known_hosts` text for another way to this server, such as a proxy's port.
    #[must_use]
    pub fn known_hosts_for(&self, host: &str, port: u16) -> String {
        self.host_public_keys()
            .iter()
            .map(|key| format!("[{host}]:{port} {key}\n"))
            .collect()
    }

    /// Lets another key in from now on.
    pub fn authorize(&mut self, key: &ClientKey) {
        self.settings.authorized.push(key.public_line().to_owned());
        self.write_authorized_keys();
    }

    /// Everything the server wrote to its log since the first start.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// How many logins succeeded.
    #[must_use]
    pub fn accepted_auth_count(&self) -> usize {
        self.count_log_lines(|line| {
            line.starts_with("Accepted ") && line.contains(" for ") && line.contains(" from ")
        })
    }

    /// How many login attempts failed; the empty first probe that every client sends is not one.
    #[must_use]
    pub fn failed_auth_count(&self) -> usize {
        self.count_log_lines(|line| {
            line.starts_with("Failed ") && !line.starts_with("Failed none ")
        })
    }

    /// How many TCP connections were made, the server's own readiness checks excepted.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.logged_connections() - self.own_connections
    }

    /// The process id of the listening daemon, while it runs.
    #[must_use]
    pub fn daemon_pid(&self) -> Option<u32> {
        self.daemon.as_ref().map(|daemon| daemon.child.id())
    }

    /// The server's processes that serve connections, without the commands run in them.
    #[must_use]
    pub fn session_pids(&self) -> Vec<u32> {
        let mut pids = self.daemon_pid().map_or_else(Vec::new, session_processes);
        for left in &self.left_sessions {
            if is_session(*left) && !pids.contains(left) {
                pids.push(*left);
            }
        }
        pids
    }

    /// The processes that sessions of this server started and that still live, orphans too.
    #[must_use]
    pub fn command_pids(&self) -> Vec<u32> {
        process::with_environment(&self.marker_entry())
    }

    /// Stops the session processes where they are: connections stay open and nothing answers.
    pub fn freeze_sessions(&self) {
        let pids = self.signal_sessions(Signal::STOP);
        let stopped = |pid: &u32| !process::is_alive(*pid) || process::state(*pid) == Some('T');
        let all_stopped = wait_until_blocking(SIGNAL_LIMIT, || pids.iter().all(stopped));
        assert!(all_stopped, "sessions do not stop: {pids:?}");
    }

    /// Lets frozen session processes go on.
    pub fn thaw_sessions(&self) {
        let pids = self.signal_sessions(Signal::CONT);
        let running = |pid: &u32| process::state(*pid) != Some('T');
        let all_running = wait_until_blocking(SIGNAL_LIMIT, || pids.iter().all(running));
        assert!(all_running, "sessions do not go on: {pids:?}");
    }

    /// Ends the session processes; the daemon and the commands themselves live on.
    pub fn kill_sessions(&self) {
        let pids = self.session_pids();
        assert!(
            process::kill_and_wait(&pids),
            "sessions outlived SIGKILL: {pids:?}"
        );
    }

    /// Ends only the listening daemon: no new connection is taken, the present ones live on.
    pub fn stop_listening(&mut self) {
        self.left_sessions = self.session_pids();
        if let Some(mut daemon) = self.daemon.take() {
            end_child(&mut daemon.guard);
            end_child(&mut daemon.child);
        }
    }

    /// Ends the daemon and its sessions, as if the host's sshd died.
    pub fn stop(&mut self) {
        self.stop_listening();
        let pids = self.session_pids();
        process::kill_and_wait(&pids);
        self.left_sessions.clear();
    }

    /// Stops and starts the server on the same port with the same keys.
    pub fn restart(&mut self) {
        self.stop();
        self.launch(self.port)
            .unwrap_or_else(|reason| panic!("sshd does not start again: {reason}"));
    }

    /// Stops and starts the server on the same port with other host keys.
    pub fn restart_with_new_host_key(&mut self) {
        self.stop();
        self.make_host_keys();
        self.restart();
    }

    /// Runs the OpenSSH client against this server (or a port that leads to it) and waits for its end.
    #[must_use]
    pub fn ssh(&self, user: &str, port: u16, command: &str) -> Output {
        self.ssh_command(user, port)
            .arg(command)
            .stdin(Stdio::null())
            .output()
            .expect("the OpenSSH client starts")
    }

    /// The OpenSSH client with everything set but the remote command.
    #[must_use]
    pub fn ssh_command(&self, user: &str, port: u16) -> Command {
        let known_hosts = self.dir().join(format!("known_hosts_{port}"));
        fs::write(&known_hosts, self.known_hosts_for("127.0.0.1", port))
            .expect("the known hosts file is written");
        let mut ssh = Command::new("ssh");
        ssh.args(["-F", "none", "-o", "BatchMode=yes", "-o"]);
        ssh.arg(format!("UserKnownHostsFile={}", known_hosts.display()));
        ssh.args(["-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "-i"]);
        ssh.arg(self.client_key_path());
        ssh.args(["-p", &port.to_string(), &format!("{user}@127.0.0.1")]);
        ssh
    }

    pub(crate) fn start_with(settings: SshdBuilder) -> Self {
        let dir = TempDir::with_prefix("testkit-sshd-").expect("a temporary directory");
        // Authorized keys are read with the rights of the user who logs in.
        set_mode(dir.path(), 0o755);
        let client_key = ClientKey::ed25519(dir.path(), "client_key");
        let mut sshd = Self {
            port: 0,
            settings,
            marker: dir
                .path()
                .file_name()
                .expect("a temporary directory has a name")
                .to_string_lossy()
                .into_owned(),
            dir,
            client_key,
            daemon: None,
            own_connections: 0,
            left_sessions: Vec::new(),
        };
        sshd.write_authorized_keys();
        fs::create_dir_all(sshd.dir().join("home")).expect("the home can be made");
        sshd.make_host_keys();
        sshd.launch_on_some_port();
        sshd
    }

    fn signal_sessions(&self, signal: Signal) -> Vec<u32> {
        let pids = self.session_pids();
        for pid in &pids {
            process::signal(*pid, signal);
        }
        pids
    }

    fn count_log_lines(&self, wanted: impl Fn(&str) -> bool) -> usize {
        self.log().lines().filter(|line| wanted(line)).count()
    }

    fn logged_connections(&self) -> usize {
        self.count_log_lines(|line| line.starts_with("Connection from "))
    }

    fn marker_entry(&self) -> String {
        format!("{MARKER}={}", self.marker)
    }

    fn log_path(&self) -> PathBuf {
        self.dir().join("sshd.log")
    }

    fn make_host_keys(&self) {
        for key_type in &self.settings.host_keys {
            let path = host_key_path(self.dir(), *key_type);
            let _ = fs::remove_file(&path);
            let name = format!("host_key_{}", key_type.keygen_name());
            ClientKey::generate(self.dir(), &name, *key_type, KeyFormat::OpenSsh, None)
                .expect("ssh-keygen makes the host key");
        }
    }

    fn write_authorized_keys(&self) {
        let mut text = format!("{}\n", self.client_key.public_line());
        for line in &self.settings.authorized {
            text.push_str(line);
            text.push('\n');
        }
        let path = self.dir().join("authorized_keys");
        fs::write(&path, text).expect("the authorized keys are written");
        set_mode(&path, 0o644);
    }

    fn launch_on_some_port(&mut self) {
        if let Some(port) = self.settings.port {
            self.launch(port)
                .unwrap_or_else(|reason| panic!("sshd does not start on port {port}: {reason}"));
            return;
        }
        let mut reason = String::new();
        for _ in 0..5 {
            match self.launch(free_port()) {
                Ok(()) => return,
                Err(why) => reason = why,
            }
        }
        panic!("sshd does not start: {reason}");
    }

    fn launch(&mut self, port: u16) -> Result<(), String> {
        if process::is_root() {
            fs::create_dir_all("/run/sshd").map_err(|error| error.to_string())?;
        }
        let config = self.dir().join("sshd_config");
        fs::write(
            &config,
            self.settings
                .config_text(self.dir(), &self.marker_entry(), port),
        )
        .map_err(|error| error.to_string())?;
        let seen = self.log().len();
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_path())
            .map_err(|error| error.to_string())?;
        let mut child = self
            .settings
            .daemon_command(&sshd_program(), self.dir())
            .args(["-D", "-e", "-f"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|error| format!("cannot start sshd: {error}"))?;
        let listening = format!("Server listening on 127.0.0.1 port {port}.");
        let ready = wait_until_blocking(START_LIMIT, || {
            self.log()
                .get(seen..)
                .is_some_and(|log| log.contains(&listening))
                || !matches!(child.try_wait(), Ok(None))
        });
        if !ready || !matches!(child.try_wait(), Ok(None)) {
            end_child(&mut child);
            return Err(self.log().get(seen..).unwrap_or_default().to_owned());
        }
        self.port = port;
        self.daemon = Some(Daemon {
            guard: guard_against_abandonment(child.id()),
            child,
        });
        read_banner(port)?;
        self.own_connections += 1;
        Ok(())
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.stop();
        for _ in 0..5 {
            let pids = self.command_pids();
            if pids.is_empty() {
                break;
            }
            process::kill_and_wait(&pids);
        }
    }
}

/// Whether this machine has an OpenSSH server at all.
#[must_use]
pub fn sshd_is_installed() -> bool {
    sshd_program().exists()
}

fn sshd_program() -> PathBuf {
    let candidates = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd"];
    let found = candidates.iter().map(Path::new).find(|path| path.exists());
    found.unwrap_or(Path::new("/usr/sbin/sshd")).to_owned()
}

/// Ends the daemon when this test process dies without running its destructors.
pub(crate) fn guard_against_abandonment(daemon: u32) -> Child {
    Command::new("/bin/sh")
        .args(["-c", "read -r _; kill -9 \"$0\"", &daemon.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a shell starts")
}

pub(crate) fn read_banner(port: u16) -> Result<(), String> {
    let stream = TcpStream::connect(("127.0.0.1", port)).map_err(|error| error.to_string())?;
    stream
        .set_read_timeout(Some(START_LIMIT))
        .map_err(|error| error.to_string())?;
    let mut line = String::new();
    BufReader::new(stream)
        .read_line(&mut line)
        .map_err(|error| error.to_string())?;
    if line.starts_with("SSH-2.0-") {
        Ok(())
    } else {
        Err(format!("unexpected banner {line:?}"))
    }
}

fn session_processes(daemon: u32) -> Vec<u32> {
    process::descendants(daemon)
        .into_iter()
        .filter(|pid| is_session(*pid))
        .collect()
}

fn is_session(pid: u32) -> bool {
    process::is_alive(pid) && process::name(pid).is_some_and(|name| name.starts_with("sshd"))
}

pub(crate) fn end_child(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}
