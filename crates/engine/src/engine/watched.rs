//! Sandboxes as another process finds them: kept when a job is watched, and made again by the watchdog.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use remote_sandbox_core::config::{
    Config, ConfigText, Environment, KeptEntry, SandboxConfig, SandboxEntry, Sources, UnkeptError,
    kept_entry, kept_local, kept_local_source, resolve, whole_entry,
};
use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::secret::{Mask, Secret, SecretName};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::Engine;
use crate::audit::BeginRow;
use crate::sandbox::Sandbox;
use crate::secrets::{LONGEST_SECRET, SecretStore};
use crate::ssh::SshSandbox;
use crate::store::{JobRow, Store, StoreError, WatchedSandbox};
use crate::{clock, fsio};

/// How long watches that are over, and events, can be asked for.
pub(crate) const KEPT_FOR: Duration = Duration::from_secs(30 * 24 * 3600);

/// Most pieces in which variables and start-up text are kept.
const MOST_PIECES: usize = 8;

/// An entry as it stands in the store. Of its secrets it has names.
#[derive(Serialize, Deserialize)]
struct Written {
    sandbox: Map<String, Value>,
    /// Where its variables and start-up text are kept, in pieces.
    #[serde(default)]
    surroundings: Vec<String>,
}

impl Engine {
    /// The same for a process that looks at jobs of servers whose configuration it does not know: a job may run in the
    /// sandbox that is on this machine where nothing is configured.
    #[must_use]
    pub fn for_watchdog(mut self) -> Self {
        self.locals = self.locals.with_default();
        self
    }

    /// What masks secrets in all that is shown.
    pub fn mask(&self) -> &Mask {
        &self.mask
    }

    /// The kept secrets of this user.
    pub fn secret_store(&self) -> &Arc<SecretStore> {
        &self.secrets
    }

    /// Writes down that a watched task is about to be resumed; without that it is not.
    pub(crate) fn record_resume(&self, row: &JobRow, command: &str) -> Result<(), Failure> {
        self.record(&BeginRow {
            principal: &row.principal,
            call: "watchdog",
            tool: "watchdog_resume",
            sandbox: &row.sandbox,
            run: row.id.as_str(),
            command,
            cwd: row.cwd.as_deref(),
        })
    }

    /// Keeps the entry of a sandbox for the watchdog: its key, and what the caller should know when that failed.
    pub(super) async fn kept_for_watchdog(&self, name: &str) -> (Option<String>, Option<String>) {
        match self.persist_sandbox(name).await {
            Ok(key) => (key, None),
            Err(failure) => {
                let text = format!(
                    "the watchdog can look at this job only with a configuration of its own that has this sandbox: {}",
                    failure.message
                );
                (None, Some(text))
            }
        }
    }

    /// Keeps the entry of a sandbox for the watchdog, which has other surroundings; its secrets go to the keychain, or
    /// a private file. Gives the key of what is kept; none where there is no such sandbox. What other servers keep
    /// under the same name stays.
    pub async fn persist_sandbox(&self, name: &str) -> Result<Option<String>, Failure> {
        if let Some(config) = self.config_named(name) {
            return self.persist_config(config).await.map(Some);
        }
        if !self.locals.names().iter().any(|known| known == name) {
            return Ok(None);
        }
        let kept = kept_local(name, self.locals.settings());
        self.persist_entry(name, kept).await.map(Some)
    }

    pub(super) fn config_named(&self, name: &str) -> Option<&SandboxConfig> {
        self.entries.iter().find_map(|entry| match entry {
            SandboxEntry::Ready(config) if config.name.as_str() == name => Some(config),
            _ => None,
        })
    }

    /// The key under which the entry of a sandbox of our configuration is kept when it is.
    pub(crate) fn kept_key(&self, name: &str) -> Option<String> {
        let kept = match self.config_named(name) {
            Some(config) => kept_entry(config),
            None => kept_local(name, self.locals.settings()),
        };
        kept.ok().map(|kept| key_of(&kept))
    }

    /// Keeps an entry for the watchdog and gives its key.
    pub(super) async fn persist_config(&self, config: &SandboxConfig) -> Result<String, Failure> {
        let name = config.name.as_str();
        self.persist_entry(name, kept_entry(config)).await
    }

    async fn persist_entry(
        &self,
        name: &str,
        kept: Result<KeptEntry, UnkeptError>,
    ) -> Result<String, Failure> {
        let internal = |error: &(dyn std::error::Error + 'static)| {
            Failure::new(Code::Internal, Failure::chain(error))
        };
        let kept = kept.map_err(|error| internal(&error))?;
        let key = key_of(&kept);
        let is_known = self
            .persisted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&key);
        // A watchdog forgets entries that no watch needs for long.
        if is_known && self.store().watched_sandbox(&key).await?.is_some() {
            return Ok(key);
        }
        let (secrets, wanted) = (self.secrets.clone(), key.clone());
        let keeping = tokio::task::spawn_blocking(move || keep_secrets(&secrets, &wanted, kept));
        let written = keeping.await.map_err(|error| internal(&error))??;
        let entry = serde_json::to_string(&written).map_err(|error| internal(&error))?;
        let sandbox = WatchedSandbox {
            key: key.clone(),
            name: name.to_owned(),
            entry,
        };
        self.store().keep_sandbox(sandbox).await?;
        let mut persisted = self
            .persisted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        persisted.insert(key.clone());
        Ok(key)
    }

    /// The sandbox of a kept entry. One on this machine may be deleted and made again at any time, so nobody keeps it.
    pub(crate) async fn sandbox_of_entry(&self, key: &str) -> Result<Arc<dyn Sandbox>, Failure> {
        let whole = self.whole_entry(key).await?;
        let Some((name, file)) = kept_local_source(whole.clone()) else {
            let config = self.config_of(whole);
            let config = config.ok_or_else(|| missing("is not an entry"))?;
            // Whoever looks there may never log in with what the entry names, and its output is masked all the same.
            self.learn_secrets(&config).await?;
            return Ok(Arc::new(SshSandbox::new(&config, self.dialer.clone())));
        };
        let settings = self.resolved(Environment::new(), Some(file)).local;
        match self.locals.find_under(&settings, &name)? {
            Some(sandbox) => Ok(sandbox),
            None => {
                let text = format!("there is no sandbox `{name}` on this machine any more");
                Err(Failure::new(Code::NotFound, text))
            }
        }
    }

    /// A kept entry of a host, read.
    pub(super) async fn entry_config(&self, key: &str) -> Result<SandboxConfig, Failure> {
        self.config_of(self.whole_entry(key).await?)
            .ok_or_else(|| missing("is not an entry"))
    }

    pub(super) async fn whole_entry(&self, key: &str) -> Result<Map<String, Value>, Failure> {
        let found = self.store().watched_sandbox(key).await?;
        let found = found.ok_or_else(|| missing("is not there any more"))?;
        let written: Written =
            serde_json::from_str(&found.entry).map_err(|_| missing("cannot be read"))?;
        let secrets = self.secrets.clone();
        let reading = tokio::task::spawn_blocking(move || read_whole(&secrets, written));
        reading.await.map_err(|_| missing("cannot be read"))?
    }

    /// Reads an entry as a list of sandboxes would be read; the mask learns what is secret in it.
    pub(super) fn config_of(&self, entry: Map<String, Value>) -> Option<SandboxConfig> {
        let list = Value::from(vec![Value::Object(entry)]).to_string();
        let mut environment = Environment::new();
        environment.insert("REMOTE_SANDBOX_LIST".to_owned(), list);
        self.resolved(environment, None).ready().next().cloned()
    }

    pub(super) fn resolved(
        &self,
        mut environment: Environment,
        file: Option<ConfigText>,
    ) -> Config {
        let home = self.home.as_ref().and_then(|home| home.to_str());
        if let Some(home) = home {
            environment.insert("HOME".to_owned(), home.to_owned());
        }
        let config = resolve(&Sources { environment, file });
        for secret in config.secrets() {
            self.mask.learn(secret);
        }
        config
    }

    /// Removes the secrets of entries that no watch needs any more.
    pub(crate) async fn forget_kept_secrets(&self, unused: Vec<WatchedSandbox>) {
        let secrets = self.secrets.clone();
        let removing = move || {
            for sandbox in unused {
                for name in names_of(&sandbox.key) {
                    let _ = secrets.remove(&name);
                }
            }
        };
        let _ = tokio::task::spawn_blocking(removing).await;
    }

    /// Whether the entry of a sandbox is kept already.
    pub(super) async fn is_entry_kept(&self, name: &str) -> Result<bool, Failure> {
        match self.kept_key(name) {
            Some(key) => Ok(self.store().watched_sandbox(&key).await?.is_some()),
            None => Ok(false),
        }
    }

    /// Forgets an entry that was kept for a start of which nothing came, unless somebody else needs it.
    pub(super) async fn forget_entry(&self, name: &str, key: &str) {
        let Ok(Some(unused)) = self.store().forget_unused_sandbox(key).await else {
            return;
        };
        self.persisted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key);
        self.forget_kept_secrets(vec![unused]).await;
        // Whoever has kept it anew meanwhile must find its secrets, too.
        if let Ok(Some(_)) = self.store().watched_sandbox(key).await {
            let _ = self.persist_sandbox(name).await;
        }
    }

    /// The folder of the files of events.
    pub(crate) fn events_folder(&self) -> PathBuf {
        self.state.join("events")
    }
}

fn missing(what: &str) -> Failure {
    let text = format!("the kept entry of the sandbox {what}");
    Failure::new(Code::NotConfigured, text)
        .hint("start a job there again, or give the watchdog a configuration that has it")
}

/// The file of an event in its folder.
pub(crate) fn event_file(folder: &Path, event: u64) -> PathBuf {
    folder.join(format!("event-{event}.json"))
}

/// Forgets watches and events that are older than anybody asks for, with the files of the events.
pub(crate) async fn forget_old_watches(store: &Store, events: &Path) -> Result<(), StoreError> {
    let before = clock::wall().saturating_sub(KEPT_FOR);
    for event in store.forget_old_watches(before).await? {
        let _ = fsio::remove_file(&event_file(events, event));
    }
    Ok(())
}

/// The name of a kept entry: what it says, and a little of what it does not say, so that two entries that differ only in
/// their variables are two.
fn key_of(kept: &KeptEntry) -> String {
    let mut digest = Sha256::new();
    digest.update(Value::Object(kept.entry.clone()).to_string());
    for secret in &kept.secrets {
        digest.update([0]);
        digest.update(secret.key);
    }
    if let Some(surroundings) = &kept.surroundings {
        let full = Sha256::digest(surroundings.expose().as_bytes());
        digest.update([1]);
        // Too little of it to try out guesses.
        digest.update(full.get(..4).unwrap_or_default());
    }
    let digest = digest.finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn secret_name(key: &str, what: &str) -> Option<SecretName> {
    let short = key.get(..24).unwrap_or(key);
    SecretName::parse(&format!("watch-{short}-{}", what.replace('_', "-"))).ok()
}

/// All names under which secrets of a kept entry may be kept.
fn names_of(key: &str) -> Vec<SecretName> {
    let pieces = (0..MOST_PIECES).map(|number| format!("part{number}"));
    let words = ["password".to_owned(), "key_passphrase".to_owned()];
    let names = words.into_iter().chain(pieces);
    names.filter_map(|what| secret_name(key, &what)).collect()
}

/// Keeps the secrets of an entry and gives the entry with their names.
fn keep_secrets(secrets: &SecretStore, key: &str, kept: KeptEntry) -> Result<Written, Failure> {
    let mut written = Written {
        sandbox: kept.entry,
        surroundings: Vec::new(),
    };
    for secret in &kept.secrets {
        let name = keep_secret(secrets, key, secret.key, secret.value.expose())?;
        let member = format!("{}_secret", secret.key);
        written.sandbox.insert(member, Value::from(name));
    }
    let Some(surroundings) = kept.surroundings else {
        return Ok(written);
    };
    let pieces = pieces(surroundings.expose());
    if pieces.len() > MOST_PIECES {
        let text = "its variables and start-up text are too long to be kept";
        return Err(Failure::new(Code::Unsupported, text));
    }
    for (number, piece) in pieces.into_iter().enumerate() {
        let name = keep_secret(secrets, key, &format!("part{number}"), piece)?;
        written.surroundings.push(name);
    }
    Ok(written)
}

fn keep_secret(
    secrets: &SecretStore,
    key: &str,
    what: &str,
    value: &str,
) -> Result<String, Failure> {
    let failed = |words: String| Failure::new(Code::StoreUnavailable, words);
    let name = secret_name(key, what).ok_or_else(|| failed("it has no name".to_owned()))?;
    // What is right already is left alone: a keychain may ask its user.
    let is_kept = secrets.get(&name).is_ok_and(|kept| kept.expose() == value);
    if !is_kept {
        let value = Secret::new(value.to_owned());
        let kept = secrets.set(&name, &value);
        kept.map_err(|error| failed(Failure::chain(&error)))?;
    }
    Ok(name.to_string())
}

/// A text in pieces that can be kept.
fn pieces(text: &str) -> Vec<&str> {
    let mut rest = text;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let most = rest.len().min(LONGEST_SECRET);
        let cut = (0..=most).rev().find(|at| rest.is_char_boundary(*at));
        let (piece, next) = rest.split_at(cut.unwrap_or(rest.len()));
        pieces.push(piece);
        rest = next;
    }
    pieces
}

/// The entry with its variables and start-up text; password and passphrase stay names.
fn read_whole(secrets: &SecretStore, written: Written) -> Result<Map<String, Value>, Failure> {
    let failed = |words: String| Failure::new(Code::StoreUnavailable, words);
    if written.surroundings.is_empty() {
        return Ok(written.sandbox);
    }
    let mut text = String::new();
    for name in &written.surroundings {
        let name = SecretName::parse(name).map_err(|error| failed(error.to_string()))?;
        let piece = secrets.get(&name);
        let piece = piece.map_err(|error| failed(Failure::chain(&error)))?;
        text.push_str(piece.expose());
    }
    let whole = whole_entry(written.sandbox, &text);
    whole.ok_or_else(|| failed("the kept variables of the sandbox cannot be read".to_owned()))
}
