//! From what was found on a host to steps with a status and a fix.

use std::time::Duration;

use super::{CheckUp, Filling, Step, StepName, Tool};
use crate::shell::TimeoutProgram;

/// Less free room than this, in KiB, is worth a warning.
const LITTLE_KIB: u64 = 1024 * 1024;

/// More than this in use, in percent, is worth a warning.
const NEARLY_FULL: u64 = 95;

/// A clock may go wrong by this much before anything suffers.
const TOLERATED_SKEW: Duration = Duration::from_secs(2);

/// With fewer sessions no shell can wait for the next command.
const FEWEST_SESSIONS: usize = 4;

/// The verdict on everything the script found; `before` and `after` are our own clock around it.
pub fn judge_checkup(found: &CheckUp, before: Duration, after: Duration) -> Vec<Step> {
    let login = match found.login_shell.as_str() {
        "" => String::new(),
        shell => format!(", login shell {shell}"),
    };
    vec![
        Step::ok(StepName::Shell, &format!("{}{login}", found.system)),
        tool(
            StepName::Bash,
            &found.bash,
            "commands run in `sh` instead, and what is written for bash fails",
            "bash",
        ),
        tool(
            StepName::Tmux,
            &found.tmux,
            "no terminal there outlives its connection",
            "tmux",
        ),
        timeout(found.timeout),
        find(&found.find),
        tool(
            StepName::Tar,
            &found.tar,
            "folders cannot be packed there",
            "tar",
        ),
        tool(
            StepName::Python,
            &found.python,
            "programs in Python cannot run there",
            "python3",
        ),
        room(StepName::Disk, &found.disk),
        room(StepName::Inodes, &found.inodes),
        clock(found.time_s, before, after),
    ]
}

/// The verdict on how many sessions a connection may have; `most` is how many were asked for.
pub fn judge_sessions(opened: usize, most: usize) -> Step {
    if opened >= most {
        return Step::ok(StepName::Sessions, &format!("at least {opened} at a time"));
    }
    let detail = format!("{opened} at a time");
    if opened >= FEWEST_SESSIONS {
        return Step::ok(StepName::Sessions, &detail);
    }
    Step::warning(
        StepName::Sessions,
        &format!(
            "{detail}: no shell waits for the next command, so that each takes longer, and few run at the same time"
        ),
        "set MaxSessions 10 in the sshd_config of the host and reload sshd",
    )
}

fn install(package: &str) -> String {
    format!("on the host: apt install {package}, or dnf install {package}")
}

fn tool(step: StepName, tool: &Tool, loss: &str, package: &str) -> Step {
    match tool {
        Tool::Present(words) if words.is_empty() => Step::ok(step, "there"),
        Tool::Present(words) => Step::ok(step, words),
        Tool::Absent => Step::warning(
            step,
            &format!("not on the search path of a login: {loss}"),
            &install(package),
        ),
    }
}

fn timeout(program: TimeoutProgram) -> Step {
    let step = StepName::Timeout;
    match program {
        TimeoutProgram::WithKill => Step::ok(step, "there, knows -k"),
        TimeoutProgram::Plain => Step::ok(step, "there, without -k"),
        TimeoutProgram::InPlaceWithKill | TimeoutProgram::InPlacePlain => {
            Step::ok(step, "there, of busybox")
        }
        TimeoutProgram::Absent | TimeoutProgram::Unknown => Step::warning(
            step,
            "none that can be used: when the connection breaks, a command there runs past its deadline",
            &install("coreutils"),
        ),
    }
}

fn find(found: &Tool) -> Step {
    match found {
        Tool::Present(kind) if kind.is_empty() => {
            Step::ok(StepName::Find, "there, without -printf (not GNU)")
        }
        found => tool(
            StepName::Find,
            found,
            "files cannot be searched for there",
            "findutils",
        ),
    }
}

fn room(step: StepName, fillings: &[Filling]) -> Step {
    if fillings.is_empty() {
        return Step::skipped(step, "the host does not tell");
    }
    let told: Vec<String> = fillings.iter().map(|filled| told(step, filled)).collect();
    let detail = told.join("; ");
    let nothing_left =
        |filled: &Filling| filled.free == 0 && filled.used_percent.is_some_and(|p| p > 0);
    if fillings.iter().any(nothing_left) {
        let fix = "remove what is not needed there; until then programs fail in odd ways";
        return Step::failed(step, &detail, fix);
    }
    let little = |filled: &Filling| {
        filled.used_percent.is_some_and(|used| used > NEARLY_FULL)
            || step == StepName::Disk && filled.free < LITTLE_KIB
    };
    if fillings.iter().any(little) {
        return Step::warning(step, &detail, "make room there before long");
    }
    Step::ok(step, &detail)
}

fn told(step: StepName, filled: &Filling) -> String {
    let used = match filled.used_percent {
        Some(percent) => format!("{percent}% used"),
        None => return format!("{} has no limit", filled.place),
    };
    match step {
        StepName::Disk => {
            let gib = filled.free as f64 / f64::from(1024 * 1024);
            format!("{} {gib:.1} GiB free, {used}", filled.place)
        }
        _ => format!("{} {} free, {used}", filled.place, filled.free),
    }
}

fn clock(time_s: Option<u64>, before: Duration, after: Duration) -> Step {
    let Some(host) = time_s.map(Duration::from_secs) else {
        return Step::skipped(StepName::Clock, "the host does not tell");
    };
    // The host answered at some moment in between, and names it without its fraction.
    let behind = before.saturating_sub(host + Duration::from_secs(1));
    let ahead = host.saturating_sub(after);
    let (skew, side) = match ahead > behind {
        true => (ahead, "ahead of"),
        false => (behind, "behind"),
    };
    if skew <= TOLERATED_SKEW {
        return Step::ok(StepName::Clock, "the same as here");
    }
    Step::warning(
        StepName::Clock,
        &format!(
            "{} s {side} this machine: times of files and of certificates are judged wrongly",
            skew.as_secs()
        ),
        "set the clocks by NTP, on the host with `timedatectl set-ntp true`",
    )
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
