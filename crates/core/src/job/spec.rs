//! A job that was asked for, checked and ready to become a script.

use std::num::NonZeroU32;

use super::{AttemptNumber, JobId, Nonce, SessionName};
use crate::probe::GpuVendor;
use crate::shell::RunSpec;

/// How long a log may grow when nothing else is said.
pub const USUAL_MAX_LOG_BYTES: u64 = 1 << 30;

/// The smallest bound of a log: below it there is no middle to give back.
pub const LEAST_MAX_LOG_BYTES: u64 = 64 * 1024;

const MOST_GPUS: u32 = 1024;
const LONGEST_PATH: usize = 4096;

/// Why a job cannot be started as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobSpecError {
    /// A path that cannot stand on one line.
    #[error("`{field}` must not hold line breaks or other control characters")]
    ControlInPath {
        /// The argument at fault.
        field: &'static str,
    },
    /// A path longer than any host takes.
    #[error("`{field}` is longer than {LONGEST_PATH} bytes")]
    LongPath {
        /// The argument at fault.
        field: &'static str,
    },
    /// A log that would be a directory.
    #[error("`log_file` names a directory: it ends in `/`")]
    LogIsDirectory,
    /// Not a number of GPUs.
    #[error("`gpus` is a number from 0 to {MOST_GPUS}, or \"auto\"")]
    Gpus,
    /// A log that could not hold anything.
    #[error("`max_log_bytes` must be 0 for no bound, or at least {LEAST_MAX_LOG_BYTES}")]
    MaxLogBytes,
}

/// How many GPUs a job wants for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GpuWish {
    /// It does not ask for any.
    #[default]
    None,
    /// One where the host has GPUs; it goes without on a host that has none.
    Auto,
    /// This many, or it does not start.
    Count(NonZeroU32),
}

impl GpuWish {
    /// Whether a host with so many GPUs can never have enough.
    pub fn exceeds(self, present: u32) -> bool {
        matches!(self, GpuWish::Count(count) if count.get() > present)
    }

    /// Reads what a caller wrote: a number, or `auto`.
    pub fn parse(text: &str) -> Result<Self, JobSpecError> {
        match text.trim() {
            "" => Ok(GpuWish::None),
            "auto" => Ok(GpuWish::Auto),
            number => {
                let number: u32 = number.parse().map_err(|_| JobSpecError::Gpus)?;
                if number > MOST_GPUS {
                    return Err(JobSpecError::Gpus);
                }
                Ok(NonZeroU32::new(number).map_or(GpuWish::None, GpuWish::Count))
            }
        }
    }
}

/// The devices that a job has for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedGpus {
    /// Who made them.
    pub vendor: GpuVendor,
    /// Their indices, as the variable of visible devices has them.
    pub indices: Vec<u32>,
}

/// One attempt of a job, ready to be started.
#[derive(Debug, Clone)]
pub struct JobSpec {
    pub(super) run: RunSpec,
    pub(super) job: JobId,
    pub(super) attempt: AttemptNumber,
    pub(super) nonce: Nonce,
    pub(super) session: SessionName,
    pub(super) log_file: Option<String>,
    pub(super) gpus: GpuWish,
    pub(super) max_log_bytes: u64,
    pub(super) log_pause_s: u32,
}

impl JobSpec {
    /// A job with a session name and a log of its own. What `run` has as standard input is not used: a job has none.
    pub fn new(
        run: RunSpec,
        job: JobId,
        attempt: AttemptNumber,
        nonce: Nonce,
    ) -> Result<Self, JobSpecError> {
        if let Some(cwd) = run.cwd() {
            check_path("cwd", cwd)?;
        }
        Ok(JobSpec {
            session: SessionName::for_job(&job),
            run,
            job,
            attempt,
            nonce,
            log_file: None,
            gpus: GpuWish::None,
            max_log_bytes: USUAL_MAX_LOG_BYTES,
            log_pause_s: 10,
        })
    }

    /// Gives it the name that somebody chose.
    #[must_use]
    pub fn in_session(mut self, session: SessionName) -> Self {
        self.session = session;
        self
    }

    /// Puts the log elsewhere: absolute, below the home as `~/x`, or relative to the working directory.
    pub fn with_log_file(mut self, path: &str) -> Result<Self, JobSpecError> {
        check_path("log_file", path)?;
        if path.ends_with('/') || path == "~" {
            return Err(JobSpecError::LogIsDirectory);
        }
        self.log_file = (!path.is_empty()).then(|| path.to_owned());
        Ok(self)
    }

    /// The GPUs that it asks for.
    pub fn gpus(&self) -> GpuWish {
        self.gpus
    }

    /// Asks for GPUs.
    #[must_use]
    pub fn with_gpus(mut self, gpus: GpuWish) -> Self {
        self.gpus = gpus;
        self
    }

    /// Sets how long the log may grow before its middle is given back to the disk; 0 for no bound.
    pub fn with_max_log_bytes(mut self, bytes: u64) -> Result<Self, JobSpecError> {
        let is_possible = bytes == 0 || (LEAST_MAX_LOG_BYTES..=u64::MAX >> 2).contains(&bytes);
        if !is_possible {
            return Err(JobSpecError::MaxLogBytes);
        }
        self.max_log_bytes = bytes;
        Ok(self)
    }

    /// The job.
    pub fn job(&self) -> &JobId {
        &self.job
    }

    /// Which attempt of it.
    pub fn attempt(&self) -> AttemptNumber {
        self.attempt
    }

    /// The word its records carry.
    pub fn nonce(&self) -> &Nonce {
        &self.nonce
    }

    /// Its session.
    pub fn session(&self) -> &SessionName {
        &self.session
    }

    /// The word that all its processes carry in their environment, as the value of [`JOB_VARIABLE`](super::JOB_VARIABLE).
    pub fn environment_word(&self) -> String {
        format!("{}.{}", self.job, self.attempt)
    }
}

/// Checks what names a task that somebody else started, before it is written down.
pub fn check_watched(session: &str, log_file: &str, cwd: Option<&str>) -> Result<(), JobSpecError> {
    check_path("tmux_session", session)?;
    check_path("log_file", log_file)?;
    if log_file.ends_with('/') || log_file == "~" {
        return Err(JobSpecError::LogIsDirectory);
    }
    check_path("cwd", cwd.unwrap_or_default())
}

pub(super) fn check_path(field: &'static str, path: &str) -> Result<(), JobSpecError> {
    if path.len() > LONGEST_PATH {
        return Err(JobSpecError::LongPath { field });
    }
    if path.chars().any(char::is_control) {
        return Err(JobSpecError::ControlInPath { field });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn job() -> JobSpec {
        let run = RunSpec::new("true".to_owned()).unwrap();
        JobSpec::new(
            run,
            JobId::from_uuid_bytes([1; 16]),
            AttemptNumber::FIRST,
            Nonce::from_bytes([2; 16]),
        )
        .unwrap()
    }

    #[rstest]
    #[case("", Ok(GpuWish::None))]
    #[case("0", Ok(GpuWish::None))]
    #[case("auto", Ok(GpuWish::Auto))]
    #[case("2", Ok(GpuWish::Count(NonZeroU32::new(2).unwrap())))]
    #[case("-1", Err(JobSpecError::Gpus))]
    #[case("5000", Err(JobSpecError::Gpus))]
    #[case("1; id", Err(JobSpecError::Gpus))]
    fn wish_for_gpus_is_read(#[case] text: &str, #[case] wish: Result<GpuWish, JobSpecError>) {
        assert_eq!(GpuWish::parse(text), wish);
    }

    #[rstest]
    #[case("a\nb", JobSpecError::ControlInPath { field: "log_file" })]
    #[case("logs/", JobSpecError::LogIsDirectory)]
    fn log_is_refused_when_it_cannot_be_one(#[case] path: &str, #[case] error: JobSpecError) {
        assert_eq!(job().with_log_file(path).unwrap_err(), error);
    }

    #[test]
    fn bound_of_the_log_is_refused_when_nothing_could_stay() {
        assert_eq!(
            job().with_max_log_bytes(10).unwrap_err(),
            JobSpecError::MaxLogBytes
        );
        assert!(job().with_max_log_bytes(0).is_ok());
    }
}
