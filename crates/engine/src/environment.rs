//! The one door to the process environment.
#![expect(
    clippy::disallowed_methods,
    reason = "this module is the door to the environment"
)]

use std::collections::BTreeMap;
use std::path::PathBuf;

/// All variables of this process whose name and value are text, read once at the start.
pub fn capture() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// The directory this program was started in; none when it is gone or cannot be told.
pub fn working_directory() -> Option<PathBuf> {
    std::env::current_dir().ok()
}
