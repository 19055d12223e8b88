use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use rstest::rstest;

use crate::config::testing::*;
use crate::config::*;

#[test]
fn list_gives_sandboxes_with_defaults() {
    let config = from_list(r#"[{"host":"10.0.0.1","user":"u","password":"p"}]"#);
    let sandbox = only(&config);
    assert_eq!(sandbox.name.as_str(), "10.0.0.1");
    assert_eq!(sandbox.origin, "REMOTE_SANDBOX_LIST[0]");
    assert_eq!(sandbox.ssh().host, "10.0.0.1");
    assert_eq!(sandbox.ssh().port, 22);
    assert_eq!(sandbox.ssh().user, "u");
    assert_eq!(clear(sandbox.ssh().password.as_ref()), "p");
    assert_eq!(sandbox.ssh().host_keys, HostKeySettings::default());
    assert_eq!(sandbox.ssh().limits, Limits::default());
    assert!(sandbox.notes.is_empty());
    assert!(config.problems.is_empty());
    assert_eq!(config.settings, Settings::default());
}

#[test]
fn toml_file_gives_sandboxes_with_every_key() {
    let config = from_toml(
        r#"
        advanced_tools = true
        inline_sync_max_files = 5
        inline_sync_max_bytes = -1
        result_style = "text"
        host_key_policy = "strict"
        toolsets = ["containers"]
        [[sandbox]]
        name = "gpu1"
        host = "[fe80::1]"
        port = "2222"
        user = "ubuntu"
        key_file = "~/.ssh/id"
        key_passphrase = "passphrase"
        password_command = ["pass", "show", "gpu1"]
        known_hosts_files = ["kh", "/etc/kh"]
        connect_timeout_s = 0.5
        banner_timeout_s = 1
        key_exchange_timeout_s = "2.5"
        auth_timeout_s = 3600
        keepalive_s = 4
        keepalive_max = 5
        "#,
    );
    let ssh = only(&config).ssh();
    assert_eq!(only(&config).origin, "/c.toml:8: sandbox[0]");
    assert_eq!((ssh.host.as_str(), ssh.port), ("fe80::1", 2222));
    assert_eq!(ssh.key_file.as_deref(), Some(Path::new("/h/.ssh/id")));
    assert_eq!(clear(ssh.key_passphrase.as_ref()), "passphrase");
    assert!(
        matches!(&ssh.password, Some(SecretSource::Command(argv)) if *argv == ["pass", "show", "gpu1"])
    );
    assert_eq!(ssh.host_keys.policy, HostKeyPolicy::Strict);
    let files = [PathBuf::from("/h/kh"), PathBuf::from("/etc/kh")];
    assert_eq!(ssh.host_keys.known_hosts_files, files);
    let limits = Limits {
        tcp: Duration::from_millis(500),
        banner: Duration::from_secs(1),
        key_exchange: Duration::from_millis(2500),
        authentication: Duration::from_secs(3600),
        keepalive_interval: Duration::from_secs(4),
        keepalive_max: 5,
    };
    assert_eq!(ssh.limits, limits);
    let settings = Settings {
        advanced_tools: true,
        inline_sync_max_files: 5,
        inline_sync_max_bytes: 0,
        result_style: ResultStyle::Text,
        host_key_policy: HostKeyPolicy::Strict,
        toolsets: Some(BTreeSet::from([Toolset::Containers])),
        watchdog: true,
    };
    assert_eq!(config.settings, settings);
    assert!(config.problems.is_empty(), "{:?}", messages(&config));
}

#[rstest]
#[case(r#""user":"u","password":"p""#, "`host`: is required")]
#[case(r#""host":"","user":"u","password":"p""#, "(n): `host`: is required")]
#[case(r#""host":"h","password":"p""#, "`user`: is required")]
#[case(
    r#""host":"h","ssh_alias":"g","user":"u""#,
    "give only one of `host` and `ssh_alias`: both say where the host is"
)]
#[case(r#""ssh_alias":"-oX""#, "`ssh_alias`: must be a name of the SSH")]
#[case(r#""ssh_alias":"gpu*""#, "`ssh_alias`: must be a name of the SSH")]
#[case(r#""ssh_alias":7"#, "`ssh_alias`: must be text in quotes")]
#[case(r#""ssh_alias":"g","port":0"#, "`port`: must be a whole number")]
#[case(r#""ssh_alias":"g","user":"-l""#, "`user`: must be a user name")]
#[case(
    r#""ssh_alias":"g","transport":"ssh""#,
    "`transport`: must be one of \"builtin\", \"openssh\""
)]
#[case(
    r#""ssh_alias":"g","transport":1"#,
    "`transport`: must be text in quotes"
)]
#[case(
    r#""ssh_alias":"g","require_existing_master":true"#,
    "`require_existing_master`: is only understood beside `transport` \"openssh\""
)]
#[case(
    r#""ssh_alias":"g","transport":"builtin","require_existing_master":true"#,
    "`require_existing_master`: is only understood beside"
)]
#[case(
    r#""ssh_alias":"g","transport":"openssh","require_existing_master":"yes""#,
    "`require_existing_master`: must be true or false"
)]
#[case(
    r#""ssh_alias":"g","transport":"openssh","password":"p""#,
    "`password`: has no place beside `transport` \"openssh\": the system's ssh logs in by itself"
)]
#[case(
    r#""host":"h","user":"u","transport":"openssh","key_file":"k","key_passphrase_secret":"n""#,
    "`key_passphrase_secret`: has no place beside"
)]
#[case(
    r#""host":"h","user":"u","password_secret":"two words""#,
    "`password_secret`: must be the name of a kept secret"
)]
#[case(
    r#""host":"h","user":"u","password_secret":["n"]"#,
    "`password_secret`: must be text in quotes"
)]
#[case(
    r#""host":"h","user":"u","password_secret":"n","password_command":["a"]"#,
    "give only one of `password_command`, `password_secret`"
)]
#[case(
    r#""host":"h","user":"u","password":12345678"#,
    "`password`: must be text in quotes"
)]
#[case(
    r#""host":"-oProxyCommand","user":"u","password":"p""#,
    "`host`: must be a host name"
)]
#[case(
    r#""host":"a b","user":"u","password":"p""#,
    "`host`: must be a host name"
)]
#[case(
    r#""host":"[::1","user":"u","password":"p""#,
    "`host`: must be a host name"
)]
#[case(
    r#""host":"[::1]:22","user":"u","password":"p""#,
    "`host`: must be a host name"
)]
#[case(
    r#""host":"h","user":"-l","password":"p""#,
    "`user`: must be a user name"
)]
#[case(
    r#""host":"h","user":"a\nb","password":"p""#,
    "`user`: must be a user name"
)]
#[case(
    r#""host":"h","user":"u","key_file":"~root/k""#,
    "`key_file`: `~` is only understood alone or before `/`"
)]
#[case(
    r#""host":"h","user":"u","key_file":"/a\u0000b""#,
    "`key_file`: must be a path without control characters"
)]
#[case(
    r#""host":"h","user":"u","key_file":["/a"]"#,
    "`key_file`: must be text in quotes"
)]
#[case(
    r#""host":"h","user":"u","password_env":"NOT_THERE""#,
    "`password_env`: the environment variable `NOT_THERE` is not set or empty"
)]
#[case(
    r#""host":"h","user":"u","password_env":"EMPTY""#,
    "`EMPTY` is not set or empty"
)]
#[case(
    r#""host":"h","user":"u","password_env":"hunter-22""#,
    "`password_env`: must be the name of an environment variable"
)]
#[case(
    r#""host":"h","user":"u","password_command":"pass show x""#,
    "`password_command`: must be a list of a program and its arguments"
)]
#[case(
    r#""host":"h","user":"u","password_command":[]"#,
    "`password_command`: must be a list"
)]
#[case(
    r#""host":"h","user":"u","password_command":[""]"#,
    "`password_command`: must be a list"
)]
#[case(
    r#""host":"h","user":"u","password_command":["a",1]"#,
    "`password_command`: must be a list"
)]
#[case(
    r#""host":"h","user":"u","password":"p","password_env":"EMPTY""#,
    "give only one of `password`, `password_env`"
)]
#[case(
    r#""host":"h","user":"u","password":"p","key_passphrase":"p","key_passphrase_command":["a"]"#,
    "give only one of `key_passphrase`, `key_passphrase_command`"
)]
fn entry_is_disabled_when_a_rule_is_broken(#[case] members: &str, #[case] message: &str) {
    let list = format!(r#"[{{"name":"n",{members}}},{{"name":"good",{COMPLETE}}}]"#);
    let config = resolve(&sources(
        &[("REMOTE_SANDBOX_LIST", &list), ("EMPTY", "")],
        None,
    ));
    let summary = summary(&config);
    assert_eq!(summary[1], "good");
    assert!(
        summary[0].starts_with("!n: REMOTE_SANDBOX_LIST[0] (n): "),
        "{}",
        summary[0]
    );
    assert!(summary[0].contains(message), "{}", summary[0]);
    assert!(config.problems.is_empty());
    assert_eq!(
        config.names().map(SandboxName::as_str).collect::<Vec<_>>(),
        ["good"]
    );
}

#[rstest]
#[case("port", "0", "a whole number from 1 to 65535")]
#[case("port", "70000", "a whole number from 1 to 65535")]
#[case("port", "-22", "a whole number from 1 to 65535")]
#[case("port", "22.5", "a whole number from 1 to 65535")]
#[case("port", "\"abc\"", "a whole number from 1 to 65535")]
#[case("port", "true", "a whole number from 1 to 65535")]
#[case("port", "1e300", "a whole number from 1 to 65535")]
#[case(
    "connect_timeout_s",
    "0",
    "a number of seconds above 0 and at most 3600"
)]
#[case(
    "banner_timeout_s",
    "-1",
    "a number of seconds above 0 and at most 3600"
)]
#[case(
    "auth_timeout_s",
    "3601",
    "a number of seconds above 0 and at most 3600"
)]
#[case(
    "keepalive_s",
    "\"nan\"",
    "a number of seconds above 0 and at most 3600"
)]
#[case(
    "key_exchange_timeout_s",
    "\"inf\"",
    "a number of seconds above 0 and at most 3600"
)]
#[case("keepalive_max", "0", "a whole number from 1 to 100")]
#[case("keepalive_max", "101", "a whole number from 1 to 100")]
#[case(
    "host_key_policy",
    "\"none\"",
    "one of \"accept-new\", \"strict\", \"insecure\""
)]
#[case(
    "host_key_policy",
    "false",
    "one of \"accept-new\", \"strict\", \"insecure\""
)]
#[case("known_hosts_files", "[1]", "a path or a list of paths")]
#[case("known_hosts_files", "1", "a path or a list of paths")]
fn entry_is_disabled_when_a_value_is_out_of_range(
    #[case] key: &str,
    #[case] value: &str,
    #[case] wanted: &str,
) {
    let config = from_list(&format!(r#"[{{{COMPLETE},"{key}":{value}}}]"#));
    let message = format!("!h: REMOTE_SANDBOX_LIST[0] (h): `{key}`: must be {wanted}");
    assert_eq!(summary(&config), [message]);
}

#[rstest]
#[case("22", 22)]
#[case("65535", 65535)]
#[case("\"2222\"", 2222)]
#[case("null", 22)]
#[case("\"\"", 22)]
fn port_is_taken_as_number_or_text(#[case] value: &str, #[case] wanted: u16) {
    let config = from_list(&format!(r#"[{{{COMPLETE},"port":{value}}}]"#));
    assert_eq!(only(&config).ssh().port, wanted);
}

#[test]
fn name_with_newline_is_shown_escaped() {
    let config = from_list(&format!(r#"[{{{COMPLETE},"name":"a\nb"}}]"#));
    assert_eq!(
        summary(&config),
        [
            r"!a\nb: REMOTE_SANDBOX_LIST[0] (a\nb): `name`: a sandbox name must not hold control characters, this one has `\n` at character 2"
        ]
    );
}

#[test]
fn long_host_is_cut_when_it_gives_the_name() {
    let host = "h".repeat(70);
    let list = format!(r#"[{{"host":"{host}","user":"u","password":"p"}}]"#);
    let config = from_list(&list);
    assert_eq!(only(&config).name.as_str(), "h".repeat(64));
    assert_eq!(only(&config).ssh().host, host);
    assert_eq!(
        only(&config).notes,
        ["the name is the host cut to 64 characters"]
    );
}

#[test]
fn entry_that_is_no_table_is_disabled() {
    assert_eq!(
        summary(&from_list("[7]")),
        ["!REMOTE_SANDBOX_LIST[0]: REMOTE_SANDBOX_LIST[0]: must be a table of keys and values"]
    );
}

#[test]
fn unknown_key_is_noted_in_the_list() {
    let config = from_list(&format!(r#"[{{{COMPLETE},"passwrod":"x","region":1}}]"#));
    assert_eq!(
        only(&config).notes,
        ["unknown keys are ignored: `passwrod`, `region`"]
    );
}

#[test]
fn unknown_keys_in_the_list_are_bounded_when_noted() {
    let keys: Vec<_> = (0..100).map(|index| format!(r#""x{index}":1"#)).collect();
    let config = from_list(&format!("[{{{COMPLETE},{}}}]", keys.join(",")));
    assert!(
        only(&config).notes[0].ends_with("`x7`, and more"),
        "{config:?}"
    );
}

#[test]
fn unknown_key_disables_the_entry_in_the_file() {
    let config = from_toml(
        "[[sandbox]]\nhost='h'\nuser='u'\npassword='p'\nprot=22\n[[sandbox]]\nhost='g'\nuser='u'\npassword='p'\n",
    );
    let summary = summary(&config);
    assert!(
        summary[0].starts_with(
            "!h: /c.toml:5: sandbox[0] (h): unknown key `prot`, known keys: name, host, ssh_alias, port, user, password, "
        ),
        "{}",
        summary[0]
    );
    assert_eq!(summary[1], "g");
}

#[test]
fn problem_in_the_toml_file_names_the_line_of_the_key() {
    let config = from_toml("\n[[sandbox]]\nhost='h'\nuser='u'\npassword='p'\nport=0\n");
    assert_eq!(
        summary(&config),
        ["!h: /c.toml:6: sandbox[0] (h): `port`: must be a whole number from 1 to 65535"]
    );
}

#[test]
fn secret_comes_from_the_named_variable_in_list_and_file() {
    let entry = r#"[{"host":"NAME","user":"u","password_env":"SECRET","key_passphrase_env":"PHRASE","key_file":"k"}]"#;
    let list = entry.replace("NAME", "e");
    let file = entry.replace("NAME", "f");
    let variables = [
        ("REMOTE_SANDBOX_LIST", list.as_str()),
        ("SECRET", "hunter22"),
        ("PHRASE", "correct horse"),
    ];
    let config = resolve(&sources(&variables, Some(("/c.json", &file))));
    assert_eq!(summary(&config), ["e", "f"]);
    for sandbox in config.ready() {
        assert_eq!(clear(sandbox.ssh().password.as_ref()), "hunter22");
        assert_eq!(
            clear(sandbox.ssh().key_passphrase.as_ref()),
            "correct horse"
        );
        assert_eq!(sandbox.ssh().key_file.as_deref(), Some(Path::new("/h/k")));
    }
}

#[test]
fn relative_key_file_is_refused_without_a_home() {
    let mut sources = sources(
        &[(
            "REMOTE_SANDBOX_LIST",
            r#"[{"host":"h","user":"u","key_file":"k"}]"#,
        )],
        None,
    );
    sources.environment.remove("HOME");
    let text = summary(&resolve(&sources)).concat();
    assert!(
        text.contains("`key_file`: depends on the home directory"),
        "{text}"
    );
}

#[test]
fn passphrase_without_key_is_noted() {
    let config = from_list(&format!(r#"[{{{COMPLETE},"key_passphrase":"x"}}]"#));
    assert_eq!(
        only(&config).notes,
        ["a key passphrase is given without a key file and is not used"]
    );
}

#[rstest]
#[case(COMPLETE, false)]
#[case(r#""host":"h","user":"u","key_file":"k""#, false)]
#[case(r#""host":"h","user":"u","password_secret":"n""#, false)]
#[case(r#""host":"h","user":"u""#, true)]
#[case(r#""host":"h","user":"u","password":"""#, true)]
fn host_without_a_credential_is_taken(#[case] members: &str, #[case] wanted: bool) {
    let config = from_list(&format!("[{{{members}}}]"));
    let ssh = only(&config).ssh();
    assert_eq!(ssh.names_no_credential(), wanted);
    assert_eq!(ssh.identities, Identities::default());
    assert!(only(&config).notes.is_empty());
}
