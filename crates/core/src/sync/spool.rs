//! Entries as bytes, for trees that do not fit into a list: written in sorted runs, merged when they are read.

use super::entry::{Entry, Identity, Kind, LinkEnd, Mtime, Special};
use super::path::{LONGEST_PATH, RelPath};

/// No record is longer: path, link target and figures.
pub const LONGEST_RECORD: usize = 4 + LONGEST_PATH + 4 + 2 * LONGEST_PATH + FIGURES;

const FIGURES: usize = 1 + 8 + 8 + 4 + 2 + 1 + 8 + 8 + 4;
const UNKNOWN: u32 = u32::MAX;

/// Appends the record of an entry.
pub fn write_entry(entry: &Entry, bytes: &mut Vec<u8>) {
    let (letter, target): (u8, &[u8]) = match &entry.kind {
        Kind::File => (b'f', &[]),
        Kind::Directory => (b'd', &[]),
        Kind::Link { target, end } => (
            match end {
                LinkEnd::Unknown => b'u',
                LinkEnd::Directory => b'D',
                LinkEnd::Other => b'o',
                LinkEnd::Nothing => b'n',
            },
            target,
        ),
        Kind::Special(special) => (
            match special {
                Special::Fifo => b'P',
                Special::Socket => b'S',
                Special::BlockDevice => b'B',
                Special::CharacterDevice => b'C',
                Special::Unknown => b'?',
            },
            &[],
        ),
    };
    let target = target.get(..2 * LONGEST_PATH).unwrap_or(target);
    for text in [entry.path.as_bytes(), target] {
        let length = u32::try_from(text.len()).unwrap_or_default();
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(text);
    }
    bytes.push(letter);
    bytes.extend_from_slice(&entry.size_bytes.to_be_bytes());
    bytes.extend_from_slice(&entry.mtime.seconds.to_be_bytes());
    let nanoseconds = entry.mtime.nanoseconds().unwrap_or(UNKNOWN);
    bytes.extend_from_slice(&nanoseconds.to_be_bytes());
    bytes.extend_from_slice(&entry.mode.to_be_bytes());
    let identity = entry.identity.unwrap_or(Identity {
        device: 0,
        inode: 0,
        links: 0,
    });
    bytes.push(u8::from(entry.identity.is_some()));
    bytes.extend_from_slice(&identity.device.to_be_bytes());
    bytes.extend_from_slice(&identity.inode.to_be_bytes());
    bytes.extend_from_slice(&identity.links.to_be_bytes());
}

/// The next record and how many bytes it takes; none when it is not whole.
pub fn read_entry(bytes: &[u8]) -> Option<(Entry, usize)> {
    let mut reader = Reader { rest: bytes };
    let path = reader.text()?;
    let target = reader.text()?;
    let letter = *reader.take(1)?.first()?;
    let size_bytes = u64::from_be_bytes(*reader.take(8)?.first_chunk()?);
    let seconds = i64::from_be_bytes(*reader.take(8)?.first_chunk()?);
    let nanoseconds = u32::from_be_bytes(*reader.take(4)?.first_chunk()?);
    let mode = u16::from_be_bytes(*reader.take(2)?.first_chunk()?);
    let has_identity = *reader.take(1)?.first()? == 1;
    let identity = Identity {
        device: u64::from_be_bytes(*reader.take(8)?.first_chunk()?),
        inode: u64::from_be_bytes(*reader.take(8)?.first_chunk()?),
        links: u32::from_be_bytes(*reader.take(4)?.first_chunk()?),
    };
    let entry = Entry {
        path: RelPath::parse(path).ok()?,
        kind: kind_of(letter, target)?,
        size_bytes,
        mtime: Mtime::exact(seconds, nanoseconds).unwrap_or(Mtime::whole(seconds)),
        mode,
        identity: has_identity.then_some(identity),
    };
    Some((entry, bytes.len() - reader.rest.len()))
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (part, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(part)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = u32::from_be_bytes(*self.take(4)?.first_chunk()?);
        self.take(usize::try_from(length).ok()?)
    }
}

fn kind_of(letter: u8, target: &[u8]) -> Option<Kind> {
    let link = |end| Kind::Link {
        target: target.into(),
        end,
    };
    Some(match letter {
        b'f' => Kind::File,
        b'd' => Kind::Directory,
        b'u' => link(LinkEnd::Unknown),
        b'D' => link(LinkEnd::Directory),
        b'o' => link(LinkEnd::Other),
        b'n' => link(LinkEnd::Nothing),
        b'P' => Kind::Special(Special::Fifo),
        b'S' => Kind::Special(Special::Socket),
        b'B' => Kind::Special(Special::BlockDevice),
        b'C' => Kind::Special(Special::CharacterDevice),
        b'?' => Kind::Special(Special::Unknown),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::samples::{directory, fifo, file, link};
    use super::*;

    #[test]
    fn entry_comes_back_as_it_was_and_a_part_of_it_is_none() {
        let mut known = file("a/b", 7, 3);
        known.identity = Some(Identity {
            device: 1,
            inode: u64::MAX,
            links: 2,
        });
        let mut coarse = file("c", u64::MAX, 0);
        coarse.mtime = Mtime::whole(-5);
        let entries = [
            known,
            coarse,
            directory("d"),
            fifo("p"),
            link("l", "a\nb", LinkEnd::Directory),
            link("m", "", LinkEnd::Nothing),
        ];
        let mut bytes = Vec::new();
        for entry in &entries {
            write_entry(entry, &mut bytes);
        }
        let mut rest = bytes.as_slice();
        for entry in &entries {
            let (read, used) = read_entry(rest).unwrap();
            assert_eq!(read, *entry);
            for length in 0..used {
                assert_eq!(read_entry(&rest[..length]), None, "{length}");
            }
            rest = &rest[used..];
        }
        assert!(rest.is_empty());
    }
}
