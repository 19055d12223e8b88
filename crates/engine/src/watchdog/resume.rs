//! Carries out a resume that is written down, and writes down what came of it.

use std::sync::Arc;

use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::job::WatchInput;

use super::{Held, Watchdog};
use crate::clock;
use crate::job::{Resumed, carry_out_resume};
use crate::sandbox::Sandbox;
use crate::store::{JobRow, StoreError, WatchId, WatchedTask};

impl Watchdog {
    /// Carries out the attempt of a job that is written down, whoever wrote it. Gives why its host could not be asked.
    pub(super) async fn resume(
        &self,
        held: &Held,
        sandbox: &Arc<dyn Sandbox>,
        watch: WatchId,
        job: JobRow,
    ) -> Option<Failure> {
        let task = match self.task(watch).await {
            Ok(Some(task)) => task,
            // Nobody watches it any more: whoever looks at the job finds out that it never began.
            Ok(None) => {
                self.leave(held, &job).await;
                return None;
            }
            Err(error) => {
                held.note(&error);
                return None;
            }
        };
        let command = task.watch.order.resume.command.clone().unwrap_or_default();
        if let Err(failure) = self.engine.record_resume(&job, &command) {
            tracing::error!("a task is not resumed: {}", failure.message);
            self.leave(held, &job).await;
            return None;
        }
        let carried = carry_out_resume(self.store(), sandbox.as_ref(), &job, &command).await;
        let (input, failure) = match carried {
            // It runs once, whoever has begun it, and it counts once.
            Ok(Resumed::Started | Resumed::ByOther(_)) => (WatchInput::ResumeStarted, None),
            Ok(Resumed::Refused(failure)) => (WatchInput::ResumeFailed, Some(failure)),
            Ok(Resumed::Abandoned(failure)) => (WatchInput::ResumeAbandoned, Some(failure)),
            Ok(Resumed::Unclear(failure)) => (WatchInput::Unreachable, Some(failure)),
            Err(failure) => {
                tracing::error!("what came of a resume is not known: {}", failure.message);
                return None;
            }
        };
        self.note_resume(held, watch, &input, failure.as_ref())
            .await;
        failure.filter(|_| input == WatchInput::Unreachable)
    }

    async fn note_resume(
        &self,
        held: &Held,
        watch: WatchId,
        input: &WatchInput,
        failure: Option<&Failure>,
    ) {
        let task = match self.task(watch).await {
            Ok(Some(task)) => task,
            Ok(None) => return,
            Err(error) => return held.note(&error),
        };
        let now = clock::wall().as_secs();
        let decided = match failure {
            Some(failure) => self.decide_on_failure(&task, input, failure, now),
            None => self.decide_on(&task, input, now),
        };
        self.write(held, std::slice::from_ref(&task), vec![decided])
            .await;
    }

    async fn task(&self, watch: WatchId) -> Result<Option<WatchedTask>, StoreError> {
        Ok(self.store().watched_tasks(vec![watch]).await?.pop())
    }

    /// Says that this process does not carry out an attempt that it wrote down.
    async fn leave(&self, held: &Held, job: &JobRow) {
        let left = self.store().note_starter_gone(&job.id, job.attempt.number);
        if let Err(error) = left.await {
            held.note(&error);
        }
    }
}
