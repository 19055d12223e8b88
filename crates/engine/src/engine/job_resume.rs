//! Resumes a watched job because somebody asks for it.

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::job::{AttemptNumber, JobId, LogPart};

use super::Engine;
use super::jobs::unknown;
use crate::audit::BeginRow;
use crate::call::CallContext;
use crate::job::{self, Resumed};
use crate::store::{BegunResume, JobRow};

impl Engine {
    /// Runs the resume command of a job that is over, in its session and with its log. Of two who ask at once, or of
    /// somebody and the watchdog, one does it and the other is told `already_resuming`.
    pub async fn resume_job(&self, context: &CallContext, id: &JobId) -> Result<JobRow, Failure> {
        let principal = context.principal.as_str();
        let store = self.store();
        let row = store.job(id, principal).await?;
        let row = row.ok_or_else(|| unknown(id.as_str()))?;
        let watch = match row.watch_id {
            Some(watch) => store.watch(watch, principal).await?,
            None => None,
        };
        let nothing = || {
            let text = format!("job `{id}` has no resume command");
            Failure::new(Code::InvalidParams, text)
                .hint("start jobs that can be resumed with `resume_command`")
        };
        let watch = watch.ok_or_else(nothing)?;
        let order = job::resume_order(&watch, &self.mask)?.ok_or_else(nothing)?;
        let command = watch.order.resume.command.clone().unwrap_or_default();
        let sandbox = self.sandbox_of_job(&row).await?;
        let seen = job::look_at(store, sandbox.as_ref(), row, LogPart::Nothing).await?;
        if let Some(failure) = seen.failure {
            return Err(failure.masked(&self.mask));
        }
        self.record(&BeginRow {
            principal,
            call: &context.call,
            tool: "job_resume",
            sandbox: &seen.row.sandbox,
            run: id.as_str(),
            command: &command,
            cwd: seen.row.cwd.as_deref(),
        })?;
        let row = match store.begin_resume(watch.id, principal, order).await? {
            BegunResume::Begun(row) => *row,
            BegunResume::AlreadyResuming(number) => return Err(already_resuming(id, number)),
            BegunResume::Unknown => return Err(unknown(id.as_str())),
        };
        let done = job::carry_out_resume(store, sandbox.as_ref(), &row, &command).await?;
        match done {
            Resumed::Started => Ok(store.job(id, principal).await?.unwrap_or(row)),
            Resumed::ByOther(number) => Err(already_resuming(id, number)),
            Resumed::Abandoned(failure) | Resumed::Refused(failure) | Resumed::Unclear(failure) => {
                Err(failure.masked(&self.mask))
            }
        }
    }
}

fn already_resuming(id: &JobId, number: AttemptNumber) -> Failure {
    let text = format!("already_resuming: attempt {number} of job `{id}` runs or is being started");
    Failure::new(Code::Busy, text).hint("check_background_task shows how it stands")
}
