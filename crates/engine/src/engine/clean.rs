//! What runs have left on a host, and the end of it.

use std::collections::BTreeMap;

use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::ids::RunToken;
use remote_sandbox_core::outcome::LeftRunning;
use remote_sandbox_core::shell::{Purpose, Target, TokenProcess};

use super::Engine;
use crate::audit::BeginRow;
use crate::call::CallContext;
use crate::questions;
use crate::run::RunRecord;

/// A run of which processes were found on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftRun {
    /// The token its processes carry.
    pub token: RunToken,
    /// Its id and command, when it is written down here.
    pub recorded: Option<(String, String)>,
    /// Its processes, oldest first.
    pub processes: Vec<TokenProcess>,
}

/// What was found on a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftovers {
    /// The sandbox.
    pub sandbox: String,
    /// Runs that somebody still waits for: a server of this user lives, or is connected right now.
    pub live: Vec<LeftRun>,
    /// Runs that nobody waits for any more.
    pub left: Vec<LeftRun>,
}

impl Engine {
    /// Looks for processes that runs have left on a host. This program leaves no files there.
    pub async fn leftovers(&self, name: &str) -> Result<Leftovers, Failure> {
        let sandbox = self.sandbox(Some(name))?;
        let processes = questions::carriers(sandbox.as_ref()).await;
        let processes = processes.map_err(|failure| failure.masked(&self.mask))?;
        Ok(sort_out(name, processes, self.registry.records()))
    }

    /// Ends what is left of a run and says what lives on.
    pub async fn end_leftover(
        &self,
        context: &CallContext,
        sandbox: &str,
        run: &LeftRun,
    ) -> Result<LeftRunning, Failure> {
        let found = self.sandbox(Some(sandbox))?;
        let recorded = run.recorded.as_ref();
        self.record(&BeginRow {
            principal: context.principal.as_str(),
            call: &context.call,
            tool: "clean",
            sandbox,
            run: recorded.map_or(run.token.as_str(), |(id, _)| id.as_str()),
            command: "",
            cwd: None,
        })?;
        let target = Target {
            token: run.token.clone(),
            started: None,
        };
        let ended = questions::processes(found.as_ref(), &target, Purpose::End).await;
        ended.map_err(|failure| failure.masked(&self.mask))
    }
}

/// Tells what somebody waits for from what nobody does; where it is not certain, somebody does.
fn sort_out(
    sandbox: &str,
    processes: Vec<TokenProcess>,
    records: Vec<(RunRecord, bool)>,
) -> Leftovers {
    let mut records: BTreeMap<String, (RunRecord, bool)> = records
        .into_iter()
        .map(|(record, lives)| (record.token.clone(), (record, lives)))
        .collect();
    let mut runs: BTreeMap<RunToken, Vec<TokenProcess>> = BTreeMap::new();
    for process in processes {
        runs.entry(process.token.clone()).or_default().push(process);
    }
    let mut found = Leftovers {
        sandbox: sandbox.to_owned(),
        live: Vec::new(),
        left: Vec::new(),
    };
    for (token, mut processes) in runs {
        processes.sort_by_key(|process| (std::cmp::Reverse(process.age_s), process.pid));
        let connected = processes.iter().any(|process| process.connected);
        let record = records.remove(token.as_str());
        let waited_for = record
            .as_ref()
            .is_some_and(|(record, lives)| *lives && record.outcome == RunRecord::RUNNING);
        let run = LeftRun {
            token,
            recorded: record.map(|(record, _)| (record.id, record.command)),
            processes,
        };
        if connected || waited_for {
            found.live.push(run);
        } else {
            found.left.push(run);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u8) -> RunToken {
        RunToken::from_uuid_bytes([number; 16])
    }

    fn process(number: u8, pid: u32, connected: bool) -> TokenProcess {
        TokenProcess {
            token: token(number),
            pid,
            age_s: u64::from(pid),
            connected,
            name: "sleep".to_owned(),
        }
    }

    fn record(number: u8, outcome: &str) -> RunRecord {
        RunRecord {
            id: format!("run_{number}"),
            principal: "local".to_owned(),
            sandbox: "box".to_owned(),
            command: "make".to_owned(),
            token: token(number).to_string(),
            started_at_s: 0.0,
            outcome: outcome.to_owned(),
            exit_code: None,
            signal: None,
            duration_s: None,
            kept_bytes: 0,
            total_bytes: 0,
        }
    }

    #[test]
    fn run_is_live_when_a_server_lives_or_a_connection_stands() {
        let processes = vec![
            process(1, 10, false),
            process(1, 20, true),
            process(2, 30, false),
            process(3, 40, false),
            process(4, 50, false),
            process(5, 60, false),
        ];
        let records = vec![
            (record(2, RunRecord::RUNNING), true),
            (record(3, RunRecord::RUNNING), false),
            (record(4, "exited"), true),
        ];
        let found = sort_out("box", processes, records);
        let tokens =
            |runs: &[LeftRun]| runs.iter().map(|run| run.token.clone()).collect::<Vec<_>>();
        assert_eq!(tokens(&found.live), [token(1), token(2)]);
        assert_eq!(tokens(&found.left), [token(3), token(4), token(5)]);
        assert_eq!(found.live[0].processes[0].pid, 20, "oldest first");
        assert_eq!(
            found.left[0].recorded,
            Some(("run_3".to_owned(), "make".to_owned()))
        );
        assert_eq!(found.left[2].recorded, None);
    }
}
