//! Takes over the watches of the Python package: at once, or when its own watchdog has stopped.

use std::time::Duration;

use tokio::time::Instant;

use crate::engine::{Engine, TakeOver};

/// How often it is looked whether the watchdog of the package still works.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

/// When the watches of the package are looked for next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextLook {
    /// At this time.
    At(Instant),
    /// There is nothing more to be found.
    Never,
}

impl NextLook {
    /// Takes over what can be when its time has come; that it fails is no reason not to work.
    pub(super) async fn take_over(&mut self, engine: &Engine, now: Instant) {
        let NextLook::At(due) = *self else { return };
        if now < due {
            return;
        }
        *self = match engine.take_over_package().await {
            Ok(TakeOver::Nothing) => NextLook::Never,
            Ok(TakeOver::Taken(count)) => {
                if count > 0 {
                    tracing::info!("{count} watches of the Python package were taken over");
                }
                NextLook::Never
            }
            Ok(TakeOver::InUse) => {
                tracing::warn!(
                    "the watchdog of the Python package works; its watches stay with it for now"
                );
                NextLook::At(now + LOOK_EVERY)
            }
            Err(failure) => {
                tracing::warn!("{}", failure.message);
                NextLook::At(now + LOOK_EVERY)
            }
        };
    }
}

#[cfg(test)]
#[path = "package_tests.rs"]
mod tests;
