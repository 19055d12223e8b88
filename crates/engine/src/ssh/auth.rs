//! Proves who we are: the entry's own key first, then its password; one attempt each.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use remote_sandbox_core::config::SshSettings;
use remote_sandbox_core::output::clean_line;
use remote_sandbox_core::secret::Secret;
use russh::client::{AuthResult, Handle, KeyboardInteractiveAuthResponse};
use russh::keys::PrivateKeyWithHashAlg;
use russh::{MethodKind, MethodSet};

use super::dial::{Farewell, HostGuard};
use super::key_file::{self, KeyFileError};
use super::secrets::{SecretError, SecretKeeper};

/// A server may send this many rounds of questions.
const MOST_ROUNDS: usize = 4;

/// Why the login did not work.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// The private key could not be used.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// A secret could not be had.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// Reading the key broke this program.
    #[error("reading the private key `{}` broke off", .0.display())]
    KeyBroke(PathBuf),
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
    /// The host hung up on a credential instead of refusing it.
    #[error("{host} closed the connection when {user} came with {tried}{words}")]
    HungUp {
        /// The account.
        user: String,
        /// The host.
        host: String,
        /// What was tried.
        tried: String,
        /// What the host said, if anything.
        words: String,
    },
    /// The connection ended before we showed a credential.
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
    secrets: &SecretKeeper,
    farewell: &Farewell,
) -> Result<(), AuthError> {
    let mut login = Login {
        handle,
        settings,
        secrets,
        farewell,
        tried: Vec::new(),
        accepted: None,
    };
    login.run().await
}

struct Login<'a> {
    handle: &'a mut Handle<HostGuard>,
    settings: &'a SshSettings,
    secrets: &'a SecretKeeper,
    farewell: &'a Farewell,
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
            let password = self.secrets.reveal("password_command", source).await?;
            if self.try_password(&password).await? {
                return Ok(());
            }
        }
        Err(self.refused())
    }

    async fn try_key(&mut self, path: &Path) -> Result<bool, AuthError> {
        let passphrase = match &self.settings.key_passphrase {
            Some(source) => Some(
                self.secrets
                    .reveal("key_passphrase_command", source)
                    .await?,
            ),
            None => None,
        };
        // Opening an encrypted key is hard work on purpose.
        let file = path.to_owned();
        let loading =
            tokio::task::spawn_blocking(move || key_file::load(&file, passphrase.as_ref()));
        let key = match loading.await {
            Ok(key) => key?,
            Err(_) => return Err(AuthError::KeyBroke(path.to_owned())),
        };
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
            } if remaining_methods.is_empty() && self.handle.is_closed() => Err(self.closed()),
            AuthResult::Failure {
                remaining_methods, ..
            } => {
                self.accepted = Some(remaining_methods);
                Ok(false)
            }
        }
    }

    fn broken(&self, source: russh::Error) -> AuthError {
        match source {
            russh::Error::SendError | russh::Error::RecvError | russh::Error::Disconnect => {
                self.closed()
            }
            source => AuthError::Protocol {
                host: self.settings.host.clone(),
                source,
            },
        }
    }

    /// A host that counts failures or knows the account as expired may hang up without a refusal.
    fn closed(&self) -> AuthError {
        let host = self.settings.host.clone();
        if self.tried.is_empty() {
            return AuthError::Closed { host };
        }
        let words = self.farewell.words();
        AuthError::HungUp {
            user: self.settings.user.clone(),
            host,
            tried: self.tried.join(", then "),
            words: words.map_or_else(String::new, |words| {
                format!(": {}", clean_line(&words, 200))
            }),
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
