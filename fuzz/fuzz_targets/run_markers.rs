#![no_main]

use libfuzzer_sys::fuzz_target;
use remote_sandbox_core::ids::RunToken;
use remote_sandbox_core::shell::{Gate, parse_end_report};

// What a host prints around a command: login noise, start marker, report of processes.
fuzz_target!(|chunks: Vec<Vec<u8>>| {
    let token = RunToken::from_uuid_bytes([7; 16]);
    let mut gate = Gate::new(&token);
    for chunk in &chunks {
        let _ = gate.pass(chunk);
    }
    let _ = parse_end_report(&token, &chunks.concat());
});
