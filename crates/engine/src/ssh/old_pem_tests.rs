use remote_sandbox_testkit::keys::{ClientKey, KeyFormat, KeyType};
use rstest::rstest;

use super::*;

fn made(kind: KeyType, passphrase: Option<&str>) -> Option<(String, String)> {
    let folder = tempfile::tempdir().unwrap();
    let key = ClientKey::generate(folder.path(), "id", kind, KeyFormat::Pem, passphrase)?;
    let text = std::fs::read_to_string(key.private_path()).unwrap();
    let public: Vec<&str> = key.public_line().split(' ').take(2).collect();
    Some((text, public.join(" ")))
}

fn public_half(key: &PrivateKey) -> String {
    key.public_key().to_openssh().unwrap()
}

#[rstest]
fn old_form_opens_with_and_without_passphrase(
    #[values(KeyType::Rsa, KeyType::Ecdsa, KeyType::Dsa)] kind: KeyType,
    #[values(None, Some("a long passphrase"))] passphrase: Option<&str>,
) {
    let Some((text, public)) = made(kind, passphrase) else {
        return;
    };
    let found = OldPem::find(&text).unwrap();
    assert_eq!(found.is_encrypted(), passphrase.is_some());
    let plain = match passphrase {
        Some(passphrase) => found.decrypt(passphrase).unwrap(),
        None => found,
    };
    assert_eq!(public_half(&plain.key().unwrap()), public);
}

#[test]
fn wrong_passphrase_gives_no_key() {
    let (text, _) = made(KeyType::Ecdsa, Some("right one")).unwrap();
    let found = OldPem::find(&text).unwrap();
    for wrong in ["", "wrong", "right on"] {
        assert!(found.decrypt(wrong).is_err() || found.decrypt(wrong).unwrap().key().is_err());
    }
}

#[test]
fn unknown_cipher_is_named() {
    let (text, _) = made(KeyType::Ecdsa, Some("right one")).unwrap();
    let text = text.replace("AES-128-CBC", "CAMELLIA-128-CBC");
    let error = OldPem::find(&text).unwrap().decrypt("right one");
    assert!(matches!(error, Err(OldPemError::Cipher(name)) if name == "CAMELLIA-128-CBC"));
}

#[rstest]
fn every_cipher_of_openssl_opens(
    #[values("-aes128", "-aes192", "-aes256", "-des3")] cipher: &str,
    #[values(KeyType::Rsa, KeyType::Ecdsa, KeyType::Dsa)] kind: KeyType,
) {
    let folder = tempfile::tempdir().unwrap();
    let Some(key) = ClientKey::generate(folder.path(), "id", kind, KeyFormat::Pem, None) else {
        return;
    };
    let output = std::process::Command::new("openssl")
        .args([
            "pkey",
            "-traditional",
            cipher,
            "-passout",
            "pass:secret",
            "-in",
        ])
        .arg(key.private_path())
        .output()
        .unwrap();
    let found = OldPem::find(&String::from_utf8(output.stdout).unwrap()).unwrap();
    assert!(found.is_encrypted());
    let opened = public_half(&found.decrypt("secret").unwrap().key().unwrap());
    assert!(key.public_line().starts_with(&opened), "{opened}");
}

#[test]
fn damaged_header_is_no_wrong_passphrase() {
    let (text, _) = made(KeyType::Ecdsa, Some("right one")).unwrap();
    for header in [
        "AES-128-CBC",
        "AES-128-CBC,00",
        "DES-EDE3-CBC,00112233445566778899AABBCCDDEEFF",
        "AES-128-CBC,é0112233445566778899AABBCCDDEEF",
    ] {
        let text: String = text
            .lines()
            .map(|line| match line.starts_with("DEK-Info:") {
                true => format!("DEK-Info: {header}\n"),
                false => format!("{line}\n"),
            })
            .collect();
        let error = OldPem::find(&text).unwrap().decrypt("right one").err();
        assert!(matches!(error, Some(OldPemError::Header)), "{header}");
    }
}

#[test]
fn other_texts_hold_no_old_form() {
    for text in [
        "",
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\n!\n",
    ] {
        assert!(OldPem::find(text).is_none(), "{text}");
    }
}

#[test]
fn cut_numbers_are_no_key() {
    let (text, _) = match made(KeyType::Dsa, None) {
        Some(made) => made,
        None => return,
    };
    let body = OldPem::find(&text).unwrap().body;
    for length in 0..body.expose().len() {
        assert!(dsa_key(&body.expose()[..length]).is_none(), "{length}");
    }
    assert!(dsa_key(&[0x30, 0xff, 0xff]).is_none());
    assert!(dsa_key(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]).is_none());
}
