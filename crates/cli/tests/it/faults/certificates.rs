//! Certificates on both sides: for users beside a key file, for hosts through `@cert-authority`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use remote_sandbox_testkit::keys::{ClientKey, KeyFormat, KeyType};
use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::users::TestUser;
use rstest::rstest;
use serde_json::json;
use tempfile::TempDir;

use super::credentials::{assert_auth_failed, assert_logged_in};
use crate::support::{entry, exec, serve, with};

fn key(folder: &Path, name: &str, kind: KeyType) -> ClientKey {
    ClientKey::generate(folder, name, kind, KeyFormat::OpenSsh, None).unwrap()
}

/// Certifies a key; the certificate lies beside it.
fn certify(authority: &ClientKey, key: &ClientKey, options: &[&str]) -> PathBuf {
    let done = Command::new("ssh-keygen")
        .args(["-q", "-I", "test", "-s"])
        .arg(authority.private_path())
        .args(options)
        .arg(key.public_path())
        .status();
    assert!(done.unwrap().success());
    PathBuf::from(format!("{}-cert.pub", key.private_path().display()))
}

#[rstest]
#[tokio::test]
async fn certificate_beside_the_key_file_logs_in(
    #[values(KeyType::Ed25519, KeyType::Ecdsa, KeyType::Rsa)] kind: KeyType,
) {
    let folder = TempDir::new().unwrap();
    let authority = key(folder.path(), "authority", KeyType::Ed25519);
    let user = key(folder.path(), "id", kind);
    certify(&authority, &user, &["-n", TestUser::current().name()]);
    let trusted = authority.public_path();
    let sshd = Sshd::builder()
        .extra_config(&format!("TrustedUserCAKeys {}", trusted.display()))
        .start();
    let more = json!({"key_file": user.private_path()});
    let client = serve(&[with(entry("box", &sshd), more)]).await;
    assert_logged_in(&exec(&client, "echo in").await);
    assert_eq!(sshd.failed_auth_count(), 0, "{}", sshd.log());
}

#[tokio::test]
async fn f22_expired_certificate_is_named_and_nothing_is_tried_twice() {
    let folder = TempDir::new().unwrap();
    let authority = key(folder.path(), "authority", KeyType::Ed25519);
    let user = key(folder.path(), "id", KeyType::Ed25519);
    let person = TestUser::current();
    let options = ["-n", person.name(), "-V", "-2d:-1d"];
    let certificate = certify(&authority, &user, &options);
    let sshd = Sshd::start();
    let more = json!({"key_file": user.private_path()});
    let client = serve(&[with(entry("box", &sshd), more)]).await;
    let reply = exec(&client, "echo in").await;
    assert_auth_failed(&reply);
    for word in [certificate.to_str().unwrap(), "expired at"] {
        assert!(reply.text.contains(word), "{}", reply.text);
    }
    assert_eq!(sshd.failed_auth_count(), 1, "{}", sshd.log());
    assert_eq!(sshd.connection_count(), 1);
}

#[rstest]
#[case::sound(&["-h", "-n", "127.0.0.1"], None)]
#[case::other_name(&["-h", "-n", "elsewhere"], Some("it is for elsewhere"))]
#[case::expired(&["-h", "-V", "-2d:-1d"], Some("has expired"))]
#[tokio::test]
async fn f19_certificate_of_the_host_counts_for_its_names_and_its_time(
    #[case] options: &[&str],
    #[case] refused: Option<&str>,
) {
    let folder = TempDir::new().unwrap();
    let authority = key(folder.path(), "authority", KeyType::Ed25519);
    let host = key(folder.path(), "host", KeyType::Ecdsa);
    let certificate = certify(&authority, &host, options);
    let sshd = Sshd::builder()
        .extra_config(&format!("HostKey {}", host.private_path().display()))
        .extra_config(&format!("HostCertificate {}", certificate.display()))
        .start();
    let known_hosts = folder.path().join("known_hosts");
    let line = format!("@cert-authority 127.0.0.1 {}\n", authority.public_line());
    fs::write(&known_hosts, line).unwrap();
    let more = json!({"known_hosts_files": [known_hosts]});
    let client = serve(&[with(entry("box", &sshd), more)]).await;
    let reply = exec(&client, "echo in").await;
    let Some(said) = refused else {
        assert_logged_in(&reply);
        return;
    };
    assert_eq!(reply.json["code"], "host_key_unknown", "{}", reply.text);
    assert!(reply.text.contains(said), "{}", reply.text);
    assert_eq!(sshd.accepted_auth_count() + sshd.failed_auth_count(), 0);
}
