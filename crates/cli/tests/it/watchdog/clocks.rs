//! f44: clocks that jump, ours and the host's.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::wait::{skip, wait_until};
use rstest::rstest;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::stored::rows_of;
use super::{Dog, LIMIT, Stage};
use crate::jobs::{Host, end_of, started};
use crate::support::{builder, entry, ready, serve};

/// A clock that the test sets, for programs that are started with its variables.
pub(crate) struct Clock {
    folder: TempDir,
    library: PathBuf,
}

impl Clock {
    /// None, and a printed reason, where there is no libfaketime.
    pub(crate) fn new() -> Option<Self> {
        let places = fs::read_dir("/usr/lib").into_iter().flatten().flatten();
        let library = places
            .map(|place| place.path().join("faketime/libfaketimeMT.so.1"))
            .find(|library| library.exists());
        let Some(library) = library else {
            skip("there is no libfaketime (package faketime)");
            return None;
        };
        let folder = TempDir::with_prefix("clock-").unwrap();
        let clock = Clock { folder, library };
        clock.set("+0");
        Some(clock)
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("now")
    }

    /// Sets it, in the words of libfaketime; it goes on from there.
    pub(crate) fn set(&self, words: &str) {
        let new = self.folder.path().join("new");
        fs::write(&new, format!("{words}\n")).unwrap();
        fs::rename(new, self.file()).unwrap();
    }

    /// What a program has to be started with.
    pub(crate) fn variables(&self) -> Vec<(&str, String)> {
        let text = |path: &Path| path.display().to_string();
        vec![
            ("LD_PRELOAD", text(&self.library)),
            ("FAKETIME_TIMESTAMP_FILE", text(&self.file())),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            // What a clock that is set leaves alone.
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("FAKETIME_DISABLE_SHM", "1".to_owned()),
        ]
    }

    fn dog(&self, home: &Path) -> Dog {
        self.dog_with(home, &[])
    }

    /// A watchdog with this clock and more variables.
    pub(super) fn dog_with(&self, home: &Path, more: &[(&str, &str)]) -> Dog {
        let variables = self.variables();
        let variables = variables
            .iter()
            .map(|(name, value)| (*name, value.as_str()));
        let variables: Vec<(&str, &str)> = variables.chain(more.iter().copied()).collect();
        Dog::start_with(home, &["-v"], &variables)
    }

    /// A host whose sessions have this clock and more variables.
    pub(super) fn host_with(&self, more: &[(&str, &str)]) -> Host {
        let mut builder = Sshd::builder();
        for (name, value) in self.variables() {
            builder = builder.session_environment(name, &value);
        }
        for (name, value) in more {
            builder = builder.session_environment(name, value);
        }
        Host::start_with(builder)
    }
}

pub(super) fn works(dog: &Dog) -> bool {
    dog.log().contains("the watchdog works")
}

/// When the watchdog last looked at its only watch, by its own clock, in milliseconds.
pub(super) fn last_look(home: &Path) -> i64 {
    let rows = rows_of(
        home,
        "SELECT cast(coalesce(last_checked, 0) AS text) FROM watches",
    );
    rows.first().map_or(0, |row| row[0].parse().unwrap())
}

#[rstest]
#[case::a_day_ahead("+86400")]
#[case::a_day_back("-86400")]
#[case::past_2038("+400000000")]
#[case::thirty_years_back("-900000000")]
#[tokio::test]
async fn f44_clock_that_jumps_under_the_holder_makes_no_second_one_and_no_alarm(
    #[case] jump: &str,
) {
    let Some(clock) = Clock::new() else { return };
    let stage = Stage::new().await;
    let gate = stage.host.sshd.dir().join("gate");
    let command = format!(
        "until [ -e {} ]; do sleep 0.3; done; exit 6",
        gate.display()
    );
    let job = stage.job(&command, json!({"stall_after_s": 600})).await;
    let first = clock.dog(stage.home());
    assert!(
        wait_until(LIMIT, || last_look(stage.home()) > 0).await,
        "{}",
        first.log()
    );
    let second = Dog::start_with(stage.home(), &["-v"], &[]);
    let held = format!("process {}", first.pid());
    assert!(
        wait_until(LIMIT, || second.log().contains(&held)).await,
        "{}",
        second.log()
    );
    let before = last_look(stage.home());
    clock.set(jump);
    // It goes on looking each second, by a clock that nobody sets.
    let seconds: i64 = jump.parse().unwrap();
    let looked_after = || (last_look(stage.home()) - before).abs() > seconds.abs() * 500;
    assert!(wait_until(LIMIT, looked_after).await, "{}", first.log());
    // Two leases long.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let logs = || format!("{}\n--\n{}", first.log(), second.log());
    assert!(!works(&second), "{}", logs());
    assert_eq!(stage.events(), Vec::<String>::new(), "{}", logs());
    clock.set("+0");
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(
        !works(&second) && !first.log().contains("taken over"),
        "{}",
        logs()
    );
    fs::write(&gate, "").unwrap();
    stage.told(&first, &["completed"]).await;
    assert_eq!(end_of(&stage.client, &job["task_id"]).await["exit_code"], 6);
    assert!(!logs().contains("panicked"), "{}", logs());
}

#[rstest]
#[case::a_day_ahead("+86400")]
#[case::a_day_back("-86400")]
#[case::past_2038("+400000000")]
#[tokio::test]
async fn f44_job_of_a_server_with_another_clock_is_watched_and_resumed_once(#[case] offset: &str) {
    let Some(clock) = Clock::new() else { return };
    clock.set(offset);
    let host = Host::start();
    let mut server = builder(&[entry("box", &host.sshd)]);
    for (name, value) in clock.variables() {
        server = server.env(name, value);
    }
    let client = ready(server.start()).await;
    let stage = Stage { host, client };
    let marker = stage.host.sshd.dir().join("begun");
    let more = json!({
        "resume_command": format!("echo again >>{}; exit 2", marker.display()), "auto_resume": true,
        "stall_after_s": 600,
    });
    let job = stage.job(&super::marked(&marker, "first"), more).await;
    assert!(wait_until(LIMIT, || super::begun(&marker, "first") == 1).await);
    let dog = Dog::start_with(stage.home(), &["-v"], &[]);
    assert!(wait_until(LIMIT, || works(&dog)).await, "{}", dog.log());
    stage.kill(&job);
    let types = ["interrupted", "resume_started", "completed"];
    stage.told(&dog, &types).await;
    stage.nothing_more(&dog, &types).await;
    assert_eq!(super::begun(&marker, "again"), 1);
    assert!(!stage.client.stderr().contains("panicked"));
}

/// A `date` that lives in another time.
fn shifted_date(folder: &Path, shift: &str) -> String {
    let script = format!("#!/bin/sh\nexec /bin/date -d '{shift}' \"$@\"\n");
    let program = folder.join("date");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:/usr/bin:/bin", folder.display())
}

#[rstest]
#[case::years_ahead("20 years")]
#[case::years_back("-20 years")]
#[case::before_the_epoch("-80 years")]
#[tokio::test]
async fn f44_host_whose_clock_is_off_by_years_runs_jobs_and_alarms_nobody(#[case] shift: &str) {
    let folder = TempDir::with_prefix("programs-").unwrap();
    let sshd = Sshd::builder()
        .session_environment("PATH", &shifted_date(folder.path(), shift))
        .start();
    let client = serve(&[entry("box", &sshd)]).await;
    let gate = sshd.dir().join("gate");
    let command = format!(
        "date +%Y; until [ -e {} ]; do sleep 0.3; done; exit 5",
        gate.display()
    );
    let more = json!({"interval_s": 1, "stall_after_s": 600, "ensure_watchdog": false, "notify_local": false});
    let job = started(&client, &command, more).await;
    let dog = Dog::start(client.home());
    assert!(
        wait_until(LIMIT, || last_look(client.home()) > 0).await,
        "{}",
        dog.log()
    );
    // Several looks, each a second after the other by our own clock.
    let begun = last_look(client.home());
    let several = || last_look(client.home()) > begun + 3000;
    assert!(wait_until(LIMIT, several).await, "{}", dog.log());
    let types = || -> Vec<Value> {
        let all = super::events(client.home());
        all.iter()
            .map(|event| event["event_type"].clone())
            .collect()
    };
    assert_eq!(types(), Vec::<Value>::new(), "{}", dog.log());
    fs::write(&gate, "").unwrap();
    assert!(
        wait_until(LIMIT, || types() == ["completed"]).await,
        "{}",
        dog.log()
    );
    let end = end_of(&client, &job["task_id"]).await;
    assert_eq!(end["exit_code"], 5, "{end}");
}
