//! Who we are: every kind of credential, one attempt each, and plain words when one cannot be used.

use std::process::Command;
use std::time::{Duration, Instant};

use remote_sandbox_testkit::evil_ssh::{EvilSsh, EvilSshBuilder, Offer};
use remote_sandbox_testkit::keys::{ClientKey, KeyFormat, KeyType};
use remote_sandbox_testkit::mcp::ToolReply;
use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::users::TestUser;
use rstest::rstest;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{builder, entry, exec, ready, serve, with};

const PASSWORD: &str = "canary-right-password";
pub(super) const WRONG: &str = "canary-wrong-password";
pub(super) const PASSPHRASE: &str = "canary-passphrase";

fn person(name: &str, port: u16, more: Value) -> Value {
    let plain = json!({"name": "box", "host": "127.0.0.1", "port": port, "user": name});
    with(plain, more)
}

pub(super) fn assert_logged_in(reply: &ToolReply) {
    assert_eq!(reply.json["stdout"], "in\n", "{}", reply.text);
}

pub(super) fn assert_auth_failed(reply: &ToolReply) {
    assert!(reply.is_error, "{}", reply.text);
    assert_eq!(reply.json["code"], "auth_failed", "{}", reply.text);
    assert!(reply.json.get("retry").is_none(), "{}", reply.text);
    assert!(!reply.text.contains("canary"), "{}", reply.text);
}

/// The answer of a hostile server to a command is empty, so only the code is looked at.
fn assert_let_in(reply: &ToolReply) {
    assert_ne!(reply.json["code"], "auth_failed", "{}", reply.text);
    assert_ne!(reply.json["code"], "unreachable", "{}", reply.text);
}

/// An account with a password; says why not otherwise.
fn account() -> Option<TestUser> {
    TestUser::builder().password(PASSWORD).create()
}

#[tokio::test]
async fn password_logs_in_to_a_user_account() {
    let Some(user) = account() else { return };
    let sshd = Sshd::builder().password_auth().user(&user).start();
    let more = json!({"password": PASSWORD});
    let client = serve(&[person(user.name(), sshd.port(), more)]).await;
    assert_logged_in(&exec(&client, "echo in").await);
    assert_eq!(sshd.failed_auth_count(), 0, "{}", sshd.log());
}

#[tokio::test]
async fn password_answers_keyboard_interactive_of_a_user_account() {
    let Some(user) = account() else { return };
    let sshd = Sshd::builder().keyboard_interactive().user(&user).start();
    let more = json!({"password": PASSWORD});
    let client = serve(&[person(user.name(), sshd.port(), more)]).await;
    assert_logged_in(&exec(&client, "echo in").await);
    assert!(sshd.log().contains("Accepted keyboard-interactive"));
    assert_eq!(sshd.failed_auth_count(), 0, "{}", sshd.log());
}

#[tokio::test]
async fn password_follows_the_key_where_a_user_account_needs_both() {
    let Some(user) = account() else { return };
    let sshd = Sshd::builder()
        .password_auth()
        .user(&user)
        .extra_config("AuthenticationMethods publickey,password")
        .start();
    let more = json!({"key_file": sshd.client_key_path(), "password": PASSWORD});
    let client = serve(&[person(user.name(), sshd.port(), more)]).await;
    assert_logged_in(&exec(&client, "echo in").await);
    assert_eq!(sshd.failed_auth_count(), 0, "{}", sshd.log());
}

#[tokio::test]
async fn f22_wrong_password_of_a_user_account_is_tried_once() {
    let Some(user) = account() else { return };
    let sshd = Sshd::builder().password_auth().user(&user).start();
    let more = json!({"password": WRONG});
    let client = serve(&[person(user.name(), sshd.port(), more)]).await;
    let reply = exec(&client, "echo in").await;
    assert_auth_failed(&reply);
    assert!(reply.text.contains(user.name()), "{}", reply.text);
    assert!(reply.text.contains("the password"), "{}", reply.text);
    assert_eq!(sshd.failed_auth_count(), 1, "{}", sshd.log());
    assert_eq!(sshd.connection_count(), 1);
}

#[tokio::test]
async fn f22_wrong_answer_of_a_user_account_is_given_once() {
    let Some(user) = account() else { return };
    let sshd = Sshd::builder().keyboard_interactive().user(&user).start();
    let more = json!({"password": WRONG, "auth_timeout_s": 15});
    let client = serve(&[person(user.name(), sshd.port(), more)]).await;
    let reply = exec(&client, "echo in").await;
    assert_auth_failed(&reply);
    let answers = sshd.log().matches("Failed keyboard-interactive").count();
    assert!(answers <= 1, "{}", sshd.log());
    assert_eq!(sshd.connection_count(), 1);
}

#[tokio::test]
async fn f22_host_that_hangs_up_on_a_wrong_password_is_an_auth_failure_of_the_user_account() {
    let Some(user) = account() else { return };
    let sshd = Sshd::builder()
        .password_auth()
        .user(&user)
        .extra_config("MaxAuthTries 1")
        .start();
    let more = json!({"password": WRONG});
    let client = serve(&[person(user.name(), sshd.port(), more)]).await;
    assert_auth_failed(&exec(&client, "echo in").await);
    assert_eq!(sshd.connection_count(), 1, "{}", sshd.log());
}

#[rstest]
#[case::checked_by_sshd(false)]
#[case::checked_by_pam(true)]
#[tokio::test]
async fn f22_expired_user_account_is_an_auth_failure(#[case] pam: bool) {
    let Some(user) = account() else { return };
    let done = Command::new("chage")
        .args(["-E", "0", user.name()])
        .status();
    assert!(done.unwrap().success());
    let mut server = Sshd::builder().password_auth().user(&user);
    if pam {
        server = server.extra_config("UsePAM yes");
    }
    let sshd = server.start();
    let more = json!({"key_file": sshd.client_key_path(), "password": PASSWORD});
    let client = serve(&[person(user.name(), sshd.port(), more)]).await;
    let begun = Instant::now();
    assert_auth_failed(&exec(&client, "echo in").await);
    assert!(begun.elapsed() < Duration::from_secs(15));
    assert!(sshd.failed_auth_count() <= 2, "{}", sshd.log());
    assert_eq!(sshd.accepted_auth_count(), 0);
    assert_eq!(sshd.connection_count(), 1, "{}", sshd.log());
}

#[tokio::test]
async fn f22_refused_key_is_offered_once() {
    let sshd = Sshd::start();
    let folder = TempDir::new().unwrap();
    let stranger = ClientKey::ed25519(folder.path(), "id");
    let more = json!({"key_file": stranger.private_path()});
    let client = serve(&[with(entry("box", &sshd), more)]).await;
    let reply = exec(&client, "echo in").await;
    assert_auth_failed(&reply);
    let path = stranger.private_path().display().to_string();
    assert!(reply.text.contains(&path), "{}", reply.text);
    assert!(reply.text.contains("publickey"), "{}", reply.text);
    assert_eq!(sshd.connection_count(), 1);
    assert!(sshd.failed_auth_count() <= 1, "{}", sshd.log());
}

#[tokio::test]
async fn f22_key_comes_first_then_the_password_one_attempt_each() {
    let evil = EvilSsh::builder().reject_all().start().await;
    let folder = TempDir::new().unwrap();
    let key = ClientKey::ed25519(folder.path(), "id");
    let more = json!({"key_file": key.private_path(), "password": WRONG});
    let client = serve(&[person("somebody", evil.port(), more)]).await;
    assert_auth_failed(&exec(&client, "true").await);
    let attempts = evil.secrets();
    assert!(
        matches!(attempts[0], Offer::Signature { .. }),
        "{attempts:?}"
    );
    assert!(
        matches!(attempts[1], Offer::Password { .. }),
        "{attempts:?}"
    );
    assert_eq!(attempts.len(), 2, "{attempts:?}");
    assert_eq!(evil.connections(), 1);
}

#[tokio::test]
async fn f22_no_password_is_sent_when_the_key_is_enough() {
    let evil = EvilSsh::builder().start().await;
    let folder = TempDir::new().unwrap();
    let key = ClientKey::ed25519(folder.path(), "id");
    let more = json!({"key_file": key.private_path(), "password": PASSWORD});
    let client = serve(&[person("somebody", evil.port(), more)]).await;
    assert_let_in(&exec(&client, "true").await);
    let sent = evil.secrets();
    assert!(
        matches!(sent.as_slice(), [Offer::Signature { .. }]),
        "{sent:?}"
    );
}

fn interactive() -> EvilSshBuilder {
    EvilSsh::builder().methods(&[russh::MethodKind::KeyboardInteractive])
}

#[tokio::test]
async fn f22_one_hidden_question_is_answered_with_the_password() {
    let evil = interactive()
        .prompts(&[("Password: ", false)])
        .start()
        .await;
    let more = json!({"password": PASSWORD});
    let client = serve(&[person("somebody", evil.port(), more)]).await;
    assert_let_in(&exec(&client, "true").await);
    let answers = vec![PASSWORD.to_owned()];
    let user = "somebody".to_owned();
    assert_eq!(evil.secrets(), [Offer::Answers { user, answers }]);
}

#[rstest]
#[case::second_factor(&[("Password: ", false)], &[("Verification code: ", false)], 1)]
#[case::shown_answer(&[("Your name: ", true)], &[], 0)]
#[case::two_at_once(&[("Password: ", false), ("Code: ", false)], &[], 0)]
#[tokio::test]
async fn f22_question_that_nobody_can_answer_ends_the_login(
    #[case] first: &[(&str, bool)],
    #[case] second: &[(&str, bool)],
    #[case] answered: usize,
) {
    let mut server = interactive().prompts(first);
    if !second.is_empty() {
        server = server.prompts(second);
    }
    let evil = server.start().await;
    let more = json!({"password": PASSWORD});
    let client = serve(&[person("somebody", evil.port(), more)]).await;
    let reply = exec(&client, "true").await;
    assert_auth_failed(&reply);
    let asked = second.last().or(first.last()).unwrap().0.trim_end();
    assert!(reply.text.contains(asked), "{}", reply.text);
    assert_eq!(evil.secrets().len(), answered, "{:?}", evil.secrets());
    assert_eq!(evil.connections(), 1);
}

#[tokio::test]
async fn f22_endless_questions_end_the_login() {
    let mut server = interactive();
    for _ in 0..50 {
        server = server.prompts(&[]);
    }
    let evil = server.start().await;
    let more = json!({"password": PASSWORD});
    let client = serve(&[person("somebody", evil.port(), more)]).await;
    assert_auth_failed(&exec(&client, "true").await);
    assert!(evil.offers().len() < 10, "{:?}", evil.offers());
}

#[tokio::test]
async fn password_comes_from_a_variable_or_from_a_program() {
    for more in [
        json!({"password_env": "BOX_PASSWORD"}),
        json!({"password_command": ["printf", "%s\\n", PASSWORD]}),
    ] {
        let evil = EvilSsh::builder().start().await;
        let sandbox = person("somebody", evil.port(), more);
        let server = builder(&[sandbox]).env("BOX_PASSWORD", PASSWORD);
        let client = ready(server.start()).await;
        assert_let_in(&exec(&client, "true").await);
        let (user, password) = ("somebody".to_owned(), PASSWORD.to_owned());
        assert_eq!(evil.secrets(), [Offer::Password { user, password }]);
    }
}

#[tokio::test]
async fn passphrase_comes_from_a_variable_or_from_a_program() {
    let folder = TempDir::new().unwrap();
    let (kind, format) = (KeyType::Ed25519, KeyFormat::OpenSsh);
    let key = ClientKey::generate(folder.path(), "id", kind, format, Some(PASSPHRASE)).unwrap();
    let sshd = Sshd::builder().authorize(&key).start();
    for source in [
        json!({"key_passphrase_env": "BOX_PASSPHRASE"}),
        json!({"key_passphrase_command": ["printf", PASSPHRASE]}),
    ] {
        let more = with(source, json!({"key_file": key.private_path()}));
        let server = builder(&[with(entry("box", &sshd), more)]);
        let client = ready(server.env("BOX_PASSPHRASE", PASSPHRASE).start()).await;
        assert_logged_in(&exec(&client, "echo in").await);
    }
}

#[rstest]
#[case::fails(json!(["sh", "-c", "echo canary >&2; exit 3"]), "password_command")]
#[case::silent(json!(["true"]), "password_command")]
#[case::missing(json!(["/no/such/canary"]), "password_command")]
#[case::binary(json!(["printf", "\\377\\376"]), "password_command")]
#[tokio::test]
async fn password_command_that_gives_nothing_is_named(#[case] command: Value, #[case] key: &str) {
    let evil = EvilSsh::builder().start().await;
    let more = json!({"password_command": command});
    let client = serve(&[person("somebody", evil.port(), more)]).await;
    let reply = exec(&client, "true").await;
    assert_auth_failed(&reply);
    assert!(reply.text.contains(key), "{}", reply.text);
    assert_eq!(evil.secrets(), []);
    assert!(!client.stderr().contains("canary"));
}
