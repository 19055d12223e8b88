//! Several watchdogs on one store: one works.

use std::time::Duration;

use remote_sandbox_testkit::process;
use remote_sandbox_testkit::wait::wait_until;
use rustix::process::Signal;
use serde_json::json;

use super::{Dog, LIMIT, Stage, begun, marked};

fn works(dog: &Dog) -> bool {
    dog.log().contains("the watchdog works")
}

#[tokio::test]
async fn f37_second_watchdog_waits_says_for_whom_and_takes_over_when_the_first_is_killed() {
    let stage = Stage::new().await;
    let marker = stage.host.sshd.dir().join("begun");
    let more = json!({"resume_command": marked(&marker, "again"), "auto_resume": true});
    let job = stage.job(&marked(&marker, "first"), more).await;
    let mut first = Dog::start_with(stage.home(), &["-v"], &[]);
    assert!(wait_until(LIMIT, || works(&first)).await, "{}", first.log());
    let second = Dog::start_with(stage.home(), &["-v"], &[]);
    let held = format!("process {}", first.pid());
    assert!(
        wait_until(LIMIT, || second.log().contains(&held)).await,
        "{}",
        second.log()
    );
    assert!(!works(&second));
    first.kill();
    assert!(
        wait_until(Duration::from_secs(5), || works(&second)).await,
        "{}",
        second.log()
    );
    assert!(wait_until(LIMIT, || begun(&marker, "first") == 1).await);
    stage.kill(&job);
    stage
        .told(&second, &["interrupted", "resume_started"])
        .await;
    assert!(wait_until(LIMIT, || begun(&marker, "again") == 1).await);
}

#[tokio::test]
async fn f37_frozen_watchdog_notices_its_lost_lease_before_any_effect() {
    let stage = Stage::new().await;
    let marker = stage.host.sshd.dir().join("begun");
    let more = json!({"resume_command": marked(&marker, "again"), "auto_resume": true, "max_resume_attempts": 3});
    let job = stage.job(&marked(&marker, "first"), more).await;
    let first = Dog::start_with(stage.home(), &["-v"], &[]);
    assert!(wait_until(LIMIT, || works(&first)).await, "{}", first.log());
    process::signal(first.pid(), Signal::STOP);
    let second = Dog::start_with(stage.home(), &["-v"], &[]);
    assert!(
        wait_until(LIMIT, || works(&second)).await,
        "{}",
        second.log()
    );
    assert!(wait_until(LIMIT, || begun(&marker, "first") == 1).await);
    stage.kill(&job);
    process::signal(first.pid(), Signal::CONT);
    let types = ["interrupted", "resume_started"];
    stage.told(&second, &types).await;
    assert!(
        wait_until(LIMIT, || first.log().contains("taken over")).await,
        "{}",
        first.log()
    );
    stage.nothing_more(&second, &types).await;
    assert_eq!(
        begun(&marker, "again"),
        1,
        "{}\n{}",
        first.log(),
        second.log()
    );
}
