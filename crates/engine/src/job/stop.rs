//! Ends a job with everything it started.

use std::time::Duration;

use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::job::{StopVerdict, parse_stop, stop_begun_script, stop_script};

use super::{mark, target, wordless};
use crate::sandbox::Sandbox;
use crate::store::{JobRow, Store};

/// Two seconds for processes that do not heed TERM, and time to find them.
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// Ends the last attempt of a job, and of one that is over what it left running. That somebody wants it is written down
/// first.
pub(crate) async fn stop(
    store: &Store,
    sandbox: &dyn Sandbox,
    row: &mut JobRow,
) -> Result<StopVerdict, Failure> {
    let was_asked = row.attempt.is_stop_asked;
    if !row.attempt.state.is_terminal() {
        store.note_stop_asked(&row.id, row.attempt.number).await?;
        row.attempt.is_stop_asked = true;
    }
    let mark = mark();
    let script = match &row.attempt.process {
        Some(process) => stop_begun_script(&target(row), process, &mark),
        None => stop_script(&target(row), &mark),
    };
    let answer = sandbox.ask(script, STOP_LIMIT).await?;
    let verdict = parse_stop(&mark, &answer);
    let verdict = verdict
        .ok_or_else(|| wordless(&row.sandbox, "it did not say what became of the processes"))?;
    // Nothing was done: what ends it later is something else, and must not be told as this.
    if matches!(
        verdict,
        StopVerdict::Elsewhere { .. } | StopVerdict::NotOurs
    ) && !was_asked
    {
        store
            .note_stop_withdrawn(&row.id, row.attempt.number)
            .await?;
        row.attempt.is_stop_asked = false;
    }
    Ok(verdict)
}
