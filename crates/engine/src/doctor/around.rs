//! Runs the one script that looks at shell, tools, disks and clock, wherever they are.

use std::time::Duration;

use remote_sandbox_core::doctor::{Step, StepName, checkup_script, judge_checkup, parse_checkup};
use remote_sandbox_core::failure::Failure;

use super::StepLog;
use crate::clock;
use crate::mark::new_mark;

/// The script ends within this time; each of its tools has five seconds.
pub(crate) const SCRIPT_LIMIT: Duration = Duration::from_secs(15);

/// Looks around with `ask`, which runs a script and gives what it printed; `keep` chooses the steps that
/// are written down.
pub(crate) async fn look_around<W>(
    log: &StepLog,
    ask: impl FnOnce(String) -> W,
    keep: impl Fn(StepName) -> bool,
) where
    W: Future<Output = Result<Vec<u8>, Failure>>,
{
    let mark = new_mark();
    let (started, before) = (clock::instant(), clock::wall());
    let answer = ask(checkup_script(&mark)).await;
    let (took, after) = (started.elapsed(), clock::wall());
    let answer = match answer {
        Ok(answer) => answer,
        Err(failure) => {
            let step = Step::failed(StepName::Shell, &failure.message, &failure.hint);
            return log.add(step.took(took));
        }
    };
    match parse_checkup(&mark, &answer) {
        Ok(found) => {
            let steps = judge_checkup(&found, before, after).into_iter();
            for step in steps.filter(|step| keep(step.step)) {
                log.add(match step.step {
                    StepName::Shell => step.took(took),
                    _ => step,
                });
            }
        }
        Err(error) => log.add(Step::failed(
            StepName::Shell,
            &error.to_string(),
            "log in by hand and run `exec sh`; login files must not end the shell or wait for input",
        )),
    }
}
