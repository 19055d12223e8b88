//! Looks at a host step by step: the way there as every connection goes it, then what is there.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use remote_sandbox_core::config::{AgentChoice, SshSettings, Transport, Way};
use remote_sandbox_core::doctor::{Status, Step, StepName, judge_banner};
use remote_sandbox_core::failure::Failure;
use tokio::time::Instant;

use super::dial_error::DialError;
use super::hostkeys::Accepted;
use super::line::Line;
use super::link::Link;
use super::openssh::SharedConnection;
use super::session::Session;
use super::watch::{self, Milestone, Watch};
use super::{SshSandbox, judge_dial, offered, script};
use crate::doctor::{self, SCRIPT_LIMIT, StepLog};
use crate::{clock, fsio};

/// Most addresses, keys and the like that one line shows.
const MOST_SHOWN: usize = 6;

const BY_OPENSSH: &str = "the system's ssh does this by itself";

/// Looks at a host and writes down what it finds.
pub(super) async fn examine(sandbox: &SshSandbox, log: &StepLog) {
    if let Transport::OpenSsh {
        require_existing_master,
    } = sandbox.transport
    {
        return examine_over_openssh(sandbox, require_existing_master, log).await;
    }
    let dialled = match sandbox.pool.dial_watched(&watched(log)).await {
        Ok(dialled) => dialled,
        Err(error) => {
            let (_, hint, _) = judge_dial(&error);
            log.add(Step::failed(
                failed_step(&error),
                &Failure::chain(&error),
                hint,
            ));
            return;
        }
    };
    log.add(offered::sessions(&dialled.handle).await);
    log.add(offered::sftp(&dialled.handle).await);
    let session = Arc::new(Session::new(Link::Builtin(dialled), Arc::new(Line::new())));
    look_around(sandbox, &session, log).await;
    session.disconnect().await;
}

/// The system's `ssh` tells nothing of its steps, so that only what comes after them can be seen.
async fn examine_over_openssh(sandbox: &SshSandbox, only_existing: bool, log: &StepLog) {
    let kind = match only_existing {
        true => "the system's ssh, over a shared connection that must be open already",
        false => "the system's ssh, over a shared connection",
    };
    for name in [
        StepName::Dns,
        StepName::Tcp,
        StepName::Banner,
        StepName::HostKey,
        StepName::Auth,
        StepName::Sftp,
        StepName::Sessions,
    ] {
        log.add(Step::skipped(name, BY_OPENSSH));
    }
    let shared = shared_connection(sandbox, only_existing).await;
    let hopeless = shared.status == Status::Failed;
    log.add(shared);
    if hopeless {
        return log.add(Step::skipped(StepName::Transport, "no login is made"));
    }
    let started = clock::instant();
    match sandbox.place().await {
        Ok(place) => {
            log.add(Step::ok(StepName::Transport, kind).took(started.elapsed()));
            look_around(sandbox, place.session(), log).await;
        }
        Err(failure) => {
            let step = Step::failed(StepName::Transport, &failure.message, &failure.hint);
            log.add(step.took(started.elapsed()));
        }
    }
}

/// Whether the user has a connection open that may be shared.
async fn shared_connection(sandbox: &SshSandbox, only_existing: bool) -> Step {
    const NAME: StepName = StepName::SharedConnection;
    let started = clock::instant();
    let step = match (sandbox.pool.shared().await, only_existing) {
        (Ok(SharedConnection::Open { socket, process }), _) => {
            let detail = format!("open: process {process} on `{}`", socket.display());
            Step::ok(NAME, &detail)
        }
        (Ok(SharedConnection::Absent { host, why }), true) => {
            let fix = format!(
                "run `ssh {host}` in a terminal, with ControlMaster auto or yes, and leave it open; or take require_existing_master away"
            );
            Step::failed(NAME, &Failure::chain(&why), &fix)
        }
        (Ok(SharedConnection::NoPath), true) => Step::failed(
            NAME,
            "the SSH configuration has no ControlPath for this host",
            "set ControlMaster auto and a ControlPath for it and log in once; or take require_existing_master away",
        ),
        (Ok(SharedConnection::Absent { .. } | SharedConnection::NoPath), false) => {
            Step::ok(NAME, "none is open: the system's ssh logs in by itself")
        }
        (Err(error), _) => {
            let error = DialError::from(error);
            let (_, hint, _) = judge_dial(&error);
            Step::failed(NAME, &Failure::chain(&error), hint)
        }
    };
    step.took(started.elapsed())
}

/// Looks at shell, tools, disks and clock.
async fn look_around(sandbox: &SshSandbox, session: &Arc<Session>, log: &StepLog) {
    let ask = |text| async move {
        let deadline = clock::instant() + SCRIPT_LIMIT;
        let answer = script::run_script(session, text, None, deadline).await;
        answer.map_err(|error| sandbox.script_failure(&error))
    };
    doctor::look_around(log, ask, |_| true).await;
}

/// Which step it was that failed.
fn failed_step(error: &DialError) -> StepName {
    match error {
        DialError::Route(_) => StepName::Route,
        DialError::OpenSsh(_) => StepName::Transport,
        DialError::Resolve { .. } | DialError::ResolveSlow { .. } => StepName::Dns,
        DialError::Tcp { .. }
        | DialError::TcpSlow { .. }
        | DialError::Forward { .. }
        | DialError::Program { .. }
        | DialError::Broken { .. } => StepName::Tcp,
        DialError::Banner { .. } | DialError::BannerSlow { .. } => StepName::Banner,
        DialError::KeyExchange { .. } | DialError::KeyExchangeSlow { .. } => StepName::KeyExchange,
        DialError::HostKey(_) => StepName::HostKey,
        DialError::Auth(_) | DialError::AuthSlow { .. } => StepName::Auth,
        DialError::Hop { source, .. } | DialError::Complaint { source, .. } => failed_step(source),
    }
}

/// Turns milestones into steps.
struct Walk {
    log: StepLog,
    /// When the last milestone was passed.
    since: Instant,
    /// Where the whole way leads, when the SSH configuration said so.
    target: Option<String>,
    /// In front of what is told of a jump host.
    prefix: String,
    /// The steps before the present host.
    kept: usize,
}

fn watched(log: &StepLog) -> Watch {
    let walk = Mutex::new(Walk {
        log: log.clone(),
        since: clock::instant(),
        target: None,
        prefix: String::new(),
        kept: 0,
    });
    Watch::new(move |milestone| {
        let mut walk = walk.lock().unwrap_or_else(PoisonError::into_inner);
        walk.pass(milestone);
    })
}

impl Walk {
    fn pass(&mut self, milestone: Milestone) {
        let now = clock::instant();
        let took = now.duration_since(std::mem::replace(&mut self.since, now));
        match milestone {
            Milestone::Route(settings, notes) => {
                self.target = Some(watch::place(&settings));
                let step = Step::ok(StepName::Route, &describe(&settings));
                self.log.add(step.took(took));
                for note in notes {
                    let fix = "change the SSH configuration, or leave it if it is meant";
                    self.log.add(Step::warning(StepName::Note, &note, fix));
                }
            }
            Milestone::Towards(place) => {
                self.kept = self.log.count();
                self.prefix = match &self.target {
                    Some(target) if *target != place => format!("jump host {place}: "),
                    _ => String::new(),
                };
            }
            Milestone::Resolved(addresses) => {
                let mut shown: Vec<String> =
                    addresses.iter().map(|at| at.ip().to_string()).collect();
                shown.dedup();
                let detail = listed(&shown);
                self.put(Step::ok(StepName::Dns, &detail), took);
            }
            Milestone::Connected(address) => {
                let detail = address.map_or_else(String::new, |address| address.to_string());
                self.put(Step::ok(StepName::Tcp, &detail), took);
            }
            Milestone::Carried(by) => {
                let why = format!("left to what carries the connection: {by}");
                let step = Step::skipped(StepName::Dns, &why);
                self.log.put(self.kept, self.named(step));
                self.put(Step::ok(StepName::Tcp, by), took);
            }
            Milestone::Banner(text) => self.put(judge_banner(&text), took),
            Milestone::HostKey { shown, accepted } => {
                self.put(host_key(&shown, &accepted), took);
            }
            Milestone::LoggedIn(with) => {
                self.put(Step::ok(StepName::Auth, &format!("with {with}")), took);
            }
        }
    }

    fn named(&self, mut step: Step) -> Step {
        step.detail.insert_str(0, &self.prefix);
        step
    }

    fn put(&self, step: Step, took: Duration) {
        self.log.put(self.kept, self.named(step).took(took));
    }
}

fn host_key(shown: &str, accepted: &Accepted) -> Step {
    let name = StepName::HostKey;
    match accepted {
        Accepted::Known { source, line } => {
            Step::ok(name, &format!("{shown}, known from {source} line {line}"))
        }
        Accepted::Vouched { source, line } => Step::ok(
            name,
            &format!("{shown}, vouched for by the authority in {source} line {line}"),
        ),
        Accepted::New => Step::ok(name, &format!("{shown}, new: recorded just now")),
        Accepted::Unchecked => Step::warning(
            name,
            &format!("{shown}, not checked: anybody in between can pose as this host"),
            "take away host_key_policy \"insecure\" from the entry",
        ),
    }
}

/// The way in words, as the SSH configuration has it.
fn describe(settings: &SshSettings) -> String {
    let mut text = watch::place(settings);
    let mut way = &settings.way;
    let mut over = Vec::new();
    loop {
        match way {
            Way::Direct => break,
            Way::Command(_) => {
                // The line itself may hold a secret.
                over.push("a ProxyCommand".to_owned());
                break;
            }
            Way::Jump(before) => {
                over.push(watch::place(before));
                way = &before.way;
            }
        }
    }
    if !over.is_empty() {
        over.reverse();
        text.push_str(&format!(", over {}", over.join(", then ")));
    }
    let mut keys: Vec<String> = settings
        .key_file
        .iter()
        .chain(&settings.identities.files)
        .filter(|path| fsio::mode_and_ownership(path).is_ok())
        .map(|path| path.display().to_string())
        .collect();
    if let AgentChoice::Socket(path) = &settings.identities.agent {
        keys.insert(0, format!("those of the agent {}", path.display()));
    }
    match keys.is_empty() {
        true => text.push_str("; no keys"),
        false => text.push_str(&format!("; keys: {}", listed(&keys))),
    }
    text
}

fn listed(all: &[String]) -> String {
    let shown: Vec<&str> = all.iter().take(MOST_SHOWN).map(String::as_str).collect();
    match all.len().saturating_sub(MOST_SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
