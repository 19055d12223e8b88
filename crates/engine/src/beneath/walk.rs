//! Goes through a tree, depth first, so that entries come in the order in which a list takes them cheaply.
//!
//! Of every directory on the way down only the names of the directories in it are kept, so that neither a
//! deep nor a wide tree takes much memory; no descriptor stays open while deeper ones are read.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use remote_sandbox_core::sync::scan::ScanProblem;
use remote_sandbox_core::sync::{Entry, Filter, Judge, Kind, Prune, RelPath, Verdict};
use rustix::io::Errno;

use super::BeneathError;
use super::listing::{Event, Place, Told, not_looked_at, read, unreadable};
use super::prefetch::{Ahead, Ticket};
use super::scan::{LocalScan, LocalScanOptions};
use super::tree::Tree;
use crate::listing::ListingBuilder;

/// So many problems and temporary files are named; the rest is counted.
const MOST_NAMED: usize = 1000;

/// So many things of ours that were left are remembered; a download that is killed leaves at most a batch of them.
const MOST_TEMPORARIES: usize = 20_000;

/// So many directories of one directory are read ahead, and so many in all.
const AHEAD_HERE: usize = 8;
const AHEAD_IN_ALL: usize = 64;

/// So many links may lie on the way to one place.
const MOST_LINKS: usize = 40;

pub(super) struct Walk<'a> {
    options: &'a LocalScanOptions,
    rules: Rules<'a>,
    ahead: &'a Ahead,
    asked: usize,
    frames: Vec<Frame>,
    list: ListingBuilder,
    problems: Vec<ScanProblem>,
    problem_count: u64,
    temporaries: Vec<RelPath>,
}

/// The rules, which grow on the way down when `.gitignore` files count.
enum Rules<'a> {
    Fixed(Judge<'a>),
    Growing(&'a mut Filter),
}

/// A directory whose directories are being visited.
struct Frame {
    place: Place,
    itself: Option<(u64, u64)>,
    is_behind_link: bool,
    names: Names,
    tickets: VecDeque<(usize, Ticket)>,
    /// Up to where directories were asked for.
    asked_to: usize,
}

/// Names of directories, packed: what is known of it, its length, its bytes.
#[derive(Default)]
struct Names {
    packed: Vec<u8>,
    at: usize,
}

const PLAIN: u8 = 0;
const LINK: u8 = 1;
const LEFT_OUT: u8 = 2;
const LEFT_OUT_LINK: u8 = 3;

impl Names {
    fn push(&mut self, mark: u8, name: &[u8]) {
        let length = u8::try_from(name.len()).unwrap_or(u8::MAX);
        self.packed.push(mark);
        self.packed.push(length);
        self.packed
            .extend(name.iter().take(usize::from(length)).copied());
    }

    /// The mark and the name at a place, and the place of the next one.
    fn get(&self, at: usize) -> Option<(u8, &[u8], usize)> {
        let [mark, length] = self.packed.get(at..)?.first_chunk::<2>()?;
        let end = at + 2 + usize::from(*length);
        Some((*mark, self.packed.get(at + 2..end)?, end))
    }
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        options: &'a LocalScanOptions,
        filter: &'a mut Filter,
        ahead: &'a Ahead,
    ) -> Self {
        Walk {
            options,
            rules: if options.gitignore {
                Rules::Growing(filter)
            } else {
                Rules::Fixed(filter.judge())
            },
            ahead,
            asked: 0,
            frames: Vec::new(),
            list: ListingBuilder::new(options.spool.clone()),
            problems: Vec::new(),
            problem_count: 0,
            temporaries: Vec::new(),
        }
    }

    pub(super) fn run(mut self, tree: &Tree) -> Result<LocalScan, BeneathError> {
        let root = Place {
            tree: tree.clone(),
            inside: None,
            path: None,
        };
        self.enter(root, None, false)?;
        while !self.frames.is_empty() {
            if self.options.cancelled.load(Ordering::Relaxed) {
                return Err(BeneathError::Cancelled);
            }
            self.look_ahead();
            self.step()?;
        }
        Ok(LocalScan {
            entries: self.list.finish()?,
            problems: self.problems,
            problem_count: self.problem_count,
            temporaries: self.temporaries,
        })
    }

    /// Visits the next directory of the innermost one, or leaves that.
    fn step(&mut self) -> Result<(), BeneathError> {
        let Some(frame) = self.frames.last_mut() else {
            return Ok(());
        };
        let at = frame.names.at;
        let Some((mark, name, next)) = frame.names.get(at) else {
            self.frames.pop();
            return Ok(());
        };
        let child = frame.place.child(name);
        frame.names.at = next;
        let is_asked = frame.tickets.front().is_some_and(|(place, _)| *place == at);
        let ticket = is_asked.then(|| frame.tickets.pop_front()).flatten();
        self.asked -= usize::from(ticket.is_some());
        let child = match child {
            Ok(child) => child,
            Err(error) => {
                self.problem(error.into());
                return Ok(());
            }
        };
        match mark {
            PLAIN => self.enter(child, ticket.map(|(_, ticket)| ticket), false),
            LINK => self.follow(child),
            LEFT_OUT_LINK => self.list_as(&child, Some(Kind::Directory)),
            _ => self.list_as(&child, None),
        }
    }

    /// Asks for the directories that come next.
    fn look_ahead(&mut self) {
        let Some(frame) = self.frames.last_mut() else {
            return;
        };
        let mut room = AHEAD_HERE
            .saturating_sub(frame.tickets.len())
            .min(AHEAD_IN_ALL.saturating_sub(self.asked));
        // A few at once: waking a reader for each would cost more than it gives.
        if room < AHEAD_HERE / 2 {
            return;
        }
        frame.asked_to = frame.asked_to.max(frame.names.at);
        let (mut places, mut wanted) = (Vec::new(), Vec::new());
        while room > 0
            && let Some((mark, name, next)) = frame.names.get(frame.asked_to)
        {
            // The very next one is read here.
            let is_next = frame.asked_to == frame.names.at;
            if mark == PLAIN
                && !is_next
                && let Ok(child) = frame.place.child(name)
            {
                wanted.push(frame.asked_to);
                places.push(child);
                room -= 1;
            }
            frame.asked_to = next;
        }
        if places.is_empty() {
            return;
        }
        self.asked += places.len();
        let tickets = self.ahead.ask(places);
        frame.tickets.extend(wanted.into_iter().zip(tickets));
    }

    /// Reads a directory: what is in it goes onto the list, and its directories wait for their turn.
    fn enter(
        &mut self,
        place: Place,
        ticket: Option<Ticket>,
        is_behind_link: bool,
    ) -> Result<(), BeneathError> {
        let mut visit = Visit {
            frame: Frame {
                place,
                itself: None,
                is_behind_link,
                names: Names::default(),
                tickets: VecDeque::new(),
                asked_to: 0,
            },
            is_open: false,
            failed: None,
        };
        let collected = ticket.map(|ticket| self.ahead.collect(ticket));
        match collected {
            Some(Ok(events)) => {
                let _ = events
                    .iter()
                    .flatten()
                    .try_for_each(|event| self.take(event, &mut visit));
            }
            Some(Err(_)) | None => {
                let place = visit.frame.place.clone();
                let options = self.options;
                let _ = read(&place, options, &mut |event| self.take(event, &mut visit));
            }
        }
        if let Some(error) = visit.failed {
            return Err(error);
        }
        if visit.is_open {
            self.leave_out(&mut visit.frame);
            self.frames.push(visit.frame);
        }
        Ok(())
    }

    fn take(&mut self, event: Event, visit: &mut Visit) -> Told {
        let taken = match event {
            Event::Opened(entry) => return self.open(entry, visit),
            Event::Rules(text) => match &mut self.rules {
                Rules::Fixed(_) => Ok(()),
                Rules::Growing(filter) => filter
                    .add_gitignore(visit.frame.place.path.as_ref(), &text)
                    .map_err(BeneathError::from),
            },
            Event::Entry(entry) => self.list.push(entry).map_err(BeneathError::from),
            Event::Directory(name) => {
                visit.frame.names.push(PLAIN, &name);
                Ok(())
            }
            Event::DirectoryLink(name) => {
                visit.frame.names.push(LINK, &name);
                Ok(())
            }
            Event::Temporary(path) => {
                if self.temporaries.len() < MOST_TEMPORARIES {
                    self.temporaries.push(path);
                }
                Ok(())
            }
            Event::Problem(problem) => {
                self.problem(problem);
                Ok(())
            }
            Event::Closed(error) => self.closed(&visit.frame.place, error),
            Event::Failed(error) => Err(error),
        };
        match taken {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                visit.failed = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    fn open(&mut self, entry: Option<Entry>, visit: &mut Visit) -> Told {
        let Some(entry) = entry else {
            visit.is_open = true;
            return ControlFlow::Continue(());
        };
        visit.frame.itself = entry
            .identity
            .map(|identity| (identity.device, identity.inode));
        visit.is_open = !self.is_above(visit.frame.itself);
        if !visit.is_open {
            let shown = entry.path.shown().text;
            self.problem(ScanProblem::Loop { shown });
        }
        if let Err(error) = self.list.push(entry) {
            visit.failed = Some(error.into());
            visit.is_open = false;
        }
        if visit.is_open {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }

    /// Whether a directory is one of those that the walk is in; without followed links there is no way to that.
    fn is_above(&self, itself: Option<(u64, u64)>) -> bool {
        let mut frames = self.frames.iter();
        self.options.follow_links
            && itself.is_some()
            && frames.any(|frame| frame.identity() == itself)
    }

    /// A directory that cannot be opened is listed, and what is in it is not known.
    fn closed(&mut self, place: &Place, error: Errno) -> Result<(), BeneathError> {
        let Some(path) = &place.path else {
            let shown = place.tree.path().display().to_string();
            return Err(BeneathError::at("read the directory", shown, error));
        };
        match error {
            Errno::NOENT | Errno::LOOP | Errno::NOTDIR => {
                let shown = path.shown().text;
                self.problem(ScanProblem::Vanished { shown });
                Ok(())
            }
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => {
                Err(BeneathError::of("read the directory", path, error))
            }
            _ => {
                self.problem(unreadable(place));
                self.list_as(place, None)
            }
        }
    }

    /// Lists a directory without entering it; a link that is followed as what it leads to.
    fn list_as(&mut self, place: &Place, kind: Option<Kind>) -> Result<(), BeneathError> {
        let (Some(path), Some(inside)) = (&place.path, &place.inside) else {
            return Ok(());
        };
        match place.tree.look(inside) {
            Ok(Some(entry)) => {
                let path = path.clone();
                let kind = kind.unwrap_or(entry.kind);
                self.list.push(Entry {
                    path,
                    kind,
                    ..entry
                })?;
            }
            missing => {
                let is_denied = missing.is_err_and(|error| error.is_denied());
                self.problem(not_looked_at(path.shown().text, is_denied));
            }
        }
        Ok(())
    }

    /// Enters the directory that a link leads to, where that may be used and is not one above.
    fn follow(&mut self, link: Place) -> Result<(), BeneathError> {
        let (Some(path), Some(inside)) = (&link.path, &link.inside) else {
            return Ok(());
        };
        let shown = || path.shown().text;
        let links = self.frames.iter().filter(|frame| frame.is_behind_link);
        let end = match link.tree.real_place(inside) {
            Err(error) => Err(not_looked_at(shown(), error.is_denied())),
            Ok(real) if !self.options.allows(&real) => Err(ScanProblem::Outside { shown: shown() }),
            Ok(_) if links.count() >= MOST_LINKS => Err(ScanProblem::Loop { shown: shown() }),
            Ok(real) => Tree::open(&real).map_err(|_| ScanProblem::Unreadable { shown: shown() }),
        };
        let end = end.and_then(|tree| match self.is_above(tree.identity()) {
            true => Err(ScanProblem::Loop { shown: shown() }),
            false => Ok(tree),
        });
        match end {
            Ok(tree) => {
                let place = Place {
                    tree,
                    inside: None,
                    path: Some(path.clone()),
                };
                self.enter(place, None, true)
            }
            Err(problem) => {
                self.problem(problem);
                self.list_as(&link, None)
            }
        }
    }

    /// Marks the directories that need not be entered.
    fn leave_out(&mut self, frame: &mut Frame) {
        let (options, rules) = (self.options, &mut self.rules);
        match rules {
            Rules::Fixed(judge) => mark(frame, options, judge),
            Rules::Growing(filter) => mark(frame, options, &mut filter.judge()),
        }
    }

    fn problem(&mut self, problem: ScanProblem) {
        self.problem_count += 1;
        if self.problems.len() < MOST_NAMED {
            self.problems.push(problem);
        }
    }
}

/// A directory that is being read.
struct Visit {
    frame: Frame,
    is_open: bool,
    failed: Option<BeneathError>,
}

impl Frame {
    fn identity(&self) -> Option<(u64, u64)> {
        self.itself.or_else(|| self.place.tree.identity())
    }
}

fn mark(frame: &mut Frame, options: &LocalScanOptions, judge: &mut Judge<'_>) {
    let mut at = 0;
    while let Some((kind, name, next)) = frame.names.get(at) {
        let left_out = match kind {
            LINK => LEFT_OUT_LINK,
            _ => LEFT_OUT,
        };
        let is_left_out = frame.place.child_path(name).is_ok_and(|path| {
            let is_pruned = options.prunes.iter().any(|prune| match prune {
                Prune::Name(pruned) => **pruned == *name,
                Prune::Path(pruned) => *pruned == path,
            });
            is_pruned || judge.verdict(&path, true) == Verdict::Excluded
        });
        if is_left_out && let Some(mark) = frame.names.packed.get_mut(at) {
            *mark = left_out;
        }
        at = next;
    }
}
