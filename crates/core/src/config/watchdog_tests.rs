use rstest::rstest;

use super::*;
use crate::config::testing::{from_json, from_toml, messages};

const WHOLE: &str = r#"
[watchdog]
allow_event_command = "config-only"
event_commands = ["~/bin/notify", "logger -t jobs"]
webhook_hosts = ["hooks.example.org", "localhost:8080"]
webhook_secret = "0123456789abcdef"

[[watchdog.notifiers]]
name = "phone"
kind = "ntfy"
url = "https://ntfy.sh/my-topic"
events = ["completed", "interrupted"]

[[watchdog.notifiers]]
name = "team"
kind = "feishu"
url_secret = "feishu-url"
secret_secret = "feishu-sign"
"#;

#[test]
fn whole_table_is_read() {
    let config = from_toml(WHOLE);
    assert_eq!(messages(&config), Vec::<String>::new());
    let settings = &config.watchdog;
    assert_eq!(settings.policy.commands.len(), 2);
    assert_eq!(settings.policy.webhook_hosts.len(), 2);
    assert!(matches!(
        settings.signing,
        Signing::With(SecretSource::Clear(_))
    ));
    let [phone, team] = settings.notifiers.as_slice() else {
        panic!("{settings:?}");
    };
    assert!(phone.wants(EventType::Completed) && !phone.wants(EventType::Alarm));
    assert_eq!(team.kind, NotifierKind::Feishu);
    assert!(team.wants(EventType::Alarm));
    let names: Vec<_> = config
        .stored_secret_names()
        .into_iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(names, ["feishu-sign", "feishu-url"]);
}

#[test]
fn nothing_said_allows_nothing() {
    let settings = from_toml("").watchdog;
    assert_eq!(settings.policy, EventPolicy::default());
    assert_eq!(settings.policy.allow, AllowEvents::ConfigOnly);
    assert!(matches!(settings.signing, Signing::Off) && settings.notifiers.is_empty());
}

#[rstest]
#[case("watchdog = 3")]
#[case("[watchdog]\nallow_event_command = \"ANY\"")]
#[case("[watchdog]\nallow_event_command = true")]
#[case("[watchdog]\nevent_commands = [\"a\", 1]")]
#[case("[watchdog]\nevent_commands = [\"a\", \" \"]")]
#[case("[watchdog]\nwebhook_hosts = [\"good.example\", \"http://h/\"]")]
#[case("[watchdog]\nwebhook_hosts = [\"*\"]")]
fn wrong_value_allows_nothing_and_is_noted(#[case] text: &str) {
    let config = from_toml(text);
    assert_eq!(config.watchdog.policy, EventPolicy::default());
    assert_eq!(config.problems.len(), 1, "{:?}", messages(&config));
}

#[test]
fn wrong_secret_does_not_mean_unsigned() {
    let config = from_toml("[watchdog]\nwebhook_secret_env = \"NOT_THERE\"");
    assert!(matches!(config.watchdog.signing, Signing::Broken));
    assert_eq!(config.problems.len(), 1, "{:?}", messages(&config));
}

#[rstest]
#[case("kind = \"ntfy\"\nurl = \"https://h/t\"", "name")]
#[case("name = \"a b\"\nkind = \"ntfy\"\nurl = \"https://h/t\"", "name")]
#[case("name = \"a\"\nkind = \"pager\"\nurl = \"https://h/t\"", "kind")]
#[case("name = \"a\"\nkind = \"ntfy\"", "url")]
#[case("name = \"a\"\nkind = \"ntfy\"\nurl = \"canary-9f3a71\"", "url")]
#[case(
    "name = \"a\"\nkind = \"slack\"\nurl = \"https://h/t\"\nsecret = \"canary-9f3a71\"",
    "secret"
)]
#[case(
    "name = \"a\"\nkind = \"ntfy\"\nurl = \"https://h/t\"\nevents = [\"none\"]",
    "events"
)]
#[case(
    "name = \"a\"\nkind = \"ntfy\"\nurl = \"https://h/t\"\nurl_env = \"X\"",
    "url"
)]
fn wrong_notifier_is_left_out_and_the_others_stay(#[case] lines: &str, #[case] key: &str) {
    let good = "[[watchdog.notifiers]]\nname = \"good\"\nkind = \"wecom\"\nurl = \"https://h/t\"\n";
    let config = from_toml(&format!("{good}[[watchdog.notifiers]]\n{lines}\n"));
    let names: Vec<_> = config
        .watchdog
        .notifiers
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(names, ["good"]);
    let said = messages(&config).join("\n");
    assert!(said.contains(key) && said.contains("notifiers"), "{said}");
    assert!(
        !said.contains("canary") && !format!("{config:?}").contains("canary"),
        "{said}"
    );
}

#[test]
fn second_notifier_of_a_name_is_left_out() {
    let one = r#"{"name": "a", "kind": "slack", "url": "https://h/t"}"#;
    let config = from_json(&format!(
        r#"{{"watchdog": {{"notifiers": [{one}, {one}, 3]}}}}"#
    ));
    assert_eq!(config.watchdog.notifiers.len(), 1);
    assert_eq!(config.problems.len(), 2, "{:?}", messages(&config));
}

#[test]
fn secrets_of_the_table_are_masked_and_their_tokens_too() {
    let text = WHOLE.replace("my-topic", "my-secret-topic");
    let config = from_toml(&text);
    let secrets: Vec<_> = config.secrets().collect();
    assert!(secrets.contains(&"0123456789abcdef"));
    assert!(secrets.contains(&"https://ntfy.sh/my-secret-topic"));
    assert!(secrets.contains(&"/my-secret-topic"));
    let shown = format!("{config:?}");
    for hidden in ["my-secret-topic", "0123456789abcdef", "logger -t jobs"] {
        assert!(!shown.contains(hidden), "{hidden}");
    }
}
