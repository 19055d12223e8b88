//! One line of an exclude list.

use super::part::{Part, PartFault};

/// A line may be this long in bytes.
const LONGEST_LINE: usize = 4096;

/// How a line is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// One pattern given as a value: no comments, nothing is trimmed.
    Value,
    /// A line of an exclude file: comments and blank lines are skipped.
    File,
    /// A line of a `.gitignore` file: read as git reads it, and what git cannot use matches nothing.
    Gitignore,
}

/// What is wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RuleFault {
    /// There is no pattern.
    #[error("is empty")]
    Empty,
    /// A `[` has no `]`.
    #[error("has a `[` without its `]`; write `\\[` for the character itself")]
    OpenClass,
    /// It ends in a backslash.
    #[error("ends in a backslash that escapes nothing")]
    LoneBackslash,
    /// Two slashes follow each other.
    #[error("has two slashes in a row")]
    EmptyName,
    /// It has a name that no entry has.
    #[error("has `.` or `..` in it, which no entry below the root is called")]
    Dots,
    /// It holds a NUL byte.
    #[error("has a NUL byte in it")]
    Nul,
    /// It is too long.
    #[error("is longer than {LONGEST_LINE} bytes")]
    TooLong,
}

/// Which paths a rule speaks of, and what it says about them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    /// `!`: these are not left out after all.
    pub(super) includes: bool,
    directories_only: bool,
    scope: Scope,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Scope {
    /// A name at every depth.
    Name(Part),
    /// A path from the root of the list.
    Path(Vec<Part>),
}

impl Rule {
    /// Reads a line; none when there is nothing in it to obey.
    pub(super) fn parse(line: &[u8], style: Style) -> Result<Option<Rule>, RuleFault> {
        let line = match style {
            Style::Value => line,
            Style::File | Style::Gitignore => without_ending(line),
        };
        let is_comment = style != Style::Value && line.first() == Some(&b'#');
        if is_comment || (line.is_empty() && style != Style::Value) {
            return Ok(None);
        }
        let parsed = pattern(line, style);
        match parsed {
            Err(_) if style == Style::Gitignore => Ok(None),
            Err(fault) => Err(fault),
            Ok(rule) => Ok(Some(rule)),
        }
    }

    /// Whether the rule speaks of the entry with these names, from the root of the list down.
    pub(super) fn matches(&self, names: &[&[u8]], is_directory: bool) -> bool {
        if self.directories_only && !is_directory {
            return false;
        }
        match &self.scope {
            Scope::Name(part) => names.last().is_some_and(|name| part.matches(name)),
            Scope::Path(parts) => path_matches(parts, names),
        }
    }

    /// Whether the rule begins with a plain name, so that it is meant for one place in the tree.
    ///
    /// Only such a rule brings something back from within a directory that is left out; else `!keep.txt` would
    /// have every `node_modules` searched for a `keep.txt`.
    pub(super) fn names_a_place(&self) -> bool {
        match &self.scope {
            Scope::Name(_) => false,
            Scope::Path(parts) => matches!(parts.first(), Some(Part::Literal(_))),
        }
    }

    /// Whether the rule could speak of something within this directory.
    pub(super) fn may_match_below(&self, directory: &[&[u8]]) -> bool {
        let Scope::Path(parts) = &self.scope else {
            return true;
        };
        // Which parts could be the next to be matched, after the names so far.
        let mut live = vec![false; parts.len() + 1];
        set_live(&mut live, parts, 0);
        for name in directory {
            let mut next = vec![false; parts.len() + 1];
            for (at, part) in parts.iter().enumerate() {
                if !live.get(at).copied().unwrap_or_default() {
                    continue;
                }
                match part {
                    Part::AnyDepth => set_live(&mut next, parts, at),
                    part if part.matches(name) => set_live(&mut next, parts, at + 1),
                    _ => {}
                }
            }
            live = next;
        }
        live.iter().take(parts.len()).any(|is_live| *is_live)
    }

    /// The one name that the rule leaves out at every depth.
    pub(super) fn literal_name(&self) -> Option<&[u8]> {
        match &self.scope {
            Scope::Name(Part::Literal(name)) => Some(name),
            _ => None,
        }
    }

    /// The one path that the rule leaves out; that of the top when it is a name at every depth.
    pub(super) fn literal_path(&self) -> Option<Vec<u8>> {
        match &self.scope {
            Scope::Name(Part::Literal(name)) => Some(name.to_vec()),
            Scope::Name(_) => None,
            Scope::Path(parts) => {
                let names: Option<Vec<&[u8]>> = parts
                    .iter()
                    .map(|part| match part {
                        Part::Literal(name) => Some(&**name),
                        _ => None,
                    })
                    .collect();
                Some(names?.join(&b'/'))
            }
        }
    }

    /// Whether the rule could speak of a directory of this name somewhere, or reach into one.
    pub(super) fn may_concern(&self, directory_name: &[u8]) -> bool {
        match &self.scope {
            Scope::Name(part) => part.matches(directory_name),
            Scope::Path(parts) if self.names_a_place() => {
                parts.iter().any(|part| part.matches(directory_name))
            }
            Scope::Path(parts) => parts
                .last()
                .is_some_and(|part| part.matches(directory_name)),
        }
    }
}

/// A `**` that is not the last part may stand for nothing.
fn set_live(live: &mut [bool], parts: &[Part], from: usize) {
    for (at, flag) in live.iter_mut().enumerate().skip(from) {
        *flag = true;
        let may_be_nothing = parts.get(at) == Some(&Part::AnyDepth) && at + 1 < parts.len();
        if !may_be_nothing {
            break;
        }
    }
}

/// Going back only to the last `**` is enough, as with `*` within a name.
fn path_matches(parts: &[Part], names: &[&[u8]]) -> bool {
    let (mut at, mut read) = (0, 0);
    let mut last_depth: Option<(usize, usize)> = None;
    while let Some(name) = names.get(read) {
        match parts.get(at) {
            Some(Part::AnyDepth) if at + 1 == parts.len() => return true,
            Some(Part::AnyDepth) => {
                last_depth = Some((at, read));
                at += 1;
            }
            Some(part) if part.matches(name) => {
                at += 1;
                read += 1;
            }
            _ => {
                let Some((depth, from)) = last_depth else {
                    return false;
                };
                last_depth = Some((depth, from + 1));
                at = depth + 1;
                read = from + 1;
            }
        }
    }
    at == parts.len()
}

/// Without the end of the line, and without blanks at the end unless the last one is escaped.
fn without_ending(line: &[u8]) -> &[u8] {
    let mut line = line.strip_suffix(b"\r").unwrap_or(line);
    while let Some(shorter) = line.strip_suffix(b" ") {
        let backslashes = shorter
            .iter()
            .rev()
            .take_while(|byte| **byte == b'\\')
            .count();
        if backslashes % 2 == 1 {
            break;
        }
        line = shorter;
    }
    line
}

fn pattern(line: &[u8], style: Style) -> Result<Rule, RuleFault> {
    if line.len() > LONGEST_LINE {
        return Err(RuleFault::TooLong);
    }
    if line.contains(&0) {
        return Err(RuleFault::Nul);
    }
    let (includes, text) = match line.strip_prefix(b"!") {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let (from_root, text) = match text.strip_prefix(b"./") {
        Some(rest) if style != Style::Gitignore => (true, rest),
        _ => (false, text),
    };
    let (from_root, text) = match text.strip_prefix(b"/") {
        Some(rest) => (true, rest),
        None => (from_root, text),
    };
    let (directories_only, text) = match text.strip_suffix(b"/") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let names = split_names(text);
    if text.is_empty() {
        return Err(RuleFault::Empty);
    }
    let parts = names
        .iter()
        .map(|name| part(name))
        .collect::<Result<Vec<Part>, RuleFault>>()?;
    Ok(Rule {
        includes,
        directories_only,
        scope: scope(parts, from_root),
    })
}

fn scope(mut parts: Vec<Part>, from_root: bool) -> Scope {
    parts.dedup_by(|one, other| *one == Part::AnyDepth && *other == Part::AnyDepth);
    match (parts.len(), from_root) {
        // Alone, without any slash, two stars are one.
        (1, false) if parts.first() == Some(&Part::AnyDepth) => {
            Scope::Name(Part::Suffix(Box::default()))
        }
        (1, false) => match parts.pop() {
            Some(part) => Scope::Name(part),
            None => Scope::Path(parts),
        },
        (2, _)
            if parts.first() == Some(&Part::AnyDepth) && parts.last() != Some(&Part::AnyDepth) =>
        {
            match parts.pop() {
                Some(part) => Scope::Name(part),
                None => Scope::Path(parts),
            }
        }
        _ => Scope::Path(parts),
    }
}

/// The names between slashes; an escaped slash is one too, since no name can hold it.
fn split_names(text: &[u8]) -> Vec<Vec<u8>> {
    let mut names = vec![Vec::new()];
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let is_slash = byte == b'/' || (byte == b'\\' && bytes.next_if_eq(&b'/').is_some());
        if is_slash {
            names.push(Vec::new());
            continue;
        }
        if let Some(name) = names.last_mut() {
            name.push(byte);
            if byte == b'\\' {
                name.extend(bytes.next());
            }
        }
    }
    names
}

fn part(name: &[u8]) -> Result<Part, RuleFault> {
    match name {
        b"" => Err(RuleFault::EmptyName),
        b"." | b".." => Err(RuleFault::Dots),
        b"**" => Ok(Part::AnyDepth),
        name => Part::parse(name).map_err(|fault| match fault {
            PartFault::OpenClass => RuleFault::OpenClass,
            PartFault::LoneBackslash => RuleFault::LoneBackslash,
        }),
    }
}
