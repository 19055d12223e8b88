//! The steps of one host as they are done, kept also when time runs out.

use std::sync::{Arc, Mutex, PoisonError};

use remote_sandbox_core::doctor::{Status, Step, StepName};

/// Where the steps of one host are written down.
#[derive(Debug, Clone)]
pub struct StepLog {
    steps: Arc<Mutex<Vec<Step>>>,
    expected: &'static [StepName],
}

impl Default for StepLog {
    fn default() -> Self {
        StepLog::expecting(&StepName::OF_A_HOST)
    }
}

impl StepLog {
    /// A log in which these steps are told as skipped where they were not come to.
    pub fn expecting(expected: &'static [StepName]) -> Self {
        StepLog {
            steps: Arc::default(),
            expected,
        }
    }

    fn steps(&self) -> std::sync::MutexGuard<'_, Vec<Step>> {
        self.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many steps there are.
    pub(crate) fn count(&self) -> usize {
        self.steps().len()
    }

    /// Writes a step down.
    pub(crate) fn add(&self, step: Step) {
        self.steps().push(step);
    }

    /// Writes a step down in place of the same one, if that came after the first `kept` steps.
    pub(crate) fn put(&self, kept: usize, step: Step) {
        let mut steps = self.steps();
        let same = steps
            .iter_mut()
            .skip(kept)
            .find(|old| old.step == step.step && step.step != StepName::Note);
        match same {
            Some(old) => *old = step,
            None => steps.push(step),
        }
    }

    /// All steps in their order; what was not come to is skipped.
    pub(crate) fn finish(&self) -> Vec<Step> {
        let mut steps = std::mem::take(&mut *self.steps());
        let failed = steps.iter().find(|step| step.status == Status::Failed);
        let why = match failed {
            Some(step) => format!("not come to, see {}", step.step.name()),
            None => "not come to".to_owned(),
        };
        for name in self.expected.iter().copied() {
            // A step of a jump host is not one of the host itself, but then the steps after it are missing too.
            if !steps.iter().any(|step| step.step == name) {
                steps.push(Step::skipped(name, &why));
            }
        }
        steps.sort_by_key(|step| place(step.step));
        steps
    }
}

/// The way to a host is told as it was gone; what is found there has an order of its own.
fn place(step: StepName) -> usize {
    if step == StepName::Time {
        return usize::MAX;
    }
    let find = |wanted| StepName::OF_A_HOST.iter().position(|name| *name == wanted);
    let login = find(StepName::Auth);
    find(step)
        .filter(|place| Some(*place) > login)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(steps: &[Step]) -> Vec<&'static str> {
        steps.iter().map(|step| step.step.name()).collect()
    }

    #[test]
    fn log_skips_what_was_not_come_to_and_says_where_it_ended() {
        let log = StepLog::default();
        log.add(Step::ok(StepName::Dns, "found"));
        log.add(Step::failed(StepName::Tcp, "closed", "open it"));
        let steps = log.finish();
        assert_eq!(names(&steps)[..3], ["dns", "tcp", "banner"]);
        assert_eq!(steps[2].status, Status::Skipped);
        assert!(steps[2].detail.contains("tcp"), "{:?}", steps[2]);
        assert_eq!(steps.len(), StepName::OF_A_HOST.len());
    }

    #[test]
    fn log_orders_what_was_found_but_not_the_way() {
        let log = StepLog::default();
        for name in [StepName::Dns, StepName::Auth, StepName::Dns, StepName::Auth] {
            log.add(Step::ok(name, ""));
        }
        log.add(Step::ok(StepName::Sessions, ""));
        log.add(Step::ok(StepName::Shell, ""));
        let steps = log.finish();
        let done: Vec<Step> = steps
            .into_iter()
            .filter(|step| step.status == Status::Ok)
            .collect();
        assert_eq!(
            names(&done),
            ["dns", "auth", "dns", "auth", "shell", "sessions"]
        );
    }

    #[test]
    fn log_keeps_the_last_attempt_of_one_host() {
        let log = StepLog::default();
        log.add(Step::ok(StepName::Tcp, "the jump host"));
        log.put(1, Step::ok(StepName::Tcp, "first"));
        log.put(1, Step::ok(StepName::Tcp, "second"));
        let details: Vec<String> = log.steps().iter().map(|step| step.detail.clone()).collect();
        assert_eq!(details, ["the jump host", "second"]);
    }
}
