//! Posts an event to the webhook of its watch.

use remote_sandbox_core::config::Signing;
use remote_sandbox_core::job::WatchOrder;
use remote_sandbox_core::watch::{Channel, EventRecord, signature};

use super::post::Post;
use super::{DeliveryError, NotifySettings};
use crate::clock;

pub(super) async fn deliver(
    event: &EventRecord,
    order: &WatchOrder,
    settings: &NotifySettings,
) -> Result<(), DeliveryError> {
    let url = order.webhook_url.as_deref();
    let url = url.ok_or(DeliveryError::Nothing(Channel::Webhook))?;
    // What was allowed at the start may have been taken back since.
    let policy = &settings.watchdog.policy;
    let address = policy.check_webhook(url)?;
    let body = event.json().to_string().into_bytes();
    let post = Post {
        may_be_here: policy.lists(&address),
        authorization: None,
        headers: headers(event, &body, settings).await?,
        address: &address,
        body,
    };
    post.send(settings).await.map(|_| ())
}

/// The number of the event, by which a receiver knows one that comes twice; with a secret also the signature.
async fn headers(
    event: &EventRecord,
    body: &[u8],
    settings: &NotifySettings,
) -> Result<Vec<(&'static str, String)>, DeliveryError> {
    let mut headers = vec![("x-remote-sandbox-event-id", event.id.to_string())];
    let source = match &settings.watchdog.signing {
        Signing::Off => return Ok(headers),
        Signing::Broken => return Err(DeliveryError::Unsigned),
        Signing::With(source) => source,
    };
    let secret = settings.keeper.reveal("webhook_secret", source).await?;
    let timestamp = clock::wall().as_secs();
    let sign = signature(secret.expose(), timestamp, event.id, body);
    headers.push(("x-remote-sandbox-timestamp", timestamp.to_string()));
    headers.push(("x-remote-sandbox-signature", format!("v1={sign}")));
    Ok(headers)
}
