//! Reads archives as their bytes arrive.

use super::error::ArchiveError;
use super::header::{self, Header};
use super::pax::{PaxFault, Records};
use super::{BLOCK, padding};
use crate::sync::entry::{Mtime, Special};
use crate::sync::path::{LONGEST_PATH, PathError, RelPath, shown};

/// A pax extension or a long name may be this long.
const MOST_EXTENSION: u64 = 64 * 1024;

/// So many extensions may stand before one entry.
pub(super) const MOST_EXTENSIONS: u32 = 8;

/// Where an entry belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// It is the directory that was packed.
    Root,
    /// It lies below that.
    Below(RelPath),
}

/// What an entry of an archive is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberKind {
    /// A file; its content follows.
    File,
    /// A directory.
    Directory,
    /// A symbolic link that says this.
    Link(Box<[u8]>),
    /// One more name of a file that came before.
    HardLink(RelPath),
    /// A device or pipe.
    Special(Special),
}

/// An entry of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Where it belongs.
    pub place: Place,
    /// What it is.
    pub kind: MemberKind,
    /// How many bytes of content follow.
    pub size_bytes: u64,
    /// When it was last changed; whole seconds where the archive says no more.
    pub mtime: Mtime,
    /// Its permission bits.
    pub mode: u16,
}

/// What comes next in an archive.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// All bytes were read; more are needed.
    More,
    /// An entry begins.
    Member(Member),
    /// A piece of its content, never empty.
    Content(&'a [u8]),
    /// The entry is complete.
    MemberEnd,
    /// One of the remarks that may stand between archives, by its number.
    Remark(usize),
    /// The archive is complete; what still comes is filling.
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extension {
    Pax,
    GlobalPax,
    LongName,
    LongLink,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Header,
    Extension {
        what: Extension,
        missing: usize,
        padding: usize,
    },
    Content {
        missing: u64,
        padding: usize,
    },
    Skip {
        missing: usize,
    },
    /// One empty block was read; the second one is the end.
    HalfEnd,
    End,
}

/// Reads an archive in pieces of any size.
#[derive(Debug)]
pub struct ArchiveReader {
    state: State,
    /// A header or an extension that is not yet complete.
    buffer: Vec<u8>,
    records: Records,
    extensions: u32,
    /// Whether another archive may follow the end of one.
    reads_on: bool,
    /// Whether an end was read, when others may follow.
    has_ended: bool,
    /// Blocks that are no part of any archive, and may stand behind the end of one.
    remarks: Vec<[u8; BLOCK]>,
    failed: Option<ArchiveError>,
}

impl Default for ArchiveReader {
    fn default() -> Self {
        ArchiveReader {
            state: State::Header,
            buffer: Vec::new(),
            records: Records::default(),
            extensions: 0,
            reads_on: false,
            has_ended: false,
            remarks: Vec::new(),
            failed: None,
        }
    }
}

impl ArchiveReader {
    /// One that takes archives that follow each other for one; it never says that it is at the end.
    pub fn reading_on() -> Self {
        ArchiveReader {
            reads_on: true,
            ..ArchiveReader::default()
        }
    }

    /// Knows these blocks when they stand behind the end of an archive, where others may follow.
    #[must_use]
    pub fn with_remarks(mut self, remarks: Vec<[u8; BLOCK]>) -> Self {
        self.remarks = remarks;
        self
    }

    /// Reads on; the number of bytes that were used, and what they mean.
    ///
    /// Call again with the rest until it asks for more. After an error every call gives the same one.
    pub fn read<'a>(&mut self, input: &'a [u8]) -> Result<(usize, Event<'a>), ArchiveError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = self.advance(input);
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result
    }

    /// Whether the input may end here.
    pub fn finish(self) -> Result<(), ArchiveError> {
        match (self.failed, self.state) {
            (Some(error), _) => Err(error),
            (None, State::End) => Ok(()),
            (None, State::Header | State::HalfEnd) if self.has_ended && self.buffer.is_empty() => {
                Ok(())
            }
            (None, _) => Err(ArchiveError::BrokenOff),
        }
    }

    fn advance<'a>(&mut self, input: &'a [u8]) -> Result<(usize, Event<'a>), ArchiveError> {
        let mut used = 0;
        loop {
            let rest = input.get(used..).unwrap_or_default();
            match self.state {
                State::End => return Ok((input.len(), Event::End)),
                State::Content {
                    missing: 0,
                    padding,
                } => {
                    self.state = State::Skip { missing: padding };
                    return Ok((used, Event::MemberEnd));
                }
                State::Skip { missing: 0 } => self.state = State::Header,
                _ if rest.is_empty() => return Ok((used, Event::More)),
                State::Content { missing, padding } => {
                    let length = usize::try_from(missing)
                        .unwrap_or(usize::MAX)
                        .min(rest.len());
                    let missing = missing - length as u64;
                    self.state = State::Content { missing, padding };
                    let content = rest.get(..length).unwrap_or_default();
                    return Ok((used + length, Event::Content(content)));
                }
                State::Skip { missing } => {
                    let length = missing.min(rest.len());
                    self.state = State::Skip {
                        missing: missing - length,
                    };
                    used += length;
                }
                State::Extension {
                    what,
                    missing,
                    padding,
                } => {
                    let length = self.collect(rest, missing);
                    used += length;
                    let missing = missing - length;
                    self.state = State::Extension {
                        what,
                        missing,
                        padding,
                    };
                    if missing == 0 {
                        self.extension(what)?;
                        self.state = State::Skip { missing: padding };
                    }
                }
                State::Header | State::HalfEnd => {
                    used += self.collect(rest, BLOCK - self.buffer.len());
                    if let Some(event) = self.block()? {
                        return Ok((used, event));
                    }
                }
            }
        }
    }

    /// Puts bytes aside, at most so many; the number that was taken.
    fn collect(&mut self, bytes: &[u8], most: usize) -> usize {
        let taken = bytes.get(..most).unwrap_or(bytes);
        self.buffer.extend_from_slice(taken);
        taken.len()
    }

    /// Reads the header that was put aside, once it is whole.
    fn block(&mut self) -> Result<Option<Event<'static>>, ArchiveError> {
        let Ok(block) = <[u8; BLOCK]>::try_from(self.buffer.as_slice()) else {
            return Ok(None);
        };
        self.buffer.clear();
        self.header(&Header(block))
    }

    fn header(&mut self, header: &Header) -> Result<Option<Event<'static>>, ArchiveError> {
        if header.is_zero() {
            let is_second = matches!(self.state, State::HalfEnd);
            self.has_ended = self.reads_on && (is_second || self.has_ended);
            self.state = match is_second {
                false => State::HalfEnd,
                true if self.reads_on => State::Header,
                true => State::End,
            };
            return Ok(None);
        }
        if let Some(number) = self.remark(header) {
            return Ok(Some(Event::Remark(number)));
        }
        if !header.is_sound() {
            return Err(ArchiveError::Checksum);
        }
        self.has_ended = false;
        let extension = match header.letter() {
            b'x' => Extension::Pax,
            b'g' => Extension::GlobalPax,
            b'L' => Extension::LongName,
            b'K' => Extension::LongLink,
            _ => {
                let records = std::mem::take(&mut self.records);
                self.extensions = 0;
                let member = member(header, records)?;
                self.state = State::Content {
                    missing: member.size_bytes,
                    padding: padding(member.size_bytes),
                };
                return Ok(Some(Event::Member(member)));
            }
        };
        self.begin_extension(header, extension)?;
        Ok(None)
    }

    /// The number of a remark, where one may stand.
    fn remark(&mut self, header: &Header) -> Option<usize> {
        let is_between = self.has_ended && self.extensions == 0;
        let known = self.remarks.iter().filter(|_| is_between);
        let number = known.into_iter().position(|block| *block == header.0)?;
        // An empty block before it was filling, and not half of an end.
        self.state = State::Header;
        Some(number)
    }

    fn begin_extension(&mut self, header: &Header, what: Extension) -> Result<(), ArchiveError> {
        self.extensions += 1;
        if self.extensions > MOST_EXTENSIONS {
            return Err(ArchiveError::TooManyExtensions);
        }
        let size_bytes = number(header, header::SIZE, "size")?;
        if size_bytes > MOST_EXTENSION {
            return Err(ArchiveError::ExtensionTooLarge { size_bytes });
        }
        let missing = usize::try_from(size_bytes).unwrap_or_default();
        self.state = State::Extension {
            what,
            missing,
            padding: padding(size_bytes),
        };
        // An empty one has no byte that would complete it.
        if missing == 0 {
            self.extension(what)?;
            self.state = State::Header;
        }
        Ok(())
    }

    fn extension(&mut self, what: Extension) -> Result<(), ArchiveError> {
        let content = std::mem::take(&mut self.buffer);
        let name = || {
            content
                .split(|byte| *byte == 0)
                .next()
                .unwrap_or_default()
                .to_vec()
        };
        match what {
            Extension::LongName => self.records.path = Some(name()),
            Extension::LongLink => self.records.link_target = Some(name()),
            Extension::Pax => {
                let said = parse_records(&content)?;
                self.records.path = said.path.or(self.records.path.take());
                self.records.link_target = said.link_target.or(self.records.link_target.take());
                self.records.size_bytes = said.size_bytes.or(self.records.size_bytes);
                self.records.mtime = said.mtime.or(self.records.mtime);
            }
            // What holds for all entries that follow would have to be trusted for each of them.
            Extension::GlobalPax if parse_records(&content)?.is_empty() => {}
            Extension::GlobalPax => return Err(ArchiveError::Pax),
        }
        Ok(())
    }
}

fn parse_records(content: &[u8]) -> Result<Records, ArchiveError> {
    Records::parse(content).map_err(|fault| match fault {
        PaxFault::Garbled => ArchiveError::Pax,
        PaxFault::Sparse => ArchiveError::Sparse,
    })
}

fn name_shown(header: &Header) -> String {
    shown(&header.name()).text
}

fn number(
    header: &Header,
    range: std::ops::Range<usize>,
    field: &'static str,
) -> Result<u64, ArchiveError> {
    header
        .number(range)
        .and_then(|value| u64::try_from(value).ok())
        .ok_or_else(|| ArchiveError::Number {
            shown: name_shown(header),
            field,
        })
}

fn member(header: &Header, records: Records) -> Result<Member, ArchiveError> {
    let name = records.path.unwrap_or_else(|| header.name());
    let size_bytes = match records.size_bytes {
        Some(size_bytes) => size_bytes,
        None => number(header, header::SIZE, "size")?,
    };
    let target = records
        .link_target
        .unwrap_or_else(|| header.text(header::LINK_TARGET).to_vec());
    let kind = kind(header, &name, target)?;
    if size_bytes > 0 && kind != MemberKind::File {
        return Err(ArchiveError::UnexpectedContent {
            shown: name_shown(header),
        });
    }
    let seconds = || {
        header
            .number(header::MTIME)
            .ok_or_else(|| ArchiveError::Number {
                shown: name_shown(header),
                field: "time",
            })
    };
    let mtime = match records.mtime {
        Some(mtime) => mtime,
        None => Mtime::whole(seconds()?),
    };
    let mode = number(header, header::MODE, "mode")? & 0o7777;
    let place = place(&name)?;
    if place == Place::Root && kind != MemberKind::Directory {
        return Err(ArchiveError::RootNotDirectory);
    }
    Ok(Member {
        place,
        kind,
        size_bytes,
        mtime,
        mode: u16::try_from(mode).unwrap_or_default(),
    })
}

fn kind(header: &Header, name: &[u8], target: Vec<u8>) -> Result<MemberKind, ArchiveError> {
    Ok(match header.letter() {
        // Before there was a type for directories, a slash at the end made one.
        b'0' | 0 if name.ends_with(b"/") => MemberKind::Directory,
        b'0' | b'7' | 0 => MemberKind::File,
        b'1' => match place(&target)? {
            Place::Below(path) => MemberKind::HardLink(path),
            Place::Root => {
                return Err(ArchiveError::LinkTarget {
                    shown: name_shown(header),
                });
            }
        },
        b'2' if target.is_empty() || target.len() > LONGEST_PATH || target.contains(&0) => {
            return Err(ArchiveError::LinkTarget {
                shown: name_shown(header),
            });
        }
        b'2' => MemberKind::Link(target.into()),
        b'3' => MemberKind::Special(Special::CharacterDevice),
        b'4' => MemberKind::Special(Special::BlockDevice),
        b'5' => MemberKind::Directory,
        b'6' => MemberKind::Special(Special::Fifo),
        b'S' => return Err(ArchiveError::Sparse),
        letter => {
            return Err(ArchiveError::UnknownType {
                shown: name_shown(header),
                letter,
            });
        }
    })
}

/// Packing `.` puts `./` before every name, and packing a directory puts a slash after its own.
fn place(name: &[u8]) -> Result<Place, PathError> {
    let mut rest = name;
    while let Some(shorter) = rest.strip_prefix(b"./") {
        rest = shorter;
    }
    let is_root = rest == b"." || (rest.is_empty() && !name.is_empty());
    if is_root {
        return Ok(Place::Root);
    }
    // A slash alone is the top of the file system and not the root of the archive.
    let path = match rest.strip_suffix(b"/") {
        Some(shorter) if !shorter.is_empty() => shorter,
        _ => rest,
    };
    RelPath::parse(path).map(Place::Below)
}
