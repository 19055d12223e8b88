//! Whatever stands where divided GPUs should be listed, the reader neither panics nor calls a device without figures free.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "vendor/report.rs"]
mod report;

fuzz_target!(|bytes: &[u8]| report::read(&["nvidia_list", "nvidia_table"], bytes));
