//! Proves who we are: the entry's own key first, then its password; one attempt each.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use remote_sandbox_core::config::{SecretSource, SshSettings};
use remote_sandbox_core::output::clean_line;
use remote_sandbox_core::secret::{Mask, Secret};
use russh::client::{AuthResult, Handle, KeyboardInteractiveAuthResponse};
use russh::keys::{PrivateKey, PrivateKeyWithHashAlg};
use russh::{MethodKind, MethodSet};

use super::dial::HostGuard;
use crate::fsio::{self, FileError};
use crate::proc::{self, CommandError};

/// A private key file is never larger than this.
const LARGEST_KEY: u64 = 256 * 1024;

/// How long a command that prints a secret may take.
const SECRET_COMMAND_LIMIT: Duration = Duration::from_secs(15);

/// A server may send this many rounds of questions.
const MOST_ROUNDS: usize = 4;

/// Why the login did not work.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// The key file could not be read.
    #[error("the private key cannot be read")]
    KeyFile(#[from] FileError),
    /// There is no such key file.
    #[error("the private key `{}` does not exist", .0.display())]
    KeyMissing(PathBuf),
    /// Others can read the key file.
    #[error("the private key `{}` has mode {mode:04o}; others can read it, it must be 0600", path.display())]
    KeyExposed {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The key file belongs to somebody else.
    #[error("the private key `{}` belongs to another user; it must be yours, mode 0600", .0.display())]
    KeyForeign(PathBuf),
    /// The key is encrypted and the entry has no passphrase.
    #[error("the private key `{}` is encrypted and the entry has no `key_passphrase`", .0.display())]
    PassphraseMissing(PathBuf),
    /// The passphrase does not open the key.
    #[error("the private key `{}` cannot be opened with its `key_passphrase`", .0.display())]
    PassphraseWrong(PathBuf),
    /// The file holds no key that we know.
    #[error("`{}` holds no private key of a known kind", path.display())]
    KeyUnusable {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        #[source]
        source: russh::keys::Error,
    },
    /// The command that should print a secret did not.
    #[error("the `{key}` of the entry gave no secret")]
    SecretCommand {
        /// The configuration key.
        key: &'static str,
        /// Why.
        #[source]
        source: CommandError,
    },
    /// The command printed nothing that can be a secret.
    #[error("the `{0}` of the entry printed nothing usable")]
    SecretEmpty(&'static str),
    /// The host refused.
    #[error("{user}@{host} was refused with {tried}; the host accepts: {accepted}")]
    Refused {
        /// The account.
        user: String,
        /// The host.
        host: String,
        /// What was tried.
        tried: String,
        /// What the host would take.
        accepted: String,
    },
    /// The host asks something that no entry can answer.
    #[error("{host} asks `{prompt}`, which an unattended entry cannot answer")]
    Question {
        /// The host.
        host: String,
        /// Its question, cleaned.
        prompt: String,
    },
    /// The connection ended while we were logging in.
    #[error("{host} closed the connection during the login")]
    Closed {
        /// The host.
        host: String,
    },
    /// The protocol broke.
    #[error("the login at {host} broke off")]
    Protocol {
        /// The host.
        host: String,
        /// Why.
        #[source]
        source: russh::Error,
    },
}

/// Logs in.
pub(crate) async fn authenticate(
    handle: &mut Handle<HostGuard>,
    settings: &SshSettings,
    mask: &Mask,
) -> Result<(), AuthError> {
    let mut login = Login {
        handle,
        settings,
        mask,
        tried: Vec::new(),
        accepted: None,
    };
    login.run().await
}

struct Login<'a> {
    handle: &'a mut Handle<HostGuard>,
    settings: &'a SshSettings,
    mask: &'a Mask,
    tried: Vec<String>,
    accepted: Option<MethodSet>,
}

impl Login<'_> {
    async fn run(&mut self) -> Result<(), AuthError> {
        if let Some(path) = &self.settings.key_file
            && self.try_key(path).await?
        {
            return Ok(());
        }
        if let Some(source) = &self.settings.password {
            let password = reveal("password_command", source, self.mask).await?;
            if self.try_password(&password).await? {
                return Ok(());
            }
        }
        Err(self.refused())
    }

    async fn try_key(&mut self, path: &Path) -> Result<bool, AuthError> {
        let passphrase = match &self.settings.key_passphrase {
            Some(source) => Some(reveal("key_passphrase_command", source, self.mask).await?),
            None => None,
        };
        let key = load_key(path, passphrase.as_ref())?;
        // Without a hash an RSA key would sign with SHA-1, which servers refuse.
        let hash = if key.algorithm().is_rsa() {
            self.handle
                .best_supported_rsa_hash()
                .await
                .map_err(|e| self.broken(e))?
                .flatten()
                .or(Some(russh::keys::HashAlg::Sha256))
        } else {
            None
        };
        self.tried.push(format!("the key `{}`", path.display()));
        let key = PrivateKeyWithHashAlg::new(Arc::new(key), hash);
        let result = self
            .handle
            .authenticate_publickey(&self.settings.user, key)
            .await;
        self.judge(result)
    }

    async fn try_password(&mut self, password: &Secret<String>) -> Result<bool, AuthError> {
        if self.accepted.is_none() {
            // Asking costs a round trip, guessing wrong costs a failed login in the host's log.
            let result = self.handle.authenticate_none(&self.settings.user).await;
            if self.judge(result)? {
                return Ok(true);
            }
        }
        let accepts = |kind| {
            self.accepted
                .as_ref()
                .is_some_and(|set| set.contains(&kind))
        };
        if accepts(MethodKind::Password) {
            self.tried.push("the password".to_owned());
            let secret = password.expose().clone();
            let result = self
                .handle
                .authenticate_password(&self.settings.user, secret)
                .await;
            self.judge(result)
        } else if accepts(MethodKind::KeyboardInteractive) {
            self.tried
                .push("the password (keyboard-interactive)".to_owned());
            self.answer_questions(password).await
        } else {
            Ok(false)
        }
    }

    async fn answer_questions(&mut self, password: &Secret<String>) -> Result<bool, AuthError> {
        let user = self.settings.user.clone();
        let mut response = self
            .handle
            .authenticate_keyboard_interactive_start(user, None::<String>)
            .await;
        let mut given = false;
        for _ in 0..MOST_ROUNDS {
            match response.map_err(|e| self.broken(e))? {
                KeyboardInteractiveAuthResponse::Success => return Ok(true),
                KeyboardInteractiveAuthResponse::Failure {
                    remaining_methods, ..
                } => {
                    self.accepted = Some(remaining_methods);
                    return Ok(false);
                }
                KeyboardInteractiveAuthResponse::InfoRequest { prompts, .. } => {
                    let mut answers = Vec::new();
                    for prompt in &prompts {
                        if prompt.echo || given {
                            return Err(AuthError::Question {
                                host: self.settings.host.clone(),
                                prompt: clean_line(&prompt.prompt, 80),
                            });
                        }
                        given = true;
                        answers.push(password.expose().clone());
                    }
                    response = self
                        .handle
                        .authenticate_keyboard_interactive_respond(answers)
                        .await;
                }
            }
        }
        Ok(false)
    }

    fn judge(&mut self, result: Result<AuthResult, russh::Error>) -> Result<bool, AuthError> {
        match result.map_err(|e| self.broken(e))? {
            AuthResult::Success => Ok(true),
            // The library reports a dead connection as a refusal without any method left.
            AuthResult::Failure {
                remaining_methods, ..
            } if remaining_methods.is_empty() && self.handle.is_closed() => {
                Err(AuthError::Closed {
                    host: self.settings.host.clone(),
                })
            }
            AuthResult::Failure {
                remaining_methods, ..
            } => {
                self.accepted = Some(remaining_methods);
                Ok(false)
            }
        }
    }

    fn broken(&self, source: russh::Error) -> AuthError {
        let host = self.settings.host.clone();
        match source {
            russh::Error::SendError | russh::Error::RecvError | russh::Error::Disconnect => {
                AuthError::Closed { host }
            }
            source => AuthError::Protocol { host, source },
        }
    }

    fn refused(&self) -> AuthError {
        let accepted: Vec<&str> = self
            .accepted
            .iter()
            .flat_map(|set| set.iter())
            .map(<&str>::from)
            .collect();
        let none_tried = "nothing, for the entry's credentials are not accepted there";
        AuthError::Refused {
            user: self.settings.user.clone(),
            host: self.settings.host.clone(),
            tried: if self.tried.is_empty() {
                none_tried.to_owned()
            } else {
                self.tried.join(", then ")
            },
            accepted: if accepted.is_empty() {
                "nothing".into()
            } else {
                accepted.join(", ")
            },
        }
    }
}

/// Takes a secret from its place and makes sure that it is masked from now on.
async fn reveal(
    key: &'static str,
    source: &SecretSource,
    mask: &Mask,
) -> Result<Secret<String>, AuthError> {
    let arguments = match source {
        SecretSource::Clear(secret) => return Ok(secret.clone()),
        SecretSource::Command(arguments) => arguments,
    };
    let output = proc::capture_output(arguments, SECRET_COMMAND_LIMIT)
        .await
        .map_err(|source| AuthError::SecretCommand { key, source })?;
    let text = String::from_utf8(output).map_err(|_| AuthError::SecretEmpty(key))?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        return Err(AuthError::SecretEmpty(key));
    }
    mask.learn(text);
    Ok(Secret::new(text.to_owned()))
}

fn load_key(path: &Path, passphrase: Option<&Secret<String>>) -> Result<PrivateKey, AuthError> {
    let content = fsio::read_bounded(path, LARGEST_KEY)?
        .ok_or_else(|| AuthError::KeyMissing(path.to_owned()))?;
    let found = fsio::mode_and_ownership(path)?;
    if found.mine && found.mode & 0o077 != 0 {
        return Err(AuthError::KeyExposed {
            path: path.to_owned(),
            mode: found.mode,
        });
    }
    if !found.mine && !found.of_root {
        return Err(AuthError::KeyForeign(path.to_owned()));
    }
    let text = Secret::new(String::from_utf8_lossy(&content).into_owned());
    let passphrase = passphrase.map(|secret| secret.expose().as_str());
    russh::keys::decode_secret_key(text.expose(), passphrase).map_err(|source| {
        let path = path.to_owned();
        let encrypted = matches!(source, russh::keys::Error::KeyIsEncrypted)
            || text.expose().contains("ENCRYPTED");
        match (encrypted, passphrase) {
            (true, None) => AuthError::PassphraseMissing(path),
            (true, Some(_)) => AuthError::PassphraseWrong(path),
            (false, Some(_)) if text.expose().contains("BEGIN OPENSSH PRIVATE KEY") => {
                AuthError::PassphraseWrong(path)
            }
            _ => AuthError::KeyUnusable { path, source },
        }
    })
}
