//! One entry of a list in a record of fixed size.

use super::entry::{Kind, LinkEnd, Special};

#[derive(Debug, Clone, Copy)]
pub(super) struct Packed {
    pub(super) size_bytes: u64,
    pub(super) seconds: i64,
    pub(super) inode: u64,
    /// Where the name begins; the target of a link follows it.
    pub(super) text_at: u32,
    pub(super) target_length: u16,
    pub(super) mode: u16,
    pub(super) directory: u32,
    pub(super) nanoseconds: u32,
    /// 0 where the identity is unknown.
    pub(super) links: u32,
    pub(super) device: u16,
    pub(super) name_length: u8,
    pub(super) kind: u8,
}

pub(super) fn name_of<'a>(record: &Packed, text: &'a [u8]) -> &'a [u8] {
    let at = record.text_at as usize;
    text.get(at..at + usize::from(record.name_length))
        .unwrap_or_default()
}

const FILE: u8 = 0;
pub(super) const DIRECTORY: u8 = 1;
const LINK: u8 = 2;
const SPECIAL: u8 = 8;

/// Whether something can lie below an entry of this kind: a directory, or a link that may lead to one.
pub(super) fn may_hold(kind: u8) -> bool {
    matches!(kind, DIRECTORY) || (LINK..SPECIAL).contains(&kind)
}

pub(super) fn packed_kind(kind: &Kind) -> (u8, &[u8]) {
    match kind {
        Kind::File => (FILE, &[]),
        Kind::Directory => (DIRECTORY, &[]),
        Kind::Link { target, end } => {
            let end = match end {
                LinkEnd::Unknown => 0,
                LinkEnd::Directory => 1,
                LinkEnd::Other => 2,
                LinkEnd::Nothing => 3,
            };
            (LINK + end, target)
        }
        Kind::Special(special) => {
            let special = match special {
                Special::Fifo => 0,
                Special::Socket => 1,
                Special::BlockDevice => 2,
                Special::CharacterDevice => 3,
                Special::Unknown => 4,
            };
            (SPECIAL + special, &[])
        }
    }
}

pub(super) fn unpacked_kind(kind: u8, target: &[u8]) -> Kind {
    let link = |end| Kind::Link {
        target: target.into(),
        end,
    };
    match kind {
        FILE => Kind::File,
        DIRECTORY => Kind::Directory,
        2 => link(LinkEnd::Unknown),
        3 => link(LinkEnd::Directory),
        4 => link(LinkEnd::Other),
        5 => link(LinkEnd::Nothing),
        8 => Kind::Special(Special::Fifo),
        9 => Kind::Special(Special::Socket),
        10 => Kind::Special(Special::BlockDevice),
        11 => Kind::Special(Special::CharacterDevice),
        _ => Kind::Special(Special::Unknown),
    }
}
