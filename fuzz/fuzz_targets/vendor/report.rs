//! A report in which some sections hold arbitrary bytes.

use remote_sandbox_core::probe::{Nonce, parse_report};

const FACTS: &str = "amd_tool yes\namd_device yes\nascend_tool yes\nascend_device yes\ntool yes\ndevice yes";
const LIST: &str = "0, GPU-1, T4, 0, 0, 15360\n1, GPU-2, T4, 0, 0, 15360";

/// Reads a report whose named sections hold the bytes, cut into as many pieces.
pub fn read(sections: &[&str], bytes: &[u8]) {
    let Ok(nonce) = Nonce::parse("n0nce5a3") else {
        return;
    };
    let mut report = section("gpu_driver", FACTS.as_bytes());
    let pieces = bytes.split(|byte| *byte == 0);
    for (name, piece) in sections.iter().zip(pieces) {
        report.extend(section(name, piece));
    }
    // The first section of a name counts; a list is there when the bytes are about something else.
    report.extend(section("gpus", LIST.as_bytes()));
    let Ok(resources) = parse_report(&nonce, &report) else {
        return;
    };
    for gpu in &resources.gpu {
        for share in [gpu.util_pct, gpu.mem_used_pct()].into_iter().flatten() {
            assert!((0.0..=100.0).contains(&share));
        }
        if gpu.is_free(None) {
            assert!(gpu.mem_used_mb.is_some() && gpu.processes.is_some());
        }
    }
}

fn section(name: &str, body: &[u8]) -> Vec<u8> {
    let mut whole = format!("\n@@n0nce5a3 begin {name}\n").into_bytes();
    whole.extend_from_slice(body);
    whole.extend_from_slice(b"\n@@n0nce5a3 end 0\n");
    whole
}
