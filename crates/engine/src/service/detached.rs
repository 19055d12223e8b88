//! A process of its own, where no service manager keeps the watchdog running.

use std::path::PathBuf;
use std::time::Duration;

use remote_sandbox_core::service::{ServiceDescription, ServiceKind, ServiceStatus};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::{Begun, Heartbeat, Service, ServiceError, Start, files};
use crate::proc::{self, Background};
use crate::store::ProcessMark;
use crate::transfer::process;
use crate::{clock, fsio};

/// Longest record.
const LONGEST_RECORD: u64 = 64 * 1024;

/// How long a watchdog may take to end by itself.
const END_LIMIT: Duration = Duration::from_secs(5);

/// How long the system may take to end one.
const KILL_LIMIT: Duration = Duration::from_secs(2);

/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// A program that was just written may be held open by a process that is about to begin.
const MOST_ATTEMPTS: u32 = 20;

/// What is kept about the process: enough to tell it from every other one.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    pid: u32,
    start: u64,
    boot: String,
    program: String,
    /// Whether it was called with the same words.
    arguments: Vec<String>,
}

impl Record {
    fn mark(&self) -> ProcessMark {
        ProcessMark {
            pid: self.pid,
            start: self.start,
            boot: self.boot.clone(),
        }
    }

    fn is_running(&self) -> bool {
        process::is_alive(&self.mark())
    }
}

impl Service {
    pub(super) fn record_path(&self) -> PathBuf {
        files::folder(&self.state).join("detached.json")
    }

    /// What is kept about the process; a record that cannot be read counts as none.
    fn record(&self) -> Option<Record> {
        let content = fsio::read_sealed(&self.record_path(), LONGEST_RECORD);
        serde_json::from_slice(&content.ok()??).ok()
    }

    /// The process that runs by itself, where there is one.
    pub(super) fn running_process(&self) -> Option<u32> {
        let record = self.record().filter(Record::is_running)?;
        Some(record.pid)
    }

    /// Starts the process, unless it runs already or that is for later.
    pub(super) async fn install_process(
        &self,
        service: &ServiceDescription,
        start: Start,
        heartbeat: &dyn Heartbeat,
        settled: Duration,
    ) -> Result<Begun, ServiceError> {
        let running = self.record().filter(Record::is_running);
        let ran_before = running.is_some();
        if start == Start::Later {
            return Ok(Begun::nothing(ran_before));
        }
        if let Some(record) = running {
            let is_same =
                record.program == service.program() && record.arguments == service.arguments();
            if is_same && start == Start::IfNeeded {
                return Ok(Begun::nothing(true));
            }
            self.end_process().await?;
        }
        let mark = self.start_process(service).await?;
        let record = Record {
            pid: mark.pid,
            start: mark.start,
            boot: mark.boot.clone(),
            program: service.program().to_owned(),
            arguments: service.arguments().to_vec(),
        };
        let content = serde_json::to_vec(&record).map_err(ServiceError::Record)?;
        fsio::write_atomically(&self.record_path(), &content)?;
        let end = clock::instant() + settled;
        while clock::instant() < end && !heartbeat.is_fresh().await {
            if !process::is_alive(&mark) {
                return Err(self.ended());
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(Begun::now(ran_before))
    }

    fn ended(&self) -> ServiceError {
        let words = self.last_words();
        ServiceError::Ended(words.unwrap_or_else(|| "it said nothing".to_owned()))
    }

    async fn start_process(
        &self,
        service: &ServiceDescription,
    ) -> Result<ProcessMark, ServiceError> {
        let variables = service.variables_of_a_lone_process(&self.environment);
        let arguments: Vec<&str> = service.arguments().iter().map(String::as_str).collect();
        let program = PathBuf::from(service.program());
        let mut attempt = 0;
        let mut started: Background = loop {
            let log = files::open_log(&self.state)?;
            attempt += 1;
            match proc::in_background(Some(&program), &arguments, &variables, log.into()) {
                Ok(started) => break started,
                Err(error)
                    if error.kind() == std::io::ErrorKind::ExecutableFileBusy
                        && attempt < MOST_ATTEMPTS =>
                {
                    tokio::time::sleep(LOOK).await;
                }
                Err(error) => return Err(ServiceError::Start(error)),
            }
        };
        let mark = process::mark_of(started.pid());
        // It is told nothing; its input is closed.
        let _ = started.tell(&[]).await;
        mark.ok_or_else(|| self.ended())
    }

    /// Ends the very process that was started, if it still runs; says whether there was one.
    pub(super) async fn end_process(&self) -> Result<bool, ServiceError> {
        let Some(record) = self.record() else {
            fsio::remove_file(&self.record_path())?;
            return Ok(false);
        };
        let mark = record.mark();
        for (signal, limit) in [(Signal::TERM, END_LIMIT), (Signal::KILL, KILL_LIMIT)] {
            process::signal(&mark, signal);
            let end = clock::instant() + limit;
            while process::is_alive(&mark) && clock::instant() < end {
                tokio::time::sleep(LOOK).await;
            }
        }
        if process::is_alive(&mark) {
            return Err(ServiceError::Stays(mark.pid));
        }
        fsio::remove_file(&self.record_path())?;
        Ok(true)
    }

    /// How the process is.
    pub(super) fn process_status(&self) -> ServiceStatus {
        let mut status = ServiceStatus::absent(self.platform, ServiceKind::Detached);
        let Some(record) = self.record() else {
            return status;
        };
        status.installed = true;
        if record.is_running() {
            (status.loaded, status.running) = (true, true);
            status.pid = Some(record.pid);
            status.detail = format!("process {} runs by itself", record.pid);
            return status;
        }
        let boot = process::own_mark().map(|mark| mark.boot);
        status.detail = if boot.is_some_and(|boot| boot != record.boot) {
            "not running: this machine was restarted since it was started".to_owned()
        } else {
            format!("not running: its process {} has ended", record.pid)
        };
        status.hint = Some(
            "the next start of the server restarts it while tasks are watched; \
             `remote-sandbox-mcp watchdog install` does it now"
                .to_owned(),
        );
        status
    }
}
