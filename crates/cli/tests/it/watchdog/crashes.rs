//! The watchdog is killed at every seam; the next one finds out what became of what it did.

use remote_sandbox_testkit::wait::wait_until;
use rstest::rstest;
use serde_json::json;

use super::{Dog, LIMIT, Stage, begun, marked};
use crate::jobs::Host;
use crate::support::{builder, entry, ready};

#[rstest]
#[case::before_the_record("resume_decided")]
#[case::after_the_record("resume_recorded")]
#[case::after_the_launch("resume_launched")]
#[case::before_the_event("resume_noted")]
#[case::after_the_first_event("event_written")]
#[tokio::test]
async fn f36_killed_watchdog_leaves_a_resume_that_the_next_one_finishes_once(#[case] seam: &str) {
    let stage = Stage::new().await;
    let marker = stage.host.sshd.dir().join("begun");
    let more = json!({"resume_command": marked(&marker, "again"), "auto_resume": true});
    let job = stage.job(&marked(&marker, "first"), more).await;
    assert!(wait_until(LIMIT, || begun(&marker, "first") == 1).await);
    stage.kill(&job);
    let mut first = Dog::start_with(stage.home(), &[], &[("REMOTE_SANDBOX_FAILPOINT", seam)]);
    assert!(first.ended().await, "{}", first.log());
    let second = Dog::start(stage.home());
    let types = ["interrupted", "resume_started"];
    stage.told(&second, &types).await;
    stage.nothing_more(&second, &types).await;
    assert_eq!(begun(&marker, "again"), 1, "{}", second.log());
    let runners = super::tree(&job);
    assert!(!runners.is_empty());
}

#[tokio::test]
async fn f36_event_that_was_told_just_before_the_crash_is_told_again_and_then_no_more() {
    let host = Host::start();
    let config = host.sshd.dir().join("dog.toml");
    std::fs::write(&config, "[watchdog]\nallow_event_command = \"any\"\n").unwrap();
    let config = config.to_str().unwrap().to_owned();
    let client = builder(&[entry("box", &host.sshd)]).args(["--config", &config]);
    let client = ready(client.start()).await;
    let stage = Stage { host, client };
    let told = stage.host.sshd.dir().join("told");
    let command = format!("echo \"$RSMCP_EVENT_TYPE\" >>{}", told.display());
    stage.job("exit 0", json!({"event_command": command})).await;
    let seam = [("REMOTE_SANDBOX_FAILPOINT", "event_delivered")];
    let mut first = Dog::start_with(stage.home(), &["--config", &config], &seam);
    assert!(first.ended().await, "{}", first.log());
    assert_eq!(begun(&told, "completed"), 1);
    let second = Dog::start_with(stage.home(), &["--config", &config], &[]);
    let again = || begun(&told, "completed") == 2;
    assert!(wait_until(LIMIT, again).await, "{}", second.log());
    stage.nothing_more(&second, &["completed"]).await;
    assert_eq!(begun(&told, "completed"), 2);
}
