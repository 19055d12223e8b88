//! Files that change while they are synced (f62).

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use remote_sandbox_testkit::{Direction, wait_until};
use rstest::rstest;
use serde_json::json;

use super::stage::{LIMIT, Random, Stage, Way, contents};
use super::{Pair, problems};
use crate::files::Kind;

/// Writes a file anew all the time until it is dropped.
struct Writer {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Writer {
    /// Every version is one byte repeated, so that a mixture of two can be told.
    fn start(file: std::path::PathBuf, size: usize, pause: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let stop = stop.clone();
            std::thread::spawn(move || {
                let mut byte = 0_u8;
                while !stop.load(Ordering::Relaxed) {
                    byte = byte.wrapping_add(1);
                    fs::write(&file, vec![byte; size]).unwrap();
                    std::thread::sleep(pause);
                }
            })
        };
        Writer {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[rstest]
#[case::small_up(Way::Up, 200_000)]
#[case::large_up(Way::Up, 9_000_000)]
#[case::small_down(Way::Down, 200_000)]
#[case::large_down(Way::Down, 9_000_000)]
#[tokio::test(flavor = "multi_thread")]
async fn f62_file_that_changes_while_it_is_read_is_told_or_arrives_and_the_next_sync_has_it(
    #[case] way: Way,
    #[case] size: usize,
) {
    let stage = Stage::new().await;
    stage.write(way, "busy", vec![0; size]);
    stage.write(way, "calm", "1");
    stage.sync(way, json!({})).await;
    stage.write(way, "calm", "22");
    let writer = Writer::start(
        stage.source(way).join("busy"),
        size,
        Duration::from_millis(3),
    );
    for _ in 0..4 {
        let reply = stage.call(way, json!({})).await;
        assert!(!reply.is_error, "{}", reply.text);
        let revision = &reply.json["revision"];
        let told = problems(&reply.json);
        assert!(
            revision.is_string() || told.contains_key("busy"),
            "{}",
            reply.text
        );
        let now = contents(stage.target(way));
        assert_eq!(now[std::path::Path::new("calm")], b"22");
        let busy = &now[std::path::Path::new("busy")];
        assert!(
            busy.windows(2).all(|two| two[0] == two[1]),
            "a mixture of two versions stands there"
        );
    }
    drop(writer);
    let done = stage.sync(way, json!({})).await;
    assert_eq!(done["problem_count"], 0, "{done}");
    stage.assert_same();
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn f62_times_in_the_future_and_in_the_distant_past_are_kept_and_sent_once(
    #[case] kind: Kind,
) {
    let pair = Pair::new(kind).await;
    let now = SystemTime::now();
    let times = [
        now + Duration::from_secs(400 * 86_400),
        SystemTime::UNIX_EPOCH + Duration::from_nanos(1),
        SystemTime::UNIX_EPOCH - Duration::from_secs(1000),
        SystemTime::UNIX_EPOCH + Duration::from_secs(5_000_000_000),
    ];
    for (number, time) in times.into_iter().enumerate() {
        for (name, size) in [("small", 10), ("large", 8_400_000)] {
            let name = format!("{name}{number}");
            pair.write(&name, Random::new(number as u64).bytes(size));
            let file = fs::File::open(pair.here.join(&name)).unwrap();
            file.set_modified(time).unwrap();
        }
    }
    pair.up(json!({})).await;
    pair.assert_same();
    let again = pair.up(json!({})).await;
    assert_eq!(
        (&again["uploaded_files"], &again["skipped_files"]),
        (&json!(0), &json!(8))
    );
    let back = pair.down(json!({})).await;
    assert_eq!(back["downloaded_files"], 0, "{back}");
}

#[rstest]
#[case::up(Way::Up)]
#[case::down(Way::Down)]
#[tokio::test(flavor = "multi_thread")]
async fn f62_files_that_vanish_meanwhile_are_told_and_the_rest_arrives(#[case] way: Way) {
    let stage = Stage::with_large_calls().await;
    for number in 0..400 {
        stage.write(
            way,
            &format!("f{number}"),
            Random::new(number).bytes(20_000),
        );
    }
    stage.proxy.trickle(Some(4_000_000));
    let direction = match way {
        Way::Up => Direction::ToServer,
        Way::Down => Direction::ToClient,
    };
    let before = stage.proxy.bytes(direction);
    let call = stage.begin(way, json!({})).await;
    let moves = || stage.proxy.bytes(direction) > before + 1_000_000;
    assert!(wait_until(LIMIT, moves).await);
    for number in 300..400 {
        fs::remove_file(stage.source(way).join(format!("f{number}"))).unwrap();
    }
    let reply = stage.client.wait_tool_reply(call, LIMIT).await.unwrap();
    assert!(!reply.is_error, "{}", reply.text);
    let now = contents(stage.target(way));
    for (name, content) in contents(stage.source(way)) {
        assert!(now.get(&name) == Some(&content), "{}", name.display());
    }
    if now.len() < 400 {
        assert!(
            reply.json["problem_count"].as_u64() > Some(0),
            "{}",
            reply.text
        );
        assert!(reply.json["revision"].is_null(), "{}", reply.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f62_old_file_that_changes_while_it_is_read_never_stands_torn() {
    use std::os::unix::fs::FileExt as _;
    let size = 8_000_000;
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for (round, byte) in (0..3).zip(b'a'..) {
        let stage = Stage::with_large_calls().await;
        let path = stage.source(Way::Down).join("d/data");
        stage.write(Way::Down, "d/data", vec![byte; size]);
        stage.write(Way::Down, "calm", "1");
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_modified(old).unwrap();
        stage.proxy.trickle(Some(4_000_000));
        let before = stage.proxy.bytes(Direction::ToClient);
        let call = stage.begin(Way::Down, json!({})).await;
        let moves = || stage.proxy.bytes(Direction::ToClient) > before + 100_000 * (1 + round);
        assert!(wait_until(LIMIT, moves).await);
        file.write_all_at(&vec![b'!'; size], 0).unwrap();
        stage.proxy.trickle(None);
        let reply = stage.client.wait_tool_reply(call, LIMIT).await.unwrap();
        assert!(!reply.is_error, "{}", reply.text);
        let now = contents(stage.target(Way::Down));
        assert_eq!(now[std::path::Path::new("calm")], b"1");
        match now.get(std::path::Path::new("d/data")) {
            Some(content) => {
                let is_one = content.iter().all(|other| Some(other) == content.first());
                assert!(is_one, "the file stands torn");
            }
            None => assert!(
                problems(&reply.json).contains_key("d/data"),
                "{}",
                reply.text
            ),
        }
        stage.sync(Way::Down, json!({})).await;
        stage.assert_same();
    }
}

#[rstest]
#[case::up(Way::Up)]
#[case::down(Way::Down)]
#[tokio::test(flavor = "multi_thread")]
async fn f61_entry_that_changes_between_scan_and_deletion_is_kept_and_told(#[case] way: Way) {
    let stage = Stage::with_large_calls().await;
    stage.write(way, "large", Random::new(61).bytes(6_000_000));
    let target = stage.target(way).to_owned();
    for name in ["edited", "gone", "made-anew", "other/inner", "same"] {
        crate::files::write(&target.join(name), "1");
    }
    std::os::unix::fs::symlink("same", target.join("link")).unwrap();
    stage.proxy.trickle(Some(1_500_000));
    let direction = match way {
        Way::Up => Direction::ToServer,
        Way::Down => Direction::ToClient,
    };
    let before = stage.proxy.bytes(direction);
    // What is deleted goes last, so both scans are over and the deletion is not, while a file is under way.
    let call = stage.begin(way, json!({"delete_extras": true})).await;
    let moves = || stage.proxy.bytes(direction) > before + 1_000_000;
    assert!(wait_until(LIMIT, moves).await);
    fs::write(target.join("edited"), "22").unwrap();
    fs::rename(target.join("made-anew"), target.join("aside")).unwrap();
    fs::copy(target.join("aside"), target.join("made-anew")).unwrap();
    fs::remove_file(target.join("gone")).unwrap();
    fs::remove_file(target.join("link")).unwrap();
    std::os::unix::fs::symlink("large", target.join("link")).unwrap();
    fs::write(target.join("other/new"), "3").unwrap();
    stage.proxy.trickle(None);
    let reply = stage.client.wait_tool_reply(call, LIMIT).await.unwrap();
    assert!(!reply.is_error, "{}", reply.text);
    let told = problems(&reply.json);
    for name in ["edited", "link", "made-anew"] {
        assert_eq!(
            told[name], "not deleted: it was changed meanwhile",
            "{name}"
        );
    }
    assert!(told["other"].contains("empty"), "{told:?}");
    assert_eq!(told.len(), 4, "{told:?}");
    // Of those that were seen, two were still the same.
    assert_eq!(reply.json["deleted_files"], 2, "{}", reply.text);
    let left = contents(&target);
    let left: Vec<_> = left.keys().map(|path| path.display().to_string()).collect();
    assert_eq!(left, ["aside", "edited", "large", "made-anew", "other/new"]);
    assert!(target.join("link").is_symlink());
}
