//! Looks at a job until there is news.

use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::job::JobState;
use remote_sandbox_core::output::Pattern;
use tokio::time::Instant;

use super::Engine;
use super::job_reports::{Found, JobQuery, JobReport};
use crate::call::CallContext;
use crate::clock;
use crate::run::{ReadingPosition, Wanted};

/// Shortest and longest time between two looks of a call that waits.
const FIRST_PAUSE: Duration = Duration::from_millis(150);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How much new log one look searches; what is left over is searched at once by the next.
const SEARCHED_AT_ONCE: usize = 1 << 20;

/// The pauses of a call that waits.
struct Pauses {
    until: Instant,
    next: Duration,
}

impl Pauses {
    fn new(wait: Duration) -> Self {
        Pauses {
            until: clock::instant() + wait,
            next: FIRST_PAUSE,
        }
    }

    fn are_over(&self) -> bool {
        clock::instant() >= self.until
    }

    async fn pause(&mut self, context: &CallContext) -> Result<(), Failure> {
        let next = (clock::instant() + self.next).min(self.until);
        self.next = (self.next * 3 / 2).min(LONGEST_PAUSE);
        tokio::select! {
            () = tokio::time::sleep_until(next) => Ok(()),
            () = context.cancel.cancelled() => Err(cancelled()),
        }
    }
}

fn cancelled() -> Failure {
    Failure::new(Code::Cancelled, "the call was cancelled")
}

impl Engine {
    /// How a job stands, with a part of its log; waits for news when asked to.
    pub async fn check_job(
        &self,
        context: &CallContext,
        query: &JobQuery,
    ) -> Result<JobReport, Failure> {
        let found = self.find_task(context, &query.job).await?;
        let wait_for = query.wait_for.as_ref();
        let mut pauses = Pauses::new(query.wait);
        let first = self.look_at_task(&found, &query.wanted, wait_for).await?;
        if query.wait == Duration::ZERO {
            return Ok(first);
        }
        if let Some(pattern) = wait_for {
            let seen = self.search_on(context, &found, query, pattern, &first, pauses);
            let Some(has_pattern) = seen.await? else {
                return Ok(first);
            };
            let mut report = self.look_at_task(&found, &query.wanted, wait_for).await?;
            report.has_pattern |= has_pattern;
            return Ok(report);
        }
        let mut report = first;
        let mut first_size = None;
        loop {
            let size = report.reading.as_ref().map(|reading| reading.total);
            first_size = first_size.or(size);
            if !must_wait(&report, query, first_size) || pauses.are_over() {
                return Ok(report);
            }
            pauses.pause(context).await?;
            report = self.look_at_task(&found, &query.wanted, None).await?;
        }
    }

    /// Searches a log on until it has what is waited for, or the task is over; none when the first look has said it all.
    async fn search_on(
        &self,
        context: &CallContext,
        found: &Found,
        query: &JobQuery,
        pattern: &Pattern,
        first: &JobReport,
        mut pauses: Pauses,
    ) -> Result<Option<bool>, Failure> {
        let mut next = next_search(first);
        let mut place = first.searched.map(|searched| searched.next);
        let mut seen = None;
        loop {
            if next == NextSearch::None || pauses.are_over() {
                return Ok(seen);
            }
            if context.cancel.is_cancelled() {
                return Err(cancelled());
            }
            if next == NextSearch::Later {
                pauses.pause(context).await?;
            }
            let wanted = match place {
                Some(byte) => Wanted {
                    position: ReadingPosition::Since(byte),
                    budget: SEARCHED_AT_ONCE,
                    grep: None,
                },
                None => query.wanted.clone(),
            };
            let report = self.look_at_task(found, &wanted, Some(pattern)).await?;
            place = report.searched.map(|searched| searched.next).or(place);
            next = next_search(&report);
            seen = Some(report.has_pattern);
        }
    }
}

/// When a log is searched on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextSearch {
    /// Never: it has what is waited for, or nothing more comes.
    None,
    /// When there may be more.
    Later,
    /// At once, for there is more.
    Now,
}

fn next_search(report: &JobReport) -> NextSearch {
    if let Some(failure) = &report.failure {
        return match failure.retry {
            true => NextSearch::Later,
            false => NextSearch::None,
        };
    }
    match report.searched {
        _ if report.has_pattern => NextSearch::None,
        Some(searched) if !searched.is_all => NextSearch::Now,
        Some(_) if is_open(&report.state) => NextSearch::Later,
        _ => NextSearch::None,
    }
}

fn is_open(state: &JobState) -> bool {
    matches!(state, JobState::Running | JobState::Starting)
}

/// Whether a call that waits for any output has not heard of any yet.
fn must_wait(report: &JobReport, query: &JobQuery, first_size: Option<u64>) -> bool {
    if let Some(failure) = &report.failure {
        return failure.retry;
    }
    let Some(reading) = report.reading.as_ref().filter(|_| is_open(&report.state)) else {
        return false;
    };
    match query.wanted.position {
        ReadingPosition::Since(since) => reading.total <= since,
        ReadingPosition::LastLines(_) => first_size.is_none_or(|size| reading.total == size),
    }
}
