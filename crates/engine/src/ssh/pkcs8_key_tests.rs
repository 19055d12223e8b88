use std::process::Command;

use pkcs8::pkcs5::pbes2::{EncryptionScheme as CipherOfPbes2, Parameters, ScryptParams};
use remote_sandbox_testkit::keys::{ClientKey, KeyFormat, KeyType};
use rstest::rstest;

use super::*;

const PASSPHRASE: &str = "a long passphrase";

/// A key in PKCS #8 and its public half; sealed by `openssl` when there are arguments for it.
fn made(kind: KeyType, sealing: &[&str]) -> Option<(String, String)> {
    let folder = tempfile::tempdir().unwrap();
    let key = ClientKey::generate(folder.path(), "id", kind, KeyFormat::Pkcs8, None)?;
    let public: Vec<&str> = key.public_line().split(' ').take(2).collect();
    let mut command = Command::new("openssl");
    command
        .args(["pkcs8", "-topk8", "-in"])
        .arg(key.private_path());
    match sealing {
        [] => command.arg("-nocrypt"),
        more => command
            .args(more)
            .args(["-passout", &format!("pass:{PASSPHRASE}")]),
    };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    Some((String::from_utf8(output.stdout).unwrap(), public.join(" ")))
}

fn public_half(key: &PrivateKey) -> String {
    key.public_key().to_openssh().unwrap()
}

#[rstest]
fn sealed_key_opens_with_its_passphrase_alone(
    #[values(KeyType::Rsa, KeyType::Ecdsa, KeyType::Ed25519, KeyType::Dsa)] kind: KeyType,
    #[values(&["-v2", "aes-256-cbc"], &["-v2", "des3"], &["-scrypt"], &["-v2prf", "hmacWithSHA1"])]
    sealing: &[&str],
) {
    let Some((text, public)) = made(kind, sealing) else {
        return;
    };
    let found = Pkcs8Key::find(&text).unwrap();
    assert!(found.is_encrypted());
    let plain = found.decrypt(PASSPHRASE).unwrap();
    assert!(!plain.is_encrypted());
    assert_eq!(public_half(&plain.key().unwrap()), public);
    for wrong in ["", "wrong"] {
        assert!(
            found
                .decrypt(wrong)
                .map_or(true, |plain| !plain.is_private_key())
        );
    }
}

#[rstest]
fn plain_key_opens(
    #[values(KeyType::Rsa, KeyType::Ecdsa, KeyType::Ed25519, KeyType::Dsa)] kind: KeyType,
) {
    let Some((text, public)) = made(kind, &[]) else {
        return;
    };
    let found = Pkcs8Key::find(&text).unwrap();
    assert!(!found.is_encrypted());
    assert_eq!(public_half(&found.key().unwrap()), public);
}

#[test]
fn very_old_scheme_is_named() {
    let (text, _) = made(KeyType::Ecdsa, &["-v1", "PBE-SHA1-3DES"]).unwrap();
    let error = Pkcs8Key::find(&text).unwrap().decrypt(PASSPHRASE).err();
    let said = error.unwrap().to_string();
    assert!(said.contains("1.2.840.113549.1.12.1.3"), "{said}");
    assert!(said.contains("ssh-keygen -p"), "{said}");
}

#[rstest]
#[case(10_000_000, false)]
#[case(10_000_001, true)]
fn rounds_have_a_limit(#[case] rounds: u32, #[case] refused: bool) {
    let scheme = Parameters::generate_pbkdf2_sha256_aes256cbc(rounds, &[1; 16], [1; 16]);
    assert_eq!(too_costly(&scheme.unwrap().into()), refused);
}

#[rstest]
#[case::usual(1 << 14, 8, 1, false)]
#[case::most(1 << 18, 8, 1, false)]
#[case::more(1 << 19, 8, 1, true)]
#[case::many_at_once(1 << 14, 8, 17, true)]
#[case::overflow(u64::MAX, u16::MAX, u16::MAX, true)]
fn memory_has_a_limit(
    #[case] cost_parameter: u64,
    #[case] block_size: u16,
    #[case] parallelization: u16,
    #[case] refused: bool,
) {
    let stretch = ScryptParams {
        salt: [1; 8].as_slice().try_into().unwrap(),
        cost_parameter,
        block_size,
        parallelization,
        key_length: None,
    };
    let scheme = Parameters {
        kdf: stretch.into(),
        encryption: CipherOfPbes2::Aes256Cbc { iv: [1; 16] },
    };
    assert_eq!(too_costly(&scheme.into()), refused);
}

#[test]
fn other_texts_hold_no_such_key() {
    for text in [
        "",
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\n!\n",
        "-----BEGIN PRIVATE KEY-----\n",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n",
    ] {
        assert!(Pkcs8Key::find(text).is_none(), "{text}");
    }
}
