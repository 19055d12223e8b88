use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use remote_sandbox_core::config::{
    Environment, HostKeyPolicy, HostKeySettings, Identities, Limits, Reach, SandboxConfig,
    SshSettings, Surroundings, Transport, Way,
};
use remote_sandbox_core::ids::SandboxName;
use remote_sandbox_core::secret::Mask;
use remote_sandbox_core::sftp::{Attributes, OpenFlags, RemotePath};
use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::users::TestUser;
use remote_sandbox_testkit::wait_until;
use rstest::rstest;
use tempfile::TempDir;

use super::super::hostkeys::HostKeyStore;
use super::super::{Dialer, RouteFinder};
use super::*;
use crate::sandbox::Sandbox;
use crate::secrets::SecretKeeper;
use crate::secrets::SecretStore;

const PATIENCE: Duration = Duration::from_secs(10);

const OPENSSH: Transport = Transport::OpenSsh {
    require_existing_master: false,
};

/// A sandbox on a test sshd, and a folder for what it keeps.
pub(crate) fn sandbox(sshd: &Sshd, transport: Transport) -> (SshSandbox, TempDir) {
    let folder = TempDir::new().unwrap();
    let known_hosts = folder.path().join("known_hosts");
    fs::write(&known_hosts, sshd.known_hosts()).unwrap();
    let settings = SshSettings {
        host: "127.0.0.1".into(),
        port: sshd.port(),
        user: TestUser::current().name().to_owned(),
        key_file: Some(sshd.client_key_path().to_owned()),
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
    let config = SandboxConfig {
        name: SandboxName::parse("box").unwrap(),
        origin: "a test".into(),
        reach: Reach::Host(settings),
        transport,
        surroundings: Surroundings::default(),
        tags: Vec::new(),
        notes: Vec::new(),
    };
    (SshSandbox::new(&config, dialer(folder.path())), folder)
}

fn dialer(folder: &Path) -> Arc<Dialer> {
    let store = Arc::new(HostKeyStore::new(folder, None));
    let secrets = SecretKeeper::new(
        Mask::new(Vec::<String>::new()),
        &Environment::new(),
        std::iter::empty(),
        Arc::new(SecretStore::new(folder)),
    );
    let routes = RouteFinder::new(&Environment::new());
    Arc::new(Dialer::new(store, secrets, routes, folder.join("s")))
}

#[rstest]
#[case::builtin(Transport::Builtin)]
#[case::openssh(OPENSSH)]
#[tokio::test(flavor = "multi_thread")]
async fn files_go_over_the_connection(#[case] transport: Transport) {
    let sshd = Sshd::start();
    let (sandbox, folder) = sandbox(&sshd, transport);
    let client = sandbox.open_sftp().await.unwrap();
    let local = folder.path().join("big");
    let path = RemotePath::new(local.as_os_str().as_bytes()).unwrap();
    let content: Vec<u8> = (0..10_000_000_u32).map(|at| (at * 7 / 3) as u8).collect();
    let flags = OpenFlags::NEW.and(OpenFlags::READ);
    let file = client.open(&path, flags, Attributes::default()).await;
    let file = file.unwrap();
    file.write_range(0, &mut content.as_slice()).await.unwrap();
    assert!(fs::read(&local).unwrap() == content);
    let mut back = Vec::new();
    file.read_range(0, u64::MAX, &mut back).await.unwrap();
    assert!(back == content);
    file.close().await.unwrap();
    // Several channels at once, on the one connection.
    let more = futures::future::join_all((0..4).map(|_| sandbox.open_sftp())).await;
    for client in more {
        let size = client.unwrap().stat(&path).await.unwrap().size_bytes;
        assert_eq!(size, Some(10_000_000));
    }
    assert_eq!(sshd.accepted_auth_count(), 1);
    sandbox.close().await;
    let gone = || client.loss().is_some();
    assert!(wait_until(PATIENCE, gone).await);
}

#[rstest]
#[case::builtin(Transport::Builtin)]
#[case::openssh(OPENSSH)]
#[tokio::test]
async fn host_without_the_subsystem_is_told(#[case] transport: Transport) {
    // There is no way to configure none at all but under another name.
    let sshd = Sshd::builder()
        .extra_config("Subsystem other internal-sftp")
        .start();
    let (sandbox, _folder) = sandbox(&sshd, transport);
    let failure = sandbox.open_sftp().await.unwrap_err();
    assert_eq!(failure.code, Code::Unsupported, "{failure:?}");
    // The connection is still good.
    sandbox.check().await.unwrap();
    sandbox.close().await;
}

#[rstest]
#[case::builtin(Transport::Builtin)]
#[case::openssh(OPENSSH)]
#[tokio::test]
async fn channel_gives_its_place_back_when_the_client_is_dropped(#[case] transport: Transport) {
    let sshd = Sshd::builder().max_sessions(3).start();
    let (sandbox, _folder) = sandbox(&sshd, transport);
    let home = RemotePath::new(".").unwrap();
    // The host would refuse the fourth if the others stayed open.
    for _ in 0..8 {
        let place = sandbox.place().await.unwrap();
        let session = place.session().clone();
        let client = session.open_sftp(place).await.unwrap();
        client.realpath(&home).await.unwrap();
        drop(client);
        let free = || session.channels().0 == 0;
        assert!(wait_until(PATIENCE, free).await);
        let gone = || sshd.command_pids().len() <= 1;
        assert!(
            wait_until(PATIENCE, gone).await,
            "{:?}",
            sshd.command_pids()
        );
    }
    sandbox.close().await;
}

#[tokio::test]
async fn client_hears_it_when_the_connection_breaks() {
    let sshd = Sshd::start();
    let (sandbox, _folder) = sandbox(&sshd, Transport::Builtin);
    let client = sandbox.open_sftp().await.unwrap();
    sshd.kill_sessions();
    let path = RemotePath::new(".").unwrap();
    let failing = async {
        while client.stat(&path).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, failing).await.unwrap();
    assert!(client.loss().is_some());
}
