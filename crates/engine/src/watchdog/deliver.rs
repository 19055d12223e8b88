//! Tells events by all their ways, again and again until they are told or given up.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use remote_sandbox_core::watch::{Channel, next_try};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::files::record_of;
use super::{Held, Parcel, Undelivered, Watchdog};
use crate::clock;
use crate::failpoint;
use crate::store::{DeliveryOutcome, DueDelivery};

/// Deliveries that are under way at the same time; as many more that wake an agent, which takes long.
const MOST_AT_ONCE: usize = 8;

/// Deliveries that are looked up at once.
const MOST_DUE: usize = 64;

/// How long any delivery may take, whatever its own limits are.
const LAST_RESORT: Duration = Duration::from_secs(31 * 60);

/// How long to wait for a word that there is something to deliver.
const PAUSE: Duration = Duration::from_secs(2);

/// Which deliveries are under way.
type UnderWay = JoinSet<(u64, String)>;

/// Places for deliveries.
struct Places {
    quick: Arc<Semaphore>,
    slow: Arc<Semaphore>,
}

impl Watchdog {
    /// Delivers what is due until the lease is over.
    pub(super) async fn deliver_all(self: &Arc<Self>, held: &Held) {
        let places = Places {
            quick: Arc::new(Semaphore::new(MOST_AT_ONCE)),
            slow: Arc::new(Semaphore::new(MOST_AT_ONCE)),
        };
        let mut under_way: UnderWay = JoinSet::new();
        let mut keys = BTreeSet::new();
        while !held.over.is_cancelled() {
            while let Some(done) = under_way.try_join_next() {
                if let Ok(key) = done {
                    keys.remove(&key);
                }
            }
            self.begin_due(held, &places, &mut under_way, &mut keys)
                .await;
            tokio::select! {
                () = self.told.notified() => {}
                () = tokio::time::sleep(PAUSE) => {}
                Some(done) = under_way.join_next() => {
                    if let Ok(key) = done {
                        keys.remove(&key);
                    }
                }
                () = held.over.cancelled() => {}
            }
        }
    }

    /// Delivers once what is due now.
    pub(super) async fn deliver_due(self: &Arc<Self>, held: &Held) {
        match self.store().due_deliveries(clock::wall(), MOST_DUE).await {
            Ok(due) => {
                for delivery in due {
                    self.deliver_one(held, delivery).await;
                }
            }
            Err(error) => held.note(&error),
        }
    }

    async fn begin_due(
        self: &Arc<Self>,
        held: &Held,
        places: &Places,
        under_way: &mut UnderWay,
        keys: &mut BTreeSet<(u64, String)>,
    ) {
        let due = match self.store().due_deliveries(clock::wall(), MOST_DUE).await {
            Ok(due) => due,
            Err(error) => return held.note(&error),
        };
        for delivery in due {
            let key = (delivery.event.id, delivery.channel.clone());
            if keys.contains(&key) {
                continue;
            }
            let is_slow = matches!(
                Channel::parse(&delivery.channel),
                Some(Channel::Codex | Channel::Claude)
            );
            let place = if is_slow { &places.slow } else { &places.quick };
            // The rest comes when one of those under way is done.
            let Ok(permit) = place.clone().try_acquire_owned() else {
                continue;
            };
            keys.insert(key.clone());
            let (watchdog, held) = (self.clone(), held.clone());
            under_way.spawn(async move {
                watchdog.deliver_one(&held, delivery).await;
                drop(permit);
                key
            });
        }
    }

    async fn deliver_one(&self, held: &Held, delivery: DueDelivery) {
        let (event, word) = (delivery.event.id, delivery.channel.clone());
        let tries = delivery.tries.saturating_add(1);
        let outcome = match self.parcel(delivery) {
            Err(error) => DeliveryOutcome::Dead {
                error: error.to_owned(),
            },
            Ok(parcel) => {
                let done = tokio::time::timeout(LAST_RESORT, (self.deliver)(parcel)).await;
                let done = done.unwrap_or_else(|_| {
                    Err(Undelivered {
                        words: "it took too long".to_owned(),
                        is_permanent: false,
                    })
                });
                failpoint::reached("event_delivered");
                match done {
                    Ok(()) => DeliveryOutcome::Done,
                    Err(error) => self.failed(tries, &error),
                }
            }
        };
        if let DeliveryOutcome::Dead { error } = &outcome {
            tracing::warn!(event, channel = word, "an event is not told: {error}");
        }
        let noted = self
            .store()
            .note_delivery(&held.fence, event, &word, outcome);
        if let Err(error) = noted.await {
            held.note(&error);
        }
    }

    fn parcel(&self, delivery: DueDelivery) -> Result<Parcel, &'static str> {
        let event = record_of(&delivery.event).ok_or("its type is not known")?;
        // Written before, unless the process ended just then.
        self.write_file(&delivery.event);
        Ok(Parcel {
            event_file: self.event_file(event.id),
            event,
            channel: Channel::parse(&delivery.channel).ok_or("its way is not known")?,
            order: delivery.order.ok_or("its watch is gone")?,
        })
    }

    fn failed(&self, tries: u32, undelivered: &Undelivered) -> DeliveryOutcome {
        let error = self
            .engine
            .mask()
            .mask_text(&undelivered.words)
            .into_owned();
        let now = u64::try_from(clock::wall().as_millis()).unwrap_or(u64::MAX);
        match next_try(tries, now) {
            Some(at) if !undelivered.is_permanent => DeliveryOutcome::Again {
                at: Duration::from_millis(at),
                error,
            },
            _ => DeliveryOutcome::Dead { error },
        }
    }
}

#[cfg(test)]
#[path = "deliver_tests.rs"]
mod tests;
