//! Mistakes in the configuration: named by place and key, without ever quoting a secret.

use std::path::Path;
use std::time::{Duration, Instant};

use remote_sandbox_testkit::McpClient;
use remote_sandbox_testkit::wait::free_port;
use rstest::rstest;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{exec, program, ready};

const SECRET: &str = "canary-secret-82";
const FILE: &str = ".config/remote-sandbox-mcp/config.toml";

/// A home with a configuration file.
fn home(file: &str, content: &[u8]) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
    home
}

async fn start(home: &Path, variables: &[(&str, &str)]) -> McpClient {
    let mut builder = McpClient::builder(program()).home(home);
    for (name, value) in variables {
        builder = builder.env(*name, *value);
    }
    ready(builder.start()).await
}

async fn list(client: &McpClient) -> Value {
    let reply = client.call_tool("list_sandboxes", json!({})).await;
    assert!(!reply.is_error, "{}", reply.text);
    reply.json
}

/// No secret anywhere: not in a reply, not in the log, not on disk.
fn assert_silent(client: &McpClient) {
    assert!(!client.stdout_lines().concat().contains(SECRET));
    assert!(!client.stderr().contains(SECRET), "{}", client.stderr());
}

fn entry_with(more: Value) -> Value {
    let entry = json!({"name": "a", "host": "127.0.0.1", "port": free_port(), "user": "u", "password": SECRET});
    crate::support::with(entry, more)
}

#[rstest]
#[case::port_zero(json!({"port": 0}), "`port`")]
#[case::port_too_high(json!({"port": 70_000}), "`port`")]
#[case::port_is_a_secret(json!({"port": SECRET}), "`port`")]
#[case::port_is_a_list(json!({"port": [22]}), "`port`")]
#[case::name_with_a_newline(json!({"name": "a\nb"}), "`name`")]
#[case::name_is_long(json!({"name": "n".repeat(65)}), "`name`")]
#[case::name_is_a_number(json!({"name": 5}), "`name`")]
#[case::no_host(json!({"host": ""}), "`host`")]
#[case::no_user(json!({"user": null}), "`user`")]
#[case::host_and_alias(json!({"ssh_alias": "b"}), "`ssh_alias`")]
#[case::login_beside_openssh(json!({"transport": "openssh"}), "`password`")]
#[case::secret_without_a_name(json!({"password": null, "password_secret": "canary-secret-82 "}), "`password_secret`")]
#[case::variable(json!({"env": {"A": [SECRET]}}), "`env.A`")]
#[case::two_passwords(json!({"password_env": "OTHER"}), "password_env")]
#[case::password_is_a_list(json!({"password": [SECRET]}), "`password`")]
#[case::command_is_text(json!({"password": null, "password_command": SECRET}), "`password_command`")]
#[case::unset_variable(json!({"password": null, "password_env": "UNSET_82"}), "UNSET_82")]
#[case::policy(json!({"host_key_policy": SECRET}), "`host_key_policy`")]
#[case::time(json!({"connect_timeout_s": -1}), "`connect_timeout_s`")]
#[tokio::test]
async fn f82_wrong_value_disables_its_sandbox_and_names_the_key(
    #[case] more: Value,
    #[case] key: &str,
) {
    let good = entry_with(json!({"name": "good"}));
    let text = json!([entry_with(more), good]).to_string();
    let home = tempfile::tempdir().unwrap();
    let client = start(home.path(), &[("REMOTE_SANDBOX_LIST", &text)]).await;
    let listed = list(&client).await;
    let broken = &listed["sandboxes"][0];
    assert_eq!(broken["disabled"], true, "{listed:#}");
    let error = broken["error"].as_str().unwrap();
    assert!(
        error.starts_with("REMOTE_SANDBOX_LIST[0]") && error.contains(key),
        "{error}"
    );
    assert_eq!(listed["active_sandbox"], "good");
    let name = broken["name"].as_str().unwrap();
    assert!(!name.chars().any(char::is_control), "{name:?}");
    let refused = client
        .call_tool(
            "exec_bash",
            json!({"command": "true", "sandbox_name": name}),
        )
        .await;
    assert!(refused.is_error);
    assert_silent(&client);
}

#[rstest]
#[case::unknown_key(
    "[[sandbox]]\nname = 'a'\nhost = 'h'\nuser = 'u'\npassword = 'SECRET'\ncolour = 'red'\n",
    6,
    "`colour`"
)]
#[case::misspelled_secret(
    "[[sandbox]]\nname = 'a'\nhost = 'h'\nuser = 'u'\npasword = 'SECRET'\n",
    5,
    "`pasword`"
)]
#[case::port(
    "\n\n[[sandbox]]\nname = 'a'\nhost = 'h'\nuser = 'u'\npassword = 'SECRET'\nport = 70000\n",
    8,
    "`port`"
)]
#[case::secret_as_port(
    "[[sandbox]]\nname = 'a'\nhost = 'h'\nuser = 'u'\npassword = 'SECRET'\nport = 'SECRET'\n",
    6,
    "`port`"
)]
#[tokio::test]
async fn f82_mistake_in_a_file_is_named_by_file_line_and_key(
    #[case] text: &str,
    #[case] line: usize,
    #[case] key: &str,
) {
    let home = home(FILE, text.replace("SECRET", SECRET).as_bytes());
    let client = start(home.path(), &[]).await;
    let listed = list(&client).await;
    let error = listed["sandboxes"][0]["error"].as_str().unwrap();
    let place = format!("{}:{line}: ", home.path().join(FILE).display());
    assert!(error.starts_with(&place) && error.contains(key), "{error}");
    assert_silent(&client);
}

#[rstest]
#[case::syntax("[[sandbox]]\npassword = 'canary-secret-82\n".as_bytes(), "not valid TOML, see line 2 column")]
#[case::encoding(
    b"[[sandbox]]\npassword = 'canary-secret-82\xff'\n",
    "not UTF-8 text, see line 2"
)]
#[case::unknown_setting("password = 'canary-secret-82'\n".as_bytes(), "unknown key `password`")]
#[case::deep(&[b'['; 50_000], "not valid TOML")]
#[tokio::test]
async fn f82_unreadable_file_is_named_and_the_environment_still_counts(
    #[case] text: &[u8],
    #[case] expected: &str,
) {
    let home = home(FILE, text);
    let list_text = json!([entry_with(json!({}))]).to_string();
    let client = start(home.path(), &[("REMOTE_SANDBOX_LIST", &list_text)]).await;
    let listed = list(&client).await;
    assert_eq!(listed["active_sandbox"], "a");
    let problem = listed["problems"][0].as_str().unwrap();
    let file = home.path().join(FILE).display().to_string();
    assert!(
        problem.starts_with(&file) && problem.contains(expected),
        "{problem}"
    );
    assert_silent(&client);
}

#[tokio::test]
async fn f82_huge_file_is_left_out_and_the_server_starts() {
    let line = format!("# {SECRET}\n");
    let home = home(FILE, line.repeat((2 << 20) / line.len()).as_bytes());
    let list_text = json!([entry_with(json!({}))]).to_string();
    let client = start(home.path(), &[("REMOTE_SANDBOX_LIST", &list_text)]).await;
    let listed = list(&client).await;
    assert_eq!(listed["active_sandbox"], "a");
    let problem = listed["problems"][0].as_str().unwrap();
    assert!(
        problem.contains("config.toml") && problem.contains("1048576"),
        "{problem}"
    );
    assert_silent(&client);
}

#[tokio::test]
async fn f82_folder_in_place_of_the_file_is_left_out_and_the_server_starts() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(home.path().join(FILE)).unwrap();
    let client = start(home.path(), &[]).await;
    let listed = list(&client).await;
    let problem = listed["problems"][0].as_str().unwrap();
    assert!(
        problem.contains("config.toml") && problem.contains("directory"),
        "{problem}"
    );
}

#[rstest]
#[case::huge(vec![b'#'; 2 << 20], "1048576")]
#[case::absent(Vec::new(), "does not exist")]
#[tokio::test]
async fn f82_file_asked_for_by_name_must_be_readable(
    #[case] content: Vec<u8>,
    #[case] expected: &str,
) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    if !content.is_empty() {
        std::fs::write(&path, content).unwrap();
    }
    let started = McpClient::builder(program())
        .arg("--config")
        .arg(&path)
        .start();
    let status = started
        .wait_exit(Duration::from_secs(20))
        .await
        .expect("it ends");
    assert!(!status.success());
    let told = || started.stderr().contains(expected) && started.stderr().contains("mine.toml");
    assert!(
        remote_sandbox_testkit::wait_until(Duration::from_secs(5), told).await,
        "{}",
        started.stderr()
    );
    assert_eq!(started.stdout_lines(), Vec::<String>::new());
}

#[tokio::test]
async fn f82_byte_order_mark_does_no_harm() {
    let text = format!(
        "\u{feff}[[sandbox]]\nname = 'a'\nhost = '127.0.0.1'\nport = {}\nuser = 'u'\npassword = '{SECRET}'\n",
        free_port()
    );
    let home = home(FILE, text.as_bytes());
    let client = start(home.path(), &[]).await;
    let listed = list(&client).await;
    assert_eq!(
        (&listed["active_sandbox"], listed.get("problems")),
        (&json!("a"), None),
        "{listed:#}"
    );
    assert_silent(&client);
}

#[tokio::test]
async fn f82_later_of_two_equal_names_wins_and_the_earlier_is_shown() {
    let twice = json!([
        entry_with(json!({"user": "first"})),
        entry_with(json!({"user": "second"}))
    ]);
    let home = tempfile::tempdir().unwrap();
    let client = start(home.path(), &[("REMOTE_SANDBOX_LIST", &twice.to_string())]).await;
    let listed = list(&client).await;
    assert_eq!(listed["sandboxes"][0]["disabled"], true);
    assert!(
        listed["sandboxes"][0]["error"]
            .as_str()
            .unwrap()
            .contains("comes later")
    );
    assert_eq!(listed["sandboxes"][1]["user"], "second");
    assert_silent(&client);
}

#[tokio::test]
async fn f82_environment_wins_over_the_file_in_names_and_settings() {
    let port = free_port();
    let sandbox = |name: &str, user: &str| {
        format!(
            "[[sandbox]]\nname = '{name}'\nhost = '127.0.0.1'\nport = {port}\nuser = '{user}'\npassword = '{SECRET}'\n"
        )
    };
    let text = format!(
        "result_style = 'text'\n{}{}",
        sandbox("a", "file"),
        sandbox("b", "file")
    );
    let home = home(FILE, text.as_bytes());
    let list_text = json!([entry_with(json!({"user": "environment"}))]).to_string();
    let variables = [
        ("REMOTE_SANDBOX_LIST", list_text.as_str()),
        ("REMOTE_SANDBOX_RESULT_STYLE", "json"),
    ];
    let client = start(home.path(), &variables).await;
    let listed = list(&client).await;
    let users: Vec<&Value> = listed["sandboxes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| &line["user"])
        .collect();
    assert_eq!(users, ["environment", "file"], "{listed:#}");
    let note = listed["sandboxes"][0]["warnings"][0].as_str().unwrap();
    assert!(
        note.contains("config.toml:2") && note.contains("not used"),
        "{note}"
    );
    assert_silent(&client);
}

#[tokio::test]
async fn f82_broken_winner_does_not_let_the_loser_take_its_place() {
    let text =
        format!("[[sandbox]]\nname = 'a'\nhost = '127.0.0.1'\nuser = 'u'\npassword = '{SECRET}'\n");
    let home = home(FILE, text.as_bytes());
    let broken = json!([entry_with(json!({"port": 0}))]).to_string();
    let client = start(home.path(), &[("REMOTE_SANDBOX_LIST", &broken)]).await;
    let refused = client
        .call_tool("exec_bash", json!({"command": "true", "sandbox_name": "a"}))
        .await;
    assert_eq!(refused.json["code"], "sandbox_disabled", "{}", refused.text);
    assert_silent(&client);
}

#[rstest]
#[case::cut(format!(r#"[{{"name":"a","password":"{SECRET}" "host""#), "not valid JSON, see line 1 column")]
#[case::one_object(format!(r#"{{"name":"a","password":"{SECRET}"}}"#), "must be a JSON array")]
#[case::text(format!(r#""{SECRET}""#), "must be a JSON array")]
#[case::plain(SECRET.to_owned(), "not valid JSON")]
#[case::deep("[".repeat(100_000), "not valid JSON")]
#[case::huge(format!(r#"["{SECRET}{}"]"#, " ".repeat(100_000)), "table of keys")]
#[tokio::test]
async fn f82_malformed_list_is_named_and_nothing_takes_its_place(
    #[case] text: String,
    #[case] expected: &str,
) {
    let home = tempfile::tempdir().unwrap();
    let variables = [
        ("REMOTE_SANDBOX_LIST", text.as_str()),
        ("REMOTE_HOST", "127.0.0.1"),
        ("REMOTE_USER", "u"),
        ("REMOTE_PASSWORD", SECRET),
    ];
    let client = start(home.path(), &variables).await;
    let listed = list(&client).await;
    assert_eq!(listed["active_sandbox"], Value::Null, "{listed:#}");
    let told = listed.to_string();
    assert!(
        told.contains("REMOTE_SANDBOX_LIST") && told.contains(expected),
        "{told}"
    );
    let refused = exec(&client, "true").await;
    assert_eq!(refused.json["code"], "not_configured");
    assert_silent(&client);
}

#[tokio::test]
async fn f82_thousand_hosts_are_kept_and_the_rest_is_told() {
    let port = free_port();
    let many: Vec<Value> = (0..1001)
        .map(|number| json!({"name": format!("h{number}"), "host": "127.0.0.1", "port": port, "user": "u", "key_file": "/none"}))
        .collect();
    let home = tempfile::tempdir().unwrap();
    let text = Value::from(many).to_string();
    let begun = Instant::now();
    let client = start(home.path(), &[("REMOTE_SANDBOX_LIST", &text)]).await;
    let listed = list(&client).await;
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(listed["sandboxes"].as_array().unwrap().len(), 1000);
    assert!(
        listed["problems"][0].as_str().unwrap().contains("1000"),
        "{:?}",
        listed["problems"]
    );
    assert!(client.rss_kb() < 200 << 10, "{} KiB", client.rss_kb());
}

#[tokio::test]
async fn f82_unknown_key_in_the_list_is_noted_and_the_sandbox_works() {
    let text = json!([entry_with(json!({"colour": SECRET}))]).to_string();
    let home = tempfile::tempdir().unwrap();
    let client = start(home.path(), &[("REMOTE_SANDBOX_LIST", &text)]).await;
    let listed = list(&client).await;
    assert_eq!(listed["active_sandbox"], "a");
    let warning = listed["sandboxes"][0]["warnings"][0].as_str().unwrap();
    assert!(warning.contains("`colour`"), "{warning}");
    assert_silent(&client);
}
