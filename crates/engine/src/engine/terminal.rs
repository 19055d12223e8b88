//! How a person gets a terminal in a sandbox.

use remote_sandbox_core::config::{HostKeySettings, Reach, SandboxEntry, Way};

use super::Engine;

impl Engine {
    /// The words of the system's own `ssh` for a terminal in a sandbox; the command for it is to be added. None where the
    /// sandbox is not reached in a way that these words can say.
    pub fn terminal_words(&self, name: &str) -> Option<Vec<String>> {
        let entry = self.entries.iter().find_map(|entry| match entry {
            SandboxEntry::Ready(config) if config.name.as_str() == name => Some(config),
            _ => None,
        })?;
        let mut words = vec!["ssh".to_owned(), "-t".to_owned()];
        let mut add = |option: &str, value: String| words.extend([option.to_owned(), value]);
        let host = match &entry.reach {
            Reach::Alias(alias) => {
                if let Some(port) = alias.port {
                    add("-p", port.to_string());
                }
                if let Some(user) = &alias.user {
                    add("-l", user.clone());
                }
                if let Some(key) = &alias.key_file {
                    add("-i", key.to_str()?.to_owned());
                }
                alias.alias.as_str().to_owned()
            }
            Reach::Host(host) if matches!(host.way, Way::Direct) => {
                add("-p", host.port.to_string());
                add("-l", host.user.clone());
                if let Some(key) = &host.key_file {
                    add("-i", key.to_str()?.to_owned());
                }
                host.host.clone()
            }
            Reach::Host(_) => return None,
        };
        // Keys that this program has recorded count, and nothing is trusted that it would not trust.
        add("-o", self.known_hosts_option(entry.reach.host_keys())?);
        words.extend(["--".to_owned(), host]);
        Some(words)
    }

    fn known_hosts_option(&self, keys: &HostKeySettings) -> Option<String> {
        let own = self.state.join("known_hosts");
        let mut files = vec![format!("\"{}\"", own.to_str()?)];
        for file in &keys.known_hosts_files {
            files.push(format!("\"{}\"", file.to_str()?));
        }
        if keys.known_hosts_files.is_empty() {
            files.extend(["~/.ssh/known_hosts", "~/.ssh/known_hosts2"].map(str::to_owned));
        }
        Some(format!("UserKnownHostsFile={}", files.join(" ")))
    }
}
