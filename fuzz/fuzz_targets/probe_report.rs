//! Whatever a host sends back, the report reader neither panics nor calls an unknown host idle.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remote_sandbox_core::probe::{Nonce, parse_report};

fuzz_target!(|bytes: &[u8]| {
    let Ok(nonce) = Nonce::parse("n0nce5a3") else {
        return;
    };
    let Ok(resources) = parse_report(&nonce, bytes) else {
        return;
    };
    if let Some(score) = resources.idle_score {
        assert!((0.0..=1.0).contains(&score));
    }
    for gpu in &resources.gpu {
        for share in [gpu.util_pct, gpu.mem_used_pct()].into_iter().flatten() {
            assert!((0.0..=100.0).contains(&share));
        }
    }
});
