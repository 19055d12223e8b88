//! Looks at a sandbox on this machine: its wall, what that keeps apart, and what is inside.

use remote_sandbox_core::doctor::{Step, StepName};
use remote_sandbox_core::local::{Level, walls};

use super::LocalSandbox;
use crate::doctor::{self, SCRIPT_LIMIT, StepLog};
use crate::sandbox::Sandbox as _;

/// What helps where the wall is not the best one.
const BETTER: &str = "install bubblewrap and allow unprivileged user namespaces for a better wall";

/// Looks at the sandbox and writes down what it finds.
pub(super) async fn examine(sandbox: &LocalSandbox, log: &StepLog) {
    let level = match sandbox.wall().await {
        Ok(wall) => wall.level,
        Err(error) => {
            let failure = sandbox.failure(&error);
            let step = Step::failed(StepName::Isolation, &failure.message, &failure.hint);
            return log.add(step);
        }
    };
    let detail = format!("{}, network {}", level.word(), sandbox.network.word());
    log.add(match level {
        Level::Bubblewrap { .. } | Level::Seatbelt => Step::ok(StepName::Isolation, &detail),
        Level::Landlock { .. } => Step::warning(StepName::Isolation, &detail, BETTER),
        Level::None => {
            let fix =
                "remove isolation = \"none\" under [local] unless commands may run here as you";
            Step::warning(StepName::Isolation, &detail, fix)
        }
    });
    for wall in walls(level) {
        let detail = format!("{}: {}", wall.name.words(), wall.note);
        log.add(match wall.holds {
            true => Step::ok(StepName::Wall, &detail),
            false => Step::skipped(StepName::Wall, &format!("not walled off, {detail}")),
        });
    }
    if let Some(facts) = &sandbox.description().local {
        let bounds: Vec<String> = facts
            .bounds
            .iter()
            .map(|bound| format!("{} {}", bound.name, bound.text))
            .collect();
        log.add(Step::ok(StepName::Limits, &bounds.join(", ")));
    }
    let ask = |script| sandbox.ask(script, SCRIPT_LIMIT);
    let keep = |step| StepName::OF_THIS_MACHINE.contains(&step);
    doctor::look_around(log, ask, keep).await;
}
