//! Looks at sandboxes step by step, all at the same time.

use std::time::Duration;

use futures::StreamExt;
use remote_sandbox_core::doctor::{Step, StepName};
use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::secret::Mask;
use serde::Serialize;

use super::Engine;
use crate::doctor::StepLog;

/// Hosts that are looked at at the same time.
const AT_ONCE: usize = 16;

/// How long one host may take.
const HOST_LIMIT: Duration = Duration::from_secs(30);

/// A sandbox and how each step went.
#[derive(Debug, Serialize)]
pub struct Examined {
    /// Its name.
    pub name: String,
    /// The steps in their order.
    pub steps: Vec<Step>,
}

impl Engine {
    /// Looks at the named sandboxes, at all when none is named; `told` gets each, in order, as soon as
    /// it and those before it are done.
    pub async fn examine(
        &self,
        names: &[String],
        mut told: impl FnMut(&Examined),
    ) -> Result<Vec<Examined>, Failure> {
        let names = match names {
            [] => self.names(),
            names => names.to_vec(),
        };
        for name in &names {
            match self.sandbox(Some(name)) {
                Err(failure) if failure.code != Code::SandboxDisabled => return Err(failure),
                _ => {}
            }
        }
        let work = names.into_iter().map(|name| self.examine_one(name));
        let mut done = futures::stream::iter(work).buffered(AT_ONCE);
        let mut all = Vec::new();
        while let Some(examined) = done.next().await {
            told(&examined);
            all.push(examined);
        }
        Ok(all)
    }

    async fn examine_one(&self, name: String) -> Examined {
        let sandbox = match self.sandbox(Some(&name)) {
            Ok(sandbox) => sandbox,
            Err(failure) => {
                let step = Step::failed(StepName::Entry, &failure.message, &failure.hint);
                let steps = vec![step];
                return Examined { name, steps };
            }
        };
        let log = StepLog::expecting(sandbox.steps());
        let looking = tokio::time::timeout(HOST_LIMIT, sandbox.examine(&log));
        if looking.await.is_err() {
            let detail = format!("not done within {} s", HOST_LIMIT.as_secs());
            let fix = "the first step that was not come to is the one that hangs";
            log.add(Step::failed(StepName::Time, &detail, fix).took(HOST_LIMIT));
        }
        let mut steps = log.finish();
        for step in &mut steps {
            hide(step, &self.mask);
        }
        Examined { name, steps }
    }
}

/// The words of a host go into steps too, and a host may repeat a secret.
fn hide(step: &mut Step, mask: &Mask) {
    step.detail = mask.mask_text(&step.detail).into_owned();
}
