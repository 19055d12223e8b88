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

    /// Why the target's file or link may not be lost to what the source has.
    pub(super) fn obstacle(
        &self,
        source: &Entry,
        target: &Entry,
        base: Option<&BaseEntry>,
    ) -> Option<Obstacle> {
        if self.direction == Direction::Up || self.overwrite || !target.kind.is_content() {
            return None;
        }
        let Some(base) = base else {
            let is_newer = target.mtime.is_after(source.mtime);
            return is_newer.then_some(Obstacle::NewerInTarget);
        };
        let (old_source, old_target) = self.remembered(base);
        if old_target.agrees(target.remembered()) {
            return None;
        }
        let is_source_old = source.kind.is_content() && old_source.agrees(source.remembered());
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
        if self.direction == Direction::Up || self.overwrite || !target.kind.is_content() {
            return None;
        }
        let (_, old_target) = self.remembered(base?);
        (!old_target.agrees(target.remembered())).then_some(Obstacle::ChangedInTarget)
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
    use crate::sync::samples::{file, path};
    use crate::sync::{LinkEnd, Mtime};

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
            is_intended: false,
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

    fn link_to(target: &str) -> Entry {
        crate::sync::samples::link("f", target, LinkEnd::Nothing)
    }

    /// What both sides had at the last sync.
    fn after(entry: &Entry) -> BaseEntry {
        BaseEntry {
            local: entry.remembered(),
            remote: entry.remembered(),
            ..remembered()
        }
    }

    #[rstest]
    #[case::replaced_here(
        file("f", 1, 0),
        link_to("mine"),
        file("f", 1, 0),
        Some(Obstacle::ChangedInTarget)
    )]
    #[case::other_words_here(
        link_to("x"),
        link_to("mine"),
        link_to("x"),
        Some(Obstacle::ChangedInTarget)
    )]
    #[case::other_words_on_both(
        link_to("y"),
        link_to("mine"),
        link_to("x"),
        Some(Obstacle::ChangedOnBoth)
    )]
    #[case::other_words_there(link_to("y"), link_to("x"), link_to("x"), None)]
    #[case::file_there(file("f", 1, 0), link_to("x"), link_to("x"), None)]
    #[case::directory_there(
        crate::sync::samples::directory("f"),
        link_to("mine"),
        link_to("x"),
        Some(Obstacle::ChangedOnBoth)
    )]
    fn download_keeps_a_link_that_was_made_here(
        #[case] source: Entry,
        #[case] target: Entry,
        #[case] synced: Entry,
        #[case] expected: Option<Obstacle>,
    ) {
        let base = after(&synced);
        let down = PlanOptions::new(Direction::Down);
        assert_eq!(down.obstacle(&source, &target, Some(&base)), expected);
        assert_eq!(
            down.delete_obstacle(&target, Some(&base)).is_some(),
            expected.is_some()
        );
        let overwrite = PlanOptions {
            overwrite: true,
            ..down
        };
        assert_eq!(overwrite.obstacle(&source, &target, Some(&base)), None);
    }

    #[test]
    fn what_a_broken_download_was_about_to_put_here_counts_where_it_has_come() {
        let (old, new, edited) = (file("f", 1, 0), file("f", 2, 5), file("f", 3, 9));
        let intended = BaseEntry {
            is_intended: true,
            ..after(&new)
        };
        let fitting = |records: &[&BaseEntry], here: Option<&Entry>| {
            BaseEntry::fitting(records.iter().copied().cloned(), here)
        };
        let both = [&after(&old), &intended];
        assert_eq!(fitting(&both, Some(&new)), Some(after(&new)));
        assert_eq!(fitting(&both, Some(&old)), Some(after(&old)));
        assert_eq!(fitting(&both, Some(&edited)), Some(after(&old)));
        assert_eq!(fitting(&both, None), Some(after(&old)));
        // Of a file that was never synced nothing is known until it has come.
        assert_eq!(fitting(&[&intended], Some(&new)), Some(after(&new)));
        assert_eq!(fitting(&[&intended], Some(&edited)), None);
    }
}
