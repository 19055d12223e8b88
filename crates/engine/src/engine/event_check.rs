//! Whether what a caller wants to be done at events can be done at all, asked before anything is started.

use std::time::Duration;

use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::job::WatchOrder;
use remote_sandbox_core::watch::WebAddress;

use super::Engine;
use super::jobs::refused;

/// How long the name of a webhook's host is looked up. A start does not wait longer for a name server.
const LOOKUP_LIMIT: Duration = Duration::from_secs(2);

impl Engine {
    /// Refuses what the user does not allow, and a webhook at whose host nothing would ever be posted. A name that cannot
    /// be looked up now may be by the time something is to be told.
    pub(super) async fn check_events(&self, order: &WatchOrder) -> Result<(), Failure> {
        let checked = self.events.check(order);
        checked.map_err(|refusal| refused(&refusal))?;
        let url = order.webhook_url.as_deref();
        let address = url.and_then(|url| WebAddress::parse(url).ok());
        let Some(address) = address.filter(|address| address.ip().is_none()) else {
            return Ok(());
        };
        let place = (address.host(), address.port());
        let looking = tokio::net::lookup_host(place);
        let Ok(Ok(found)) = tokio::time::timeout(LOOKUP_LIMIT, looking).await else {
            return Ok(());
        };
        let found = self.events.check_found(&address, found);
        found.map_err(|refusal| refused(&refusal))
    }
}
