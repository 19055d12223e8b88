//! Secrets stay where they belong: not in logs, files, replies, command lines or the environment of others.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use remote_sandbox_testkit::evil_ssh::EvilSsh;
use remote_sandbox_testkit::keys::{ClientKey, KeyFormat, KeyType};
use remote_sandbox_testkit::mcp::{McpClient, McpClientBuilder};
use remote_sandbox_testkit::process;
use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::wait::{skip, wait_until};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    builder, entry, exec, exec_with, files_below, one, program, ready, serve, state, with,
};

/// The last letters of each canary tell where it was put.
const CANARY: &str = "canary7Zq";

/// A server started through another program, as `setsid` or `strace` would.
fn wrapped(wrapper: &str, arguments: &[&str], sandboxes: &[Value]) -> McpClientBuilder {
    McpClient::builder(wrapper)
        .args(arguments)
        .arg(program())
        .env(
            "REMOTE_SANDBOX_LIST",
            Value::from(sandboxes.to_vec()).to_string(),
        )
}

/// The widest access bits ever seen of each file and folder, watched without a pause.
#[derive(Default)]
struct Watch {
    seen: Arc<Mutex<BTreeMap<PathBuf, u32>>>,
    stop: Arc<AtomicBool>,
}

impl Watch {
    fn over(folder: &Path) -> Self {
        let watch = Watch::default();
        let (seen, stop) = (Arc::clone(&watch.seen), Arc::clone(&watch.stop));
        let folder = folder.to_owned();
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                note_modes(&folder, &mut seen.lock().unwrap());
            }
        });
        watch
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn note_modes(folder: &Path, seen: &mut BTreeMap<PathBuf, u32>) {
    for found in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = found.path();
        if let Ok(facts) = fs::symlink_metadata(&path) {
            *seen.entry(path.clone()).or_default() |= facts.permissions().mode() & 0o7777;
            if facts.is_dir() {
                note_modes(&path, seen);
            }
        }
    }
}

/// Makes the server write every kind of state file it has.
async fn write_all_state(client: &McpClient) {
    let long = json!({"max_output_chars": 1000});
    let reply = exec_with(client, "seq 1 5000", long).await;
    assert_eq!(reply.json["exit_code"], 0, "{}", reply.text);
    let reply = exec_with(client, "echo begun; sleep 0.7", json!({"wait_s": 0.2})).await;
    let more = json!({"task_id": reply.json["task_id"], "wait_s": 10});
    client.call_tool("check_background_task", more).await;
}

#[tokio::test]
async fn f24_state_is_private_from_the_first_moment_under_umask_zero() {
    let sshd = Sshd::start();
    let home = TempDir::new().unwrap();
    let watch = Watch::over(home.path());
    let script = "umask 000; exec \"$0\" \"$@\"";
    let server = wrapped("/bin/sh", &["-c", script], &[entry("box", &sshd)]);
    let client = ready(server.home(home.path()).start()).await;
    write_all_state(&client).await;
    let all = ["known_hosts", "audit.jsonl"];
    let written = || {
        let seen = watch.seen.lock().unwrap();
        all.iter()
            .all(|name| seen.contains_key(&state(&client).join(name)))
    };
    assert!(wait_until(Duration::from_secs(5), written).await);
    let mut now = BTreeMap::new();
    note_modes(home.path(), &mut now);
    assert!(now.len() > 4, "{now:?}");
    let seen = watch.seen.lock().unwrap().clone();
    for (path, mode) in seen.iter().chain(&now) {
        assert_eq!(mode & 0o077, 0, "{} was {mode:04o}", path.display());
    }
}

#[tokio::test]
async fn f24_files_are_made_private_and_never_made_so_afterwards() {
    if !Path::new("/usr/bin/strace").exists() {
        skip("needs strace: every creation of a file is looked at");
        return;
    }
    let sshd = Sshd::start();
    let folder = TempDir::new().unwrap();
    let trace = folder.path().join("trace");
    let calls = "trace=open,openat,openat2,creat,mkdir,mkdirat,chmod,fchmod,fchmodat";
    let arguments = ["-f", "-qq", "-e", calls, "-o", trace.to_str().unwrap()];
    let client = ready(wrapped("strace", &arguments, &[entry("box", &sshd)]).start()).await;
    write_all_state(&client).await;
    client.close_stdin().await;
    assert!(client.wait_exit(Duration::from_secs(10)).await.is_some());
    let text = fs::read_to_string(&trace).unwrap();
    let home = client.home().display().to_string();
    let ours: Vec<&str> = text.lines().filter(|line| line.contains(&home)).collect();
    let made = |what: &str| ours.iter().filter(|line| line.contains(what)).count();
    assert!(made("O_CREAT") >= 3, "{ours:#?}");
    assert!(made("mkdir") >= 1, "{ours:#?}");
    for line in ours {
        assert!(!line.contains("chmod"), "{line}");
        assert!(
            !line.contains("O_CREAT") || line.contains(", 0600)"),
            "{line}"
        );
        assert!(
            !line.contains("mkdir") || line.contains(", 0700)"),
            "{line}"
        );
    }
}

/// The secrets of one server: a canary in every place a secret can come from.
struct Canaries {
    sandboxes: Vec<Value>,
    variables: Vec<(&'static str, String)>,
    /// What a program that prints a secret was given.
    spied: PathBuf,
    _servers: Vec<EvilSsh>,
}

fn canary(place: &str) -> String {
    format!("{CANARY}-{place}")
}

/// An entry for a hostile server.
fn evil(name: &str, port: u16, more: Value) -> Value {
    let plain = json!({"name": name, "host": "127.0.0.1", "port": port, "user": "u"});
    with(plain, more)
}

fn entries(
    sshd: &Sshd,
    key: &ClientKey,
    (refusing, asking): (u16, u16),
    spied: &Path,
) -> Vec<Value> {
    // The printed secret is put together here, so that it is in no command line to begin with.
    let script = "{ tr '\\0' '\\n' < /proc/$$/environ; tr '\\0' '\\n' < /proc/$PPID/cmdline; } >> \"$0\"; \
                  printf '%s-%s' canary7Zq printed";
    let command = json!(["sh", "-c", script, spied]);
    vec![
        with(
            entry("good", sshd),
            json!({"password": canary("beside-key")}),
        ),
        evil(
            "password",
            refusing,
            json!({"password": canary("password")}),
        ),
        evil(
            "variable",
            refusing,
            json!({"password_env": "BOX_PASSWORD"}),
        ),
        evil("program", refusing, json!({"password_command": command})),
        evil("asking", asking, json!({"password": canary("asked")})),
        evil(
            "key",
            refusing,
            json!({"key_file": key.private_path(), "key_passphrase": canary("passphrase")}),
        ),
        evil(
            "locked",
            refusing,
            json!({"key_file": key.private_path(), "key_passphrase": canary("wrong")}),
        ),
        evil(
            "failing",
            refusing,
            json!({"password_command": ["false", canary("argument")]}),
        ),
        json!({"name": "broken", "host": "h", "password": canary("broken"), "port": canary("port")}),
        json!({"name": "twice", "host": "h", "user": "u", "password": canary("one"), "password_env": canary("two")}),
    ]
}

async fn canaries(folder: &Path, sshd: &Sshd) -> Canaries {
    let spied = folder.join("spied");
    let key = ClientKey::generate(
        folder,
        "id",
        KeyType::Ed25519,
        KeyFormat::OpenSsh,
        Some(&canary("passphrase")),
    )
    .unwrap();
    let refusing = EvilSsh::builder().reject_all().start().await;
    let asking = EvilSsh::builder()
        .methods(&[russh::MethodKind::KeyboardInteractive])
        .prompts(&[("Password: ", false)])
        .prompts(&[("Code: ", false)])
        .start()
        .await;
    let sandboxes = entries(sshd, &key, (refusing.port(), asking.port()), &spied);
    Canaries {
        sandboxes,
        variables: vec![("BOX_PASSWORD", canary("variable"))],
        spied,
        _servers: vec![refusing, asking],
    }
}

async fn make_all_calls(client: &McpClient, sandboxes: &[Value]) {
    for style in [json!({}), json!({"check_resources": true})] {
        client.call_tool("list_sandboxes", style).await;
    }
    for sandbox in sandboxes {
        let named = json!({"command": "true", "sandbox_name": sandbox["name"]});
        client.call_tool("exec_bash", named).await;
        let select = json!({"sandbox_name": sandbox["name"]});
        client.call_tool("select_sandbox", select).await;
        client.call_tool("get_active_sandbox", json!({})).await;
    }
    for place in [
        "beside-key",
        "password",
        "variable",
        "printed",
        "asked",
        "broken",
    ] {
        let said = format!("echo {0}; echo {0} >&2; exit 1", canary(place));
        let named = json!({"command": said, "sandbox_name": "good", "cwd": "/"});
        client.call_tool("exec_bash", named).await;
    }
    let wrong = json!({"command": 7, canary("password"): true});
    let _ = client
        .try_call_tool("exec_bash", wrong, Duration::from_secs(10))
        .await;
}

fn assert_no_canary(place: &str, text: &str) {
    let lines: Vec<&str> = text.lines().filter(|line| line.contains(CANARY)).collect();
    assert!(lines.is_empty(), "{place}: {lines:#?}");
}

#[tokio::test]
async fn f25_no_secret_is_in_logs_files_replies_or_processes() {
    let sshd = Sshd::start();
    let folder = TempDir::new().unwrap();
    let canaries = canaries(folder.path(), &sshd).await;
    let mut server = builder(&canaries.sandboxes)
        .arg("-vv")
        .env("RUST_LOG", "trace");
    for (name, value) in &canaries.variables {
        server = server.env(*name, value);
    }
    let client = ready(server.start()).await;
    make_all_calls(&client, &canaries.sandboxes).await;
    let running = json!({"command": "sleep 9173.25", "sandbox_name": "good", "wait_s": 0.2});
    client.call_tool("exec_bash", running).await;

    let spied = fs::read_to_string(&canaries.spied).unwrap();
    assert!(spied.contains("PATH="), "the program ran: {spied}");
    assert_no_canary("what a program is given", &spied);
    let mut looked_at = 0;
    for pid in process::descendants(client.pid())
        .into_iter()
        .chain(sshd.command_pids())
    {
        looked_at += 1;
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        assert_no_canary("environment", &String::from_utf8_lossy(&environment));
        let line = process::command_line(pid).unwrap_or_default();
        assert_no_canary("command line", &line);
    }
    assert!(looked_at > 0);
    let own = process::command_line(client.pid()).unwrap();
    assert_no_canary("own command line", &own);
    for (path, content) in files_below(client.home()) {
        assert_no_canary(
            &path.display().to_string(),
            &String::from_utf8_lossy(&content),
        );
    }
    assert!(state(&client).join("audit.jsonl").exists());
    // Parameters the client itself sent may come back in a refusal of the protocol, results may not.
    assert_no_canary("replies", &client.stdout_lines().join("\n"));
    client.close_stdin().await;
    client.wait_exit(Duration::from_secs(10)).await;
    let log = client.stderr();
    assert!(!log.is_empty(), "-vv says something");
    assert_no_canary("log", &log);
}

#[tokio::test]
async fn f25_configuration_that_cannot_be_read_shows_no_secret() {
    let list = format!("[{{\"name\": \"x\", \"password\": \"{}\"", canary("cut"));
    let server = McpClient::builder(program())
        .arg("-vv")
        .env("REMOTE_SANDBOX_LIST", list);
    let client = ready(server.start()).await;
    let reply = client.call_tool("list_sandboxes", json!({})).await;
    assert!(reply.text.contains("REMOTE_SANDBOX_LIST"), "{}", reply.text);
    assert_no_canary("reply", &reply.text);
    assert_no_canary("log", &client.stderr());
}

/// A server whose only sandbox has a password beside its key.
async fn with_known_secret() -> (Sshd, McpClient, String) {
    let sshd = Sshd::start();
    let secret = canary("printed by the host");
    let more = json!({"password": secret});
    let client = serve(&[with(entry("box", &sshd), more)]).await;
    (sshd, client, secret)
}

#[tokio::test]
async fn f26_secret_that_the_command_prints_is_masked_everywhere() {
    let (_sshd, client, secret) = with_known_secret().await;
    let command = format!("echo 'a {secret} b'; echo '{secret}' >&2; pwd");
    let reply = exec(&client, &command).await;
    assert_eq!(reply.json["exit_code"], 0, "{}", reply.text);
    let stdout = reply.json["stdout"].as_str().unwrap();
    assert!(stdout.starts_with("a [masked] b\n"), "{stdout}");
    assert_eq!(reply.json["stderr"], "[masked]\n");
    for (path, content) in files_below(client.home()) {
        assert_no_canary(
            &path.display().to_string(),
            &String::from_utf8_lossy(&content),
        );
    }
    assert_no_canary("protocol", &client.stdout_lines().join("\n"));
    assert_no_canary("log", &client.stderr());
}

#[tokio::test]
async fn f26_secret_that_comes_in_pieces_is_masked() {
    let (_sshd, client, secret) = with_known_secret().await;
    let (first, second) = secret.split_at(12);
    // From files, so that the halves are not in the command that the records keep.
    let folder = TempDir::new().unwrap();
    let half = |name: &str, text: String| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (one, two) = (
        half("1", format!("x{first}")),
        half("2", format!("{second}y")),
    );
    let command = format!("cat {one}; sleep 0.4; cat {two}; sleep 0.3; echo; exit 3");
    let reply = exec_with(&client, &command, json!({"wait_s": 0.2})).await;
    assert_eq!(reply.json["status"], "running", "{}", reply.text);
    let mut output = reply.json["stdout"].as_str().unwrap().to_owned();
    let mut next = reply.json["next_byte"].clone();
    let mut status = Value::Null;
    while status != "exited" {
        let more = json!({"task_id": reply.json["task_id"], "since_byte": next, "wait_s": 5});
        let piece = client.call_tool("check_background_task", more).await;
        assert!(!piece.is_error, "{}", piece.text);
        output.push_str(piece.json["log_tail"].as_str().unwrap_or_default());
        next = piece.json["next_byte"].clone();
        status = piece.json["status"].clone();
    }
    assert_eq!(output, "x[masked]y\n");
    assert_no_canary("protocol", &client.stdout_lines().join("\n"));
    let spooled = files_below(&state(&client));
    assert!(spooled.len() > 2);
    for (path, content) in spooled {
        let content = String::from_utf8_lossy(&content).into_owned();
        assert_no_canary(&path.display().to_string(), &content);
        assert!(
            !content.contains(&format!("x{first}")),
            "{}",
            path.display()
        );
    }
}

#[tokio::test]
async fn f26_long_output_full_of_secrets_is_masked_in_both_halves() {
    let (_sshd, client, secret) = with_known_secret().await;
    let command = format!("for n in $(seq 1 3000); do echo \"$n {secret}\"; done");
    let reply = exec_with(&client, &command, json!({"max_output_chars": 2000})).await;
    assert_eq!(reply.json["truncated"], true, "{}", reply.text);
    let stdout = reply.json["stdout"].as_str().unwrap();
    assert!(stdout.starts_with("1 [masked]\n") && stdout.ends_with("3000 [masked]\n"));
    let more = json!({"task_id": reply.json["task_id"], "since_byte": 0});
    let piece = client.call_tool("check_background_task", more).await;
    assert!(piece.text.contains("[masked]"), "{}", piece.text);
    assert_no_canary("protocol", &client.stdout_lines().join("\n"));
}

#[tokio::test]
async fn f26_ordinary_output_is_not_touched() {
    let (_sshd, client) = one().await;
    let reply = exec(&client, "echo password hunter2 secret").await;
    assert_eq!(reply.json["stdout"], "password hunter2 secret\n");
}
