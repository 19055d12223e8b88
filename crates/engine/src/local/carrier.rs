//! A conversation with a shell in a sandbox, and the other way to its processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use remote_sandbox_core::outcome::LeftRunning;
use remote_sandbox_core::shell::{
    EndReport, Purpose, Target, TimeoutProgram, end_script, parse_end_report,
};
use tokio::time::Instant;

use super::LocalSandbox;
use super::link::{LinkError, LocalOutgoing};
use crate::clock;
use crate::shell::{Answer, Carrier, Outgoing as _, Signal, collect_answer, left_running};

/// TERM, two seconds and KILL fit into this.
const END_LIMIT: Duration = Duration::from_millis(2900);

/// Finding takes a moment.
const FIND_LIMIT: Duration = Duration::from_secs(5);

/// Between two attempts in a sandbox without a process to spare.
const PAUSE: Duration = Duration::from_millis(50);

/// A shell in a sandbox.
pub(super) struct Within<'a> {
    pub(super) sandbox: &'a LocalSandbox,
    pub(super) lost: Arc<AtomicBool>,
}

impl Carrier for Within<'_> {
    type Outgoing = LocalOutgoing;

    fn farewell(&self) -> String {
        "the sandbox's supervisor ended".to_owned()
    }

    fn is_connected(&self) -> bool {
        !self.lost.load(Ordering::Acquire)
    }

    async fn wait_for_end(&self, _: Duration) {}

    async fn answers(&self) -> bool {
        self.is_connected() && self.sandbox.address.answers().await
    }

    fn learn_timeout_program(&self, program: TimeoutProgram) {
        self.sandbox.learn_timeout_program(program);
    }

    async fn find(&self, target: &Target) -> Option<LeftRunning> {
        let until = clock::instant() + FIND_LIMIT;
        let report = self.report(target, Purpose::Look, until).await;
        report.ok().map(|report| left_running(Some(report)))
    }

    async fn end(&self, target: &Target, main: &LocalOutgoing) -> Option<EndReport> {
        let until = clock::instant() + END_LIMIT;
        loop {
            match self.report(target, Purpose::End, until).await {
                Ok(report) => return Some(report),
                // A run that has used up all processes leaves none for this; its own group is ended
                // from outside to make room.
                Err(LinkError::Refused(_)) if clock::instant() < until => {
                    let _ = main.signal(Signal::Kill).await;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(_) => return None,
            }
        }
    }
}

impl Within<'_> {
    async fn report(
        &self,
        target: &Target,
        purpose: Purpose,
        until: Instant,
    ) -> Result<EndReport, LinkError> {
        let work = ask(self.sandbox, end_script(target, purpose));
        let answer = tokio::time::timeout_at(until, work).await;
        let answer = answer.unwrap_or(Err(LinkError::Ended))?;
        let refused = || LinkError::Refused("no answer of ours".to_owned());
        parse_end_report(&target.token, &answer).ok_or_else(refused)
    }
}

/// Runs a short script of ours where a supervisor is there already.
pub(super) async fn ask(sandbox: &LocalSandbox, script: String) -> Result<Vec<u8>, LinkError> {
    let mut shell = sandbox.address.shell().await?;
    match collect_answer(&mut shell.incoming, &shell.outgoing, script, None).await {
        Answer::Whole(answer) | Answer::Said(answer) => Ok(answer),
        Answer::Broken => Err(LinkError::Ended),
        Answer::Refused => Err(LinkError::Refused("no reason given".to_owned())),
    }
}
