//! Host keys on disk: reads the user's files and ours, records new hosts in ours.

use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use remote_sandbox_core::config::{HostKeyPolicy, HostKeySettings, SshSettings};
use remote_sandbox_core::hostkey::{
    CertificateFault, CertificateVerdict, HostAddress, HostCertificate, HostKey, KnownHosts,
    Recorded, Verdict, has_authority, judge, judge_certificate, record_line, recorded_algorithms,
};
use russh::keys::PublicKeyOrCertificate;
use russh::keys::ssh_encoding::Encode;
use russh::keys::ssh_key::certificate::CertType;
use russh::keys::ssh_key::public::KeyData;

use crate::clock;
use crate::fsio::{self, FileError};

/// A larger file of host keys is refused rather than half read.
const LARGEST_FILE: u64 = 16 * 1024 * 1024;

/// How long to wait for another process that records a host.
const LOCK_LIMIT: Duration = Duration::from_secs(5);

/// Why a host's key was not accepted. Nothing was sent to the host.
#[derive(Debug, thiserror::Error)]
pub enum HostKeyError {
    /// The host is not recorded and may not be recorded now.
    #[error(
        "the {algorithm} key {fingerprint} of {address} is not recorded in any known_hosts file"
    )]
    Unknown {
        /// The host.
        address: String,
        /// The offered key's algorithm.
        algorithm: String,
        /// The offered key's fingerprint.
        fingerprint: String,
    },
    /// The host is recorded with another key.
    #[error(
        "the key of {address} has changed: it offers {algorithm} {fingerprint}, but {} is recorded",
        describe(recorded)
    )]
    Changed {
        /// The host.
        address: String,
        /// The offered key's algorithm.
        algorithm: String,
        /// The offered key's fingerprint.
        fingerprint: String,
        /// What is recorded.
        recorded: Vec<Recorded>,
    },
    /// The key is marked as revoked.
    #[error("the key {fingerprint} of {address} is revoked by {source_file} line {line}")]
    Revoked {
        /// The host.
        address: String,
        /// The offered key's fingerprint.
        fingerprint: String,
        /// The file with the mark.
        source_file: String,
        /// Its line.
        line: usize,
    },
    /// The only record for the host cannot be read.
    #[error("the record of {address} in {source_file} line {line} is broken: {reason}")]
    Broken {
        /// The host.
        address: String,
        /// The file.
        source_file: String,
        /// Its line.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// A file could not be read, so nothing can be said about the host.
    #[error("the host keys cannot be read")]
    Unreadable(#[from] FileError),
    /// The offered key itself makes no sense.
    #[error("the key that {address} offers cannot be read: {reason}")]
    Malformed {
        /// The host.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An authority gave the host a certificate, but that one does not count here and now.
    #[error("the certificate of {address} does not count: {fault}")]
    Certificate {
        /// The host.
        address: String,
        /// What is wrong with it.
        #[source]
        fault: CertificateFault,
    },
    /// The check itself did not come to an end.
    #[error("the check of the key of {address} broke off")]
    Interrupted {
        /// The host.
        address: String,
        /// Why.
        #[source]
        source: tokio::task::JoinError,
    },
}

/// What a host shows to prove who it is.
#[derive(Debug)]
pub(super) enum Shown {
    /// A key alone.
    Key(HostKey),
    /// A key that an authority vouches for.
    Certificate(Box<HostCertificate>),
}

impl Shown {
    /// Reads what the library received; a certificate must be signed by the authority it names.
    pub(super) fn read(
        offered: &PublicKeyOrCertificate,
        address: &HostAddress,
    ) -> Result<Self, HostKeyError> {
        let malformed = |reason: String| HostKeyError::Malformed {
            address: address.known_hosts_name(),
            reason,
        };
        let checked = |key: &KeyData| {
            let blob = key.encode_vec().map_err(|e| malformed(e.to_string()))?;
            HostKey::from_blob(blob).map_err(|e| malformed(e.to_string()))
        };
        let certificate = match offered {
            PublicKeyOrCertificate::PublicKey { key, .. } => {
                return Ok(Shown::Key(checked(key.key_data())?));
            }
            PublicKeyOrCertificate::Certificate(certificate) => certificate,
        };
        certificate.verify_signature().map_err(|_| {
            malformed("its certificate is not signed by the authority it names".into())
        })?;
        Ok(Shown::Certificate(Box::new(HostCertificate {
            key: checked(certificate.public_key())?,
            authority: checked(certificate.signature_key())?,
            signature_algorithm: certificate.signature().algorithm().to_string(),
            for_hosts: certificate.cert_type() == CertType::Host,
            principals: certificate.valid_principals().to_vec(),
            valid_after: certificate.valid_after(),
            valid_before: certificate.valid_before(),
            critical_options: certificate.critical_options().keys().cloned().collect(),
        })))
    }
}

impl std::fmt::Display for Shown {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (key, kind) = match self {
            Shown::Key(key) => (key, "key"),
            Shown::Certificate(certificate) => (&certificate.key, "certificate"),
        };
        let (algorithm, fingerprint) = (key.algorithm(), key.fingerprint());
        write!(formatter, "{algorithm} {kind} {fingerprint}")
    }
}

/// Why what a host shows was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accepted {
    /// It is recorded there.
    Known {
        /// The file.
        source: String,
        /// Its line.
        line: usize,
    },
    /// An authority that is recorded there vouches for it.
    Vouched {
        /// The file.
        source: String,
        /// Its line.
        line: usize,
    },
    /// The host was never seen before, and is recorded now.
    New,
    /// The policy wants nothing checked.
    Unchecked,
}

/// What the files let one expect of a host.
#[derive(Debug, Default)]
pub(super) struct Expected {
    /// The kinds of key recorded, to be asked for first.
    pub(super) algorithms: Vec<&'static str>,
    /// Whether a certificate may be worth asking for.
    pub(super) certificates: bool,
}

/// The name under which a host's key is looked up.
pub(super) fn looked_up(settings: &SshSettings) -> Result<HostAddress, HostKeyError> {
    match &settings.host_keys.name {
        Some(name) => HostAddress::alias(name),
        None => HostAddress::new(&settings.host, settings.port),
    }
    .map_err(|error| HostKeyError::Malformed {
        address: settings.host.clone(),
        reason: error.to_string(),
    })
}

fn describe(recorded: &[Recorded]) -> String {
    let entries: Vec<String> = recorded
        .iter()
        .take(4)
        .map(|entry| {
            format!(
                "{} {} ({} line {})",
                entry.algorithm, entry.fingerprint, entry.source, entry.line
            )
        })
        .collect();
    entries.join(", ")
}

/// The files of host keys that this process uses.
#[derive(Debug)]
pub struct HostKeyStore {
    own_file: PathBuf,
    user_files: Vec<PathBuf>,
}

impl HostKeyStore {
    /// A store that records in the state folder and reads the user's own files.
    pub fn new(state: &Path, home: Option<&Path>) -> Self {
        let mut user_files = Vec::new();
        if let Some(home) = home {
            user_files.push(home.join(".ssh/known_hosts"));
            user_files.push(home.join(".ssh/known_hosts2"));
        }
        user_files.push(PathBuf::from("/etc/ssh/ssh_known_hosts"));
        user_files.push(PathBuf::from("/etc/ssh/ssh_known_hosts2"));
        HostKeyStore {
            own_file: state.join("known_hosts"),
            user_files,
        }
    }

    /// What is recorded for a host; nothing when files cannot be read, which the judgement itself
    /// then reports.
    pub(super) fn expected(&self, address: &HostAddress, settings: &HostKeySettings) -> Expected {
        match self.read(settings) {
            Ok(files) => Expected {
                algorithms: recorded_algorithms(address, &files),
                certificates: has_authority(address, &files),
            },
            Err(_) => Expected::default(),
        }
    }

    /// Accepts or refuses what a host shows.
    pub(super) fn check_shown(
        &self,
        address: &HostAddress,
        shown: &Shown,
        settings: &HostKeySettings,
    ) -> Result<Accepted, HostKeyError> {
        let certificate = match shown {
            Shown::Key(key) => return self.check(address, key, settings),
            Shown::Certificate(certificate) => certificate,
        };
        if settings.policy == HostKeyPolicy::Insecure {
            return Ok(Accepted::Unchecked);
        }
        let now = clock::wall().as_secs();
        match judge_certificate(address, certificate, now, &self.read(settings)?) {
            CertificateVerdict::Vouched { source, line } => Ok(Accepted::Vouched { source, line }),
            // What an authority refuses must not be taken for a host never seen before.
            CertificateVerdict::Plain {
                verdict: Verdict::Unknown,
                fault: Some(fault),
            } => Err(HostKeyError::Certificate {
                address: address.known_hosts_name(),
                fault,
            }),
            CertificateVerdict::Plain {
                verdict: Verdict::Unknown,
                fault: None,
            } => self.check(address, &certificate.key, settings),
            CertificateVerdict::Plain { verdict, .. } => {
                explain(verdict, address, &certificate.key)
            }
        }
    }

    /// Accepts or refuses a host's key, recording it where the policy says so; may wait for a lock.
    pub fn check(
        &self,
        address: &HostAddress,
        key: &HostKey,
        settings: &HostKeySettings,
    ) -> Result<Accepted, HostKeyError> {
        if settings.policy == HostKeyPolicy::Insecure {
            return Ok(Accepted::Unchecked);
        }
        let verdict = judge(address, key, &self.read(settings)?);
        if verdict != Verdict::Unknown {
            return explain(verdict, address, key);
        }
        match settings.policy {
            HostKeyPolicy::AcceptNew => self.record(address, key),
            _ => explain(verdict, address, key),
        }
    }

    fn read(&self, settings: &HostKeySettings) -> Result<Vec<KnownHosts>, FileError> {
        let others = if settings.known_hosts_files.is_empty() {
            &self.user_files
        } else {
            &settings.known_hosts_files
        };
        let mut files = Vec::new();
        for path in std::iter::once(&self.own_file).chain(others) {
            if let Some(content) = fsio::read_bounded(path, LARGEST_FILE)? {
                files.push(KnownHosts::parse(path.display().to_string(), &content));
            }
        }
        Ok(files)
    }

    /// Appends a new host to our own file, unless somebody else recorded it meanwhile.
    fn record(&self, address: &HostAddress, key: &HostKey) -> Result<Accepted, HostKeyError> {
        if let Some(folder) = self.own_file.parent() {
            fsio::private_directory(folder)?;
        }
        let mut file = fsio::read_write_private(&self.own_file)?;
        let named = |source| FileError {
            action: "record a host in",
            path: self.own_file.clone(),
            source,
        };
        // Opened anew for every record, so the lock parts threads as well as processes.
        fsio::lock_within(&file, LOCK_LIMIT).map_err(named)?;
        let mut content = Vec::new();
        (&mut file)
            .take(LARGEST_FILE)
            .read_to_end(&mut content)
            .map_err(named)?;
        let label = self.own_file.display().to_string();
        let verdict = judge(address, key, &[KnownHosts::parse(label, &content)]);
        if verdict != Verdict::Unknown {
            return explain(verdict, address, key);
        }
        let mut line = String::new();
        if content.last().is_some_and(|&byte| byte != b'\n') {
            line.push('\n');
        }
        line.push_str(&record_line(address, key));
        file.seek(std::io::SeekFrom::End(0)).map_err(named)?;
        file.write_all(line.as_bytes()).map_err(named)?;
        file.sync_data().map_err(named)?;
        Ok(Accepted::New)
    }
}

fn explain(
    verdict: Verdict,
    address: &HostAddress,
    key: &HostKey,
) -> Result<Accepted, HostKeyError> {
    let (address, fingerprint) = (address.known_hosts_name(), key.fingerprint());
    let algorithm = key.algorithm().to_owned();
    match verdict {
        Verdict::Trusted { source, line } => Ok(Accepted::Known { source, line }),
        Verdict::Unknown => Err(HostKeyError::Unknown {
            address,
            algorithm,
            fingerprint,
        }),
        Verdict::Changed { recorded } => Err(HostKeyError::Changed {
            address,
            algorithm,
            fingerprint,
            recorded,
        }),
        Verdict::Revoked { source, line } => Err(HostKeyError::Revoked {
            address,
            fingerprint,
            source_file: source,
            line,
        }),
        Verdict::Broken {
            source,
            line,
            reason,
        } => Err(HostKeyError::Broken {
            address,
            source_file: source,
            line,
            reason: reason.to_string(),
        }),
    }
}
