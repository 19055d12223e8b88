//! What a sync that was cut leaves behind: a look alone removes none of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use remote_sandbox_testkit::Sshd;
use remote_sandbox_testkit::proxy::Direction;
use rstest::rstest;
use serde_json::json;

use super::stage::{Random, Stage, Way, unfinished};
use crate::watchdog::clocks::Clock;

/// What is unfinished in a tree, with how much of it there is.
fn left(root: &Path) -> Vec<(PathBuf, u64)> {
    let mut left: Vec<_> = unfinished(root)
        .into_iter()
        .map(|path| (path.clone(), fs::symlink_metadata(path).unwrap().len()))
        .collect();
    left.sort();
    left
}

/// Leaves something of another installation in a tree.
fn leave(root: &Path, digit: char) -> PathBuf {
    let path = root.join(format!(".rsmcp-sync-{}-0", digit.to_string().repeat(32)));
    fs::write(&path, "half").unwrap();
    path
}

/// Makes it two days old.
fn make_old(path: &Path) {
    let file = fs::File::options().write(true).open(path).unwrap();
    let then = SystemTime::now() - Duration::from_secs(2 * 24 * 3600);
    file.set_modified(then).unwrap();
}

#[rstest]
#[case::ahead("+3d")]
#[case::behind("-3d")]
#[tokio::test(flavor = "multi_thread")]
async fn f62_what_others_left_is_as_old_as_the_clock_of_the_host_says(#[case] skew: &str) {
    let Some(clock) = Clock::new() else {
        return;
    };
    clock.set(skew);
    let variables = clock.variables();
    let variables: Vec<_> = variables
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let stage = Stage::with(Sshd::builder(), json!({}), &variables).await;
    stage.write(Way::Up, "notes", "1");
    stage.sync(Way::Up, json!({})).await;
    let fresh = leave(&stage.there, 'a');
    let old = leave(&stage.there, 'b');
    make_old(&old);
    stage.write(Way::Up, "notes", "2, changed");
    stage.sync(Way::Up, json!({})).await;
    assert!(fresh.exists(), "somebody may still work on it");
    assert!(!old.exists(), "it is nobody's any more");
}

#[rstest]
#[case::up(Way::Up, Direction::ToServer)]
#[case::down(Way::Down, Direction::ToClient)]
#[tokio::test(flavor = "multi_thread")]
async fn f59_dry_run_removes_no_leftovers_on_either_side_and_the_sync_does(
    #[case] way: Way,
    #[case] towards: Direction,
) {
    let Some(clock) = Clock::new() else {
        return;
    };
    let variables = clock.variables();
    let mut variables: Vec<_> = variables
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    variables.push(("REMOTE_SANDBOX_INLINE_SYNC_MAX_BYTES", "1000000000000"));
    let stage = Stage::with(Sshd::builder(), json!({}), &variables).await;
    stage.write(way, "notes", "1");
    stage.sync(way, json!({})).await;
    stage.write(way, "weights", Random::new(7).bytes(40_000_000));
    stage.proxy.refuse().await;
    stage.proxy.cut_after(30_000_000, towards);
    let cut = stage.call(way, json!({})).await;
    assert_eq!(cut.json["code"], "link_lost", "{}", cut.text);
    stage.proxy.accept().await;
    stage.proxy.cut_after(u64::MAX, towards);
    for root in [&stage.here, &stage.there] {
        leave(root, 'a');
    }
    make_old(&leave(&stage.there, 'a'));
    // What lies here counts by when it was changed, which no program can set, so it is later now.
    clock.set("+2d");
    let before = (left(&stage.here), left(&stage.there));
    assert_eq!(before.0.len() + before.1.len(), 3, "{before:?}");
    for more in [
        json!({}),
        json!({"delete_extras": true}),
        json!({"checksum": true}),
    ] {
        let more = crate::support::with(more, json!({"dry_run": true}));
        let plan = stage.call(way, more).await;
        assert!(!plan.is_error, "{}", plan.text);
        assert!(!plan.text.contains(".rsmcp-sync-"), "{}", plan.text);
        assert_eq!((left(&stage.here), left(&stage.there)), before);
    }
    stage.sync(way, json!({})).await;
    assert_eq!(left(stage.target(way)), []);
    assert_eq!(left(&stage.here), []);
}
