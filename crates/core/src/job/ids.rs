//! Names of jobs, their attempts and their sessions.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

const HEX_DIGITS: usize = 32;
const JOB_PREFIX: &str = "job_";

/// The most characters of a session name.
pub const SESSION_NAME_MAX_CHARS: usize = 64;

/// Why a text names nothing about a job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JobIdError {
    /// Not a job id.
    #[error("a job id is `job_` and 32 lower-case hexadecimal digits, not \"{shown}\"")]
    NotAJobId {
        /// The beginning of the text in escaped form.
        shown: String,
    },
    /// Not a nonce.
    #[error("a nonce is 32 lower-case hexadecimal digits")]
    NotANonce,
    /// Not a session name as it is kept; a wish goes through [`SessionName::from_wish`].
    #[error(
        "a session name is 1 to {SESSION_NAME_MAX_CHARS} letters, digits, `_` and `-`, and does not begin with `-`"
    )]
    NotASessionName,
    /// No name at all was wished for.
    #[error("`session_name` must not be empty")]
    EmptyWish,
    /// Attempts are counted from one.
    #[error("attempts are counted from 1 to {}", AttemptNumber::MAX.0)]
    NotAnAttempt,
}

fn is_lower_hex(text: &str) -> bool {
    text.len() == HEX_DIGITS && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn lower_hex(bytes: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(bytes))
}

/// The identifier of a job: `job_` and 32 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobId(String);

impl JobId {
    /// Checks a text and makes it a job identifier.
    pub fn parse(text: &str) -> Result<Self, JobIdError> {
        match text.strip_prefix(JOB_PREFIX) {
            Some(digits) if is_lower_hex(digits) => Ok(Self(text.to_owned())),
            _ => Err(JobIdError::NotAJobId {
                shown: text.chars().take(48).flat_map(char::escape_debug).collect(),
            }),
        }
    }

    /// Makes the identifier that stands for the bytes of a UUID.
    pub fn from_uuid_bytes(bytes: [u8; 16]) -> Self {
        Self(format!("{JOB_PREFIX}{}", lower_hex(bytes)))
    }
}

/// The secret word of one attempt, by which its records are recognised.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Nonce(String);

impl Nonce {
    /// Checks a text and makes it a nonce.
    pub fn parse(text: &str) -> Result<Self, JobIdError> {
        if is_lower_hex(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(JobIdError::NotANonce)
        }
    }

    /// Makes the nonce that stands for 16 random bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(lower_hex(bytes))
    }
}

/// The name of a session: what tmux and file systems take as it stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionName(String);

/// A session name made of what somebody wished for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedSession {
    /// The name that is used.
    pub name: SessionName,
    /// What the caller is told when that is not what it wished for.
    pub note: Option<String>,
}

impl SessionName {
    /// Takes a name that was kept.
    pub fn parse(text: &str) -> Result<Self, JobIdError> {
        let is_plain = text.bytes().all(is_plain);
        if is_plain
            && !text.is_empty()
            && text.len() <= SESSION_NAME_MAX_CHARS
            && !text.starts_with('-')
        {
            Ok(Self(text.to_owned()))
        } else {
            Err(JobIdError::NotASessionName)
        }
    }

    /// Makes a name of a wish: what tmux, a shell or a path would read as more than a character becomes `_`.
    pub fn from_wish(wish: &str) -> Result<NamedSession, JobIdError> {
        let wish = wish.trim();
        if wish.is_empty() {
            return Err(JobIdError::EmptyWish);
        }
        let mut name: String = wish
            .chars()
            .take(SESSION_NAME_MAX_CHARS)
            .map(|c| {
                if c.is_ascii() && is_plain(c as u8) {
                    c
                } else {
                    '_'
                }
            })
            .collect();
        if name.starts_with('-') {
            name.replace_range(..1, "_");
        }
        // Names in another script would all become the same, and so would those that only differ in their end.
        let is_unlike = |c: char| !c.is_ascii() && c.is_alphanumeric();
        if wish.chars().any(is_unlike) || wish.chars().count() > SESSION_NAME_MAX_CHARS {
            let end = format!("-{:08x}", digest(wish));
            name.truncate(SESSION_NAME_MAX_CHARS - end.len());
            name.push_str(&end);
        }
        let note = (name != wish).then(|| {
            format!(
                "the session is called `{name}`: a name has letters, digits, `_` and `-`, and at most {SESSION_NAME_MAX_CHARS} of them"
            )
        });
        Ok(NamedSession {
            name: Self(name),
            note,
        })
    }

    /// The name of a job for which none was wished; no two jobs share one.
    pub fn for_job(job: &JobId) -> Self {
        Self(format!(
            "bg-{}",
            job.0.strip_prefix(JOB_PREFIX).unwrap_or(&job.0)
        ))
    }

    /// How tmux is told to mean exactly this session, and none that begins like it.
    pub fn exact_target(&self) -> String {
        format!("={}", self.0)
    }
}

/// A number that follows from a text and is hardly ever that of another one (FNV-1a).
fn digest(text: &str) -> u32 {
    let mix = |sum: u32, byte: u8| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    text.bytes().fold(0x811c_9dc5, mix)
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// Which start of a job this is, counted from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct AttemptNumber(u32);

impl AttemptNumber {
    /// The first start.
    pub const FIRST: AttemptNumber = AttemptNumber(1);
    /// The last number there is.
    pub const MAX: AttemptNumber = AttemptNumber(999_999);

    /// Checks a number.
    pub fn new(number: u32) -> Result<Self, JobIdError> {
        if (1..=Self::MAX.0).contains(&number) {
            Ok(Self(number))
        } else {
            Err(JobIdError::NotAnAttempt)
        }
    }

    /// The number after this one; none after the last.
    pub fn next(self) -> Option<Self> {
        Self::new(self.0 + 1).ok()
    }

    /// The number itself.
    pub fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for AttemptNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl TryFrom<u32> for AttemptNumber {
    type Error = JobIdError;

    fn try_from(number: u32) -> Result<Self, JobIdError> {
        Self::new(number)
    }
}

impl From<AttemptNumber> for u32 {
    fn from(number: AttemptNumber) -> u32 {
        number.0
    }
}

macro_rules! checked_text {
    ($type:ty) => {
        impl $type {
            /// The text of it.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.pad(&self.0)
            }
        }

        impl FromStr for $type {
            type Err = JobIdError;

            fn from_str(text: &str) -> Result<Self, JobIdError> {
                Self::parse(text)
            }
        }

        impl TryFrom<String> for $type {
            type Error = JobIdError;

            fn try_from(text: String) -> Result<Self, JobIdError> {
                Self::parse(&text)
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.0
            }
        }
    };
}

checked_text!(JobId);
checked_text!(Nonce);
checked_text!(SessionName);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("train", "train", false)]
    #[case("train.v2:1", "train_v2_1", true)]
    #[case("../esc", "___esc", true)]
    #[case("a;b #{pane_pid} $(id)", "a_b___pane_pid____id_", true)]
    #[case("-t", "_t", true)]
    #[case("=x", "_x", true)]
    #[case("训练", "__-2d61933d", true)]
    #[case("résumé 1", "r_sum__1-ba96a27f", true)]
    fn session_name_replaces_what_means_more_and_says_so(
        #[case] wish: &str,
        #[case] name: &str,
        #[case] is_told: bool,
    ) {
        let named = SessionName::from_wish(wish).unwrap();
        assert_eq!(named.name.as_str(), name);
        assert_eq!(named.note.is_some(), is_told);
        if let Some(note) = named.note {
            assert!(note.contains(name), "{note}");
        }
    }

    #[test]
    fn session_names_of_other_scripts_and_long_ones_stay_apart() {
        let name = |wish: &str| SessionName::from_wish(wish).unwrap().name;
        assert_ne!(name("训练"), name("测试"));
        assert_eq!(name("训练"), name(" 训练 "));
        let long = "x".repeat(100);
        assert_ne!(name(&format!("{long}1")), name(&format!("{long}2")));
    }

    #[test]
    fn session_name_is_cut_when_it_is_long() {
        let named = SessionName::from_wish(&"x".repeat(100)).unwrap();
        assert_eq!(named.name.as_str().len(), SESSION_NAME_MAX_CHARS);
        assert!(named.note.is_some());
        assert_eq!(SessionName::from_wish("  "), Err(JobIdError::EmptyWish));
    }

    #[test]
    fn session_name_of_a_job_is_its_own() {
        let (one, two) = (
            JobId::from_uuid_bytes([1; 16]),
            JobId::from_uuid_bytes([2; 16]),
        );
        assert_ne!(SessionName::for_job(&one), SessionName::for_job(&two));
        let name = SessionName::for_job(&one);
        assert_eq!(SessionName::parse(name.as_str()), Ok(name.clone()));
        assert_eq!(name.exact_target(), format!("={name}"));
    }

    #[rstest]
    #[case("job_0123")]
    #[case("run_00000000000000000000000000000000")]
    #[case("job_0000000000000000000000000000000G")]
    #[case("job_00000000000000000000000000000000/..")]
    fn job_id_is_refused_when_it_is_none(#[case] text: &str) {
        assert!(JobId::parse(text).is_err());
    }

    #[test]
    fn attempts_are_counted_from_one_to_the_last() {
        assert!(AttemptNumber::new(0).is_err());
        assert_eq!(AttemptNumber::FIRST.next(), AttemptNumber::new(2).ok());
        assert_eq!(AttemptNumber::MAX.next(), None);
    }

    proptest! {
        #[test]
        fn session_name_of_any_wish_is_one_that_parses(wish in ".{1,90}") {
            if let Ok(named) = SessionName::from_wish(&wish) {
                prop_assert_eq!(SessionName::parse(named.name.as_str()), Ok(named.name.clone()));
            }
        }
    }
}
