//! Places at which a test can end the program, to see what is left of what it was doing.

/// The variable that names the place; it means nothing in a release.
pub const VARIABLE: &str = "REMOTE_SANDBOX_FAILPOINT";

/// Ends the program without a word when a test has named this place.
#[cfg(debug_assertions)]
pub(crate) fn reached(name: &str) {
    use std::sync::OnceLock;

    static NAMED: OnceLock<Option<String>> = OnceLock::new();
    let named = NAMED.get_or_init(|| crate::environment::capture().remove(VARIABLE));
    if named.as_deref() == Some(name) {
        std::process::abort();
    }
}

/// Ends the program without a word when a test has named this place.
#[cfg(not(debug_assertions))]
pub(crate) fn reached(_: &str) {}
