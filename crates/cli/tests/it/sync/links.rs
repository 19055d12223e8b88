//! A directory of this machine that becomes a link while a download works (f57).

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rstest::rstest;
use serde_json::json;

use super::{Pair, snapshot};
use crate::files::{Kind, write};

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test(flavor = "multi_thread")]
async fn f57_directory_swapped_for_a_link_leads_no_download_outside(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    let outside = pair.ground.client().home().join("outside");
    write(&outside.join("f0"), "untouched");
    let before = snapshot(&outside);
    for number in 0..150 {
        pair.write_there(&format!("d/f{number}"), number.to_string());
    }
    pair.down(json!({})).await;
    let stop = Arc::new(AtomicBool::new(false));
    let rounds = Arc::new(AtomicU64::new(0));
    let swapper = {
        let (stop, rounds) = (stop.clone(), rounds.clone());
        let (here, outside) = (pair.here.clone(), outside.clone());
        std::thread::spawn(move || {
            let (place, aside) = (here.join("d"), here.join("aside"));
            while !stop.load(Ordering::Relaxed) {
                let _ = fs::rename(&place, &aside);
                let _ = symlink(&outside, &place);
                std::thread::yield_now();
                let _ = fs::remove_file(&place);
                let _ = fs::rename(&aside, &place);
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    for round in 0..15 {
        for number in 0..150 {
            pair.write_there(&format!("d/f{number}"), format!("{round} {number}"));
        }
        // What it comes to does not matter here.
        let more =
            json!({"overwrite": true, "delete_extras": round % 2 == 0, "confirm_delete": 150});
        pair.call_down(more).await;
    }
    stop.store(true, Ordering::Relaxed);
    swapper.join().unwrap();
    assert!(rounds.load(Ordering::Relaxed) > 50, "{rounds:?} rounds");
    assert_eq!(snapshot(&outside), before);
    if pair.here.join("aside").exists() {
        fs::remove_dir_all(pair.here.join("aside")).unwrap();
    }
    let done = pair.down(json!({"overwrite": true})).await;
    assert_eq!(done["problem_count"], 0, "{done}");
    pair.assert_same();
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
