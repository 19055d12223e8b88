use proptest::prelude::*;
use rstest::rstest;

use super::super::samples::{blob, ecdsa, ed25519, rsa};
use super::*;

const NAMED_BUT_EMPTY: &[&[u8]] = &[b"ssh-ed25519"];

#[rstest]
#[case::ed25519(ed25519(1), "ssh-ed25519")]
#[case::ecdsa(ecdsa(1), "ecdsa-sha2-nistp256")]
#[case::rsa(rsa(1), "ssh-rsa")]
fn key_names_its_algorithm(#[case] key: HostKey, #[case] algorithm: &str) {
    assert_eq!(key.algorithm(), algorithm);
}

#[test]
fn fingerprint_is_that_of_openssh() {
    // Printed by `ssh-keygen -l` for the same key.
    assert_eq!(
        ed25519(1).fingerprint(),
        "SHA256:RXm/ruZ0eTzRXKwi1AQEDynB0VgHQ2ac9KPSFdf/YnA"
    );
}

#[test]
fn blob_is_returned_unchanged() {
    let bytes = blob(&[b"ssh-ed25519", &[9; 32]]);
    let key = HostKey::from_blob(bytes.clone()).unwrap();
    assert_eq!(key.blob(), bytes);
}

#[rstest]
#[case::empty(vec![], KeyError::NoAlgorithm)]
#[case::length_beyond_end(vec![0, 0, 0, 9, b's'], KeyError::NoAlgorithm)]
#[case::huge_length(vec![255, 255, 255, 255, b's'], KeyError::NoAlgorithm)]
#[case::empty_name(blob(&[b"", b"x"]), KeyError::NoAlgorithm)]
#[case::control_in_name(blob(&[b"ssh-\x1b[2J", b"x"]), KeyError::NoAlgorithm)]
#[case::long_name(blob(&[&[b'a'; 65], b"x"]), KeyError::NoAlgorithm)]
#[case::unknown(blob(&[b"ssh-future", b"x"]), KeyError::UnknownAlgorithm { algorithm: "ssh-future".into() })]
#[case::certificate(
    blob(&[b"ssh-ed25519-cert-v01@openssh.com", &[1; 32]]),
    KeyError::UnknownAlgorithm { algorithm: "ssh-ed25519-cert-v01@openssh.com".into() }
)]
#[case::no_field(blob(NAMED_BUT_EMPTY), KeyError::Malformed { algorithm: "ssh-ed25519" })]
#[case::short_field(blob(&[b"ssh-ed25519", &[1; 31]]), KeyError::Malformed { algorithm: "ssh-ed25519" })]
#[case::empty_field(blob(&[b"ssh-rsa", b"", &[1; 256]]), KeyError::Malformed { algorithm: "ssh-rsa" })]
#[case::wrong_curve(
    blob(&[b"ecdsa-sha2-nistp256", b"nistp384", &[1; 65]]),
    KeyError::Malformed { algorithm: "ecdsa-sha2-nistp256" }
)]
#[case::trailing(
    blob(&[b"ssh-ed25519", &[1; 32], b""]),
    KeyError::TrailingBytes { algorithm: "ssh-ed25519", length: 4 }
)]
#[case::too_long(vec![0; MAX_BLOB_BYTES + 1], KeyError::TooLong { length: MAX_BLOB_BYTES + 1 })]
fn bad_blob_is_refused(#[case] bytes: Vec<u8>, #[case] error: KeyError) {
    assert_eq!(HostKey::from_blob(bytes), Err(error));
}

proptest! {
    #[test]
    fn cut_key_is_never_a_key(seed: u8, length in 0_usize..51) {
        let mut bytes = ed25519(seed).blob().to_vec();
        bytes.truncate(length);
        prop_assert!(HostKey::from_blob(bytes).is_err());
    }

    #[test]
    fn random_bytes_do_not_panic(bytes: Vec<u8>) {
        if let Ok(key) = HostKey::from_blob(bytes.clone()) {
            prop_assert_eq!(key.blob(), bytes);
        }
    }
}
