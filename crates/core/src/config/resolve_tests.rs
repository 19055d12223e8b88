use proptest::prelude::*;
use rstest::rstest;

use crate::config::testing::*;
use crate::config::*;

#[rstest]
#[case::array(format!("[{ENTRY}]"))]
#[case::sandboxes(format!(r#"{{"sandboxes":[{ENTRY}]}}"#))]
#[case::sandbox(format!(r#"{{"sandbox":[{ENTRY}]}}"#))]
#[case::byte_order_mark(format!("\u{feff}[{ENTRY}]"))]
fn json_file_is_taken_in_every_shape(#[case] text: String) {
    let config = from_json(&text);
    assert_eq!(summary(&config), ["a"]);
    assert_eq!(messages(&config), [""; 0]);
}

#[test]
fn toml_file_is_taken_with_a_byte_order_mark_and_either_key() {
    let text = "\u{feff}[[sandboxes]]\nhost='h'\nuser='u'\npassword='p'\n";
    assert_eq!(summary(&from_toml(text)), ["h"]);
}

#[test]
fn unknown_key_at_the_top_is_a_problem_and_the_rest_goes_on() {
    let config = from_toml("result_stile='text'\n[[sandbox]]\nhost='h'\nuser='u'\npassword='p'\n");
    assert_eq!(summary(&config), ["h"]);
    assert_eq!(
        messages(&config),
        [
            "/c.toml:1: unknown key `result_stile`, known keys: sandboxes, sandbox, advanced_tools, inline_sync_max_files, inline_sync_max_bytes, result_style, host_key_policy, import_ssh_config, toolsets, local, sync, watchdog"
        ]
    );
}

#[rstest]
#[case("not json", "is not valid JSON, see line 1 column 2")]
#[case(
    "[\n{\"password\":\"hunter22\",}]",
    "is not valid JSON, see line 2 column 24"
)]
#[case("[{\"password\":\"hunter22", "is not valid JSON, see line 1 column 22")]
#[case("{}", "must be a JSON array of sandboxes")]
#[case("\"hunter22\"", "must be a JSON array of sandboxes")]
fn malformed_list_is_a_problem_and_the_file_goes_on(#[case] list: &str, #[case] message: &str) {
    let file = Some(("/c.toml", "[[sandbox]]\nhost='h'\nuser='u'\npassword='p'\n"));
    let variables = [
        ("REMOTE_SANDBOX_LIST", list),
        ("REMOTE_HOST", "single"),
        ("REMOTE_USER", "u"),
        ("REMOTE_PASSWORD", "p"),
    ];
    let config = resolve(&sources(&variables, file));
    assert_eq!(
        messages(&config),
        [format!("REMOTE_SANDBOX_LIST: {message}")]
    );
    assert_eq!(summary(&config), ["h"]);
}

#[rstest]
#[case("/c.toml", "a = \n", "is not valid TOML, see line 1 column 5")]
#[case(
    "/c.toml",
    "[[sandbox]]\npassword = \"hunter22\n",
    "is not valid TOML, see line 2 column 21"
)]
#[case("/c.json", "{\"a\":\n}", "is not valid JSON, see line 2 column 1")]
#[case(
    "/c.json",
    "7",
    "must be a table with `sandboxes`, or a list of sandboxes"
)]
fn malformed_file_is_a_problem_and_the_environment_goes_on(
    #[case] path: &str,
    #[case] text: &str,
    #[case] message: &str,
) {
    let list = format!("[{ENTRY}]");
    let variables = [("REMOTE_SANDBOX_LIST", list.as_str())];
    let config = resolve(&sources(&variables, Some((path, text))));
    assert_eq!(messages(&config), [format!("{path}: {message}")]);
    assert_eq!(summary(&config), ["a"]);
}

#[test]
fn file_that_is_not_text_is_a_problem() {
    let mut sources = sources(&[], Some(("/c.toml", "")));
    sources.file.as_mut().unwrap().text = b"a = 1\nb = \"\xff\"\n".to_vec();
    let config = resolve(&sources);
    assert_eq!(
        messages(&config),
        ["/c.toml: is not UTF-8 text, see line 2"]
    );
}

#[test]
fn huge_sources_are_not_read() {
    let text = format!("{}#\n", "\n".repeat(SOURCE_MAX_BYTES));
    let list = format!("{}[]", " ".repeat(SOURCE_MAX_BYTES));
    let variables = [("REMOTE_SANDBOX_LIST", list.as_str())];
    let config = resolve(&sources(&variables, Some(("/c.toml", &text))));
    assert_eq!(
        messages(&config),
        [
            "/c.toml: is larger than 1048576 bytes and was not read",
            "REMOTE_SANDBOX_LIST: is larger than 1048576 bytes and was not read"
        ]
    );
    let fitting = "\n".repeat(SOURCE_MAX_BYTES);
    assert_eq!(messages(&from_toml(&fitting)), [""; 0]);
}

#[rstest]
#[case("{\"a\":", "}")]
#[case("[", "]")]
fn deep_nesting_is_a_problem_and_no_crash(#[case] open: &str, #[case] close: &str) {
    let text = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
    assert_eq!(from_list(&text).problems.len(), 1);
    assert_eq!(from_toml(&format!("a = {text}")).problems.len(), 1);
}

fn many(count: usize, prefix: &str) -> String {
    let entries: Vec<_> = (0..count)
        .map(|index| format!(r#"{{"host":"{prefix}{index}","user":"u","password":"p"}}"#))
        .collect();
    format!("[{}]", entries.join(","))
}

#[test]
fn thousand_sandboxes_are_kept_and_one_more_is_a_problem() {
    let config = from_list(&many(1_000, "h"));
    assert_eq!((config.names().count(), config.problems.len()), (1_000, 0));

    let config = from_list(&many(1_001, "h"));
    assert_eq!(config.names().count(), 1_000);
    assert_eq!(config.names().last().unwrap().as_str(), "h999");
    assert_eq!(
        messages(&config),
        [
            "REMOTE_SANDBOX_LIST: more than 1000 sandboxes are configured, only the first 1000 are kept"
        ]
    );
}

#[test]
fn both_sources_together_keep_a_thousand() {
    let (list, file) = (many(600, "e"), many(600, "f"));
    let variables = [("REMOTE_SANDBOX_LIST", list.as_str())];
    let config = resolve(&sources(&variables, Some(("/c.json", &file))));
    assert_eq!(config.sandboxes.len(), 1_000);
    assert_eq!(config.names().last().unwrap().as_str(), "f399");
    assert_eq!(config.problems.len(), 1);
}

#[test]
fn later_of_two_entries_with_one_name_wins() {
    let list = r#"[{"name":"a","host":"old","user":"u","password":"p"},{"name":"a","host":"new","user":"u","password":"p"}]"#;
    assert_eq!(
        summary(&from_json(list)),
        [
            "!a: /c.json: sandbox[0] (a): another entry with this name comes later",
            "a"
        ]
    );
    let config = from_list(list);
    assert_eq!(
        summary(&config),
        [
            "!a: REMOTE_SANDBOX_LIST[0] (a): another entry with this name comes later",
            "a"
        ]
    );
    assert_eq!(config.ready().next().unwrap().ssh().host, "new");
    assert!(matches!(config.find("a"), Some(SandboxEntry::Ready(_))));
    assert!(config.find("b").is_none());
}

#[test]
fn later_entry_wins_also_when_it_is_broken() {
    let config = from_list(
        r#"[{"name":"a","host":"old","user":"u","password":"p"},{"name":"a","host":"new"}]"#,
    );
    assert_eq!(config.names().count(), 0);
    assert!(matches!(
        config.find("a"),
        Some(SandboxEntry::Disabled { .. })
    ));
}

#[test]
fn environment_wins_over_the_file() {
    let file = "inline_sync_max_files=1\nresult_style='text'\n[[sandbox]]\nname='a'\nhost='file'\nuser='u'\npassword='p'\n[[sandbox]]\nhost='other'\nuser='u'\npassword='p'\n";
    let list = format!("[{ENTRY}]");
    let variables = [
        ("REMOTE_SANDBOX_LIST", list.as_str()),
        ("REMOTE_SANDBOX_INLINE_SYNC_MAX_FILES", "9"),
    ];
    let config = resolve(&sources(&variables, Some(("/c.toml", file))));
    assert_eq!(summary(&config), ["a", "other"]);
    let first = config.ready().next().unwrap();
    assert_eq!(first.ssh().host, "h");
    assert_eq!(
        first.notes,
        ["the entry with this name in /c.toml:3: sandbox[0] is not used"]
    );
    assert_eq!(config.settings.inline_sync_max_files, 9);
    assert_eq!(config.settings.result_style, ResultStyle::Text);
}

#[test]
fn environment_wins_over_the_file_also_when_its_entry_is_broken() {
    let file = "[[sandbox]]\nname='a'\nhost='file'\nuser='u'\npassword='p'\n";
    let variables = [("REMOTE_SANDBOX_LIST", r#"[{"name":"a","host":"h"}]"#)];
    let config = resolve(&sources(&variables, Some(("/c.toml", file))));
    assert_eq!(
        summary(&config),
        [
            "!a: REMOTE_SANDBOX_LIST[0] (a): `user`: is required",
            "!a: /c.toml:1: sandbox[0] (a): the entry with this name in REMOTE_SANDBOX_LIST[0] takes its place"
        ]
    );
}

#[rstest]
#[case::unset(None, &["single"])]
#[case::empty(Some(""), &["single"])]
#[case::blank(Some("  "), &["single"])]
#[case::empty_list(Some("[]"), &["single"])]
#[case::list(Some(r#"[{"host":"h","user":"u","password":"p"}]"#), &["h"])]
fn single_variables_count_only_without_a_list(#[case] list: Option<&str>, #[case] wanted: &[&str]) {
    let mut variables = vec![
        ("REMOTE_HOST", "single"),
        ("REMOTE_PORT", "2222"),
        ("REMOTE_USER", "u"),
        ("REMOTE_PASSWORD", "secret"),
        ("REMOTE_KEY_FILE", "~/k"),
        ("REMOTE_KEY_PASSPHRASE", "phrase"),
    ];
    variables.extend(list.map(|list| ("REMOTE_SANDBOX_LIST", list)));
    let config = resolve(&sources(&variables, None));
    assert_eq!(summary(&config), wanted);
    if wanted == ["single"] {
        let ssh = only(&config).ssh();
        assert_eq!((ssh.port, ssh.user.as_str()), (2222, "u"));
        assert_eq!(ssh.key_file.as_deref(), Some(Path::new("/h/k")));
        assert_eq!(clear(ssh.password.as_ref()), "secret");
        assert_eq!(clear(ssh.key_passphrase.as_ref()), "phrase");
    }
}

#[rstest]
#[case(&[("REMOTE_PASSWORD", "p")], "`REMOTE_USER`: is required")]
#[case(&[("REMOTE_USER", ""), ("REMOTE_PASSWORD", "p")], "`REMOTE_USER`: is required")]
#[case(&[("REMOTE_USER", "u"), ("REMOTE_PASSWORD", "p"), ("REMOTE_PORT", "abc")], "`REMOTE_PORT`: must be a whole number from 1 to 65535")]
fn single_variables_are_named_when_they_are_wrong(
    #[case] variables: &[(&str, &str)],
    #[case] message: &str,
) {
    let mut all = vec![("REMOTE_HOST", "box")];
    all.extend_from_slice(variables);
    let config = resolve(&sources(&all, None));
    assert_eq!(
        summary(&config),
        [format!("!box: REMOTE_HOST (box): {message}")]
    );
}

#[test]
fn single_variables_need_no_credential() {
    let variables = [("REMOTE_HOST", "box"), ("REMOTE_USER", "u")];
    let config = resolve(&sources(&variables, None));
    assert!(only(&config).ssh().names_no_credential());
}

#[test]
fn nothing_configured_is_no_problem() {
    let config = resolve(&sources(&[("REMOTE_USER", "u")], None));
    assert!(config.sandboxes.is_empty() && config.problems.is_empty());
}

#[test]
fn secrets_are_known_also_of_disabled_entries() {
    let config = from_list(
        r#"[{"host":"a","user":"u","password":"one"},{"host":"b","port":0,"user":"u","password":"two","key_passphrase":"three"}]"#,
    );
    assert_eq!(config.names().count(), 1);
    assert_eq!(
        config.secrets().collect::<Vec<_>>(),
        ["one", "two", "three"]
    );
}

proptest! {
    #[test]
    fn resolve_never_panics(
        text in proptest::collection::vec(any::<u8>(), 0..200), list in "(?s).{0,100}", json: bool,
    ) {
        let path = if json { "/c.json" } else { "/c.toml" };
        let mut sources = sources(&[("REMOTE_SANDBOX_LIST", &list)], Some((path, "")));
        sources.file.as_mut().unwrap().text = text;
        resolve(&sources);
    }

    #[test]
    fn resolve_lists_every_entry_when_values_are_strange(
        entries in proptest::collection::vec(strange_entry(), 0..6),
    ) {
        let list = serde_json::Value::from(entries.clone()).to_string();
        for config in [from_list(&list), from_json(&list)] {
            prop_assert_eq!(config.sandboxes.len(), entries.len());
            let names: Vec<_> = config.names().collect();
            let distinct: std::collections::BTreeSet<_> = names.iter().collect();
            prop_assert_eq!(distinct.len(), names.len());
            for text in summary(&config) {
                prop_assert!(!text.chars().any(char::is_control), "{}", text);
            }
        }
    }
}

fn strange_entry() -> impl Strategy<Value = serde_json::Value> {
    let value = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        "(?s).{0,3}".prop_map(Into::into),
        proptest::collection::vec("[a-z\n]{0,2}", 0..3).prop_map(Into::into),
        ("(?s).{0,3}", any::<i64>()).prop_map(|(name, value)| serde_json::json!({name: value})),
    ];
    let names: Vec<_> = KEYS.iter().map(|key| key.name).collect();
    let member = (proptest::sample::select(names), value);
    proptest::collection::vec(member, 0..4).prop_map(|members| {
        let mut entry = serde_json::json!({"name": "n", "host": "h", "user": "u", "password": "p"});
        for (key, value) in members {
            entry[key] = value;
        }
        entry
    })
}
