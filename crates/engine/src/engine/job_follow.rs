//! Follows the log of a job across broken links, byte by byte.

use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::job::{FileKind, JobId, JobState, LogPart};
use remote_sandbox_core::secret::MaskStream;

use super::Engine;
use super::jobs::unknown;
use crate::call::CallContext;
use crate::job;
use crate::store::JobRow;

/// Most bytes of one piece.
const PIECE: u64 = 1 << 20;

/// Shortest and longest pause between two looks.
const FIRST_PAUSE: Duration = Duration::from_millis(150);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Longest pause while the host cannot be reached.
const LONGEST_SILENCE: Duration = Duration::from_secs(15);

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
    /// The host cannot be asked for now; what is missing comes when it can.
    Silent(Failure),
    /// There is nothing more for now.
    Nothing,
    /// The job is over, or nobody knows how it is, and all its log was read.
    End(JobState),
}

/// Somebody who reads a log.
pub struct JobFollower<'a> {
    engine: &'a Engine,
    row: JobRow,
    next: u64,
    mask: MaskStream,
    pause: Duration,
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
        let mut follower = JobFollower {
            engine: self,
            next: row.attempt.log_offset.unwrap_or(0),
            row,
            mask: self.mask.stream(),
            pause: FIRST_PAUSE,
        };
        if let FollowFrom::LastLines(lines) = from {
            follower.skip_to_last(lines).await?;
        }
        Ok(follower)
    }
}

impl JobFollower<'_> {
    /// The job as it was last seen.
    pub fn row(&self) -> &JobRow {
        &self.row
    }

    async fn skip_to_last(&mut self, lines: usize) -> Result<(), Failure> {
        const SEARCHED: u64 = 256 * 1024;
        let sandbox = self.engine.sandbox_of_job(&self.row).await?;
        let part = LogPart::Last(SEARCHED);
        let row = self.row.clone();
        let seen = job::look_at(self.engine.store(), sandbox.as_ref(), row, part).await?;
        if let Some(observation) = &seen.observation {
            let size = observation.log.size_bytes.unwrap_or(0);
            let text = &observation.log.text;
            let begin = size.saturating_sub(SEARCHED);
            let skip = crate::run::start_of_last_lines(text, lines) as u64;
            self.next = (begin + skip).max(self.next);
        }
        self.row = seen.row;
        Ok(())
    }

    /// The next piece, without waiting longer than a look takes.
    pub async fn next_piece(&mut self) -> Result<FollowPiece, Failure> {
        let sandbox = self.engine.sandbox_of_job(&self.row).await?;
        let part = LogPart::Since {
            byte: self.next,
            most: PIECE,
        };
        let row = self.row.clone();
        let seen = job::look_at(self.engine.store(), sandbox.as_ref(), row, part).await?;
        self.row = seen.row;
        if let Some(failure) = seen.failure {
            if !failure.retry && failure.code != Code::Unreachable {
                return Err(failure);
            }
            self.pause = (self.pause * 2).min(LONGEST_SILENCE);
            return Ok(FollowPiece::Silent(failure));
        }
        let Some(observation) = seen.observation else {
            return Ok(FollowPiece::Nothing);
        };
        let bytes = observation.log.text;
        if !bytes.is_empty() {
            self.pause = FIRST_PAUSE;
            self.next += bytes.len() as u64;
            let mut masked = Vec::with_capacity(bytes.len());
            self.mask.push(&bytes, &mut masked);
            return Ok(FollowPiece::Bytes(masked));
        }
        let is_open = matches!(
            seen.state,
            JobState::Running | JobState::Starting | JobState::Unreachable { .. }
        );
        if is_open && observation.log.kind == FileKind::File {
            self.pause = (self.pause * 3 / 2).min(LONGEST_PAUSE);
            return Ok(FollowPiece::Nothing);
        }
        Ok(FollowPiece::End(seen.state))
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
