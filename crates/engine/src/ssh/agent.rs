//! The SSH agent: which keys it holds, and signatures that it makes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use russh::Signer;
use russh::keys::agent::client::AgentClient;
use russh::keys::agent::{AgentIdentity, AgentSessionBinding};
use russh::keys::ssh_encoding::Encode;
use russh::keys::ssh_key::private::KeypairData;
use russh::keys::ssh_key::{self, Signature};
use russh::keys::{HashAlg, PrivateKey, signature};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// How long an agent may take to say what it holds.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// How long an agent may take to sign, a touch of a token included.
const SIGN_LIMIT: Duration = Duration::from_secs(8);

/// Of an agent's keys, this many are looked at.
const MOST_KEYS: usize = 64;

/// Why an agent is of no use.
#[derive(Debug, thiserror::Error)]
pub(super) enum AgentError {
    /// It does not answer.
    #[error("the agent at `{}` does not answer within {} s", path.display(), limit.as_secs())]
    Slow {
        /// Its socket.
        path: PathBuf,
        /// The limit.
        limit: Duration,
    },
    /// It cannot be asked, or its answer makes no sense.
    #[error("the agent at `{}` cannot be asked", path.display())]
    Unusable {
        /// Its socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: russh::keys::Error,
    },
    /// It does not sign with this key.
    #[error("the agent at `{}` does not sign with it", path.display())]
    Unwilling {
        /// Its socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: russh::keys::Error,
    },
    /// It was given up before.
    #[error("the agent at `{}` was given up", .0.display())]
    GivenUp(PathBuf),
    /// A key in our own hands cannot sign.
    #[error("the key cannot sign")]
    Key(#[source] ssh_key::Error),
    /// The connection to the host ended meanwhile.
    #[error("the connection ended")]
    Closed,
}

impl From<russh::SendError> for AgentError {
    fn from(_: russh::SendError) -> Self {
        AgentError::Closed
    }
}

/// An agent that has told what it holds.
pub(super) struct Agent {
    /// Gone once it left an answer open, for the next answer would be the one to an older question.
    client: Option<AgentClient<UnixStream>>,
    path: PathBuf,
}

impl Agent {
    /// Asks the agent on a socket for its keys; the binding tells it for which host they are wanted.
    pub(super) async fn ask(
        path: &Path,
        binding: Option<&AgentSessionBinding>,
    ) -> Result<(Self, Vec<AgentIdentity>), AgentError> {
        let asking = async {
            let mut client = AgentClient::connect_uds(path).await?;
            if let Some(binding) = binding {
                match client.bind_session(binding, false).await {
                    // Only agents of newer OpenSSH know it, and only some keys need it.
                    Ok(()) | Err(russh::keys::Error::AgentFailure) => {}
                    Err(error) => return Err(error),
                }
            }
            let held = client.request_identities().await?;
            Ok((client, held))
        };
        match timeout(ANSWER_LIMIT, asking).await {
            Ok(Ok((client, mut held))) => {
                held.truncate(MOST_KEYS);
                let agent = Agent {
                    client: Some(client),
                    path: path.to_owned(),
                };
                Ok((agent, held))
            }
            Ok(Err(source)) => Err(AgentError::Unusable {
                path: path.to_owned(),
                source,
            }),
            Err(_) => Err(AgentError::Slow {
                path: path.to_owned(),
                limit: ANSWER_LIMIT,
            }),
        }
    }

    async fn sign(
        &mut self,
        with: &AgentIdentity,
        hash: Option<HashAlg>,
        data: Vec<u8>,
    ) -> Result<Vec<u8>, AgentError> {
        let path = self.path.clone();
        let Some(mut client) = self.client.take() else {
            return Err(AgentError::GivenUp(path));
        };
        match timeout(SIGN_LIMIT, client.sign_request(with, hash, data)).await {
            Ok(signed) => {
                self.client = Some(client);
                signed.map_err(|source| AgentError::Unwilling { path, source })
            }
            Err(_) => Err(AgentError::Slow {
                path,
                limit: SIGN_LIMIT,
            }),
        }
    }
}

/// Who makes the signature for one offer.
pub(super) enum Hand<'a> {
    /// We do, with the key itself.
    Own(Arc<PrivateKey>),
    /// The agent does, with the identity it knows, whatever certificate goes with it.
    Agent(&'a mut Agent, Box<AgentIdentity>),
}

impl Signer for Hand<'_> {
    type Error = AgentError;

    async fn auth_sign(
        &mut self,
        _offered: &AgentIdentity,
        hash: Option<HashAlg>,
        data: Vec<u8>,
    ) -> Result<Vec<u8>, AgentError> {
        match self {
            Hand::Own(key) => sign_here(key, hash, data).map_err(AgentError::Key),
            Hand::Agent(agent, identity) => agent.sign(identity, hash, data).await,
        }
    }
}

/// The library's own way signs with RSA certificates by SHA-1 only.
fn sign_here(
    key: &PrivateKey,
    hash: Option<HashAlg>,
    mut data: Vec<u8>,
) -> Result<Vec<u8>, ssh_key::Error> {
    let made: Signature = match key.key_data() {
        KeypairData::Rsa(pair) => signature::Signer::try_sign(&(pair, hash), &data)?,
        other => signature::Signer::try_sign(other, &data)?,
    };
    made.encode_prefixed(&mut data)?;
    Ok(data)
}
