//! Opens one connection, step by step, each step with its own limit and its own words.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use remote_sandbox_core::config::SshSettings;
use remote_sandbox_core::hostkey::{HostAddress, HostKey};
use remote_sandbox_core::output::clean_line;
use russh::client::{self, DisconnectReason, Handle};
use russh::keys::{Algorithm, HashAlg, PublicKeyOrCertificate};
use russh::{Preferred, cipher};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::auth::{self, AuthError};
use super::hostkeys::{HostKeyError, HostKeyStore};
use super::observe::Observed;
use super::secrets::SecretKeeper;
use super::stall::Impatient;

/// How many bytes the host may send before it must wait for us; the link's speed times its delay
/// must fit, and nothing is allocated in advance.
const RECEIVE_WINDOW: u32 = 32 << 20;

/// The words of a host are shown up to this length.
const LONGEST_FAREWELL: usize = 200;

/// Packets of one channel that may wait for us in memory; each has up to 32 KiB.
const WAITING_PACKETS: usize = 32;

/// A host that closes before its banner is busy, most likely; it is asked this many times.
const GREETING_ATTEMPTS: u32 = 3;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The name has no address.
    #[error("the name {host} cannot be resolved")]
    Resolve {
        /// The name.
        host: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The name service does not answer.
    #[error("the name {host} was not resolved within {} s", limit.as_secs_f64())]
    ResolveSlow {
        /// The name.
        host: String,
        /// The limit.
        limit: Duration,
    },
    /// No TCP connection.
    #[error("no TCP connection to {host} port {port}")]
    Tcp {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Nobody answers.
    #[error("{host} port {port} did not answer on TCP within {} s", limit.as_secs_f64())]
    TcpSlow {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// The limit.
        limit: Duration,
    },
    /// Something answers, but it is no SSH server.
    #[error("no SSH banner from {host} port {port}")]
    Banner {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// Why.
        #[source]
        source: russh::Error,
    },
    /// The host accepted the connection and says nothing.
    #[error("no SSH banner from {host} port {port} within {} s", limit.as_secs_f64())]
    BannerSlow {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// The limit.
        limit: Duration,
    },
    /// The two sides could not agree on keys.
    #[error("the key exchange with {host} port {port} failed")]
    KeyExchange {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// Why.
        #[source]
        source: russh::Error,
    },
    /// The key exchange does not come to an end.
    #[error("the key exchange with {host} port {port} did not end within {} s", limit.as_secs_f64())]
    KeyExchangeSlow {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// The limit.
        limit: Duration,
    },
    /// Connecting broke this program.
    #[error("connecting to {host} broke off")]
    Broken {
        /// The host.
        host: String,
        /// How.
        #[source]
        source: tokio::task::JoinError,
    },
    /// The host is not who it should be.
    #[error(transparent)]
    HostKey(#[from] HostKeyError),
    /// The host does not take us.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// The login does not come to an end.
    #[error("the login at {host} port {port} did not end within {} s", limit.as_secs_f64())]
    AuthSlow {
        /// The host.
        host: String,
        /// The port.
        port: u16,
        /// The limit.
        limit: Duration,
    },
}

/// A connection that is logged in.
pub(crate) struct Dialled {
    pub(crate) handle: Handle<HostGuard>,
    pub(crate) farewell: Farewell,
}

/// What the host said when it ended the connection, or what broke it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Farewell(Arc<Mutex<Option<String>>>);

impl Farewell {
    fn set(&self, text: String) {
        let text = clean_line(&text, LONGEST_FAREWELL);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    /// The words, once the connection has ended.
    pub(crate) fn words(&self) -> Option<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Judges the host's key before anything else is sent.
#[derive(Debug)]
pub(crate) struct HostGuard {
    address: HostAddress,
    settings: Arc<SshSettings>,
    store: Arc<HostKeyStore>,
    farewell: Farewell,
}

/// What ends a connection before it is ready.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GuardError {
    #[error(transparent)]
    Key(#[from] HostKeyError),
    #[error(transparent)]
    Protocol(#[from] russh::Error),
}

impl client::Handler for HostGuard {
    type Error = GuardError;

    async fn check_server_key(
        &mut self,
        offered: &PublicKeyOrCertificate,
    ) -> Result<bool, GuardError> {
        let malformed = |reason: String| HostKeyError::Malformed {
            address: self.address.known_hosts_name(),
            reason,
        };
        let PublicKeyOrCertificate::PublicKey { key, .. } = offered else {
            return Err(malformed("it is a certificate, which was not asked for".into()).into());
        };
        let blob = key
            .to_bytes()
            .map_err(|error| malformed(error.to_string()))?;
        let key = HostKey::from_blob(blob).map_err(|error| malformed(error.to_string()))?;
        let (store, settings) = (self.store.clone(), self.settings.clone());
        let address = self.address.clone();
        // Files and their lock may be slow, and all connections share few threads.
        tokio::task::spawn_blocking(move || store.check(&address, &key, &settings.host_keys))
            .await
            .map_err(|source| HostKeyError::Interrupted {
                address: self.address.known_hosts_name(),
                source,
            })??;
        Ok(true)
    }

    async fn disconnected(
        &mut self,
        reason: DisconnectReason<Self::Error>,
    ) -> Result<(), Self::Error> {
        match reason {
            DisconnectReason::ReceivedDisconnect(info) => {
                self.farewell
                    .set(format!("the host ended the connection: {}", info.message));
                Ok(())
            }
            DisconnectReason::Error(error) => {
                self.farewell.set(match &error {
                    GuardError::Protocol(russh::Error::KeepaliveTimeout) => {
                        "the host stopped answering".to_owned()
                    }
                    GuardError::Protocol(russh::Error::HUP) => "the host closed it".to_owned(),
                    other => other.to_string(),
                });
                Err(error)
            }
        }
    }
}

/// Connects, checks the host's key and logs in.
pub(crate) async fn dial(
    settings: &Arc<SshSettings>,
    store: &Arc<HostKeyStore>,
    secrets: &SecretKeeper,
) -> Result<Dialled, DialError> {
    let mut attempt = 1;
    let (mut handle, farewell) = loop {
        match greet(settings, store).await {
            // MaxStartups drops connections at random before the banner.
            Err(DialError::Banner { .. }) if attempt < GREETING_ATTEMPTS => {
                let pause = Duration::from_millis(150 * u64::from(attempt));
                tokio::time::sleep(super::backoff::jittered(pause)).await;
                attempt += 1;
            }
            other => break other?,
        }
    };
    let limit = settings.limits.authentication;
    let login = auth::authenticate(&mut handle, settings, secrets, &farewell);
    match timeout(limit, login).await {
        Ok(result) => result?,
        Err(_) => {
            let (host, port) = (settings.host.clone(), settings.port);
            return Err(DialError::AuthSlow { host, port, limit });
        }
    }
    Ok(Dialled { handle, farewell })
}

/// TCP, banner and key exchange, the host's key judged within.
async fn greet(
    settings: &Arc<SshSettings>,
    store: &Arc<HostKeyStore>,
) -> Result<(Handle<HostGuard>, Farewell), DialError> {
    let stream = connect(settings).await?;
    let address = HostAddress::new(&settings.host, settings.port).map_err(|error| {
        HostKeyError::Malformed {
            address: settings.host.clone(),
            reason: error.to_string(),
        }
    })?;
    let known = recorded(store, &address, settings).await;
    let config = Arc::new(client_config(settings, &known));
    let farewell = Farewell::default();
    let guard = HostGuard {
        address,
        settings: settings.clone(),
        store: store.clone(),
        farewell: farewell.clone(),
    };
    let (stream, banner) = Observed::new(Impatient::new(stream, silence_limit(settings)));
    let connecting = client::connect_stream(config, stream, guard);
    tokio::pin!(connecting);
    let (host, port, limits) = (settings.host.clone(), settings.port, &settings.limits);
    let early = tokio::select! {
        result = &mut connecting => Some(result),
        () = banner.wait() => None,
        () = tokio::time::sleep(limits.banner) => {
            return Err(DialError::BannerSlow { host, port, limit: limits.banner });
        }
    };
    let result = match early {
        Some(result) => result,
        None => match timeout(limits.key_exchange, connecting).await {
            Ok(result) => result,
            Err(_) => {
                return Err(DialError::KeyExchangeSlow {
                    host,
                    port,
                    limit: limits.key_exchange,
                });
            }
        },
    };
    match result {
        Ok(handle) => Ok((handle, farewell)),
        Err(GuardError::Key(error)) => Err(error.into()),
        Err(GuardError::Protocol(source)) if banner.is_set() => {
            Err(DialError::KeyExchange { host, port, source })
        }
        Err(GuardError::Protocol(source)) => Err(DialError::Banner { host, port, source }),
    }
}

/// The kinds of key recorded for a host, read from files apart from the asynchronous threads.
async fn recorded(
    store: &Arc<HostKeyStore>,
    address: &HostAddress,
    settings: &Arc<SshSettings>,
) -> Vec<&'static str> {
    let (store, address, settings) = (store.clone(), address.clone(), settings.clone());
    let reading =
        tokio::task::spawn_blocking(move || store.algorithms(&address, &settings.host_keys));
    reading.await.unwrap_or_default()
}

/// How long an open connection may give no sign of life.
fn silence_limit(settings: &SshSettings) -> Duration {
    let limits = &settings.limits;
    limits
        .keepalive_interval
        .saturating_mul(limits.keepalive_max)
}

async fn connect(settings: &SshSettings) -> Result<TcpStream, DialError> {
    let (host, port, limit) = (settings.host.clone(), settings.port, settings.limits.tcp);
    let addresses: Vec<SocketAddr> = match timeout(
        limit,
        tokio::net::lookup_host((settings.host.as_str(), port)),
    )
    .await
    {
        Ok(Ok(addresses)) => addresses.collect(),
        Ok(Err(source)) => return Err(DialError::Resolve { host, source }),
        Err(_) => return Err(DialError::ResolveSlow { host, limit }),
    };
    match timeout(limit, TcpStream::connect(addresses.as_slice())).await {
        Ok(Ok(stream)) => {
            // Small packets must not wait for each other; a command would cost 40 ms more.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "nodelay could not be set");
            }
            Ok(stream)
        }
        Ok(Err(source)) => Err(DialError::Tcp { host, port, source }),
        Err(_) => Err(DialError::TcpSlow { host, port, limit }),
    }
}

fn client_config(settings: &SshSettings, known_algorithms: &[&str]) -> client::Config {
    let limits = &settings.limits;
    client::Config {
        window_size: RECEIVE_WINDOW,
        maximum_packet_size: 32_768,
        channel_buffer_size: WAITING_PACKETS,
        keepalive_interval: Some(limits.keepalive_interval),
        keepalive_max: unanswered_keepalives(limits.keepalive_max),
        inactivity_timeout: None,
        nodelay: true,
        preferred: Preferred {
            // Several times faster than the others on processors with AES instructions.
            cipher: Cow::Borrowed(&[
                cipher::AES_256_GCM,
                cipher::AES_128_GCM,
                cipher::CHACHA20_POLY1305,
                cipher::AES_256_CTR,
                cipher::AES_192_CTR,
                cipher::AES_128_CTR,
            ]),
            key: Cow::Owned(order_host_keys(known_algorithms)),
            ..Preferred::default()
        },
        ..client::Config::default()
    }
}

/// The library gives up one interval after this many keepalives went unanswered, and takes 0 for
/// never; we promise the interval times the number that is configured.
fn unanswered_keepalives(configured: u32) -> usize {
    usize::try_from(configured.saturating_sub(1).max(1)).unwrap_or(1)
}

/// Asks for the recorded kinds of key first, so that a host with several keys shows the known one.
fn order_host_keys(known: &[&str]) -> Vec<Algorithm> {
    let is_known = |algorithm: &Algorithm| match algorithm {
        Algorithm::Rsa { .. } => known.contains(&"ssh-rsa"),
        other => known.contains(&other.as_str()),
    };
    let mut offered: Vec<Algorithm> = Preferred::default().key.into_owned();
    for hash in [Some(HashAlg::Sha512), Some(HashAlg::Sha256)] {
        let rsa = Algorithm::Rsa { hash };
        if !offered.contains(&rsa) {
            offered.push(rsa);
        }
    }
    // SHA-1 signatures can be forged.
    offered.retain(|algorithm| *algorithm != Algorithm::Rsa { hash: None });
    offered.sort_by_key(|algorithm| !is_known(algorithm));
    offered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_kind_of_key_is_asked_for_first() {
        let order = order_host_keys(&["ssh-rsa"]);
        assert!(
            matches!(order.first(), Some(Algorithm::Rsa { hash: Some(_) })),
            "{order:?}"
        );
        assert!(order.contains(&Algorithm::Ed25519));
        assert!(!order.contains(&Algorithm::Rsa { hash: None }));
    }
}
