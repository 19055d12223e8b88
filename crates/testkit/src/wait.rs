//! Waiting for a condition instead of sleeping, unused ports, and saying why a test is skipped.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::TcpListener;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(10);

/// Waits until `condition` holds; false when `limit` passed without that.
#[must_use = "false means that the condition never held"]
pub async fn wait_until(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    wait_until_async(limit, || std::future::ready(condition())).await
}

/// Like [`wait_until`] for a condition that has to be awaited.
#[must_use = "false means that the condition never held"]
pub async fn wait_until_async<F>(limit: Duration, mut condition: impl FnMut() -> F) -> bool
where
    F: Future<Output = bool>,
{
    let end = Instant::now() + limit;
    loop {
        if condition().await {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Like [`wait_until`] outside of a runtime: blocks the thread.
#[must_use = "false means that the condition never held"]
pub fn wait_until_blocking(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(POLL);
    }
}

/// A loopback port that nobody listens on now.
///
/// Taken from below the range of outgoing connections, so that a server can be restarted on it
/// without another test's client socket sitting there.
#[must_use]
pub fn free_port() -> u16 {
    for _ in 0..200 {
        let port = 12_000 + (random_u64() % 20_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port between 12000 and 32000");
}

/// Says on stderr why a test does nothing on this machine.
#[expect(
    clippy::print_stderr,
    reason = "a skipped test has to be visible in the test log"
)]
pub fn skip(reason: impl std::fmt::Display) {
    eprintln!("SKIP: {reason}");
}

/// A number that differs between calls and between test processes.
pub(crate) fn random_u64() -> u64 {
    RandomState::new().build_hasher().finish()
}
