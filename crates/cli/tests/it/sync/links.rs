//! A directory of this machine that becomes a link while a download works (f57).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rstest::rstest;
use serde_json::json;

use super::{Pair, snapshot};
use crate::files::{Kind, write};

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test(flavor = "multi_thread")]
async fn f57_directory_swapped_for_a_link_leads_no_download_outside(#[case] kind: Kind) {
    swap_while_downloading(kind, 15, 51).await;
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: ten thousand swaps"]
async fn f57_directory_swapped_ten_thousand_times_leads_no_download_outside(#[case] kind: Kind) {
    swap_while_downloading(kind, 150, 10_000).await;
}

/// Downloads at least so often, and until a directory of the target was swapped for a link so often.
async fn swap_while_downloading(kind: Kind, downloads: u64, swaps: u64) {
    let pair = Pair::new(kind).await;
    let outside = pair.ground.client().home().join("outside");
    write(&outside.join("f0"), "untouched");
    let before = snapshot(&outside);
    for number in 0..150 {
        pair.write_there(&format!("d/f{number}"), number.to_string());
    }
    pair.down(json!({})).await;
    let swapper = Swapper::start(pair.here.clone(), outside.clone());
    let end = Instant::now() + Duration::from_secs(600);
    let mut round = 0;
    while round < downloads || swapper.swaps() < swaps {
        assert!(
            Instant::now() < end,
            "{} swaps in {round} downloads",
            swapper.swaps()
        );
        round += 1;
        for number in 0..150 {
            pair.write_there(&format!("d/f{number}"), format!("{round} {number}"));
        }
        // What it comes to does not matter here.
        let more =
            json!({"overwrite": true, "delete_extras": round % 2 == 0, "confirm_delete": 150});
        pair.call_down(more).await;
    }
    drop(swapper);
    assert_eq!(snapshot(&outside), before);
    if pair.here.join("aside").exists() {
        fs::remove_dir_all(pair.here.join("aside")).unwrap();
    }
    let done = pair.down(json!({"overwrite": true})).await;
    assert_eq!(done["problem_count"], 0, "{done}");
    pair.assert_same();
}

/// Swaps a directory for a link that leads outside, and back, until it is dropped.
struct Swapper {
    stop: Arc<AtomicBool>,
    swaps: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Swapper {
    fn start(here: PathBuf, outside: PathBuf) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let swaps = Arc::new(AtomicU64::new(0));
        let thread = {
            let (stop, swaps) = (stop.clone(), swaps.clone());
            std::thread::spawn(move || {
                let (place, aside) = (here.join("d"), here.join("aside"));
                while !stop.load(Ordering::Relaxed) {
                    let _ = fs::rename(&place, &aside);
                    let _ = symlink(&outside, &place);
                    std::thread::yield_now();
                    let _ = fs::remove_file(&place);
                    let _ = fs::rename(&aside, &place);
                    swaps.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        Swapper {
            stop,
            swaps,
            thread: Some(thread),
        }
    }

    fn swaps(&self) -> u64 {
        self.swaps.load(Ordering::Relaxed)
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn f57_link_in_the_place_of_a_directory_or_a_file_is_not_written_through(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    let outside = pair.ground.client().home().join("outside");
    write(&outside.join("a"), "untouched");
    pair.write_there("d/a", "new");
    pair.write_there("f", "new");
    symlink(&outside, pair.here.join("d")).unwrap();
    symlink(outside.join("a"), pair.here.join("f")).unwrap();
    let reply = pair
        .call_down(json!({"overwrite": true, "delete_extras": true}))
        .await;
    assert_eq!(snapshot(&outside).len(), 1);
    assert_eq!(
        fs::read(outside.join("a")).unwrap(),
        b"untouched",
        "{}",
        reply.text
    );
    assert!(!pair.here.join("f").is_symlink(), "{}", reply.text);
    assert_eq!(fs::read(pair.here.join("f")).unwrap(), b"new");
}

#[tokio::test]
async fn f56_followed_links_that_lead_in_a_circle_or_nowhere_are_each_told_once() {
    let pair = Pair::new(Kind::Ssh).await;
    pair.write("d/a", "1");
    symlink("..", pair.here.join("d/up")).unwrap();
    symlink("self", pair.here.join("self")).unwrap();
    symlink("nowhere", pair.here.join("dangling")).unwrap();
    let done = pair.up(json!({"follow_links": true})).await;
    assert_eq!(done["problem_count"], 3, "{done}");
    let told = super::problems(&done);
    assert!(told["d/up"].contains("leads back"), "{done}");
    assert!(told.contains_key("self") && told.contains_key("dangling"));
}

#[rstest::rstest]
#[case::built_in("node_modules", json!({}))]
#[case::own_rule("build", json!({"excludes": ["build/"]}))]
#[tokio::test]
async fn f67_followed_link_to_a_directory_is_left_out_like_a_directory(
    #[case] name: &str,
    #[case] rules: serde_json::Value,
    #[values(true, false)] is_up: bool,
) {
    let pair = Pair::new(Kind::Ssh).await;
    let source = if is_up { &pair.here } else { &pair.there };
    crate::files::write(&source.join("real/x"), "1");
    symlink("real", source.join(name)).unwrap();
    symlink("real", source.join("wanted")).unwrap();
    let more = crate::support::with(json!({"follow_links": true}), rules);
    let done = match is_up {
        true => pair.up(more).await,
        false => pair.down(more).await,
    };
    assert_eq!(done["problem_count"], 0, "{done}");
    assert!(done["revision"].is_string(), "{done}");
    let target = if is_up { &pair.there } else { &pair.here };
    assert_eq!(fs::read(target.join("wanted/x")).unwrap(), b"1");
    assert!(!target.join(name).exists(), "{done}");
}
