//! Several who send to the same place at the same time.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use remote_sandbox_testkit::{FaultProxy, McpClient, Sshd, ToolReply, wait_until};
use rstest::rstest;
use serde_json::json;

use super::stage::{LIMIT, Random, unfinished};
use crate::support::{builder, entry_via, ready, serve};

const SIZE: usize = 20_000_000;

/// Writes a file that looks like the others of its kind and holds something else.
fn write_alike(client: &McpClient, folder: &str, seed: u64) -> (PathBuf, Vec<u8>) {
    let folder = client.home().join(folder);
    fs::create_dir_all(&folder).unwrap();
    let (path, content) = (folder.join("large"), Random::new(seed).bytes(SIZE));
    fs::write(&path, &content).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let file = File::options().write(true).open(&path).unwrap();
    file.set_modified(time).unwrap();
    (folder, content)
}

async fn push(client: &McpClient, sandbox: &str, here: &Path) -> ToolReply {
    let arguments = json!({"sandbox_name": sandbox, "local_path": here, "remote_path": "copy"});
    let tool = "sync_local_to_remote";
    client.try_call_tool(tool, arguments, LIMIT).await.unwrap()
}

/// Waits until a large file is on its way.
async fn is_under_way(there: &Path) -> bool {
    let some = |path: &PathBuf| path.metadata().is_ok_and(|found| found.len() > 1_000_000);
    wait_until(LIMIT, || unfinished(there).iter().any(some)).await
}

#[rstest]
#[case::two_entries(false)]
#[case::two_homes(true)]
#[tokio::test(flavor = "multi_thread")]
async fn large_file_is_never_a_mixture_of_two_that_are_sent_at_the_same_time(
    #[case] has_two_homes: bool,
) {
    let sshd = Sshd::start();
    let proxy = FaultProxy::start(sshd.port()).await;
    let slow = entry_via("slow", &sshd, proxy.port());
    // By another port, so that nobody can know that it is the same host.
    let fast = entry_via("fast", &sshd, sshd.port());
    let one = serve(&[slow.clone(), fast.clone()]).await;
    let other = match has_two_homes {
        true => Some(serve(&[slow, fast]).await),
        false => None,
    };
    let other = other.as_ref().unwrap_or(&one);
    let (here, content) = write_alike(&one, "one", 1);
    let (here_too, content_too) = write_alike(other, "other", 2);
    let there = sshd.dir().join("home/copy");
    proxy.trickle(Some(6_000_000));
    let first = push(&one, "slow", &here);
    let second = async {
        assert!(is_under_way(&there).await);
        push(other, "fast", &here_too).await
    };
    for reply in <[ToolReply; 2]>::from(tokio::join!(first, second)) {
        assert!(!reply.is_error, "{}", reply.text);
        assert_eq!(reply.json["problem_count"], 0, "{}", reply.text);
        assert_eq!(reply.json["uploaded_files"], 1, "{}", reply.text);
    }
    let arrived = fs::read(there.join("large")).unwrap();
    assert!(
        arrived == content || arrived == content_too,
        "it is a mixture"
    );
    assert_eq!(unfinished(&there), [""; 0].map(PathBuf::from));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_names_of_one_host_are_one_target() {
    let sshd = Sshd::start();
    let proxy = FaultProxy::start(sshd.port()).await;
    let entry = |name: &str| entry_via(name, &sshd, proxy.port());
    let client = ready(builder(&[entry("one"), entry("other")]).start()).await;
    let (here, _) = write_alike(&client, "one", 1);
    let (here_too, _) = write_alike(&client, "other", 2);
    let there = sshd.dir().join("home/copy");
    proxy.trickle(Some(1_500_000));
    let first = push(&client, "one", &here);
    let second = async {
        assert!(is_under_way(&there).await);
        push(&client, "other", &here_too).await
    };
    tokio::select! {
        reply = first => panic!("it ended first: {}", reply.text),
        reply = second => {
            assert!(reply.is_error, "{}", reply.text);
            assert_eq!(reply.json["code"], "busy", "{}", reply.text);
        }
    }
}
