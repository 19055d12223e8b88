//! Whether two files are the same, and which one may be lost when they are not.

use super::action::{Action, BaseEntry, Difference, Obstacle};
use super::merge::{Direction, PlanOptions};
use crate::sync::entry::{Entry, Stamp};

impl PlanOptions {
    /// The remembered stamps of source and target.
    fn remembered(&self, base: &BaseEntry) -> (Stamp, Stamp) {
        match self.direction {
            Direction::Up => (base.local, base.remote),
            Direction::Down => (base.remote, base.local),
        }
    }

    /// What is to be done about two files.
    pub(super) fn compare(&self, source: Entry, target: Entry, base: Option<&BaseEntry>) -> Action {
        let is_remembered = base.is_some_and(|base| {
            let (old_source, old_target) = self.remembered(base);
            old_source.agrees(source.stamp()) && old_target.agrees(target.stamp())
        });
        // What a sync left behind is the same even where the target's file system keeps coarser times. Whole seconds
        // alone do not say so of a file that was synced before: an edit within the second would never be sent.
        let is_surely_equal = base.is_none() || is_exact(&source) && is_exact(&target);
        let is_same = is_remembered || is_surely_equal && source.stamp().agrees(target.stamp());
        let is_same_size = source.size_bytes == target.size_bytes;
        if self.checksum && is_same_size {
            let obstacle = self.obstacle(&source, &target, base).filter(|_| !is_same);
            return Action::CompareContent {
                entry: source,
                target,
                obstacle,
            };
        }
        if is_same {
            return attributes(source, target);
        }
        match self.obstacle(&source, &target, base) {
            Some(obstacle) => Action::Conflict {
                path: source.path,
                obstacle,
            },
            None => Action::SendFile {
                entry: source,
                replaces: Some(target),
                difference: if is_same_size {
                    Difference::Time
                } else {
                    Difference::Size
                },
            },
        }
    }

    /// Why the target's file may not be lost to that of the source.
    pub(super) fn obstacle(
        &self,
        source: &Entry,
        target: &Entry,
        base: Option<&BaseEntry>,
    ) -> Option<Obstacle> {
        if self.direction == Direction::Up || self.overwrite || !target.kind.is_file() {
            return None;
        }
        let Some(base) = base else {
            let is_newer = target.mtime.is_after(source.mtime);
            return is_newer.then_some(Obstacle::NewerInTarget);
        };
        let (old_source, old_target) = self.remembered(base);
        if old_target.agrees(target.stamp()) {
            return None;
        }
        let is_source_old = source.kind.is_file() && old_source.agrees(source.stamp());
        Some(if is_source_old {
            Obstacle::ChangedInTarget
        } else {
            Obstacle::ChangedOnBoth
        })
    }

    /// Why the target's entry may not be deleted.
    pub(super) fn delete_obstacle(
        &self,
        target: &Entry,
        base: Option<&BaseEntry>,
    ) -> Option<Obstacle> {
        if self.direction == Direction::Up || self.overwrite || !target.kind.is_file() {
            return None;
        }
        let (_, old_target) = self.remembered(base?);
        (!old_target.agrees(target.stamp())).then_some(Obstacle::ChangedInTarget)
    }
}

/// Whether its time is known below the second.
fn is_exact(entry: &Entry) -> bool {
    entry.mtime.nanoseconds().is_some()
}

/// Nothing to do, or only permissions.
pub(super) fn attributes(source: Entry, target: Entry) -> Action {
    if source.carried_mode() == target.carried_mode() {
        Action::Keep { entry: source }
    } else {
        Action::SetAttributes {
            entry: source,
            target,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::sync::Mtime;
    use crate::sync::samples::{file, path};

    fn at(nanoseconds: Option<u32>) -> Entry {
        let mut entry = file("f", 1, 0);
        let seconds = entry.mtime.seconds;
        let exact = nanoseconds.and_then(|nanoseconds| Mtime::exact(seconds, nanoseconds));
        entry.mtime = exact.unwrap_or(Mtime::whole(seconds));
        entry
    }

    fn whole() -> Entry {
        at(None)
    }

    fn remembered() -> BaseEntry {
        BaseEntry {
            path: path("f"),
            local: at(Some(300)).stamp(),
            remote: whole().stamp(),
        }
    }

    fn told(direction: Direction, source: Entry, target: Entry, base: Option<BaseEntry>) -> String {
        let action = PlanOptions::new(direction).compare(source, target, base.as_ref());
        match action {
            Action::Keep { .. } => "keep".to_owned(),
            Action::SendFile { difference, .. } => format!("send {difference:?}"),
            Action::Conflict { obstacle, .. } => format!("{obstacle:?}"),
            other => format!("{other:?}"),
        }
    }

    #[rstest]
    #[case::same(300, "keep", "keep")]
    #[case::edited_within_the_second(700, "send Time", "ChangedInTarget")]
    fn edit_within_a_second_is_known_by_what_is_remembered_where_the_host_keeps_whole_ones(
        #[case] nanoseconds: u32,
        #[case] up: &str,
        #[case] down: &str,
    ) {
        let here = || at(Some(nanoseconds));
        let told_up = told(Direction::Up, here(), whole(), Some(remembered()));
        let told_down = told(Direction::Down, whole(), here(), Some(remembered()));
        assert_eq!((told_up.as_str(), told_down.as_str()), (up, down));
        // Without a memory, whole seconds are all there is; with two exact times, nothing else is needed.
        assert_eq!(told(Direction::Up, here(), whole(), None), "keep");
        assert_eq!(
            told(Direction::Up, here(), here(), Some(remembered())),
            "keep"
        );
    }
}
