//! Keeps a session alive until it has begun.

use rmcp::model::{ClientRequest, GetMeta, JsonRpcMessage, ProtocolVersion};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;

/// A transport that passes on requests only until one of them has begun the session.
///
/// The library ends the whole connection over a notification or a reply that comes too early, but such
/// a message asks for nothing and can be left out.
pub(super) struct Opening<T> {
    inner: T,
    begun: bool,
}

impl<T> Opening<T> {
    /// Guards the beginning of a transport.
    pub(super) fn new(inner: T) -> Self {
        Opening {
            inner,
            begun: false,
        }
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Opening<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let message = self.inner.receive().await?;
            if self.begun {
                return Some(message);
            }
            if let JsonRpcMessage::Request(request) = &message {
                self.begun = begins_session(&request.request);
                return Some(message);
            }
            tracing::debug!("left out a message that came before the session began");
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

/// Whether the library takes this request as the choice between its two kinds of session.
fn begins_session(request: &ClientRequest) -> bool {
    match request {
        ClientRequest::InitializeRequest(_) => true,
        ClientRequest::PingRequest(_) | ClientRequest::DiscoverRequest(_) => false,
        other => {
            let meta = other.get_meta();
            let version = meta.protocol_version();
            version.is_some_and(|version| ProtocolVersion::KNOWN_VERSIONS.contains(&version))
                && meta
                    .missing_required_keys(&ProtocolVersion::V_2026_07_28)
                    .is_empty()
        }
    }
}
