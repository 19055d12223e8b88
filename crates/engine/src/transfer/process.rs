//! Tells a process from every other one that has or had its number.

use rustix::process::{Pid, Signal};

#[cfg(target_os = "linux")]
use crate::fsio;
#[cfg(not(target_os = "linux"))]
use crate::proc;
use crate::store::ProcessMark;

/// Longest file of the kernel about one process.
#[cfg(target_os = "linux")]
const LONGEST: u64 = 16 * 1024;

/// The mark of this process.
pub(crate) fn own_mark() -> Option<ProcessMark> {
    mark_of(std::process::id())
}

/// The mark of whichever process has a number now; none when none has, or only what is left of one that ended.
#[cfg(target_os = "linux")]
pub(crate) fn mark_of(pid: u32) -> Option<ProcessMark> {
    let read = |path: &str| {
        let content = fsio::read_bounded(std::path::Path::new(path), LONGEST);
        content.ok().flatten()
    };
    let stat = read(&format!("/proc/{pid}/stat"))?;
    let start = parse_start(&String::from_utf8_lossy(&stat))?;
    let boot = read("/proc/sys/kernel/random/boot_id")?;
    Some(ProcessMark {
        pid,
        start,
        boot: format!(
            "{}{}",
            String::from_utf8_lossy(&boot).trim(),
            process_space()
        ),
    })
}

/// Within a container numbers mean other processes, so they count as those of another machine.
#[cfg(target_os = "linux")]
fn process_space() -> String {
    let space = rustix::fs::readlink("/proc/self/ns/pid", Vec::new());
    space.map_or_else(
        |_| String::new(),
        |space| format!(" {}", space.to_string_lossy()),
    )
}

/// The start time in ticks since the machine began; none for a process that has ended.
#[cfg(any(target_os = "linux", test))]
pub(super) fn parse_start(stat: &str) -> Option<u64> {
    // The name may hold blanks and parentheses; what counts comes after its last one.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    if matches!(fields.next()?, "Z" | "X" | "x") {
        return None;
    }
    // The state is the third field, the start time the twenty-second.
    fields.nth(18)?.parse().ok()
}

/// The mark of whichever process has a number now; none when none has, or only what is left of one that ended.
#[cfg(not(target_os = "linux"))]
pub(crate) fn mark_of(pid: u32) -> Option<ProcessMark> {
    use sha2::Digest;
    let number = pid.to_string();
    let words = proc::list_processes(&["-o", "stat=,lstart=", "-p", &number]);
    let (state, started) = words.trim().split_once(' ')?;
    if state.starts_with('Z') {
        return None;
    }
    // The date of the start as it is written; it is only ever compared.
    let digest = sha2::Sha256::digest(started.trim().as_bytes());
    let first: [u8; 8] = digest.get(..8)?.try_into().ok()?;
    Some(ProcessMark {
        pid,
        start: u64::from_be_bytes(first) >> 1,
        boot: String::new(),
    })
}

/// Whether the very process that was marked still runs.
pub(crate) fn is_alive(mark: &ProcessMark) -> bool {
    mark_of(mark.pid).as_ref() == Some(mark)
}

/// Signals the very process that was marked; false when it is gone.
#[cfg(target_os = "linux")]
pub(crate) fn signal(mark: &ProcessMark, signal: Signal) -> bool {
    let Some(pid) = raw(mark) else {
        return false;
    };
    match rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
        // The handle is of one process: if its mark is right now, it cannot become another one.
        Ok(handle) => is_alive(mark) && rustix::process::pidfd_send_signal(&handle, signal).is_ok(),
        Err(rustix::io::Errno::NOSYS) => {
            is_alive(mark) && rustix::process::kill_process(pid, signal).is_ok()
        }
        Err(_) => false,
    }
}

/// Signals the very process that was marked; false when it is gone.
#[cfg(not(target_os = "linux"))]
pub(crate) fn signal(mark: &ProcessMark, signal: Signal) -> bool {
    let Some(pid) = raw(mark) else {
        return false;
    };
    is_alive(mark) && rustix::process::kill_process(pid, signal).is_ok()
}

fn raw(mark: &ProcessMark) -> Option<Pid> {
    i32::try_from(mark.pid).ok().and_then(Pid::from_raw)
}
