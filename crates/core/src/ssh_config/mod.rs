//! The user's own SSH configuration: what `ssh -G` says of a host, and what can be read without `ssh`.
//!
//! Nothing here reads a file or starts a program; the caller hands over the text.

mod effective;
mod expand;
mod hop;
mod listed;
mod options;
mod pattern;
mod words;

pub use effective::{ConfigFile, ConfigPlace, effective_options};
pub use expand::{Local, expand_home};
pub use hop::{Hop, MOST_HOPS};
pub use listed::{Listed, listed};
pub use options::{Approach, Asked, Checking, HostOptions};
pub use pattern::matches_pattern;

/// The most bytes an answer of `ssh -G` or a configuration file may have.
pub const TEXT_MAX_BYTES: usize = 256 * 1024;

/// Why the SSH configuration does not say how to reach a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// The text is too long.
    #[error("it has more than {TEXT_MAX_BYTES} bytes")]
    TooLarge,
    /// An option that every answer has is absent or senseless.
    #[error("it names no usable `{0}`")]
    Unusable(&'static str),
    /// A `%` sequence that cannot be filled in.
    #[error("`{option}` has `%{token}`, which cannot be filled in")]
    Token {
        /// The option.
        option: &'static str,
        /// The character after `%`.
        token: String,
    },
    /// A variable that is not set.
    #[error("`{option}` names the variable `{variable}`, which is not set")]
    Variable {
        /// The option.
        option: &'static str,
        /// The variable.
        variable: String,
    },
    /// A jump host that makes no sense.
    #[error("`proxyjump` is no list of hosts like `user@host:port`")]
    Jump,
    /// More jump hosts than anybody needs.
    #[error("`proxyjump` names more than {MOST_HOPS} hosts")]
    TooManyHops,
    /// A condition that only `ssh` itself can judge.
    #[error("`Match {0}` needs an `ssh` program to be judged")]
    Condition(String),
    /// Files that include each other without end.
    #[error("its files include each other too deeply")]
    Depth,
    /// A line that makes no sense, or a keyword without value.
    #[error("line {0} cannot be read")]
    Line(usize),
}
