//! All sandboxes on this machine: those that are there, new ones, and the end of them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use remote_sandbox_core::config::{Environment, LocalSettings, names_a_secret};
use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::ids::SandboxName;
use remote_sandbox_core::local::wire::Request;
use remote_sandbox_core::local::{DEFAULT_NAME, Level, LocalName, LocalRecord, Network};
use remote_sandbox_core::secret::{Mask, SHORTEST_MASKED_CHARS};
use remote_sandbox_core::shell::{EnvironmentName, TimeoutProgram};

use super::cgroup::Delegated;
use super::level::Walls;
use super::link::Address;
use super::start::{self, StartError};
use super::store::{Folders, Store};
use super::view::Private;
use super::{LocalError, LocalSandbox, StoreError, description_of, leftover};
use crate::sandbox::Sandbox as _;
use crate::{clock, fsio};

/// How long everything in a sandbox may take to end.
const END_LIMIT: Duration = Duration::from_secs(5);

/// Most sandboxes on this machine.
const MOST_SANDBOXES: usize = 64;

/// Most configurations of other servers that are known at the same time.
const MOST_OTHERS: usize = 32;

/// Variables of the user that commands may see: how to write text and tell time.
const PASSED_ON: [&str; 6] = ["LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "COLORTERM"];

/// Where programs are found inside, after those of the sandbox's own home.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What all local sandboxes share.
pub(super) struct Shared {
    pub(super) store: Store,
    pub(super) walls: Walls,
    pub(super) settings: LocalSettings,
    pub(super) user: String,
    /// Where sandboxes can be bounded as a whole.
    pub(super) groups: Option<Delegated>,
    /// Where programs that make walls are found.
    path: Option<OsString>,
    private: Private,
    mask: Mask,
    passed_on: Vec<(String, OsString)>,
}

impl Shared {
    /// The same with other settings.
    fn under(&self, settings: &LocalSettings) -> Self {
        Shared {
            store: Store::new(&self.private.state),
            walls: Walls::new(settings.isolation, self.path.clone()),
            settings: settings.clone(),
            user: self.user.clone(),
            groups: Delegated::find(&settings.limits),
            path: self.path.clone(),
            private: self.private.clone(),
            mask: self.mask.clone(),
            passed_on: self.passed_on.clone(),
        }
    }

    /// Keeps other servers from starting or deleting a sandbox.
    pub(super) async fn hold(&self, name: &LocalName) -> Result<File, StartError> {
        let root = self.store.folders(name).root;
        if !root.exists() {
            return Err(StartError::Deleted);
        }
        start::lock(&root).await
    }

    /// The control group of a sandbox, where there can be one.
    pub(super) fn control_group(&self, name: &LocalName, folders: &Folders) -> Option<OwnedFd> {
        let groups = self.groups.as_ref()?;
        match groups.make(name, &folders.root, &self.settings.limits) {
            Ok(group) => Some(group),
            Err(error) => {
                tracing::warn!(%name, %error, "the sandbox is not bounded as a whole");
                None
            }
        }
    }

    /// What commands must not see wherever it lies: the user's home and all that this program keeps.
    pub(super) fn private(&self) -> Private {
        self.private.clone()
    }

    /// The whole environment of what runs inside.
    pub(super) fn variables(&self, folders: &Folders, level: Level) -> Vec<(String, OsString)> {
        let mut path = OsString::from(folders.home.join(".local/bin"));
        path.push(":");
        path.push(PATH);
        let mut variables = vec![
            ("HOME".to_owned(), folders.home.clone().into()),
            ("PATH".to_owned(), path),
            ("USER".to_owned(), self.user.clone().into()),
            ("LOGNAME".to_owned(), self.user.clone().into()),
            ("SHELL".to_owned(), "/bin/sh".into()),
            ("TERM".to_owned(), "dumb".into()),
        ];
        variables.extend(self.passed_on.iter().cloned());
        // Where no /tmp of its own can be made, programs are told of another place.
        if !matches!(level, Level::Bubblewrap { .. }) {
            let place = OsString::from(&folders.temporary);
            variables.push(("TMPDIR".to_owned(), place));
        }
        variables
    }
}

/// Whether two configurations make the same sandboxes.
fn is_same(one: &LocalSettings, other: &LocalSettings) -> bool {
    one.isolation == other.isolation
        && one.network == other.network
        && one.readable == other.readable
        && one.limits == other.limits
        && one.surroundings == other.surroundings
}

/// All sandboxes on this machine that this user has.
pub struct Locals {
    shared: Arc<Shared>,
    known: Mutex<BTreeMap<LocalName, Arc<LocalSandbox>>>,
    /// Whether there is always one.
    has_default: bool,
    /// The same sandboxes as other servers have configured them, the newest last.
    others: Mutex<Vec<Arc<Locals>>>,
}

impl Locals {
    /// The sandboxes whose folders lie in the state folder. `has_default` says that there is always one,
    /// because the user has configured nothing else.
    pub fn new(
        state: &Path,
        settings: &LocalSettings,
        environment: &Environment,
        mask: Mask,
        has_default: bool,
    ) -> Self {
        let path = environment.get("PATH").map(OsString::from);
        let user = ["USER", "LOGNAME"]
            .into_iter()
            .find_map(|name| environment.get(name).filter(|value| !value.is_empty()));
        let uid = rustix::process::getuid();
        let user = user.cloned().unwrap_or_else(|| {
            if uid.is_root() {
                "root".to_owned()
            } else {
                uid.as_raw().to_string()
            }
        });
        let pass = |name: &str| {
            let value = environment.get(name)?;
            Some((name.to_owned(), OsString::from(value)))
        };
        Locals {
            shared: Arc::new(Shared {
                store: Store::new(state),
                walls: Walls::new(settings.isolation, path.clone()),
                settings: settings.clone(),
                user,
                groups: Delegated::find(&settings.limits),
                path,
                private: Private {
                    home: environment.get("HOME").map(PathBuf::from),
                    state: state.to_owned(),
                },
                mask,
                passed_on: PASSED_ON.into_iter().filter_map(pass).collect(),
            }),
            known: Mutex::new(BTreeMap::new()),
            has_default,
            others: Mutex::default(),
        }
    }

    /// What holds for all of them.
    pub fn settings(&self) -> &LocalSettings {
        &self.shared.settings
    }

    /// The sandbox of a name as a server has it whose configuration says something else; none when there is none.
    pub fn find_under(
        &self,
        settings: &LocalSettings,
        name: &str,
    ) -> Result<Option<Arc<LocalSandbox>>, Failure> {
        if is_same(settings, self.settings()) {
            return self.find(name);
        }
        let other = {
            let mut others = self.others();
            let found = others
                .iter()
                .find(|other| is_same(settings, other.settings()));
            match found {
                Some(other) => other.clone(),
                None => {
                    let other = Arc::new(Locals {
                        shared: Arc::new(self.shared.under(settings)),
                        known: Mutex::default(),
                        has_default: self.has_default,
                        others: Mutex::default(),
                    });
                    if others.len() == MOST_OTHERS {
                        others.remove(0);
                    }
                    others.push(other.clone());
                    other
                }
            }
        };
        other.find(name)
    }

    /// The same where there is always one.
    #[must_use]
    pub fn with_default(mut self) -> Self {
        self.has_default = true;
        self
    }

    /// Whether there is always one.
    pub fn has_default(&self) -> bool {
        self.has_default
    }

    /// The names of all sandboxes, the default one first. Another server may have made some.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        if self.has_default {
            names.push(DEFAULT_NAME.to_owned());
        }
        let stored = self.shared.store.names().into_iter();
        let others = stored.map(String::from).filter(|name| name != DEFAULT_NAME);
        names.extend(others);
        names
    }

    /// The sandbox of a name; none when there is none.
    pub fn find(&self, name: &str) -> Result<Option<Arc<LocalSandbox>>, Failure> {
        let Ok(name) = LocalName::parse(name) else {
            return Ok(None);
        };
        let is_default = self.has_default && name.as_str() == DEFAULT_NAME;
        if name.as_str() == DEFAULT_NAME && !self.has_default {
            return Ok(None);
        }
        let record = match self.shared.store.read(&name).map_err(store_failure)? {
            Some(record) => record,
            None if is_default => self.make_default(name.clone())?,
            None => {
                self.known().remove(&name);
                return Ok(None);
            }
        };
        let mut known = self.known();
        if let Some(sandbox) = known.get(&name)
            && sandbox.created_at() == record.created_at
        {
            return Ok(Some(sandbox.clone()));
        }
        let sandbox = Arc::new(self.sandbox_of(&record)?);
        known.insert(name, sandbox.clone());
        Ok(Some(sandbox))
    }

    fn make_default(&self, name: LocalName) -> Result<LocalRecord, Failure> {
        let record = LocalRecord::new(name, clock::timestamp(), None, Vec::new());
        match self.shared.store.create(&record) {
            Ok(()) => Ok(record),
            // Another server was first.
            Err(StoreError::Taken(name)) => {
                let found = self.shared.store.read(&name).map_err(store_failure)?;
                Ok(found.unwrap_or(record))
            }
            Err(error) => Err(store_failure(error)),
        }
    }

    /// Makes a sandbox and starts it.
    pub async fn create(
        &self,
        name: LocalName,
        network: Option<Network>,
        variables: Vec<(EnvironmentName, String)>,
    ) -> Result<Arc<LocalSandbox>, Failure> {
        self.finish_deletions().await;
        if name.as_str() == DEFAULT_NAME {
            let text = format!("`{DEFAULT_NAME}` is the name of the sandbox that is always there");
            return Err(Failure::new(Code::InvalidParams, text).hint("choose another name"));
        }
        if self.shared.store.names().len() >= MOST_SANDBOXES {
            let text = format!("there are {MOST_SANDBOXES} local sandboxes already");
            return Err(Failure::new(Code::Busy, text).hint("delete_sandbox ends those of no use"));
        }
        let record = LocalRecord::new(name, clock::timestamp(), network, variables);
        self.shared.store.create(&record).map_err(store_failure)?;
        let sandbox = Arc::new(self.sandbox_of(&record)?);
        if let Err(failure) = sandbox.check().await {
            // One that cannot be used is not left behind.
            let _ = self.remove(&sandbox).await;
            return Err(failure);
        }
        self.known().insert(record.name, sandbox.clone());
        Ok(sandbox)
    }

    /// Ends everything in a sandbox and removes its files.
    pub async fn delete(&self, name: &str) -> Result<(), Failure> {
        self.finish_deletions().await;
        let Some(sandbox) = self.find(name)? else {
            let text = format!("no local sandbox is named `{name}`");
            return Err(Failure::new(Code::NotFound, text).available(self.names()));
        };
        let removed = self.remove(&sandbox).await;
        self.known().remove(&sandbox.name);
        removed.map_err(|error| sandbox.failure(&error))
    }

    async fn remove(&self, sandbox: &LocalSandbox) -> Result<(), LocalError> {
        let lock = self.shared.hold(&sandbox.name).await?;
        let root = &sandbox.folders.root;
        // One that hangs does not answer; what it leaves is ended from outside.
        let _ = sandbox.address.ask(Request::End, END_LIMIT).await;
        if let Some(groups) = &self.shared.groups {
            groups.kill(&sandbox.name, root);
        }
        leftover::end_all(&sandbox.folders.home, END_LIMIT).await;
        if let Some(groups) = &self.shared.groups {
            groups.remove(&sandbox.name, root);
        }
        let aside = self.shared.store.set_aside(&sandbox.name)?;
        self.shared.store.remove(&aside).await?;
        drop(lock);
        Ok(())
    }

    /// Goes on with deletions that a crash has cut short.
    async fn finish_deletions(&self) {
        for aside in self.shared.store.set_aside_before() {
            // Whoever is at it holds the lock.
            let lock = fsio::read_write_private(&aside.join("lock"));
            if !lock.is_ok_and(|lock| fsio::try_lock(&lock)) {
                continue;
            }
            if let Err(error) = self.shared.store.remove(&aside).await {
                tracing::warn!(%error, "a deleted sandbox could not be removed");
            }
        }
    }

    /// Lets go of all that this server has used.
    pub async fn close(&self) {
        let mut known: Vec<_> = self.known().values().cloned().collect();
        for other in self.others().iter() {
            known.extend(other.known().values().cloned());
        }
        let closing = known.iter().map(|sandbox| sandbox.close());
        futures::future::join_all(closing).await;
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeMap<LocalName, Arc<LocalSandbox>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn others(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Locals>>> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sandbox_of(&self, record: &LocalRecord) -> Result<LocalSandbox, Failure> {
        let folders = self.shared.store.folders(&record.name);
        let shown = SandboxName::parse(record.name.as_str())
            .map_err(|error| Failure::new(Code::Internal, error.to_string()))?;
        let network = record.network.unwrap_or(self.shared.settings.network);
        let mut surroundings = self.shared.settings.surroundings.clone();
        let variables = record.variables().unwrap_or_default();
        for (name, value) in &variables {
            if names_a_secret(name.as_str()) && value.chars().count() >= SHORTEST_MASKED_CHARS {
                self.shared.mask.learn(value);
            }
        }
        surroundings.variables.extend(variables);
        surroundings
            .workdir
            .get_or_insert_with(|| folders.workspace.display().to_string());
        Ok(LocalSandbox {
            name: record.name.clone(),
            network,
            description: description_of(record, network, shown, &self.shared, &folders),
            found: OnceLock::new(),
            surroundings,
            address: Address::in_folder(&folders.root),
            folders,
            shared: self.shared.clone(),
            timeout_program: Mutex::new(TimeoutProgram::Unknown),
            starting: tokio::sync::Mutex::new(()),
        })
    }
}

fn store_failure(error: StoreError) -> Failure {
    let text = Failure::chain(&error);
    match error {
        StoreError::Taken(_) => Failure::new(Code::InvalidParams, text)
            .hint("choose another name, or use the one that is there"),
        StoreError::File(_) => Failure::new(Code::StoreUnavailable, text)
            .hint("free space, or correct the access rights of the state folder"),
        StoreError::Record { .. } => Failure::new(Code::StoreUnavailable, text)
            .hint("the folder of this sandbox is damaged; its files are beside the record"),
    }
}
