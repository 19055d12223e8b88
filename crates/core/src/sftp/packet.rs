//! Numbers and counted bytes, in network order, and the length in front of each packet.

/// No reply is longer: what OpenSSH's own client takes, and more than any server has reason to send.
pub const LONGEST_PACKET: usize = 256 * 1024;

/// A reply has a kind and a number at least.
const SHORTEST_PACKET: usize = 5;

/// Why a packet cannot be understood.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum PacketError {
    /// A number or counted bytes are missing or cut off.
    #[error("a packet is cut off")]
    Short,
    /// The packet claims more than a server has reason to send.
    #[error("a packet claims {0} bytes")]
    TooLong(usize),
    /// The packet is too short to be one.
    #[error("a packet of {0} bytes cannot be a reply")]
    TooShort(usize),
    /// A kind of packet that no server sends.
    #[error("a packet of the unknown kind {0}")]
    Kind(u8),
    /// A handle is longer than the protocol allows.
    #[error("a handle of {0} bytes")]
    Handle(usize),
    /// The server speaks another version.
    #[error("the server speaks version {0} of the protocol")]
    Version(u32),
}

/// How long the packet is whose first bytes these are; nothing while its length is not whole.
pub fn packet_length(bytes: &[u8]) -> Result<Option<usize>, PacketError> {
    let Some(header) = bytes.first_chunk::<4>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*header) as usize;
    match length {
        ..SHORTEST_PACKET => Err(PacketError::TooShort(length)),
        SHORTEST_PACKET..=LONGEST_PACKET => Ok(Some(length)),
        _ => Err(PacketError::TooLong(length)),
    }
}

/// What is left of a packet that is being read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn byte(&mut self) -> Result<u8, PacketError> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn number(&mut self) -> Result<u32, PacketError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn long_number(&mut self) -> Result<u64, PacketError> {
        self.array().map(u64::from_be_bytes)
    }

    /// Bytes with their count in front.
    pub(super) fn counted(&mut self) -> Result<&'a [u8], PacketError> {
        let length = self.number()? as usize;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(PacketError::Short)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PacketError> {
        let (bytes, rest) = self.0.split_first_chunk::<N>().ok_or(PacketError::Short)?;
        self.0 = rest;
        Ok(*bytes)
    }
}

/// Adds a number.
pub(super) fn put_number(out: &mut Vec<u8>, value: u32) {
    out.extend(value.to_be_bytes());
}

/// Adds a long number.
pub(super) fn put_long_number(out: &mut Vec<u8>, value: u64) {
    out.extend(value.to_be_bytes());
}

/// Adds bytes with their count in front.
pub(super) fn put_counted(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u32);
    out.extend_from_slice(bytes);
}
