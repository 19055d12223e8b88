use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use remote_sandbox_core::config::{
    AgentChoice, Environment, HostKeyPolicy, HostKeySettings, Limits, Way,
};
use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::secret::Mask;
use remote_sandbox_testkit::keys::{ClientKey, KeyFormat, KeyType};
use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::users::TestUser;
use remote_sandbox_testkit::wait::wait_until_blocking;
use rstest::rstest;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixListener;

use super::super::dial;
use super::super::hostkeys::HostKeyStore;
use super::super::watch::Watch;
use super::super::{Dialer, RouteFinder};
use super::*;
use crate::secrets::SecretStore;

/// A folder with keys, and a host that is reached from there.
struct Place {
    folder: TempDir,
    settings: SshSettings,
}

impl Place {
    fn new(sshd: &Sshd) -> Self {
        let folder = TempDir::new().unwrap();
        let known_hosts = folder.path().join("known_hosts");
        fs::write(&known_hosts, sshd.known_hosts()).unwrap();
        let settings = SshSettings {
            host: "127.0.0.1".into(),
            port: sshd.port(),
            user: TestUser::current().name().to_owned(),
            key_file: None,
            key_passphrase: None,
            password: None,
            identities: Identities::default(),
            way: Way::Direct,
            host_keys: HostKeySettings {
                policy: HostKeyPolicy::Strict,
                known_hosts_files: vec![known_hosts],
                name: None,
            },
            limits: Limits::default(),
        };
        Place { folder, settings }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn key(&self, name: &str, kind: KeyType) -> ClientKey {
        let made = ClientKey::generate(self.folder.path(), name, kind, KeyFormat::OpenSsh, None);
        made.unwrap()
    }

    fn stranger(&self, name: &str) -> ClientKey {
        self.key(name, KeyType::Ed25519)
    }

    /// Connects and logs in; the words of the error otherwise.
    async fn login(&self) -> Result<(), String> {
        let state = self.path("state");
        let store = Arc::new(HostKeyStore::new(&state, None));
        let secrets = SecretKeeper::new(
            Mask::new(Vec::<String>::new()),
            &Environment::new(),
            std::iter::empty(),
            Arc::new(SecretStore::new(&state)),
        );
        let dialer = Dialer::new(
            store,
            secrets,
            RouteFinder::new(&Environment::new()),
            self.path("sockets"),
        );
        dial::dial(&Arc::new(self.settings.clone()), &dialer, &Watch::default())
            .await
            .map(drop)
            .map_err(|error| Failure::chain(&error))
    }
}

/// A real agent, ended with the test.
struct RealAgent {
    child: Child,
    socket: PathBuf,
}

impl RealAgent {
    fn start(place: &mut Place) -> Self {
        let socket = place.path("agent");
        let child = Command::new("ssh-agent")
            .arg("-D")
            .arg("-a")
            .arg(&socket)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // The socket is there a moment before anybody listens on it.
        let answers = || std::os::unix::net::UnixStream::connect(&socket).is_ok();
        assert!(wait_until_blocking(Duration::from_secs(10), answers));
        place.settings.identities.agent = AgentChoice::Socket(socket.clone());
        RealAgent { child, socket }
    }

    fn add(&self, key: &ClientKey, more: &[&str]) {
        let output = Command::new("ssh-add")
            .args(more)
            .arg(key.private_path())
            .env("SSH_AUTH_SOCK", &self.socket)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

impl Drop for RealAgent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn keygen(arguments: &[&str]) {
    let output = Command::new("ssh-keygen")
        .arg("-q")
        .args(arguments)
        .output();
    let output = output.unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

/// An authority for users, and a host that trusts it.
fn authority(kind: KeyType) -> (TempDir, ClientKey, Sshd) {
    let folder = TempDir::new().unwrap();
    let (name, format) = ("authority", KeyFormat::OpenSsh);
    let authority = ClientKey::generate(folder.path(), name, kind, format, None).unwrap();
    let sshd = Sshd::builder()
        .extra_config(&format!(
            "TrustedUserCAKeys {}",
            authority.public_path().display()
        ))
        .start();
    (folder, authority, sshd)
}

/// Certifies a key for the current user; the certificate lies beside the key.
fn certify(authority: &ClientKey, key: &ClientKey, validity: &str) -> PathBuf {
    keygen(&[
        "-s",
        authority.private_path().to_str().unwrap(),
        "-I",
        "test",
        "-n",
        TestUser::current().name(),
        "-V",
        validity,
        key.public_path().to_str().unwrap(),
    ]);
    certificate_of(key)
}

fn certificate_of(key: &ClientKey) -> PathBuf {
    super::super::certificate::beside(key.private_path())
}

#[rstest]
#[tokio::test]
async fn key_of_the_agent_logs_in(
    #[values(KeyType::Ed25519, KeyType::Ecdsa, KeyType::Rsa)] kind: KeyType,
) {
    let folder = TempDir::new().unwrap();
    let key = ClientKey::generate(folder.path(), "id", kind, KeyFormat::OpenSsh, None).unwrap();
    let sshd = Sshd::builder()
        .authorize(&key)
        .extra_config("PubkeyAcceptedAlgorithms -rsa-sha2-256,ssh-rsa")
        .start();
    let mut place = Place::new(&sshd);
    let agent = RealAgent::start(&mut place);
    agent.add(&key, &[]);
    assert_eq!(place.login().await, Ok(()));
    assert_eq!(sshd.failed_auth_count(), 0, "{}", sshd.log());
}

#[rstest]
#[case::named_by_the_key(false, true)]
#[case::named_by_its_public_half(true, true)]
#[case::not_alone(true, false)]
#[tokio::test]
async fn key_of_the_agent_that_a_file_names_comes_first(
    #[case] only_public: bool,
    #[case] only_files: bool,
) {
    let sshd = Sshd::start();
    let mut place = Place::new(&sshd);
    let agent = RealAgent::start(&mut place);
    for name in ["one", "two", "three"] {
        agent.add(&place.stranger(name), &[]);
    }
    agent.add(sshd.client_key(), &[]);
    let named = match only_public {
        true => sshd.client_key().public_path(),
        false => sshd.client_key_path().to_owned(),
    };
    place.settings.identities.files = vec![place.path("missing"), named];
    place.settings.identities.only_files = only_files;
    assert_eq!(place.login().await, Ok(()));
    assert_eq!(sshd.failed_auth_count(), 0, "{}", sshd.log());
}

#[tokio::test]
async fn other_keys_of_the_agent_come_before_files_and_not_at_all_when_only_files_count() {
    let sshd = Sshd::start();
    let mut place = Place::new(&sshd);
    let agent = RealAgent::start(&mut place);
    agent.add(&place.stranger("stranger"), &[]);
    place.settings.identities.files = vec![sshd.client_key_path().to_owned()];
    place.settings.identities.only_files = true;
    assert_eq!(place.login().await, Ok(()));
    assert_eq!(sshd.failed_auth_count(), 0, "{}", sshd.log());
    place.settings.identities.only_files = false;
    assert_eq!(place.login().await, Ok(()));
    assert_eq!(sshd.failed_auth_count(), 1, "{}", sshd.log());
}

#[tokio::test]
async fn f22_many_keys_are_offered_once_each_and_six_times_in_all() {
    let sshd = Sshd::builder().extra_config("MaxAuthTries 20").start();
    let mut place = Place::new(&sshd);
    let agent = RealAgent::start(&mut place);
    for number in 0..8 {
        agent.add(&place.stranger(&format!("key{number}")), &[]);
    }
    let refused = place.login().await.unwrap_err();
    assert_eq!(sshd.failed_auth_count(), 6, "{}", sshd.log());
    assert_eq!(sshd.connection_count(), 1);
    assert_eq!(refused.matches("the agent's key `testkit`").count(), 8);
    assert!(refused.contains("6 attempts are the most"), "{refused}");
}

#[tokio::test]
async fn f22_key_that_is_also_in_the_agent_is_offered_once() {
    let sshd = Sshd::start();
    let mut place = Place::new(&sshd);
    let agent = RealAgent::start(&mut place);
    let stranger = place.stranger("stranger");
    agent.add(&stranger, &[]);
    place.settings.key_file = Some(stranger.private_path().to_owned());
    place.settings.identities.files = vec![stranger.private_path().to_owned()];
    let refused = place.login().await.unwrap_err();
    assert_eq!(sshd.failed_auth_count(), 1, "{}", sshd.log());
    assert!(refused.contains("stranger"), "{refused}");
}

#[tokio::test]
async fn key_that_the_agent_does_not_sign_with_gives_way_to_the_next() {
    let sshd = Sshd::start();
    let mut place = Place::new(&sshd);
    let agent = RealAgent::start(&mut place);
    // It wants to be confirmed, and there is nobody to do it.
    agent.add(sshd.client_key(), &["-c"]);
    let refused = place.login().await.unwrap_err();
    assert!(refused.contains("does not sign"), "{refused}");
    let second = place.stranger("second");
    place.settings.identities.files = vec![second.private_path().to_owned()];
    let refused = place.login().await.unwrap_err();
    assert!(refused.contains("second"), "{refused}");
    assert_eq!(sshd.accepted_auth_count(), 0);
}

/// An agent that says something of its own and then nothing.
fn false_agent(place: &mut Place, says: &'static [u8]) -> Arc<std::sync::atomic::AtomicUsize> {
    let socket = place.path("false-agent");
    let listener = UnixListener::bind(&socket).unwrap();
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = asked.clone();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let _ = stream.write_all(says).await;
            open.push(stream);
        }
    });
    place.settings.identities.agent = AgentChoice::Socket(socket);
    asked
}

#[rstest]
#[case::silent(b"", "does not answer within 2 s")]
#[case::too_long(b"\xff\xff\xff\xff", "cannot be asked")]
#[case::garbage(b"\0\0\0\x01\x05\0\0\0\x05\x0c\xff\xff\xff\xff", "cannot be asked")]
#[case::promises_many(
    b"\0\0\0\x01\x05\0\0\0\x09\x0c\xff\xff\xff\xff\0\0\0\0",
    "cannot be asked"
)]
#[tokio::test]
async fn agent_that_is_of_no_use_is_named_and_passed_over(
    #[case] says: &'static [u8],
    #[case] said: &str,
) {
    let sshd = Sshd::start();
    let mut place = Place::new(&sshd);
    false_agent(&mut place, says);
    let stranger = place.stranger("stranger");
    place.settings.identities.files = vec![stranger.private_path().to_owned()];
    let begun = Instant::now();
    let refused = place.login().await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(6));
    assert!(refused.contains(said), "{refused}");
    place.settings.identities.files = vec![sshd.client_key_path().to_owned()];
    assert_eq!(place.login().await, Ok(()));
}

#[tokio::test]
async fn f23_missing_agent_is_named() {
    let sshd = Sshd::start();
    let mut place = Place::new(&sshd);
    place.settings.identities.agent = AgentChoice::Socket(place.path("no-agent"));
    let refused = place.login().await.unwrap_err();
    assert!(refused.contains("no-agent"), "{refused}");
    assert!(refused.contains("publickey"), "{refused}");
    assert_eq!(sshd.failed_auth_count(), 0, "{}", sshd.log());
}

#[tokio::test]
async fn f23_default_identities_that_cannot_be_used_are_passed_over_by_name() {
    let sshd = Sshd::start();
    let mut place = Place::new(&sshd);
    let exposed = place.stranger("exposed");
    fs::set_permissions(exposed.private_path(), fs::Permissions::from_mode(0o644)).unwrap();
    let sealed = ClientKey::generate(
        place.folder.path(),
        "sealed",
        KeyType::Ed25519,
        KeyFormat::OpenSsh,
        Some("canary-word"),
    );
    fs::write(place.path("garbage"), "canary").unwrap();
    let mut files = vec![
        place.path("missing"),
        exposed.private_path().to_owned(),
        sealed.unwrap().private_path().to_owned(),
        place.path("garbage"),
    ];
    place.settings.identities.files = files.clone();
    let refused = place.login().await.unwrap_err();
    assert!(!refused.contains("missing"), "{refused}");
    assert!(!refused.contains("canary"), "{refused}");
    for word in ["exposed", "0600", "sealed", "is encrypted", "garbage"] {
        assert!(refused.contains(word), "{word}: {refused}");
    }
    assert_eq!(sshd.failed_auth_count(), 0, "{}", sshd.log());
    files.push(sshd.client_key_path().to_owned());
    place.settings.identities.files = files;
    assert_eq!(place.login().await, Ok(()));
    assert_eq!(sshd.failed_auth_count(), 0, "{}", sshd.log());
}

#[tokio::test]
async fn passphrase_of_an_entry_without_a_key_opens_an_identity() {
    let folder = TempDir::new().unwrap();
    let (kind, format) = (KeyType::Ed25519, KeyFormat::OpenSsh);
    let key = ClientKey::generate(folder.path(), "id", kind, format, Some("a word")).unwrap();
    let sshd = Sshd::builder().authorize(&key).start();
    let mut place = Place::new(&sshd);
    place.settings.identities.files = vec![key.private_path().to_owned()];
    let word = Secret::new("a word".to_owned());
    place.settings.key_passphrase = Some(remote_sandbox_core::config::SecretSource::Clear(word));
    assert_eq!(place.login().await, Ok(()));
}

/// Where a certificate comes from.
#[derive(Debug, Clone, Copy)]
enum Kept {
    BesideOwnKey,
    BesideIdentity,
    Named,
    InAgent,
    NamedForAgentKey,
}

#[rstest]
#[tokio::test]
async fn user_certificate_logs_in(
    #[values(
        Kept::BesideOwnKey,
        Kept::BesideIdentity,
        Kept::Named,
        Kept::InAgent,
        Kept::NamedForAgentKey
    )]
    kept: Kept,
    #[values(KeyType::Ed25519, KeyType::Rsa)] kind: KeyType,
) {
    let (_folder, authority, sshd) = authority(kind);
    let mut place = Place::new(&sshd);
    let key = place.key("id", kind);
    let certificate = certify(&authority, &key, "-1m:+10m");
    let path = key.private_path().to_owned();
    let elsewhere = place.path("elsewhere");
    let mut agent = None;
    match kept {
        Kept::BesideOwnKey => place.settings.key_file = Some(path),
        Kept::BesideIdentity => place.settings.identities.files = vec![path],
        Kept::Named => {
            fs::rename(&certificate, &elsewhere).unwrap();
            place.settings.identities.files = vec![path];
            place.settings.identities.certificates = vec![elsewhere];
        }
        Kept::InAgent => agent.insert(RealAgent::start(&mut place)).add(&key, &[]),
        Kept::NamedForAgentKey => {
            fs::rename(&certificate, &elsewhere).unwrap();
            agent.insert(RealAgent::start(&mut place)).add(&key, &[]);
            place.settings.identities.certificates = vec![elsewhere];
            place.settings.identities.only_files = true;
        }
    }
    assert_eq!(place.login().await, Ok(()));
    assert!(sshd.log().contains("CERT"), "{}", sshd.log());
    assert_eq!(sshd.failed_auth_count(), 0, "{}", sshd.log());
}

#[rstest]
#[case::expired("-2d:-1d", "expired at")]
#[case::early("+1d:+2d", "is not valid before")]
#[tokio::test]
async fn certificate_out_of_time_is_passed_over_with_a_word(
    #[case] validity: &str,
    #[case] said: &str,
    #[values(false, true)] in_agent: bool,
) {
    let (_folder, authority, sshd) = authority(KeyType::Ed25519);
    let mut place = Place::new(&sshd);
    let key = place.stranger("id");
    certify(&authority, &key, validity);
    let mut agent = None;
    match in_agent {
        true => agent.insert(RealAgent::start(&mut place)).add(&key, &[]),
        false => place.settings.key_file = Some(key.private_path().to_owned()),
    }
    let refused = place.login().await.unwrap_err();
    assert!(refused.contains(said), "{refused}");
    // The plain key was tried, once.
    assert_eq!(sshd.failed_auth_count(), 1, "{}", sshd.log());
}

#[tokio::test]
async fn f17_changed_host_key_is_refused_before_the_agent_is_asked() {
    let mut sshd = Sshd::start();
    let mut place = Place::new(&sshd);
    let asked = false_agent(&mut place, b"");
    place.settings.identities.files = vec![sshd.client_key_path().to_owned()];
    sshd.restart_with_new_host_key();
    let refused = place.login().await.unwrap_err();
    assert!(refused.contains("has changed"), "{refused}");
    assert_eq!(asked.load(std::sync::atomic::Ordering::SeqCst), 0);
    assert_eq!(sshd.failed_auth_count() + sshd.accepted_auth_count(), 0);
}

#[path = "host_certificate_tests.rs"]
mod host_certificates;
