//! All rules of a sync together, and the verdict on each entry.

use std::collections::BTreeMap;

use super::BUILT_IN;
use super::rule::{Rule, RuleFault, Style};
use crate::sync::path::{RelPath, shown};

/// All rules of one sync together, those of every `.gitignore` included.
const MOST_RULES: usize = 100_000;

/// Why a list of rules cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// A pattern that was given as a value is wrong.
    #[error("the exclude pattern `{shown}` {fault}")]
    Pattern {
        /// The pattern, escaped.
        shown: String,
        /// What is wrong with it.
        fault: RuleFault,
    },
    /// A line of the exclude file is wrong.
    #[error("line {line} of the exclude file, `{shown}`, {fault}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// The line, escaped.
        shown: String,
        /// What is wrong with it.
        fault: RuleFault,
    },
    /// There are too many rules.
    #[error("there are more than {MOST_RULES} exclude rules")]
    TooMany,
}

/// What is to be done with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is part of the sync.
    Included,
    /// It is a directory that is left out itself, but a rule may take back something in it, so it has to be walked.
    Opened,
    /// It is left out, with everything in it; a directory need not be walked.
    Excluded,
}

impl Verdict {
    /// Whether the entry is part of the sync.
    pub fn is_included(self) -> bool {
        self == Verdict::Included
    }
}

/// The rules of one sync, from all sources.
#[derive(Debug, Clone)]
pub struct Filter {
    pub(super) rules: Vec<Rule>,
    /// By the path of their directory; the root's is empty.
    pub(super) gitignores: BTreeMap<Vec<u8>, Vec<Rule>>,
    count: usize,
}

impl Default for Filter {
    fn default() -> Self {
        let built_in = BUILT_IN
            .iter()
            .filter_map(|line| Rule::parse(line.as_bytes(), Style::Value).ok().flatten());
        Filter {
            rules: built_in.collect(),
            gitignores: BTreeMap::new(),
            count: BUILT_IN.len(),
        }
    }
}

impl Filter {
    /// The built-in rules, then the lines of the exclude file, then the patterns given as values.
    pub fn new(exclude_file: Option<&[u8]>, patterns: &[&[u8]]) -> Result<Self, FilterError> {
        let mut filter = Filter::default();
        for (number, line) in lines(exclude_file.unwrap_or_default()).enumerate() {
            let rule = Rule::parse(line, Style::File).map_err(|fault| FilterError::Line {
                line: number + 1,
                shown: shown(line.get(..200).unwrap_or(line)).text,
                fault,
            })?;
            filter.rules.extend(rule);
            filter.count_in(1)?;
        }
        for pattern in patterns {
            let rule =
                Rule::parse(pattern, Style::Value).map_err(|fault| FilterError::Pattern {
                    shown: shown(pattern.get(..200).unwrap_or(pattern)).text,
                    fault,
                })?;
            filter.rules.extend(rule);
            filter.count_in(1)?;
        }
        Ok(filter)
    }

    /// Adds the `.gitignore` file of a directory, or of the root; it only ever leaves out more.
    pub fn add_gitignore(
        &mut self,
        directory: Option<&RelPath>,
        text: &[u8],
    ) -> Result<(), FilterError> {
        let rules: Vec<Rule> = lines(text)
            .filter_map(|line| Rule::parse(line, Style::Gitignore).ok().flatten())
            .collect();
        self.count_in(rules.len())?;
        let directory = directory.map_or(Vec::new(), |path| path.as_bytes().to_vec());
        self.gitignores.insert(directory, rules);
        Ok(())
    }

    fn count_in(&mut self, more: usize) -> Result<(), FilterError> {
        self.count += more;
        if self.count > MOST_RULES {
            return Err(FilterError::TooMany);
        }
        Ok(())
    }

    /// One that judges entry after entry.
    pub fn judge(&self) -> Judge<'_> {
        Judge {
            filter: self,
            directory: Vec::new(),
            above: Vec::new(),
            files: self
                .gitignores
                .get(b"".as_slice())
                .map(|rules| (0, rules.as_slice()))
                .into_iter()
                .collect(),
        }
    }

    /// The state of an entry, from that of the directory it lies in.
    fn step(
        &self,
        parent: State,
        files: &[IgnoreFile<'_>],
        names: &[&[u8]],
        is_directory: bool,
    ) -> State {
        let is_closed = parent.excluded_by.is_some() || parent.ignored;
        let floor = parent.excluded_by.map_or(0, |index| index + 1);
        let decisive = self
            .rules
            .iter()
            .enumerate()
            .skip(floor)
            .rev()
            .find(|(_, rule)| {
                let counts = !(is_closed && rule.includes && !rule.names_a_place());
                counts && rule.matches(names, is_directory)
            });
        let ignored = || parent.ignored || is_gitignored(files, names, is_directory);
        match decisive {
            Some((_, rule)) if rule.includes => State::default(),
            Some((index, _)) => State {
                excluded_by: Some(index),
                ignored: ignored(),
            },
            None => State {
                excluded_by: parent.excluded_by,
                ignored: ignored(),
            },
        }
    }

    fn verdict(&self, state: State, names: &[&[u8]], is_directory: bool) -> Verdict {
        if state.excluded_by.is_none() && !state.ignored {
            return Verdict::Included;
        }
        let floor = state.excluded_by.map_or(0, |index| index + 1);
        let is_opened =
            is_directory
                && self.rules.iter().skip(floor).any(|rule| {
                    rule.includes && rule.names_a_place() && rule.may_match_below(names)
                });
        if is_opened {
            Verdict::Opened
        } else {
            Verdict::Excluded
        }
    }
}

/// How deep the directory of a `.gitignore` file lies, and what the file says.
type IgnoreFile<'a> = (usize, &'a [Rule]);

/// What the `.gitignore` files say of an entry; the one nearest to it comes first.
fn is_gitignored(files: &[IgnoreFile<'_>], names: &[&[u8]], is_directory: bool) -> bool {
    let decisive = files.iter().rev().find_map(|(depth, rules)| {
        let below = names.get(*depth..).filter(|below| !below.is_empty())?;
        rules
            .iter()
            .rev()
            .find(|rule| rule.matches(below, is_directory))
    });
    decisive.is_some_and(|rule| !rule.includes)
}

/// What is known of an entry and handed down to what lies in it.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// The rule that leaves it out.
    excluded_by: Option<usize>,
    /// Whether a `.gitignore` file leaves it out.
    ignored: bool,
}

/// Judges entries; cheapest when they come in the order of their paths.
#[derive(Debug)]
pub struct Judge<'a> {
    filter: &'a Filter,
    /// The directory of the last entry, and the state of each directory down to it.
    directory: Vec<u8>,
    above: Vec<State>,
    /// The `.gitignore` files on the way down to it.
    files: Vec<IgnoreFile<'a>>,
}

impl<'a> Judge<'a> {
    /// The verdict on an entry; everything above it counts as a directory.
    pub fn verdict(&mut self, path: &RelPath, is_directory: bool) -> Verdict {
        let names: Vec<&[u8]> = path.components().collect();
        self.go_to(path, &names);
        let parent = self.above.last().copied().unwrap_or_default();
        let state = self.filter.step(parent, &self.files, &names, is_directory);
        self.filter.verdict(state, &names, is_directory)
    }

    fn go_to(&mut self, path: &RelPath, names: &[&[u8]]) {
        let directory = path.parent_bytes().unwrap_or_default();
        if self.directory == directory {
            return;
        }
        let shared = self
            .directory
            .split(|byte| *byte == b'/')
            .zip(names)
            .take(names.len() - 1)
            .take_while(|(one, other)| one == *other)
            .count();
        self.above.truncate(shared);
        self.files.retain(|(depth, _)| *depth <= shared);
        let filter: &'a Filter = self.filter;
        for depth in self.above.len() + 1..names.len() {
            let parent = self.above.last().copied().unwrap_or_default();
            let above = names.get(..depth).unwrap_or(names);
            let state = filter.step(parent, &self.files, above, true);
            self.above.push(state);
            if !filter.gitignores.is_empty()
                && let Some(rules) = filter.gitignores.get(&above.join(&b'/'))
            {
                self.files.push((depth, rules));
            }
        }
        self.directory = directory.to_vec();
    }
}

/// The lines of a file; a mark at its beginning that some editors leave is no part of the first one.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(text)
        .split(|byte| *byte == b'\n')
}
