//! The one object behind all tools: sandboxes, runs, the audit log.

mod clean;
mod examine;
mod exec;
mod setup;
mod survey;
mod tasks;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use remote_sandbox_core::config::{Config, SandboxEntry, Settings};
use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::secret::Mask;

pub use clean::{LeftRun, Leftovers};
pub use examine::Examined;
pub use exec::{ExecReport, ExecRequest, LONGEST_WAIT, USUAL_WAIT};
pub use setup::{SetupError, load_config};
pub use survey::{Listed, Probed, Selected};
pub use tasks::{Liveness, TaskReport, TaskRequest};

use crate::audit::Audit;
use crate::run::Registry;
use crate::sandbox::Sandbox;
use crate::secrets::KeptSecrets;

/// How long the end of the server may take.
const SHUTDOWN_LIMIT: Duration = Duration::from_millis(4000);

/// Everything that tools work on.
pub struct Engine {
    settings: Settings,
    entries: Vec<SandboxEntry>,
    problems: Vec<String>,
    sandboxes: BTreeMap<String, Arc<dyn Sandbox>>,
    active: Mutex<Option<String>>,
    registry: Arc<Registry>,
    audit: Arc<Audit>,
    mask: Mask,
    kept: KeptSecrets,
}

impl Engine {
    /// What holds for all sandboxes.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What was wrong in the configuration outside a single sandbox.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// The names of all sandboxes that can be used, in the order of the configuration.
    pub fn names(&self) -> Vec<String> {
        let ready = |entry: &SandboxEntry| match entry {
            SandboxEntry::Ready(sandbox) => Some(sandbox.name.to_string()),
            SandboxEntry::Disabled { .. } => None,
        };
        self.entries.iter().filter_map(ready).collect()
    }

    /// The name of the active sandbox.
    pub fn active(&self) -> Option<String> {
        self.active
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Finds the named sandbox, or the active one when no name is given.
    pub fn sandbox(&self, name: Option<&str>) -> Result<&Arc<dyn Sandbox>, Failure> {
        let wanted = match name {
            Some(name) => name.to_owned(),
            None => self.active().ok_or_else(|| self.nothing_configured())?,
        };
        if let Some(sandbox) = self.sandboxes.get(&wanted) {
            return Ok(sandbox);
        }
        for entry in &self.entries {
            if let SandboxEntry::Disabled { name, problem } = entry
                && *name == wanted
            {
                let text = format!("sandbox `{wanted}` is disabled: {problem}");
                return Err(Failure::new(Code::SandboxDisabled, text)
                    .hint("correct its entry and restart the server; the other sandboxes work")
                    .available(self.names()));
            }
        }
        if self.names().is_empty() {
            return Err(self.nothing_configured());
        }
        let shown: String = wanted
            .chars()
            .take(80)
            .flat_map(char::escape_debug)
            .collect();
        Err(
            Failure::new(Code::NotFound, format!("no sandbox is named `{shown}`"))
                .hint(format!("known: {}", self.names().join(", ")))
                .available(self.names()),
        )
    }

    fn nothing_configured(&self) -> Failure {
        let disabled: Vec<&str> = self.entries.iter().map(SandboxEntry::name).collect();
        let mut text = "no sandbox is configured".to_owned();
        if !disabled.is_empty() {
            text = format!(
                "every configured sandbox is disabled ({})",
                disabled.join(", ")
            );
        }
        if let Some(problem) = self.problems.first() {
            text = format!("{text}: {problem}");
        }
        Failure::new(Code::NotConfigured, text).hint(
            "set REMOTE_SANDBOX_LIST, or REMOTE_HOST with REMOTE_USER and REMOTE_PASSWORD or REMOTE_KEY_FILE, or write a config file; list_sandboxes shows what is wrong",
        )
    }

    /// Makes a sandbox the active one.
    pub fn select(&self, name: &str) -> Result<(), Failure> {
        let chosen = self.sandbox(Some(name))?.description().name.to_string();
        *self.active.lock().unwrap_or_else(PoisonError::into_inner) = Some(chosen);
        Ok(())
    }

    /// Ends all runs and lets go of all connections.
    pub async fn shut_down(&self) {
        self.registry.shut_down(SHUTDOWN_LIMIT).await;
        let closing = self.sandboxes.values().map(|sandbox| sandbox.close());
        let closing = futures::future::join_all(closing);
        let _ = tokio::time::timeout(Duration::from_millis(300), closing).await;
    }

    fn problem_texts(config: &Config) -> Vec<String> {
        config.problems.iter().map(ToString::to_string).collect()
    }
}
