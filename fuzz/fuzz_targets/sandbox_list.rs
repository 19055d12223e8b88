//! The list of sandboxes in the environment may hold any text; resolving it must not panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remote_sandbox_core::config::{Sources, resolve};

fuzz_target!(|text: &str| {
    let mut sources = Sources::default();
    sources
        .environment
        .insert("REMOTE_SANDBOX_LIST".to_owned(), text.to_owned());
    sources
        .environment
        .insert("HOME".to_owned(), "/home/user".to_owned());
    // The messages are made too: they are shown to people and must not fail either.
    let _ = format!("{:?}", resolve(&sources));
});
