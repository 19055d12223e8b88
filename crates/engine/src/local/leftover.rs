//! Ends, from outside, what is left of a sandbox whose supervisor cannot do it.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::clock;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// Kills every process of this user whose home is the sandbox's, until none is left or time is over.
pub(super) async fn end_all(home: &Path, limit: Duration) {
    let until = clock::instant() + limit;
    loop {
        let place = home.to_owned();
        let looked = tokio::task::spawn_blocking(move || living_in(&place)).await;
        let found = looked.unwrap_or_default();
        if found.is_empty() || clock::instant() >= until {
            break;
        }
        for pid in found {
            let _ = kill_process(pid, Signal::KILL);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The processes whose environment says that their home is this folder. A folder of ours has a name that
/// nobody else's home has.
fn living_in(home: &Path) -> Vec<Pid> {
    let mut wanted = b"HOME=".to_vec();
    wanted.extend_from_slice(home.as_os_str().as_bytes());
    let own = std::process::id();
    if !Path::new("/proc/self/environ").exists() {
        // Without /proc, `ps` tells the environment of one's own processes.
        let listed = crate::proc::list_processes(&["-A", "-E", "-ww", "-o", "pid=,command="]);
        let wanted = format!("{} ", String::from_utf8_lossy(&wanted));
        let with_home = listed
            .lines()
            .filter(|line| format!("{line} ").contains(&wanted));
        let pids = with_home.filter_map(|line| line.split_ascii_whitespace().next()?.parse().ok());
        return pids
            .filter(|pid: &i32| u32::try_from(*pid).is_ok_and(|pid| pid != own))
            .filter_map(Pid::from_raw)
            .collect();
    }
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != own)
        .filter(|pid| {
            let variables = std::fs::read(format!("/proc/{pid}/environ"));
            variables.is_ok_and(|text| text.split(|byte| *byte == 0).any(|entry| entry == wanted))
        })
        .filter_map(|pid| i32::try_from(pid).ok().and_then(Pid::from_raw))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_processes_with_this_home_are_ended() {
        let folder = tempfile::tempdir().unwrap();
        let start = |home: &Path| {
            tokio::process::Command::new("sleep")
                .arg("60")
                .env("HOME", home)
                .kill_on_drop(true)
                .spawn()
                .unwrap()
        };
        let (mut inside, mut outside) = (start(folder.path()), start(&folder.path().join("x")));
        // A child has our environment until it has become the program.
        let seen = || !living_in(folder.path()).is_empty();
        assert!(remote_sandbox_testkit::wait_until(Duration::from_secs(5), seen).await);
        let ending = end_all(folder.path(), Duration::from_secs(5));
        let (status, ()) = tokio::join!(inside.wait(), ending);
        assert!(!status.unwrap().success());
        assert!(outside.try_wait().unwrap().is_none());
    }
}
