//! What is under way, each thing once. A mark goes with the task that holds it, however that ends.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use super::locked;

/// The keys of all that is under way.
pub(super) struct Marks<K>(Arc<Mutex<BTreeSet<K>>>);

/// The mark of one thing that is under way, until it is dropped.
pub(super) struct Mark<K: Ord> {
    all: Arc<Mutex<BTreeSet<K>>>,
    key: K,
}

impl<K> Default for Marks<K> {
    fn default() -> Self {
        Marks(Arc::default())
    }
}

impl<K: Ord + Clone> Marks<K> {
    /// Marks a thing; none when it is under way already.
    pub(super) fn mark(&self, key: K) -> Option<Mark<K>> {
        let is_new = locked(&self.0).insert(key.clone());
        is_new.then(|| Mark {
            all: self.0.clone(),
            key,
        })
    }

    /// All that is under way now.
    pub(super) fn all(&self) -> BTreeSet<K> {
        locked(&self.0).clone()
    }
}

impl<K: Ord> Drop for Mark<K> {
    fn drop(&mut self) {
        locked(&self.all).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn mark_is_gone_when_its_task_panics_or_is_cut_off() {
        let marks: Marks<u8> = Marks::default();
        let mark = marks.mark(1).unwrap();
        assert!(marks.mark(1).is_none() && marks.all().contains(&1));
        let panicking = tokio::spawn(async move {
            let _mark = mark;
            panic!("as a visit might");
        });
        assert!(panicking.await.unwrap_err().is_panic());
        assert!(marks.all().is_empty());
        let mark = marks.mark(1).unwrap();
        let endless = tokio::spawn(async move {
            let _mark = mark;
            std::future::pending::<()>().await;
        });
        endless.abort();
        assert!(endless.await.unwrap_err().is_cancelled());
        assert!(marks.mark(1).is_some());
    }
}
