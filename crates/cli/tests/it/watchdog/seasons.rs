//! f44: clocks of a host that are off by years, and zones whose clocks jump by an hour, ours and the host's.

use std::fs;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use remote_sandbox_testkit::wait::{skip, wait_until};
use rstest::rstest;
use serde_json::json;

use super::clocks::{Clock, last_look};
use super::{Dog, LIMIT, Stage, begun, marked};
use crate::jobs::end_of;
use crate::support::{builder, entry, exec, ready};

#[rstest]
#[case::years_ahead("+600000000")]
#[case::years_behind("-600000000")]
#[tokio::test]
async fn f44_silence_of_a_log_is_as_long_as_it_lasts_whatever_the_clock_of_the_host_says(
    #[case] offset: &str,
) {
    let Some(clock) = Clock::new() else { return };
    clock.set(offset);
    // Files are dated by another clock, as on a file server.
    let host = clock.host_with(&[("NO_FAKE_STAT", "1")]);
    let client = ready(builder(&[entry("box", &host.sshd)]).start()).await;
    let stage = Stage { host, client };
    let year = exec(&stage.client, "date +%Y").await;
    let year: u32 = year.json["stdout"]
        .as_str()
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert!(!(2020..2035).contains(&year), "{year}");
    let gate = stage.host.sshd.dir().join("gate");
    let command = format!(
        "echo begun; until [ -e {} ]; do sleep 0.3; done; exit 6",
        gate.display()
    );
    let job = stage.job(&command, json!({"stall_after_s": 600})).await;
    let dog = Dog::start_with(stage.home(), &["-v"], &[]);
    let looked = || last_look(stage.home()) > 0;
    assert!(wait_until(LIMIT, looked).await, "{}", dog.log());
    stage.nothing_more(&dog, &[]).await;
    // One that is silent for longer than it may be.
    let short = stage.job(&command, json!({"stall_after_s": 4})).await;
    stage.told(&dog, &["stalled"]).await;
    stage.nothing_more(&dog, &["stalled"]).await;
    fs::write(&gate, "").unwrap();
    stage
        .told(&dog, &["stalled", "completed", "completed"])
        .await;
    for job in [job, short] {
        assert_eq!(end_of(&stage.client, &job["task_id"]).await["exit_code"], 6);
    }
}

/// A zone, and two moments at which its clock jumps: the hour from two to three comes twice, or not at all.
const ZONE: &str = "Europe/Berlin";
const TWICE: u64 = 1_792_890_000;
const NEVER: u64 = 1_806_195_600;

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

/// Whether the zones of this machine are known.
fn has_zones() -> bool {
    let is_there = fs::metadata(format!("/usr/share/zoneinfo/{ZONE}")).is_ok();
    if !is_there {
        skip("there are no time zones (package tzdata)");
    }
    is_there
}

/// Sets a clock to so many seconds before a moment.
fn set_before(clock: &Clock, moment: u64, seconds: u64) {
    let wanted = i64::try_from(moment - seconds).unwrap();
    let offset = wanted - i64::try_from(now()).unwrap();
    clock.set(&format!("{offset:+}"));
}

/// A job that is killed three seconds before the clock jumps and is to be resumed six seconds later.
async fn resumes_once(stage: &Stage, clock: &Clock, dog: &Dog, moment: u64) {
    let marker = stage.host.sshd.dir().join("begun");
    let more = json!({
        "resume_command": format!("echo again >>{}; exit 2", marker.display()), "auto_resume": true,
        "resume_delay_s": 6, "stall_after_s": 600,
    });
    let job = stage.job(&marked(&marker, "first"), more).await;
    assert!(wait_until(LIMIT, || begun(&marker, "first") == 1).await);
    let looked = || last_look(stage.home()) > 0;
    assert!(wait_until(LIMIT, looked).await, "{}", dog.log());
    set_before(clock, moment, 3);
    let (set_at, jumps_in) = (Instant::now(), Duration::from_secs(3));
    stage.kill(&job);
    stage.told(dog, &["interrupted"]).await;
    let interrupted = Instant::now();
    let types = ["interrupted", "resume_started", "completed"];
    let again = || begun(&marker, "again") > 0;
    assert!(wait_until(LIMIT, again).await, "{}", dog.log());
    // The delay is what it should be, give or take a look, and not an hour more or less.
    assert!(
        interrupted.elapsed() > Duration::from_secs(3),
        "{:?}",
        interrupted.elapsed()
    );
    assert!(set_at.elapsed() > jumps_in);
    stage.told(dog, &types).await;
    stage.nothing_more(dog, &types).await;
    assert_eq!(begun(&marker, "again"), 1);
}

#[rstest]
#[case::hour_that_comes_twice(TWICE)]
#[case::hour_that_never_comes(NEVER)]
#[tokio::test]
async fn f44_watchdog_resumes_once_and_in_time_when_the_clock_of_its_zone_jumps(
    #[case] moment: u64,
) {
    let Some(clock) = Clock::new().filter(|_| has_zones()) else {
        return;
    };
    set_before(&clock, moment, 1000);
    let stage = Stage::new().await;
    let dog = clock.dog_with(stage.home(), &[("TZ", ZONE)]);
    resumes_once(&stage, &clock, &dog, moment).await;
    let looked = last_look(stage.home());
    assert!(looked > i64::try_from(moment * 1000).unwrap(), "{looked}");
}

#[rstest]
#[case::hour_that_comes_twice(TWICE, "CEST", "CET")]
#[case::hour_that_never_comes(NEVER, "CET", "CEST")]
#[tokio::test]
async fn f44_job_is_resumed_once_and_in_time_when_the_clock_of_its_host_jumps(
    #[case] moment: u64,
    #[case] before: &str,
    #[case] after: &str,
) {
    let Some(clock) = Clock::new().filter(|_| has_zones()) else {
        return;
    };
    set_before(&clock, moment, 1000);
    let host = clock.host_with(&[("TZ", ZONE)]);
    let client = ready(builder(&[entry("box", &host.sshd)]).start()).await;
    let stage = Stage { host, client };
    let zone = async || exec(&stage.client, "date +%Z").await.json["stdout"].clone();
    assert_eq!(zone().await, format!("{before}\n"));
    let dog = Dog::start_with(stage.home(), &["-v"], &[]);
    resumes_once(&stage, &clock, &dog, moment).await;
    assert_eq!(zone().await, format!("{after}\n"));
}
