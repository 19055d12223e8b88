//! The service that keeps the watchdog running: what the system's service manager is told, and what it says.
//!
//! Nothing here writes a file or starts a program; that is the engine's part.

mod copy;
mod description;
mod launchd;
mod status;
mod systemd;

pub use copy::CopyName;
pub use description::{DescriptionError, ServiceDescription};
pub use launchd::{LAUNCHD_LABEL, LaunchdState, plist};
pub use status::{ServiceKind, ServiceStatus};
pub use systemd::{SYSTEMD_UNIT, SystemdState, linger_is_off, unit};

#[cfg(test)]
#[path = "service_tests.rs"]
mod tests;
