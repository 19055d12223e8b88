//! A TOML configuration file may hold anything; resolving it must not panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remote_sandbox_core::config::{ConfigText, Format, Sources, imported, resolve};

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
    let config = resolve(&sources);
    let names = ["gpu1", "a.b", "*"].map(str::to_owned);
    let entries = imported(&config.import_ssh_config, &names, &config);
    let _ = format!("{config:?} {entries:?}");
});
