//! Whatever an SFTP server sends, no reader panics, and what is read is no larger than what came.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remote_sandbox_core::sftp::{
    EntryName, Filesystem, LONGEST_HANDLE, LONGEST_PACKET, RemotePath, Reply, ServerLimits, packet_length,
    parse_reply, parse_version, shown_bytes,
};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some(length)) = packet_length(bytes) {
        assert!(length <= LONGEST_PACKET);
    }
    let _ = parse_version(bytes);
    let _ = ServerLimits::parse(bytes);
    let _ = Filesystem::parse(bytes).map(|space| space.available_bytes());
    let Ok((_, reply)) = parse_reply(bytes) else {
        return;
    };
    match reply {
        Reply::Status(status) => assert!(!status.to_string().contains(['\n', '\u{1b}'])),
        Reply::Handle(handle) => assert!(handle.as_bytes().len() <= LONGEST_HANDLE),
        Reply::Data(data) | Reply::Extended(data) => assert!(data.len() <= bytes.len()),
        Reply::Names(entries) => {
            // Name, line and flags have four bytes each at least.
            assert!(entries.len() <= bytes.len() / 12);
            for entry in entries {
                assert!(!shown_bytes(&entry.name).contains(['\n', '\u{1b}']));
                let _ = entry.attributes.kind();
                let Ok(name) = EntryName::new(entry.name) else {
                    continue;
                };
                assert!(!name.as_bytes().contains(&b'/'));
                let _ = RemotePath::new(name.as_bytes());
            }
        }
        Reply::Attributes(attributes) => drop(attributes.kind()),
    }
});
