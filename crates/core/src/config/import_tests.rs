use proptest::prelude::*;
use rstest::rstest;

use crate::config::testing::*;
use crate::config::*;

fn patterns(texts: &[&str]) -> Vec<HostPattern> {
    let parse = |text: &&str| HostPattern::parse(text).unwrap();
    texts.iter().map(parse).collect()
}

fn import(texts: &[&str], names: &[&str], config: &Config) -> Vec<String> {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let entries = imported(&patterns(texts), &names, config);
    entries
        .iter()
        .map(|entry| entry.name().to_owned())
        .collect()
}

#[rstest]
#[case("gpu1", "gpu1", true)]
#[case("gpu1", "gpu10", false)]
#[case("gpu1", "GPU1", false)]
#[case("gpu*", "gpu", true)]
#[case("gpu*", "my-gpu", false)]
#[case("gpu?", "gpu1", true)]
#[case("gpu?", "gpu", false)]
#[case("*", "anything", true)]
#[case("**", "", true)]
#[case("a*b*c", "a-b-b-c", true)]
#[case("a*b*c", "a-c-b", false)]
#[case("*.example.org", "a.b.example.org", true)]
#[case("*ab", "aab", true)]
#[case("?", "é", true)]
#[case("!gpu*", "gpu1", true)]
fn pattern_fits_as_in_the_ssh_configuration(
    #[case] pattern: &str,
    #[case] name: &str,
    #[case] wanted: bool,
) {
    let pattern_read = HostPattern::parse(pattern).unwrap();
    assert_eq!(pattern_read.matches(name), wanted);
    assert_eq!(pattern_read.excludes(), pattern.starts_with('!'));
}

#[rstest]
#[case("")]
#[case("!")]
#[case("!!a")]
#[case("a b")]
#[case("a,b")]
#[case("a!b")]
#[case("-oProxyCommand=x")]
#[case("$(id)")]
#[case("a\nb")]
fn pattern_is_refused_when_no_name_could_fit(#[case] text: &str) {
    assert_eq!(HostPattern::parse(text), Err(HostPatternError));
}

/// The plain meaning of a pattern, too slow for use.
fn fits(pattern: &[char], name: &[char]) -> bool {
    match pattern {
        [] => name.is_empty(),
        ['*', rest @ ..] => (0..=name.len()).any(|taken| fits(rest, &name[taken..])),
        ['?', rest @ ..] => !name.is_empty() && fits(rest, &name[1..]),
        [first, rest @ ..] => name.first() == Some(first) && fits(rest, &name[1..]),
    }
}

proptest! {
    #[test]
    fn pattern_means_what_the_plain_rule_says(pattern in "[ab*?]{1,8}", name in "[ab]{0,10}") {
        let characters = |text: &str| text.chars().collect::<Vec<_>>();
        let wanted = fits(&characters(&pattern), &characters(&name));
        prop_assert_eq!(HostPattern::parse(&pattern).unwrap().matches(&name), wanted);
    }
}

#[test]
fn pattern_with_many_stars_is_quick() {
    let pattern = HostPattern::parse(&format!("{}b", "*a".repeat(120))).unwrap();
    assert!(!pattern.matches(&"a".repeat(10_000)));
}

#[rstest]
#[case("import_ssh_config = 'gpu*'", &["gpu1"])]
#[case("import_ssh_config = ['gpu*', 'cpu']", &["gpu1", "cpu"])]
#[case("import_ssh_config = ['*', '!gpu*']", &["cpu"])]
#[case("import_ssh_config = ['!gpu1', '*']", &["cpu"])]
#[case("import_ssh_config = []", &[])]
#[case("import_ssh_config = ''", &[])]
#[case("", &[])]
fn file_says_which_hosts_are_imported(#[case] text: &str, #[case] wanted: &[&str]) {
    let config = from_toml(text);
    assert_eq!(messages(&config), [""; 0]);
    let names = ["gpu1", "cpu"].map(str::to_owned);
    let entries = imported(&config.import_ssh_config, &names, &config);
    let names: Vec<_> = entries.iter().map(SandboxEntry::name).collect();
    assert_eq!(names, wanted);
}

#[rstest]
#[case("7")]
#[case("['gpu*', 7]")]
#[case("['']")]
#[case("'gpu1 gpu2'")]
#[case("['!gpu*']")]
fn wrong_patterns_of_the_file_are_a_problem(#[case] value: &str) {
    let config = from_toml(&format!("\nimport_ssh_config = {value}\n"));
    let messages = messages(&config);
    assert!(
        messages[0].starts_with("/c.toml:2: `import_ssh_config`: must be at most 256 patterns"),
        "{messages:?}"
    );
    assert!(config.import_ssh_config.is_empty());
}

#[test]
fn patterns_are_bounded() {
    let list = |count: usize| format!("import_ssh_config = [{}]", "'a',".repeat(count));
    assert_eq!(from_toml(&list(256)).import_ssh_config.len(), 256);
    assert_eq!(from_toml(&list(257)).problems.len(), 1);
}

#[rstest]
#[case("gpu*, !gpu9 ,", &["gpu*", "!gpu9"], 0)]
#[case("a b", &["file"], 1)]
#[case("!a", &["file"], 1)]
#[case("", &["file"], 0)]
fn environment_wins_over_the_file_unless_it_is_wrong(
    #[case] text: &str,
    #[case] wanted: &[&str],
    #[case] problems: usize,
) {
    let variables = [("REMOTE_SANDBOX_IMPORT_SSH_CONFIG", text)];
    let file = Some(("/c.toml", "import_ssh_config = 'file'"));
    let config = resolve(&sources(&variables, file));
    assert_eq!(config.import_ssh_config, patterns(wanted));
    assert_eq!(config.problems.len(), problems);
    for message in messages(&config) {
        assert!(
            message.starts_with("REMOTE_SANDBOX_IMPORT_SSH_CONFIG: must be at most 256 patterns")
                && message.ends_with("; it is ignored"),
            "{message}"
        );
    }
}

#[test]
fn imported_host_is_an_alias_with_the_settings_of_the_file() {
    let config = from_toml("host_key_policy = 'insecure'");
    let entries = imported(&patterns(&["*"]), &["gpu1".to_owned()], &config);
    let [SandboxEntry::Ready(sandbox)] = entries.as_slice() else {
        panic!("{entries:?}");
    };
    assert_eq!(sandbox.name.as_str(), "gpu1");
    assert_eq!(sandbox.origin, "imported from the SSH configuration");
    assert_eq!(sandbox.transport, Transport::Builtin);
    assert_eq!(sandbox.notes.len(), 1);
    let alias = sandbox.alias();
    assert_eq!(alias.alias.as_str(), "gpu1");
    assert_eq!(alias.host_keys.policy, HostKeyPolicy::Insecure);
    assert!(alias.policy_is_given);
    assert_eq!(alias.limits, GivenLimits::default());
    assert!(alias.port.is_none() && alias.user.is_none() && alias.password.is_none());
}

#[test]
fn import_leaves_out_what_is_no_name_or_has_an_entry() {
    let config = from_list(&format!(
        r#"[{{"name":"own",{COMPLETE}}},{{"name":"broken","host":"h"}}]"#
    ));
    let long = "x".repeat(65);
    let names = [
        "own", "broken", "gpu*", "!gpu", "a b", "-v", "", &long, "good", "good", "also",
    ];
    assert_eq!(import(&["*"], &names, &config), ["good", "also"]);
    assert_eq!(import(&[], &names, &config), [""; 0]);
}

#[test]
fn import_keeps_to_the_number_of_sandboxes() {
    let config = from_list(&format!("[{ENTRY}]"));
    let names: Vec<_> = (0..1_200).map(|index| format!("h{index}")).collect();
    let entries = imported(&patterns(&["h*"]), &names, &config);
    assert_eq!(entries.len(), SANDBOXES_MAX - 1);
}
