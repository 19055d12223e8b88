//! What the tests of the configuration share.

use super::*;

pub(super) fn sources(pairs: &[(&str, &str)], file: Option<(&str, &str)>) -> Sources {
    let mut environment: Environment = pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    environment.insert("HOME".to_owned(), "/h".to_owned());
    let file = file.map(|(path, text)| {
        ConfigText::new(PathBuf::from(path), text.as_bytes().to_vec()).unwrap()
    });
    Sources { environment, file }
}

pub(super) fn from_list(list: &str) -> Config {
    resolve(&sources(&[("REMOTE_SANDBOX_LIST", list)], None))
}

pub(super) fn from_toml(text: &str) -> Config {
    resolve(&sources(&[], Some(("/c.toml", text))))
}

pub(super) fn from_json(text: &str) -> Config {
    resolve(&sources(&[], Some(("/c.json", text))))
}

/// Ready entries as `name`, disabled ones as `!name: message`.
pub(super) fn summary(config: &Config) -> Vec<String> {
    let show = |entry: &SandboxEntry| match entry {
        SandboxEntry::Ready(sandbox) => sandbox.name.to_string(),
        SandboxEntry::Disabled { name, problem } => format!("!{name}: {problem}"),
    };
    config.sandboxes.iter().map(show).collect()
}

pub(super) fn messages(config: &Config) -> Vec<String> {
    config.problems.iter().map(ToString::to_string).collect()
}

pub(super) fn only(config: &Config) -> &SandboxConfig {
    assert_eq!(config.sandboxes.len(), 1, "{config:?}");
    config
        .ready()
        .next()
        .unwrap_or_else(|| panic!("{:?}", summary(config)))
}

pub(super) fn clear(source: Option<&SecretSource>) -> &str {
    match source {
        Some(SecretSource::Clear(secret)) => secret.expose(),
        other => panic!("{other:?}"),
    }
}

pub(super) const ENTRY: &str = r#"{"name":"a","host":"h","user":"u","password":"p"}"#;

pub(super) const COMPLETE: &str = r#""host":"h","user":"u","password":"p""#;

impl super::SandboxConfig {
    /// The settings of an entry that says everything itself.
    pub(crate) fn ssh(&self) -> &super::SshSettings {
        match &self.reach {
            super::Reach::Host(settings) => settings,
            super::Reach::Alias(_) => panic!("an alias"),
        }
    }

    /// The settings of an entry that names a host of the SSH configuration.
    pub(crate) fn alias(&self) -> &super::AliasSettings {
        match &self.reach {
            super::Reach::Alias(settings) => settings,
            super::Reach::Host(_) => panic!("a host"),
        }
    }
}
