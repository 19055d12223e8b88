//! The probe script and the nonce that marks its sections.

use std::fmt;
use std::time::Duration;

use super::ProbeError;

const TEMPLATE: &str = concat!(include_str!("probe_gpu.sh"), include_str!("probe.sh"));

/// How long the script waits for any one tool; the tools run at the same time.
pub const TOOL_LIMIT: Duration = Duration::from_secs(5);

/// The word that marks the sections of one report; made anew and at random for each probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nonce(String);

impl Nonce {
    /// Takes 8 to 64 characters of `a-z` and `0-9`.
    pub fn parse(text: &str) -> Result<Self, ProbeError> {
        let plain = text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if plain && (8..=64).contains(&text.len()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ProbeError::InvalidNonce)
        }
    }

    /// The word itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The script to run on the host, as `sh -c SCRIPT` or on the standard input of `sh -s`.
///
/// It takes about 100 ms, and at most a little more than [`TOOL_LIMIT`] when a tool hangs. It always exits with 0.
pub fn probe_script(nonce: &Nonce) -> String {
    script_with_limit(nonce, TOOL_LIMIT)
}

fn script_with_limit(nonce: &Nonce, limit: Duration) -> String {
    // Many shells read a script byte by byte, each with a call of the system.
    let bare: String = TEMPLATE
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .flat_map(|line| [line, "\n"])
        .collect();
    // Whole seconds: not every `sleep` takes fractions.
    bare.replace("@NONCE@", nonce.as_str())
        .replace("@LIMIT@", &limit.as_secs().max(1).to_string())
}

#[cfg(test)]
#[path = "script_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "machine_tests.rs"]
mod machine_tests;
