//! Tells a service of the configuration.

use remote_sandbox_core::watch::{
    EventRecord, NotifierRequest, ServiceReply, WebAddress, text_for_people,
};

use super::post::Post;
use super::{DeliveryError, NotifySettings};
use crate::clock;

pub(super) async fn deliver(
    event: &EventRecord,
    name: &str,
    settings: &NotifySettings,
) -> Result<(), DeliveryError> {
    let mut all = settings.watchdog.notifiers.iter();
    let notifier = all.find(|notifier| notifier.name == name);
    let notifier = notifier.ok_or_else(|| DeliveryError::UnknownNotifier(name.to_owned()))?;
    let url = settings.keeper.reveal("url", &notifier.url).await?;
    let address = WebAddress::parse(url.expose()).map_err(|source| DeliveryError::Address {
        name: name.to_owned(),
        source,
    })?;
    // The token stands alone in what a service may answer.
    settings.mask.learn(address.target());
    for token in notifier.kind.tokens(&address) {
        settings.mask.learn(token);
    }
    let secret = match &notifier.secret {
        Some(source) => Some(settings.keeper.reveal("secret", source).await?),
        None => None,
    };
    let secret = secret.as_ref().map(|secret| secret.expose().as_str());
    let now = u64::try_from(clock::wall().as_millis()).unwrap_or(u64::MAX);
    let notice = text_for_people(event);
    let request = NotifierRequest::new(notifier.kind, address, secret, &notice, now);
    let request = request.map_err(|source| DeliveryError::Request {
        name: name.to_owned(),
        source,
    })?;
    let host = request.address.host().to_owned();
    let post = Post {
        address: &request.address,
        // The user wrote it down, and a service of one's own often runs here.
        may_be_here: true,
        authorization: request.authorization.as_ref(),
        headers: Vec::new(),
        body: request.body.to_string().into_bytes(),
    };
    let answer = post.send(settings).await?;
    notifier.kind.judge(&answer.body).map_err(|source| {
        let source = match source {
            ServiceReply::Refused { code, words } => ServiceReply::Refused {
                code,
                words: settings.mask.mask_text(&words).into_owned(),
            },
            ServiceReply::Unclear => ServiceReply::Unclear,
        };
        DeliveryError::Service { host, source }
    })
}
