//! A server that answers as a test likes.

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};

/// The two ends that a client gets.
pub(crate) type Streams = (ReadHalf<DuplexStream>, WriteHalf<DuplexStream>);

/// Kinds of requests that the tests tell apart.
pub(crate) const OPEN: u8 = 3;
pub(crate) const CLOSE: u8 = 4;
pub(crate) const READ: u8 = 5;
pub(crate) const WRITE: u8 = 6;
pub(crate) const OPENDIR: u8 = 11;
pub(crate) const READDIR: u8 = 12;
pub(crate) const STAT: u8 = 17;
pub(crate) const EXTENDED: u8 = 200;

pub(crate) const OK: u32 = 0;
pub(crate) const END_OF_FILE: u32 = 1;
pub(crate) const FAILURE: u32 = 4;

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) kind: u8,
    pub(crate) id: u32,
    rest: Vec<u8>,
}

impl Asked {
    /// The path or handle at its beginning.
    pub(crate) fn subject(&self) -> &[u8] {
        &self.rest[4..4 + number(&self.rest)]
    }

    /// The offset of a read or write.
    pub(crate) fn offset(&self) -> usize {
        let operands = &self.rest[4 + self.subject().len()..];
        u64::from_be_bytes(operands[..8].try_into().unwrap()) as usize
    }

    /// The length of a read or write.
    pub(crate) fn length(&self) -> usize {
        number(&self.rest[4 + self.subject().len() + 8..])
    }

    /// The data of a write.
    pub(crate) fn data(&self) -> &[u8] {
        &self.rest[self.rest.len() - self.length()..]
    }
}

fn number(bytes: &[u8]) -> usize {
    u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize
}

/// What a stand-in does with a request.
pub(crate) enum Act {
    /// Sends these bytes, maybe none.
    Say(Vec<u8>),
    /// Sends these bytes and is gone.
    End(Vec<u8>),
}

/// A server without extensions that shakes hands and then answers as told.
pub(crate) fn stand_in(answer: impl FnMut(Asked) -> Act + Send + 'static) -> Streams {
    stand_in_with(packet(2, &3_u32.to_be_bytes()), answer)
}

/// A server whose first words are given, too.
pub(crate) fn stand_in_with(
    greeting: Vec<u8>,
    mut answer: impl FnMut(Asked) -> Act + Send + 'static,
) -> Streams {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    tokio::spawn(async move {
        let mut hello = [0; 9];
        far.read_exact(&mut hello).await.unwrap();
        far.write_all(&greeting).await.unwrap();
        while let Ok(length) = far.read_u32().await {
            let mut body = vec![0; length as usize];
            if far.read_exact(&mut body).await.is_err() {
                return;
            }
            let id = number(&body[1..]) as u32;
            let asked = Asked {
                kind: body[0],
                id,
                rest: body[5..].to_vec(),
            };
            let (bytes, is_end) = match answer(asked) {
                Act::Say(bytes) => (bytes, false),
                Act::End(bytes) => (bytes, true),
            };
            if far.write_all(&bytes).await.is_err() || is_end {
                return;
            }
        }
    });
    tokio::io::split(near)
}

pub(crate) fn packet(kind: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = ((rest.len() + 1) as u32).to_be_bytes().to_vec();
    bytes.push(kind);
    bytes.extend_from_slice(rest);
    bytes
}

pub(crate) fn reply(kind: u8, id: u32, rest: &[u8]) -> Vec<u8> {
    packet(kind, &[&id.to_be_bytes(), rest].concat())
}

pub(crate) fn counted(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes(), bytes].concat()
}

pub(crate) fn status(id: u32, code: u32) -> Vec<u8> {
    let words = [counted(b"as told"), counted(b"")].concat();
    reply(101, id, &[&code.to_be_bytes(), words.as_slice()].concat())
}

pub(crate) fn handle(id: u32, bytes: &[u8]) -> Vec<u8> {
    reply(102, id, &counted(bytes))
}

pub(crate) fn data(id: u32, bytes: &[u8]) -> Vec<u8> {
    reply(103, id, &counted(bytes))
}

pub(crate) fn names(id: u32, names: &[&[u8]]) -> Vec<u8> {
    let mut rest = (names.len() as u32).to_be_bytes().to_vec();
    for name in names {
        rest.extend(counted(name));
        rest.extend(counted(b"a line"));
        rest.extend([0; 4]);
    }
    reply(104, id, &rest)
}

/// Attributes that say only a size.
pub(crate) fn size(id: u32, bytes: u64) -> Vec<u8> {
    let mut rest = vec![0, 0, 0, 1];
    rest.extend(bytes.to_be_bytes());
    reply(105, id, &rest)
}
