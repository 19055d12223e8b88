use std::path::Path;
use std::time::Duration;

use rstest::rstest;

use crate::config::testing::*;
use crate::config::*;

#[test]
fn alias_alone_overrides_nothing() {
    let config = from_list(r#"[{"ssh_alias":"gpu1"}]"#);
    let sandbox = only(&config);
    assert_eq!(sandbox.name.as_str(), "gpu1");
    assert_eq!(sandbox.transport, Transport::Builtin);
    let alias = sandbox.alias();
    assert_eq!(alias.alias.as_str(), "gpu1");
    assert!(alias.port.is_none() && alias.user.is_none() && alias.key_file.is_none());
    assert!(alias.password.is_none() && alias.key_passphrase.is_none());
    assert_eq!(alias.host_keys, HostKeySettings::default());
    assert!(!alias.policy_is_given);
    assert_eq!(alias.limits, GivenLimits::default());
    assert!(sandbox.notes.is_empty() && config.problems.is_empty());
}

#[test]
fn alias_takes_every_override() {
    let config = from_toml(
        r#"
        [[sandbox]]
        name = "box"
        ssh_alias = "gpu1"
        port = 2222
        user = "u"
        key_file = "~/k"
        key_passphrase_secret = "phrase"
        password_secret = "gpu.pw"
        host_key_policy = "accept-new"
        known_hosts_files = "kh"
        connect_timeout_s = 1
        keepalive_max = 9
        "#,
    );
    assert_eq!(only(&config).name.as_str(), "box");
    let alias = only(&config).alias();
    assert_eq!((alias.port, alias.user.as_deref()), (Some(2222), Some("u")));
    assert_eq!(alias.key_file.as_deref(), Some(Path::new("/h/k")));
    assert!(alias.policy_is_given);
    assert_eq!(alias.host_keys.known_hosts_files, [PathBuf::from("/h/kh")]);
    let limits = GivenLimits {
        tcp: Some(Duration::from_secs(1)),
        keepalive_max: Some(9),
        ..GivenLimits::default()
    };
    assert_eq!(alias.limits, limits);
    let stored: Vec<_> = config.stored_secret_names().into_iter().collect();
    assert_eq!(stored.len(), 2);
    assert_eq!(
        (stored[0].as_str(), stored[1].as_str()),
        ("gpu.pw", "phrase")
    );
}

#[test]
fn policy_of_the_file_is_given_for_an_alias_too() {
    let config = from_toml("host_key_policy='strict'\n[[sandbox]]\nssh_alias='g'\n");
    let alias = only(&config).alias();
    assert_eq!(alias.host_keys.policy, HostKeyPolicy::Strict);
    assert!(alias.policy_is_given);
}

#[rstest]
#[case(
    r#""transport":"builtin","require_existing_master":false"#,
    Transport::Builtin
)]
#[case(r#""transport":"openssh""#, Transport::OpenSsh { require_existing_master: false })]
#[case(r#""transport":"openssh","require_existing_master":true"#, Transport::OpenSsh { require_existing_master: true })]
fn transport_is_read(#[case] members: &str, #[case] wanted: Transport) {
    for start in [
        r#""ssh_alias":"g""#,
        r#""host":"h","user":"u","key_file":"k""#,
    ] {
        let config = from_list(&format!("[{{{start},{members}}}]"));
        assert_eq!(only(&config).transport, wanted);
    }
}

#[test]
fn stored_names_are_listed_once_and_only_of_usable_entries() {
    let config = from_list(
        r#"[{"host":"a","user":"u","password_secret":"one"},{"ssh_alias":"b","password_secret":"one"},{"host":"c","password_secret":"two"}]"#,
    );
    let names = config.stored_secret_names();
    assert_eq!(
        names.iter().map(|name| name.as_str()).collect::<Vec<_>>(),
        ["one"]
    );
}

#[test]
fn entry_that_says_both_ways_still_replaces_the_earlier_one() {
    let config = from_list(r#"[{"ssh_alias":"g"},{"ssh_alias":"g","host":"h"}]"#);
    assert_eq!(config.names().count(), 0);
}
