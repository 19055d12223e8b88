//! A secret must not show up in anything that is printed, whatever is wrong around it.

use proptest::prelude::*;

use super::testing::sources;
use super::*;

const CANARY: &str = "canary-9f3a71";

/// Everything a log or a reply could show of a configuration.
fn shown(config: &Config) -> String {
    let mut text = format!("{config:?}\n{config:#?}\n");
    for entry in &config.sandboxes {
        text.push_str(entry.name());
        if let SandboxEntry::Disabled { problem, .. } = entry {
            text.push_str(&problem.to_string());
        }
    }
    for problem in &config.problems {
        text.push_str(&problem.to_string());
    }
    text
}

fn assert_hidden(sources: &Sources) {
    let config = resolve(sources);
    let text = shown(&config) + &format!("{sources:?}");
    assert!(!text.contains("canary"), "{text}");
}

/// Ways to write a secret into an entry, right and wrong.
fn secret_member() -> impl Strategy<Value = String> {
    let key = prop_oneof![Just("password"), Just("key_passphrase")];
    let form = prop_oneof![
        Just(format!("\"{CANARY}\"")),
        Just(format!("[\"{CANARY}\"]")),
        Just(format!("{{\"x\":\"{CANARY}\"}}")),
        Just(format!("[[\"{CANARY}\"], 1]")),
    ];
    let plain = (key.clone(), form).prop_map(|(key, form)| format!("\"{key}\":{form}"));
    let other = key.prop_flat_map(|key| {
        prop_oneof![
            Just(format!("\"{key}_command\":\"echo {CANARY}\"")),
            Just(format!("\"{key}_command\":[\"echo\",\"{CANARY}\"]")),
            Just(format!("\"{key}_command\":[\"echo\",\"{CANARY}\",1]")),
            Just(format!("\"{key}_env\":\"{CANARY}\"")),
            Just(format!("\"{key}_env\":\"HOLDER\"")),
            Just(format!("\"{key}_secret\":\"{CANARY} \"")),
            Just(format!("\"{key}_secret\":[\"{CANARY}\"]")),
            Just(format!("\"env\":{{\"API_TOKEN\":\"{CANARY}\"}}")),
            Just(format!(
                "\"env\":{{\"1X\":\"{CANARY}\",\"Y\":[\"{CANARY}\"]}}"
            )),
            Just(format!("\"init\":\"export A={CANARY}\"")),
            Just(format!("\"init\":[\"{CANARY}\"]")),
        ]
    });
    prop_oneof![plain, other]
}

fn other_member() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just(r#""port":0"#),
        Just(r#""name":"a\nb""#),
        Just(r#""name":"a""#),
        Just(r#""unknown":1"#),
        Just(r#""user":"-""#),
        Just(r#""key_file":"~x""#),
        Just(r#""key_file":"k""#),
        Just(r#""host_key_policy":1"#),
        Just(r#""transport":"openssh""#),
        Just(r#""ssh_alias":"g""#),
    ]
}

fn entry() -> impl Strategy<Value = String> {
    let secrets = proptest::collection::vec(secret_member(), 1..4);
    let others = proptest::collection::vec(other_member(), 0..3);
    (secrets, others).prop_map(|(secrets, others)| {
        let head = r#""host":"h","user":"u""#;
        format!("{{{head},{},{}}}", secrets.join(","), others.join(",")).replace(",}", "}")
    })
}

/// A member of `[local]` that holds the canary where it is wrong or where it must not be shown.
fn local_member() -> impl Strategy<Value = String> {
    let words = [
        "isolation",
        "network",
        "memory_mb",
        "processes",
        "cpu_percent",
    ];
    let wrong = prop::sample::select(words.to_vec()).prop_flat_map(|key| {
        prop_oneof![
            Just(format!("\"{key}\":\"{CANARY}\"")),
            Just(format!("\"{key}\":[\"{CANARY}\"]")),
        ]
    });
    let other = prop_oneof![
        Just(format!("\"readable\":[\"/{CANARY}/..\"]")),
        Just(format!("\"readable\":\"~{CANARY}\"")),
        Just(format!("\"readable\":{{\"x\":\"{CANARY}\"}}")),
        Just(format!("\"env\":{{\"API_TOKEN\":\"{CANARY}\"}}")),
        Just(format!(
            "\"env\":{{\"1X\":\"{CANARY}\",\"Y\":[\"{CANARY}\"]}}"
        )),
        Just(format!("\"env\":\"{CANARY}\"")),
        Just(format!("\"init\":\"export A={CANARY}\"")),
        Just(format!("\"init\":[\"{CANARY}\"]")),
        Just(format!("\"workdir\":\"~{CANARY}\"")),
        Just(format!("\"shell\":\"sh -c {CANARY}\"")),
        Just(format!("\"tags\":[\"{CANARY} x\"]")),
        Just(format!("\"unknown\":\"{CANARY}\"")),
    ];
    prop_oneof![wrong, other]
}

proptest! {
    #[test]
    fn canary_is_hidden_when_local_is_right_or_wrong(
        members in proptest::collection::vec(local_member(), 1..5), is_list: bool,
    ) {
        let table = format!("{{{}}}", members.join(","));
        let local = if is_list { format!("[{table}]") } else { table };
        let file = format!("{{\"toolsets\":[\"{CANARY}\"],\"local\":{local}}}");
        let variables = [("REMOTE_SANDBOX_TOOLSETS", CANARY)];
        assert_hidden(&sources(&variables, Some(("/c.json", &file))));
    }

    #[test]
    fn canary_is_hidden_when_entries_are_right_or_wrong(
        entries in proptest::collection::vec(entry(), 1..4),
    ) {
        let list = format!("[{}]", entries.join(","));
        let file = format!("{{\"sandboxes\":{list}}}");
        let variables = [("REMOTE_SANDBOX_LIST", list.as_str()), ("HOLDER", CANARY)];
        assert_hidden(&sources(&variables, Some(("/c.json", &file))));
        assert_hidden(&sources(&variables[1..], Some(("/c.json", &list))));
    }

    #[test]
    fn canary_is_hidden_when_json_is_broken_near_it(
        entry in entry(), position: prop::sample::Index, junk in "[\\]\\[{}\",:x\\\\\u{1}é]{0,2}", cut: bool,
    ) {
        let mut list = format!("[{entry}]");
        let at = before_canary(&list, position.index(list.len() + 1));
        if cut { list.truncate(at); } else { list.insert_str(at, &junk); }
        // Junk may turn the canary into a key, and keys are shown by design.
        if canary_is_a_key(&list) {
            return Ok(());
        }
        let variables = [("REMOTE_SANDBOX_LIST", list.as_str()), ("HOLDER", CANARY)];
        assert_hidden(&sources(&variables, Some(("/c.json", &list))));
    }

    #[test]
    fn canary_is_hidden_when_toml_is_broken_near_it(
        key in "password|key_passphrase|password_command|key_passphrase_env",
        before in "[\\[\\]\"'= .]{0,2}", after in "[\\[\\]\"' \n.#]{0,2}", port in 0u32..2,
    ) {
        let text = format!(
            "[[sandbox]]\nhost='h'\nuser='u'\nport={port}\n{key} = {before}\"{CANARY}\"{after}\nname='a'\n"
        );
        assert_hidden(&sources(&[], Some(("/c.toml", &text))));
    }
}

/// The canary stays whole, so that a leak of it can be seen.
fn before_canary(text: &str, at: usize) -> usize {
    text.match_indices(CANARY)
        .map(|(start, found)| start..start + found.len())
        .find(|range| range.contains(&at))
        .map_or(at, |range| range.start)
}

fn canary_is_a_key(text: &str) -> bool {
    text.match_indices(CANARY).any(|(start, found)| {
        text[start + found.len()..]
            .trim_start_matches(['"', 'x', 'é'])
            .starts_with(':')
    })
}

#[test]
fn canary_is_hidden_when_it_comes_from_single_variables() {
    let variables = [
        ("REMOTE_HOST", "h"),
        ("REMOTE_USER", "u"),
        ("REMOTE_PORT", "0"),
        ("REMOTE_PASSWORD", CANARY),
        ("REMOTE_KEY_PASSPHRASE", CANARY),
    ];
    assert_hidden(&sources(&variables, None));
    assert_hidden(&sources(&variables[3..], None));
}
