//! Reads the archive that a host sends, and takes from it what was asked for.

use remote_sandbox_core::archive::{ArchiveReader, Event, Member, MemberKind, Place};
use remote_sandbox_core::ids::RunToken;
use remote_sandbox_core::sync::packing::Remark;
use remote_sandbox_core::sync::{Kind, RelPath};

use super::DownError;
use super::store::{Attributes, State, Store, too_large};

/// So many bytes that are no content of a file are put up with, and so many for each file.
const MOST_UNASKED: u64 = 64 * 1024 * 1024;
const UNASKED_PER_FILE: u64 = 16 * 1024;

/// What the reader of an archive has come to.
pub(super) enum Taken {
    /// More bytes are needed.
    More,
    /// Something so large comes that it is better to begin anew without it.
    TooLarge,
}

/// What a piece of work told the one who watches.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moved {
    pub(super) bytes: u64,
    pub(super) files: u64,
}

/// The archive, as far as it was read.
pub(super) struct Unpacking {
    reader: ArchiveReader,
    current: Option<Current>,
    unasked: u64,
    most_unasked: u64,
    /// Content that is still taken in all; only what was packed can be far more than came over the link.
    content_left: u64,
    content_limit: u64,
    /// Whether something is worth being asked for once more.
    pub(super) again: bool,
    pub(super) moved: Moved,
}

struct Current {
    number: usize,
    said: Attributes,
}

impl Unpacking {
    /// One for so many files, of which at most so many bytes are taken together, with remarks of this mark.
    pub(super) fn new(files: usize, most_content: u64, mark: &RunToken) -> Self {
        let remarks = Remark::ALL.map(|remark| remark.block(mark)).to_vec();
        Unpacking {
            reader: ArchiveReader::reading_on().with_remarks(remarks),
            current: None,
            unasked: 0,
            most_unasked: MOST_UNASKED + UNASKED_PER_FILE * files as u64,
            content_left: most_content,
            content_limit: most_content,
            again: false,
            moved: Moved::default(),
        }
    }

    /// Takes the next bytes of the archive.
    pub(super) fn take(&mut self, mut bytes: &[u8], store: &mut Store) -> Result<Taken, DownError> {
        loop {
            let read = self.reader.read(bytes);
            let (used, event) = read.map_err(|source| DownError::Archive {
                words: String::new(),
                source,
            })?;
            bytes = bytes.get(used..).unwrap_or_default();
            match event {
                Event::More | Event::End => {
                    self.put_up_with(used as u64)?;
                    return Ok(Taken::More);
                }
                Event::Member(member) => {
                    self.put_up_with(used as u64)?;
                    if self.member(member, store)? {
                        return Ok(Taken::TooLarge);
                    }
                }
                Event::Content(content) => self.content(content, store)?,
                Event::MemberEnd => {
                    if let Some(current) = self.current.take() {
                        store.park(current.number, current.said)?;
                    }
                }
                Event::Remark(number) => {
                    self.put_up_with(used as u64)?;
                    match Remark::ALL.get(number) {
                        Some(Remark::Unchanged) => self.moved.files += store.confirm()?,
                        _ => store.doubt(),
                    }
                }
            }
        }
    }

    fn content(&mut self, content: &[u8], store: &mut Store) -> Result<(), DownError> {
        match &self.current {
            Some(current) => {
                let length = content.len() as u64;
                let left = self.content_left.checked_sub(length);
                self.content_left = left.ok_or(DownError::TooMuch {
                    limit: self.content_limit,
                })?;
                self.moved.bytes += length;
                store.content(current.number, content)
            }
            None => self.put_up_with(content.len() as u64),
        }
    }

    /// Counts bytes that are no content of what was asked for.
    pub(super) fn put_up_with(&mut self, bytes: u64) -> Result<(), DownError> {
        self.unasked += bytes;
        if self.unasked > self.most_unasked {
            return Err(DownError::Unasked {
                limit: self.most_unasked,
            });
        }
        Ok(())
    }

    /// Judges a member; true when it is one that would take for ever to pass over.
    fn member(&mut self, member: Member, store: &mut Store) -> Result<bool, DownError> {
        self.current = None;
        let Place::Below(path) = &member.place else {
            return Ok(false);
        };
        let Some(number) = wanted(path, &member.kind, store) else {
            return Ok(false);
        };
        let said = Attributes {
            mode: member.mode,
            mtime: member.mtime,
        };
        match member.kind {
            MemberKind::File => {
                let most = store.planned(number).map_or(0, super::Planned::most_bytes);
                if member.size_bytes > most {
                    store.fail(number, too_large());
                    return Ok(true);
                }
                store.begin(number, member.size_bytes)?;
                // What cannot be written is asked for all the same, so passing over it is nobody's fault.
                self.current = Some(Current { number, said });
            }
            MemberKind::Link(target) => {
                self.moved.files += u64::from(store.link(number, &target)?);
            }
            MemberKind::HardLink(other) => {
                self.second_name(number, &other, said, store)?;
            }
            MemberKind::Directory | MemberKind::Special(_) => {}
        }
        Ok(false)
    }

    /// One more name of something that came before.
    fn second_name(
        &mut self,
        number: usize,
        other: &RelPath,
        said: Attributes,
        store: &mut Store,
    ) -> Result<(), DownError> {
        if let Some(Kind::Link { target, .. }) = store.planned(number).map(|it| &it.entry.kind) {
            let target = target.clone();
            self.moved.files += u64::from(store.link(number, &target)?);
            return Ok(());
        }
        let came = |from: &usize| matches!(store.state(*from), State::Arrived | State::Parked);
        match store.find(other).filter(came) {
            Some(from) => store.copy(number, from, said),
            None => {
                // Asked for without that one, it comes by itself.
                self.again = true;
                Ok(())
            }
        }
    }

    /// Whether the archive may end here.
    pub(super) fn finish(self) -> Result<(), DownError> {
        self.reader.finish().map_err(|source| DownError::Archive {
            words: String::new(),
            source,
        })
    }
}

/// The number of a file that was asked for in this kind and has not come yet; what is wrong is told.
fn wanted(path: &RelPath, kind: &MemberKind, store: &mut Store) -> Option<usize> {
    let Some(number) = store.find(path) else {
        // A program that cannot be kept from packing directories packs what is in them, too.
        if !matches!(kind, MemberKind::Directory) {
            store.refuse(
                path,
                "was sent without having been asked for, and is not taken",
            );
        }
        return None;
    };
    if store.state(number) != State::Waiting {
        store.refuse(path, "was sent twice, and is taken once");
        return None;
    }
    let planned = &store.planned(number)?.entry.kind;
    let is_wanted = matches!(
        (planned, kind),
        (Kind::File, MemberKind::File | MemberKind::HardLink(_))
            | (
                Kind::Link { .. },
                MemberKind::Link(_) | MemberKind::HardLink(_)
            )
    );
    if !is_wanted {
        store.fail(
            number,
            "is something else by now; it is left for the next sync",
        );
        return None;
    }
    Some(number)
}
