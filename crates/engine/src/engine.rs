//! The one object behind all tools: sandboxes, runs, the audit log.

mod clean;
mod containers;
mod dead_letters;
mod event_check;
mod examine;
mod exec;
mod files;
mod job_follow;
mod job_place;
mod job_prune;
mod job_reports;
mod job_resume;
mod job_waiting;
mod jobs;
mod keeper;
mod listing;
mod service_keeper;
mod setup;
mod survey;
mod sync;
mod takeover;
mod tasks;
mod terminal;
mod transfers;
mod watch_reading;
mod watch_secrets;
mod watch_trial;
mod watched;
mod watches;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use remote_sandbox_core::config::{Config, SandboxEntry, Settings, Toolset};
use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::secret::Mask;
use remote_sandbox_core::sync::scan::Scanner;
use remote_sandbox_core::watch::EventPolicy;

pub use clean::{LeftRun, Leftovers};
pub use containers::{Created, NewSandbox};
pub use examine::Examined;
pub use exec::{ExecReport, ExecRequest, LONGEST_WAIT, USUAL_WAIT};
pub use files::{FileStream, ReadReport, ReadRequest};
pub use job_follow::{FollowFrom, FollowPiece, JobFollower};
pub use job_prune::{PruneReport, Unpruned};
pub use job_reports::{JobQuery, JobReference, JobReport};
pub use jobs::{JobStartReport, JobStopReport};
pub use keeper::{Keeper, is_watchdog_alive};
pub use listing::{FileEntry, ListReport, ListRequest};
pub use service_keeper::ServiceKeeper;
pub(crate) use setup::needs_local;
pub use setup::{SetupError, load_config};
pub use survey::{Listed, Probed, Selected};
pub use sync::{SyncAnswer, Where};
pub use takeover::TakeOver;
pub use tasks::{Liveness, TaskReport, TaskRequest};
pub use watch_reading::{CheckpointReport, CheckpointSource, LiveReport};
pub(crate) use watched::{KEPT_FOR as WATCHES_KEPT_FOR, event_file, forget_old_watches};
pub use watches::{
    EventQuery, EventReport, LeaseHolder, ServiceChange, WatchReport, WatchRequest, WatchdogReport,
};

use crate::audit::Audit;
use crate::local::Locals;
use crate::run::Registry;
use crate::sandbox::Sandbox;
use crate::secrets::{KeptSecrets, SecretStore};
use crate::ssh::Dialer;
use crate::sync::LocalPaths;
use crate::transfer::Transfers;

/// How long the end of the server may take.
const SHUTDOWN_LIMIT: Duration = Duration::from_millis(4000);

/// One sandbox on the way into a list.
enum Line {
    /// It can be used.
    Ready(Arc<dyn Sandbox>),
    /// It cannot.
    Disabled { name: String, reason: String },
}

impl Line {
    fn disabled(name: &str, reason: &dyn std::fmt::Display) -> Self {
        Line::Disabled {
            name: name.to_owned(),
            reason: reason.to_string(),
        }
    }

    fn name(&self) -> &str {
        match self {
            Line::Ready(sandbox) => sandbox.description().name.as_str(),
            Line::Disabled { name, .. } => name,
        }
    }
}

/// Everything that tools work on.
pub struct Engine {
    settings: Settings,
    entries: Vec<SandboxEntry>,
    problems: Vec<String>,
    sandboxes: BTreeMap<String, Arc<dyn Sandbox>>,
    locals: Locals,
    active: Mutex<Option<String>>,
    registry: Arc<Registry>,
    audit: Arc<Audit>,
    mask: Mask,
    kept: KeptSecrets,
    /// What each sandbox lists its files with, once it was asked.
    scanners: Mutex<BTreeMap<String, Scanner>>,
    /// Which places of this machine a sync may use.
    paths: LocalPaths,
    /// Where this program keeps its own files.
    state: PathBuf,
    transfers: Transfers,
    /// What callers may have done at events.
    events: EventPolicy,
    /// What makes sandboxes of entries that are not in the configuration.
    dialer: Arc<Dialer>,
    secrets: Arc<SecretStore>,
    /// The user's home folder, from which paths in entries begin.
    home: Option<PathBuf>,
    /// Entries that this process has kept for the watchdog.
    persisted: Mutex<BTreeSet<String>>,
    /// What logs in as the watchdog will, when nobody is there.
    unattended: Arc<Dialer>,
    /// What came of that, by the key of the entry.
    trials: Mutex<BTreeMap<String, Option<String>>>,
    /// Sandboxes of watches that are not in the configuration, by the key of their entry.
    made: tokio::sync::Mutex<BTreeMap<String, Arc<dyn Sandbox>>>,
    /// Kept entries whose secrets the mask knows.
    learned: Mutex<BTreeSet<String>>,
    /// What keeps the watchdog running.
    keeper: Arc<dyn Keeper>,
    /// The configuration file that was named.
    config_file: Option<PathBuf>,
}

impl Engine {
    /// What holds for all sandboxes.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether a group of tools is offered: as the user says, else those for sandboxes on this machine
    /// where there always is one.
    pub fn offers(&self, toolset: Toolset) -> bool {
        let is_wanted = |wanted: &BTreeSet<Toolset>| wanted.contains(&toolset);
        match (&self.settings.toolsets, toolset) {
            (wanted, Toolset::Advanced) => {
                self.settings.advanced_tools || wanted.as_ref().is_some_and(is_wanted)
            }
            (Some(wanted), _) => is_wanted(wanted),
            (None, Toolset::Containers) => self.locals.has_default(),
        }
    }

    /// What was wrong in the configuration outside a single sandbox.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// The names of all sandboxes that can be used: those of the configuration in its order, then those
    /// on this machine.
    pub fn names(&self) -> Vec<String> {
        let ready = |entry: &SandboxEntry| match entry {
            SandboxEntry::Ready(sandbox) => Some(sandbox.name.to_string()),
            SandboxEntry::Disabled { .. } => None,
        };
        let mut names: Vec<String> = self.entries.iter().filter_map(ready).collect();
        names.extend(self.local_names());
        names
    }

    /// The names of sandboxes on this machine that no entry of the configuration has.
    fn local_names(&self) -> impl Iterator<Item = String> {
        let is_taken = |name: &String| self.entries.iter().any(|entry| entry.name() == name);
        let names = self.locals.names().into_iter();
        names.filter(move |name| !is_taken(name))
    }

    /// All sandboxes, usable or not, each with what is needed to look at it.
    fn lines(&self) -> Vec<Line> {
        let configured = self.entries.iter().map(|entry| match entry {
            SandboxEntry::Disabled { name, problem } => Line::disabled(name, problem),
            SandboxEntry::Ready(config) => match self.sandboxes.get(config.name.as_str()) {
                Some(sandbox) => Line::Ready(sandbox.clone()),
                None => Line::disabled(config.name.as_str(), &"it was not set up"),
            },
        });
        let local = self.local_names().filter_map(|name| {
            Some(match self.locals.find(&name) {
                Ok(Some(sandbox)) => Line::Ready(sandbox),
                // Another server has deleted it meanwhile.
                Ok(None) => return None,
                Err(failure) => Line::disabled(&name, &failure.message),
            })
        });
        configured.chain(local).collect()
    }

    /// The name of the active sandbox.
    pub fn active(&self) -> Option<String> {
        self.active
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Finds the named sandbox, or the active one when no name is given.
    pub fn sandbox(&self, name: Option<&str>) -> Result<Arc<dyn Sandbox>, Failure> {
        let wanted = match name {
            Some(name) => name.to_owned(),
            None => self.active().ok_or_else(|| self.nothing_configured())?,
        };
        if let Some(sandbox) = self.sandboxes.get(&wanted) {
            return Ok(sandbox.clone());
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
        if let Some(sandbox) = self.locals.find(&wanted)? {
            return Ok(sandbox);
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
        let made: Vec<Arc<dyn Sandbox>> = self.made.lock().await.values().cloned().collect();
        let made = futures::future::join_all(made.iter().map(|sandbox| sandbox.close()));
        let closing = futures::future::join3(closing, made, self.locals.close());
        let _ = tokio::time::timeout(Duration::from_millis(300), closing).await;
    }

    fn problem_texts(config: &Config) -> Vec<String> {
        config.problems.iter().map(ToString::to_string).collect()
    }
}
