//! Many files, deep trees and files with holes (f64), and links that change their keys (f15).

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use remote_sandbox_testkit::{Sshd, wait_until};
use rstest::rstest;
use serde_json::json;

use super::stage::{LIMIT, Random, Stage, Way};

/// What the whole program may use at most, in kB.
const MOST_MEMORY: u64 = 60_000;

/// What the program itself takes of that when it is built for use; the one that tests start is several times as large.
const PROGRAM_MEMORY: u64 = 20_000;

fn memory_kb(pid: u32, what: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(what));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.unwrap().parse().unwrap()
}

fn peak_kb(pid: u32) -> u64 {
    memory_kb(pid, "VmHWM:")
}

/// The program has used no more than it may, whatever its own size is as it was built.
fn assert_little_memory(stage: &Stage) {
    let pid = stage.client.pid();
    let own = peak_kb(pid).saturating_sub(memory_kb(pid, "RssFile:"));
    assert!(own < MOST_MEMORY - PROGRAM_MEMORY, "{own} kB of its own");
}

fn plant(root: &Path, files: usize) {
    for folder in 0..files / 100 {
        let folder = root.join(format!("d{}/e{folder}", folder % 10));
        fs::create_dir_all(&folder).unwrap();
        for file in 0..100 {
            fs::write(folder.join(format!("file number {file}")), file.to_string()).unwrap();
        }
    }
}

fn sent(way: Way) -> &'static str {
    match way {
        Way::Up => "uploaded_files",
        Way::Down => "downloaded_files",
    }
}

async fn many_files(way: Way, files: usize) {
    let stage = Stage::with_large_calls().await;
    plant(stage.source(way), files);
    let call = stage.begin(way, json!({})).await;
    let limit = Duration::from_secs(900);
    let reply = stage.client.wait_tool_reply(call, limit).await.unwrap();
    assert_eq!(reply.json[sent(way)], files, "{}", reply.text);
    assert_eq!(reply.json["problem_count"], 0, "{}", reply.text);
    let again = stage.sync(way, json!({})).await;
    assert_eq!(again[sent(way)], 0, "{again}");
    assert_eq!(again["skipped_files"], files, "{again}");
    assert_eq!(again["revision"], reply.json["revision"]);
    assert_little_memory(&stage);
    let chmod = Command::new("chmod")
        .args(["-R", "go-rwx"])
        .arg(stage.source(way))
        .status();
    assert!(chmod.unwrap().success());
    let dressed = stage.sync(way, json!({})).await;
    assert_eq!(dressed[sent(way)], 0, "{dressed}");
    assert_eq!(dressed["problem_count"], 0, "{dressed}");
    assert_little_memory(&stage);
    stage.assert_same();
}

#[rstest]
#[case::up(Way::Up)]
#[case::down(Way::Down)]
#[tokio::test(flavor = "multi_thread")]
async fn f64_twenty_thousand_files_are_synced_in_bounded_memory_and_sent_once(#[case] way: Way) {
    many_files(way, 20_000).await;
}

#[rstest]
#[case::up(Way::Up)]
#[case::down(Way::Down)]
#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: very long paths"]
async fn f64_paths_of_three_thousand_bytes_are_synced_in_bounded_memory(#[case] way: Way) {
    let stage = Stage::with_large_calls().await;
    let deep = vec!["n".repeat(250); 12].join("/");
    let folder = stage.source(way).join(&deep);
    fs::create_dir_all(&folder).unwrap();
    let files = 8000;
    for file in 0..files {
        fs::write(folder.join(format!("file number {file}")), "1").unwrap();
    }
    let call = stage.begin(way, json!({})).await;
    let limit = Duration::from_secs(300);
    let reply = stage.client.wait_tool_reply(call, limit).await.unwrap();
    assert_eq!(reply.json[sent(way)], files, "{}", reply.text);
    assert_eq!(reply.json["problem_count"], 0, "{}", reply.text);
    let again = stage.sync(way, json!({})).await;
    assert_eq!(again["skipped_files"], files, "{again}");
    assert_little_memory(&stage);
    stage.assert_same();
}

#[rstest]
#[case::up(Way::Up)]
#[case::down(Way::Down)]
#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: two hundred thousand files"]
async fn f64_two_hundred_thousand_files_are_synced_in_bounded_memory_and_sent_once(
    #[case] way: Way,
) {
    many_files(way, 200_000).await;
}

#[rstest]
#[case::up(Way::Up)]
#[case::down(Way::Down)]
#[tokio::test(flavor = "multi_thread")]
async fn f64_tree_of_a_thousand_levels_arrives(#[case] way: Way) {
    let stage = Stage::new().await;
    let deep = vec!["d"; 1000].join("/");
    fs::create_dir_all(stage.source(way).join(&deep)).unwrap();
    stage.write(way, &format!("{deep}/bottom"), "1");
    // More directories than files go within one call.
    let done = stage.sync(way, json!({})).await;
    assert_eq!(done["problem_count"], 0, "{done}");
    stage.assert_same();
    let again = stage.sync(way, json!({})).await;
    assert_eq!(again[sent(way)], 0, "{again}");
}

#[rstest]
#[case::up(Way::Up)]
#[case::down(Way::Down)]
#[tokio::test(flavor = "multi_thread")]
async fn f64_call_that_is_cancelled_ends_within_two_seconds_and_the_next_one_leaves_nothing_unfinished(
    #[case] way: Way,
) {
    let stage = Stage::with_large_calls().await;
    for number in 0..300 {
        let bytes = Random::new(number).bytes(40_000);
        stage.write(way, &format!("d{}/f{number}", number % 5), bytes);
    }
    stage.proxy.trickle(Some(2_000_000));
    let call = stage.begin(way, json!({})).await;
    let before = stage
        .proxy
        .bytes(remote_sandbox_testkit::Direction::ToServer)
        + stage
            .proxy
            .bytes(remote_sandbox_testkit::Direction::ToClient);
    let moves = || {
        let now = stage
            .proxy
            .bytes(remote_sandbox_testkit::Direction::ToServer)
            + stage
                .proxy
                .bytes(remote_sandbox_testkit::Direction::ToClient);
        now > before + 2_000_000
    };
    assert!(wait_until(LIMIT, moves).await);
    stage.client.cancel(call).await;
    let began = Instant::now();
    stage.proxy.trickle(None);
    let source = super::stage::contents(stage.source(way));
    for (name, content) in super::stage::contents(stage.target(way)) {
        assert!(source.get(&name) == Some(&content), "{}", name.display());
    }
    // The target is free again once it has ended, and what it left goes with the next sync at the latest.
    loop {
        let reply = stage.call(way, json!({})).await;
        if !reply.is_error {
            break;
        }
        assert_eq!(reply.json["code"], "busy", "{}", reply.text);
        assert!(began.elapsed() < Duration::from_secs(2), "still at work");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stage.assert_same();
}

#[rstest]
#[case::up(Way::Up)]
#[case::down(Way::Down)]
#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: a file of two gibibytes"]
async fn f64_file_of_two_gibibytes_with_holes_arrives_in_bounded_memory(#[case] way: Way) {
    file_with_holes(way, (2 << 30) + 4097, Duration::from_secs(900)).await;
}

#[rstest]
#[case::up(Way::Up)]
#[case::down(Way::Down)]
#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: a file of twenty gibibytes"]
async fn f64_file_of_twenty_gibibytes_with_holes_arrives_in_bounded_memory(#[case] way: Way) {
    file_with_holes(way, (20 << 30) + 4097, Duration::from_secs(1100)).await;
}

/// How many bytes are free for files of tests.
pub(super) fn free_bytes() -> u64 {
    let about = rustix::fs::statvfs(std::env::temp_dir()).unwrap();
    about.f_bavail * about.f_frsize
}

async fn file_with_holes(way: Way, size: u64, limit: Duration) {
    use std::os::unix::fs::FileExt;
    // What was a hole may have its blocks when it has arrived.
    if free_bytes() < size + (1 << 30) {
        eprintln!(
            "skipped: {} bytes are free, and {size} may arrive",
            free_bytes()
        );
        return;
    }
    let stage = Stage::with_large_calls().await;
    fs::create_dir_all(stage.source(way)).unwrap();
    let file = fs::File::create(stage.source(way).join("holes")).unwrap();
    file.set_len(size).unwrap();
    for at in [0, 1 << 31, size - 3] {
        file.write_all_at(b"end", at).unwrap();
    }
    let call = stage.begin(way, json!({})).await;
    let reply = stage.client.wait_tool_reply(call, limit).await.unwrap();
    assert_eq!(reply.json[sent(way)], 1, "{}", reply.text);
    assert_little_memory(&stage);
    let same = std::process::Command::new("cmp")
        .arg(stage.here.join("holes"))
        .arg(stage.there.join("holes"))
        .status();
    assert!(same.unwrap().success());
}

async fn file_under_new_keys(way: Way, size: usize) {
    let host = Sshd::builder().extra_config("RekeyLimit 1M");
    let variables = [("REMOTE_SANDBOX_INLINE_SYNC_MAX_BYTES", "1000000000000")];
    let stage = Stage::with(host, json!({}), &variables).await;
    stage.write(way, "large", Random::new(15).bytes(size));
    let call = stage.begin(way, json!({})).await;
    let limit = Duration::from_secs(900);
    let reply = stage.client.wait_tool_reply(call, limit).await.unwrap();
    assert_eq!(reply.json[sent(way)], 1, "{}", reply.text);
    assert_eq!(reply.json["problem_count"], 0, "{}", reply.text);
    stage.assert_same();
    assert_eq!(stage.sshd.accepted_auth_count(), 1, "one connection did it");
}

#[rstest]
#[case::up(Way::Up)]
#[case::down(Way::Down)]
#[tokio::test(flavor = "multi_thread")]
async fn f15_large_file_arrives_while_new_keys_are_agreed_on_all_the_time(#[case] way: Way) {
    file_under_new_keys(way, 20 << 20).await;
}

#[rstest]
#[case::up(Way::Up)]
#[case::down(Way::Down)]
#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: new keys for two hundred mebibytes"]
async fn f15_two_hundred_mebibytes_arrive_while_new_keys_are_agreed_on_all_the_time(
    #[case] way: Way,
) {
    file_under_new_keys(way, 200 << 20).await;
}
