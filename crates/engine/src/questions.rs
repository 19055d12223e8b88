//! What is asked of every sandbox in the same way, whatever kind it is.

use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::outcome::LeftRunning;
use remote_sandbox_core::probe::{self, Resources};
use remote_sandbox_core::shell::{
    CleanError, Purpose, Target, TokenProcess, clean_script, end_script, parse_clean_report,
    parse_end_report,
};
use remote_sandbox_core::sync::scan::{ScanError, Scanner, parse_scanners, scanners_script};

use crate::mark::new_mark;
use crate::sandbox::Sandbox;
use crate::shell::left_running;

/// A resource probe ends within this time.
const PROBE_LIMIT: Duration = Duration::from_secs(15);

/// Looking at every process of a busy host takes a while.
const CLEAN_LIMIT: Duration = Duration::from_secs(15);

/// Finding takes a moment, ending two seconds more.
const FIND_LIMIT: Duration = Duration::from_secs(5);

/// Trying the programs that can list files.
const SCANNER_LIMIT: Duration = Duration::from_secs(15);

/// What a host says that cannot be understood.
const STRANGE: &str = "its shell did not run our script; try exec_bash there";

fn failure(
    sandbox: &dyn Sandbox,
    code: Code,
    error: &(dyn std::error::Error + 'static),
) -> Failure {
    let name = &sandbox.description().name;
    Failure::new(code, format!("sandbox `{name}`: {}", Failure::chain(error)))
}

/// Finds the processes of a run, and ends them when asked to; says which live on.
pub async fn processes(
    sandbox: &dyn Sandbox,
    target: &Target,
    purpose: Purpose,
) -> Result<LeftRunning, Failure> {
    let answer = sandbox.ask(end_script(target, purpose), FIND_LIMIT).await?;
    match parse_end_report(&target.token, &answer) {
        Some(report) => Ok(left_running(Some(report))),
        None => {
            let name = &sandbox.description().name;
            let text = format!("sandbox `{name}`: processes could not be looked for");
            Err(Failure::new(Code::RemoteRefused, text).hint(STRANGE))
        }
    }
}

/// All processes of this user there that carry the token of a run, whoever started it.
pub async fn carriers(sandbox: &dyn Sandbox) -> Result<Vec<TokenProcess>, Failure> {
    let mark = new_mark();
    let report = sandbox.ask(clean_script(&mark), CLEAN_LIMIT).await?;
    parse_clean_report(&mark, &report).map_err(|error| match error {
        CleanError::Hidden => failure(sandbox, Code::Unsupported, &error)
            .hint("log in by hand and look at your processes there"),
        CleanError::Incomplete => failure(sandbox, Code::RemoteRefused, &error).hint(STRANGE),
    })
}

/// CPU, memory, disk and GPUs.
pub async fn resources(sandbox: &dyn Sandbox) -> Result<Resources, Failure> {
    let nonce = uuid::Uuid::now_v7().simple().to_string();
    let nonce =
        probe::Nonce::parse(&nonce).map_err(|error| failure(sandbox, Code::Internal, &error))?;
    let report = sandbox
        .ask(probe::probe_script(&nonce), PROBE_LIMIT)
        .await?;
    probe::parse_report(&nonce, &report)
        .map_err(|error| failure(sandbox, Code::RemoteRefused, &error).hint(STRANGE))
}

/// What it can list its files with.
pub async fn scanner(sandbox: &dyn Sandbox) -> Result<Scanner, Failure> {
    let mark = new_mark();
    let report = sandbox.ask(scanners_script(&mark), SCANNER_LIMIT).await?;
    let name = &sandbox.description().name;
    let Some(found) = parse_scanners(&mark, &report) else {
        let text = format!("sandbox `{name}`: it did not say what it lists files with");
        return Err(Failure::new(Code::RemoteRefused, text).hint(STRANGE));
    };
    match found.scanner {
        Some(scanner) => Ok(scanner),
        None => scanner_without_programs(sandbox).await,
    }
}

/// Where there is no program to list files with, the file protocol can.
async fn scanner_without_programs(sandbox: &dyn Sandbox) -> Result<Scanner, Failure> {
    match sandbox.files().await {
        Ok(Some(_)) => return Ok(Scanner::Files),
        Err(failure) if failure.code != Code::Unsupported => return Err(failure),
        Ok(None) | Err(_) => {}
    }
    let name = &sandbox.description().name;
    let text = format!(
        "sandbox `{name}` has nothing to list files with: no find, no python3, no perl, no SFTP"
    );
    Err(Failure::new(Code::Unsupported, text).hint("try `ls` with exec_bash"))
}

/// A scan that did not come to its end.
pub fn unfinished_scan(sandbox: &dyn Sandbox, error: &ScanError) -> Failure {
    let name = &sandbox.description().name;
    let text = format!("sandbox `{name}`: {}", Failure::chain(error));
    match error {
        ScanError::BrokenOff { .. } => Failure::new(Code::LinkLost, text)
            .hint("nothing was changed; call again")
            .retry(),
        ScanError::NotBegun | ScanError::RecordTooLong => Failure::new(Code::RemoteRefused, text)
            .hint("its shell did not run our script; try exec_bash there"),
    }
}
