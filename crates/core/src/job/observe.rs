//! What a host says about tasks it was asked for, read into types.

use super::Nonce;
use super::check::{Look, Subject};
use super::hole::Hole;
use super::process::{HostWord, Liveness, ProcessIdentity};
use super::script::marked;
use crate::ids::RunToken;

/// A record of an end is shorter than this; the script brings a little more, to see that it is.
const LONGEST_EXIT_RECORD: usize = 1024;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this code.
    Code(u32),
    /// By this signal.
    Signal(u32),
}

/// What the runner wrote down at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExitRecord {
    /// The word of the attempt it is about.
    pub nonce: Nonce,
    /// How the command ended.
    pub ending: Ending,
    /// When, in seconds since 1970 by the host's clock, where it has one.
    pub ended_at: Option<u64>,
}

/// Why a record of an end is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ExitFault {
    /// There is nothing in it.
    #[error("the exit record is empty")]
    Empty,
    /// It breaks off, or is not one.
    #[error("the exit record is not whole")]
    Truncated,
    /// It is longer than any that the runner writes.
    #[error("the exit record is too long")]
    TooLong,
    /// It is a link, which is not followed.
    #[error("the exit record is a symbolic link")]
    Symlink,
    /// It is not a file.
    #[error("the exit record is not a file")]
    NotAFile,
    /// It is about another attempt, or somebody else wrote it.
    #[error("the exit record carries another nonce")]
    OtherNonce,
}

/// The record of the end as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExitReading {
    /// There is none.
    Absent,
    /// There is one, which is to be compared.
    Record(ExitRecord),
    /// There is something that is not believed.
    Fault(ExitFault),
}

/// Whether there is a tmux session of exactly that name, by which tasks of others are seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionSight {
    /// There is.
    Present,
    /// There is not.
    Absent,
    /// The host has no tmux, or was not asked.
    NoTmux,
}

/// A file that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileSight {
    /// What it is.
    pub kind: FileKind,
    /// Its size.
    pub size_bytes: Option<u64>,
    /// When it was written, by the clock of wherever it lies.
    pub written: Option<u64>,
    /// How long ago that was by the host's clock, which is another one where the file lies elsewhere.
    pub age_s: Option<u64>,
    /// The part of it that is not kept any more.
    pub hole: Option<Hole>,
    /// Where the text begins when it is not where it was asked for, because what lies before is not kept any more.
    pub begins_at: Option<u64>,
    /// The part that was asked for.
    pub text: Vec<u8>,
}

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FileKind {
    /// Nothing.
    #[default]
    Missing,
    /// A file that can be read.
    File,
    /// A file that cannot be read.
    Unreadable,
    /// Something that must not be opened, for it may never answer.
    NotAFile,
}

/// How far a task says that it has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckpointSight {
    /// Its file.
    File(FileSight),
    /// What its command printed.
    Told {
        /// The exit code of the command, where it came so far.
        code: Option<u32>,
        /// What it printed, standard error included unless it is JSON.
        text: Vec<u8>,
    },
    /// Its command did not end in time.
    Hung,
    /// There was no time left for its command, or no place for its words.
    Skipped,
}

/// One task as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// Whether it is one of ours.
    pub is_ours: bool,
    /// Whether the folder of the attempt is there: of one of ours, or of the job that has the session that was asked for.
    pub has_folder: bool,
    /// The word in that folder.
    pub nonce: Option<Nonce>,
    /// The runner.
    pub runner: Liveness,
    /// The command itself, which may outlive the runner.
    pub command: Liveness,
    /// Whether processes are left that it started, besides runner and command.
    pub has_left: bool,
    /// The record of the end.
    pub exit: ExitReading,
    /// The word of whoever ended it on purpose.
    pub stop_mark: Option<Nonce>,
    /// Whether its log grew past its bound where the file system gives nothing back.
    pub log_is_unbounded: bool,
    /// Its session.
    pub session: SessionSight,
    /// Its log.
    pub log: FileSight,
    /// What may be an alarm in the part of its log that was only searched.
    pub gap_text: Vec<u8>,
    /// Its checkpoint, when that was asked for.
    pub checkpoint: Option<CheckpointSight>,
    /// The host's clock, in seconds since 1970.
    pub host_now: Option<u64>,
}

impl Observation {
    /// The last `EXIT_CODE=` line in the part of the log that was brought. Anybody may write such a line: it is shown
    /// as hearsay and never decides about one of our own jobs.
    pub fn hearsay_exit_code(&self) -> Option<u32> {
        hearsay_exit_code(&self.log.text)
    }
}

/// The number in the last line of a text that begins with `EXIT_CODE=`. Before the last line with which the Python package
/// begins a task stands only how an earlier one ended.
pub fn hearsay_exit_code(text: &[u8]) -> Option<u32> {
    let lines = text.split(|byte| *byte == b'\n').rev();
    let mut lines = lines.take_while(|line| !line.starts_with(b"== started_at:"));
    lines.find_map(|line| {
        let number = line.strip_prefix(b"EXIT_CODE=")?;
        std::str::from_utf8(number).ok()?.trim().parse().ok()
    })
}

/// Why an answer cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// The script never began.
    #[error("the host's shell did not begin to look")]
    NotBegun,
}

/// All tasks as they were seen, each in the place of its [`Look`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckReport {
    /// The boot of the host.
    pub boot_id: HostWord,
    /// The host's clock, in seconds since 1970.
    pub host_now: Option<u64>,
    /// What was seen; none where the answer broke off before.
    pub observations: Vec<Option<Observation>>,
}

/// Reads what [`check_script`](super::check_script) says.
pub fn parse_check(
    looks: &[Look],
    mark: &RunToken,
    answer: &[u8],
) -> Result<CheckReport, CheckError> {
    let lines = marked(mark.as_str(), answer);
    let mut host = Host::default();
    let mut sights: Vec<Sight<'_>> = looks.iter().map(|_| Sight::default()).collect();
    for (line, rest) in lines {
        let Some((place, field)) = line.split_once(':') else {
            continue;
        };
        if place == "host" {
            host.take(field, rest);
        } else if let Some(sight) = place
            .parse()
            .ok()
            .and_then(|place: usize| sights.get_mut(place))
        {
            sight.take(field, rest);
        }
    }
    let boot_id = host.boot.clone().ok_or(CheckError::NotBegun)?;
    let observations = looks
        .iter()
        .zip(sights)
        .map(|(look, sight)| {
            sight
                .is_over
                .then(|| sight.observation(look, &host, &boot_id))
        })
        .collect();
    Ok(CheckReport {
        boot_id,
        host_now: host.now,
        observations,
    })
}

#[derive(Default)]
struct Host<'a> {
    boot: Option<HostWord>,
    node: Option<HostWord>,
    now: Option<u64>,
    has_tmux: bool,
    sessions: &'a [u8],
}

impl<'a> Host<'a> {
    fn take(&mut self, field: &str, rest: &'a [u8]) {
        match field.split_once(':') {
            Some(("boot", word)) => self.boot = HostWord::parse(word),
            Some(("node", word)) => self.node = HostWord::parse(word),
            Some(("now", seconds)) => self.now = seconds.parse().ok(),
            Some(("tmux", word)) => self.has_tmux = word == "yes",
            _ if field == "sessions" => self.sessions = rest,
            _ => {}
        }
    }

    fn session(&self, name: &str) -> SessionSight {
        let mut lines = self.sessions.split(|byte| *byte == b'\n');
        match self.has_tmux {
            false => SessionSight::NoTmux,
            true if lines.any(|line| !line.is_empty() && line == name.as_bytes()) => {
                SessionSight::Present
            }
            true => SessionSight::Absent,
        }
    }
}

/// The words about one task.
#[derive(Default)]
struct Sight<'a> {
    is_over: bool,
    is_there: bool,
    has_left: bool,
    nonce: Option<&'a str>,
    stop: Option<&'a str>,
    process: Option<&'a str>,
    child: Option<&'a str>,
    exit: Option<&'a str>,
    exit_text: Option<&'a [u8]>,
    alarm: bool,
    log: Option<&'a str>,
    log_begin: Option<u64>,
    hole: Option<Hole>,
    log_text: &'a [u8],
    gap_text: &'a [u8],
    checkpoint: Option<&'a str>,
    checkpoint_text: &'a [u8],
}

impl<'a> Sight<'a> {
    fn take(&mut self, field: &'a str, rest: &'a [u8]) {
        let (key, value) = field.split_once(':').unwrap_or((field, ""));
        match key {
            "over" => self.is_over = true,
            "folder" => self.is_there = value == "there",
            "left" => self.has_left = true,
            "nonce" => self.nonce = Some(value),
            "stop" => self.stop = Some(value),
            "process" => self.process = Some(value),
            "child" => self.child = Some(value),
            "exit" => self.exit = Some(value),
            "exit_text" => self.exit_text = Some(rest),
            "alarm" => self.alarm = true,
            "log" => self.log = Some(value),
            "begin" => self.log_begin = value.parse().ok(),
            "hole" => self.hole = Hole::read(value),
            "log_text" => self.log_text = rest,
            "gap_text" => self.gap_text = rest,
            "checkpoint" => self.checkpoint = Some(value),
            "checkpoint_text" => self.checkpoint_text = rest,
            _ => {}
        }
    }

    fn observation(&self, look: &Look, host: &Host<'_>, boot: &HostWord) -> Observation {
        let is_ours = look.subject != Subject::Foreign;
        let exit = match (self.exit, self.exit_text) {
            (Some("symlink"), _) => ExitReading::Fault(ExitFault::Symlink),
            (Some(_), _) => ExitReading::Fault(ExitFault::NotAFile),
            (None, Some(text)) => exit_reading(text),
            (None, None) => ExitReading::Absent,
        };
        let word = |text: Option<&str>| text.and_then(|text| Nonce::parse(text).ok());
        Observation {
            is_ours,
            has_folder: self.is_there,
            nonce: word(self.nonce),
            runner: liveness(self.process, boot, host.node.as_ref()),
            command: liveness(self.child, boot, host.node.as_ref()),
            has_left: self.has_left,
            exit,
            stop_mark: word(self.stop),
            log_is_unbounded: self.alarm,
            session: host.session(&look.session),
            log: self.log(look, host.now),
            gap_text: self.gap_text.to_vec(),
            checkpoint: self
                .checkpoint
                .map(|words| self.checkpoint(words, host.now)),
            host_now: host.now,
        }
    }

    fn log(&self, look: &Look, now: Option<u64>) -> FileSight {
        let mut log = file(self.log.unwrap_or(""), self.log_text, now);
        log.begins_at = self.log_begin;
        if let Some(hole) = self.hole {
            let (asked, side) = look.first_byte(log.size_bytes.unwrap_or(0));
            let begin = self.log_begin.unwrap_or(asked);
            let (begin, kept) = hole.kept(begin, self.log_text, side);
            (log.hole, log.text) = (self.hole, kept.to_vec());
            log.begins_at = (begin != asked).then_some(begin);
        }
        log
    }

    fn checkpoint(&self, words: &str, now: Option<u64>) -> CheckpointSight {
        match words.split_once(':').unwrap_or((words, "")) {
            ("told", code) => CheckpointSight::Told {
                code: code.parse().ok(),
                text: self.checkpoint_text.to_vec(),
            },
            ("hung", _) => CheckpointSight::Hung,
            ("skipped", _) => CheckpointSight::Skipped,
            _ => CheckpointSight::File(file(words, self.checkpoint_text, now)),
        }
    }
}

fn liveness(words: Option<&str>, boot: &HostWord, here: Option<&HostWord>) -> Liveness {
    let Some(words) = words else {
        return Liveness::NotRecorded;
    };
    let mut fields = words.split(':');
    let mut next = || fields.next().unwrap_or("");
    let (pid, start, then, session) = (next(), next(), next(), next());
    let (now, node) = (next(), next());
    if pid == "void" {
        return Liveness::Void;
    }
    match ProcessIdentity::read(pid, start, then, session, node) {
        Some(written) => Liveness::judge(written, boot, here, now),
        None => Liveness::Unreadable,
    }
}

fn file(words: &str, text: &[u8], now: Option<u64>) -> FileSight {
    let mut fields = words.split(':');
    let kind = match fields.next() {
        Some("file") => FileKind::File,
        Some("unreadable") => FileKind::Unreadable,
        Some("odd") => FileKind::NotAFile,
        _ => FileKind::Missing,
    };
    let size_bytes = fields.next().and_then(|size| size.parse().ok());
    let written: Option<u64> = fields.next().and_then(|time| time.parse().ok());
    FileSight {
        kind,
        size_bytes,
        written,
        age_s: now
            .zip(written)
            .map(|(now, written)| now.saturating_sub(written)),
        hole: None,
        begins_at: None,
        text: text.to_vec(),
    }
}

fn exit_reading(text: &[u8]) -> ExitReading {
    if text.len() > LONGEST_EXIT_RECORD {
        return ExitReading::Fault(ExitFault::TooLong);
    }
    if text.trim_ascii().is_empty() {
        return ExitReading::Fault(ExitFault::Empty);
    }
    match exit_record(text) {
        Some(record) => ExitReading::Record(record),
        None => ExitReading::Fault(ExitFault::Truncated),
    }
}

fn exit_record(text: &[u8]) -> Option<ExitRecord> {
    let text = std::str::from_utf8(text).ok()?;
    let mut lines = text.lines();
    let mut value = |key: &str| lines.next()?.strip_prefix(key)?.strip_prefix('=');
    let nonce = Nonce::parse(value("nonce")?).ok()?;
    let code: u32 = value("code")?.parse().ok().filter(|code| *code <= 255)?;
    let signal: u32 = value("signal")?
        .parse()
        .ok()
        .filter(|signal| *signal <= 64)?;
    let ended_at = value("ended")?.parse().ok();
    // Where the log ends is for the host alone, and older runners do not say it. The last line tells that nothing is
    // missing.
    let last = lines.next()?;
    let last = match last.starts_with("log=") {
        true => lines.next()?,
        false => last,
    };
    last.strip_prefix("end=")?;
    let ending = match signal {
        0 => Ending::Code(code),
        signal => Ending::Signal(signal),
    };
    Some(ExitRecord {
        nonce,
        ending,
        ended_at,
    })
}

#[cfg(test)]
#[path = "observe_tests.rs"]
mod tests;
