//! Watches and events, as callers ask for them.

use std::path::PathBuf;
use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::job::{JobId, SessionName, WatchOrder, check_watched};
use remote_sandbox_core::service::ServiceStatus;
use serde_json::Value;

use super::Engine;
use super::jobs::invalid;
use super::keeper::{STALE_AFTER, is_fresh};
use crate::audit::BeginRow;
use crate::call::CallContext;
use crate::clock;
use crate::store::{
    EventRow, ForeignWatch, JobRow, NewWatch, WatchCounts, WatchId, WatchRow, WatchStatus,
};
use crate::watchdog::LEASE;

/// The pause between two looks at the store of a call that waits for an event.
const PAUSE: Duration = Duration::from_millis(300);

/// A task for which somebody waits is looked at this often.
const HASTE: Duration = Duration::from_secs(10);

/// Longest command that is written down with a watch, in characters.
const LONGEST_COMMAND: usize = 4000;

/// A task that is to be watched.
#[derive(Debug)]
pub struct WatchRequest {
    /// Where; the active sandbox when not said.
    pub sandbox: Option<String>,
    /// Its session.
    pub session: String,
    /// Its log; the usual place when empty.
    pub log_file: String,
    /// Where a resume runs.
    pub cwd: Option<String>,
    /// The command that started it.
    pub launch_command: String,
    /// The caller's own name for it.
    pub run_id: Option<String>,
    /// A name for people.
    pub name: Option<String>,
    /// What the caller wants to be kept with it.
    pub metadata: Option<Value>,
    /// What is wanted.
    pub order: WatchOrder,
}

/// A watch that was asked for.
#[derive(Debug)]
pub struct WatchReport {
    /// The watch.
    pub row: WatchRow,
    /// Whether the task was watched already.
    pub was_watched: bool,
    /// How many entries of sandboxes were kept for it.
    pub kept_entries: usize,
    /// What will not work.
    pub warnings: Vec<String>,
    /// Why the watchdog does not run.
    pub watchdog_warning: Option<String>,
}

/// Which events somebody wants.
#[derive(Debug, Clone, Copy)]
pub struct EventQuery {
    /// Those of one watch only.
    pub watch: Option<u64>,
    /// Those after this one, in their order; else the newest first.
    pub after: Option<u64>,
    /// How many at most.
    pub most: usize,
    /// How long to wait for the first.
    pub wait: Duration,
}

/// Events, and how to go on.
#[derive(Debug)]
pub struct EventReport {
    /// The events.
    pub events: Vec<EventRow>,
    /// The number after which new ones come.
    pub last: u64,
    /// Whether a watchdog is there that would notice new ones.
    pub is_watchdog_alive: bool,
}

/// Who works as the watchdog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseHolder {
    /// In words.
    pub words: String,
    /// Its process.
    pub pid: Option<u32>,
    /// Since when.
    pub since: Duration,
}

/// How the watchdog is.
#[derive(Debug)]
pub struct WatchdogReport {
    /// The store.
    pub store: PathBuf,
    /// The configuration file that was named.
    pub config_file: Option<PathBuf>,
    /// When the watchdog last showed itself.
    pub heartbeat: Option<Duration>,
    /// After so long it counts as gone.
    pub stale_after: Duration,
    /// Whether it is.
    pub is_stale: bool,
    /// Who holds the lease, whether it still works or not.
    pub holder: Option<LeaseHolder>,
    /// How many watches of the caller there are.
    pub counts: WatchCounts,
    /// Why the last notification could not be shown on this machine.
    pub unshown: Option<String>,
    /// How many watches of the Python package were taken over.
    pub taken_over: usize,
    /// What keeps the watchdog running, where that was asked for.
    pub keeper: Option<ServiceStatus>,
    /// Whether the user has turned it off.
    pub is_off: bool,
}

/// What came of setting the service up or taking it away.
#[derive(Debug)]
pub struct ServiceChange {
    /// What was done; none where the user has turned the watchdog off.
    pub done: Option<Value>,
    /// How many entries of sandboxes were kept for the watchdog.
    pub kept_entries: usize,
    /// What did not work.
    pub warnings: Vec<String>,
}

impl Engine {
    /// Has a task watched that runs already; one that is watched keeps its watch with what is wanted now.
    pub async fn add_watch(
        &self,
        context: &CallContext,
        request: WatchRequest,
    ) -> Result<WatchReport, Failure> {
        self.check_events(&request.order).await?;
        // What no host can be asked would be found out only when nobody is there any more.
        check_watched(&request.session, &request.log_file, request.cwd.as_deref())
            .map_err(|error| invalid(&error))?;
        let sandbox = self.sandbox(request.sandbox.as_deref())?;
        let name = sandbox.description().name.to_string();
        self.kept.learn().await;
        let principal = context.principal.as_str();
        let job = self.running_job(principal, &name, &request).await?;
        self.record(&BeginRow {
            principal,
            call: &context.call,
            tool: "watch_background_task",
            sandbox: &name,
            run: job.as_ref().map_or("", |job| job.id.as_str()),
            command: request.order.resume.command.as_deref().unwrap_or_default(),
            cwd: request.cwd.as_deref(),
        })?;
        let (entry, warning) = self.kept_for_watchdog(&name).await;
        let kept_entries = usize::from(entry.is_some());
        let ensure = request.order.ensure_watchdog;
        let id: Option<JobId> = job.as_ref().map(|job| job.id.clone());
        let new = self.foreign_watch(principal, &name, request, job, entry.clone());
        let registered = self.store().register_watch(new, id).await?;
        let (login, watchdog_warning) = tokio::join!(
            self.login_warning(&name, entry.as_deref()),
            self.ensure_watchdog(ensure)
        );
        Ok(WatchReport {
            row: self.masked_watch(registered.row).await,
            was_watched: registered.was_watched,
            kept_entries,
            warnings: warning.into_iter().chain(login).collect(),
            watchdog_warning,
        })
    }

    /// The job of ours that runs in a session.
    async fn running_job(
        &self,
        principal: &str,
        sandbox: &str,
        request: &WatchRequest,
    ) -> Result<Option<JobRow>, Failure> {
        let named = SessionName::from_wish(&request.session);
        let Ok(named) = named.map(|named| named.name.to_string()) else {
            return Ok(None);
        };
        let row = self.store().job_in_session(sandbox, &named, principal);
        let is_it = |row: &JobRow| {
            let log = request.log_file.as_str();
            !row.attempt.state.is_terminal() && (log.is_empty() || row.log_file == log)
        };
        Ok(row.await?.filter(is_it))
    }

    fn foreign_watch(
        &self,
        principal: &str,
        sandbox: &str,
        request: WatchRequest,
        job: Option<JobRow>,
        entry: Option<String>,
    ) -> ForeignWatch {
        let shown = self.mask.mask_text(&request.launch_command);
        let mut watch = ForeignWatch {
            principal: principal.to_owned(),
            sandbox: sandbox.to_owned(),
            log_file: match request.log_file.as_str() {
                "" => format!("~/.codex_logs/{}.log", request.session),
                given => given.to_owned(),
            },
            session: request.session,
            cwd: request.cwd,
            launch_command: shown.chars().take(LONGEST_COMMAND).collect(),
            run_id: request.run_id,
            name: request.name,
            metadata: request.metadata.as_ref().map(ToString::to_string),
            watch: NewWatch {
                order: request.order,
                entry,
            },
        };
        if let Some(job) = job {
            watch.session = job.session.to_string();
            watch.log_file = job.log_file;
            watch.launch_command = job.command;
            watch.cwd = watch.cwd.or(job.cwd);
        }
        watch
    }

    /// A watch of the caller.
    pub async fn watch(&self, context: &CallContext, number: u64) -> Result<WatchRow, Failure> {
        let row = self.find_watch(context, number).await?;
        Ok(self.masked_watch(row).await)
    }

    pub(super) async fn find_watch(
        &self,
        context: &CallContext,
        number: u64,
    ) -> Result<WatchRow, Failure> {
        let unknown = || unknown_watch(number);
        let id = WatchId::new(number).ok_or_else(unknown)?;
        let found = self.store().watch(id, context.principal.as_str()).await?;
        let found = found.ok_or_else(unknown)?;
        self.learn_of_watch(&found).await;
        Ok(found)
    }

    /// The watches of the caller, the newest first.
    pub async fn watches(
        &self,
        context: &CallContext,
        status: Option<WatchStatus>,
        most: usize,
    ) -> Result<Vec<WatchRow>, Failure> {
        let principal = context.principal.as_str();
        let rows = self.store().watches(principal, status, most).await?;
        let mut shown = Vec::with_capacity(rows.len());
        for row in rows {
            shown.push(self.masked_watch(row).await);
        }
        Ok(shown)
    }

    /// Ends a watch; its task goes on.
    pub async fn cancel_watch(
        &self,
        context: &CallContext,
        number: u64,
    ) -> Result<WatchRow, Failure> {
        let unknown = || unknown_watch(number);
        let id = WatchId::new(number).ok_or_else(unknown)?;
        let principal = context.principal.as_str();
        let row = self.store().cancel_watch(id, principal).await?;
        Ok(self.masked_watch(row.ok_or_else(unknown)?).await)
    }

    /// Events of the caller's watches; waits for the first new one when asked to.
    pub async fn watch_events(
        &self,
        context: &CallContext,
        query: EventQuery,
    ) -> Result<EventReport, Failure> {
        let watch = match query.watch {
            Some(number) => Some(self.find_watch(context, number).await?.id),
            None => None,
        };
        let (store, principal) = (self.store(), context.principal.as_str());
        let until = clock::instant() + query.wait;
        let first = store.last_event(principal).await?;
        let after = match query.after {
            None if query.wait > Duration::ZERO => Some(first),
            after => after,
        };
        let mut hastened = None;
        loop {
            let events = store.events(principal, watch, after, query.most).await?;
            if !events.is_empty() || clock::instant() >= until {
                let mut masked = Vec::with_capacity(events.len());
                for event in events {
                    masked.push(self.masked_event(event).await);
                }
                // Whoever goes on after the last one that is shown misses none.
                let shown = masked.iter().map(|event| event.id).max();
                return Ok(EventReport {
                    last: match query.after {
                        Some(after) => shown.unwrap_or(after),
                        None => shown.unwrap_or(first),
                    },
                    events: masked,
                    is_watchdog_alive: super::keeper::is_watchdog_alive(store).await,
                });
            }
            if hastened.is_none_or(|at| clock::instant() >= at + HASTE) {
                let before = clock::wall().saturating_sub(HASTE);
                store.hasten_watches(principal, watch, before).await?;
                hastened = Some(clock::instant());
            }
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = context.cancel.cancelled() => {
                    return Err(Failure::new(Code::Cancelled, "the call was cancelled"));
                }
            }
        }
    }

    /// How the watchdog is; asking what keeps it running takes longer than the rest.
    pub async fn watchdog_report(
        &self,
        context: &CallContext,
        with_keeper: bool,
    ) -> Result<WatchdogReport, Failure> {
        let is_off = !self.settings.watchdog;
        let keeper = match with_keeper && !is_off {
            true => Some(self.keeper.status().await?),
            false => None,
        };
        let mut report = WatchdogReport {
            store: self.state.join("store.sqlite3"),
            config_file: self.config_file.clone(),
            is_stale: true,
            heartbeat: None,
            stale_after: STALE_AFTER,
            holder: None,
            counts: WatchCounts::default(),
            unshown: None,
            taken_over: 0,
            keeper,
            is_off,
        };
        // Whoever only looks leaves nothing behind.
        if report.store.exists() {
            self.read_watchdog(context, &mut report).await?;
        }
        Ok(report)
    }

    async fn read_watchdog(
        &self,
        context: &CallContext,
        report: &mut WatchdogReport,
    ) -> Result<(), Failure> {
        let store = self.store();
        let lease = store.lease(LEASE).await?;
        report.is_stale = !lease.as_ref().is_some_and(is_fresh);
        report.heartbeat = lease.as_ref().map(|lease| lease.renewed);
        report.holder = lease.and_then(|lease| {
            Some(LeaseHolder {
                words: lease.holder?,
                pid: lease.process.map(|process| process.pid),
                since: lease.taken,
            })
        });
        let principal = context.principal.as_str();
        report.counts = store.watch_counts(Some(principal)).await?;
        report.unshown = store.unshown_notice().await?;
        report.taken_over = store.taken_over().await?.len();
        Ok(())
    }

    /// Sets up what keeps the watchdog running, and keeps the entries of all sandboxes for it when asked to.
    pub async fn install_watchdog(
        &self,
        start_now: bool,
        keep_entries: bool,
    ) -> Result<ServiceChange, Failure> {
        let mut change = ServiceChange {
            done: None,
            kept_entries: 0,
            warnings: Vec::new(),
        };
        let names = if keep_entries {
            self.names()
        } else {
            Vec::new()
        };
        for name in names {
            match self.persist_sandbox(&name).await {
                Ok(key) => change.kept_entries += usize::from(key.is_some()),
                Err(failure) => change
                    .warnings
                    .push(format!("sandbox `{name}`: {}", failure.message)),
            }
        }
        if self.settings.watchdog {
            change.done = Some(self.keeper.install(start_now).await?);
        }
        Ok(change)
    }

    /// Takes away what keeps the watchdog running, and ends it.
    pub async fn uninstall_watchdog(&self) -> Result<ServiceChange, Failure> {
        let done = match self.settings.watchdog {
            true => Some(self.keeper.uninstall().await?),
            false => None,
        };
        Ok(ServiceChange {
            done,
            kept_entries: 0,
            warnings: Vec::new(),
        })
    }
}

pub(super) fn unknown_watch(number: u64) -> Failure {
    Failure::new(Code::NotFound, format!("Unknown watch id: {number}"))
        .hint("list_background_watches shows the ids; watches that are over are kept for 30 days")
}
