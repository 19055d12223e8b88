//! f41: why a job is gone, as its event tells it.

use std::fs;
use std::process::{Child, Command};

use remote_sandbox_testkit::process;
use remote_sandbox_testkit::wait::wait_until;
use rstest::rstest;
use serde_json::{Value, json};

use super::clocks::last_look;
use super::{Dog, LIMIT, Stage, begun, events, marked};
use crate::jobs::{Ends, folder};

/// What became of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Killed,
    HostRebooted,
    NumberReused,
}

/// A process of somebody else; it ends with this value.
struct Stranger(Child);

impl Stranger {
    fn start() -> Self {
        Stranger(Command::new("sleep").arg("600").spawn().unwrap())
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Makes the record of a job that was killed what it would be after this.
fn pretend(stage: &Stage, job: &Value, cause: Cause, stranger: &Stranger) {
    let path = folder(&stage.host, job).join("process");
    let record = fs::read_to_string(&path).unwrap();
    let mut words: Vec<String> = record.split_whitespace().map(str::to_owned).collect();
    match cause {
        Cause::Killed => {}
        Cause::HostRebooted => words[2] = "00000000-0000-0000-0000-000000000000".to_owned(),
        Cause::NumberReused => words[0] = stranger.0.id().to_string(),
    }
    fs::write(&path, words.join(" ") + "\n").unwrap();
}

#[rstest]
#[case::killed(Cause::Killed, "its process is gone and left no record of its end")]
#[case::host_rebooted(Cause::HostRebooted, "the host was booted again since")]
#[case::number_reused(
    Cause::NumberReused,
    "its process is gone, its number belongs to another one"
)]
#[tokio::test]
async fn f41_event_tells_why_a_job_is_gone_and_no_stranger_is_signalled(
    #[case] cause: Cause,
    #[case] reason: &str,
) {
    let stage = Stage::new().await;
    let stranger = Stranger::start();
    let marker = stage.host.sshd.dir().join("begun");
    let job = stage.job(&marked(&marker, "first"), json!({})).await;
    assert!(wait_until(LIMIT, || begun(&marker, "first") == 1).await);
    stage.kill(&job);
    pretend(&stage, &job, cause, &stranger);
    let dog = Dog::start(stage.home());
    let types: &[&str] = match cause {
        Cause::HostRebooted => &["host_rebooted", "interrupted"],
        _ => &["interrupted"],
    };
    stage.told(&dog, types).await;
    stage.nothing_more(&dog, types).await;
    let told = events(stage.home()).pop().unwrap();
    let payload = &told["payload"];
    assert_eq!(payload["state"], "lost", "{told}");
    assert_eq!(payload["reason"], reason, "{told}");
    assert_eq!(payload["attempt"], 1, "{told}");
    let summary = told["summary"].as_str().unwrap();
    assert!(summary.ends_with(reason), "{summary}");
    // Nor does whoever wants to be sure that it is over.
    let stop = json!({"task_id": job["task_id"]});
    stage.client.call_tool("stop_background_task", stop).await;
    assert!(process::is_alive(stranger.0.id()));
}

#[tokio::test]
async fn f41_end_of_its_session_or_of_tmux_is_no_event_and_the_job_goes_on_to_its_end() {
    let _ends = Ends("sleep 606.125");
    let stage = Stage::new().await;
    let gate = stage.host.sshd.dir().join("gate");
    let command = format!(
        "until [ -e {} ]; do sleep 0.3; done; exit 6",
        gate.display()
    );
    let more = json!({"session_name": "seen", "resume_command": "true", "auto_resume": true});
    stage.job(&command, more).await;
    let sessions = || stage.host.tmux(&["list-sessions", "-F", "#{session_name}"]);
    assert!(wait_until(LIMIT, || sessions() == "seen\n").await);
    // Else tmux would end with the only session it has.
    stage
        .host
        .tmux(&["new-session", "-d", "-s", "other", "sleep 606.125"]);
    let dog = Dog::start(stage.home());
    assert!(wait_until(LIMIT, || last_look(stage.home()) > 0).await);
    let ends: [(&[&str], &str); 2] = [
        (&["kill-session", "-t", "=seen"], "other\n"),
        (&["kill-server"], ""),
    ];
    for (end, left) in ends {
        stage.host.tmux(end);
        assert!(wait_until(LIMIT, || sessions() == left).await);
        let before = last_look(stage.home());
        // Two looks later.
        let looked = || last_look(stage.home()) > before + 1500;
        assert!(wait_until(LIMIT, looked).await, "{}", dog.log());
        assert_eq!(stage.events(), Vec::<String>::new(), "{}", dog.log());
    }
    fs::write(&gate, "").unwrap();
    stage.told(&dog, &["completed"]).await;
    let told = events(stage.home()).remove(0);
    assert_eq!(told["payload"]["exit_code"], 6, "{told}");
    assert_eq!(told["payload"]["attempt"], 1, "{told}");
}
