//! What the known_hosts files say about a key a host offers.

use super::address::HostAddress;
use super::key::{HostKey, KeyError};
use super::known_hosts::{KnownHosts, Line, LineFault, Marker};

/// At most this many recorded keys are listed in [`Verdict::Changed`].
pub const MAX_RECORDED: usize = 32;

/// A key recorded for a host, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Name of the known_hosts file.
    pub source: String,
    /// Line in that file, counted from 1.
    pub line: usize,
    /// Algorithm of the recorded key.
    pub algorithm: &'static str,
    /// Fingerprint of the recorded key.
    pub fingerprint: String,
}

/// The answer to "may this key stand for this host".
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Exactly this key is recorded for the host.
    Trusted {
        /// Name of the known_hosts file.
        source: String,
        /// Line in that file, counted from 1.
        line: usize,
    },
    /// Nothing is recorded for the host.
    Unknown,
    /// Other keys are recorded for the host, of whatever algorithm.
    Changed {
        /// The recorded keys, never empty, at most [`MAX_RECORDED`].
        recorded: Vec<Recorded>,
    },
    /// The key is marked as revoked.
    Revoked {
        /// Name of the known_hosts file.
        source: String,
        /// Line in that file, counted from 1.
        line: usize,
    },
    /// A line about the host cannot be read and nothing else settles the matter.
    Broken {
        /// Name of the known_hosts file.
        source: String,
        /// Line in that file, counted from 1.
        line: usize,
        /// What is wrong with the line.
        reason: LineFault,
    },
}

/// Judges the key a host offers, reading the files in the given order.
///
/// Like OpenSSH, a host on another port than 22 that has no line of its own is trusted by a line for the host without
/// port when that holds the very same key; a different key there says nothing, as another port is another server.
#[must_use]
pub fn judge(address: &HostAddress, offered: &HostKey, files: &[KnownHosts]) -> Verdict {
    let name = address.known_hosts_name();
    let without_port = address.name_without_port();
    for looked_up in std::iter::once(name.as_str()).chain(without_port) {
        if let Some((source, line)) = revocation(looked_up, offered, files) {
            return Verdict::Revoked { source, line };
        }
    }
    match (judge_name(&name, offered, files), without_port) {
        (Verdict::Unknown, Some(host)) => match judge_name(host, offered, files) {
            trusted @ Verdict::Trusted { .. } => trusted,
            _ => Verdict::Unknown,
        },
        (verdict, _) => verdict,
    }
}

/// Algorithms of the keys recorded for the host, each once, in the order of the files.
///
/// A client should ask for these first: a host with several keys otherwise answers with one that is not recorded.
/// RSA keys are listed as `ssh-rsa`, for which the client asks by its signature algorithms.
#[must_use]
pub fn recorded_algorithms(address: &HostAddress, files: &[KnownHosts]) -> Vec<&'static str> {
    let own = algorithms_of(&address.known_hosts_name(), files);
    match address.name_without_port() {
        Some(host) if own.is_empty() => algorithms_of(host, files),
        _ => own,
    }
}

/// The line, with its line end, that records a key for a host.
#[must_use]
pub fn record_line(address: &HostAddress, key: &HostKey) -> String {
    format!(
        "{} {} {}\n",
        address.known_hosts_name(),
        key.algorithm(),
        key.to_base64()
    )
}

pub(super) fn matching<'a>(
    name: &'a str,
    files: &'a [KnownHosts],
) -> impl Iterator<Item = (&'a KnownHosts, &'a Line)> {
    files
        .iter()
        .flat_map(move |file| file.lines_matching(name).map(move |line| (file, line)))
}

pub(super) fn revocation(
    name: &str,
    key: &HostKey,
    files: &[KnownHosts],
) -> Option<(String, usize)> {
    matching(name, files)
        .find(|(_, line)| line.marker == Marker::Revoked && line.key.as_ref() == Ok(key))
        .map(|(file, line)| (file.source().to_owned(), line.number))
}

/// A revocation that cannot be read may mean any key.
pub(super) fn unreadable_revocation(name: &str, files: &[KnownHosts]) -> Option<Verdict> {
    matching(name, files)
        .filter(|(_, line)| line.marker == Marker::Revoked)
        .find_map(|(file, line)| match &line.key {
            Err(reason) if may_revoke(reason) => Some(Verdict::Broken {
                source: file.source().to_owned(),
                line: line.number,
                reason: reason.clone(),
            }),
            _ => None,
        })
}

/// Judges under one name, revocations of the very key set aside.
fn judge_name(name: &str, offered: &HostKey, files: &[KnownHosts]) -> Verdict {
    let mut trusted = None;
    let mut recorded = Vec::new();
    let mut broken = None;
    for (file, line) in matching(name, files) {
        let source = || file.source().to_owned();
        match (line.marker, &line.key) {
            (Marker::Revoked, Err(reason)) if may_revoke(reason) => {
                // Any key could be the one meant, so not even a matching line is enough.
                return Verdict::Broken {
                    source: source(),
                    line: line.number,
                    reason: reason.clone(),
                };
            }
            (Marker::Revoked | Marker::CertAuthority, _) => {}
            (Marker::Plain, Ok(key)) if key == offered => {
                trusted.get_or_insert_with(|| Verdict::Trusted {
                    source: source(),
                    line: line.number,
                });
            }
            (Marker::Plain, Ok(key)) if recorded.len() < MAX_RECORDED => recorded.push(Recorded {
                source: source(),
                line: line.number,
                algorithm: key.algorithm(),
                fingerprint: key.fingerprint(),
            }),
            (Marker::Plain, Ok(_)) => {}
            (Marker::Plain, Err(reason)) => {
                broken.get_or_insert_with(|| Verdict::Broken {
                    source: source(),
                    line: line.number,
                    reason: reason.clone(),
                });
            }
        }
    }
    let changed = (!recorded.is_empty()).then_some(Verdict::Changed { recorded });
    trusted.or(changed).or(broken).unwrap_or(Verdict::Unknown)
}

/// A key of an algorithm unknown here cannot be the offered one; every other unreadable revocation might be.
fn may_revoke(reason: &LineFault) -> bool {
    !matches!(reason, LineFault::BadKey(KeyError::UnknownAlgorithm { .. }))
}

fn algorithms_of(name: &str, files: &[KnownHosts]) -> Vec<&'static str> {
    let revoked: Vec<&HostKey> = matching(name, files)
        .filter(|(_, line)| line.marker == Marker::Revoked)
        .filter_map(|(_, line)| line.key.as_ref().ok())
        .collect();
    let mut algorithms = Vec::new();
    for (_, line) in matching(name, files) {
        let (Marker::Plain, Ok(key)) = (line.marker, &line.key) else {
            continue;
        };
        let listed = algorithms.contains(&key.algorithm());
        if !listed && !revoked.contains(&key) {
            algorithms.push(key.algorithm());
        }
    }
    algorithms
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
