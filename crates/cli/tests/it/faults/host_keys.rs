//! Who the host is: checked before anything is offered to it, recorded once, never guessed.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use remote_sandbox_testkit::evil_ssh::EvilSsh;
use remote_sandbox_testkit::keys::{ClientKey, KeyFormat, KeyType};
use remote_sandbox_testkit::mcp::{McpClient, ToolReply};
use remote_sandbox_testkit::process;
use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::wait::wait_until;
use rstest::rstest;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{builder, entry, exec, program, ready, serve, state, with};

/// Offered to no host whose key is refused.
const PASSWORD: &str = "canary-host-keys-password";

/// An entry for a hostile server that has a key and a password to lose.
fn evil_entry(port: u16, key: &ClientKey) -> Value {
    json!({
        "name": "box",
        "host": "127.0.0.1",
        "port": port,
        "user": "somebody",
        "key_file": key.private_path(),
        "password": PASSWORD,
    })
}

/// Where the server records host keys.
fn own_file(client: &McpClient) -> PathBuf {
    state(client).join("known_hosts")
}

/// Ends a hostile server and waits until its port is free.
async fn end(evil: EvilSsh) {
    let port = evil.port();
    drop(evil);
    let free = || TcpListener::bind(("127.0.0.1", port)).is_ok();
    assert!(wait_until(Duration::from_secs(5), free).await);
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// The fingerprint as OpenSSH prints it, for a key `algorithm base64`.
fn fingerprint(folder: &Path, key: &str) -> String {
    let file = folder.join("fingerprint.pub");
    fs::write(&file, format!("{key}\n")).unwrap();
    let output = Command::new("ssh-keygen").arg("-lf").arg(&file).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    text.split(' ').nth(1).expect("a fingerprint").to_owned()
}

fn assert_refused(reply: &ToolReply, code: &str) {
    assert!(reply.is_error, "{}", reply.text);
    assert_eq!(reply.json["code"], code, "{}", reply.text);
    assert!(reply.json.get("retry").is_none(), "{}", reply.text);
    assert!(!reply.text.contains(PASSWORD), "{}", reply.text);
}

#[tokio::test]
async fn f17_changed_host_key_is_refused_and_nothing_is_offered() {
    let folder = TempDir::new().unwrap();
    let key = ClientKey::ed25519(folder.path(), "id");
    let first = EvilSsh::builder().start().await;
    let (port, old) = (first.port(), first.host_public_key().to_owned());
    let client = serve(&[evil_entry(port, &key)]).await;
    exec(&client, "true").await;
    assert!(!first.offers().is_empty(), "the first visit logs in");
    end(first).await;
    let second = EvilSsh::builder().port(port).start().await;
    let home = client.home().to_owned();
    let again = ready(builder(&[evil_entry(port, &key)]).home(&home).start()).await;
    let reply = exec(&again, "true").await;
    assert_refused(&reply, "host_key_changed");
    let text = reply.json["error"].as_str().unwrap();
    let recorded = own_file(&again);
    for needed in [
        "box",
        &format!("[127.0.0.1]:{port}"),
        &fingerprint(folder.path(), &old),
        &fingerprint(folder.path(), second.host_public_key()),
        &format!("{} line 1", recorded.display()),
    ] {
        assert!(text.contains(needed), "no {needed} in {text}");
    }
    assert!(second.connections() >= 1);
    assert_eq!(second.offers(), []);
    assert_eq!(second.channels(), 0);
    let list = again.call_tool("list_sandboxes", json!({})).await;
    assert_eq!(list.json["sandboxes"][0]["code"], "host_key_changed");
    assert_eq!(second.offers(), []);
    assert_eq!(fs::read_to_string(&recorded).unwrap().lines().count(), 1);
}

#[tokio::test]
async fn f17_changed_key_of_a_real_sshd_is_noticed_by_the_running_server() {
    let mut sshd = Sshd::start();
    let client = serve(&[entry("box", &sshd)]).await;
    assert_eq!(exec(&client, "echo in").await.json["stdout"], "in\n");
    sshd.restart_with_new_host_key();
    let accepted = sshd.accepted_auth_count();
    let begun = Instant::now();
    loop {
        let reply = exec(&client, "true").await;
        // The loss of the old connection may be told first.
        if reply.json["code"] != "link_lost" {
            assert_refused(&reply, "host_key_changed");
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    assert_eq!(sshd.accepted_auth_count(), accepted);
    assert_eq!(sshd.failed_auth_count(), 0);
}

#[tokio::test]
async fn f18_key_of_another_algorithm_for_a_known_host_is_a_changed_key() {
    let folder = TempDir::new().unwrap();
    let key = ClientKey::ed25519(folder.path(), "id");
    let ecdsa = ClientKey::generate(
        folder.path(),
        "host_ecdsa",
        KeyType::Ecdsa,
        KeyFormat::OpenSsh,
        None,
    )
    .unwrap();
    let first = EvilSsh::builder().start().await;
    let port = first.port();
    let client = serve(&[evil_entry(port, &key)]).await;
    exec(&client, "true").await;
    end(first).await;
    let second = EvilSsh::builder()
        .port(port)
        .host_key(ecdsa.private_path())
        .start()
        .await;
    let home = client.home().to_owned();
    let again = ready(builder(&[evil_entry(port, &key)]).home(&home).start()).await;
    let reply = exec(&again, "true").await;
    assert_refused(&reply, "host_key_changed");
    assert!(reply.text.contains("ecdsa-sha2-nistp256"), "{}", reply.text);
    assert!(reply.text.contains("ssh-ed25519"), "{}", reply.text);
    assert_eq!(second.offers(), []);
}

#[tokio::test]
async fn f18_host_with_several_keys_is_asked_for_the_recorded_one() {
    let kinds = [KeyType::Ed25519, KeyType::Ecdsa, KeyType::Rsa];
    let sshd = Sshd::builder().host_key_algorithms(&kinds).start();
    for recorded in sshd.host_public_keys() {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("known_hosts");
        fs::write(&file, format!("[127.0.0.1]:{} {recorded}\n", sshd.port())).unwrap();
        let more = json!({"known_hosts_files": [file], "host_key_policy": "strict"});
        let client = serve(&[with(entry("box", &sshd), more)]).await;
        let reply = exec(&client, "echo in").await;
        assert_eq!(reply.json["stdout"], "in\n", "{recorded}: {}", reply.text);
    }
}

/// What a file says about the server: `PORT` is its port, `KEY` its key, `OTHER` another one.
#[rstest]
#[case::plain("[127.0.0.1]:PORT KEY\n", "trusted")]
#[case::changed("[127.0.0.1]:PORT OTHER\n", "host_key_changed")]
#[case::revoked(
    "[127.0.0.1]:PORT KEY\n@revoked [127.0.0.1]:PORT KEY\n",
    "host_key_revoked"
)]
#[case::revoked_everywhere("@revoked * KEY\n", "host_key_revoked")]
#[case::authority("@cert-authority * KEY\n", "host_key_unknown")]
#[case::hashed("HASHED KEY\n", "trusted")]
#[case::hashed_changed("HASHED OTHER\n", "host_key_changed")]
#[case::glob("[127.0.0.*]:PORT KEY\n", "trusted")]
#[case::glob_changed("[127.*]:PORT OTHER\n", "host_key_changed")]
#[case::negated("*,!127.0.0.1,![127.0.0.1]:PORT KEY\n", "host_key_unknown")]
#[case::other_port("[127.0.0.1]:1 KEY\n", "host_key_unknown")]
#[case::without_port("127.0.0.1 KEY\n", "trusted")]
#[case::without_port_other_key("127.0.0.1 OTHER\n", "host_key_unknown")]
#[case::tabs("\t[127.0.0.1]:PORT\t \tKEY\tcomment\n", "trusted")]
#[case::carriage_returns("# note\r\n\r\n[127.0.0.1]:PORT KEY\r\n", "trusted")]
#[case::comments(
    "# [127.0.0.1]:PORT OTHER\n\n  # more\n[127.0.0.1]:PORT KEY",
    "trusted"
)]
#[case::broken_own("# note\n[127.0.0.1]:PORT ssh-ed25519 !!!!\n", "broken")]
#[case::broken_foreign("[10.9.8.7]:22 ssh-ed25519 !!!!\n[127.0.0.1]:PORT KEY\n", "trusted")]
#[case::empty("", "host_key_unknown")]
#[tokio::test]
async fn f19_known_hosts_files_are_read_as_openssh_reads_them(
    #[case] text: &str,
    #[case] verdict: &str,
) {
    let evil = EvilSsh::builder().start().await;
    let folder = TempDir::new().unwrap();
    let key = ClientKey::ed25519(folder.path(), "id");
    let other = ClientKey::ed25519(folder.path(), "other");
    let (algorithm_and_key, _) = other.public_line().rsplit_once(' ').unwrap();
    let name = format!("[127.0.0.1]:{}", evil.port());
    let file = folder.path().join("known_hosts");
    let text = text
        .replace("PORT", &evil.port().to_string())
        .replace("OTHER", algorithm_and_key)
        .replace("HASHED", &hashed(folder.path(), &name))
        .replace("KEY", evil.host_public_key());
    fs::write(&file, text).unwrap();
    let more = json!({"known_hosts_files": [file], "host_key_policy": "strict"});
    let client = serve(&[with(evil_entry(evil.port(), &key), more)]).await;
    let reply = exec(&client, "true").await;
    match verdict {
        "trusted" => {
            assert!(!evil.offers().is_empty(), "{}", reply.text);
            return;
        }
        "broken" => {
            assert_refused(&reply, "host_keys_unreadable");
            let line = format!("{} line 2", file.display());
            assert!(reply.text.contains(&line), "{}", reply.text);
        }
        code => assert_refused(&reply, code),
    }
    assert!(reply.text.contains(&name), "{}", reply.text);
    assert_eq!(evil.offers(), []);
    assert!(!own_file(&client).exists(), "strict records nothing");
}

/// A host name hidden by `ssh-keygen -H`.
fn hashed(folder: &Path, name: &str) -> String {
    let file = folder.join("to_hash");
    let key = ClientKey::ed25519(folder, "hashed_key");
    fs::write(&file, format!("{name} {}\n", key.public_line())).unwrap();
    let done = Command::new("ssh-keygen")
        .args(["-H", "-f"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(done.status.success());
    let text = fs::read_to_string(&file).unwrap();
    text.split(' ').next().unwrap().to_owned()
}

/// Something in the place of a file of host keys from which nothing can be learned.
#[derive(Debug, Clone, Copy)]
enum InTheWay {
    Forbidden,
    Directory,
    Pipe,
    LinkLoop,
    LinkToPipe,
    TooLarge,
}

fn put_in_the_way(path: &Path, what: InTheWay) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let pipe = |path: &Path| {
        let made = Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
    };
    match what {
        InTheWay::Forbidden => {
            fs::write(path, b"").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
        }
        InTheWay::Directory => fs::create_dir(path).unwrap(),
        InTheWay::Pipe => pipe(path),
        InTheWay::LinkLoop => std::os::unix::fs::symlink(path, path).unwrap(),
        InTheWay::LinkToPipe => {
            let target = path.with_extension("pipe");
            pipe(&target);
            std::os::unix::fs::symlink(&target, path).unwrap();
        }
        InTheWay::TooLarge => fs::File::create(path).unwrap().set_len(17 << 20).unwrap(),
    }
}

#[rstest]
#[case::forbidden(InTheWay::Forbidden)]
#[case::directory(InTheWay::Directory)]
#[case::pipe(InTheWay::Pipe)]
#[case::link_loop(InTheWay::LinkLoop)]
#[case::link_to_pipe(InTheWay::LinkToPipe)]
#[case::too_large(InTheWay::TooLarge)]
#[tokio::test]
async fn f20_unreadable_host_keys_never_mean_trust(
    #[case] what: InTheWay,
    #[values(
        ".ssh/known_hosts",
        ".local/state/remote-sandbox-mcp/known_hosts",
        "named"
    )]
    place: &str,
) {
    let evil = EvilSsh::builder().start().await;
    let home = TempDir::new().unwrap();
    let key = ClientKey::ed25519(home.path(), "id");
    let path = home.path().join(place);
    put_in_the_way(&path, what);
    let mut sandbox = evil_entry(evil.port(), &key);
    if place == "named" {
        sandbox["known_hosts_files"] = json!([path]);
    }
    let client = ready(bound_by_modes(&[sandbox], home.path())).await;
    let begun = Instant::now();
    let reply = exec(&client, "true").await;
    assert!(begun.elapsed() < Duration::from_secs(8));
    assert_refused(&reply, "host_keys_unreadable");
    let named = path.display().to_string();
    assert!(reply.text.contains(&named), "{}", reply.text);
    assert_eq!(evil.offers(), []);
    let list = client.call_tool("list_sandboxes", json!({})).await;
    assert_eq!(list.json["sandboxes"][0]["code"], "host_keys_unreadable");
}

/// Starts the server without root's power to read what its mode forbids.
fn bound_by_modes(sandboxes: &[Value], home: &Path) -> McpClient {
    if !process::is_root() {
        return builder(sandboxes).home(home).start();
    }
    McpClient::builder("setpriv")
        .arg("--bounding-set=-dac_override,-dac_read_search")
        .arg(program())
        .env(
            "REMOTE_SANDBOX_LIST",
            Value::from(sandboxes.to_vec()).to_string(),
        )
        .home(home)
        .start()
}

#[tokio::test]
async fn f20_linked_known_hosts_of_the_user_is_read() {
    let sshd = Sshd::start();
    let home = TempDir::new().unwrap();
    let target = home.path().join("dotfiles");
    fs::write(&target, sshd.known_hosts()).unwrap();
    fs::create_dir(home.path().join(".ssh")).unwrap();
    std::os::unix::fs::symlink(&target, home.path().join(".ssh/known_hosts")).unwrap();
    let strict = with(entry("box", &sshd), json!({"host_key_policy": "strict"}));
    let client = ready(builder(&[strict]).home(home.path()).start()).await;
    assert_eq!(exec(&client, "echo in").await.json["stdout"], "in\n");
    assert!(!own_file(&client).exists());
}

#[tokio::test]
async fn f20_own_record_that_is_a_link_is_not_written_through() {
    let sshd = Sshd::start();
    let home = TempDir::new().unwrap();
    let target = home.path().join("precious");
    fs::write(&target, "# precious\n").unwrap();
    let own = home
        .path()
        .join(".local/state/remote-sandbox-mcp/known_hosts");
    fs::create_dir_all(own.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(&target, &own).unwrap();
    let client = ready(builder(&[entry("box", &sshd)]).home(home.path()).start()).await;
    let reply = exec(&client, "true").await;
    assert_refused(&reply, "host_keys_unreadable");
    assert_eq!(fs::read_to_string(&target).unwrap(), "# precious\n");
    assert_eq!(sshd.accepted_auth_count() + sshd.failed_auth_count(), 0);
}

#[tokio::test]
async fn f20_record_locked_by_another_process_blocks_only_its_own_call() {
    let (sshd, other) = (Sshd::start(), Sshd::start());
    let sandboxes = [entry("box", &sshd), entry("other", &other)];
    let client = serve(&sandboxes).await;
    let named = json!({"command": "true", "sandbox_name": "other"});
    client.call_tool("exec_bash", named).await;
    let own = fs::File::open(own_file(&client)).unwrap();
    own.lock().unwrap();
    let calls = [
        client
            .start_call("exec_bash", json!({"command": "true"}))
            .await,
        client.start_call("get_active_sandbox", json!({})).await,
    ];
    let begun = Instant::now();
    let named = json!({"command": "echo free", "sandbox_name": "other"});
    let free = client.call_tool("exec_bash", named).await;
    assert_eq!(free.json["stdout"], "free\n", "{}", free.text);
    assert!(begun.elapsed() < Duration::from_secs(4));
    let limit = Duration::from_secs(20);
    let reply = client.wait_tool_reply(calls[0], limit).await.unwrap();
    assert_refused(&reply, "host_keys_unreadable");
    client.wait_tool_reply(calls[1], limit).await.unwrap();
    own.unlock().unwrap();
    let reply = exec(&client, "echo in").await;
    assert_eq!(reply.json["stdout"], "in\n", "{}", reply.text);
}

#[tokio::test]
async fn f21_twenty_first_connections_of_two_processes_record_one_line() {
    let sshd = Sshd::start();
    let home = TempDir::new().unwrap();
    let sandboxes: Vec<Value> = (0..10)
        .map(|number| entry(&format!("box{number}"), &sshd))
        .collect();
    let first = ready(builder(&sandboxes).home(home.path()).start()).await;
    let second = ready(builder(&sandboxes).home(home.path()).start()).await;
    let (one, two) = tokio::join!(
        first.call_tool("list_sandboxes", json!({})),
        second.call_tool("list_sandboxes", json!({})),
    );
    for reply in [one, two] {
        let lines = reply.json["sandboxes"].as_array().unwrap();
        assert_eq!(lines.len(), 10);
        for line in lines {
            assert_eq!(line["connection_alive"], true, "{line}");
        }
    }
    assert_eq!(sshd.connection_count(), 20);
    let own = own_file(&first);
    assert_eq!(fs::read_to_string(&own).unwrap(), sshd.known_hosts());
    assert_eq!(mode(&own), 0o600);
}

#[tokio::test]
async fn f21_record_without_a_last_line_end_is_continued_on_a_new_line() {
    let sshd = Sshd::start();
    let home = TempDir::new().unwrap();
    let own = home
        .path()
        .join(".local/state/remote-sandbox-mcp/known_hosts");
    fs::create_dir_all(own.parent().unwrap()).unwrap();
    fs::write(&own, "# by hand").unwrap();
    let client = ready(builder(&[entry("box", &sshd)]).home(home.path()).start()).await;
    assert_eq!(exec(&client, "echo in").await.json["stdout"], "in\n");
    let expected = format!("# by hand\n{}", sshd.known_hosts());
    assert_eq!(fs::read_to_string(&own).unwrap(), expected);
}

#[tokio::test]
async fn strict_policy_refuses_an_unknown_host_and_offers_nothing() {
    let evil = EvilSsh::builder().start().await;
    let folder = TempDir::new().unwrap();
    let key = ClientKey::ed25519(folder.path(), "id");
    let strict = json!({"host_key_policy": "strict"});
    let client = serve(&[with(evil_entry(evil.port(), &key), strict)]).await;
    let reply = exec(&client, "true").await;
    assert_refused(&reply, "host_key_unknown");
    let shown = fingerprint(folder.path(), evil.host_public_key());
    assert!(reply.text.contains(&shown), "{}", reply.text);
    assert_eq!(evil.offers(), []);
    assert!(!own_file(&client).exists());
}

#[tokio::test]
async fn insecure_policy_checks_nothing_and_warns_exactly_once() {
    let sshd = Sshd::start();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("known_hosts");
    let other = ClientKey::ed25519(folder.path(), "other");
    let line = format!("[127.0.0.1]:{} {}\n", sshd.port(), other.public_line());
    fs::write(&file, line).unwrap();
    let insecure = json!({"host_key_policy": "insecure", "known_hosts_files": [file]});
    let client = serve(&[with(entry("open", &sshd), insecure), entry("box", &sshd)]).await;
    let list = client.call_tool("list_sandboxes", json!({})).await;
    let lines = list.json["sandboxes"].as_array().unwrap();
    assert_eq!(lines[0]["connection_alive"], true, "{}", list.text);
    let warnings = lines[0]["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let warning = warnings[0].as_str().unwrap();
    assert!(warning.contains("host_key_policy") && warning.contains("insecure"));
    assert!(lines[1].get("warnings").is_none(), "{}", list.text);
    let recorded = fs::read_to_string(own_file(&client)).unwrap();
    assert_eq!(recorded.lines().count(), 1, "only `box` is recorded");
}
