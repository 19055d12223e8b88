//! The test support tested itself: a helper that lies makes every other test worthless.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests fail loudly and use the machine directly"
)]

mod accounts;
mod client;
mod hostile;
mod network;
mod server;
