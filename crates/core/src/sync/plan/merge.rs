//! The merge of two sorted trees.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::iter::Peekable;

use super::action::{Action, BaseEntry, Difference, Obstacle, SkipReason};
use super::compare::attributes;
use super::frame::Frame;
use crate::sync::entry::{Entry, Kind, LinkEnd};
use crate::sync::ignore::{Filter, Judge, Verdict};
use crate::sync::path::RelPath;

/// Which way files go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From this machine to a host.
    Up,
    /// From a host to this machine; what was edited here is not lost to an older or a different version.
    Down,
}

/// One of the trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Where files come from.
    Source,
    /// Where they go to.
    Target,
}

impl Side {
    /// The word for it in messages.
    pub fn name(self) -> &'static str {
        match self {
            Side::Source => "source",
            Side::Target => "target",
        }
    }
}

/// What a plan has to follow.
#[derive(Debug, Clone, Copy)]
pub struct PlanOptions {
    /// Which way files go.
    pub direction: Direction,
    /// Whether what only the target has is deleted.
    pub delete_extras: bool,
    /// Whether files of the same size are compared by content, whatever their times say.
    pub checksum: bool,
    /// Whether files go through a link to a directory that is in the place of a directory.
    pub keep_dirlinks: bool,
    /// Whether the scan of the source listed links as what they lead to.
    pub follow_links: bool,
    /// Whether edits in the target may be lost.
    pub overwrite: bool,
}

impl PlanOptions {
    /// The usual ones for a direction.
    pub fn new(direction: Direction) -> Self {
        PlanOptions {
            direction,
            delete_extras: false,
            checksum: false,
            keep_dirlinks: false,
            follow_links: false,
            overwrite: false,
        }
    }
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A scan is not sorted, so that nothing it says can be relied on.
    #[error("the scan of the {} is out of order at `{shown}`", side.name())]
    OutOfOrder {
        /// Whose scan.
        side: Side,
        /// The path, escaped.
        shown: String,
    },
}

/// How much of both trees is part of the sync, as far as the plan has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// Files and links of the source that can be sent.
    pub source_files: u64,
    /// Files and links of the target.
    pub target_files: u64,
}

/// Merges two trees into actions; an iterator that ends after an error.
pub struct Planner<'a, S: Iterator, T: Iterator, B: Iterator> {
    pub(super) options: PlanOptions,
    source: Peekable<S>,
    target: Peekable<T>,
    base: Peekable<B>,
    source_judge: Judge<'a>,
    target_judge: Judge<'a>,
    frames: Vec<Frame>,
    ready: VecDeque<Action>,
    last: [Option<RelPath>; 2],
    failed: bool,
    seen: Seen,
}

impl<'a, S, T, B> Planner<'a, S, T, B>
where
    S: Iterator<Item = Entry>,
    T: Iterator<Item = Entry>,
    B: Iterator<Item = BaseEntry>,
{
    /// A plan from two sorted scans and what is remembered of the last sync, sorted as well.
    pub fn new(options: PlanOptions, filter: &'a Filter, source: S, target: T, base: B) -> Self {
        Planner {
            options,
            source: source.peekable(),
            target: target.peekable(),
            base: base.peekable(),
            source_judge: filter.judge(),
            target_judge: filter.judge(),
            frames: Vec::new(),
            ready: VecDeque::new(),
            last: [None, None],
            failed: false,
            seen: Seen::default(),
        }
    }

    /// How much was seen so far; complete when the plan is at its end.
    pub fn seen(&self) -> Seen {
        self.seen
    }

    fn count(&mut self, source: Option<(Verdict, &Entry)>, target: Option<(Verdict, bool)>) {
        // Directories and what is passed over do not make a source that says what may go.
        let is_sent = source.is_some_and(|(verdict, entry)| {
            verdict.is_included() && entry.kind.is_content() && self.skipped(entry).is_none()
        });
        self.seen.source_files += u64::from(is_sent);
        let is_file =
            target.is_some_and(|(verdict, is_directory)| verdict.is_included() && !is_directory);
        self.seen.target_files += u64::from(is_file);
    }

    /// Handles the next path; whether there was one.
    fn advance(&mut self) -> Result<bool, PlanError> {
        let order = match (self.source.peek(), self.target.peek()) {
            (None, None) => {
                self.close_all_but(None);
                return Ok(false);
            }
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(source), Some(target)) => source.path.cmp(&target.path),
        };
        let source = if order.is_le() {
            self.source.next()
        } else {
            None
        };
        let target = if order.is_ge() {
            self.target.next()
        } else {
            None
        };
        self.check_order(Side::Source, source.as_ref())?;
        self.check_order(Side::Target, target.as_ref())?;
        if let Some(path) = source
            .as_ref()
            .or(target.as_ref())
            .map(|entry| entry.path.clone())
        {
            self.close_all_but(Some(&path));
            let here = match self.options.direction {
                Direction::Up => source.as_ref(),
                Direction::Down => target.as_ref(),
            };
            let base = remembered(&mut self.base, &path, here);
            match (source, target) {
                (Some(source), Some(target)) => self.both(source, target, base.as_ref()),
                (Some(source), None) => self.only_source(source),
                (None, Some(target)) => self.only_target(target, base.as_ref()),
                (None, None) => {}
            }
        }
        Ok(true)
    }

    fn check_order(&mut self, side: Side, entry: Option<&Entry>) -> Result<(), PlanError> {
        let Some(entry) = entry else {
            return Ok(());
        };
        let [source, target] = &mut self.last;
        let last = match side {
            Side::Source => source,
            Side::Target => target,
        };
        if last.as_ref().is_some_and(|last| *last >= entry.path) {
            return Err(PlanError::OutOfOrder {
                side,
                shown: entry.path.shown().text,
            });
        }
        *last = Some(entry.path.clone());
        Ok(())
    }

    /// Closes every open directory that the path does not lie in.
    fn close_all_but(&mut self, path: Option<&RelPath>) {
        while let Some(frame) = self
            .frames
            .pop_if(|frame| !path.is_some_and(|path| path.is_below(&frame.path)))
        {
            let Some(directory) = frame.extra else {
                continue;
            };
            match (frame.holds, frame.replacement) {
                (true, replacement) => {
                    self.hold();
                    if let Some(entry) = replacement {
                        self.conflict(entry.path, Obstacle::DirectoryInTheWay);
                    }
                }
                (false, None) => self.ready.push_back(Action::Delete { target: directory }),
                (false, Some(entry)) => self.send(entry, Some(directory)),
            }
        }
    }

    /// Says that something in the innermost open directory stays.
    fn hold(&mut self) {
        if let Some(frame) = self.frames.last_mut() {
            frame.holds = true;
        }
    }

    fn conflict(&mut self, path: RelPath, obstacle: Obstacle) {
        self.ready.push_back(Action::Conflict { path, obstacle });
    }

    fn open(&mut self, mut frame: Frame) {
        if let Some(above) = self.frames.last() {
            frame.is_shielded |= above.is_shielded;
            frame.obstacle = frame.obstacle.or(above.obstacle.map(|_| Obstacle::Above));
        }
        self.frames.push(frame);
    }

    /// Whether an entry of the source can be placed: in a directory of the source into which something can come.
    fn is_placed(&mut self, entry: &Entry) -> bool {
        let above = self.frames.last();
        let is_in_directory = match (entry.path.parent_bytes(), above) {
            (None, _) => true,
            (Some(parent), Some(frame)) => frame.in_source && frame.path.as_bytes() == parent,
            (Some(_), None) => false,
        };
        if !is_in_directory {
            let (entry, reason) = (entry.clone(), SkipReason::Orphan);
            self.ready.push_back(Action::Skip { entry, reason });
            return false;
        }
        if above.is_some_and(|frame| frame.obstacle.is_some()) {
            if entry.kind.is_directory() {
                self.open(Frame::of_source(entry.path.clone()));
            }
            self.conflict(entry.path.clone(), Obstacle::Above);
            return false;
        }
        for frame in &mut self.frames {
            if let Some(entry) = frame.pending.take() {
                let replaces = None;
                self.ready
                    .push_back(Action::MakeDirectory { entry, replaces });
            }
        }
        true
    }

    /// Why an entry of the source is never sent.
    fn skipped(&self, entry: &Entry) -> Option<SkipReason> {
        match entry.kind {
            Kind::Special(_) => Some(SkipReason::Special),
            Kind::Link { .. } if self.options.follow_links => Some(SkipReason::DanglingLink),
            _ => None,
        }
    }

    fn send(&mut self, entry: Entry, replaces: Option<Entry>) {
        let difference = match replaces {
            None => Difference::Missing,
            Some(_) => Difference::Kind,
        };
        self.ready.push_back(match entry.kind {
            Kind::Directory => Action::MakeDirectory { entry, replaces },
            Kind::Link { .. } => Action::SendLink { entry, replaces },
            Kind::File | Kind::Special(_) => Action::SendFile {
                entry,
                replaces,
                difference,
            },
        });
    }

    fn only_source(&mut self, entry: Entry) {
        let verdict = self
            .source_judge
            .verdict(&entry.path, entry.kind.is_directory());
        self.count(Some((verdict, &entry)), None);
        match verdict {
            Verdict::Excluded => {}
            Verdict::Opened => {
                let mut frame = Frame::of_source(entry.path.clone());
                frame.pending = Some(entry);
                self.open(frame);
            }
            Verdict::Included => {
                if let Some(reason) = self.skipped(&entry) {
                    self.ready.push_back(Action::Skip { entry, reason });
                } else if self.is_placed(&entry) {
                    if entry.kind.is_directory() {
                        self.open(Frame::of_source(entry.path.clone()));
                    }
                    self.send(entry, None);
                }
            }
        }
    }

    fn only_target(&mut self, target: Entry, base: Option<&BaseEntry>) {
        let verdict = self
            .target_judge
            .verdict(&target.path, target.kind.is_directory());
        let is_directory = target.kind.is_directory();
        self.count(None, Some((verdict, is_directory)));
        let is_shielded = self.frames.last().is_some_and(|frame| frame.is_shielded);
        let is_wanted = !verdict.is_included() || is_shielded || !self.options.delete_extras;
        let stays = is_wanted || matches!(target.kind, Kind::Special(_));
        let obstacle = self.options.delete_obstacle(&target, base);
        if stays || obstacle.is_some() {
            self.hold();
        }
        match (stays, obstacle) {
            (true, _) if is_directory => self.open(Frame::new(target.path)),
            (true, _) if is_wanted => {}
            (true, _) => {
                let reason = SkipReason::SpecialStays;
                self.ready.push_back(Action::Skip {
                    entry: target,
                    reason,
                });
            }
            (false, Some(obstacle)) => self.conflict(target.path, obstacle),
            (false, None) if is_directory => {
                let mut frame = Frame::new(target.path.clone());
                frame.extra = Some(target);
                self.open(frame);
            }
            (false, None) => self.ready.push_back(Action::Delete { target }),
        }
    }

    fn both(&mut self, source: Entry, target: Entry, base: Option<&BaseEntry>) {
        let is_directory = source.kind.is_directory();
        let source_verdict = self.source_judge.verdict(&source.path, is_directory);
        // Rules see no more of an entry than its path and whether it is a directory.
        let target_verdict = if is_directory == target.kind.is_directory() {
            source_verdict
        } else {
            self.target_judge.verdict(&target.path, !is_directory)
        };
        self.count(
            Some((source_verdict, &source)),
            Some((target_verdict, target.kind.is_directory())),
        );
        // What both have, or what is excluded on one side, is never deleted with its directory.
        self.hold();
        if !source_verdict.is_included() || !target_verdict.is_included() {
            let mut frame = Frame::new(source.path.clone());
            frame.in_source = is_directory;
            frame.is_shielded |= is_directory != target.kind.is_directory();
            if source_verdict.is_included() {
                frame.obstacle = Some(Obstacle::ExcludedInTarget);
                self.conflict(source.path, Obstacle::ExcludedInTarget);
            } else if source_verdict == Verdict::Opened && !target.kind.is_directory() {
                frame.obstacle = Some(Obstacle::ExcludedInTarget);
            }
            self.open(frame);
            return;
        }
        if let Some(reason) = self.skipped(&source) {
            let mut frame = Frame::new(source.path.clone());
            frame.is_shielded = true;
            self.open(frame);
            self.ready.push_back(Action::Skip {
                entry: source,
                reason,
            });
        } else if self.is_placed(&source) {
            self.meet(source, target, base);
        }
    }

    /// Two entries of one path, both part of the sync.
    fn meet(&mut self, source: Entry, target: Entry, base: Option<&BaseEntry>) {
        let obstacle = match (&source.kind, &target.kind) {
            (_, Kind::Special(_)) => Some(Obstacle::SpecialInTheWay),
            (Kind::Directory, Kind::Link { end, .. }) if may_be_directory(*end) => {
                (!self.options.keep_dirlinks).then_some(Obstacle::DirectoryLink)
            }
            (Kind::File, Kind::File) => None,
            (Kind::Link { target: one, .. }, Kind::Link { target: other, .. }) if one == other => {
                None
            }
            (_, Kind::File | Kind::Link { .. }) => self.options.obstacle(&source, &target, base),
            _ => None,
        };
        if source.kind.is_directory() {
            let mut frame = Frame::of_source(source.path.clone());
            frame.obstacle = obstacle;
            // What a link leads to is somebody else's: files go there, but nothing there is superfluous.
            frame.is_shielded |= matches!(target.kind, Kind::Link { .. });
            self.open(frame);
        }
        if let Some(obstacle) = obstacle {
            self.conflict(source.path, obstacle);
            return;
        }
        match (&source.kind, &target.kind) {
            (Kind::File, Kind::File) => {
                let action = self.options.compare(source, target, base);
                self.ready.push_back(action);
            }
            (Kind::Directory, Kind::Directory) => self.ready.push_back(attributes(source, target)),
            (Kind::Directory, Kind::Link { end, .. }) if may_be_directory(*end) => {
                self.ready.push_back(Action::Keep { entry: source });
            }
            (Kind::Link { target: one, .. }, Kind::Link { target: other, .. }) if one == other => {
                self.ready.push_back(Action::Keep { entry: source });
            }
            (_, Kind::Directory) => {
                let mut frame = Frame::new(source.path.clone());
                frame.extra = Some(target);
                frame.replacement = Some(source);
                self.open(frame);
            }
            _ => self.send(source, Some(target)),
        }
    }
}

/// What is remembered of a path.
fn remembered<B: Iterator<Item = BaseEntry>>(
    base: &mut Peekable<B>,
    path: &RelPath,
    here: Option<&Entry>,
) -> Option<BaseEntry> {
    while base.next_if(|base| base.path < *path).is_some() {}
    let records = std::iter::from_fn(|| base.next_if(|base| base.path == *path));
    BaseEntry::fitting(records, here)
}

/// A link of which nobody knows where it leads counts as one to a directory, because that one must not be lost.
fn may_be_directory(end: LinkEnd) -> bool {
    matches!(end, LinkEnd::Directory | LinkEnd::Unknown)
}

impl<S, T, B> Iterator for Planner<'_, S, T, B>
where
    S: Iterator<Item = Entry>,
    T: Iterator<Item = Entry>,
    B: Iterator<Item = BaseEntry>,
{
    type Item = Result<Action, PlanError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(action) = self.ready.pop_front() {
                return Some(Ok(action));
            }
            if self.failed {
                return None;
            }
            match self.advance() {
                Ok(true) => {}
                Ok(false) if self.ready.is_empty() => return None,
                Ok(false) => {}
                Err(error) => {
                    self.failed = true;
                    return Some(Err(error));
                }
            }
        }
    }
}
