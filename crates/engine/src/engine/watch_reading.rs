//! Reads the log and the checkpoint of watched tasks, now.

use std::sync::Arc;
use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::job::{
    Checkpoint, CheckpointFormat, CheckpointSight, FileKind, LogPart, Look, MOST_CHECKPOINT_BYTES,
};
use remote_sandbox_core::output::clean_text;

use super::Engine;
use super::job_reports::{Found, JobReport};
use crate::call::CallContext;
use crate::job;
use crate::run::Wanted;
use crate::sandbox::Sandbox;
use crate::store::WatchRow;

/// How long a look at a checkpoint may take, its command included.
const LOOK_LIMIT: Duration = Duration::from_secs(45);

/// Where a checkpoint was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckpointSource {
    /// In a file.
    File {
        /// The file.
        path: String,
        /// How many bytes it has.
        size: u64,
        /// Whether it has more than was read.
        is_truncated: bool,
        /// How long ago it was written.
        age_s: Option<u64>,
    },
    /// In what a command printed.
    Command {
        /// Its exit code.
        exit_code: Option<u32>,
        /// Whether it printed more than was read.
        is_truncated: bool,
    },
}

/// A checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointReport {
    /// What it says.
    pub text: String,
    /// How that is read.
    pub format: CheckpointFormat,
    /// Where it was read.
    pub source: CheckpointSource,
}

/// What a watched task says now.
#[derive(Debug)]
pub struct LiveReport {
    /// How the task stands.
    pub task: Result<JobReport, Failure>,
    /// Its checkpoint; none when the watch has none.
    pub checkpoint: Option<Result<CheckpointReport, Failure>>,
}

impl Engine {
    /// How a watched task stands, with a part of its log.
    pub async fn watch_log(
        &self,
        context: &CallContext,
        number: u64,
        wanted: &Wanted,
    ) -> Result<JobReport, Failure> {
        let row = self.find_watch(context, number).await?;
        let sandbox = self.sandbox_of_watch(&row).await?;
        self.task_of_watch(&sandbox, &row, wanted).await
    }

    /// The checkpoint of a watched task.
    pub async fn watch_checkpoint(
        &self,
        context: &CallContext,
        number: u64,
        most_bytes: u64,
    ) -> Result<CheckpointReport, Failure> {
        let row = self.find_watch(context, number).await?;
        let nothing = || {
            let text = format!("watch {number} has no checkpoint");
            Failure::new(Code::InvalidParams, text).hint(
                "give `checkpoint_path` or `checkpoint_command` to exec_bash_background or watch_background_task",
            )
        };
        let checkpoint = row.order.checkpoint().ok_or_else(nothing)?;
        let sandbox = self.sandbox_of_watch(&row).await?;
        self.checkpoint_now(&sandbox, &row, checkpoint, most_bytes)
            .await
    }

    /// What a watched task says now: its log and its checkpoint.
    pub async fn watch_live(
        &self,
        context: &CallContext,
        number: u64,
        wanted: &Wanted,
        most_bytes: u64,
    ) -> Result<LiveReport, Failure> {
        let row = self.find_watch(context, number).await?;
        let sandbox = match self.sandbox_of_watch(&row).await {
            Ok(sandbox) => sandbox,
            Err(failure) => {
                return Ok(LiveReport {
                    checkpoint: row.order.checkpoint().map(|_| Err(failure.clone())),
                    task: Err(failure),
                });
            }
        };
        let task = self.task_of_watch(&sandbox, &row, wanted);
        let checkpoint = async {
            let checkpoint = row.order.checkpoint()?;
            Some(
                self.checkpoint_now(&sandbox, &row, checkpoint, most_bytes)
                    .await,
            )
        };
        let (task, checkpoint) = tokio::join!(task, checkpoint);
        Ok(LiveReport { task, checkpoint })
    }

    /// The sandbox of a watch: the one of our configuration when it is the same, else the one that was kept for it.
    pub(super) async fn sandbox_of_watch(
        &self,
        row: &WatchRow,
    ) -> Result<Arc<dyn Sandbox>, Failure> {
        let Some(entry) = &row.entry else {
            return self.sandbox(Some(&row.sandbox));
        };
        if self.kept_key(&row.sandbox).as_ref() == Some(entry) {
            return self.sandbox(Some(&row.sandbox));
        }
        let made = {
            let made = self.made.lock().await;
            made.get(entry).cloned()
        };
        if let Some(made) = made {
            return Ok(made);
        }
        match self.sandbox_of_entry(entry).await {
            Ok(sandbox) if sandbox.description().local.is_some() => Ok(sandbox),
            Ok(sandbox) => {
                let mut made = self.made.lock().await;
                Ok(made.entry(entry.clone()).or_insert(sandbox).clone())
            }
            // The same name may mean another host in our own configuration.
            Err(failure) if self.kept_key(&row.sandbox).as_ref() != Some(entry) => Err(failure),
            Err(failure) => self.sandbox(Some(&row.sandbox)).map_err(|_| failure),
        }
    }

    async fn task_of_watch(
        &self,
        sandbox: &Arc<dyn Sandbox>,
        row: &WatchRow,
        wanted: &Wanted,
    ) -> Result<JobReport, Failure> {
        let found = self.task_found(row).await?;
        self.look_at_task_in(sandbox, &found, wanted, None).await
    }

    /// The task of a watch: the job, where it is one of ours.
    pub(super) async fn task_found(&self, row: &WatchRow) -> Result<Found, Failure> {
        if let Some(job) = &row.job
            && let Some(job) = self.store().job(job, &row.principal).await?
        {
            return Ok(Found::Ours(Box::new(job)));
        }
        Ok(Found::Foreign {
            sandbox: row.sandbox.clone(),
            session: row.session.clone(),
            log_file: row.log_file.clone(),
            watch: Some(row.id),
        })
    }

    async fn checkpoint_now(
        &self,
        sandbox: &Arc<dyn Sandbox>,
        row: &WatchRow,
        checkpoint: Checkpoint,
        most_bytes: u64,
    ) -> Result<CheckpointReport, Failure> {
        let most = most_bytes.clamp(1, MOST_CHECKPOINT_BYTES);
        let cwd = row.cwd.as_deref().unwrap_or_default();
        let look = Look::foreign("", &row.log_file, LogPart::Nothing)
            .and_then(|look| look.with_checkpoint(checkpoint.clone(), cwd, most))
            .map_err(|error| Failure::new(Code::InvalidParams, error.to_string()))?;
        let seen = job::ask_within(sandbox.as_ref(), &[look], LOOK_LIMIT).await;
        let seen = seen.map_err(|failure| failure.masked(&self.mask))?;
        let sight = seen.into_iter().flatten().next();
        let sight = sight.and_then(|seen| seen.checkpoint);
        self.read_sight(row, &checkpoint, sight, most)
    }

    fn read_sight(
        &self,
        row: &WatchRow,
        checkpoint: &Checkpoint,
        sight: Option<CheckpointSight>,
        most: u64,
    ) -> Result<CheckpointReport, Failure> {
        let failed = |code, what: &str| {
            let text = format!("sandbox `{}`: the checkpoint {what}", row.sandbox);
            Failure::new(code, text)
        };
        let (text, source) = match sight {
            None | Some(CheckpointSight::Skipped) => {
                return Err(failed(Code::RemoteRefused, "could not be looked at"));
            }
            Some(CheckpointSight::Hung) => {
                return Err(failed(Code::TimedOut, "command did not end in time"));
            }
            Some(CheckpointSight::Told { code, text }) => {
                let is_truncated = text.len() as u64 >= most;
                let source = CheckpointSource::Command {
                    exit_code: code,
                    is_truncated,
                };
                (text, source)
            }
            Some(CheckpointSight::File(file)) => match file.kind {
                FileKind::Missing => return Err(failed(Code::NotFound, "is not there yet")),
                FileKind::Unreadable => {
                    return Err(failed(Code::PermissionDenied, "cannot be read"));
                }
                FileKind::NotAFile => return Err(failed(Code::RemoteRefused, "is not a file")),
                FileKind::File => {
                    let read = file.text.len() as u64;
                    let size = file.size_bytes.unwrap_or(read);
                    let path = match checkpoint {
                        Checkpoint::Path(path) => path.clone(),
                        Checkpoint::Command(_) | Checkpoint::JsonCommand(_) => String::new(),
                    };
                    let source = CheckpointSource::File {
                        path,
                        size,
                        // It may have grown since its size was told.
                        is_truncated: size > read || (size < read && read >= most),
                        age_s: file.age_s,
                    };
                    (file.text, source)
                }
            },
        };
        Ok(CheckpointReport {
            text: clean_text(&self.mask.mask_bytes(&text)),
            format: row.order.checkpoint_format,
            source,
        })
    }
}
