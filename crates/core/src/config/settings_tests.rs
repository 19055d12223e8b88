use rstest::rstest;

use super::WANTED_TOOLSETS;
use crate::config::testing::*;
use crate::config::*;

#[rstest]
#[case(
    "advanced_tools='yes'",
    "/c.toml:1: `advanced_tools`: must be true or false"
)]
#[case(
    "\ninline_sync_max_files='many'",
    "/c.toml:2: `inline_sync_max_files`: must be a whole number"
)]
#[case(
    "result_style='xml'",
    "/c.toml:1: `result_style`: must be \"json\" or \"text\""
)]
#[case(
    "host_key_policy='no'",
    "/c.toml:1: `host_key_policy`: must be one of \"accept-new\", \"strict\", \"insecure\""
)]
#[case(
    "toolsets=['containers','gpus']",
    "/c.toml:1: `toolsets`: must be a list of these words: containers, advanced"
)]
#[case(
    "toolsets=true",
    "/c.toml:1: `toolsets`: must be a list of these words: containers, advanced"
)]
#[case(
    "[sandbox]\nhost='h'",
    "/c.toml:1: `sandbox`: must be a list of sandboxes ([[sandbox]] in TOML)"
)]
fn top_level_mistake_is_a_problem_and_the_rest_goes_on(#[case] line: &str, #[case] message: &str) {
    let config = from_toml(&format!(
        "{line}\n[[sandboxes]]\nhost='g'\nuser='u'\npassword='p'\n"
    ));
    assert_eq!(messages(&config), [message]);
    assert_eq!(summary(&config), ["g"]);
    assert_eq!(config.settings, Settings::default());
}

#[rstest]
#[case("1", true)]
#[case("TRUE", true)]
#[case(" yes ", true)]
#[case("on", true)]
#[case("0", false)]
#[case("off", false)]
#[case("", false)]
fn advanced_tools_are_switched_by_the_environment(#[case] text: &str, #[case] wanted: bool) {
    let variables = [("REMOTE_SANDBOX_EXPOSE_ADVANCED_TOOLS", text)];
    let config = resolve(&sources(&variables, None));
    assert_eq!(config.settings.advanced_tools, wanted);
    assert!(config.problems.is_empty());
}

#[rstest]
#[case("500", 500, 0)]
#[case("0", 0, 0)]
#[case("-7", 0, 0)]
#[case("many", 200, 1)]
#[case("1.5", 200, 1)]
#[case("99999999999999999999999", 200, 1)]
fn inline_bounds_come_from_the_environment(
    #[case] text: &str,
    #[case] wanted: u64,
    #[case] problems: usize,
) {
    let variables = [("REMOTE_SANDBOX_INLINE_SYNC_MAX_FILES", text)];
    let config = resolve(&sources(&variables, None));
    assert_eq!(config.settings.inline_sync_max_files, wanted);
    assert_eq!(config.settings.inline_sync_max_bytes, 64 * 1024 * 1024);
    assert_eq!(config.problems.len(), problems);
}

#[test]
fn environment_setting_that_is_garbage_leaves_the_file_in_force() {
    let variables = [
        ("REMOTE_SANDBOX_RESULT_STYLE", "xml"),
        ("REMOTE_SANDBOX_EXPOSE_ADVANCED_TOOLS", "maybe"),
        ("REMOTE_SANDBOX_INLINE_SYNC_MAX_BYTES", "x"),
        ("REMOTE_SANDBOX_TOOLSETS", "containers,hunter22"),
    ];
    let config = resolve(&sources(
        &variables,
        Some(("/c.toml", "result_style='text'\ntoolsets=[]")),
    ));
    assert_eq!(config.settings.result_style, ResultStyle::Text);
    assert_eq!(config.settings.toolsets, Some(BTreeSet::new()));
    assert_eq!(
        messages(&config),
        [
            "REMOTE_SANDBOX_EXPOSE_ADVANCED_TOOLS: must be one of 1, true, yes, on, 0, false, no, off; it is ignored",
            "REMOTE_SANDBOX_INLINE_SYNC_MAX_BYTES: must be a whole number; it is ignored",
            "REMOTE_SANDBOX_RESULT_STYLE: must be \"json\" or \"text\"; it is ignored",
            "REMOTE_SANDBOX_TOOLSETS: must be a list of these words: containers, advanced; it is ignored"
        ]
    );
}

#[rstest]
#[case("accept-new", HostKeyPolicy::AcceptNew, 0)]
#[case("strict", HostKeyPolicy::Strict, 0)]
#[case("insecure", HostKeyPolicy::Insecure, 1)]
fn entry_policy_wins_over_the_file(
    #[case] text: &str,
    #[case] wanted: HostKeyPolicy,
    #[case] notes: usize,
) {
    let list = format!(
        r#"[{{"name":"own",{COMPLETE},"host_key_policy":"{text}"}},{{"name":"none",{COMPLETE}}}]"#
    );
    let variables = [("REMOTE_SANDBOX_LIST", list.as_str())];
    let config = resolve(&sources(
        &variables,
        Some(("/c.toml", "host_key_policy='strict'")),
    ));
    let all: Vec<_> = config.ready().collect();
    assert_eq!(all[0].ssh().host_keys.policy, wanted);
    assert_eq!(all[0].notes.len(), notes);
    assert_eq!(all[1].ssh().host_keys.policy, HostKeyPolicy::Strict);
    assert_eq!(wanted.as_str(), text);
}

#[rstest]
#[case("", true)]
#[case("on", true)]
#[case("off", false)]
#[case("0", false)]
#[case("perhaps", true)]
fn watchdog_can_be_turned_off(#[case] text: &str, #[case] is_on: bool) {
    let variables = [("REMOTE_SANDBOX_WATCHDOG", text)];
    let config = resolve(&sources(&variables, None));
    assert_eq!(config.settings.watchdog, is_on);
    assert_eq!(config.problems.len(), usize::from(text == "perhaps"));
}

#[test]
fn toolsets_are_known_by_their_words() {
    for (word, toolset) in Toolset::WORDS {
        assert_eq!(toolset.word(), word);
        assert!(WANTED_TOOLSETS.contains(word), "{word}");
        for text in [
            format!("toolsets='{word}'"),
            format!("toolsets=['{word}','{word}']"),
        ] {
            let settings = from_toml(&text).settings;
            assert_eq!(settings.toolsets, Some(BTreeSet::from([toolset])));
        }
    }
}

#[rstest]
#[case("", "", None)]
#[case("", "toolsets=[]", Some(&[][..]))]
#[case("containers", "", Some(&[Toolset::Containers][..]))]
#[case(" containers ,, containers,", "toolsets=[]", Some(&[Toolset::Containers][..]))]
#[case("", "toolsets=['containers']", Some(&[Toolset::Containers][..]))]
#[case(",", "toolsets=['containers']", Some(&[][..]))]
fn toolsets_of_the_environment_win_over_the_file(
    #[case] variable: &str,
    #[case] file: &str,
    #[case] wanted: Option<&[Toolset]>,
) {
    let variables = [("REMOTE_SANDBOX_TOOLSETS", variable)];
    let config = resolve(&sources(&variables, Some(("/c.toml", file))));
    let wanted = wanted.map(|toolsets| toolsets.iter().copied().collect());
    assert_eq!(config.settings.toolsets, wanted);
    assert!(config.problems.is_empty(), "{:?}", messages(&config));
}
