//! Finds out when a watch is asked for whether the watchdog will be able to log in, which has no terminal and, once its
//! user has logged out, no agent.

use std::sync::PoisonError;
use std::time::Duration;

use remote_sandbox_core::config::{
    Environment, Reach, SandboxConfig, SandboxEntry, SecretSource, Transport,
};

use super::Engine;
use crate::sandbox::Sandbox as _;
use crate::ssh::SshSandbox;

/// How long a login is tried.
const LIMIT: Duration = Duration::from_secs(5);

/// The variables that a watchdog has for certain.
const CERTAIN: [&str; 15] = [
    "HOME",
    "PATH",
    "LANG",
    "LC_ALL",
    "REMOTE_SANDBOX_MCP_HOME",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TZ",
    "TMPDIR",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_RUNTIME_DIR",
    "REMOTE_SANDBOX_WATCHDOG",
];

/// What is left of an environment when nobody is logged in.
pub(super) fn unattended(environment: &Environment) -> Environment {
    let is_certain = |name: &str| CERTAIN.contains(&name);
    let left = environment.iter().filter(|(name, _)| is_certain(name));
    left.map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// What an entry alone says about a login that nobody attends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outlook {
    /// It has all it needs.
    Good,
    /// It needs a connection that somebody else has made.
    OnlyWhileShared,
    /// It depends on where it is tried.
    Unclear,
}

fn outlook(config: &SandboxConfig) -> Outlook {
    if let Transport::OpenSsh {
        require_existing_master,
    } = config.transport
    {
        return match require_existing_master {
            true => Outlook::OnlyWhileShared,
            false => Outlook::Unclear,
        };
    }
    let is_command = |source: &SecretSource| matches!(source, SecretSource::Command(_));
    match &config.reach {
        Reach::Alias(_) => Outlook::Unclear,
        Reach::Host(host) if host.names_no_credential() => Outlook::Unclear,
        // Its key may be sealed, and only the agent has it open.
        Reach::Host(_) if config.reach.secret_sources().next().is_none() => Outlook::Unclear,
        Reach::Host(_) if config.reach.secret_sources().any(is_command) => Outlook::Unclear,
        Reach::Host(_) => Outlook::Good,
    }
}

impl Engine {
    /// What would keep the watchdog from logging in to a sandbox whose entry is kept under `key`, in words for the
    /// caller. A login is tried only where the entry does not tell, and once for each entry.
    pub(super) async fn login_warning(&self, name: &str, key: Option<&str>) -> Option<String> {
        let key = key?;
        let config = self.entries.iter().find_map(|entry| match entry {
            SandboxEntry::Ready(config) if config.name.as_str() == name => Some(config),
            _ => None,
        })?;
        match outlook(config) {
            Outlook::Good => None,
            Outlook::OnlyWhileShared => Some(format!(
                "the watchdog reaches `{name}` only while your shared connection of ssh is there (require_existing_master)"
            )),
            Outlook::Unclear => self.tried_login(name, key).await,
        }
    }

    async fn tried_login(&self, name: &str, key: &str) -> Option<String> {
        let known = {
            let trials = self.trials.lock().unwrap_or_else(PoisonError::into_inner);
            trials.get(key).cloned()
        };
        if let Some(known) = known {
            return known;
        }
        let (warning, is_certain) = self.try_login(name, key).await;
        // Hosts count failed logins; a host that was only slow may be asked again.
        if is_certain {
            let mut trials = self.trials.lock().unwrap_or_else(PoisonError::into_inner);
            trials.insert(key.to_owned(), warning.clone());
        }
        warning
    }

    /// Logs in as the watchdog will: what went wrong, and whether it would again.
    async fn try_login(&self, name: &str, key: &str) -> (Option<String>, bool) {
        let (why, is_certain) = match self.entry_config(key).await {
            Err(failure) => (failure.message, false),
            Ok(config) => {
                let sandbox = SshSandbox::new(&config, self.unattended.clone());
                let checked = tokio::time::timeout(LIMIT, sandbox.check()).await;
                sandbox.close().await;
                match checked {
                    Ok(Ok(())) => return (None, true),
                    Ok(Err(failure)) => {
                        let failure = failure.masked(&self.mask);
                        (failure.message, !failure.retry)
                    }
                    Err(_) => (format!("no answer within {} s", LIMIT.as_secs()), false),
                }
            }
        };
        let warning = format!(
            "the watchdog will not be able to log in to `{name}` once you are logged out, for it has no SSH agent and no terminal: {why}; give the entry a key_file, with its passphrase, or a password (`remote-sandbox-mcp secret set` keeps one)"
        );
        (Some(warning), is_certain)
    }
}

#[cfg(test)]
#[path = "watch_trial_tests.rs"]
mod tests;
