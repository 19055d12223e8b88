//! A real dropbear server on a loopback port, for one throw-away account.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::keys::{ClientKey, set_mode};
use crate::process;
use crate::sshd::{end_child, guard_against_abandonment, read_banner};
use crate::users::TestUser;
use crate::wait::{free_port, skip, wait_until_blocking};

const START_LIMIT: Duration = Duration::from_secs(20);

/// A running dropbear server; dropping it ends the daemon and its sessions.
///
/// It looks for authorized keys in the account's home only, so it is made for an account that is thrown away.
#[derive(Debug)]
pub struct Dropbear {
    dir: TempDir,
    client_key: ClientKey,
    options: Vec<String>,
    port: u16,
    daemon: Option<Daemon>,
    own_connections: usize,
}

#[derive(Debug)]
struct Daemon {
    child: Child,
    guard: Child,
}

impl Dropbear {
    /// Starts a server that lets `user` in, with further command line options; `None` (and a printed reason)
    /// where dropbear is not installed.
    #[must_use]
    pub fn start(user: &TestUser, options: &[&str]) -> Option<Self> {
        for program in ["dropbear", "dropbearkey"] {
            if find(program).is_none() {
                skip(format_args!("{program} is not installed"));
                return None;
            }
        }
        let dir = TempDir::with_prefix("testkit-dropbear-").expect("a temporary directory");
        let client_key = ClientKey::ed25519(dir.path(), "client_key");
        let mut server = Self {
            dir,
            client_key,
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            port: 0,
            daemon: None,
            own_connections: 0,
        };
        authorize(user, server.client_key.public_line());
        server.make_host_key();
        let mut reason = String::new();
        for _ in 0..5 {
            match server.launch(free_port()) {
                Ok(()) => return Some(server),
                Err(why) => reason = why,
            }
        }
        panic!("dropbear does not start: {reason}");
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

    /// Everything the server wrote to its log since the first start.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// How many logins succeeded.
    #[must_use]
    pub fn accepted_auth_count(&self) -> usize {
        self.log().matches(" auth succeeded for ").count()
    }

    /// How many passwords were refused.
    #[must_use]
    pub fn refused_password_count(&self) -> usize {
        self.log().matches("Bad password attempt for ").count()
    }

    /// How many TCP connections were made, the server's own readiness checks excepted.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.log().matches("Child connection from ").count() - self.own_connections
    }

    /// Ends the daemon and its sessions, as if the host's server died.
    pub fn stop(&mut self) {
        let Some(mut daemon) = self.daemon.take() else {
            return;
        };
        let sessions: Vec<u32> = process::descendants(daemon.child.id())
            .into_iter()
            .filter(|pid| process::name(*pid).is_some_and(|name| name.starts_with("dropbear")))
            .collect();
        end_child(&mut daemon.guard);
        end_child(&mut daemon.child);
        process::kill_and_wait(&sessions);
    }

    /// Stops and starts the server on the same port with another host key.
    pub fn restart_with_new_host_key(&mut self) {
        self.stop();
        self.make_host_key();
        self.launch(self.port)
            .unwrap_or_else(|reason| panic!("dropbear does not start again: {reason}"));
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("dropbear.log")
    }

    fn host_key_path(&self) -> PathBuf {
        self.dir.path().join("host_key")
    }

    fn make_host_key(&self) {
        let path = self.host_key_path();
        let _ = fs::remove_file(&path);
        let made = Command::new(find("dropbearkey").expect("dropbearkey is installed"))
            .args(["-t", "ed25519", "-f"])
            .arg(&path)
            .stdin(Stdio::null())
            .output()
            .expect("dropbearkey starts");
        assert!(made.status.success(), "dropbearkey failed: {made:?}");
    }

    fn launch(&mut self, port: u16) -> Result<(), String> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_path())
            .map_err(|error| error.to_string())?;
        let seen = self.log().len();
        let mut child = Command::new(find("dropbear").expect("dropbear is installed"))
            .args(["-F", "-E", "-m", "-r"])
            .arg(self.host_key_path())
            .arg("-P")
            .arg(self.dir.path().join("dropbear.pid"))
            .args(["-p", &format!("127.0.0.1:{port}")])
            .args(&self.options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|error| format!("cannot start dropbear: {error}"))?;
        // It does not say when it listens, so it is asked.
        let ready = wait_until_blocking(START_LIMIT, || {
            read_banner(port).is_ok() || !matches!(child.try_wait(), Ok(None))
        });
        if !ready || !matches!(child.try_wait(), Ok(None)) {
            end_child(&mut child);
            return Err(self.log().get(seen..).unwrap_or_default().to_owned());
        }
        let greeted = |server: &Self| {
            let log = server.log();
            log.get(seen..)
                .is_some_and(|log| log.contains("Child connection from "))
        };
        assert!(
            wait_until_blocking(START_LIMIT, || greeted(self)),
            "dropbear writes no log"
        );
        self.own_connections += 1;
        self.port = port;
        self.daemon = Some(Daemon {
            guard: guard_against_abandonment(child.id()),
            child,
        });
        Ok(())
    }
}

impl Drop for Dropbear {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Writes the account's authorized keys; dropbear takes them only when nobody else may write there.
fn authorize(user: &TestUser, line: &str) {
    let folder = user.home().join(".ssh");
    let file = folder.join("authorized_keys");
    fs::create_dir_all(&folder).expect("the account has a home");
    fs::write(&file, format!("{line}\n")).expect("the authorized keys are written");
    for (path, mode) in [(&folder, 0o700), (&file, 0o600)] {
        chown(path, Some(user.uid()), None).expect("the account gets its keys");
        set_mode(path, mode);
    }
}

fn find(program: &str) -> Option<PathBuf> {
    ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"]
        .iter()
        .map(|folder| Path::new(folder).join(program))
        .find(|path| path.exists())
}
