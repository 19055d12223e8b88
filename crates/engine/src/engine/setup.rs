//! From the command line, the environment and a file to a working engine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use remote_sandbox_core::config::{
    Config, ConfigText, Environment, FileChoice, PathError, Platform, Problem, SOURCE_MAX_BYTES,
    Sources, config_file_location, imported, resolve, state_dir,
};
use remote_sandbox_core::local::DEFAULT_NAME;
use remote_sandbox_core::secret::Mask;

use super::Engine;
use super::keeper::NoKeeper;
use super::watch_trial::unattended;
use crate::audit::Audit;
use crate::environment;
use crate::fsio::{self, FileError};
use crate::local::Locals;
use crate::notify::NotifySettings;
use crate::run::Registry;
use crate::sandbox::Sandbox;
use crate::secrets::{KeptSecrets, SecretKeeper, SecretStore};
use crate::ssh::{Dialer, HostKeyStore, RouteFinder, SshSandbox, known_aliases};
use crate::sync::LocalPaths;
use crate::transfer::Transfers;

/// Why the server cannot start at all.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A place for files cannot be worked out.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The configuration file cannot be read.
    #[error("the configuration file cannot be read")]
    File(#[from] FileError),
    /// The configuration file that was asked for is not there.
    #[error("the configuration file `{}` does not exist", .0.display())]
    Missing(PathBuf),
}

/// Reads the configuration; only a file that was asked for by name and cannot be read is an error.
pub fn load_config(flag: Option<&Path>, environment: Environment) -> Result<Config, SetupError> {
    let mut unreadable = None;
    let file = match config_file_location(flag, &environment, Platform::current()) {
        FileChoice::None => None,
        FileChoice::Required(path) => Some(read_config(&path)?.ok_or(SetupError::Missing(path))?),
        FileChoice::Optional(paths) => {
            let read = paths
                .into_iter()
                .map(|path| (read_config(&path), path))
                .find(|(read, _)| !matches!(read, Ok(None)));
            match read {
                Some((Err(SetupError::File(error)), path)) => {
                    let reason = error.source.to_string();
                    unreadable = Some(Problem::unreadable_file(path, reason));
                    None
                }
                Some((read, _)) => read?,
                None => None,
            }
        }
    };
    let sources = Sources { environment, file };
    let mut config = resolve(&sources);
    config.problems.extend(unreadable);
    if !config.import_ssh_config.is_empty() {
        let names = known_aliases(&sources.environment);
        let entries = imported(&config.import_ssh_config, &names, &config);
        config.sandboxes.extend(entries);
    }
    Ok(config)
}

fn read_config(path: &Path) -> Result<Option<ConfigText>, SetupError> {
    match fsio::read_bounded(path, SOURCE_MAX_BYTES as u64)? {
        Some(text) => Ok(Some(ConfigText::new(path.to_owned(), text)?)),
        None => Ok(None),
    }
}

/// The folder for control sockets, whose names must be short.
fn socket_folder(environment: &Environment, state: &Path) -> PathBuf {
    let short = environment.get("XDG_RUNTIME_DIR").map(PathBuf::from);
    let short = short.filter(|folder| folder.is_absolute() && folder.is_dir());
    short.map_or_else(
        || state.join("ssh"),
        |folder| folder.join("remote-sandbox-mcp"),
    )
}

/// What dials for this process, and what dials as the watchdog will when nobody is logged in.
fn dialers(
    environment: &Environment,
    hosts: &Arc<HostKeyStore>,
    keeper: &dyn Fn() -> SecretKeeper,
    sockets: PathBuf,
) -> (Arc<Dialer>, Arc<Dialer>) {
    let left = unattended(environment);
    let lone = Dialer::new(
        hosts.clone(),
        keeper().hiding_all_but(environment, &left),
        RouteFinder::new(&left),
        // Not the connections that this process shares.
        sockets.join("t"),
    );
    let routes = RouteFinder::new(environment);
    let usual = Dialer::new(hosts.clone(), keeper(), routes, sockets);
    (Arc::new(usual), Arc::new(lone))
}

/// The hosts of a configuration that can be used, by name.
fn configured(config: &Config, dialer: &Arc<Dialer>) -> BTreeMap<String, Arc<dyn Sandbox>> {
    let mut sandboxes: BTreeMap<String, Arc<dyn Sandbox>> = BTreeMap::new();
    for entry in config.ready() {
        let sandbox = SshSandbox::new(entry, dialer.clone());
        sandboxes.insert(entry.name.to_string(), Arc::new(sandbox));
    }
    sandboxes
}

/// Whether there is always a sandbox on this machine: where it was asked for, or where nothing else was.
/// Somebody whose configuration cannot be read wanted another machine than this one.
pub(crate) fn needs_local(config: &Config) -> bool {
    let nothing = config.sandboxes.is_empty()
        && config.import_ssh_config.is_empty()
        && config.problems.is_empty();
    nothing || config.local.is_given
}

impl Engine {
    /// An engine for a configuration; nothing is connected yet.
    pub fn new(config: &Config, environment: &Environment) -> Result<Self, SetupError> {
        let state = state_dir(environment, Platform::current())?;
        let home = environment
            .get("HOME")
            .map(PathBuf::from)
            .filter(|home| home.is_absolute());
        let mask = Mask::new(config.secrets());
        let hosts = Arc::new(HostKeyStore::new(&state, home.as_deref()));
        let secret_store = Arc::new(SecretStore::new(&state));
        let secrets: Vec<&str> = config.secrets().collect();
        let keeper = || {
            let secrets = secrets.iter().copied();
            SecretKeeper::new(mask.clone(), environment, secrets, secret_store.clone())
        };
        let sockets = socket_folder(environment, &state);
        let (dialer, unattended) = dialers(environment, &hosts, &keeper, sockets);
        let names = config.stored_secret_names().into_iter().cloned().collect();
        let kept = KeptSecrets::new(names, secret_store.clone(), mask.clone());
        let sandboxes = configured(config, &dialer);
        let audit = Arc::new(Audit::new(&state, mask.clone()));
        let registry = Arc::new(Registry::new(&state, mask.clone(), audit.clone()));
        registry.prune();
        // As the old server does: the first one is active until another is selected.
        let locals = Locals::new(
            &state,
            &config.local,
            environment,
            mask.clone(),
            needs_local(config),
        );
        let active = config.names().next().map(ToString::to_string);
        // One that happens to be there is not what somebody with a broken configuration wanted.
        let active = active.or_else(|| locals.has_default().then(|| DEFAULT_NAME.to_owned()));
        Ok(Engine {
            settings: config.settings.clone(),
            entries: config.sandboxes.clone(),
            problems: Engine::problem_texts(config),
            sandboxes,
            locals,
            active: Mutex::new(active),
            registry,
            audit,
            mask,
            kept,
            scanners: Mutex::default(),
            transfers: Transfers::new(&state, environment),
            events: config.watchdog.policy.clone(),
            paths: LocalPaths::new(&config.sync, environment, environment::working_directory()),
            state,
            dialer,
            secrets: secret_store,
            home,
            persisted: Mutex::default(),
            unattended,
            trials: Mutex::default(),
            made: tokio::sync::Mutex::default(),
            learned: Mutex::default(),
            keeper: Arc::new(NoKeeper),
            config_file: None,
        })
    }
    /// What is needed to tell events, with the secrets of this engine.
    pub fn notify_settings(&self, config: &Config, environment: &Environment) -> NotifySettings {
        NotifySettings::new(config, environment, self.mask.clone(), self.secrets.clone())
    }
}
