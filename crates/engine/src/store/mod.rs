//! What must outlive this process, in one SQLite file that several processes use at the same time.
//!
//! Every effect that is promised to a caller is written here first, and written surely: the answer goes out only
//! after the disk has it. A file that is damaged is set aside under a name of its own and never written again.

mod adopting;
mod aside;
mod columns;
mod deliveries;
mod error;
mod events;
mod jobs;
mod lease;
mod looks;
mod opening;
mod package;
mod place;
mod registering;
mod schema;
mod starts;
mod transfers;
mod upkeep;
mod watched;
mod watches;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, Transaction, TransactionBehavior};

pub use aside::damaged_files;
pub use deliveries::{DeadLetter, DeliveryOutcome, DueDelivery, Pace};
pub use error::StoreError;
pub use events::{EventRow, NewEvent};
pub use jobs::{AttemptRow, JobRow, NewAttempt, NewJob, StartedJob, WatchId};
pub use lease::{Fence, LeaseRow};
pub use looks::{BegunResume, LookNote, Noted, ResumeOrder, SeenParts};
use opening::{Durability, Opened};
pub(crate) use package::{OldWatch, PackageError, PackageStore, read_package_store};
pub use registering::{Registered, TakenWatch};
pub use transfers::{
    Begun, NewTransfer, ProcessMark, TransferEnd, TransferId, TransferRow, TransferStatus,
};
pub use upkeep::WatchCounts;
pub use watched::WatchedSandbox;
pub use watches::{DueWatch, ForeignWatch, NewWatch, WatchRow, WatchStatus, WatchedTask};

/// The name of the file in the state folder.
const FILE_NAME: &str = "store.sqlite3";

/// The store of one state folder; clones share one connection, which is made when it is first needed.
#[derive(Debug, Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    slot: Mutex<Slot>,
    starts: starts::Starts,
}

#[derive(Debug, Default)]
struct Slot {
    opened: Option<Opened>,
    /// Whether something happened after which the file has to be looked through.
    is_suspect: bool,
}

impl Store {
    /// The store of a state folder; nothing is opened or made yet.
    pub fn at(state_dir: &Path) -> Self {
        Store {
            shared: Arc::new(Shared {
                folder: state_dir.to_owned(),
                slot: Mutex::default(),
                starts: starts::Starts::default(),
            }),
        }
    }

    /// The store of a state folder, opened at once.
    pub async fn open(state_dir: &Path) -> Result<Self, StoreError> {
        let store = Store::at(state_dir);
        store.read(|_| Ok(())).await?;
        Ok(store)
    }

    /// Reads at one moment of the store's life.
    pub(crate) async fn read<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        self.transact(TransactionBehavior::Deferred, Durability::Usual, work)
            .await
    }

    /// Changes the store, all or nothing; the last changes may be lost when the power fails.
    pub(crate) async fn commit<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        self.transact(TransactionBehavior::Immediate, Durability::Usual, work)
            .await
    }

    /// Changes the store, all or nothing; once this has returned the change outlives a power failure.
    pub(crate) async fn commit_surely<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        self.transact(TransactionBehavior::Immediate, Durability::Sure, work)
            .await
    }

    /// The one way to the connection: off the runtime's own threads, one user at a time.
    async fn transact<T, W>(
        &self,
        behavior: TransactionBehavior,
        durability: Durability,
        work: W,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        let shared = self.shared.clone();
        let done = tokio::task::spawn_blocking(move || {
            shared.with_connection(durability, |connection| {
                let transaction = connection.transaction_with_behavior(behavior)?;
                let value = work(&transaction)?;
                transaction.commit()?;
                Ok(value)
            })
        });
        done.await.unwrap_or_else(|_| Err(StoreError::Ended))
    }
}

impl Shared {
    fn with_connection<T>(
        &self,
        durability: Durability,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lost) = slot.opened.take_if(|opened| !opened.is_still_there()) {
            let path = lost.path().display();
            tracing::error!(
                "`{path}` was removed or replaced while it was in use; what it held is lost to this process"
            );
        }
        let mut opened = match slot.opened.take() {
            Some(opened) => opened,
            None => opening::open(&self.folder, slot.is_suspect)?,
        };
        slot.is_suspect = false;
        let done = opened.with_durability(durability, work);
        let error = match done {
            Ok(value) if durability == Durability::Usual || opened.is_still_there() => {
                slot.opened = Some(opened);
                return Ok(value);
            }
            // Written into a file that has no name any more: nobody will ever read it.
            Ok(_) => return Err(StoreError::Gone(opened.path().to_owned())),
            Err(source) => StoreError::of(opened.path(), source),
        };
        // What failed on the disk is looked at anew, with a connection that remembers nothing.
        slot.is_suspect = error.is_about_the_disk();
        if slot.is_suspect {
            opened.abandon();
        } else {
            slot.opened = Some(opened);
        }
        Err(error)
    }
}

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
#[path = "damage_tests.rs"]
mod damage_tests;
#[cfg(test)]
#[path = "fault_tests.rs"]
mod fault_tests;
#[cfg(test)]
#[path = "migration_tests.rs"]
mod migration_tests;
#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
