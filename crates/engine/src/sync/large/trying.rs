//! How often a large file is tried that does not get through.

use crate::sync::Progress;

/// So often in a row, when it does not come further.
const MOST_TRIES: u32 = 2;

/// Who comes so much further goes on, however often the link breaks.
const FURTHER: u64 = 64 * 1024 * 1024;

/// The attempts for one file; nobody else counts bytes meanwhile.
pub(crate) struct Trying {
    before: u64,
    reached: u64,
    tries: u32,
}

impl Trying {
    /// Before the first one.
    pub(crate) fn new(progress: &Progress) -> Self {
        Trying {
            before: progress.bytes_done(),
            reached: 0,
            tries: 0,
        }
    }

    /// Whether there is another one after one that failed; its bytes are counted anew then.
    pub(crate) fn goes_on(&mut self, progress: &Progress) -> bool {
        let reached = progress.bytes_done().saturating_sub(self.before);
        self.tries += 1;
        if reached >= self.reached.saturating_add(FURTHER) {
            self.tries = 1;
        }
        self.reached = self.reached.max(reached);
        let goes_on = self.tries < MOST_TRIES;
        if goes_on {
            progress.back_to(self.before);
        }
        goes_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_comes_further_is_tried_more_than_twice() {
        let progress = Progress::default();
        progress.moved(10);
        let mut trying = Trying::new(&progress);
        for round in 1..6 {
            progress.moved(round * FURTHER);
            assert!(trying.goes_on(&progress), "{round}");
            assert_eq!(progress.bytes_done(), 10);
        }
        progress.moved(5 * FURTHER + 1000);
        assert!(!trying.goes_on(&progress));
        let mut trying = Trying::new(&progress);
        assert!(trying.goes_on(&progress));
        assert!(!trying.goes_on(&progress));
    }
}
