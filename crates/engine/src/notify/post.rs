//! Posts to a host whose address was checked, and to no other: no redirects, no proxies.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Request, body::Bytes};
use hyper_util::rt::TokioIo;
use remote_sandbox_core::secret::Secret;
use remote_sandbox_core::watch::{WebAddress, usable_addresses};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use super::{DeliveryError, NotifySettings};

/// As much of an answer is read.
const LONGEST_ANSWER: usize = 64 * 1024;

/// How long one address of several may take to be connected to.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// How many addresses of a host are tried.
const MOST_ADDRESSES: usize = 4;

/// Something to be posted, in JSON.
pub(super) struct Post<'a> {
    pub(super) address: &'a WebAddress,
    /// Whether the host may be this machine.
    pub(super) may_be_here: bool,
    pub(super) authorization: Option<&'a Secret<String>>,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
}

/// What came back.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// Its beginning.
    pub(super) body: Vec<u8>,
}

impl Post<'_> {
    /// Sends it and waits for the answer, all within the time of a post. An answer that is no success is an error.
    pub(super) async fn send(self, settings: &NotifySettings) -> Result<Answer, DeliveryError> {
        let host = self.host();
        let limit = settings.limits.post;
        let sent = tokio::time::timeout(limit, self.talk(settings)).await;
        let answer = sent.unwrap_or_else(|_| {
            let host = host.clone();
            Err(DeliveryError::TooSlow { host, limit })
        })?;
        match answer.status {
            200..=299 => Ok(answer),
            status => Err(DeliveryError::Status { host, status }),
        }
    }

    fn host(&self) -> String {
        self.address.host().to_owned()
    }

    async fn talk(self, settings: &NotifySettings) -> Result<Answer, DeliveryError> {
        let stream = self.connect(&self.addresses().await?).await?;
        let request = self.request()?;
        if !self.address.is_https() {
            return self.exchange(stream, request).await;
        }
        let tls = settings.tls.get_or_try_init(system_tls).await?;
        let failed = |source| DeliveryError::Connect {
            host: self.host(),
            source,
        };
        let name = ServerName::try_from(self.host());
        let name = name.map_err(|error| failed(std::io::Error::other(error)))?;
        let connector = TlsConnector::from(tls.clone());
        let stream = connector.connect(name, stream).await.map_err(failed)?;
        self.exchange(stream, request).await
    }

    /// The addresses of the host that may be spoken to. They are connected to by number, so that the name cannot
    /// mean another one a moment later.
    async fn addresses(&self) -> Result<Vec<SocketAddr>, DeliveryError> {
        let place = (self.address.host(), self.address.port());
        let found = tokio::net::lookup_host(place).await;
        let found = found.map_err(|source| DeliveryError::Resolve {
            host: self.host(),
            source,
        })?;
        let usable = usable_addresses(found, self.may_be_here);
        let mut usable = usable.map_err(|kind| DeliveryError::Refused {
            host: self.host(),
            kind,
        })?;
        usable.truncate(MOST_ADDRESSES);
        Ok(usable)
    }

    async fn connect(&self, addresses: &[SocketAddr]) -> Result<TcpStream, DeliveryError> {
        let mut last = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
        for address in addresses {
            match tokio::time::timeout(CONNECT_LIMIT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = error,
                Err(_) => last = std::io::ErrorKind::TimedOut.into(),
            }
        }
        Err(DeliveryError::Connect {
            host: self.host(),
            source: last,
        })
    }

    fn request(&self) -> Result<Request<Full<Bytes>>, DeliveryError> {
        let malformed = |source| DeliveryError::Malformed {
            host: self.host(),
            source,
        };
        let program = concat!("remote-sandbox-mcp/", env!("CARGO_PKG_VERSION"));
        let mut builder = Request::post(self.address.target())
            .header(HOST, self.address.authority())
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, program);
        if let Some(word) = self.authorization {
            let value = HeaderValue::from_str(word.expose());
            let mut value = value.map_err(|error| malformed(error.into()))?;
            value.set_sensitive(true);
            builder = builder.header(AUTHORIZATION, value);
        }
        for (name, value) in &self.headers {
            builder = builder.header(*name, value);
        }
        let body = Full::new(Bytes::from(self.body.clone()));
        builder.body(body).map_err(malformed)
    }

    async fn exchange<S>(
        &self,
        stream: S,
        request: Request<Full<Bytes>>,
    ) -> Result<Answer, DeliveryError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let failed = |source| DeliveryError::Http {
            host: self.host(),
            source,
        };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(failed)?;
        let _driver = AbortOnDropHandle::new(tokio::spawn(connection));
        let response = sender.send_request(request).await.map_err(failed)?;
        let status = response.status().as_u16();
        let mut incoming = response.into_body();
        let mut body = Vec::new();
        while body.len() < LONGEST_ANSWER {
            match incoming.frame().await {
                None => break,
                // The status was heard; that the rest of the answer is cut changes nothing.
                Some(Err(_)) => break,
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        let room = LONGEST_ANSWER - body.len();
                        body.extend_from_slice(data.get(..room).unwrap_or(data));
                    }
                }
            }
        }
        Ok(Answer { status, body })
    }
}

/// TLS that trusts whom this system trusts.
async fn system_tls() -> Result<Arc<ClientConfig>, DeliveryError> {
    // Many small files, or a keychain: off the threads that serve others.
    let loading = tokio::task::spawn_blocking(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots
    });
    let roots = loading.await.map_err(|_| DeliveryError::Certificates)?;
    if roots.is_empty() {
        return Err(DeliveryError::Certificates);
    }
    tls_with(roots)
}

/// TLS that trusts these.
pub(super) fn tls_with(roots: RootCertStore) -> Result<Arc<ClientConfig>, DeliveryError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(DeliveryError::Tls)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
