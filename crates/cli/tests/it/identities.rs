//! Logins with what the user has anyway: agent, default keys, certificates, kept secrets.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use remote_sandbox_testkit::keys::ClientKey;
use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::users::TestUser;
use remote_sandbox_testkit::wait::wait_until_blocking;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::ssh_config::SshConfig;
use crate::support::{builder, exec, program, ready};

/// A real agent, ended with the test.
struct Agent {
    child: Child,
    socket: PathBuf,
}

impl Agent {
    fn with(folder: &TempDir, keys: &[&std::path::Path]) -> Self {
        let socket = folder.path().join("agent");
        let child = Command::new("ssh-agent")
            .args(["-D", "-a"])
            .arg(&socket)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // The socket is there a moment before anybody listens on it.
        let there = || std::os::unix::net::UnixStream::connect(&socket).is_ok();
        assert!(wait_until_blocking(Duration::from_secs(5), there));
        for key in keys {
            let added = Command::new("ssh-add")
                .arg(key)
                .env("SSH_AUTH_SOCK", &socket)
                .output()
                .unwrap();
            assert!(added.status.success(), "{added:?}");
        }
        Agent { child, socket }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An entry that names no credential.
fn bare(sshd: &Sshd) -> Value {
    json!({
        "name": "box",
        "host": "127.0.0.1",
        "port": sshd.port(),
        "user": TestUser::current().name(),
    })
}

#[tokio::test]
async fn entry_without_a_credential_logs_in_with_the_agent() {
    let (sshd, folder) = (Sshd::start(), TempDir::new().unwrap());
    let agent = Agent::with(&folder, &[sshd.client_key_path()]);
    let builder = builder(&[bare(&sshd)]).env("SSH_AUTH_SOCK", &agent.socket);
    let client = ready(builder.start()).await;
    let reply = exec(&client, "echo in").await;
    assert_eq!(reply.json["stdout"], "in\n", "{}", reply.text);
    assert_eq!(sshd.failed_auth_count(), 0, "{}", sshd.log());
}

#[tokio::test]
async fn entry_without_a_credential_logs_in_with_a_usual_key() {
    let (sshd, home) = (Sshd::start(), TempDir::new().unwrap());
    let folder = home.path().join(".ssh");
    std::fs::create_dir(&folder).unwrap();
    let key = folder.join("id_ed25519");
    std::fs::copy(sshd.client_key_path(), &key).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let builder = builder(&[bare(&sshd)]).home(home.path());
    let client = ready(builder.start()).await;
    let reply = exec(&client, "echo in").await;
    assert_eq!(reply.json["stdout"], "in\n", "{}", reply.text);
}

#[tokio::test]
async fn f22_entry_without_any_key_that_fits_is_refused_once_and_says_what_was_tried() {
    let (sshd, folder) = (Sshd::start(), TempDir::new().unwrap());
    let stranger = ClientKey::ed25519(folder.path(), "stranger");
    let agent = Agent::with(&folder, &[stranger.private_path()]);
    let builder = builder(&[bare(&sshd)]).env("SSH_AUTH_SOCK", &agent.socket);
    let client = ready(builder.start()).await;
    let reply = exec(&client, "true").await;
    assert_eq!(reply.json["code"], "auth_failed", "{}", reply.text);
    assert!(reply.text.contains("agent"), "{}", reply.text);
    assert!(sshd.failed_auth_count() <= 1, "{}", sshd.log());
}

#[tokio::test]
async fn f17_agent_is_not_used_at_a_host_whose_key_has_changed() {
    let (mut sshd, folder) = (Sshd::start(), TempDir::new().unwrap());
    let agent = Agent::with(&folder, &[sshd.client_key_path()]);
    let builder = builder(&[bare(&sshd)]).env("SSH_AUTH_SOCK", &agent.socket);
    let client = ready(builder.start()).await;
    exec(&client, "true").await;
    sshd.restart_with_new_host_key();
    let mut reply = exec(&client, "true").await;
    if reply.json["code"] == "link_lost" {
        reply = exec(&client, "true").await;
    }
    assert_eq!(reply.json["code"], "host_key_changed", "{}", reply.text);
    assert_eq!(sshd.failed_auth_count(), 0, "{}", sshd.log());
}

#[tokio::test]
async fn certificate_of_the_ssh_configuration_is_shown() {
    let folder = TempDir::new().unwrap();
    let authority = ClientKey::ed25519(folder.path(), "authority");
    let key = ClientKey::ed25519(folder.path(), "own");
    let signed = Command::new("ssh-keygen")
        .arg("-s")
        .arg(authority.private_path())
        .args(["-I", "test", "-n", TestUser::current().name()])
        .arg(key.public_path())
        .output()
        .unwrap();
    assert!(signed.status.success(), "{signed:?}");
    // Not beside its key, so that only the configuration can name it.
    let certificate = folder.path().join("elsewhere.pub");
    std::fs::rename(folder.path().join("own-cert.pub"), &certificate).unwrap();
    let trusted = format!("TrustedUserCAKeys {}", authority.public_path().display());
    let sshd = Sshd::builder().extra_config(&trusted).start();
    let line = format!("CertificateFile {}", certificate.display());
    let config = SshConfig::new().host_at("target", sshd.port(), key.private_path(), &[&line]);
    let client = config.serve().await;
    let reply = exec(&client, "echo in").await;
    assert_eq!(reply.json["stdout"], "in\n", "{}", reply.text);
    assert!(sshd.log().contains("ED25519-CERT"), "{}", sshd.log());
}

#[tokio::test]
async fn kept_password_logs_in_and_stands_in_no_file_but_its_own() {
    let Some(user) = TestUser::builder().password("kept-canary-4711").create() else {
        return;
    };
    let sshd = Sshd::builder().user(&user).password_auth().start();
    let home = TempDir::new().unwrap();
    let mut keeping = Command::new(program())
        .args(["secret", "set", "gpu-password", "--file"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", home.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = keeping.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, b"kept-canary-4711\n").unwrap();
    drop(input);
    assert!(keeping.wait().unwrap().success());
    let entry = json!({
        "name": "box",
        "host": "127.0.0.1",
        "port": sshd.port(),
        "user": user.name(),
        "password_secret": "gpu-password",
    });
    let client = ready(builder(&[entry]).home(home.path()).start()).await;
    let reply = exec(&client, "echo kept-canary-4711; id -un").await;
    let wanted = format!("[masked]\n{}\n", user.name());
    let shown = reply.json["stdout"].as_str().unwrap_or_default();
    assert!(
        !shown.contains("canary") && shown.ends_with(&wanted[8..]),
        "{}",
        reply.text
    );
    let holding: Vec<_> = crate::support::files_below(home.path())
        .into_iter()
        .filter(|(_, content)| String::from_utf8_lossy(content).contains("kept-canary"))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(holding.len(), 1, "{holding:?}");
}
