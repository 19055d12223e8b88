//! Tells events by all their ways, again and again until they are told or given up.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use remote_sandbox_core::watch::{Channel, next_try};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::files::record_of;
use super::marks::Marks;
use super::{Held, Parcel, Undelivered, Watchdog};
use crate::clock;
use crate::failpoint;
use crate::notify::AGENT_PLACES;
use crate::store::{DeliveryOutcome, DueDelivery, Pace};

/// Deliveries of one pace that are under way at the same time; agents have fewer places.
const MOST_AT_ONCE: usize = 8;

/// Deliveries that are looked up at once.
const MOST_DUE: usize = 64;

/// How long any delivery may take, whatever its own limits are.
const LAST_RESORT: Duration = Duration::from_secs(31 * 60);

/// How long to wait for a word that there is something to deliver.
const PAUSE: Duration = Duration::from_secs(2);

/// How long to wait before an outcome that could not be written down is written again.
const NOTE_PAUSE: Duration = Duration::from_secs(5);

/// Which deliveries are under way.
type UnderWay = JoinSet<()>;

/// An event and its way.
type Key = (u64, String);

/// Places for deliveries.
struct Places {
    quick: Arc<Semaphore>,
    commands: Arc<Semaphore>,
    agents: Arc<Semaphore>,
}

impl Watchdog {
    /// Delivers what is due until the lease is over.
    pub(super) async fn deliver_all(self: &Arc<Self>, held: &Held) {
        let places = Places {
            quick: Arc::new(Semaphore::new(MOST_AT_ONCE)),
            commands: Arc::new(Semaphore::new(MOST_AT_ONCE)),
            agents: Arc::new(Semaphore::new(AGENT_PLACES)),
        };
        let mut under_way: UnderWay = JoinSet::new();
        let keys = Marks::default();
        while !held.over.is_cancelled() {
            while under_way.try_join_next().is_some() {}
            self.begin_due(held, &places, &mut under_way, &keys).await;
            tokio::select! {
                () = self.told.notified() => {}
                () = tokio::time::sleep(PAUSE) => {}
                Some(_) = under_way.join_next() => {}
                () = held.over.cancelled() => {}
            }
        }
    }

    /// Delivers once what is due now.
    pub(super) async fn deliver_due(self: &Arc<Self>, held: &Held) {
        for pace in Pace::ALL {
            let due = self.store().due_deliveries(clock::wall(), pace, MOST_DUE);
            match due.await {
                Ok(due) => {
                    for delivery in due {
                        self.deliver_one(held, delivery).await;
                    }
                }
                Err(error) => held.note(&error),
            }
        }
    }

    async fn begin_due(
        self: &Arc<Self>,
        held: &Held,
        places: &Places,
        under_way: &mut UnderWay,
        keys: &Marks<Key>,
    ) {
        // What is under way is among them, and must not hide what comes behind it. What ends while they are read is
        // still among them, too, and is not to be done again.
        let before = keys.all();
        let most = MOST_DUE + before.len();
        let mut due = Vec::new();
        for pace in Pace::ALL {
            match self.store().due_deliveries(clock::wall(), pace, most).await {
                Ok(found) => due.extend(found.into_iter().map(|delivery| (pace, delivery))),
                Err(error) => return held.note(&error),
            }
        }
        for (pace, delivery) in due {
            let key = (delivery.event.id, delivery.channel.clone());
            if before.contains(&key) {
                continue;
            }
            let place = match pace {
                Pace::Quick => &places.quick,
                Pace::Command => &places.commands,
                Pace::Agent => &places.agents,
            };
            // The rest comes when one of those under way is done.
            let Ok(permit) = place.clone().try_acquire_owned() else {
                continue;
            };
            let Some(mark) = keys.mark(key) else {
                continue;
            };
            let (watchdog, held) = (self.clone(), held.clone());
            under_way.spawn(async move {
                let _under_way = (mark, permit);
                watchdog.deliver_one(&held, delivery).await;
            });
        }
    }

    async fn deliver_one(&self, held: &Held, mut delivery: DueDelivery) {
        delivery.event = self.engine.masked_event(delivery.event).await;
        let (event, word) = (delivery.event.id, delivery.channel.clone());
        let tries = delivery.tries.saturating_add(1);
        let outcome = match self.parcel(delivery) {
            Err(error) => DeliveryOutcome::Dead {
                error: error.to_owned(),
            },
            Ok(parcel) => {
                let failed = |words: &str| Undelivered {
                    words: words.to_owned(),
                    is_permanent: false,
                    is_impossible: false,
                };
                // One that breaks off is tried again as rarely as any other that failed.
                let telling = AssertUnwindSafe((self.deliver)(parcel)).catch_unwind();
                let done = match tokio::time::timeout(LAST_RESORT, telling).await {
                    Ok(Ok(done)) => done,
                    Ok(Err(_)) => Err(failed("it broke off")),
                    Err(_) => Err(failed("it took too long")),
                };
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
        // Without the note it would be told again at once, and for as long as the disk is full.
        loop {
            let outcome = outcome.clone();
            let noted = self
                .store()
                .note_delivery(&held.fence, event, &word, outcome);
            let Err(error) = noted.await else { return };
            held.note(&error);
            if held.over.is_cancelled() {
                return;
            }
            tokio::time::sleep(NOTE_PAUSE).await;
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
        if undelivered.is_impossible {
            return DeliveryOutcome::Impossible { error };
        }
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
