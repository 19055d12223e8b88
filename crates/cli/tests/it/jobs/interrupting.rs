//! Commands whose effect is not taken back when somebody presses Ctrl-C, and jobs of a host that has another name now.

use std::time::Duration;

use remote_sandbox_testkit::wait::wait_until;
use remote_sandbox_testkit::{FaultProxy, process};
use rustix::process::Signal;
use serde_json::json;

use super::beside::Beside;
use super::command_line::Person;
use super::{Ends, Host, LIMIT};
use crate::support::{builder, entry_via, ready};

fn start_words(command: &str) -> [&str; 6] {
    ["job", "start", "box", "--no-watch", "--", command]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_that_is_interrupted_is_waited_for_and_its_result_told() {
    let _ends = Ends("sleep 67.125");
    let person = Person::new();
    let proxy = FaultProxy::start(person.host.sshd.port()).await;
    proxy.freeze_all();
    let words = start_words("sleep 67.125");
    let mut start = Beside::start(person.command_via(proxy.port(), &words));
    assert!(wait_until(LIMIT, || person.only_job().is_some()).await);
    process::signal(start.pid(), Signal::INT);
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(start.runs(), "the start is under way");
    proxy.thaw();
    let output = start.end().await;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{errors}");
    assert!(errors.contains("the start is under way"), "{errors}");
    let id = person.only_job().unwrap();
    assert!(errors.contains(&format!("job stop {id}")), "{errors}");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.starts_with(&format!("{id}\nlog: ")), "{shown}");
    assert!(person.says(&["job", "stop", &id]).contains("stopped"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_that_is_interrupted_twice_is_left_at_once() {
    let _ends = Ends("sleep 67.375");
    let person = Person::new();
    let proxy = FaultProxy::start(person.host.sshd.port()).await;
    proxy.freeze_all();
    let words = start_words("sleep 67.375");
    let mut start = Beside::start(person.command_via(proxy.port(), &words));
    assert!(wait_until(LIMIT, || person.only_job().is_some()).await);
    process::signal(start.pid(), Signal::INT);
    tokio::time::sleep(Duration::from_millis(500)).await;
    process::signal(start.pid(), Signal::INT);
    let gone = wait_until(Duration::from_secs(3), || !start.runs()).await;
    assert!(gone, "it waits for a link that is frozen");
    let output = start.end().await;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{errors}");
    assert!(errors.contains("`remote-sandbox-mcp jobs`"), "{errors}");
}

#[tokio::test]
async fn job_of_a_host_that_has_another_name_now_is_not_forgotten() {
    let person = Person::new();
    let other = Host::start();
    let job = person.json(&[
        "job",
        "start",
        "box",
        "--no-watch",
        "--json",
        "--",
        "exit 3",
    ]);
    let id = job["task_id"].as_str().unwrap();
    let ended = || person.says(&["job", "show", id]).contains("exited 3");
    assert!(wait_until(LIMIT, ended).await);
    let folder = person.host.home().join(".remote-sandbox-mcp/jobs").join(id);
    let prune = person
        .command_on(&other, &["job", "prune"])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&prune.stdout);
    let errors = String::from_utf8_lossy(&prune.stderr);
    assert_eq!(told, "0 jobs forgotten\n", "{errors}");
    let reason = "1 jobs of box stay: sandbox `box` is";
    assert!(errors.contains(reason), "{errors}");
    assert!(folder.exists() && person.only_job().as_deref() == Some(id));
    assert_eq!(person.says(&["job", "prune"]), "1 jobs forgotten\n");
    assert!(!folder.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_of_no_lines_show_nothing_of_the_past() {
    let _ends = Ends("sleep 67.625");
    let person = Person::new();
    let gate = person.host.home().join("gate");
    let command = "echo past; until [ -e gate ]; do sleep 0.2; done; echo future";
    let job = person.start(command);
    let id = job["task_id"].as_str().unwrap();
    let has_past = || person.says(&["job", "logs", id]) == "past\n";
    assert!(wait_until(LIMIT, has_past).await);
    assert_eq!(person.says(&["job", "logs", "-n", "0", id]), "");
    let mut follow = Beside::start(person.command(&["job", "logs", "-n", "0", "-f", id]));
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(follow.runs());
    std::fs::write(gate, "").unwrap();
    let followed = follow.end().await;
    assert_eq!(
        String::from_utf8_lossy(&followed.stdout),
        "future\nEXIT_CODE=0\n"
    );
}

#[tokio::test]
async fn names_and_bounds_of_a_job_can_be_given_on_the_command_line() {
    let person = Person::new();
    let words = [
        "job",
        "start",
        "box",
        "--run-id",
        "r-7",
        "--metadata-json",
        "{\"epoch\":3}",
        "--max-log-bytes",
        "1048576",
        "--json",
        "--",
        "true",
    ];
    let job = person.json(&words);
    let number = job["watch_id"].to_string();
    let watch = person.json(&["watch", "show", &number, "--json"]);
    assert_eq!(watch["watch"]["run_id"], "r-7", "{watch}");
    assert!(watch["watch"]["metadata"]["epoch"] == 3, "{watch}");
    for wrong in [["--metadata-json", "["], ["--max-log-bytes", "5"]] {
        let words = ["job", "start", "box", wrong[0], wrong[1], "--", "true"];
        let refused = person.run(&words);
        let errors = String::from_utf8_lossy(&refused.stderr);
        assert!(
            !refused.status.success() && errors.contains(wrong[0]),
            "{errors}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_of_a_cancelled_call_is_carried_out_and_its_job_listed() {
    let _ends = Ends("sleep 67.875");
    let host = Host::start();
    let proxy = FaultProxy::start(host.sshd.port()).await;
    let server = builder(&[entry_via("box", &host.sshd, proxy.port())]);
    let server = server.env("REMOTE_SANDBOX_EXPOSE_ADVANCED_TOOLS", "1");
    let client = ready(server.start()).await;
    proxy.freeze_all();
    let order = json!({"command": "sleep 67.875", "watch": false});
    let call = client.start_call("exec_bash_background", order).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    client.cancel(call).await;
    proxy.thaw();
    let runs = || !process::with_command_line("sleep 67.875").is_empty();
    assert!(wait_until(LIMIT, runs).await);
    let list = client.call_tool("list_background_tasks", json!({})).await;
    let task = &list.json["tasks"][0];
    assert_eq!(task["status"], "running", "{}", list.text);
    let stop = json!({ "task_id": task["task_id"] });
    let stopped = client.call_tool("stop_background_task", stop).await;
    assert_eq!(stopped.json["status"], "stopped", "{}", stopped.text);
}
