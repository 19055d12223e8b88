//! What may end the wait for a command before the command ends.

use std::time::Duration;

use remote_sandbox_core::outcome::StopReason;
use remote_sandbox_core::shell::ShellAge;
use tokio::sync::watch;

use super::Carrier;

/// A shell that waited takes a command up at once; after this long the host is asked whether it is
/// there at all.
const SLOW_START: Duration = Duration::from_secs(3);

/// Waits until somebody asks for the end.
pub(crate) async fn stopped(stop: &mut watch::Receiver<Option<StopReason>>) -> StopReason {
    let reason = stop
        .wait_for(Option::is_some)
        .await
        .ok()
        .and_then(|reason| *reason);
    match reason {
        Some(reason) => reason,
        // Nobody is left who could ask.
        None => std::future::pending().await,
    }
}

/// Waits until a host that should have taken a command up turns out not to answer. Only a shell that
/// waited can be sent a command without a word from the host, over a link that may be dead.
pub(super) async fn silence(carrier: &impl Carrier, age: ShellAge) {
    if age == ShellAge::Waiting {
        tokio::time::sleep(SLOW_START).await;
        if !carrier.answers().await {
            return;
        }
    }
    std::future::pending().await
}
