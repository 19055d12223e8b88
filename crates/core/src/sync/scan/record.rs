//! One record of a scan.

use crate::sync::entry::{Entry, Identity, Kind, LinkEnd, Mtime, Special};
use crate::sync::path::{PathError, RelPath};

/// Why a record is no entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RecordFault {
    Path(PathError),
    Garbled,
}

/// Reads `PATH//FIELDS//TARGET`.
pub(super) fn parse(record: &[u8]) -> Result<Entry, RecordFault> {
    let (path, rest) = split_once(record).ok_or(RecordFault::Garbled)?;
    let (fields, target) = split_once(rest).ok_or(RecordFault::Garbled)?;
    let path = path.strip_prefix(b"./").unwrap_or(path);
    let path = RelPath::parse(path).map_err(RecordFault::Path)?;
    let fields = std::str::from_utf8(fields).map_err(|_| RecordFault::Garbled)?;
    entry(path, fields, target).ok_or(RecordFault::Garbled)
}

/// The part before the first two slashes and the part after them.
fn split_once(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.windows(2).position(|pair| pair == b"//")?;
    Some((bytes.get(..at)?, bytes.get(at + 2..)?))
}

fn entry(path: RelPath, fields: &str, target: &[u8]) -> Option<Entry> {
    let mut fields = fields.split(' ');
    let (letter, end, mode) = (fields.next()?, fields.next()?, fields.next()?);
    let (size, mtime) = (fields.next()?, fields.next()?);
    let (links, inode, device) = (fields.next()?, fields.next()?, fields.next()?);
    if fields.next().is_some() {
        return None;
    }
    // `stat` gives kind and permissions in one number.
    let (letter, mode) = match letter.strip_prefix('x') {
        Some(hexadecimal) => {
            let raw = u32::from_str_radix(hexadecimal, 16).ok()?;
            (kind_letter(raw), raw & 0o7777)
        }
        None => (letter, u32::from_str_radix(mode, 8).ok()? & 0o7777),
    };
    Some(Entry {
        path,
        kind: kind(letter, end, target)?,
        size_bytes: size.parse().ok()?,
        mtime: match mtime {
            "-" => Mtime::whole(0),
            text => time(text)?,
        },
        mode: u16::try_from(mode).ok()?,
        identity: identity(links, inode, device),
    })
}

fn kind_letter(raw: u32) -> &'static str {
    match raw & 0o170_000 {
        0o100_000 => "f",
        0o040_000 => "d",
        0o120_000 => "l",
        0o010_000 => "p",
        0o140_000 => "s",
        0o060_000 => "b",
        0o020_000 => "c",
        _ => "?",
    }
}

fn kind(letter: &str, end: &str, target: &[u8]) -> Option<Kind> {
    Some(match letter {
        "f" => Kind::File,
        "d" => Kind::Directory,
        // No system makes a link that says nothing.
        "l" if target.is_empty() || target.len() > 4096 => return None,
        "l" => Kind::Link {
            target: target.into(),
            end: match end {
                "-" => LinkEnd::Unknown,
                "d" => LinkEnd::Directory,
                "N" | "L" | "?" => LinkEnd::Nothing,
                _ => LinkEnd::Other,
            },
        },
        "p" => Kind::Special(Special::Fifo),
        "s" => Kind::Special(Special::Socket),
        "b" => Kind::Special(Special::BlockDevice),
        "c" => Kind::Special(Special::CharacterDevice),
        _ => Kind::Special(Special::Unknown),
    })
}

/// Seconds with up to ten digits after the point; nine of them count.
pub(in crate::sync) fn time(text: &str) -> Option<Mtime> {
    let Some((seconds, fraction)) = text.split_once('.') else {
        return Some(Mtime::whole(text.parse().ok()?));
    };
    let seconds = seconds.parse().ok()?;
    if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nine = format!("{fraction:0<9}");
    Mtime::exact(seconds, nine.get(..9)?.parse().ok()?)
}

fn identity(links: &str, inode: &str, device: &str) -> Option<Identity> {
    Some(Identity {
        device: device.parse().ok()?,
        inode: inode.parse().ok()?,
        links: links.parse().ok()?,
    })
}
