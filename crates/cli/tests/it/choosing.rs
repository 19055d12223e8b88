//! GPUs of all vendors in the list, and `select_sandbox` with "auto".

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::wait::free_port;
use serde_json::{Value, json};

use crate::support::{entry, serve, serve_nothing, with};

/// A host with stand-in tools, and the folder that holds them.
struct Host {
    sshd: Sshd,
    _folder: tempfile::TempDir,
}

impl Host {
    fn with(tools: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        for (name, body) in tools {
            let path = folder.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let path = format!("{}:/usr/bin:/bin", folder.path().display());
        let sshd = Sshd::builder().session_environment("PATH", &path).start();
        Host {
            sshd,
            _folder: folder,
        }
    }

    /// NVIDIA GPUs: utilisation and used memory of each, and a process on the first.
    fn with_gpus(gpus: &[(u32, u32)], pid: Option<u32>) -> Self {
        let rows = gpus.iter().enumerate().map(|(index, (busy, used))| {
            format!("echo '{index}, GPU-{index}, Sample, {busy}, {used}, 80000'\n")
        });
        let rows: String = rows.collect();
        let process = pid.map_or_else(String::new, |pid| {
            format!("echo 'GPU-0, {pid}, /opt/train, 10'")
        });
        let body = format!("case $1 in *compute-apps*) {process} ;; *query-gpu*) {rows} ;; esac");
        Host::with(&[("nvidia-smi", &body)])
    }
}

/// Larger than any process id there is.
const NO_PROCESS: u32 = 4_194_305;

async fn select(client: &remote_sandbox_testkit::McpClient, arguments: Value) -> (bool, Value) {
    let reply = client.call_tool("select_sandbox", arguments).await;
    (reply.is_error, reply.json)
}

#[tokio::test]
async fn list_shows_gpus_of_every_vendor_and_whose_processes_hold_them() {
    let ours = std::process::id();
    let nvidia = Host::with_gpus(&[(5, 10), (0, 0)], Some(ours));
    let amd = Host::with(&[(
        "amd-smi",
        &format!(
            "case $1 in monitor) echo '[{{\"gpu\": 0, \"gfx\": {{\"value\": 7, \"unit\": \"%\"}}, \
            \"vram_used\": {{\"value\": 283, \"unit\": \"MB\"}}, \"vram_total\": {{\"value\": 196300, \
            \"unit\": \"MB\"}}}}]' ;; process) echo '[{{\"gpu\": 0, \"process_list\": [{{\"process_info\": \
            {{\"name\": \"rvs\", \"pid\": {NO_PROCESS}}}}}]}}]' ;; esac"
        ),
    )]);
    let ascend = Host::with(&[(
        "npu-smi",
        "echo '| 4   910B2  | OK | 98.1 32 0 / 0 |'\n\
        echo '| 0          | 0000:C1:00.0 | 0 0 / 0 3382 / 65536 |'\n\
        echo '| NPU Chip | Process id | Process name | Process memory(MB) |'\n\
        echo '| No running processes found in NPU 4 |'",
    )]);
    let client = serve(&[
        entry("nvidia", &nvidia.sshd),
        entry("amd", &amd.sshd),
        entry("ascend", &ascend.sshd),
    ])
    .await;
    let reply = client
        .call_tool("list_sandboxes", json!({"check_resources": true}))
        .await;
    let gpu = |host: usize, at: usize| &reply.json["sandboxes"][host]["resources"]["gpu"][at];
    let facts = |host: usize, at: usize| {
        let gpu = gpu(host, at);
        (
            gpu["vendor"].as_str().unwrap(),
            gpu["index"].as_u64().unwrap(),
            gpu["free"].as_bool().unwrap(),
        )
    };
    assert_eq!(facts(0, 0), ("nvidia", 0, true), "{}", reply.text);
    assert_eq!(facts(0, 1), ("nvidia", 1, true), "{}", reply.text);
    assert_eq!(facts(1, 0), ("amd", 0, false), "{}", reply.text);
    assert_eq!(facts(2, 0), ("ascend", 0, true), "{}", reply.text);
    let process = &gpu(0, 0)["processes"][0];
    assert_eq!(process["pid"], ours);
    assert_eq!(process["name"], "train");
    assert_eq!(process["ours"], true, "{}", reply.text);
    assert!(process["user"].is_string(), "{}", reply.text);
    let foreign = &gpu(1, 0)["processes"][0];
    assert_eq!(foreign["user"], Value::Null);
    assert!(foreign.get("ours").is_none());
}

#[tokio::test]
async fn auto_takes_the_idlest_and_says_why() {
    let busy = Host::with_gpus(&[(100, 70_000)], None);
    let idle = Host::with_gpus(&[(0, 0), (0, 70_000), (0, 5)], None);
    let dead = with(entry("dead", &busy.sshd), json!({"port": free_port()}));
    let broken = json!({"name": "broken", "host": "h", "password": "canary-secret-1"});
    let hosts = [
        entry("busy", &busy.sshd),
        dead,
        entry("idle", &idle.sshd),
        broken,
    ];
    let client = serve(&hosts).await;
    let (is_error, reply) = select(&client, json!({"sandbox_name": "auto"})).await;
    assert!(!is_error, "{reply}");
    assert_eq!(reply["active_sandbox"], "idle", "{reply}");
    assert_eq!(reply["status"], "selected");
    assert_eq!(reply["free_gpus"], 2, "{reply}");
    assert_eq!(
        reply["free_gpus_env"],
        json!({"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0,2"})
    );
    assert!((0.0..=1.0).contains(&reply["idle_score"].as_f64().unwrap()));
    let others: Vec<&str> = reply["others"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line.as_str().unwrap())
        .collect();
    assert_eq!(others.len(), 3, "{reply}");
    assert!(others[0].starts_with("busy: fits, idle_score "), "{reply}");
    assert!(
        others[1].starts_with("dead: ") && others[1].contains("refused"),
        "{reply}"
    );
    assert!(others[2].starts_with("broken: disabled: "), "{reply}");
    let run = client
        .call_tool("exec_bash", json!({"command": "true"}))
        .await;
    assert_eq!(run.json["sandbox"], "idle");
}

#[tokio::test]
async fn auto_takes_only_a_host_with_the_gpus_asked_for() {
    let held = Host::with_gpus(&[(0, 10)], Some(NO_PROCESS));
    let two = Host::with_gpus(&[(50, 5_000), (50, 5_000)], None);
    let none = Host::with(&[]);
    let hosts = [
        entry("held", &held.sshd),
        entry("none", &none.sshd),
        entry("two", &two.sshd),
    ];
    let client = serve(&hosts).await;
    let wish = json!({"sandbox_name": "auto", "min_free_gpus": 2});
    let (is_error, reply) = select(&client, wish).await;
    assert!(!is_error, "{reply}");
    assert_eq!(reply["active_sandbox"], "two");
    assert_eq!(reply["others"][0], "held: 0 of 1 GPUs free, 2 wanted");
    assert_eq!(reply["others"][1], "none: 0 of 0 GPUs free, 2 wanted");
    let wish = json!({"sandbox_name": "auto", "min_gpu_free_mb": "76000"});
    let (is_error, reply) = select(&client, wish).await;
    assert!(is_error, "{reply}");
    assert_eq!(reply["code"], "not_found");
    let error = reply["error"].as_str().unwrap();
    for reason in [
        "held: 0 of 1 GPUs free with 76000 MB free, 1 wanted",
        "none: 0 of 0",
        "two: 0 of 2",
    ] {
        assert!(error.contains(reason), "{error}");
    }
    let active = client.call_tool("get_active_sandbox", json!({})).await;
    assert_eq!(active.json["active_sandbox"], "two");
}

#[tokio::test]
async fn auto_names_a_bounded_number_of_reasons() {
    let host = Host::with(&[]);
    let broken = |n| json!({"name": format!("broken{n}"), "host": "h", "password": "p"});
    let mut all: Vec<Value> = (0..30).map(broken).collect();
    all.push(entry("box", &host.sshd));
    let client = serve(&all).await;
    let (is_error, reply) = select(&client, json!({"sandbox_name": "auto"})).await;
    assert!(!is_error, "{reply}");
    assert_eq!(reply["active_sandbox"], "box");
    let others = reply["others"].as_array().unwrap();
    assert_eq!(others.len(), 25);
    assert_eq!(others[24], "and 6 more");
    assert!(reply.to_string().len() < 10_000);
}

#[tokio::test]
async fn auto_asks_no_host_without_the_tag() {
    let host = Host::with(&[]);
    let client = serve(&[entry("plain", &host.sshd)]).await;
    let wish = json!({"sandbox_name": "auto", "tag": "gpu"});
    let (is_error, reply) = select(&client, wish).await;
    assert!(is_error);
    assert_eq!(reply["error"], "no sandbox fits: plain: has no tag `gpu`");
    assert_eq!(host.sshd.connection_count(), 0);
}

#[tokio::test]
async fn auto_takes_the_idlest_among_those_with_the_tag() {
    let (busy, idle) = (Host::with_gpus(&[(90, 9_000)], None), Host::with(&[]));
    let tagged = with(entry("busy", &busy.sshd), json!({"tags": ["gpu", "a100"]}));
    let client = serve(&[entry("idle", &idle.sshd), tagged]).await;
    let wish = json!({"sandbox_name": "auto", "tag": "gpu"});
    let (is_error, reply) = select(&client, wish).await;
    assert!(!is_error, "{reply}");
    assert_eq!(reply["active_sandbox"], "busy", "{reply}");
    assert_eq!(idle.sshd.connection_count(), 0);
    let list = client.call_tool("list_sandboxes", json!({})).await;
    assert_eq!(list.json["sandboxes"][1]["tags"], json!(["gpu", "a100"]));
}

#[tokio::test]
async fn wishes_are_refused_without_auto() {
    let host = Host::with(&[]);
    let client = serve(&[entry("box", &host.sshd)]).await;
    for wish in [
        json!({"min_free_gpus": 0}),
        json!({"min_gpu_free_mb": 1}),
        json!({"tag": "gpu"}),
    ] {
        let arguments = with(json!({"sandbox_name": "box"}), wish);
        let (is_error, reply) = select(&client, arguments).await;
        assert!(is_error);
        assert_eq!(reply["code"], "invalid_params", "{reply}");
    }
    let negative = json!({"sandbox_name": "auto", "min_free_gpus": -1});
    assert_eq!(select(&client, negative).await.1["code"], "invalid_params");
}

#[tokio::test]
async fn sandbox_named_auto_wins_over_the_word() {
    let host = Host::with(&[]);
    let client = serve(&[entry("box", &host.sshd), entry("auto", &host.sshd)]).await;
    let (is_error, reply) = select(&client, json!({"sandbox_name": "auto"})).await;
    assert!(!is_error);
    assert_eq!(reply["active_sandbox"], "auto");
    assert!(reply["note"].as_str().unwrap().contains("name"));
    let wish = json!({"sandbox_name": "auto", "min_free_gpus": 1});
    assert_eq!(select(&client, wish).await.1["code"], "invalid_params");
}

#[tokio::test]
async fn auto_says_how_to_configure_when_there_is_nothing() {
    let client = serve_nothing().await;
    let (is_error, reply) = select(&client, json!({"sandbox_name": "auto"})).await;
    assert!(is_error);
    assert_eq!(reply["code"], "not_configured");
}

/// f83: a tool that hangs and one that floods, on a real host.
#[tokio::test]
async fn f83_hanging_and_flooding_tools_make_gpus_unknown_and_the_host_not_free() {
    let stuck = Host::with(&[("nvidia-smi", "exec sleep 60")]);
    let flood = Host::with(&[("npu-smi", "exec yes '| 0 910B2 | OK | 1 2 0 / 0 |'")]);
    let client = serve(&[entry("stuck", &stuck.sshd), entry("flood", &flood.sshd)]).await;
    let begun = Instant::now();
    let wish = json!({"sandbox_name": "auto", "min_free_gpus": 1});
    let (is_error, reply) = select(&client, wish).await;
    assert!(
        begun.elapsed() < Duration::from_secs(14),
        "{:?}",
        begun.elapsed()
    );
    assert!(is_error);
    let error = reply["error"].as_str().unwrap();
    assert!(
        error.contains("stuck: 0 of 0 GPUs free, 1 wanted; nvidia-smi did not answer"),
        "{error}"
    );
    assert!(
        error.contains("flood: 0 of 0 GPUs free, 1 wanted; npu-smi printed more"),
        "{error}"
    );
}
