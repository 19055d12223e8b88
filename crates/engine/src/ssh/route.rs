//! How a host is reached, found out anew at each dial: an edited SSH configuration counts at once.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use remote_sandbox_core::config::{
    AgentChoice, AliasSettings, Environment, GivenLimits, HostKeyPolicy, HostKeySettings,
    Identities, Limits, Reach, SshAlias, SshSettings, Transport, Way,
};
use remote_sandbox_core::output::clean_line;
use remote_sandbox_core::ssh_config::{
    Approach, Asked, Checking, Hop, HostOptions, Local, MOST_HOPS, TEXT_MAX_BYTES,
    effective_options,
};
use tokio::sync::Semaphore;

use super::dial::{self, Dialled};
use super::dial_error::DialError;
use super::link::Link;
use super::openssh::{self, OpenSshError, SharedConnection};
use super::pool::Dialer;
use super::route_error::RouteError;
use super::route_files::ConfigFiles;
use super::watch::{Milestone, Watch};
use crate::proc::{self, CommandError};

/// How long `ssh -G` may take; it looks up names and runs programs where the user wants it.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// How many `ssh -G` run at the same time.
const MOST_QUESTIONS: usize = 8;

/// The words of `ssh` are shown up to this length.
const LONGEST_WORDS: usize = 300;

/// As many hosts on the way are allowed for before the way is known.
const EXPECTED_HOSTS: u32 = 3;

/// Keys that are tried when an entry names no credential.
const USUAL_KEYS: [&str; 4] = ["id_ed25519", "id_ecdsa", "id_rsa", "id_dsa"];

/// How one sandbox is reached.
pub(crate) struct Route {
    reach: Reach,
    transport: Transport,
    /// What the first answer was, for those who only want to show it.
    found: OnceLock<(Arc<SshSettings>, Vec<String>)>,
}

impl Route {
    pub(crate) fn new(reach: Reach, transport: Transport) -> Self {
        Route {
            reach,
            transport,
            found: OnceLock::new(),
        }
    }

    /// What to call the host in messages.
    pub(crate) fn name(&self) -> &str {
        match &self.reach {
            Reach::Host(settings) => &settings.host,
            Reach::Alias(entry) => entry.alias.as_str(),
        }
    }

    /// Host, port and user as far as the entry says them.
    pub(crate) fn place(&self) -> (String, u16, String) {
        match &self.reach {
            Reach::Host(settings) => (settings.host.clone(), settings.port, settings.user.clone()),
            Reach::Alias(entry) => (
                entry.alias.to_string(),
                entry.port.unwrap_or(22),
                entry.user.clone().unwrap_or_default(),
            ),
        }
    }

    /// User, host and port, where they are known and nothing stands between; else they do not say which host it is.
    pub(crate) fn direct_place(&self) -> Option<String> {
        let settings = match (&self.reach, self.found.get()) {
            (Reach::Host(settings), _) => settings,
            (Reach::Alias(_), found) => found?.0.as_ref(),
        };
        let is_direct = matches!(settings.way, Way::Direct);
        is_direct.then(|| format!("{}@{}:{}", settings.user, settings.host, settings.port))
    }

    /// What the SSH configuration said, and what is worth knowing about it.
    pub(crate) fn found(&self) -> Option<&(Arc<SshSettings>, Vec<String>)> {
        match self.reach {
            Reach::Host(_) => None,
            Reach::Alias(_) => self.found.get(),
        }
    }

    /// How long a connection may take at most, all hosts on the way together.
    pub(crate) fn connect_limit(&self) -> Duration {
        match (&self.reach, self.found.get()) {
            (Reach::Host(settings), _) => way_limit(settings),
            (Reach::Alias(_), Some((settings, _))) => ANSWER_LIMIT * 2 + way_limit(settings),
            (Reach::Alias(entry), None) => {
                let once = step_limit(&entry.limits.or(Limits::default()));
                (ANSWER_LIMIT + once) * EXPECTED_HOSTS
            }
        }
    }

    /// Finds the way and goes it.
    pub(crate) async fn dial(&self, dialer: &Dialer) -> Result<Link, DialError> {
        if let Transport::OpenSsh {
            require_existing_master,
        } = self.transport
        {
            let limit = self.connect_limit();
            let master = openssh::reach(&self.reach, require_existing_master, dialer, limit);
            return Ok(Link::OpenSsh(Box::new(master.await?)));
        }
        self.dial_watched(dialer, &Watch::default())
            .await
            .map(Link::Builtin)
    }

    /// Looks for a connection of the system's `ssh` that is open already.
    pub(super) async fn shared(&self, dialer: &Dialer) -> Result<SharedConnection, OpenSshError> {
        openssh::shared(&self.reach, dialer).await
    }

    /// Over a connection of our own, with somebody who is told how far it has come.
    pub(super) async fn dial_watched(
        &self,
        dialer: &Dialer,
        watch: &Watch,
    ) -> Result<Dialled, DialError> {
        let settings = match &self.reach {
            Reach::Host(settings) => Arc::new(dialer.routes.host(settings)),
            Reach::Alias(entry) => {
                let hidden = dialer.secrets.hidden();
                let (settings, notes) = dialer.routes.alias(entry, hidden).await?;
                let settings = Arc::new(settings);
                watch.tell(Milestone::Route(settings.clone(), notes.clone()));
                let _ = self.found.set((settings.clone(), notes));
                settings
            }
        };
        dial::dial(&settings, dialer, watch).await
    }

    /// Whether a second connection may be opened; it would be a login that nobody asked for where
    /// the system's `ssh` does it.
    pub(crate) fn may_repeat(&self) -> bool {
        self.transport == Transport::Builtin
    }
}

/// Name and TCP each have the TCP limit; the rest is slack for a second greeting.
fn step_limit(limits: &Limits) -> Duration {
    limits.tcp * 2 + limits.banner + limits.key_exchange + limits.authentication
}

fn way_limit(settings: &SshSettings) -> Duration {
    let before = match &settings.way {
        Way::Jump(before) => way_limit(before),
        Way::Direct | Way::Command(_) => Duration::ZERO,
    };
    before + step_limit(&settings.limits)
}

/// Knows where to ask how hosts are reached.
#[derive(Debug)]
pub struct RouteFinder {
    local: Local,
    files: ConfigFiles,
    questions: Semaphore,
}

impl RouteFinder {
    /// A finder for the user whose environment this is.
    pub fn new(environment: &Environment) -> Self {
        let text = |name: &str| environment.get(name).filter(|text| !text.is_empty());
        let machine = rustix::system::uname();
        let files = ConfigFiles::new(environment);
        RouteFinder {
            local: Local {
                home: files.home().map(Path::to_owned),
                user: text("USER").or(text("LOGNAME")).cloned(),
                user_id: rustix::process::getuid().as_raw(),
                host_name: machine.nodename().to_string_lossy().into_owned(),
                environment: environment.clone(),
            },
            files,
            questions: Semaphore::new(MOST_QUESTIONS),
        }
    }

    /// The settings of an entry that says everything itself, but perhaps no credential.
    fn host(&self, settings: &SshSettings) -> SshSettings {
        let mut settings = settings.clone();
        if settings.names_no_credential() && settings.identities == Identities::default() {
            settings.identities = self.usual_identities();
        }
        settings
    }

    fn usual_identities(&self) -> Identities {
        let folder = self.local.home.as_ref().map(|home| home.join(".ssh"));
        let keys = |folder: PathBuf| USUAL_KEYS.map(|key| folder.join(key)).to_vec();
        let socket = self.local.environment.get("SSH_AUTH_SOCK");
        let socket = socket.map(PathBuf::from).filter(|path| path.is_absolute());
        Identities {
            files: folder.map(keys).unwrap_or_default(),
            agent: socket.map_or(AgentChoice::None, AgentChoice::Socket),
            ..Identities::default()
        }
    }

    /// The settings of an entry that names a host of the SSH configuration, with notes about them.
    async fn alias(
        &self,
        entry: &AliasSettings,
        hidden: &[String],
    ) -> Result<(SshSettings, Vec<String>), RouteError> {
        let asked = Asked {
            alias: entry.alias.clone(),
            user: entry.user.clone(),
            port: entry.port,
            hops: Vec::new(),
        };
        let mut trip = Trip {
            finder: self,
            hidden,
            target: &entry.alias,
            limits: entry.limits,
            strict: entry.policy_is_given && entry.host_keys.policy == HostKeyPolicy::Strict,
            passed: Vec::new(),
        };
        let (mut settings, notes) = trip.settings(asked).await?;
        settings.key_passphrase.clone_from(&entry.key_passphrase);
        settings.password.clone_from(&entry.password);
        settings.key_file.clone_from(&entry.key_file);
        if !settings.names_no_credential() {
            settings.identities = Identities {
                certificates: settings.identities.certificates,
                ..Identities::default()
            };
        }
        let own = &entry.host_keys;
        if entry.policy_is_given {
            settings.host_keys.policy = own.policy;
        }
        if !own.known_hosts_files.is_empty() {
            settings
                .host_keys
                .known_hosts_files
                .clone_from(&own.known_hosts_files);
        }
        if own.name.is_some() {
            settings.host_keys.name.clone_from(&own.name);
        }
        Ok((settings, notes))
    }

    /// The configuration file that is read instead of the usual ones.
    pub(super) fn configuration(&self) -> Option<&Path> {
        self.files.instead()
    }

    /// Asks `ssh`, or reads the files where there is none.
    pub(super) async fn ask(
        &self,
        asked: &Asked,
        hidden: &[String],
    ) -> Result<HostOptions, RouteError> {
        let alias = || asked.alias.clone();
        let _turn = self.questions.acquire().await;
        let arguments = self.question(asked);
        let question = proc::capture_both(&arguments, hidden, ANSWER_LIMIT, TEXT_MAX_BYTES as u64);
        let text = match question.await {
            Ok(answer) if answer.success => answer.output,
            Ok(answer) => {
                return Err(RouteError::Refused {
                    alias: alias(),
                    words: complaint(&answer.errors),
                });
            }
            Err(CommandError::Start(error)) if error.kind() == std::io::ErrorKind::NotFound => {
                self.read_files(asked).await?
            }
            Err(CommandError::TooSlow(limit)) => {
                return Err(RouteError::Slow {
                    alias: alias(),
                    limit,
                });
            }
            Err(source) => {
                return Err(RouteError::Command {
                    alias: alias(),
                    source,
                });
            }
        };
        HostOptions::read(&text, &asked.alias, &self.local).map_err(|source| {
            let alias = alias();
            RouteError::Options { alias, source }
        })
    }

    fn question(&self, asked: &Asked) -> Vec<String> {
        let mut arguments = vec!["ssh".to_owned(), "-G".to_owned()];
        let mut add = |option: &str, value: String| {
            arguments.push(option.to_owned());
            arguments.push(value);
        };
        if let Some(file) = self.files.instead() {
            add("-F", file.display().to_string());
        }
        if let Some(user) = &asked.user {
            add("-l", user.clone());
        }
        if let Some(port) = asked.port {
            add("-p", port.to_string());
        }
        if !asked.hops.is_empty() {
            add("-J", Hop::list(&asked.hops));
        }
        add("--", asked.alias.to_string());
        arguments
    }

    async fn read_files(&self, asked: &Asked) -> Result<Vec<u8>, RouteError> {
        let (files, question, local) = (self.files.clone(), asked.clone(), self.local.clone());
        let alias = asked.alias.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let alias = question.alias.clone();
            let texts = files.read().map_err(|source| RouteError::File {
                alias: alias.clone(),
                source,
            })?;
            let mut include = |place, pattern: &str| files.included(place, pattern);
            effective_options(&texts, &question, &local, &mut include)
                .map(String::into_bytes)
                .map_err(|source| RouteError::Options { alias, source })
        });
        match reading.await {
            Ok(read) => read,
            Err(source) => Err(RouteError::Broke { alias, source }),
        }
    }
}

/// The words `ssh` ends with, without what it says of every call that has no terminal.
fn complaint(errors: &[u8]) -> String {
    let text = String::from_utf8_lossy(errors);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines: Vec<&str> = lines
        .filter(|line| !line.starts_with("Pseudo-terminal"))
        .collect();
    clean_line(&lines.join("; "), LONGEST_WORDS)
}

/// The search for the way to one host.
struct Trip<'a> {
    finder: &'a RouteFinder,
    hidden: &'a [String],
    target: &'a SshAlias,
    limits: GivenLimits,
    strict: bool,
    passed: Vec<(String, u16, String)>,
}

impl Trip<'_> {
    /// The settings of a host, those of the hosts before it within.
    fn settings(
        &mut self,
        asked: Asked,
    ) -> BoxFuture<'_, Result<(SshSettings, Vec<String>), RouteError>> {
        async move {
            let options = self.finder.ask(&asked, self.hidden).await?;
            let place = (options.host.clone(), options.port, options.user.clone());
            if self.passed.contains(&place) {
                return Err(RouteError::Circle {
                    alias: self.target.clone(),
                    hop: asked.alias.to_string(),
                });
            }
            if self.passed.len() > MOST_HOPS {
                return Err(RouteError::TooFar {
                    alias: self.target.clone(),
                });
            }
            self.passed.push(place);
            let mut notes = options.notes.clone();
            let way = match &options.approach {
                Approach::Direct => Way::Direct,
                Approach::Command(line) => Way::Command(line.clone()),
                Approach::Jump(hops) => {
                    let (before, more) = self.settings(last_hop(hops, &asked.alias)).await?;
                    let more = more.iter().map(|note| format!("on the way: {note}"));
                    notes.extend(more);
                    Way::Jump(Box::new(before))
                }
            };
            Ok((self.build(options, way), notes))
        }
        .boxed()
    }

    fn build(&self, options: HostOptions, way: Way) -> SshSettings {
        let limits = GivenLimits {
            tcp: self.limits.tcp.or(options.limits.tcp),
            keepalive_interval: self
                .limits
                .keepalive_interval
                .or(options.limits.keepalive_interval),
            keepalive_max: self.limits.keepalive_max.or(options.limits.keepalive_max),
            ..self.limits
        };
        let strict = self.strict || options.checking == Checking::Strict;
        SshSettings {
            host: options.host,
            port: options.port,
            user: options.user,
            key_file: None,
            key_passphrase: None,
            password: None,
            identities: Identities {
                files: options.identity_files,
                certificates: options.certificates,
                agent: options.agent,
                only_files: options.identities_only,
            },
            way,
            host_keys: HostKeySettings {
                policy: if strict {
                    HostKeyPolicy::Strict
                } else {
                    HostKeyPolicy::AcceptNew
                },
                known_hosts_files: options.known_hosts_files,
                name: options.host_key_alias,
            },
            limits: limits.or(Limits::default()),
        }
    }
}

/// The host right before the target; it is reached over all the others, as OpenSSH does it.
fn last_hop(hops: &[Hop], target: &SshAlias) -> Asked {
    let (last, before) = match hops.split_last() {
        Some((last, before)) => (Some(last), before.to_vec()),
        None => (None, Vec::new()),
    };
    Asked {
        alias: last.map_or_else(|| target.clone(), |hop| hop.host.clone()),
        user: last.and_then(|hop| hop.user.clone()),
        port: last.and_then(|hop| hop.port),
        hops: before,
    }
}

#[cfg(test)]
#[path = "route_tests.rs"]
mod tests;
