//! Tells a command's own output from what login files print before it.

use crate::ids::RunToken;

/// How much of the text before the start is kept, for the case that the start never comes.
const KEPT_NOISE: usize = 16 * 1024;

/// A marker line is never longer than this.
const LONGEST_MARKER: usize = 256;

/// What the script said of itself when it handed over to the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Started {
    /// Process id of the shell, which becomes the command.
    pub pid: u32,
    /// Session the command runs in; 0 where the host does not tell.
    pub session: u32,
    /// Start time of the process in the host's own ticks; 0 where the host does not tell.
    pub start_time: u64,
    /// Which `timeout` the host has.
    pub timeout_program: super::TimeoutProgram,
    /// Whether the server closes the channel when the command ends, although a child still holds it.
    pub closes_early: bool,
    /// Whether a shell that waits can tell changed login files without starting a process.
    pub tells_changes: bool,
}

/// Removes everything up to and including the start marker from one stream.
#[derive(Debug)]
pub struct Gate {
    needle: Vec<u8>,
    held: Vec<u8>,
    open: bool,
    started: Option<Started>,
    refused: Option<String>,
    acknowledged: bool,
}

impl Gate {
    /// A gate for the run with this token.
    pub fn new(token: &RunToken) -> Self {
        Gate {
            needle: format!("RSMCP:{token}:").into_bytes(),
            held: Vec::new(),
            open: false,
            started: None,
            refused: None,
            acknowledged: false,
        }
    }

    /// Takes a chunk and returns the part of it that the command itself wrote.
    pub fn pass<'a>(&mut self, chunk: &'a [u8]) -> std::borrow::Cow<'a, [u8]> {
        if self.open {
            return chunk.into();
        }
        self.held.extend_from_slice(chunk);
        let (begin, end) = loop {
            let Some((begin, end)) = self.find_marker() else {
                self.forget_noise();
                return Vec::new().into();
            };
            if !self.is_acknowledgement(begin, end) {
                break (begin, end);
            }
            self.acknowledged = true;
            self.held.drain(begin..=end.min(self.held.len() - 1));
        };
        self.read_marker(begin, end);
        let rest = self.held.split_off((end + 1).min(self.held.len()));
        self.held.truncate(begin);
        self.open = true;
        rest.into()
    }

    /// What the script said when it handed over, once it has.
    pub fn started(&self) -> Option<Started> {
        self.started
    }

    /// The step the script could not do before the command, if it said so.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Whether the shell has said that it took the command up.
    pub fn is_acknowledged(&self) -> bool {
        self.acknowledged || self.open
    }

    /// Whether the marker has come, of either kind.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// What came before the marker: the words of login files, or of a host that never started it.
    pub fn noise(&self) -> &[u8] {
        &self.held
    }

    fn find_marker(&self) -> Option<(usize, usize)> {
        let begin = self
            .held
            .windows(self.needle.len())
            .position(|window| window == self.needle)?;
        let line = self.held.get(begin..)?;
        let length = line
            .iter()
            .take(LONGEST_MARKER)
            .position(|&byte| byte == b'\n')?;
        Some((begin, begin + length))
    }

    fn is_acknowledgement(&self, begin: usize, end: usize) -> bool {
        self.held.get(begin + self.needle.len()..end) == Some(b"A")
    }

    fn read_marker(&mut self, begin: usize, end: usize) {
        let line = self
            .held
            .get(begin + self.needle.len()..end)
            .unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let mut fields = line.split(':');
        match fields.next() {
            // The same words from a shell that is ready, and from one that hands over to a command.
            Some("B" | "R") => {
                let mut number = || fields.next().and_then(|field| field.parse::<u64>().ok());
                let pid = number()
                    .and_then(|pid| u32::try_from(pid).ok())
                    .unwrap_or(0);
                let session = number()
                    .and_then(|pid| u32::try_from(pid).ok())
                    .unwrap_or(0);
                let start_time = number().unwrap_or(0);
                let timeout_program = super::TimeoutProgram::from_letter(fields.next());
                let closes_early = fields.next() == Some("c");
                let tells_changes = fields.next() == Some("1");
                self.started = Some(Started {
                    pid,
                    session,
                    start_time,
                    timeout_program,
                    closes_early,
                    tells_changes,
                });
            }
            _ => self.refused = Some(fields.next().unwrap_or("start").to_owned()),
        }
    }

    /// Keeps the newest part only; a marker may still be split over two chunks.
    fn forget_noise(&mut self) {
        let limit = KEPT_NOISE + LONGEST_MARKER;
        if self.held.len() > 2 * limit {
            self.held.drain(..self.held.len() - limit);
        }
    }
}
