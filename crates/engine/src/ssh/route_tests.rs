use remote_sandbox_core::config::SecretSource;
use remote_sandbox_core::secret::Secret;

use super::*;

fn finder(more: &[(&str, &str)]) -> RouteFinder {
    let usual = [
        ("HOME", "/home/me"),
        ("USER", "me"),
        ("SSH_AUTH_SOCK", "/run/agent"),
    ];
    let variables = usual.iter().chain(more);
    RouteFinder::new(
        &variables
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
    )
}

fn settings() -> SshSettings {
    SshSettings {
        host: "host.example".to_owned(),
        port: 22,
        user: "me".to_owned(),
        key_file: None,
        key_passphrase: None,
        password: None,
        identities: Identities::default(),
        way: Way::Direct,
        host_keys: HostKeySettings::default(),
        limits: Limits::default(),
    }
}

fn asked(hops: &str) -> Asked {
    Asked {
        alias: SshAlias::parse("gpu1").unwrap(),
        user: Some("you".to_owned()),
        port: Some(2222),
        hops: Hop::parse_list(hops).unwrap(),
    }
}

#[test]
fn entry_without_credential_uses_the_usual_keys_and_the_agent() {
    let found = finder(&[]).host(&settings()).identities;
    assert_eq!(
        found.files.first().unwrap(),
        Path::new("/home/me/.ssh/id_ed25519")
    );
    assert_eq!(found.files.len(), USUAL_KEYS.len());
    assert_eq!(found.agent, AgentChoice::Socket("/run/agent".into()));
    assert!(!found.only_files);
}

#[test]
fn entry_with_a_credential_uses_nothing_else() {
    let mut with_key = settings();
    with_key.key_file = Some("/key".into());
    let mut with_password = settings();
    let password = SecretSource::Clear(Secret::new("word".to_owned()));
    with_password.password = Some(password);
    for settings in [with_key, with_password] {
        let found = finder(&[]).host(&settings).identities;
        assert_eq!(found, Identities::default());
    }
}

#[test]
fn question_carries_what_the_entry_says() {
    let question = finder(&[]).question(&asked("a,b@c:3"));
    let expected = "ssh -G -l you -p 2222 -J a,b@c:3 -- gpu1";
    assert_eq!(question.join(" "), expected);
    let other = finder(&[("REMOTE_SANDBOX_SSH_CONFIG", "~/other")]).question(&asked("a"));
    assert!(other.join(" ").contains(" -F /home/me/other "), "{other:?}");
}

#[test]
fn last_of_several_hosts_is_reached_over_the_others() {
    let hops = Hop::parse_list("a,b,me@c:5").unwrap();
    let last = last_hop(&hops, &SshAlias::parse("x").unwrap());
    assert_eq!(last.alias.as_str(), "c");
    assert_eq!((last.user.as_deref(), last.port), (Some("me"), Some(5)));
    assert_eq!(Hop::list(&last.hops), "a,b");
}

#[test]
fn limit_of_a_way_counts_every_host_on_it() {
    let mut behind = settings();
    behind.way = Way::Jump(Box::new(settings()));
    assert_eq!(way_limit(&behind), way_limit(&settings()) * 2);
}

#[test]
fn complaint_leaves_out_what_says_nothing() {
    let words = complaint(b"Pseudo-terminal will not be allocated.\nline 3: bad\n\n");
    assert_eq!(words, "line 3: bad");
}

#[test]
fn place_is_sure_only_where_nothing_stands_between() {
    let place = |way| {
        let reach = Reach::Host(SshSettings { way, ..settings() });
        Route::new(reach, Transport::Builtin).direct_place()
    };
    assert_eq!(place(Way::Direct).unwrap(), "me@host.example:22");
    assert_eq!(place(Way::Jump(Box::new(settings()))), None);
    assert_eq!(place(Way::Command("nc host 22".to_owned())), None);
}
