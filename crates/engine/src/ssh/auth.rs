//! Proves who we are: the entry's own key first, then the agent's and other keys, then the password;
//! one attempt each, and not many in all.

use std::path::{Path, PathBuf};

use remote_sandbox_core::config::{Identities, SshSettings};
use remote_sandbox_core::output::clean_line;
use remote_sandbox_core::secret::Secret;
use russh::client::{AuthResult, Handle, KeyboardInteractiveAuthResponse};
use russh::keys::{Algorithm, Certificate, HashAlg, PublicKey};
use russh::{MethodKind, MethodSet};

use super::agent::{Agent, AgentError, Hand};
use super::dial::{Farewell, HostGuard};
use super::identities::{self, Held, Offer};
use super::key_file::{self, KeyFileError};
use crate::secrets::{SecretError, SecretKeeper};

/// A server may send this many rounds of questions.
const MOST_ROUNDS: usize = 4;

/// Servers hang up at the sixth failure, so that no more can help.
const MOST_OFFERS: usize = 6;

/// What was passed over is told up to this many times.
const MOST_NOTES: usize = 8;

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
    #[error("{user}@{host} was refused with {tried}; the host accepts: {accepted}{passed_over}")]
    Refused {
        /// The account.
        user: String,
        /// The host.
        host: String,
        /// What was tried.
        tried: String,
        /// What the host would take.
        accepted: String,
        /// What was not tried, and why.
        passed_over: String,
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

/// Logs in, and says with what.
pub(crate) async fn authenticate(
    handle: &mut Handle<HostGuard>,
    settings: &SshSettings,
    secrets: &SecretKeeper,
    farewell: &Farewell,
) -> Result<String, AuthError> {
    let mut login = Login {
        handle,
        settings,
        secrets,
        farewell,
        tried: Vec::new(),
        notes: Vec::new(),
        shown: Vec::new(),
        rsa_hash: None,
        accepted: None,
    };
    login.run().await?;
    Ok(login
        .tried
        .pop()
        .unwrap_or_else(|| "no credential, for the host asks for none".to_owned()))
}

struct Login<'a> {
    handle: &'a mut Handle<HostGuard>,
    settings: &'a SshSettings,
    secrets: &'a SecretKeeper,
    farewell: &'a Farewell,
    tried: Vec<String>,
    notes: Vec<String>,
    shown: Vec<(PublicKey, Option<Certificate>)>,
    rsa_hash: Option<HashAlg>,
    accepted: Option<MethodSet>,
}

impl Login<'_> {
    async fn run(&mut self) -> Result<(), AuthError> {
        if let Some(path) = &self.settings.key_file
            && self.try_own_key(path).await?
        {
            return Ok(());
        }
        if self.takes_keys() && self.try_identities().await? {
            return Ok(());
        }
        if let Some(source) = &self.settings.password {
            let password = self.secrets.reveal("password_command", source).await?;
            if self.try_password(&password).await? {
                return Ok(());
            }
        } else if self.accepted.is_none() && self.ask_methods().await? {
            return Ok(());
        }
        Err(self.refused())
    }

    async fn passphrase(&self) -> Result<Option<Secret<String>>, AuthError> {
        Ok(match &self.settings.key_passphrase {
            Some(source) => Some(
                self.secrets
                    .reveal("key_passphrase_command", source)
                    .await?,
            ),
            None => None,
        })
    }

    async fn try_own_key(&mut self, path: &Path) -> Result<bool, AuthError> {
        let passphrase = self.passphrase().await?;
        // Opening an encrypted key is hard work on purpose.
        let (file, given) = (
            path.to_owned(),
            self.settings.identities.certificates.clone(),
        );
        let loading = tokio::task::spawn_blocking(move || {
            let key = key_file::load(&file, passphrase.as_ref())?;
            Ok(identities::own(&file, key, &given))
        });
        let (offers, notes) = match loading.await {
            Ok(loaded) => loaded.map_err(AuthError::Key)?,
            Err(_) => return Err(AuthError::KeyBroke(path.to_owned())),
        };
        self.notes.extend(notes);
        self.try_offers(offers, None).await
    }

    async fn try_identities(&mut self) -> Result<bool, AuthError> {
        let identities = &self.settings.identities;
        if *identities == Identities::default() {
            return Ok(false);
        }
        // The passphrase of an entry without a key of its own is meant for one of these.
        let passphrase = match self.settings.key_file {
            None => self.passphrase().await?,
            Some(_) => None,
        };
        let binding = self.handle.agent_session_binding();
        let gathered = identities::gather(identities, passphrase, binding).await;
        self.notes.extend(gathered.notes);
        self.try_offers(gathered.offers, gathered.agent).await
    }

    async fn try_offers(
        &mut self,
        offers: Vec<Offer>,
        mut agent: Option<Agent>,
    ) -> Result<bool, AuthError> {
        // Of the attempts that servers usually grant, one is left for the password.
        let most = match self.settings.password {
            Some(_) => MOST_OFFERS - 1,
            None => MOST_OFFERS,
        };
        for offer in offers {
            if !self.takes_keys() {
                break;
            }
            if self.was_shown(&offer) {
                continue;
            }
            if self.shown.len() >= most {
                self.notes
                    .push(format!("{}: {most} attempts are the most", offer.name));
                continue;
            }
            let hand = match (offer.held.clone(), &mut agent) {
                (Held::Here(key), _) => Hand::Own(key),
                (Held::ByAgent(identity), Some(agent)) => Hand::Agent(agent, identity),
                (Held::ByAgent(_), None) => continue,
            };
            self.shown
                .push((offer.key.clone(), offer.certificate.clone()));
            if self.show(offer, hand).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn was_shown(&self, offer: &Offer) -> bool {
        self.shown.iter().any(|(key, certificate)| {
            key.key_data() == offer.key.key_data() && *certificate == offer.certificate
        })
    }

    /// Shows one key or certificate and signs with it when the host asks for that.
    async fn show(&mut self, offer: Offer, mut hand: Hand<'_>) -> Result<bool, AuthError> {
        let hash = match offer.key.algorithm() {
            Algorithm::Rsa { .. } => Some(self.rsa_hash().await?),
            _ => None,
        };
        self.tried.push(offer.name.clone());
        let user = &self.settings.user;
        let result = match offer.certificate {
            Some(certificate) => {
                self.handle
                    .authenticate_certificate_with(user, certificate, hash, &mut hand)
                    .await
            }
            None => {
                self.handle
                    .authenticate_publickey_with(user, offer.key, hash, &mut hand)
                    .await
            }
        };
        match result {
            Ok(result) => self.judge(Ok(result)),
            Err(AgentError::Closed) => Err(self.closed()),
            Err(error) => {
                self.notes
                    .push(format!("{}: {}", offer.name, identities::words(&error)));
                Ok(false)
            }
        }
    }

    /// Without a hash an RSA key would sign with SHA-1, which servers refuse.
    async fn rsa_hash(&mut self) -> Result<HashAlg, AuthError> {
        if let Some(known) = self.rsa_hash {
            return Ok(known);
        }
        let asked = self.handle.best_supported_rsa_hash().await;
        let best = asked.map_err(|e| self.broken(e))?.flatten();
        Ok(*self.rsa_hash.insert(best.unwrap_or(HashAlg::Sha256)))
    }

    /// Whether another key makes sense, as far as the host has told.
    fn takes_keys(&self) -> bool {
        self.accepted
            .as_ref()
            .is_none_or(|set| set.contains(&MethodKind::PublicKey))
    }

    /// Asks which methods there are; true when the host wants nothing at all.
    async fn ask_methods(&mut self) -> Result<bool, AuthError> {
        let result = self.handle.authenticate_none(&self.settings.user).await;
        self.judge(result)
    }

    async fn try_password(&mut self, password: &Secret<String>) -> Result<bool, AuthError> {
        if self.accepted.is_none() {
            // Asking costs a round trip, guessing wrong costs a failed login in the host's log.
            if self.ask_methods().await? {
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
            }) + &self.passed_over(),
        }
    }

    fn passed_over(&self) -> String {
        if self.notes.is_empty() {
            return String::new();
        }
        let shown: Vec<&str> = self
            .notes
            .iter()
            .take(MOST_NOTES)
            .map(String::as_str)
            .collect();
        let more = match self.notes.len().saturating_sub(MOST_NOTES) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        format!("; not used: {}{more}", shown.join("; "))
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
            passed_over: self.passed_over(),
        }
    }
}

#[cfg(test)]
#[path = "login_tests.rs"]
mod tests;
