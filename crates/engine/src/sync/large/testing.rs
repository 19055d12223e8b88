//! A host of this machine behind a proxy, and files to send to it.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use remote_sandbox_core::config::{
    Environment, HostKeyPolicy, HostKeySettings, Identities, Limits, Reach, SandboxConfig,
    SshSettings, Surroundings, Transport, Way,
};
use remote_sandbox_core::ids::SandboxName;
use remote_sandbox_core::secret::Mask;
use remote_sandbox_core::sync::temporary::is_temporary;
use remote_sandbox_core::sync::{Entry, Kind, Mtime, RelPath};
use remote_sandbox_testkit::{FaultProxy, Sshd, TestUser};
use tempfile::TempDir;

use super::*;
use crate::secrets::SecretKeeper;
use crate::secrets::SecretStore;
use crate::ssh::{Dialer, HostKeyStore, RouteFinder, SshSandbox};
use crate::sync::Progress;
use crate::sync::gauge::Gauge;

pub(super) const MIB: usize = 1024 * 1024;

/// An sshd, a proxy before it, and a folder with a `near` and a `far` side.
pub(super) struct World {
    pub(super) sandbox: SshSandbox,
    pub(super) proxy: FaultProxy,
    folder: TempDir,
    _sshd: Sshd,
}

impl World {
    pub(super) async fn new() -> Self {
        World::on(Sshd::start()).await
    }

    pub(super) async fn on(sshd: Sshd) -> Self {
        let proxy = FaultProxy::start(sshd.port()).await;
        let folder = TempDir::new().unwrap();
        for name in ["near", "far"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        World {
            sandbox: sandbox(&sshd, proxy.port(), folder.path()),
            proxy,
            folder,
            _sshd: sshd,
        }
    }

    pub(super) fn near(&self, name: &str) -> PathBuf {
        self.folder.path().join("near").join(name)
    }

    pub(super) fn far(&self, name: &str) -> PathBuf {
        self.folder.path().join("far").join(name)
    }

    pub(super) fn far_root(&self) -> Vec<u8> {
        let root = self.folder.path().join("far");
        root.into_os_string().into_encoded_bytes()
    }

    /// Writes a file of this machine with a time that has nanoseconds.
    pub(super) fn write_near(&self, name: &str, content: &[u8]) -> Entry {
        fs::write(self.near(name), content).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_789);
        let file = File::options().write(true).open(self.near(name)).unwrap();
        file.set_modified(time).unwrap();
        entry(&self.near(name), name)
    }

    pub(super) fn write_far(&self, name: &str, content: &[u8]) -> Entry {
        fs::write(self.far(name), content).unwrap();
        entry(&self.far(name), name)
    }

    pub(super) async fn up(
        &self,
        entry: &Entry,
        old: Option<&Entry>,
    ) -> Result<LargeDone, LargeError> {
        self.up_with(entry, old, &Progress::default()).await
    }

    pub(super) async fn up_with(
        &self,
        entry: &Entry,
        old: Option<&Entry>,
        progress: &Progress,
    ) -> Result<LargeDone, LargeError> {
        let root = self.far_root();
        let job = LargeUp {
            file: File::open(self.near(&entry.path.shown().text)).unwrap(),
            entry,
            remote_root: &root,
            path: &entry.path,
            owner: b"one",
            old,
            progress,
            gauge: &Gauge::default(),
        };
        upload_large(&self.sandbox, job).await
    }

    /// Names of unfinished files on the far side.
    pub(super) fn unfinished(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.path().join("far")).unwrap();
        entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| is_temporary(path.file_name().unwrap().as_bytes()))
            .collect()
    }
}

pub(super) fn entry(path: &Path, name: &str) -> Entry {
    let found = fs::symlink_metadata(path).unwrap();
    Entry {
        path: RelPath::parse(name.as_bytes()).unwrap(),
        kind: Kind::File,
        size_bytes: found.size(),
        mtime: Mtime::exact(found.mtime(), found.mtime_nsec() as u32).unwrap(),
        mode: (found.mode() & 0o7777) as u16,
        identity: None,
    }
}

/// Bytes without a pattern.
pub(super) fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

fn sandbox(sshd: &Sshd, port: u16, folder: &Path) -> SshSandbox {
    let known_hosts = folder.join("known_hosts");
    fs::write(&known_hosts, sshd.known_hosts_for("127.0.0.1", port)).unwrap();
    let settings = SshSettings {
        host: "127.0.0.1".into(),
        port,
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
        transport: Transport::Builtin,
        surroundings: Surroundings::default(),
        tags: Vec::new(),
        notes: Vec::new(),
    };
    let store = Arc::new(HostKeyStore::new(folder, None));
    let secrets = SecretKeeper::new(
        Mask::new(Vec::<String>::new()),
        &Environment::new(),
        std::iter::empty(),
        Arc::new(SecretStore::new(folder)),
    );
    let routes = RouteFinder::new(&Environment::new());
    let dialer = Arc::new(Dialer::new(store, secrets, routes, folder.join("s")));
    SshSandbox::new(&config, dialer)
}
