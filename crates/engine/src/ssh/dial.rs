//! Opens one connection, step by step, each step with its own limit and its own words.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use remote_sandbox_core::config::{SshSettings, Way};
use remote_sandbox_core::hostkey::HostAddress;
use remote_sandbox_core::output::clean_line;
use russh::client::{self, DisconnectReason, Handle};
use russh::keys::{Algorithm, HashAlg, PublicKeyOrCertificate};
use russh::{Preferred, cipher};
use tokio::time::timeout;

use super::auth;
use super::dial_error::DialError;
use super::hostkeys::{self, Expected, HostKeyError, HostKeyStore, Shown};
use super::observe::Observed;
use super::pool::Dialer;
use super::stall::Impatient;
use super::watch::{self, Milestone, Watch};
use super::way;

/// How many bytes the host may send before it must wait for us; the link's speed times its delay
/// must fit, and nothing is allocated in advance.
const RECEIVE_WINDOW: u32 = 32 << 20;

/// The words of a host are shown up to this length.
const LONGEST_FAREWELL: usize = 200;

/// Packets of one channel that may wait for us in memory; each has up to 32 KiB.
const WAITING_PACKETS: usize = 32;

/// A host that closes before its banner is busy, most likely; it is asked this many times.
const GREETING_ATTEMPTS: u32 = 3;

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
    watch: Watch,
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
        let shown = Shown::read(offered, &self.address)?;
        let described = shown.to_string();
        let (store, settings) = (self.store.clone(), self.settings.clone());
        let address = self.address.clone();
        // Files and their lock may be slow, and all connections share few threads.
        let accepted = tokio::task::spawn_blocking(move || {
            store.check_shown(&address, &shown, &settings.host_keys)
        })
        .await
        .map_err(|source| HostKeyError::Interrupted {
            address: self.address.known_hosts_name(),
            source,
        })??;
        self.watch.tell(Milestone::HostKey {
            shown: described,
            accepted,
        });
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

/// Connects, over other hosts when the way leads there, checks the host's key and logs in; `watch` is
/// told how far it has come.
pub(crate) fn dial<'a>(
    settings: &'a Arc<SshSettings>,
    dialer: &'a Dialer,
    watch: &'a Watch,
) -> BoxFuture<'a, Result<Dialled, DialError>> {
    async move {
        let hop = match &settings.way {
            Way::Jump(before) => {
                let before = Arc::new((**before).clone());
                let dialled = dial(&before, dialer, watch).await;
                Some(Arc::new(dialled.map_err(|source| DialError::Hop {
                    hop: watch::place(&before),
                    source: Box::new(source),
                })?))
            }
            Way::Direct | Way::Command(_) => None,
        };
        let slots = dialer.slots(settings);
        let _slot = slots.acquire().await;
        watch.tell(Milestone::Towards(watch::place(settings)));
        log_in(settings, dialer, hop.as_ref(), watch).await
    }
    .boxed()
}

/// Greets a host and logs in there.
async fn log_in(
    settings: &Arc<SshSettings>,
    dialer: &Dialer,
    hop: Option<&Arc<Dialled>>,
    watch: &Watch,
) -> Result<Dialled, DialError> {
    let mut attempt = 1;
    let (mut handle, farewell) = loop {
        match greet(settings, dialer, hop, watch).await {
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
    let login = auth::authenticate(&mut handle, settings, &dialer.secrets, &farewell);
    match timeout(limit, login).await {
        Ok(result) => watch.tell(Milestone::LoggedIn(result?)),
        Err(_) => {
            let (host, port) = (settings.host.clone(), settings.port);
            return Err(DialError::AuthSlow { host, port, limit });
        }
    }
    Ok(Dialled { handle, farewell })
}

/// Opens the way to a host and greets it; a program that carries it may say why that failed.
async fn greet(
    settings: &Arc<SshSettings>,
    dialer: &Dialer,
    hop: Option<&Arc<Dialled>>,
    watch: &Watch,
) -> Result<(Handle<HostGuard>, Farewell), DialError> {
    let opened = way::open(settings, hop, dialer.secrets.hidden(), watch).await?;
    let words = opened.words;
    let greeted = exchange(settings, &dialer.store, opened.carrier, watch).await;
    greeted.map_err(|error| {
        let told = matches!(
            error,
            DialError::Banner { .. } | DialError::BannerSlow { .. } | DialError::KeyExchange { .. }
        );
        match words.and_then(|words| words.line()).filter(|_| told) {
            Some(line) => DialError::Complaint {
                host: settings.host.clone(),
                words: clean_line(&line, LONGEST_FAREWELL),
                source: Box::new(error),
            },
            None => error,
        }
    })
}

/// Banner and key exchange, the host's key judged within.
async fn exchange(
    settings: &Arc<SshSettings>,
    store: &Arc<HostKeyStore>,
    stream: Box<dyn way::Carrier>,
    watch: &Watch,
) -> Result<(Handle<HostGuard>, Farewell), DialError> {
    let address = hostkeys::looked_up(settings)?;
    let known = recorded(store, &address, settings).await;
    let config = Arc::new(client_config(settings, &known));
    let farewell = Farewell::default();
    let guard = HostGuard {
        address,
        settings: settings.clone(),
        store: store.clone(),
        farewell: farewell.clone(),
        watch: watch.clone(),
    };
    let stream = Impatient::new(stream, silence_limit(settings));
    let (stream, banner) = Observed::new(stream, watch.clone());
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

/// What is recorded for a host, read from files apart from the asynchronous threads.
async fn recorded(
    store: &Arc<HostKeyStore>,
    address: &HostAddress,
    settings: &Arc<SshSettings>,
) -> Expected {
    let (store, address, settings) = (store.clone(), address.clone(), settings.clone());
    let reading =
        tokio::task::spawn_blocking(move || store.expected(&address, &settings.host_keys));
    reading.await.unwrap_or_default()
}

/// How long an open connection may give no sign of life.
fn silence_limit(settings: &SshSettings) -> Duration {
    let limits = &settings.limits;
    limits
        .keepalive_interval
        .saturating_mul(limits.keepalive_max)
}

fn client_config(settings: &SshSettings, expected: &Expected) -> client::Config {
    let host_keys = order_host_keys(&expected.algorithms);
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
            host_key_certificates: Cow::Owned(match expected.certificates {
                true => host_keys.clone(),
                false => Vec::new(),
            }),
            key: Cow::Owned(host_keys),
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
