//! How long this process has known of starts that somebody else is about to carry out.
//!
//! The time in their records is that of a clock that may be set meanwhile; this one cannot be.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use remote_sandbox_core::job::{AttemptNumber, JobId};
use tokio::time::Instant;

use super::Store;
use crate::clock;

/// Most starts that are remembered at the same time.
const MOST: usize = 256;

/// When each of the starts was first seen.
#[derive(Debug, Default)]
pub(super) struct Starts(Mutex<HashMap<(JobId, AttemptNumber), Instant>>);

impl Starts {
    fn seen_for(&self, id: &JobId, number: AttemptNumber) -> Duration {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (id.clone(), number);
        if seen.len() >= MOST && !seen.contains_key(&key) {
            let oldest = seen.iter().min_by_key(|(_, at)| **at);
            let oldest = oldest.map(|(key, _)| key.clone());
            oldest.map(|oldest| seen.remove(&oldest));
        }
        seen.entry(key).or_insert_with(clock::instant).elapsed()
    }
}

impl Store {
    /// For how long this process has known that an attempt is about to be started; from now on when it did not.
    pub(crate) fn start_seen_for(&self, id: &JobId, number: AttemptNumber) -> Duration {
        self.shared.starts.seen_for(id, number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u16) -> JobId {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&number.to_be_bytes());
        JobId::from_uuid_bytes(bytes)
    }

    #[tokio::test(start_paused = true)]
    async fn start_is_known_from_the_first_look_on_and_few_are_remembered() {
        let starts = Starts::default();
        let first = AttemptNumber::FIRST;
        assert_eq!(starts.seen_for(&id(0), first), Duration::ZERO);
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(starts.seen_for(&id(0), first), Duration::from_secs(7));
        let second = first.next().unwrap();
        assert_eq!(starts.seen_for(&id(0), second), Duration::ZERO);
        for number in 1..1000 {
            starts.seen_for(&id(number), first);
        }
        assert!(starts.0.lock().unwrap().len() <= MOST);
        assert_eq!(starts.seen_for(&id(0), first), Duration::ZERO, "the oldest");
    }
}
