//! A plan in numbers.

use super::action::Action;
use crate::sync::path::{RelPath, Shown};

/// So many paths of each kind of action are named.
const FIRST_PATHS: usize = 20;

/// A kind of action, as results name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// Directories to be made.
    MakeDirectory,
    /// Files to be sent.
    SendFile,
    /// Files whose content is to be compared.
    CompareContent,
    /// Links to be made.
    SendLink,
    /// Entries that get other permissions.
    SetAttributes,
    /// Entries to be deleted.
    Delete,
    /// Entries that stay as they are.
    Keep,
    /// Entries on which somebody has to decide.
    Conflict,
    /// Entries that are passed over.
    Skip,
}

impl Word {
    /// Every word, in the order of a result.
    pub const ALL: [Word; 9] = [
        Word::MakeDirectory,
        Word::SendFile,
        Word::CompareContent,
        Word::SendLink,
        Word::SetAttributes,
        Word::Delete,
        Word::Keep,
        Word::Conflict,
        Word::Skip,
    ];

    /// The word on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Word::MakeDirectory => "make_directory",
            Word::SendFile => "send_file",
            Word::CompareContent => "compare_content",
            Word::SendLink => "send_link",
            Word::SetAttributes => "set_attributes",
            Word::Delete => "delete",
            Word::Keep => "keep",
            Word::Conflict => "conflict",
            Word::Skip => "skip",
        }
    }

    /// The kind of an action.
    pub fn of(action: &Action) -> Word {
        match action {
            Action::MakeDirectory { .. } => Word::MakeDirectory,
            Action::SendFile { .. } => Word::SendFile,
            Action::CompareContent { .. } => Word::CompareContent,
            Action::SendLink { .. } => Word::SendLink,
            Action::SetAttributes { .. } => Word::SetAttributes,
            Action::Delete { .. } => Word::Delete,
            Action::Keep { .. } => Word::Keep,
            Action::Conflict { .. } => Word::Conflict,
            Action::Skip { .. } => Word::Skip,
        }
    }
}

/// How often one kind of action occurs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Count {
    /// How often.
    pub count: u64,
    /// The bytes of the files in it.
    pub bytes: u64,
    /// The first paths; none of those that are kept.
    pub first: Vec<Shown>,
}

/// How much there is to do, for a dry run and for the rules about deleting.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    counts: [Count; Word::ALL.len()],
    /// Files and links that would be deleted.
    pub deleted_files: u64,
    /// Directories that would be deleted.
    pub deleted_directories: u64,
}

impl Summary {
    /// Counts an action in.
    pub fn add(&mut self, action: &Action) {
        let bytes = match action {
            Action::SendFile { entry, .. } | Action::CompareContent { entry, .. } => {
                entry.size_bytes
            }
            Action::Keep { entry } | Action::SetAttributes { entry, .. }
                if entry.kind.is_file() =>
            {
                entry.size_bytes
            }
            Action::Delete { target } if target.kind.is_file() => target.size_bytes,
            _ => 0,
        };
        let lost = match action {
            Action::Delete { target } => Some(target),
            // A directory that gives way is gone as well.
            Action::SendFile {
                replaces: Some(target),
                ..
            }
            | Action::SendLink {
                replaces: Some(target),
                ..
            } if target.kind.is_directory() => Some(target),
            _ => None,
        };
        match lost.map(|target| target.kind.is_directory()) {
            Some(true) => self.deleted_directories += 1,
            Some(false) => self.deleted_files += 1,
            None => {}
        }
        let word = Word::of(action);
        if let Some(count) = self.counts.get_mut(word as usize) {
            count.count += 1;
            count.bytes = count.bytes.saturating_add(bytes);
            if word != Word::Keep && count.first.len() < FIRST_PATHS {
                count.first.push(action.path().shown());
            }
        }
    }

    /// What is known of one kind of action.
    pub fn of(&self, word: Word) -> &Count {
        static NONE: Count = Count {
            count: 0,
            bytes: 0,
            first: Vec::new(),
        };
        self.counts.get(word as usize).unwrap_or(&NONE)
    }

    /// How many entries would be deleted.
    pub fn deleted(&self) -> u64 {
        self.deleted_files + self.deleted_directories
    }

    /// Whether there is anything to do or to decide.
    pub fn is_settled(&self) -> bool {
        Word::ALL
            .iter()
            .filter(|word| !matches!(word, Word::Keep | Word::Skip))
            .all(|word| self.of(*word).count == 0)
    }

    /// The first paths that would be deleted, for a message.
    pub fn first_deleted(&self) -> &[Shown] {
        &self.of(Word::Delete).first
    }

    /// Counts in a path that came from nowhere in the plan, such as an entry that a scan left out.
    pub fn add_skipped(&mut self, path: &RelPath) {
        if let Some(count) = self.counts.get_mut(Word::Skip as usize) {
            count.count += 1;
            if count.first.len() < FIRST_PATHS {
                count.first.push(path.shown());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Direction, PlanOptions, Planner, Seen};
    use super::*;
    use crate::sync::samples::{directory, file};
    use crate::sync::{Entry, Filter};

    #[test]
    fn summary_counts_bytes_and_first_paths() {
        let filter = Filter::default();
        let mut source: Vec<Entry> = (0..30)
            .map(|number| file(&format!("f{number:02}"), 10, 0))
            .collect();
        source.push(file("f99.pyc", 10, 0));
        source.push(directory("z"));
        let target = [
            directory("a"),
            file("a/x", 7, 0),
            file("a.pyc", 7, 0),
            file("f00", 10, 0),
        ];
        let mut options = PlanOptions::new(Direction::Up);
        options.delete_extras = true;
        let (source, target) = (source.into_iter(), target.into_iter());
        let mut planner = Planner::new(options, &filter, source, target, std::iter::empty());
        let mut summary = Summary::default();
        for action in planner.by_ref() {
            summary.add(&action.unwrap());
        }
        let seen = Seen {
            source_files: 30,
            target_files: 2,
        };
        assert_eq!(planner.seen(), seen);
        let sent = summary.of(Word::SendFile);
        assert_eq!((sent.count, sent.bytes, sent.first.len()), (29, 290, 20));
        assert_eq!(sent.first[0].text, "f01");
        assert_eq!((summary.deleted_files, summary.deleted_directories), (1, 1));
        assert_eq!((summary.deleted(), summary.of(Word::Delete).bytes), (2, 7));
        let kept = summary.of(Word::Keep);
        assert_eq!((kept.count, kept.first.len()), (1, 0));
        assert!(!summary.is_settled() && Summary::default().is_settled());
    }
}
