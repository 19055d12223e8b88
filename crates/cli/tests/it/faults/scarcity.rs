//! A host that has run out of something says so in its own words (f34).

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use remote_sandbox_testkit::mcp::McpClient;
use remote_sandbox_testkit::process;
use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::users::{Home, TestUser};
use remote_sandbox_testkit::wait::{skip, wait_until};
use rstest::rstest;
use serde_json::json;

use crate::support::{entry, exec, exec_with, one, serve, unique, with};

async fn account(home: Home) -> Option<(TestUser, Sshd, McpClient)> {
    let user = TestUser::builder().home(home).create()?;
    let sshd = Sshd::builder().user(&user).start();
    let client = serve(&[with(entry("box", &sshd), json!({"user": user.name()}))]).await;
    Some((user, sshd, client))
}

#[rstest]
#[case::memory("ulimit -v 60000; head -c 200M /dev/zero | tail", "memory exhausted")]
#[case::file_size(
    "cd \"$(mktemp -d)\" && ulimit -f 10 && trap '' XFSZ && head -c 1M /dev/zero >f",
    "File too large"
)]
#[case::descriptors("ulimit -n 10; exec 20>/dev/null", "Bad file descriptor")]
#[case::arguments("exec true $(seq 1 600000)", "Argument list too long")]
#[tokio::test]
async fn f34_command_that_meets_a_limit_tells_it_itself(
    #[case] command: &str,
    #[case] words: &str,
) {
    let (_sshd, client) = one().await;
    let reply = exec(&client, command).await;
    assert!(!reply.is_error);
    assert!(reply.json["exit_code"].as_u64() > Some(0), "{}", reply.text);
    assert!(
        reply.json["stderr"].as_str().unwrap().contains(words),
        "{}",
        reply.text
    );
}

#[tokio::test]
async fn f34_killed_for_memory_is_told_as_a_signal() {
    let (_sshd, client) = one().await;
    let reply = exec(&client, "echo begun; kill -KILL $$").await;
    assert_eq!(reply.json["signal"], "KILL", "{}", reply.text);
    assert!(reply.json["exit_code"].is_null());
    assert_eq!(reply.json["stdout"], "begun\n");
}

#[tokio::test]
async fn f34_variable_too_large_for_the_host_is_told_in_its_words() {
    let (_sshd, client) = one().await;
    let mark = client.home().join("ran");
    let command = format!("touch {}", mark.display());
    let reply = exec_with(
        &client,
        &command,
        json!({"env": {"BIG": "x".repeat(300_000)}}),
    )
    .await;
    assert!(reply.is_error, "{:.300}", reply.text);
    assert_eq!(reply.json["code"], "invalid_params");
    assert!(reply.text.contains("BIG"), "{:.300}", reply.text);
    assert!(!mark.exists());
}

#[tokio::test]
async fn f34_user_account_without_forks_left_is_refused_with_the_hosts_words() {
    let Some((user, _sshd, client)) = account(Home::Made).await else {
        return;
    };
    std::fs::write(user.home().join(".bashrc"), "ulimit -u 1\n").unwrap();
    let reply = exec(&client, "touch ~/ran").await;
    assert!(reply.is_error, "{}", reply.text);
    assert_eq!(reply.json["code"], "remote_refused");
    let error = reply.json["error"].as_str().unwrap();
    assert!(error.contains("fork"), "{error}");
    assert!(!user.home().join("ran").exists());
    let list = json!({"check_resources": true});
    let list = client.call_tool("list_sandboxes", list).await;
    assert_eq!(
        list.json["sandboxes"][0]["connection_alive"], true,
        "{}",
        list.text
    );
    std::fs::remove_file(user.home().join(".bashrc")).unwrap();
    assert_eq!(exec(&client, "echo on").await.json["stdout"], "on\n");
}

/// The living and the dead.
fn processes_of(user: &TestUser) -> Vec<u32> {
    let owner = |pid: &u32| std::fs::metadata(format!("/proc/{pid}")).map(|found| found.uid());
    let mut pids = process::all();
    pids.retain(|pid| owner(pid).is_ok_and(|uid| uid == user.uid()));
    pids
}

#[rstest]
#[case::plain("")]
#[case::ignores_term("trap '' TERM; ")]
#[tokio::test]
async fn f34_user_account_that_used_up_its_forks_is_ended_at_the_deadline(#[case] begin: &str) {
    let Some((user, _sshd, client)) = account(Home::Made).await else {
        return;
    };
    // The dead of an earlier account with the same number count too until somebody buries them.
    let nobody = || processes_of(&user).is_empty();
    assert!(wait_until(Duration::from_secs(10), nobody).await);
    std::fs::write(user.home().join(".bashrc"), "ulimit -u 14\n").unwrap();
    let sleep = format!("sleep 9143.{}", unique());
    let filled = format!("{begin}dash -c 'while :; do {sleep} & done'; {sleep}");
    let more = json!({"timeout_s": 2});
    let begun = Instant::now();
    let reply = exec_with(&client, &filled, more).await;
    let took = begun.elapsed();
    let left = process::with_command_line(&sleep);
    assert!(
        took < Duration::from_millis(6500),
        "{took:?}: {}",
        reply.text
    );
    assert_eq!(reply.json["timed_out"], true, "{}", reply.text);
    let words = reply.json["stderr"].as_str().unwrap();
    assert!(words.contains("Cannot fork"), "{words}");
    assert_eq!(left, Vec::<u32>::new(), "{}", reply.text);
    // The dead count until whoever inherited them has buried them.
    assert!(wait_until(Duration::from_secs(20), || processes_of(&user).len() < 8).await);
    let next = exec(&client, "echo on").await;
    assert_eq!(next.json["stdout"], "on\n", "{}", next.text);
}

/// A file system without any room left, gone when dropped.
pub(crate) struct FullDisk(PathBuf);

impl FullDisk {
    fn mount(at: &Path) -> Option<Self> {
        let disk = Self::with_room(at, "64k")?;
        disk.fill();
        Some(disk)
    }

    /// One that has this much room yet.
    pub(crate) fn with_room(at: &Path, room: &str) -> Option<Self> {
        if !process::is_root() {
            skip("needs root: a file system of its own");
            return None;
        }
        let mounted = Command::new("mount")
            .args([
                "-t",
                "tmpfs",
                "-o",
                &format!("size={room},mode=1777"),
                "testkit",
            ])
            .arg(at)
            .status();
        if !mounted.is_ok_and(|status| status.success()) {
            skip("file systems cannot be mounted here");
            return None;
        }
        Some(FullDisk(at.to_owned()))
    }

    /// Takes all the room.
    pub(crate) fn fill(&self) {
        let full = std::fs::write(self.0.join("filler"), vec![0; 16 << 20]);
        assert_eq!(full.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    }
}

impl Drop for FullDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

async fn assert_works_without_room(client: &McpClient) {
    let long = format!("{}cat; exit 6", "# padding padding\n".repeat(20_000));
    let input = "line\n".repeat(30_000);
    for command in ["cat; exit 6", &long] {
        for stdin in [input.as_str(), input.trim_end()] {
            let more = json!({"stdin": stdin, "max_output_chars": 200_000});
            let reply = exec_with(client, command, more).await;
            assert_eq!(reply.json["exit_code"], 6, "{:.300}", reply.text);
            assert_eq!(reply.json["stdout"], stdin);
        }
    }
    let sleep = format!("sleep 9144.{}", unique());
    let reply = exec_with(
        client,
        &format!("setsid {sleep} & {sleep}"),
        json!({"timeout_s": 1}),
    )
    .await;
    assert_eq!(reply.json["timed_out"], true);
    assert!(process::with_command_line(&sleep).is_empty());
    let list = json!({"check_resources": true});
    let list = client.call_tool("list_sandboxes", list).await;
    assert!(
        list.json["sandboxes"][0]["resources"].is_object(),
        "{}",
        list.text
    );
}

#[tokio::test]
async fn f34_full_disk_on_the_host_hinders_only_who_writes() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_disk) = FullDisk::mount(folder.path()) else {
        return;
    };
    let place = folder.path().to_str().unwrap();
    let sshd = Sshd::builder()
        .session_environment("TMPDIR", place)
        .session_environment("HOME", place)
        .start();
    let client = serve(&[entry("box", &sshd)]).await;
    let command = "cd \"$TMPDIR\" && head -c 100000 /dev/zero >new";
    let reply = exec(&client, command).await;
    assert_eq!(reply.json["exit_code"], 1, "{}", reply.text);
    let words = reply.json["stderr"].as_str().unwrap();
    assert!(words.contains("No space left on device"), "{words}");
    assert_works_without_room(&client).await;
}

#[tokio::test]
async fn f34_user_account_with_a_read_only_home_works() {
    let Some((user, _sshd, client)) = account(Home::ReadOnly).await else {
        return;
    };
    let reply = exec_with(&client, "pwd; touch here", json!({"cwd": "~"})).await;
    assert_eq!(reply.json["exit_code"], 1, "{}", reply.text);
    assert_eq!(reply.json["stdout"], format!("{}\n", user.home().display()));
    let words = reply.json["stderr"].as_str().unwrap();
    assert!(words.contains("Permission denied"), "{words}");
    assert_works_without_room(&client).await;
}
