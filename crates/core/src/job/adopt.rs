//! The script that asks what became of a start whose answer was lost. It can start nothing.

use std::fmt::Write as _;

use super::script::{COMMON, TELL, bare};
use super::start::{JobStarted, StartVerdict, parse_start};
use super::stop::StopTarget;
use crate::ids::RunToken;

const ADOPT: &str = include_str!("adopt.sh");

/// Builds the script; whatever it finds, the host is afterwards as it was before.
pub fn adopt_script(target: &StopTarget<'_>, mark: &RunToken) -> String {
    let mut script = String::from("{\n");
    let _ = writeln!(
        script,
        "_rm={mark} _rid={} _rn={} _rnonce={}",
        target.job, target.attempt, target.nonce
    );
    for part in [COMMON, TELL, ADOPT] {
        script.push_str(&bare(part));
    }
    script.push_str("}\n");
    script
}

/// Reads what [`adopt_script`] says; none when that attempt has not begun, or belongs to somebody else.
pub fn parse_adopt(mark: &RunToken, answer: &[u8]) -> Option<JobStarted> {
    match parse_start(mark, answer) {
        Ok(StartVerdict::StartedBefore(started)) => Some(started),
        _ => None,
    }
}

#[cfg(test)]
#[path = "adopt_tests.rs"]
mod tests;
