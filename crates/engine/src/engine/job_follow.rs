//! Follows the log of a job across broken links, byte by byte.

use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::job::{FileKind, JobId, JobState, LogPart, Observation};
use remote_sandbox_core::secret::MaskStream;

use super::Engine;
use super::jobs::unknown;
use crate::call::CallContext;
use crate::job;
use crate::store::{JobRow, WatchStatus};

/// Most bytes of one piece.
const PIECE: u64 = 1 << 20;

/// Shortest and longest pause between two looks.
const FIRST_PAUSE: Duration = Duration::from_millis(150);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Longest pause while the host cannot be reached.
const LONGEST_SILENCE: Duration = Duration::from_secs(15);

/// How much of the end of a log is searched for its last lines.
const SEARCHED: u64 = 256 * 1024;

/// Answers in a row that decide nothing, or do not come though the host can be reached, before that is believed.
const MOST_DOUBTS: u32 = 8;

/// Logins in a row that may break off with our credential shown, and the shortest pause before the next: hosts count
/// failed logins.
const MOST_HANG_UPS: u32 = 3;
const HANG_UP_PAUSE: Duration = Duration::from_secs(1);

/// Where somebody begins to read a log.
#[derive(Debug, Clone, Copy)]
pub enum FollowFrom {
    /// Where the job itself begins.
    Start,
    /// At its last lines, found in the last 256 KiB.
    LastLines(usize),
}

/// What comes next in a log.
#[derive(Debug)]
pub enum FollowPiece {
    /// The next bytes, secrets masked.
    Bytes(Vec<u8>),
    /// What comes next is not kept any more: the log grew past its bound.
    Omitted {
        /// What was held back before that, secrets masked.
        rest: Vec<u8>,
        /// How many bytes are missing.
        bytes: u64,
    },
    /// It cannot be read for now; what is missing comes when it can.
    Silent(Failure),
    /// There is nothing more for now.
    Nothing,
    /// The job was interrupted and is to be resumed; its log goes on then.
    Interrupted(JobState),
    /// The job is over, or nobody knows how it is, and all its log was read.
    End(JobState),
}

/// How far a log was read.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// Where to begin is not known yet.
    Sought(FollowFrom),
    /// This byte comes next.
    At(u64),
}

/// Where reading begins, and how much was wanted before that but is not kept any more.
#[derive(Debug, Clone, Copy)]
struct Begin {
    byte: u64,
    missed: u64,
}

/// Somebody who reads a log.
pub struct JobFollower<'a> {
    engine: &'a Engine,
    row: JobRow,
    place: Place,
    mask: MaskStream,
    pause: Duration,
    doubts: u32,
    hang_ups: u32,
}

impl Engine {
    /// Begins to read the log of a job.
    pub async fn follow_job(
        &self,
        context: &CallContext,
        id: &JobId,
        from: FollowFrom,
    ) -> Result<JobFollower<'_>, Failure> {
        let row = self.store().job(id, context.principal.as_str()).await?;
        let row = row.ok_or_else(|| unknown(id.as_str()))?;
        self.kept.learn().await;
        Ok(JobFollower {
            engine: self,
            row,
            place: Place::Sought(from),
            mask: self.mask.stream(),
            pause: FIRST_PAUSE,
            doubts: 0,
            hang_ups: 0,
        })
    }
}

impl JobFollower<'_> {
    /// The next piece, without waiting longer than a look takes.
    pub async fn next_piece(&mut self) -> Result<FollowPiece, Failure> {
        let byte = match self.place {
            Place::At(byte) => byte,
            Place::Sought(from) => match self.seek(from).await {
                Ok(Some(begin)) if begin.missed > 0 => return Ok(self.omit(begin)),
                Ok(Some(begin)) => begin.byte,
                Ok(None) => return Ok(self.nothing()),
                Err(failure) => return self.silent(failure),
            },
        };
        self.place = Place::At(byte);
        let most = PIECE;
        let (state, seen) = match self.look(LogPart::Since { byte, most }).await {
            Ok(seen) => seen,
            Err(failure) => return self.silent(failure),
        };
        if let Some(kept) = seen.log.begins_at.filter(|kept| *kept > byte) {
            return Ok(self.omit(Begin {
                byte: kept,
                missed: kept - byte,
            }));
        }
        let bytes = seen.log.text;
        if !bytes.is_empty() {
            self.heard();
            self.place = Place::At(byte + bytes.len() as u64);
            let mut masked = Vec::with_capacity(bytes.len());
            self.mask.push(&bytes, &mut masked);
            return Ok(FollowPiece::Bytes(masked));
        }
        match state {
            JobState::Running if seen.log.kind != FileKind::File => Ok(self.without_log()),
            JobState::Running | JobState::Starting | JobState::Unreachable { .. } => {
                (self.doubts, self.hang_ups) = (0, 0);
                Ok(self.nothing())
            }
            // A record may be read just when it is written.
            JobState::Unknown { .. } if self.doubts < MOST_DOUBTS => {
                self.doubts += 1;
                Ok(self.nothing())
            }
            state => self.ended(state).await,
        }
    }

    /// Looks at the job; an error says why nothing could be seen.
    async fn look(&mut self, part: LogPart) -> Result<(JobState, Observation), Failure> {
        let sandbox = self.engine.sandbox_of_job(&self.row).await?;
        let (store, row) = (self.engine.store(), self.row.clone());
        let seen = job::look_at(store, sandbox.as_ref(), row, part).await?;
        self.row = seen.row;
        match (seen.observation, seen.failure) {
            (Some(observation), None) => Ok((seen.state, observation)),
            (_, Some(failure)) => Err(failure),
            (None, None) => Err(Failure::new(Code::Internal, "nothing was seen of the job")),
        }
    }

    /// Goes on behind what is not kept any more. A secret that breaks off there is none.
    fn omit(&mut self, begin: Begin) -> FollowPiece {
        self.heard();
        self.place = Place::At(begin.byte);
        let rest = self.rest();
        self.mask = self.engine.mask.stream();
        FollowPiece::Omitted {
            rest,
            bytes: begin.missed,
        }
    }

    fn heard(&mut self) {
        (self.pause, self.doubts, self.hang_ups) = (FIRST_PAUSE, 0, 0);
    }

    /// Where to begin; none while only the host knows where the job begins in its log.
    async fn seek(&mut self, from: FollowFrom) -> Result<Option<Begin>, Failure> {
        let at = |byte| Begin { byte, missed: 0 };
        if let (FollowFrom::Start, Some(offset)) = (from, self.row.log_begin) {
            return Ok(Some(at(offset)));
        }
        let part = match from {
            FollowFrom::Start => LogPart::Nothing,
            FollowFrom::LastLines(_) => LogPart::Last(SEARCHED),
        };
        let (state, seen) = self.look(part).await?;
        let offset = self.row.log_begin.or(self.row.attempt.log_offset);
        if offset.is_none() && state == JobState::Starting {
            return Ok(None);
        }
        let first = offset.unwrap_or(0);
        let FollowFrom::LastLines(lines) = from else {
            return Ok(Some(at(first)));
        };
        let log = &seen.log;
        let end = log.size_bytes.unwrap_or(0).saturating_sub(SEARCHED);
        let begin = log.begins_at.unwrap_or(end);
        let skip = crate::run::start_of_last_lines(&log.text, lines) as u64;
        // The lines may begin before what is kept.
        let missed = match (log.hole, skip) {
            (Some(hole), 0) if hole.to() == begin && lines > 0 => hole.swallowed(first, begin),
            _ => 0,
        };
        Ok(Some(Begin {
            byte: (begin + skip).max(first),
            missed,
        }))
    }

    fn nothing(&mut self) -> FollowPiece {
        self.pause = (self.pause * 3 / 2).min(LONGEST_PAUSE);
        FollowPiece::Nothing
    }

    /// The job runs, and somebody has taken its log away.
    fn without_log(&mut self) -> FollowPiece {
        self.nothing();
        let (sandbox, log) = (&self.row.sandbox, &self.row.log_file);
        let text = format!("sandbox `{sandbox}`: the log `{log}` cannot be read");
        FollowPiece::Silent(Failure::new(Code::NotFound, text))
    }

    /// What becomes of a look that failed: a lost link comes back, a host that answers nonsense is asked a few times.
    fn silent(&mut self, failure: Failure) -> Result<FollowPiece, Failure> {
        let failure = failure.masked(&self.engine.mask);
        match patience_with(&failure) {
            Patience::Endless => {}
            Patience::Short if self.doubts < MOST_DOUBTS => self.doubts += 1,
            Patience::Least if self.hang_ups < MOST_HANG_UPS => {
                self.hang_ups += 1;
                self.pause = self.pause.max(HANG_UP_PAUSE);
            }
            Patience::Short | Patience::Least | Patience::None => return Err(failure),
        }
        self.pause = (self.pause * 2).min(LONGEST_SILENCE);
        Ok(FollowPiece::Silent(failure))
    }

    /// What comes after an attempt that is over: the next one, where there is or will be one. Its log is the same file.
    async fn ended(&mut self, state: JobState) -> Result<FollowPiece, Failure> {
        let store = self.engine.store();
        let now = store.job(&self.row.id, &self.row.principal).await?;
        if let Some(now) = now.filter(|now| now.attempt.number > self.row.attempt.number) {
            self.row = now;
            self.heard();
            return Ok(FollowPiece::Nothing);
        }
        let is_interrupted = matches!(state, JobState::Lost { .. } | JobState::NotStarted);
        if is_interrupted && self.is_to_be_resumed().await? {
            self.nothing();
            return Ok(FollowPiece::Interrupted(state));
        }
        Ok(FollowPiece::End(state))
    }

    async fn is_to_be_resumed(&self) -> Result<bool, Failure> {
        let Some(watch) = self.row.watch_id else {
            return Ok(false);
        };
        let watch = self.engine.store().watch(watch, &self.row.principal);
        Ok(watch.await?.is_some_and(|watch| {
            watch.status == WatchStatus::Active && watch.order.policy.auto_resume
        }))
    }

    /// What was held back because it may have been the beginning of a secret.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.mask.finish(&mut rest);
        rest
    }

    /// Waits before the next look.
    pub async fn pause(&self) {
        tokio::time::sleep(self.pause).await;
    }
}

/// How often it is worth while to ask again after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// Until it works: it is about the way to the host.
    Endless,
    /// A few times: the host was reached, or the store was, and something else went wrong.
    Short,
    /// Fewer still: the login broke off, which may be the link's fault or the host's answer to our credential.
    Least,
    /// Never: it needs somebody who changes something.
    None,
}

fn patience_with(failure: &Failure) -> Patience {
    match failure.code {
        _ if failure.retry => Patience::Endless,
        _ if failure.is_doubtful => Patience::Least,
        Code::Unreachable | Code::LinkLost | Code::TimedOut => Patience::Endless,
        Code::Busy | Code::RemoteRefused | Code::StoreUnavailable | Code::Internal => {
            Patience::Short
        }
        _ => Patience::None,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::unreachable(Code::Unreachable, false, Patience::Endless)]
    #[case::cut(Code::LinkLost, false, Patience::Endless)]
    #[case::supervisor_ended(Code::RemoteRefused, false, Patience::Short)]
    #[case::no_free_session(Code::Busy, true, Patience::Endless)]
    #[case::other_walls(Code::Busy, false, Patience::Short)]
    #[case::login_refused(Code::AuthFailed, false, Patience::None)]
    #[case::other_key(Code::HostKeyChanged, false, Patience::None)]
    fn follower_waits_for_links_and_not_for_people(
        #[case] code: Code,
        #[case] retry: bool,
        #[case] expected: Patience,
    ) {
        let mut failure = Failure::new(code, "x");
        failure.retry = retry;
        assert_eq!(patience_with(&failure), expected);
    }

    #[test]
    fn follower_tries_a_login_again_that_broke_off_but_not_for_ever() {
        let failure = Failure::new(Code::AuthFailed, "x").doubtful();
        assert_eq!(patience_with(&failure), Patience::Least);
    }
}
