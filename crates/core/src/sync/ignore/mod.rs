//! Which entries of a tree a sync leaves alone.
//!
//! The rules are those of `docs/reference/excludes.md`: the last one that speaks of an entry decides, `!` takes back,
//! and what lies in a directory that is left out is left out with it, unless a later `!` names the place.
//! The matcher is our own. The `ignore` and `globset` crates take patterns as text only, while a file of patterns is
//! bytes, and they cannot say whether a directory may hold something that is taken back, which decides whether
//! a tree of millions is walked at all.

mod filter;
mod glob;
mod part;
mod prune;
mod rule;

pub use filter::{Filter, FilterError, Judge, Verdict};
pub use glob::{Glob, GlobError};
pub use prune::Prune;
pub use rule::RuleFault;

/// What is left out unless a rule takes it back, at every depth.
pub const BUILT_IN: [&str; 6] = [
    ".git",
    ".idea/",
    ".vscode/",
    "__pycache__/",
    "*.pyc",
    "node_modules/",
];

/// A `.gitignore` file is read up to this size, on both sides; a larger one is no list that anybody wrote, and an error.
pub const MOST_GITIGNORE_BYTES: usize = 1024 * 1024;

#[cfg(test)]
#[path = "ignore_tests.rs"]
mod tests;
