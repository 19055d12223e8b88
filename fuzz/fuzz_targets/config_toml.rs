//! A TOML configuration file may hold anything; resolving it must not panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remote_sandbox_core::config::{ConfigText, Format, Sources, resolve};

fuzz_target!(|bytes: &[u8]| {
    let sources = Sources {
        file: Some(ConfigText {
            path: "/config.toml".into(),
            format: Format::Toml,
            text: bytes.to_vec(),
        }),
        ..Sources::default()
    };
    // The messages are made too: they are shown to people and must not fail either.
    let _ = format!("{:?}", resolve(&sources));
});
