#![no_main]
//! Any bytes as a known_hosts file, and as a host key.

use libfuzzer_sys::fuzz_target;
use remote_sandbox_core::hostkey::{HostAddress, HostKey, KnownHosts, judge, recorded_algorithms};

fuzz_target!(|bytes: &[u8]| {
    let mut blob = b"\0\0\0\x0bssh-ed25519\0\0\0\x20".to_vec();
    blob.extend([7_u8; 32]);
    let key = HostKey::from_blob(blob).expect("a fixed key is well formed");
    let files = [KnownHosts::parse("fuzz", bytes)];
    for port in [22, 2222] {
        let address =
            HostAddress::new("host.example", port).expect("a fixed address is well formed");
        let _ = judge(&address, &key, &files);
        let _ = recorded_algorithms(&address, &files);
    }
    if let Ok(read) = HostKey::from_blob(bytes.to_vec()) {
        assert_eq!(read.blob(), bytes);
    }
});
