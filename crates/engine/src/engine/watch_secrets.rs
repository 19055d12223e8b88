//! Keeps secrets out of what is told of watched tasks: what a host printed may hold any of its entry, whether somebody
//! logged in with it or not.

use std::sync::{Arc, PoisonError};

use remote_sandbox_core::config::{Environment, SandboxConfig, SecretSource, kept_local_source};
use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::secret::SecretName;

use super::Engine;
use crate::sandbox::Sandbox;
use crate::secrets::StoreError;
use crate::store::{EventRow, WatchId, WatchRow};

impl Engine {
    /// Has the mask know the kept secrets that an entry names. One that is not there cannot be shown; one that cannot
    /// be had now is an error, for then nothing of that host may be written down.
    pub(super) async fn learn_secrets(&self, config: &SandboxConfig) -> Result<(), Failure> {
        let names = config.reach.secret_sources();
        let names = names.filter_map(SecretSource::stored_name).cloned();
        let names: Vec<SecretName> = names.collect();
        if names.is_empty() {
            return Ok(());
        }
        let failed = |words: String| Failure::new(Code::StoreUnavailable, words);
        let secrets = self.secrets.clone();
        // A keychain may be slow, and all calls share few threads.
        let looking = move || names.iter().map(|name| secrets.get(name)).collect();
        let found: Vec<Result<_, StoreError>> = tokio::task::spawn_blocking(looking)
            .await
            .map_err(|error| failed(Failure::chain(&error)))?;
        for secret in found {
            match secret {
                Ok(secret) => self.mask.learn(secret.expose()),
                Err(StoreError::Unknown(_) | StoreError::Gone { .. } | StoreError::NoText(_)) => {}
                Err(error) => return Err(failed(Failure::chain(&error))),
            }
        }
        Ok(())
    }

    /// A sandbox of our own configuration whose secrets the mask knows.
    pub(crate) async fn masked_sandbox(&self, name: &str) -> Result<Arc<dyn Sandbox>, Failure> {
        if let Some(config) = self.config_named(name) {
            self.learn_secrets(config).await?;
        }
        self.sandbox(Some(name))
    }

    /// Has the mask know the secrets of what is shown of a watch, as far as they can be had: what stands in the store was
    /// masked when it was written, but for what an earlier version wrote.
    pub(super) async fn learn_of_watch(&self, row: &WatchRow) {
        self.kept.learn().await;
        let Some(entry) = &row.entry else { return };
        // The same entry in our own configuration: its secrets are known, and no keychain has to be asked.
        if self.kept_key(&row.sandbox).as_ref() == Some(entry) {
            return;
        }
        let is_known = self
            .learned
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(entry);
        if !is_known && self.learn_of_entry(entry).await.is_ok() {
            let mut learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
            learned.insert(entry.clone());
        }
    }

    async fn learn_of_entry(&self, key: &str) -> Result<(), Failure> {
        let whole = self.whole_entry(key).await?;
        if let Some((_, file)) = kept_local_source(whole.clone()) {
            self.resolved(Environment::new(), Some(file));
            return Ok(());
        }
        match self.config_of(whole) {
            Some(config) => self.learn_secrets(&config).await,
            None => Ok(()),
        }
    }

    /// An event as it is told, its secrets masked.
    pub(crate) async fn masked_event(&self, mut event: EventRow) -> EventRow {
        self.learn_of_watch_numbered(event.watch, &event.principal)
            .await;
        event.summary = self.mask.mask_text(&event.summary).into_owned();
        self.mask.mask_json(&mut event.payload);
        event
    }

    async fn learn_of_watch_numbered(&self, watch: WatchId, principal: &str) {
        // A watch that is gone left no entry to learn from.
        if let Ok(Some(row)) = self.store().watch(watch, principal).await {
            self.learn_of_watch(&row).await;
        }
    }

    /// A watch as it is shown: what a caller wrote into a command may be a secret, and so may what a host printed.
    pub(super) async fn masked_watch(&self, mut row: WatchRow) -> WatchRow {
        self.learn_of_watch(&row).await;
        let order = &mut row.order;
        let texts = [
            &mut order.resume.command,
            &mut order.checkpoint_command,
            &mut order.event_command,
            &mut order.codex_command,
            &mut order.claude_command,
            &mut row.last_log_tail,
            &mut row.last_checkpoint,
            &mut row.last_summary,
            &mut row.last_error,
        ];
        for text in texts.into_iter().flatten() {
            *text = self.mask.mask_text(text).into_owned();
        }
        if let Some(plan) = &mut order.resume.plan {
            self.mask.mask_json(plan);
        }
        row
    }
}
