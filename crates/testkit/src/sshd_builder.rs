//! What a test wants its OpenSSH server to be like, and the configuration file that says so.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::keys::{ClientKey, KeyType};
use crate::sshd::Sshd;
use crate::users::TestUser;

/// The description of a server, see [`Sshd::builder`].
#[derive(Clone, Debug)]
pub struct SshdBuilder {
    pub(crate) host_keys: Vec<KeyType>,
    pub(crate) port: Option<u16>,
    password_auth: bool,
    keyboard_interactive: bool,
    allowed_users: Vec<String>,
    pub(crate) authorized: Vec<String>,
    session_environment: Vec<String>,
    run_as: Option<(String, u32)>,
    extra_config: Vec<String>,
}

impl SshdBuilder {
    /// The algorithms of the host keys; Ed25519 alone by default.
    #[must_use]
    pub fn host_key_algorithms(mut self, algorithms: &[KeyType]) -> Self {
        self.host_keys = algorithms.to_vec();
        self
    }

    /// Limits the channels of one connection (`MaxSessions`).
    #[must_use]
    pub fn max_sessions(self, sessions: u32) -> Self {
        self.extra_config(&format!("MaxSessions {sessions}"))
    }

    /// Adds a line to the configuration; it wins over the defaults, which come after it.
    #[must_use]
    pub fn extra_config(mut self, line: &str) -> Self {
        self.extra_config.push(line.to_owned());
        self
    }

    /// Sets a variable in the environment of every session.
    #[must_use]
    pub fn session_environment(mut self, name: &str, value: &str) -> Self {
        self.session_environment.push(format!("{name}={value}"));
        self
    }

    /// Lets only this user in; may be called several times, and without it every local user may log in.
    #[must_use]
    pub fn user(mut self, user: &TestUser) -> Self {
        self.allowed_users.push(user.name().to_owned());
        self
    }

    /// Accepts passwords (as root only, for accounts that have one).
    #[must_use]
    pub fn password_auth(mut self) -> Self {
        self.password_auth = true;
        self
    }

    /// Accepts keyboard-interactive logins through PAM (as root only).
    #[must_use]
    pub fn keyboard_interactive(mut self) -> Self {
        self.keyboard_interactive = true;
        self
    }

    /// Lets another key in, next to the one every server makes for its clients.
    #[must_use]
    pub fn authorize(mut self, key: &ClientKey) -> Self {
        self.authorized.push(key.public_line().to_owned());
        self
    }

    /// Runs the daemon itself as this account (as root only), which then is the only one that can log in.
    #[must_use]
    pub fn run_as(mut self, user: &TestUser) -> Self {
        self.run_as = Some((user.name().to_owned(), user.uid()));
        // The server's directory stays root's.
        self.user(user).extra_config("PidFile none")
    }

    /// Listens on this port instead of a free one.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Starts the server and waits until it answers with a banner.
    #[must_use]
    pub fn start(self) -> Sshd {
        Sshd::start_with(self)
    }

    /// The program that becomes the daemon, without its arguments; the host keys in `dir` are made readable for it.
    pub(crate) fn daemon_command(&self, program: &Path, dir: &Path) -> Command {
        let Some((name, uid)) = &self.run_as else {
            return Command::new(program);
        };
        for key_type in &self.host_keys {
            chown(host_key_path(dir, *key_type), Some(*uid), None)
                .expect("the host key gets its owner");
        }
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", name, "--regid", name, "--init-groups"])
            .arg(program);
        command
    }

    pub(crate) fn config_text(&self, dir: &Path, marker: &str, port: u16) -> String {
        let mut text = String::new();
        for line in &self.extra_config {
            text.push_str(&format!("{line}\n"));
        }
        for key_type in &self.host_keys {
            text.push_str(&format!(
                "HostKey {}\n",
                host_key_path(dir, *key_type).display()
            ));
        }
        if !self.allowed_users.is_empty() {
            text.push_str(&format!("AllowUsers {}\n", self.allowed_users.join(" ")));
        }
        text.push_str(&format!(
            "SetEnv {} {}\n",
            marker,
            self.session_environment.join(" ")
        ));
        let dir = dir.display();
        let yes_no = |flag: bool| if flag { "yes" } else { "no" };
        text.push_str(&format!(
            "Port {port}\nListenAddress 127.0.0.1\nPidFile {dir}/sshd.pid\n\
             AuthorizedKeysFile {dir}/authorized_keys\nStrictModes no\nLogLevel VERBOSE\n\
             PermitRootLogin yes\nPubkeyAuthentication yes\nPasswordAuthentication {}\n\
             KbdInteractiveAuthentication {}\nUsePAM {}\nUseDNS no\nPrintMotd no\n\
             PrintLastLog no\nMaxStartups 200:30:400\n",
            yes_no(self.password_auth),
            yes_no(self.keyboard_interactive),
            yes_no(self.keyboard_interactive),
        ));
        // A second definition would not win but stop the server.
        if !self
            .extra_config
            .iter()
            .any(|line| line.starts_with("Subsystem "))
        {
            text.push_str("Subsystem sftp internal-sftp\n");
        }
        if penalties_known() {
            text.push_str("PerSourcePenalties no\n");
        }
        // Whoever runs the tests has login files of their own; an empty home keeps those out.
        text.push_str(&format!(
            "Match User {}\n    SetEnv {marker} HOME={dir}/home {}\n",
            TestUser::current().name(),
            self.session_environment.join(" ")
        ));
        text
    }
}

impl Default for SshdBuilder {
    fn default() -> Self {
        Self {
            host_keys: vec![KeyType::Ed25519],
            port: None,
            password_auth: false,
            keyboard_interactive: false,
            allowed_users: Vec::new(),
            authorized: Vec::new(),
            session_environment: Vec::new(),
            run_as: None,
            extra_config: Vec::new(),
        }
    }
}

pub(crate) fn host_key_path(dir: &Path, key_type: KeyType) -> PathBuf {
    dir.join(format!("host_key_{}", key_type.keygen_name()))
}

/// From 9.8 on, OpenSSH locks out an address after failed logins, which would be every test's address.
fn penalties_known() -> bool {
    let Ok(output) = Command::new("ssh").arg("-V").output() else {
        return false;
    };
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let version = text
        .strip_prefix("OpenSSH_")
        .map(|rest| {
            rest.split(|c: char| !c.is_ascii_digit())
                .take(2)
                .filter_map(|part| part.parse::<u32>().ok())
                .collect::<Vec<_>>()
        })
        .unwrap_or_default();
    version >= vec![9, 8]
}
