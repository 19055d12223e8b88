//! An entry as it is kept for another process, with its secrets apart: what is written down holds none of them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{
    AliasSettings, ConfigText, Format, GivenLimits, HostKeySettings, Limits, LocalSettings, Reach,
    SandboxConfig, SecretSource, SshSettings, Surroundings, Transport, Way,
};
use crate::secret::Secret;

/// Why an entry cannot be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnkeptError {
    /// A path that no text can say.
    #[error("the path in `{0}` is no text")]
    Path(&'static str),
    /// A way that an entry cannot say.
    #[error("it is reached in a way that an entry cannot say")]
    Way,
}

/// A secret of an entry that is kept elsewhere.
#[derive(Debug, Clone)]
pub struct KeptSecret {
    /// The key of the entry that names it, such as `password`.
    pub key: &'static str,
    /// The secret.
    pub value: Secret<String>,
}

/// An entry and, apart from it, what must not be written down with it.
#[derive(Debug, Clone)]
pub struct KeptEntry {
    /// The entry as a list of sandboxes has it, without secrets.
    pub entry: Map<String, Value>,
    /// Password and passphrase, where the entry says them itself.
    pub secrets: Vec<KeptSecret>,
    /// Variables and start-up text, which often hold keys of their own, as a JSON object.
    pub surroundings: Option<Secret<String>>,
}

/// Takes an entry apart.
pub fn kept_entry(config: &SandboxConfig) -> Result<KeptEntry, UnkeptError> {
    let mut kept = KeptEntry {
        entry: Map::new(),
        secrets: Vec::new(),
        surroundings: None,
    };
    kept.put("name", json!(config.name.as_str()));
    match &config.reach {
        Reach::Host(host) => kept.host(host)?,
        Reach::Alias(alias) => kept.alias(alias)?,
    }
    if let Transport::OpenSsh {
        require_existing_master,
    } = config.transport
    {
        kept.put("transport", json!("openssh"));
        if require_existing_master {
            kept.put("require_existing_master", json!(true));
        }
    }
    kept.surroundings(&config.surroundings);
    Ok(kept)
}

/// The key by which an entry of a sandbox on this machine is told from one of a host.
const LOCAL: &str = "local";

/// Takes apart what holds for a sandbox on this machine: the table `[local]`, flat, with the name of the sandbox.
pub fn kept_local(name: &str, settings: &LocalSettings) -> Result<KeptEntry, UnkeptError> {
    let mut kept = KeptEntry {
        entry: Map::new(),
        secrets: Vec::new(),
        surroundings: None,
    };
    kept.put(LOCAL, json!(name));
    kept.put("isolation", json!(settings.isolation.word()));
    kept.put("network", json!(settings.network.word()));
    let paths = settings.readable.iter().map(|path| path.to_str());
    let paths: Option<Vec<&str>> = paths.collect();
    let paths = paths.ok_or(UnkeptError::Path("readable"))?;
    if !paths.is_empty() {
        kept.put("readable", json!(paths));
    }
    let limits = &settings.limits;
    kept.put("processes", json!(limits.processes.unwrap_or(0)));
    for (key, bound) in [
        ("memory_mb", limits.memory_mb),
        ("cpu_percent", limits.cpu_percent),
    ] {
        if let Some(bound) = bound {
            kept.put(key, json!(bound));
        }
    }
    kept.surroundings(&settings.surroundings);
    Ok(kept)
}

/// The name of the sandbox on this machine that a whole entry is about, and a configuration that says how it is; none for
/// an entry of a host.
pub fn kept_local_source(mut entry: Map<String, Value>) -> Option<(String, ConfigText)> {
    let Value::String(name) = entry.remove(LOCAL)? else {
        return None;
    };
    let text = json!({ LOCAL: entry }).to_string();
    let file = ConfigText {
        path: PathBuf::from("kept.json"),
        format: Format::Json,
        text: text.into_bytes(),
    };
    Some((name, file))
}

/// Puts the variables and the start-up text back into an entry.
pub fn whole_entry(
    mut entry: Map<String, Value>,
    surroundings: &str,
) -> Option<Map<String, Value>> {
    let Ok(Value::Object(members)) = serde_json::from_str(surroundings) else {
        return None;
    };
    entry.extend(members);
    Some(entry)
}

impl KeptEntry {
    fn put(&mut self, key: &str, value: Value) {
        self.entry.insert(key.to_owned(), value);
    }

    fn host(&mut self, host: &SshSettings) -> Result<(), UnkeptError> {
        if !matches!(host.way, Way::Direct) {
            return Err(UnkeptError::Way);
        }
        self.put("host", json!(host.host));
        self.put("port", json!(host.port));
        self.put("user", json!(host.user));
        self.path("key_file", host.key_file.as_deref())?;
        self.secret("key_passphrase", host.key_passphrase.as_ref());
        self.secret("password", host.password.as_ref());
        self.host_keys(&host.host_keys, true)?;
        self.limits(&given(&host.limits));
        Ok(())
    }

    fn alias(&mut self, alias: &AliasSettings) -> Result<(), UnkeptError> {
        self.put("ssh_alias", json!(alias.alias.as_str()));
        if let Some(port) = alias.port {
            self.put("port", json!(port));
        }
        if let Some(user) = &alias.user {
            self.put("user", json!(user));
        }
        self.path("key_file", alias.key_file.as_deref())?;
        self.secret("key_passphrase", alias.key_passphrase.as_ref());
        self.secret("password", alias.password.as_ref());
        self.host_keys(&alias.host_keys, alias.policy_is_given)?;
        self.limits(&alias.limits);
        Ok(())
    }

    fn path(&mut self, key: &'static str, path: Option<&Path>) -> Result<(), UnkeptError> {
        if let Some(path) = path {
            let text = path.to_str().ok_or(UnkeptError::Path(key))?;
            self.put(key, json!(text));
        }
        Ok(())
    }

    fn secret(&mut self, key: &'static str, source: Option<&SecretSource>) {
        match source {
            None => {}
            Some(SecretSource::Clear(value)) => self.secrets.push(KeptSecret {
                key,
                value: value.clone(),
            }),
            Some(SecretSource::Command(words)) => self.put(&format!("{key}_command"), json!(words)),
            Some(SecretSource::Stored(name)) => {
                self.put(&format!("{key}_secret"), json!(name.as_str()));
            }
        }
    }

    fn host_keys(&mut self, keys: &HostKeySettings, is_given: bool) -> Result<(), UnkeptError> {
        if is_given {
            self.put("host_key_policy", json!(keys.policy.as_str()));
        }
        let files: Option<Vec<&str>> = keys
            .known_hosts_files
            .iter()
            .map(|file| file.to_str())
            .collect();
        let files = files.ok_or(UnkeptError::Path("known_hosts_files"))?;
        if !files.is_empty() {
            self.put("known_hosts_files", json!(files));
        }
        Ok(())
    }

    fn limits(&mut self, limits: &GivenLimits) {
        let times = [
            ("connect_timeout_s", limits.tcp),
            ("banner_timeout_s", limits.banner),
            ("key_exchange_timeout_s", limits.key_exchange),
            ("auth_timeout_s", limits.authentication),
            ("keepalive_s", limits.keepalive_interval),
        ];
        for (key, time) in times {
            if let Some(time) = time.as_ref().map(Duration::as_secs_f64) {
                self.put(key, json!(time));
            }
        }
        if let Some(most) = limits.keepalive_max {
            self.put("keepalive_max", json!(most));
        }
    }

    fn surroundings(&mut self, surroundings: &Surroundings) {
        if let Some(workdir) = &surroundings.workdir {
            self.put("workdir", json!(workdir));
        }
        if let Some(shell) = &surroundings.shell {
            let shell: &str = shell;
            self.put("shell", json!(shell));
        }
        let mut apart = Map::new();
        if !surroundings.variables.is_empty() {
            let variables = surroundings.variables.iter();
            let variables = variables.map(|(name, value)| (name.as_str().to_owned(), json!(value)));
            apart.insert("env".to_owned(), variables.collect());
        }
        if let Some(init) = &surroundings.init {
            apart.insert("init".to_owned(), json!(init));
        }
        if !apart.is_empty() {
            self.surroundings = Some(Secret::new(Value::Object(apart).to_string()));
        }
    }
}

fn given(limits: &Limits) -> GivenLimits {
    GivenLimits {
        tcp: Some(limits.tcp),
        banner: Some(limits.banner),
        key_exchange: Some(limits.key_exchange),
        authentication: Some(limits.authentication),
        keepalive_interval: Some(limits.keepalive_interval),
        keepalive_max: Some(limits.keepalive_max),
    }
}

#[cfg(test)]
#[path = "kept_tests.rs"]
mod tests;
