//! Takes secrets from where the configuration says, and keeps them from where they do not belong.

use std::sync::Arc;
use std::time::Duration;

use remote_sandbox_core::config::{Environment, SecretSource};
use remote_sandbox_core::secret::{Mask, Secret, SecretName};

use super::{SecretStore, StoreError};
use crate::proc::{self, CommandError};

/// How long a command that prints a secret may take.
const COMMAND_LIMIT: Duration = Duration::from_secs(15);

/// Variables that hold the secrets of all sandboxes.
const OWN_VARIABLES: [&str; 3] = [
    "REMOTE_SANDBOX_LIST",
    "REMOTE_PASSWORD",
    "REMOTE_KEY_PASSPHRASE",
];

/// Why there is no secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The command that should print it did not work.
    #[error("the `{key}` of the entry gave no secret")]
    Command {
        /// The configuration key.
        key: &'static str,
        /// Why.
        #[source]
        source: CommandError,
    },
    /// The command printed nothing that can be a secret.
    #[error("the `{0}` of the entry printed nothing usable")]
    Empty(&'static str),
    /// The secret that should be kept could not be had.
    #[error(
        "the kept secret `{name}` cannot be had (`remote-sandbox-mcp secret set {name}` keeps it)"
    )]
    Stored {
        /// Its name.
        name: SecretName,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// The task that looked for it broke.
    #[error("looking for the kept secret `{name}` broke")]
    Interrupted {
        /// Its name.
        name: SecretName,
        /// Why.
        #[source]
        source: tokio::task::JoinError,
    },
}

/// Knows where secrets come from and what may not be shown or handed on.
#[derive(Debug)]
pub struct SecretKeeper {
    mask: Mask,
    hidden: Vec<String>,
    store: Arc<SecretStore>,
}

impl SecretKeeper {
    /// A keeper that teaches `mask` the secrets it takes and hides variables that hold one of `secrets`.
    pub fn new<'a>(
        mask: Mask,
        environment: &Environment,
        secrets: impl Iterator<Item = &'a str> + Clone,
        store: Arc<SecretStore>,
    ) -> Self {
        let holds_secret = |value: &str| {
            // Short secrets are not masked, for they may be ordinary words.
            mask.mask_text(value) != value || secrets.clone().any(|secret| secret == value)
        };
        let hidden = environment
            .iter()
            .filter(|(name, value)| OWN_VARIABLES.contains(&name.as_str()) || holds_secret(value))
            .map(|(name, _)| name.clone())
            .collect();
        SecretKeeper {
            mask,
            hidden,
            store,
        }
    }

    /// The same for programs that shall find only some of the variables.
    #[must_use]
    pub fn hiding_all_but(mut self, environment: &Environment, left: &Environment) -> Self {
        let gone = environment.keys().filter(|name| !left.contains_key(*name));
        self.hidden.extend(gone.cloned());
        self
    }

    /// The variables that no local program may inherit.
    pub(crate) fn hidden(&self) -> &[String] {
        &self.hidden
    }

    /// Takes a secret from its place and makes sure that it is masked from now on.
    pub(crate) async fn reveal(
        &self,
        key: &'static str,
        source: &SecretSource,
    ) -> Result<Secret<String>, SecretError> {
        let arguments = match source {
            SecretSource::Clear(secret) => return Ok(secret.clone()),
            SecretSource::Command(arguments) => arguments,
            SecretSource::Stored(name) => return self.fetch(name).await,
        };
        let output = proc::capture_output(arguments, &self.hidden, COMMAND_LIMIT)
            .await
            .map_err(|source| SecretError::Command { key, source })?;
        let text = String::from_utf8(output).map_err(|_| SecretError::Empty(key))?;
        let text = text.trim_end_matches(['\r', '\n']);
        if text.is_empty() {
            return Err(SecretError::Empty(key));
        }
        self.mask.learn(text);
        Ok(Secret::new(text.to_owned()))
    }

    /// Takes a kept secret; a keychain may take its time, so off the threads that serve others.
    async fn fetch(&self, name: &SecretName) -> Result<Secret<String>, SecretError> {
        let (store, wanted) = (self.store.clone(), name.clone());
        let found = tokio::task::spawn_blocking(move || store.get(&wanted)).await;
        let name = name.clone();
        match found {
            Ok(Ok(secret)) => {
                self.mask.learn(secret.expose());
                Ok(secret)
            }
            Ok(Err(source)) => Err(SecretError::Stored { name, source }),
            Err(source) => Err(SecretError::Interrupted { name, source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn command_does_not_inherit_variables_that_hold_secrets() {
        let environment: Environment = [
            ("REMOTE_SANDBOX_LIST", "[]"),
            ("SHORT", "pw"),
            ("LONG", "before hunter2hunter2 after"),
            ("PLAIN", "word"),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
        let secrets = ["pw", "hunter2hunter2"];
        let mask = Mask::new(secrets);
        let (_state, store) = store();
        let keeper = SecretKeeper::new(mask, &environment, secrets.into_iter(), store);
        assert_eq!(keeper.hidden, ["LONG", "REMOTE_SANDBOX_LIST", "SHORT"]);
    }

    fn store() -> (tempfile::TempDir, Arc<SecretStore>) {
        let state = tempfile::tempdir().unwrap();
        let store = SecretStore::new(state.path()).in_files();
        (state, Arc::new(store))
    }

    #[tokio::test]
    async fn kept_secret_is_masked_from_its_first_use() {
        let (_state, store) = store();
        let name = SecretName::parse("gpu1").unwrap();
        let value = Secret::new("hunter2hunter2".to_owned());
        store.set(&name, &value).unwrap();
        let mask = Mask::default();
        let keeper = SecretKeeper::new(mask.clone(), &Environment::new(), [].into_iter(), store);
        let source = SecretSource::Stored(name);
        let secret = keeper.reveal("password_secret", &source).await.unwrap();
        assert_eq!(secret.expose(), "hunter2hunter2");
        assert!(!mask.mask_text("x hunter2hunter2 y").contains("hunter2"));
    }

    #[tokio::test]
    async fn missing_kept_secret_is_named_with_the_command_that_keeps_it() {
        let (_state, store) = store();
        let keeper = SecretKeeper::new(Mask::default(), &Environment::new(), [].into_iter(), store);
        let source = SecretSource::Stored(SecretName::parse("gpu1").unwrap());
        let error = keeper.reveal("password_secret", &source).await.unwrap_err();
        let text = remote_sandbox_core::failure::Failure::chain(&error);
        assert!(
            text.contains("remote-sandbox-mcp secret set gpu1"),
            "{text}"
        );
        assert!(text.contains("no secret is kept"), "{text}");
    }
}
