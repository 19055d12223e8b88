use rstest::rstest;

use crate::config::testing::*;
use crate::config::*;

fn entry(members: &str) -> Config {
    from_list(&format!("[{{{COMPLETE},{members}}}]"))
}

#[test]
fn surroundings_are_read_from_the_file() {
    let config = from_toml(
        r#"
        [[sandbox]]
        ssh_alias = "gpu1"
        init = """
        module load cuda
        source ~/miniconda3/bin/activate exp
        """
        workdir = "~/work"
        shell = "/usr/bin/zsh"
        tags = ["a100", "实验", "a100"]
        [sandbox.env]
        OMP_NUM_THREADS = 8
        DEBUG = true
        EMPTY = ""
        HF_HOME = "/data/it's here"
        "#,
    );
    let sandbox = only(&config);
    let surroundings = &sandbox.surroundings;
    let mut variables: Vec<_> = surroundings
        .variables
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    variables.sort_unstable();
    assert_eq!(
        variables,
        [
            ("DEBUG", "true"),
            ("EMPTY", ""),
            ("HF_HOME", "/data/it's here"),
            ("OMP_NUM_THREADS", "8")
        ]
    );
    assert!(surroundings.init.as_ref().unwrap().contains("load cuda\n"));
    assert_eq!(surroundings.workdir.as_deref(), Some("~/work"));
    assert_eq!(surroundings.shell.as_deref(), Some("/usr/bin/zsh"));
    assert_eq!(sandbox.tags, ["a100", "实验"]);
}

#[test]
fn surroundings_are_read_from_the_list_and_empty_when_absent() {
    let config = entry(r#""env":{"A":"1","B":null},"tags":"lab","workdir":"","init":null"#);
    let sandbox = only(&config);
    assert_eq!(sandbox.surroundings.variables.len(), 1);
    assert_eq!(sandbox.tags, ["lab"]);
    assert!(sandbox.notes.is_empty());
    let plain = from_list(&format!("[{ENTRY}]"));
    assert_eq!(only(&plain).surroundings, Surroundings::default());
    assert!(only(&plain).tags.is_empty());
}

#[rstest]
#[case(r#""env":"A=1""#, "`env`: must be a table")]
#[case(r#""env":["A"]"#, "`env`: must be a table")]
#[case(
    r#""env":{"1A":"x"}"#,
    "`env.1A`: is no name for an environment variable"
)]
#[case(r#""env":{"":"x"}"#, "`env.`: is no name")]
#[case(r#""env":{"A B":"x"}"#, "`env.A B`: is no name")]
#[case(r#""env":{"UID":"1"}"#, "`env.UID`: is no name")]
#[case(r#""env":{"V":3.10}"#, "`env.V`: must be text of at most 64 KiB")]
#[case(r#""env":{"V":99999999999999999999}"#, "`env.V`: must be text")]
#[case(r#""env":{"V":["x"]}"#, "`env.V`: must be text")]
#[case(r#""env":{"V":"a\u0000b"}"#, "`env.V`: must be text")]
#[case(r#""init":["a"]"#, "`init`: must be text in quotes")]
#[case(
    r#""init":"a\u0000b""#,
    "`init`: must be text of at most 64 KiB without NUL"
)]
#[case(r#""workdir":"a\nb""#, "`workdir`: must be a directory")]
#[case(r#""workdir":"a\u0000b""#, "`workdir`: must be a directory")]
#[case(r#""workdir":"~root/x""#, "`workdir`: `~` is only understood alone")]
#[case(r#""shell":"bash -l""#, "`shell`: must be the name of a shell")]
#[case(r#""shell":"~/zsh""#, "`shell`: must be the name of a shell")]
#[case(r#""tags":7"#, "`tags`: must be at most 32 tags")]
#[case(r#""tags":["a",""]"#, "`tags`: must be at most 32 tags")]
#[case(r#""tags":["a b"]"#, "`tags`: must be at most 32 tags")]
#[case(r#""tags":["a/b"]"#, "`tags`: must be at most 32 tags")]
fn entry_is_disabled_when_its_surroundings_are_wrong(#[case] members: &str, #[case] message: &str) {
    let summary = summary(&entry(members)).concat();
    let start = format!("!h: REMOTE_SANDBOX_LIST[0] (h): {message}");
    assert!(summary.starts_with(&start), "{summary}");
}

#[test]
fn wrong_variable_names_its_line_in_the_file() {
    let config = from_toml("[[sandbox]]\nssh_alias='a'\n[sandbox.env]\nA='1'\nB=[1]\n");
    let summary = summary(&config).concat();
    assert!(
        summary.starts_with("!a: /c.toml:5: sandbox[0] (a): `env.B`: "),
        "{summary}"
    );
}

fn table(count: usize) -> String {
    let members: Vec<_> = (0..count).map(|index| format!(r#""V{index}":1"#)).collect();
    format!(r#""env":{{{}}}"#, members.join(","))
}

fn tags(count: usize) -> String {
    let members: Vec<_> = (0..count).map(|index| format!(r#""t{index}""#)).collect();
    format!(r#""tags":[{},"t0"]"#, members.join(","))
}

fn text(key: &str, length: usize) -> String {
    format!(r#""{key}":"{}""#, "x".repeat(length))
}

#[rstest]
#[case::variables(table(256), table(257))]
#[case::value(format!(r#""env":{{{}}}"#, text("V", 65_536)), format!(r#""env":{{{}}}"#, text("V", 65_537)))]
#[case::init(text("init", 65_536), text("init", 65_537))]
#[case::workdir(text("workdir", 4096), text("workdir", 4097))]
#[case::shell(text("shell", 255), text("shell", 256))]
#[case::tags(tags(32), tags(33))]
#[case::tag(text("tags", 64), text("tags", 65))]
fn surroundings_are_bounded(#[case] fitting: String, #[case] too_much: String) {
    assert_eq!(summary(&entry(&fitting)), ["h"]);
    assert!(summary(&entry(&too_much))[0].starts_with("!h: "));
}

#[rstest]
#[case("HF_TOKEN", "\"hf_0123456\"", true)]
#[case("openai_api_key", "\"sk-012345\"", true)]
#[case("AWS_SECRET_ACCESS_KEY", "\"abcdefgh\"", true)]
#[case("DB_PASSWD", "12345678", true)]
#[case("HF_TOKEN", "\"short\"", false)]
#[case("HF_HOME", "\"/data/hugging\"", false)]
fn variable_is_masked_when_its_name_says_so(
    #[case] name: &str,
    #[case] value: &str,
    #[case] wanted: bool,
) {
    let plain = value.trim_matches('"');
    // Also of an entry that cannot be used.
    for more in ["", r#","port":0"#] {
        let config = entry(&format!(r#""env":{{"{name}":{value}}}{more}"#));
        assert_eq!(config.secrets().any(|secret| secret == plain), wanted);
    }
}

#[test]
fn surroundings_show_no_value_when_printed_for_debugging() {
    let config = entry(r#""env":{"A":"hunter22"},"init":"export B=hunter22""#);
    let text = format!("{config:?}");
    assert!(text.contains("variables: [\"A\"]"), "{text}");
    assert!(!text.contains("hunter22"), "{text}");
}
