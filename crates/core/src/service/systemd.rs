//! systemd of Linux: the unit of a user's service, and what `systemctl --user show` says of one.

use super::ServiceDescription;

/// The name of the unit.
pub const SYSTEMD_UNIT: &str = "remote-sandbox-watchdog.service";

/// The unit that tells systemd to keep the service running.
pub fn unit(service: &ServiceDescription) -> String {
    let variables = service.variables().iter();
    let variables: String = variables
        .map(|(name, value)| format!("Environment={}\n", quoted(&format!("{name}={value}"))))
        .collect();
    let command = command(service);
    format!(
        "# Written by remote-sandbox-mcp; its command `watchdog uninstall` removes it.\n\
         [Unit]\n\
         Description=Watchdog of remote-sandbox-mcp\n\
         \n\
         [Service]\n\
         Type=simple\n\
         ExecStart={command}\n\
         {variables}\
         WorkingDirectory=/\n\
         UMask=0077\n\
         Restart=always\n\
         RestartSec=10\n\
         # What it has started, such as sandboxes on this machine, is not ended with it.\n\
         KillMode=process\n\
         OOMPolicy=continue\n\
         \n\
         [Install]\n\
         WantedBy=default.target\n"
    )
}

/// The command line. systemd takes no program whose path holds a quote or a backslash, and a dollar sign in it
/// is not doubled as in the other words; a shell takes every one.
fn command(service: &ServiceDescription) -> String {
    let is_plain = !service.program().contains(['"', '\'', '\\', '$']);
    let mut words = Vec::new();
    if is_plain {
        words.push(quoted(service.program()));
    } else {
        words.push("/bin/sh".to_owned());
        words.push("-c".to_owned());
        words.push(argument("exec \"$0\" \"$@\""));
        words.push(argument(service.program()));
    }
    words.extend(service.arguments().iter().map(|word| argument(word)));
    words.join(" ")
}

/// A word of a command line that no variable is put into.
fn argument(word: &str) -> String {
    quoted(&word.replace('$', "$$"))
}

/// A word between quotes, where `%` would begin a specifier.
fn quoted(word: &str) -> String {
    let word = word
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('%', "%%");
    format!("\"{word}\"")
}

/// What systemd says of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SystemdState {
    /// Its state in systemd's word, such as `active` or `failed`.
    pub active: String,
    /// The finer word, such as `running` or `auto-restart`.
    pub sub: String,
    /// Whether it begins with the user's session, such as `enabled`.
    pub file: String,
    /// The number of its process.
    pub pid: Option<u32>,
}

impl SystemdState {
    /// What to ask for.
    pub const PROPERTIES: &str = "ActiveState,SubState,UnitFileState,MainPID";

    /// Reads what `systemctl show` said.
    pub fn from_show(said: &str) -> Self {
        let mut found = SystemdState::default();
        for (key, value) in said.lines().filter_map(|line| line.split_once('=')) {
            match key {
                "ActiveState" => found.active = value.to_owned(),
                "SubState" => found.sub = value.to_owned(),
                "UnitFileState" => found.file = value.to_owned(),
                "MainPID" => found.pid = value.parse().ok().filter(|pid| *pid != 0),
                _ => {}
            }
        }
        found
    }

    /// Whether its process runs.
    pub fn is_running(&self) -> bool {
        self.active == "active" && self.pid.is_some()
    }
}

/// Whether `loginctl show-user` said that the user's services end with the last session; when it did not say, not.
pub fn linger_is_off(said: &str) -> bool {
    said.lines().any(|line| line.trim() == "Linger=no")
}
