//! A client that was set up for the Python package of the same name needs only another command.
//!
//! `python_package.json` lists the tools of that package that exist here, with their parameters, defaults and result fields.
//! Those of syncs stand apart: called with their defaults, they would copy the folder that the tests run in.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use remote_sandbox_testkit::wait::{free_port, wait_until};
use remote_sandbox_testkit::{FaultProxy, McpClient, Sshd, process};
use serde_json::{Map, Value, json};

use crate::jobs::start_without_answer;
use crate::support::{
    builder, entry, entry_via, exec, exec_with, one, ready, serve, serve_nothing, with,
};

const LIMIT: Duration = Duration::from_secs(20);

fn package() -> Map<String, Value> {
    table("tools")
}

fn table(part: &str) -> Map<String, Value> {
    let table: Value = serde_json::from_str(include_str!("python_package.json")).unwrap();
    table[part].as_object().unwrap().clone()
}

fn parameters(tool: &Value) -> &Map<String, Value> {
    tool["parameters"].as_object().unwrap()
}

/// A server with one sandbox that offers every tool.
async fn everything() -> (Sshd, McpClient) {
    let sshd = Sshd::start();
    let server = builder(&[entry("box", &sshd)]).env("REMOTE_SANDBOX_EXPOSE_ADVANCED_TOOLS", "1");
    (sshd, ready(server.start()).await)
}

/// A value for a parameter that has no default.
fn sample(parameter: &str, watch: &Value) -> Value {
    match parameter {
        "watch_id" => watch.clone(),
        "tmux_session" => json!("some-session"),
        "log_file" => json!("~/some.log"),
        "command" => json!("true"),
        "sandbox_name" => json!("box"),
        "remote_path" => json!("/etc/passwd"),
        other => panic!("no sample for {other}"),
    }
}

/// All parameters, spelled out with the defaults of the package.
fn spelled_out(tool: &Value, watch: &Value) -> Map<String, Value> {
    let value = |name: &str, parameter: &Value| match (&parameter["required"], &parameter["sample"])
    {
        (Value::Bool(true), _) => sample(name, watch),
        (_, Value::Null) => parameter["default"].clone(),
        (_, given) => given.clone(),
    };
    let all = parameters(tool).iter();
    all.map(|(name, parameter)| (name.clone(), value(name, parameter)))
        .collect()
}

/// The number of a watch that has a checkpoint.
async fn some_watch(client: &McpClient) -> Value {
    let job = json!({"command": "true", "checkpoint_command": "echo 7", "session_name": "watched"});
    let job = client.call_tool("exec_bash_background", job).await.json;
    job["watch_id"].clone()
}

/// Null, empty text and nothing at all mean the same: not given.
fn meaning(default: Option<&Value>) -> Option<&Value> {
    default.filter(|value| !value.is_null() && **value != json!(""))
}

#[tokio::test]
async fn parameters_have_the_old_names_types_and_defaults() {
    let (_sshd, client) = everything().await;
    let list = client
        .request("tools/list", json!({}), LIMIT)
        .await
        .unwrap();
    for (name, old) in package().into_iter().chain(table("transfer_tools")) {
        let tools = list["tools"].as_array().unwrap();
        let new = tools.iter().find(|tool| tool["name"] == name.as_str());
        let schema = &new.unwrap_or_else(|| panic!("there is no {name}"))["inputSchema"];
        for (parameter, old) in parameters(&old) {
            let new = &schema["properties"][parameter];
            if new.is_null() {
                assert_is_taken_unlisted(&name, parameter, old);
                continue;
            }
            assert_eq!(new["type"], old["type"], "{name}.{parameter}");
            assert_eq!(
                meaning(new.get("default")),
                meaning(old.get("default")),
                "{name}.{parameter}"
            );
        }
        let required = parameters(&old)
            .iter()
            .filter(|(_, old)| old["required"] == true);
        let required: BTreeSet<&str> = required.map(|(parameter, _)| parameter.as_str()).collect();
        let now = schema["required"].as_array().into_iter().flatten();
        let now: BTreeSet<&str> = now.filter_map(Value::as_str).collect();
        assert_eq!(now, required, "{name}");
    }
}

/// A parameter that clients are not told of stands in the reference page, with its type and default.
fn assert_is_taken_unlisted(tool: &str, parameter: &str, old: &Value) {
    let page = remote_sandbox_server::mcp::tools_markdown();
    let section = page
        .split("\n## ")
        .find(|part| part.starts_with(&format!("`{tool}`")));
    let kind = old["type"].as_str().unwrap();
    let default = match &old["default"] {
        Value::Null => "-".to_owned(),
        default => format!("`{default}`"),
    };
    let row = format!("| `{parameter}` (not listed) | {kind} | {default} |");
    assert!(section.unwrap().contains(&row), "{tool}: there is no {row}");
}

#[tokio::test]
async fn every_parameter_is_taken_with_its_default_and_alone() {
    let (_sshd, client) = everything().await;
    let watch = some_watch(&client).await;
    for (name, tool) in package() {
        let all = spelled_out(&tool, &watch);
        let reply = client.call_tool(&name, Value::Object(all.clone())).await;
        assert!(!reply.is_error, "{name}: {}", reply.text);
        let needed = |parameter: &String| {
            let old = &parameters(&tool)[parameter];
            old["required"] == true || !old["sample"].is_null()
        };
        for given in all.keys() {
            let mut some = all.clone();
            some.retain(|parameter, _| parameter == given || needed(parameter));
            let reply = client.call_tool(&name, Value::Object(some)).await;
            assert!(!reply.is_error, "{name} with {given}: {}", reply.text);
        }
    }
}

#[tokio::test]
async fn numbers_and_flags_may_come_as_text() {
    let (_sshd, client) = everything().await;
    let watch = some_watch(&client).await;
    for (name, tool) in package() {
        let mut arguments = spelled_out(&tool, &watch);
        for value in arguments.values_mut() {
            if value.is_number() || value.is_boolean() {
                *value = json!(value.to_string());
            }
        }
        let reply = client.call_tool(&name, Value::Object(arguments)).await;
        assert!(!reply.is_error, "{name}: {}", reply.text);
    }
}

#[tokio::test]
async fn required_parameters_stay_required() {
    let (_sshd, client) = everything().await;
    for (name, tool) in package() {
        for (parameter, _) in parameters(&tool)
            .iter()
            .filter(|(_, old)| old["required"] == true)
        {
            let mut arguments = spelled_out(&tool, &json!(1));
            arguments.shift_remove(parameter);
            let reply = client.call_tool(&name, Value::Object(arguments)).await;
            assert!(reply.is_error, "{name} without {parameter}");
            assert_eq!(reply.json["code"], "invalid_params");
            assert!(
                reply.json["error"].as_str().unwrap().contains(parameter),
                "{}",
                reply.text
            );
        }
    }
}

/// The names of all fields of a value, those inside lists without an index.
fn fields(value: &Value, prefix: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let name = format!("{prefix}{name}");
                fields(member, &format!("{name}."), found);
                found.insert(name);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| fields(item, prefix, found)),
        _ => {}
    }
}

pub(crate) fn assert_produced(tool: &str, replies: &[Value]) {
    let mut found = BTreeSet::new();
    for reply in replies {
        fields(reply, "", &mut found);
    }
    for field in package()[tool]["results"].as_array().unwrap() {
        let field = field.as_str().unwrap();
        assert!(
            found.contains(field),
            "{tool} never gave `{field}`: {replies:#?}"
        );
    }
}

#[tokio::test]
async fn exec_bash_gives_every_old_field() {
    let (sshd, client) = one().await;
    let plain = exec(&client, "echo out; echo err >&2; exit 3").await.json;
    assert_eq!(
        (&plain["exit_code"], &plain["stdout"], &plain["stderr"]),
        (&json!(3), &json!("out\n"), &json!("err\n"))
    );
    let late = exec_with(&client, "sleep 30", json!({"timeout_s": 1}))
        .await
        .json;
    assert_eq!(
        (&late["timed_out"], &late["exit_code"]),
        (&json!(true), &json!(124))
    );
    let lost = client
        .start_call("exec_bash", json!({"command": "sleep 9276.75"}))
        .await;
    let running = || process::with_command_line("sleep 9276.75");
    assert!(wait_until(LIMIT, || !running().is_empty()).await);
    sshd.kill_sessions();
    let lost = client.wait_tool_reply(lost, LIMIT).await.unwrap().json;
    process::kill_and_wait(&running());
    assert_eq!(lost["connection_error"], true);
    let empty = exec(&client, " ").await.json;
    assert!(empty["error"].as_str().unwrap().contains("command"));
    assert_produced("exec_bash", &[plain, late, lost, empty]);
}

/// An sshd whose host seems to have two GPUs, and the folder of the program that says so.
fn sshd_with_gpus() -> (Sshd, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("nvidia-smi");
    let script = "#!/bin/sh\ncase $1 in *compute-apps*) exit 0 ;; esac\n\
        echo '0, GPU-0, Sample A, 25, 1024, 4096'\necho '1, GPU-1, Sample B, 0, 0, 4096'\n";
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    (
        Sshd::builder().session_environment("PATH", &path).start(),
        folder,
    )
}

async fn list(client: &McpClient) -> Value {
    client
        .call_tool("list_sandboxes", json!({"check_resources": true}))
        .await
        .json
}

#[tokio::test]
async fn list_sandboxes_gives_every_old_field() {
    let (sshd, _folder) = sshd_with_gpus();
    let dead = with(entry("dead", &sshd), json!({"port": free_port()}));
    let mute = Sshd::builder()
        .extra_config("ForceCommand /bin/echo nothing")
        .start();
    let client = serve(&[entry("box", &sshd), dead, entry("mute", &mute)]).await;
    let full = list(&client).await;
    let resources = &full["sandboxes"][0]["resources"];
    assert_eq!(resources["gpu"][0]["util_pct"], 25.0, "{full:#}");
    let nothing = list(&serve_nothing().await).await;
    assert_eq!(nothing["active_sandbox"], Value::Null);
    assert_produced("list_sandboxes", &[full, nothing]);
}

#[tokio::test]
async fn choosing_a_sandbox_gives_every_old_field() {
    let (mut sshd, client) = one().await;
    let mut selected = Vec::new();
    for name in ["box", "zzz"] {
        let arguments = json!({"sandbox_name": name});
        selected.push(client.call_tool("select_sandbox", arguments).await.json);
    }
    assert_produced("select_sandbox", &selected);
    let alive = client.call_tool("get_active_sandbox", json!({})).await.json;
    sshd.stop();
    let dead = client.call_tool("get_active_sandbox", json!({})).await.json;
    let empty = serve_nothing().await;
    let none = empty.call_tool("get_active_sandbox", json!({})).await.json;
    assert_eq!(none["active_sandbox"], Value::Null);
    assert_produced("get_active_sandbox", &[alive, dead, none]);
}

#[tokio::test]
async fn file_tools_give_every_old_field() {
    let (sshd, client) = one().await;
    let home = sshd.dir().join("home");
    std::fs::create_dir(home.join("d")).unwrap();
    std::fs::write(home.join("d/f"), "content").unwrap();
    let call = |tool, path: &'static str| client.call_tool(tool, json!({"remote_path": path}));
    let list = call("list_remote_files", "d").await.json;
    assert_eq!(list["entries"][0]["path"], "d/f");
    assert!(list["entries"][0]["mtime"].is_i64());
    let missing = call("list_remote_files", "gone").await.json;
    assert_produced("list_remote_files", &[list, missing]);
    let read = call("read_remote_file", "d/f").await.json;
    assert_eq!(
        (&read["content"], &read["size"], &read["truncated"]),
        (&json!("content"), &json!(7), &json!(false))
    );
    let missing = call("read_remote_file", "gone").await.json;
    assert_produced("read_remote_file", &[read, missing]);
}

#[tokio::test]
async fn background_tools_give_every_old_field() {
    let mut sshd = Sshd::start();
    let proxy = FaultProxy::start(sshd.port()).await;
    let client = serve(&[entry_via("box", &sshd, proxy.port())]).await;
    let marker = sshd.dir().join("up");
    let command = format!("touch {}; exit 3", marker.display());
    let arguments = json!({ "command": command });
    let started = start_without_answer(&client, &proxy, arguments, &marker).await;
    let started = started.json;
    let refused = json!({"command": "true", "cwd": "/no/such/place"});
    let refused = client.call_tool("exec_bash_background", refused).await.json;
    let (session, watch) = (started["tmux_session"].clone(), started["watch_id"].clone());
    assert_produced("exec_bash_background", &[started, refused]);
    let check = |arguments| client.call_tool("check_background_task", arguments);
    let mut ended = check(json!({"watch_id": watch, "wait_s": 10})).await.json;
    while ended["running"] == true {
        ended = check(json!({"watch_id": watch, "wait_s": 10})).await.json;
    }
    assert_eq!(
        (&ended["exit_code"], &ended["running"]),
        (&json!(3), &json!(false))
    );
    sshd.stop();
    proxy.refuse().await;
    proxy.drop_all();
    let lost = check(json!({"tmux_session": "unknown-one"})).await.json;
    let dark = check(json!({ "tmux_session": session })).await.json;
    assert_produced("check_background_task", &[ended, lost, dark]);
}
