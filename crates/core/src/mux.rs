//! The words that OpenSSH's shared connection understands on its control socket.
//!
//! Each packet is a length and a body of 32-bit numbers and counted texts, all in network order.

/// The version of the protocol that every OpenSSH since 5.8 speaks.
const VERSION: u32 = 4;

/// A body longer than this is none of ours; refusals are short sentences.
pub const LONGEST_PACKET: usize = 64 * 1024;

const HELLO: u32 = 0x0000_0001;
const NEW_SESSION: u32 = 0x1000_0002;
const ALIVE_CHECK: u32 = 0x1000_0004;
const PERMISSION_DENIED: u32 = 0x8000_0002;
const FAILURE: u32 = 0x8000_0003;
const EXIT_MESSAGE: u32 = 0x8000_0004;
const ALIVE: u32 = 0x8000_0005;
const SESSION_OPENED: u32 = 0x8000_0006;
const NO_TERMINAL: u32 = 0x8000_0008;

/// Our sessions need no escape character.
const NO_ESCAPE: u32 = u32::MAX;

/// What the holder of the connection says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// It is there and speaks our version.
    Hello,
    /// It lives, and this is its process.
    Alive(u32),
    /// The session is open.
    Opened,
    /// It will not open a session, and why.
    Refused(String),
    /// The command ended with this status.
    Exited(u32),
    /// Something that does not concern us.
    Other,
}

/// Why a packet cannot be understood.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum MuxError {
    /// A number or text is missing or cut off.
    #[error("a packet on the control socket is cut off")]
    Short,
    /// The other side speaks another version.
    #[error("the control socket speaks version {0} instead of {VERSION}")]
    Version(u32),
    /// The packet is larger than any of this protocol.
    #[error("a packet on the control socket claims {0} bytes")]
    TooLong(usize),
}

/// The first packet of either side.
pub fn hello() -> Vec<u8> {
    packet(&[HELLO, VERSION], &[])
}

/// Asks for a sign of life.
pub fn alive_check() -> Vec<u8> {
    packet(&[ALIVE_CHECK, 0], &[])
}

/// Asks for a session without a terminal that runs `command`; three descriptors follow.
pub fn new_session(command: &str) -> Vec<u8> {
    session(command, 0)
}

/// Asks for a session with a subsystem of the server, such as `sftp`; three descriptors follow.
pub fn new_subsystem(name: &str) -> Vec<u8> {
    session(name, 1)
}

fn session(command: &str, is_subsystem: u32) -> Vec<u8> {
    let mut body = numbers(&[NEW_SESSION, 0]);
    body.extend(text(""));
    // No terminal, no X11, no agent.
    body.extend(numbers(&[0, 0, 0, is_subsystem, NO_ESCAPE]));
    body.extend(text(""));
    body.extend(text(command));
    framed(body)
}

/// How long the body of a packet is, from its first four bytes.
pub fn body_length(header: [u8; 4]) -> Result<usize, MuxError> {
    let length = u32::from_be_bytes(header) as usize;
    if length > LONGEST_PACKET {
        return Err(MuxError::TooLong(length));
    }
    Ok(length)
}

/// Understands the body of a packet.
pub fn parse(body: &[u8]) -> Result<Said, MuxError> {
    let mut rest = body;
    let said = match number(&mut rest)? {
        HELLO => match number(&mut rest)? {
            VERSION => Said::Hello,
            other => return Err(MuxError::Version(other)),
        },
        ALIVE => {
            number(&mut rest)?;
            Said::Alive(number(&mut rest)?)
        }
        SESSION_OPENED => Said::Opened,
        PERMISSION_DENIED | FAILURE => {
            number(&mut rest)?;
            Said::Refused(words(&mut rest)?)
        }
        EXIT_MESSAGE => {
            number(&mut rest)?;
            Said::Exited(number(&mut rest)?)
        }
        NO_TERMINAL => Said::Other,
        _ => Said::Other,
    };
    Ok(said)
}

fn packet(head: &[u32], tail: &[u8]) -> Vec<u8> {
    let mut body = numbers(head);
    body.extend(tail);
    framed(body)
}

fn framed(body: Vec<u8>) -> Vec<u8> {
    let mut packet = numbers(&[body.len() as u32]);
    packet.extend(body);
    packet
}

fn numbers(values: &[u32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_be_bytes())
        .collect()
}

fn text(value: &str) -> Vec<u8> {
    let mut bytes = numbers(&[value.len() as u32]);
    bytes.extend(value.as_bytes());
    bytes
}

fn number(rest: &mut &[u8]) -> Result<u32, MuxError> {
    let (value, after) = rest.split_first_chunk::<4>().ok_or(MuxError::Short)?;
    *rest = after;
    Ok(u32::from_be_bytes(*value))
}

fn words(rest: &mut &[u8]) -> Result<String, MuxError> {
    let length = number(rest)? as usize;
    let bytes = rest.get(..length).ok_or(MuxError::Short)?;
    *rest = rest.get(length..).unwrap_or_default();
    let text = String::from_utf8_lossy(bytes);
    Ok(crate::output::clean_line(&text, 200))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(values: &[u32]) -> Vec<u8> {
        numbers(values)
    }

    #[test]
    fn packets_have_their_length_in_front() {
        assert_eq!(hello(), [0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 4]);
        let session = new_session("exec sh");
        let length = body_length(session[..4].try_into().unwrap()).unwrap();
        assert_eq!(length, session.len() - 4);
        assert!(session.ends_with(b"\0\0\0\x07exec sh"));
    }

    #[test]
    fn subsystem_differs_from_a_command_by_its_mark_alone() {
        let (command, subsystem) = (new_session("sftp"), new_subsystem("sftp"));
        let differing = command.iter().zip(&subsystem).enumerate();
        let differing: Vec<_> = differing.filter(|(_, (one, other))| one != other).collect();
        // Length, kind, number, reserved text and three wishes, then the low byte of the mark.
        assert_eq!(differing, [(31, (&0, &1))]);
        assert_eq!(command.len(), subsystem.len());
    }

    #[test]
    fn answers_are_understood() {
        assert_eq!(parse(&body(&[HELLO, 4])), Ok(Said::Hello));
        assert_eq!(parse(&body(&[ALIVE, 0, 77])), Ok(Said::Alive(77)));
        assert_eq!(parse(&body(&[SESSION_OPENED, 0, 1])), Ok(Said::Opened));
        assert_eq!(parse(&body(&[EXIT_MESSAGE, 1, 255])), Ok(Said::Exited(255)));
        assert_eq!(parse(&body(&[NO_TERMINAL, 1])), Ok(Said::Other));
        let mut refusal = body(&[FAILURE, 0]);
        refusal.extend(text("no more\u{1b}[2J sessions"));
        let Ok(Said::Refused(why)) = parse(&refusal) else {
            panic!("{refusal:?}");
        };
        assert!(why.contains("no more") && !why.contains('\u{1b}'), "{why}");
    }

    #[test]
    fn broken_packets_are_errors() {
        assert_eq!(parse(&[]), Err(MuxError::Short));
        assert_eq!(parse(&body(&[HELLO, 5])), Err(MuxError::Version(5)));
        assert_eq!(parse(&body(&[FAILURE, 0, 9_000])), Err(MuxError::Short));
        assert_eq!(parse(&body(&[EXIT_MESSAGE, 1])), Err(MuxError::Short));
        assert!(body_length([0xff; 4]).is_err());
    }
}
