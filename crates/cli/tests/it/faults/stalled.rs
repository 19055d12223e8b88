//! A link that stalls while a command runs.

use std::time::Duration;

use remote_sandbox_testkit::proxy::FaultProxy;
use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::wait::wait_until;
use serde_json::json;

use super::link::assert_link_lost;
use crate::support::{entry_via, exec, serve, with};

#[tokio::test]
async fn weakness_5_command_on_a_stalled_link_runs_once_and_is_not_told_as_a_success() {
    let limit = Duration::from_secs(30);
    let sshd = Sshd::start();
    let proxy = FaultProxy::start(sshd.port()).await;
    let limits = json!({"keepalive_s": 1, "keepalive_max": 2, "connect_timeout_s": 2});
    let client = serve(&[with(entry_via("box", &sshd, proxy.port()), limits)]).await;
    assert_eq!(exec(&client, "echo up").await.json["stdout"], "up\n");
    let (runs, ended) = (sshd.dir().join("runs"), sshd.dir().join("ended"));
    let command = format!(
        "echo x >>{}; sleep 1.5; echo y >>{}; echo done",
        runs.display(),
        ended.display()
    );
    let call = client
        .start_call("exec_bash", json!({ "command": command }))
        .await;
    assert!(wait_until(limit, || runs.exists()).await);
    proxy.freeze_all();
    let lost = client.wait_tool_reply(call, limit).await.unwrap();
    assert_link_lost(&lost);
    proxy.thaw();
    let back = || async { exec(&client, "echo back").await.json["stdout"] == "back\n" };
    assert!(remote_sandbox_testkit::wait_until_async(limit, back).await);
    assert!(wait_until(limit, || ended.exists()).await);
    // What would be sent again comes with the link.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(std::fs::read_to_string(&runs).unwrap(), "x\n");
    assert_eq!(std::fs::read_to_string(&ended).unwrap(), "y\n");
}
