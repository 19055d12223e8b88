//! What a server answers.

use super::VERSION;
use super::attributes::Attributes;
use super::extension::Extensions;
use super::packet::{Input, PacketError};
use super::status::Status;

/// No handle is longer; the protocol says so.
pub const LONGEST_HANDLE: usize = 256;

const VERSION_PACKET: u8 = 2;
const STATUS: u8 = 101;
const HANDLE: u8 = 102;
const DATA: u8 = 103;
const NAME: u8 = 104;
const ATTRS: u8 = 105;
const EXTENDED_REPLY: u8 = 201;

/// A server's name for an open file or directory: any bytes, up to 256 of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HandleBytes(Box<[u8]>);

impl HandleBytes {
    /// Takes the bytes of a server.
    pub fn new(bytes: &[u8]) -> Result<Self, PacketError> {
        if bytes.len() > LONGEST_HANDLE {
            return Err(PacketError::Handle(bytes.len()));
        }
        Ok(HandleBytes(bytes.into()))
    }

    /// The bytes, as they go back.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// One line of a listing; the name is whatever the server says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedEntry {
    /// The name.
    pub name: Vec<u8>,
    /// What it is.
    pub attributes: Attributes,
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply<'a> {
    /// It worked, or why not.
    Status(Status),
    /// An open file or directory.
    Handle(HandleBytes),
    /// Bytes of a file.
    Data(&'a [u8]),
    /// Names: a listing, or the one that was asked for.
    Names(Vec<NamedEntry>),
    /// Attributes of a file.
    Attributes(Attributes),
    /// The answer to something beyond the protocol.
    Extended(&'a [u8]),
}

/// Reads a reply, without the length in front; gives the number of its request, too.
///
/// What follows a whole reply in its packet is passed over, as every client does.
pub fn parse_reply(body: &[u8]) -> Result<(u32, Reply<'_>), PacketError> {
    let mut input = Input(body);
    let kind = input.byte()?;
    let id = input.number()?;
    let reply = match kind {
        STATUS => Reply::Status(Status::read(&mut input)?),
        HANDLE => Reply::Handle(HandleBytes::new(input.counted()?)?),
        DATA => Reply::Data(input.counted()?),
        NAME => Reply::Names(names(&mut input)?),
        ATTRS => Reply::Attributes(Attributes::read(&mut input)?),
        EXTENDED_REPLY => Reply::Extended(input.0),
        other => return Err(PacketError::Kind(other)),
    };
    Ok((id, reply))
}

/// Reads the first packet of a server: its version and what else it can do.
pub fn parse_version(body: &[u8]) -> Result<Extensions, PacketError> {
    let mut input = Input(body);
    match input.byte()? {
        VERSION_PACKET => {}
        other => return Err(PacketError::Kind(other)),
    }
    match input.number()? {
        VERSION => Extensions::read(&mut input),
        other => Err(PacketError::Version(other)),
    }
}

fn names(input: &mut Input<'_>) -> Result<Vec<NamedEntry>, PacketError> {
    let count = input.number()?;
    // Each takes bytes of the packet, so a false count ends at its end; nothing is reserved for it.
    let mut names = Vec::new();
    for _ in 0..count {
        let name = input.counted()?.to_vec();
        // A line for people to look at, made by the server.
        input.counted()?;
        let attributes = Attributes::read(input)?;
        names.push(NamedEntry { name, attributes });
    }
    Ok(names)
}
