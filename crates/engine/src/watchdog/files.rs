//! Each event as a file of its own, for people and scripts.

use std::path::PathBuf;

use remote_sandbox_core::watch::{EventRecord, EventType};

use super::Watchdog;
use crate::engine::event_file;
use crate::store::EventRow;
use crate::{failpoint, fsio};

/// How many events are looked for whose file was not written before the process ended.
const LOOKED_FOR: usize = 200;

/// An event as it is sent and shown; none for a type that this version does not know.
pub(super) fn record_of(row: &EventRow) -> Option<EventRecord> {
    Some(EventRecord {
        id: row.id,
        watch_id: row.watch.number(),
        event_type: EventType::parse(&row.event_type)?,
        summary: row.summary.clone(),
        created: row.created.as_secs(),
        payload: row.payload.clone(),
    })
}

impl Watchdog {
    /// The file of an event.
    pub(super) fn event_file(&self, event: u64) -> PathBuf {
        event_file(&self.engine.events_folder(), event)
    }

    /// Writes the files of events that were just written down; their deliveries may begin.
    pub(super) fn write_files(&self, events: &[EventRow]) {
        for event in events {
            self.write_file(event);
            failpoint::reached("event_written");
        }
        if !events.is_empty() {
            self.told.notify_one();
        }
    }

    /// Writes the file of an event where it is not there; the store has the event in any case.
    pub(super) fn write_file(&self, event: &EventRow) {
        let file = self.event_file(event.id);
        let Some(record) = record_of(event).filter(|_| !file.exists()) else {
            return;
        };
        let content = format!("{}\n", record.json());
        let written = fsio::sealed_directory(&self.engine.events_folder())
            .and_then(|()| fsio::write_atomically(&file, content.as_bytes()));
        if let Err(error) = written {
            tracing::error!(%error, "the file of an event cannot be written");
        }
    }

    /// Writes the files that an earlier process did not come to.
    pub(super) async fn write_missing_files(&self) {
        match self.store().newest_events(LOOKED_FOR).await {
            Ok(events) => {
                for event in events {
                    self.write_file(&self.engine.masked_event(event).await);
                }
            }
            Err(error) => tracing::warn!(%error, "the files of events are not looked for"),
        }
    }
}
