use std::path::Path;

use super::*;
use proptest::prelude::*;
use rstest::rstest;

/// As OpenSSH 9.2 printed it for a host with nearly everything set; lists of algorithms left out.
const FULL: &str = "\
host gpu
user me
hostname gpu.gpu.example
port 2200
addressfamily any
controlmaster auto
identitiesonly yes
proxyusefdpass no
stricthostkeychecking ask
serveralivecountmax 4
serveraliveinterval 5
controlpath /root/.ssh/cm-9907d65f44ce7561c2f321fac837c8f4f9b7a7db
hostkeyalias foo
identityagent /tmp/foo
identityfile ~/.ssh/id_%r_%h
identityfile /tmp/with space/id
identityfile %d/foo
identityfile ${HOME}/bar
certificatefile ~/.ssh/cert-%h.pub
globalknownhostsfile /etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2
userknownhostsfile /root/.ssh/kh /tmp/a b/kh2 /root/kh3
connecttimeout 7
controlpersist no
proxycommand nc -X 5 %h %p %r %n %% $X
";

/// The same for a host that no file names.
const PLAIN: &str = "\
host plain
user root
hostname plain
port 22
controlmaster false
stricthostkeychecking ask
serveralivecountmax 3
serveraliveinterval 0
identitiesonly no
identityfile ~/.ssh/id_rsa
identityfile ~/.ssh/id_ecdsa
identityfile ~/.ssh/id_ecdsa_sk
identityfile ~/.ssh/id_ed25519
identityfile ~/.ssh/id_ed25519_sk
identityfile ~/.ssh/id_xmss
identityfile ~/.ssh/id_dsa
globalknownhostsfile /etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2
userknownhostsfile /root/.ssh/known_hosts /root/.ssh/known_hosts2
connecttimeout none
controlpersist no
";

fn local() -> Local {
    let variables = [
        ("HOME", "/home/me"),
        ("SSH_AUTH_SOCK", "/run/agent"),
        ("MY_SOCK", "/run/mine"),
    ];
    Local {
        home: Some(PathBuf::from("/home/me")),
        user: Some("local".to_owned()),
        user_id: 1000,
        host_name: "desk.example".to_owned(),
        environment: variables
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
    }
}

fn read(text: &str) -> Result<HostOptions, OptionsError> {
    HostOptions::read(text.as_bytes(), &SshAlias::parse("gpu").unwrap(), &local())
}

/// A host with one more line.
fn with(line: &str) -> Result<HostOptions, OptionsError> {
    read(&format!("hostname h\nuser me\nport 22\n{line}\n"))
}

fn paths_of(texts: &[&str]) -> Vec<PathBuf> {
    texts.iter().map(PathBuf::from).collect()
}

#[test]
fn whole_answer_is_read() {
    let found = read(FULL).unwrap();
    assert_eq!(found.host, "gpu.gpu.example");
    assert_eq!((found.port, found.user.as_str()), (2200, "me"));
    assert_eq!(
        found.identity_files,
        paths_of(&[
            "/home/me/.ssh/id_me_gpu.gpu.example",
            "/tmp/with space/id",
            "/home/me/foo",
            "/home/me/bar",
        ])
    );
    assert!(found.identities_only && found.control_master);
    assert_eq!(
        found.certificates,
        paths_of(&["/home/me/.ssh/cert-gpu.gpu.example.pub"])
    );
    assert_eq!(found.agent, AgentChoice::Socket("/tmp/foo".into()));
    assert_eq!(
        found.known_hosts_files,
        paths_of(&[
            "/root/.ssh/kh",
            "/tmp/a b/kh2",
            "/root/kh3",
            "/etc/ssh/ssh_known_hosts",
            "/etc/ssh/ssh_known_hosts2",
        ])
    );
    assert_eq!(found.host_key_alias.as_deref(), Some("foo"));
    assert_eq!(
        found.approach,
        Approach::Command("nc -X 5 gpu.gpu.example 2200 me gpu % $X".to_owned())
    );
    assert_eq!(found.limits.tcp, Some(Duration::from_secs(7)));
    assert_eq!(
        found.limits.keepalive_interval,
        Some(Duration::from_secs(5))
    );
    assert_eq!(found.limits.keepalive_max, Some(4));
    let socket = found.control_path.unwrap();
    assert!(socket.starts_with(Path::new("/root/.ssh")));
    assert_eq!(found.notes, Vec::<String>::new());
}

#[test]
fn plain_answer_has_defaults() {
    let found = read(PLAIN).unwrap();
    assert_eq!(
        found.identity_files,
        paths_of(&[
            "/home/me/.ssh/id_rsa",
            "/home/me/.ssh/id_ecdsa",
            "/home/me/.ssh/id_ed25519",
            "/home/me/.ssh/id_dsa",
        ])
    );
    assert_eq!(found.agent, AgentChoice::Socket("/run/agent".into()));
    assert_eq!(found.approach, Approach::Direct);
    assert_eq!(found.limits, GivenLimits::default());
    assert!(!found.identities_only && !found.control_master);
    assert_eq!(found.control_path, None);
    assert_eq!(found.checking, Checking::Remember);
}

#[test]
fn none_means_none() {
    let found = with("proxycommand none\nproxyjump none\nidentityagent none\nidentityfile none\ncertificatefile none\nuserknownhostsfile none\nglobalknownhostsfile /dev/null\ncontrolpath none").unwrap();
    assert_eq!(found.approach, Approach::Direct);
    assert_eq!(found.agent, AgentChoice::None);
    assert_eq!(found.identity_files, paths_of(&[]));
    assert_eq!(found.certificates, paths_of(&[]));
    assert_eq!(found.known_hosts_files, paths_of(&[]));
    assert_eq!(found.control_path, None);
}

#[rstest]
#[case("identityagent SSH_AUTH_SOCK", "/run/agent")]
#[case("identityagent $MY_SOCK", "/run/mine")]
#[case("identityagent ${MY_SOCK}", "/run/mine")]
#[case("identityagent ~/%u.sock", "/home/me/local.sock")]
fn agent_is_found(#[case] line: &str, #[case] socket: &str) {
    assert_eq!(
        with(line).unwrap().agent,
        AgentChoice::Socket(socket.into())
    );
}

#[rstest]
#[case("identityfile /k/%d", "/k//home/me")]
#[case("identityfile /k/%u-%i", "/k/local-1000")]
#[case("identityfile /k/%l-%L", "/k/desk.example-desk")]
#[case("identityfile /k/%n-%h-%p-%r", "/k/gpu-h-22-me")]
#[case("identityfile /k/%k", "/k/gpu")]
#[case("identityfile /k/100%%", "/k/100%")]
fn token_is_filled_in(#[case] line: &str, #[case] path: &str) {
    assert_eq!(with(line).unwrap().identity_files, paths_of(&[path]));
}

#[rstest]
#[case("identityfile /k/%z")]
#[case("identityfile /k/%")]
#[case("identityfile /k/%é")]
#[case("proxycommand nc %d")]
#[case("identityfile ${NOT_SET}/k")]
#[case("identityagent $NOT_SET")]
#[case("proxyjump a,,b")]
#[case("proxyjump -oX=y")]
fn what_cannot_be_filled_in_is_an_error(#[case] line: &str) {
    with(line).unwrap_err();
}

#[test]
fn name_that_a_shell_would_run_is_refused() {
    let text = "hostname h\nuser me;x\nport 22\nproxycommand nc %h %r\n";
    assert_eq!(read(text), Err(OptionsError::Unusable("user")));
    let text = "hostname $(x)\nuser me\nport 22\nproxycommand nc %h\n";
    assert_eq!(read(text), Err(OptionsError::Unusable("hostname")));
}

#[rstest]
#[case("yes", Checking::Strict)]
#[case("true", Checking::Strict)]
#[case("ask", Checking::Remember)]
#[case("accept-new", Checking::Remember)]
#[case("no", Checking::Off)]
#[case("off", Checking::Off)]
fn checking_is_read(#[case] value: &str, #[case] wanted: Checking) {
    let found = with(&format!("stricthostkeychecking {value}")).unwrap();
    assert_eq!(found.checking, wanted);
    assert_eq!(found.notes.len(), usize::from(wanted == Checking::Off));
}

#[test]
fn jump_hosts_are_filled_in_and_read() {
    let found = with("proxyjump %h-gate,%r@inner:2222").unwrap();
    let Approach::Jump(hops) = found.approach else {
        panic!("{found:?}");
    };
    assert_eq!(Hop::list(&hops), "h-gate,me@inner:2222");
}

#[test]
fn relative_key_is_noted() {
    let found = with("identityfile id_here").unwrap();
    assert_eq!(found.identity_files, paths_of(&[]));
    assert_eq!(found.notes.len(), 1);
}

#[rstest]
#[case("user me\nport 22\n", "hostname")]
#[case("hostname h\nport 22\n", "user")]
#[case("hostname h\nuser me\nport 0\n", "port")]
#[case("hostname h\nuser me\nport 70000\n", "port")]
fn answer_without_a_place_is_refused(#[case] text: &str, #[case] option: &'static str) {
    assert_eq!(read(text), Err(OptionsError::Unusable(option)));
}

#[test]
fn endless_answer_is_refused() {
    let text = "x ".repeat(TEXT_MAX_BYTES);
    assert_eq!(read(&text), Err(OptionsError::TooLarge));
}

proptest! {
    #[test]
    fn any_text_is_read_without_panic(text in "(identityfile|proxyjump|userknownhostsfile|proxycommand|identityagent) .{0,80}") {
        let _ = with(&text);
    }
}
