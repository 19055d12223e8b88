//! Host certificates: what the `@cert-authority` lines of known_hosts files say about one.

use super::address::HostAddress;
use super::key::HostKey;
use super::known_hosts::{KnownHosts, Marker};
use super::verdict::{Verdict, judge, matching, revocation, unreadable_revocation};
use crate::output::clean_line;

/// At most this many names of a certificate are shown.
const SHOWN_PRINCIPALS: usize = 4;

/// A certificate that a host offers, its signature already found to be that of `authority`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCertificate {
    /// The key it certifies.
    pub key: HostKey,
    /// The key that signed it.
    pub authority: HostKey,
    /// How it was signed.
    pub signature_algorithm: String,
    /// Whether it is for hosts, not for users.
    pub for_hosts: bool,
    /// The names it is for; none means every name.
    pub principals: Vec<String>,
    /// The first second of its life, since the Unix epoch.
    pub valid_after: u64,
    /// The first second after its life, since the Unix epoch.
    pub valid_before: u64,
    /// What it demands to be understood.
    pub critical_options: Vec<String>,
}

/// Why a certificate of a trusted authority does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateFault {
    /// It is meant for users.
    #[error("it is a certificate for users, not for hosts")]
    NotForHosts,
    /// Its signature can be forged.
    #[error("it is signed with {algorithm}, which is too weak")]
    WeakSignature {
        /// How it is signed.
        algorithm: String,
    },
    /// It is not valid yet.
    #[error("it is not valid yet")]
    NotYetValid,
    /// It is not valid any more.
    #[error("it has expired")]
    Expired,
    /// It is for other names.
    #[error("it is for {names}, not for {host}")]
    OtherHost {
        /// The names, cleaned and cut.
        names: String,
        /// The name that was looked for.
        host: String,
    },
    /// It demands something that is not known.
    #[error("it has the critical option `{option}`, which is not known")]
    CriticalOption {
        /// The demand, cleaned.
        option: String,
    },
}

/// The answer to "may this certificate stand for this host".
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateVerdict {
    /// An authority recorded for the host vouches for it.
    Vouched {
        /// Name of the known_hosts file.
        source: String,
        /// Line in that file, counted from 1.
        line: usize,
    },
    /// No authority vouches for it, so that the certified key counts like a plain one.
    Plain {
        /// The verdict on the key.
        verdict: Verdict,
        /// Why an authority that is recorded for the host does not vouch.
        fault: Option<CertificateFault>,
    },
}

impl HostCertificate {
    /// What speaks against the certificate, whoever signed it; `now` counts from the Unix epoch.
    pub fn fault(&self, host: &str, now: u64) -> Option<CertificateFault> {
        if !self.for_hosts {
            return Some(CertificateFault::NotForHosts);
        }
        // SHA-1 can be collided, and DSA knows nothing else.
        if ["ssh-rsa", "ssh-dss"].contains(&self.signature_algorithm.as_str()) {
            return Some(CertificateFault::WeakSignature {
                algorithm: self.signature_algorithm.clone(),
            });
        }
        if now < self.valid_after {
            return Some(CertificateFault::NotYetValid);
        }
        if now >= self.valid_before {
            return Some(CertificateFault::Expired);
        }
        // Other than in known_hosts, a pattern is no name here.
        let fits = self.principals.iter().any(|name| name == host);
        if !self.principals.is_empty() && !fits {
            return Some(CertificateFault::OtherHost {
                names: self.shown_principals(),
                host: host.to_owned(),
            });
        }
        let option = self.critical_options.first()?;
        Some(CertificateFault::CriticalOption {
            option: clean_line(option, 80),
        })
    }

    fn shown_principals(&self) -> String {
        let shown: Vec<String> = self
            .principals
            .iter()
            .take(SHOWN_PRINCIPALS)
            .map(|name| clean_line(name, 80))
            .collect();
        let more = self.principals.len().saturating_sub(SHOWN_PRINCIPALS);
        match more {
            0 => shown.join(", "),
            more => format!("{} and {more} more", shown.join(", ")),
        }
    }
}

/// Judges the certificate a host offers, reading the files in the given order.
///
/// Like OpenSSH, a certificate that no recorded authority vouches for is taken for the key it holds, and a host on
/// another port than 22 without an authority of its own is vouched for by one recorded without port.
#[must_use]
pub fn judge_certificate(
    address: &HostAddress,
    offered: &HostCertificate,
    now: u64,
    files: &[KnownHosts],
) -> CertificateVerdict {
    let name = address.known_hosts_name();
    let names = [Some(name.as_str()), address.name_without_port()];
    let plain = |verdict, fault| CertificateVerdict::Plain { verdict, fault };
    for name in names.into_iter().flatten() {
        for key in [&offered.key, &offered.authority] {
            if let Some((source, line)) = revocation(name, key, files) {
                return plain(Verdict::Revoked { source, line }, None);
            }
        }
        if let Some(broken) = unreadable_revocation(name, files) {
            return plain(broken, None);
        }
    }
    let mut fault = None;
    for name in names.into_iter().flatten() {
        let mut authorities = authorities(name, files).peekable();
        let recorded = authorities.peek().is_some();
        if let Some((file, line, _)) = authorities.find(|(_, _, key)| **key == offered.authority) {
            match offered.fault(address.host(), now) {
                None => {
                    return CertificateVerdict::Vouched {
                        source: file.source().to_owned(),
                        line,
                    };
                }
                found => fault = found,
            }
        }
        if recorded {
            break;
        }
    }
    plain(judge(address, &offered.key, files), fault)
}

/// Whether an authority is recorded that may vouch for the host, so that certificates are worth asking for.
#[must_use]
pub fn has_authority(address: &HostAddress, files: &[KnownHosts]) -> bool {
    let name = address.known_hosts_name();
    std::iter::once(name.as_str())
        .chain(address.name_without_port())
        .any(|name| authorities(name, files).next().is_some())
}

fn authorities<'a>(
    name: &'a str,
    files: &'a [KnownHosts],
) -> impl Iterator<Item = (&'a KnownHosts, usize, &'a HostKey)> {
    matching(name, files)
        .filter(|(_, line)| line.marker == Marker::CertAuthority)
        .filter_map(|(file, line)| Some((file, line.number, line.key.as_ref().ok()?)))
}

#[cfg(test)]
#[path = "certificate_tests.rs"]
mod tests;
