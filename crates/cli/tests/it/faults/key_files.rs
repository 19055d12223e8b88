//! Private keys in every form people keep them, and plain words about those that cannot be used.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use remote_sandbox_testkit::keys::{ClientKey, KeyFormat, KeyType};
use remote_sandbox_testkit::process;
use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::wait::skip;
use rstest::rstest;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::credentials::{PASSPHRASE, WRONG, assert_auth_failed, assert_logged_in};
use crate::support::{entry, exec, serve, with};

#[rstest]
#[tokio::test]
async fn key_of_every_kind_and_format_logs_in(
    #[values(KeyType::Ed25519, KeyType::Ecdsa, KeyType::Rsa, KeyType::Dsa)] kind: KeyType,
    #[values(KeyFormat::OpenSsh, KeyFormat::Pem, KeyFormat::Pkcs8)] format: KeyFormat,
    #[values(None, Some(PASSPHRASE))] passphrase: Option<&str>,
) {
    // There is no such form.
    if (kind, format) == (KeyType::Ed25519, KeyFormat::Pem) {
        return;
    }
    let folder = TempDir::new().unwrap();
    let Some(key) = ClientKey::generate(folder.path(), "id", kind, format, passphrase) else {
        return;
    };
    let mut server = Sshd::builder().authorize(&key);
    if kind == KeyType::Dsa {
        server = server.extra_config("PubkeyAcceptedAlgorithms +ssh-dss");
    }
    let sshd = server.start();
    let mut more = json!({"key_file": key.private_path()});
    if let Some(passphrase) = passphrase {
        more["key_passphrase"] = json!(passphrase);
    }
    let client = serve(&[with(entry("box", &sshd), more)]).await;
    let reply = exec(&client, "echo in").await;
    assert_logged_in(&reply);
    assert_eq!(sshd.accepted_auth_count(), 1);
    assert_eq!(sshd.failed_auth_count(), 0, "{}", sshd.log());
}

#[rstest]
#[tokio::test]
async fn passphrase_of_a_key_that_needs_none_does_no_harm(
    #[values(KeyFormat::OpenSsh, KeyFormat::Pem, KeyFormat::Pkcs8)] format: KeyFormat,
) {
    let folder = TempDir::new().unwrap();
    let key = ClientKey::generate(folder.path(), "id", KeyType::Ecdsa, format, None).unwrap();
    let sshd = Sshd::builder().authorize(&key).start();
    let more = json!({"key_file": key.private_path(), "key_passphrase": PASSPHRASE});
    let client = serve(&[with(entry("box", &sshd), more)]).await;
    assert_logged_in(&exec(&client, "echo in").await);
}

#[rstest]
#[tokio::test]
async fn rsa_key_signs_with_the_hash_that_the_host_takes(
    #[values("rsa-sha2-512", "rsa-sha2-512,rsa-sha2-256")] algorithm: &str,
) {
    let folder = TempDir::new().unwrap();
    let (kind, format) = (KeyType::Rsa, KeyFormat::OpenSsh);
    let key = ClientKey::generate(folder.path(), "id", kind, format, None).unwrap();
    let sshd = Sshd::builder()
        .authorize(&key)
        .extra_config(&format!("PubkeyAcceptedAlgorithms {algorithm}"))
        .start();
    let more = json!({"key_file": key.private_path()});
    let client = serve(&[with(entry("box", &sshd), more)]).await;
    assert_logged_in(&exec(&client, "echo in").await);
    assert_eq!(sshd.failed_auth_count(), 0, "{}", sshd.log());
}

#[tokio::test]
async fn f23_dsa_key_that_the_host_does_not_take_is_refused_cleanly() {
    let folder = TempDir::new().unwrap();
    let (kind, format) = (KeyType::Dsa, KeyFormat::OpenSsh);
    let Some(key) = ClientKey::generate(folder.path(), "id", kind, format, None) else {
        return;
    };
    let sshd = Sshd::builder().authorize(&key).start();
    let more = json!({"key_file": key.private_path()});
    let client = serve(&[with(entry("box", &sshd), more)]).await;
    let reply = exec(&client, "echo in").await;
    assert_auth_failed(&reply);
    let path = key.private_path().display().to_string();
    assert!(reply.text.contains(&path), "{}", reply.text);
    assert_eq!(sshd.accepted_auth_count(), 0);
}

/// A key file that must not be used, or cannot be.
#[derive(Debug, Clone, Copy, PartialEq)]
enum BadKey {
    Exposed,
    LinkToExposed,
    Foreign,
    Encrypted,
    EncryptedPkcs8,
    EncryptedPem,
    WrongPassphrase,
    WrongPassphrasePem,
    WrongPassphrasePkcs8,
    VeryOldScheme,
    Garbage,
    PublicHalf,
    Empty,
    Missing,
    Directory,
    Pipe,
    TooLarge,
}

fn make_bad_key(folder: &Path, what: BadKey) -> Option<Value> {
    let (format, passphrase) = match what {
        BadKey::Encrypted | BadKey::WrongPassphrase => (KeyFormat::OpenSsh, Some(PASSPHRASE)),
        BadKey::EncryptedPkcs8 | BadKey::WrongPassphrasePkcs8 => {
            (KeyFormat::Pkcs8, Some(PASSPHRASE))
        }
        BadKey::VeryOldScheme => (KeyFormat::Pkcs8, None),
        BadKey::EncryptedPem | BadKey::WrongPassphrasePem => (KeyFormat::Pem, Some(PASSPHRASE)),
        _ => (KeyFormat::OpenSsh, None),
    };
    let key = ClientKey::generate(folder, "id", KeyType::Ecdsa, format, passphrase)?;
    let path = key.private_path();
    let mut more = json!({"key_file": path});
    let replace = |content: &[u8]| fs::write(path, content).unwrap();
    let expose = || fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    match what {
        BadKey::Exposed => expose(),
        BadKey::LinkToExposed => {
            expose();
            let link = folder.join("link");
            std::os::unix::fs::symlink(path, &link).unwrap();
            more["key_file"] = json!(link);
        }
        BadKey::Foreign => std::os::unix::fs::chown(path, Some(12345), None).unwrap(),
        BadKey::WrongPassphrase | BadKey::WrongPassphrasePem | BadKey::WrongPassphrasePkcs8 => {
            more["key_passphrase"] = json!(WRONG);
        }
        BadKey::Garbage => replace(&[0xff, 0x00, b'c', b'a', b'n', b'a', b'r', b'y']),
        BadKey::PublicHalf => replace(key.public_line().as_bytes()),
        BadKey::Empty => replace(b""),
        BadKey::Missing => fs::remove_file(path).unwrap(),
        BadKey::Directory => {
            fs::remove_file(path).unwrap();
            fs::create_dir(path).unwrap();
        }
        BadKey::Pipe => {
            fs::remove_file(path).unwrap();
            assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
        }
        BadKey::TooLarge => replace(&vec![b'A'; 300 << 10]),
        BadKey::VeryOldScheme => seal_in_the_oldest_way(path, &mut more),
        BadKey::Encrypted | BadKey::EncryptedPkcs8 | BadKey::EncryptedPem => {}
    }
    Some(more)
}

/// Seals a key as OpenSSL did before PBES2.
fn seal_in_the_oldest_way(path: &Path, more: &mut Value) {
    let sealed = Command::new("openssl")
        .args(["pkcs8", "-topk8", "-v1", "PBE-SHA1-3DES", "-passout"])
        .arg(format!("pass:{PASSPHRASE}"))
        .arg("-in")
        .arg(path)
        .output()
        .unwrap();
    assert!(sealed.status.success(), "{sealed:?}");
    fs::write(path, sealed.stdout).unwrap();
    more["key_passphrase"] = json!(PASSPHRASE);
}

#[rstest]
#[case(BadKey::Exposed, "0600")]
#[case(BadKey::LinkToExposed, "0600")]
#[case(BadKey::Foreign, "0600")]
#[case(BadKey::Encrypted, "key_passphrase")]
#[case(BadKey::EncryptedPkcs8, "key_passphrase")]
#[case(BadKey::EncryptedPem, "key_passphrase")]
#[case(BadKey::WrongPassphrase, "cannot be opened with its `key_passphrase`")]
#[case(
    BadKey::WrongPassphrasePem,
    "cannot be opened with its `key_passphrase`"
)]
#[case(
    BadKey::WrongPassphrasePkcs8,
    "cannot be opened with its `key_passphrase`"
)]
#[case(BadKey::VeryOldScheme, "ssh-keygen -p")]
#[case(BadKey::Garbage, "no private key")]
#[case(BadKey::PublicHalf, "no private key")]
#[case(BadKey::Empty, "no private key")]
#[case(BadKey::Missing, "does not exist")]
#[case(BadKey::Directory, "directory")]
#[case(BadKey::Pipe, "pipe")]
#[case(BadKey::TooLarge, "larger")]
#[tokio::test]
async fn f23_unusable_key_file_is_named_with_the_reason(#[case] what: BadKey, #[case] said: &str) {
    if what == BadKey::Foreign && !process::is_root() {
        skip("needs root: a file of another user");
        return;
    }
    let sshd = Sshd::start();
    let folder = TempDir::new().unwrap();
    let Some(more) = make_bad_key(folder.path(), what) else {
        return;
    };
    let path = more["key_file"].as_str().unwrap().to_owned();
    let client = serve(&[with(entry("box", &sshd), more)]).await;
    let begun = Instant::now();
    let reply = exec(&client, "true").await;
    assert!(begun.elapsed() < Duration::from_secs(8));
    assert_auth_failed(&reply);
    assert!(reply.text.contains(&path), "{}", reply.text);
    assert!(reply.text.contains(said), "{}", reply.text);
    assert_eq!(client.stdout_violations(), Vec::<String>::new());
    assert!(client.server_requests().is_empty(), "nobody is asked");
    assert_eq!(sshd.accepted_auth_count() + sshd.failed_auth_count(), 0);
}

#[tokio::test]
async fn f23_linked_key_with_the_right_mode_is_used() {
    let sshd = Sshd::start();
    let folder = TempDir::new().unwrap();
    let link = folder.path().join("id");
    std::os::unix::fs::symlink(sshd.client_key_path(), &link).unwrap();
    let client = serve(&[with(entry("box", &sshd), json!({"key_file": link}))]).await;
    assert_logged_in(&exec(&client, "echo in").await);
}
