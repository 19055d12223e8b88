//! The step with the watchdog: a job that is interrupted, and resumed from its checkpoint.

use std::time::Duration;

use remote_sandbox_engine::clock;
use serde_json::json;

use super::error::DemoError;
use super::page::spoken;
use super::project::{self, TRAINING, TRAINING_STEPS};
use super::server::Answer;
use super::stage::{SANDBOX, Stage};
use super::steps::run;
use crate::report::Failed;

/// How long a call waits for news of the job.
const NEWS_WAIT_S: u64 = 10;

/// How long all of it may take.
const LIMIT: Duration = Duration::from_secs(60);

/// The pause between two looks at a job that is interrupted.
const PAUSE: Duration = Duration::from_millis(200);

/// The step after which the job is interrupted.
const INTERRUPTED_AFTER: u32 = 2;

/// Starts a job that writes checkpoints, kills it, and sees the watchdog resume it.
pub(super) async fn resume(stage: &mut Stage) -> Result<String, Failed> {
    stage.start_watchdog()?;
    let note = "a watchdog runs beside the server, and looks at jobs each second";
    stage.say(&stage.page.note(note))?;
    let job = start(stage).await?;
    let task = job.text("task_id").to_owned();
    let mut heard = wait_for_step(stage, &task).await?;
    interrupt(stage, &job).await?;
    let begun = clock::instant();
    let mut told = String::new();
    let end = loop {
        let order = json!({"task_id": task, "since_byte": heard.len(), "wait_s": NEWS_WAIT_S});
        let answer = stage.call("check_background_task", order).await?;
        let news = answer.text("log_tail");
        stage.say(&stage.page.output(news))?;
        heard.push_str(news);
        let state = answer.text("status");
        if state != told {
            let at = spoken(begun.elapsed());
            let note = format!("check_background_task, {at} after that: {state}");
            stage.say(&stage.page.note(&note))?;
            state.clone_into(&mut told);
        }
        if state == "exited" || begun.elapsed() > LIMIT {
            break answer;
        }
        if state != "running" {
            tokio::time::sleep(PAUSE).await;
        }
    };
    stage.end_watchdog();
    let from = resumed_after(&heard).filter(|_| end.number("exit_code") == Some(0));
    match from {
        Some(step) => Ok(format!(
            "the watchdog found it gone and resumed it after step {step}; it ended with exit code 0"
        )),
        None => Err(end
            .unexpected("a job that goes on from its checkpoint to its end")
            .into()),
    }
}

async fn start(stage: &Stage) -> Result<Answer, Failed> {
    let about = format!("{TRAINING}   (resume_command: the same, auto_resume)");
    stage.say(&stage.page.call("exec_bash_background", &about))?;
    let order = json!({
        "sandbox_name": SANDBOX, "command": TRAINING, "resume_command": TRAINING, "auto_resume": true,
        "checkpoint_path": project::CHECKPOINT, "interval_s": 1, "resume_delay_s": 0,
        // The one beside the server is enough; nothing is set up on this machine.
        "ensure_watchdog": false, "notify_local": false,
    });
    let job = stage.call("exec_bash_background", order).await?;
    if job.text("status") != "started" || job.number("pid").is_none() {
        return Err(job.unexpected("a started job with its process").into());
    }
    Ok(job)
}

/// Gives all that the job has printed when it has come so far.
async fn wait_for_step(stage: &Stage, task: &str) -> Result<String, Failed> {
    let pattern = format!("step {INTERRUPTED_AFTER} of");
    let order = json!({
        "task_id": task, "since_byte": 0, "wait_s": NEWS_WAIT_S, "wait_for": pattern,
    });
    let answer = stage.call("check_background_task", order).await?;
    let heard = answer.text("log_tail").to_owned();
    if !heard.contains(&pattern) {
        return Err(answer.unexpected(&pattern).into());
    }
    stage.say(&stage.page.output(&heard))?;
    Ok(heard)
}

/// Ends the processes of the job as a crash does: nobody writes down how it ended.
async fn interrupt(stage: &Stage, job: &Answer) -> Result<(), Failed> {
    let runner = job.number("pid").unwrap_or_default();
    let command = format!("kill -9 {runner} $(cat {})", project::TRAINING_PROCESS);
    stage.say(&stage.page.call("exec_bash", &command))?;
    run(stage, &command, None).await?;
    Ok(())
}

/// The step after which a job went on whose log is this; none when it is not the log of one that was interrupted once
/// and did each step to its end.
fn resumed_after(log: &str) -> Option<u32> {
    let (_, first) = log.split_once("begins after step 0\n")?;
    let (_, second) = first.split_once("begins after step ")?;
    let (step, rest) = second.split_once('\n')?;
    let step: u32 = step.parse().ok()?;
    let steps =
        (step + 1..=TRAINING_STEPS).map(|step| format!("step {step} of {TRAINING_STEPS}\n"));
    let expected: String = steps.collect();
    let is_whole = rest == format!("{expected}trained\nEXIT_CODE=0\n");
    (is_whole && step >= INTERRUPTED_AFTER).then_some(step)
}

impl Stage {
    /// Starts the watchdog; what it cannot do is told by the job that nobody resumes.
    fn start_watchdog(&mut self) -> Result<(), DemoError> {
        let watchdog = self.start_program(&["watchdog", "run", "--loop-sleep", "0.2"])?;
        self.watchdog = Some(watchdog);
        Ok(())
    }

    /// Ends the watchdog with all it started.
    pub(super) fn end_watchdog(&mut self) {
        self.watchdog = None;
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const FIRST: &str = "begins after step 0\nstep 1 of 6\nstep 2 of 6\n";
    const REST: &str = "step 3 of 6\nstep 4 of 6\nstep 5 of 6\nstep 6 of 6\ntrained\nEXIT_CODE=0\n";

    #[rstest]
    #[case::resumed(format!("{FIRST}begins after step 2\n{REST}"), Some(2))]
    #[case::never_interrupted(format!("{FIRST}{REST}"), None)]
    #[case::from_the_beginning(format!("{FIRST}begins after step 0\nstep 1 of 6\nstep 2 of 6\n{REST}"), None)]
    #[case::twice(format!("{FIRST}begins after step 2\nbegins after step 2\n{REST}"), None)]
    #[case::not_to_its_end(format!("{FIRST}begins after step 2\nstep 3 of 6\n"), None)]
    fn only_a_job_that_goes_on_from_its_checkpoint_counts(
        #[case] log: String,
        #[case] step: Option<u32>,
    ) {
        assert_eq!(resumed_after(&log), step);
    }
}
