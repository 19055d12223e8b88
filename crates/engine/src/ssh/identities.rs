//! The keys besides an entry's own: which there are, and the order in which they are offered.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use remote_sandbox_core::config::{AgentChoice, Identities};
use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::output::clean_line;
use remote_sandbox_core::secret::Secret;
use russh::keys::agent::{AgentIdentity, AgentSessionBinding};
use russh::keys::ssh_key::public::KeyData;
use russh::keys::{Certificate, PrivateKey, PublicKey};

use super::agent::Agent;
use super::certificate;
use super::key_file::{self, KeyFileError};
use crate::{clock, fsio};

/// Of the files named, this many are read.
const MOST_FILES: usize = 32;

/// A public key file is never larger than this.
const LARGEST_PUBLIC: u64 = 64 * 1024;

/// Foreign words are shown up to this length.
const LONGEST_WORDS: usize = 200;

/// Who holds the private half of a key.
#[derive(Clone)]
pub(super) enum Held {
    /// We do.
    Here(Arc<PrivateKey>),
    /// The agent does, under this identity.
    ByAgent(Box<AgentIdentity>),
}

/// One thing to show to a host.
pub(super) struct Offer {
    /// What it is called in messages.
    pub(super) name: String,
    /// The public half.
    pub(super) key: PublicKey,
    /// What an authority says about it.
    pub(super) certificate: Option<Certificate>,
    /// Who can sign.
    pub(super) held: Held,
}

/// Everything that may be shown, and what was passed over.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) offers: Vec<Offer>,
    pub(super) notes: Vec<String>,
    pub(super) agent: Option<Agent>,
}

/// The identities of files, read.
#[derive(Default)]
pub(super) struct Files {
    keys: Vec<FileKey>,
    certificates: Vec<(PathBuf, Certificate)>,
    notes: Vec<String>,
}

struct FileKey {
    path: PathBuf,
    public: PublicKey,
    private: Option<Arc<PrivateKey>>,
    /// Why there is no private half, said only when the agent has none either.
    note: Option<String>,
}

/// Asks the agent and reads the files.
pub(super) async fn gather(
    identities: &Identities,
    passphrase: Option<Secret<String>>,
    binding: Option<&AgentSessionBinding>,
) -> Gathered {
    let mut gathered = Gathered::default();
    let mut held = Vec::new();
    if let AgentChoice::Socket(path) = &identities.agent {
        match Agent::ask(path, binding).await {
            Ok((agent, keys)) => {
                gathered.agent = Some(agent);
                held = keys;
            }
            Err(error) => gathered.notes.push(words(&error)),
        }
    }
    let wanted = identities.clone();
    let reading = tokio::task::spawn_blocking(move || Files::read(&wanted, passphrase.as_ref()));
    let files = match reading.await {
        Ok(files) => files,
        Err(error) => {
            gathered.notes.push(words(&error));
            Files::default()
        }
    };
    arrange(&mut gathered, files, held, identities.only_files);
    gathered
}

/// What can be shown for an entry's own key: the certificate first, for a host that asks for one
/// knows nothing of the key.
pub(super) fn own(path: &Path, key: PrivateKey, given: &[PathBuf]) -> (Vec<Offer>, Vec<String>) {
    let mut files = Files::default();
    files.read_certificate(&certificate::beside(path));
    for path in given.iter().take(MOST_FILES) {
        files.read_certificate(path);
    }
    let public = key.public_key().clone();
    let held = Held::Here(Arc::new(key));
    let plain = Offer {
        name: format!("the key `{}`", path.display()),
        key: public,
        certificate: None,
        held,
    };
    let mut offers = certified(&plain, &files.certificates);
    offers.push(plain);
    (offers, files.notes)
}

impl Files {
    fn read(wanted: &Identities, passphrase: Option<&Secret<String>>) -> Self {
        let mut files = Files::default();
        for path in wanted.certificates.iter().take(MOST_FILES) {
            files.read_certificate(path);
        }
        for path in wanted.files.iter().take(MOST_FILES) {
            files.read_key(path, passphrase);
            files.read_certificate(&certificate::beside(path));
        }
        files
    }

    fn read_key(&mut self, path: &Path, passphrase: Option<&Secret<String>>) {
        let (private, note) = match key_file::load(path, passphrase) {
            Ok(key) => (Some(Arc::new(key)), None),
            Err(KeyFileError::Missing(_)) => (None, None),
            Err(error) => (None, Some(words(&error))),
        };
        let public = match &private {
            Some(key) => Some(key.public_key().clone()),
            None => public_half(path),
        };
        match (public, note) {
            (Some(public), note) => self.keys.push(FileKey {
                path: path.to_owned(),
                public,
                private,
                note,
            }),
            (None, Some(note)) => self.notes.push(note),
            (None, None) => {}
        }
    }

    fn read_certificate(&mut self, path: &Path) {
        match certificate::load(path) {
            Ok(Some(certificate)) => self.certificates.push((path.to_owned(), certificate)),
            Ok(None) => {}
            Err(error) => self.notes.push(words(&error)),
        }
    }
}

/// The public half of a key that cannot be opened: the file itself may be it, or lie beside it, or
/// tell it without a passphrase.
fn public_half(path: &Path) -> Option<PublicKey> {
    let read = |path: &Path| {
        let content = fsio::read_bounded(path, LARGEST_PUBLIC).ok()??;
        Some(Secret::new(String::from_utf8_lossy(&content).into_owned()))
    };
    let mut beside = path.as_os_str().to_owned();
    beside.push(".pub");
    let from_file = || {
        let text = read(path)?;
        let public = PublicKey::from_openssh(text.expose().trim()).ok();
        public.or_else(|| {
            let key = PrivateKey::from_openssh(text.expose()).ok()?;
            Some(key.public_key().clone())
        })
    };
    let from_beside = || PublicKey::from_openssh(read(Path::new(&beside))?.expose().trim()).ok();
    from_file().or_else(from_beside)
}

/// Everything known about one key.
struct Group {
    key: KeyData,
    offers: Vec<Offer>,
    plain: Option<Offer>,
}

/// OpenSSH's order: keys of the agent that a file names, the agent's other keys, and the files the
/// agent does not have. Of one key the certificates come first.
fn arrange(gathered: &mut Gathered, files: Files, held: Vec<AgentIdentity>, only_files: bool) {
    gathered.notes.extend(files.notes);
    let mut groups: Vec<Group> = Vec::new();
    for identity in held {
        add_held(&mut groups, identity, &mut gathered.notes);
    }
    let (mut named, mut others) = (Vec::new(), Vec::new());
    for mut group in groups {
        if let Some(plain) = &group.plain {
            group.offers.extend(certified(plain, &files.certificates));
        }
        let is_named = files
            .keys
            .iter()
            .any(|file| *file.public.key_data() == group.key);
        if is_named {
            named.push(group);
        } else {
            if only_files {
                // A certificate that was named stands for its key; nothing else of the agent does.
                group.plain = None;
                group
                    .offers
                    .retain(|offer| is_given(offer, &files.certificates));
            }
            others.push(group);
        }
    }
    let mut lonely = Vec::new();
    for file in files.keys {
        let known = |group: &Group| group.key == *file.public.key_data();
        if named.iter().chain(&lonely).any(known) {
            continue;
        }
        match file.private {
            Some(private) => {
                let plain = Offer {
                    name: format!("the key `{}`", file.path.display()),
                    key: file.public.clone(),
                    certificate: None,
                    held: Held::Here(private),
                };
                lonely.push(Group {
                    key: file.public.key_data().clone(),
                    offers: certified(&plain, &files.certificates),
                    plain: Some(plain),
                });
            }
            None => gathered.notes.extend(file.note),
        }
    }
    for group in named.into_iter().chain(others).chain(lonely) {
        for offer in group.offers.into_iter().chain(group.plain) {
            let again = gathered.offers.iter().any(|known| {
                known.key.key_data() == offer.key.key_data()
                    && known.certificate == offer.certificate
            });
            if !again {
                gathered.offers.push(offer);
            }
        }
    }
}

fn add_held(groups: &mut Vec<Group>, identity: AgentIdentity, notes: &mut Vec<String>) {
    let key = identity.public_key().into_owned();
    let comment = clean_line(identity.comment(), 80);
    let certificate = match &identity {
        AgentIdentity::PublicKey { .. } => None,
        AgentIdentity::Certificate { certificate, .. } => {
            let name = format!("`{comment}` of the agent");
            if let Err(error) = certificate::check(certificate, name, clock::wall()) {
                notes.push(words(&error));
                return;
            }
            Some(certificate.clone())
        }
    };
    let index = groups
        .iter()
        .position(|group| group.key == *key.key_data())
        .unwrap_or_else(|| {
            groups.push(Group {
                key: key.key_data().clone(),
                offers: Vec::new(),
                plain: None,
            });
            groups.len() - 1
        });
    let Some(group) = groups.get_mut(index) else {
        return;
    };
    let what = match certificate {
        Some(_) => "certificate",
        None => "key",
    };
    let offer = Offer {
        name: format!("the agent's {what} `{comment}`"),
        key,
        certificate,
        held: Held::ByAgent(Box::new(identity)),
    };
    match offer.certificate {
        Some(_) => group.offers.push(offer),
        None => group.plain = Some(offer),
    }
}

/// The offers of the same key with each certificate for it.
fn certified(plain: &Offer, certificates: &[(PathBuf, Certificate)]) -> Vec<Offer> {
    certificates
        .iter()
        .filter(|(_, certificate)| certificate.public_key() == plain.key.key_data())
        .map(|(path, certificate)| Offer {
            name: format!("the certificate `{}`", path.display()),
            key: plain.key.clone(),
            certificate: Some(certificate.clone()),
            held: plain.held.clone(),
        })
        .collect()
}

fn is_given(offer: &Offer, certificates: &[(PathBuf, Certificate)]) -> bool {
    certificates
        .iter()
        .any(|(_, certificate)| offer.certificate.as_ref() == Some(certificate))
}

/// An error with its causes, as one short line.
pub(super) fn words(error: &(dyn Error + 'static)) -> String {
    clean_line(&Failure::chain(error), LONGEST_WORDS)
}
