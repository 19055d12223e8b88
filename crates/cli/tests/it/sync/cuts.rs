//! Syncs that are stopped in the middle: by the link, or with their process (f59).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use remote_sandbox_testkit::process;
use remote_sandbox_testkit::proxy::Direction;
use rstest::rstest;
use serde_json::json;

use super::stage::{LIMIT, Random, Stage, Way, contents, unfinished};

/// What is synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    /// One file of 20 MB.
    File,
    /// 500 files of 40 kB.
    Tree,
}

/// What stops it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Cut,
    KillServer,
    KillWorker,
}

/// Slow enough that the test can choose the moment.
const RATE: u64 = 40_000_000;

fn fill(stage: &Stage, way: Way, load: Load, version: u64) {
    let mut random = Random::new(version);
    match load {
        Load::File => stage.write(way, "weights", random.bytes(20_000_000)),
        Load::Tree => {
            for number in 0..500 {
                let name = format!("d{}/f{number}", number % 7);
                stage.write(way, &name, random.bytes(40_000));
            }
        }
    }
}

pub(super) fn towards(way: Way) -> Direction {
    match way {
        Way::Up => Direction::ToServer,
        Way::Down => Direction::ToClient,
    }
}

/// Waits until so many bytes more have passed, or the call is over.
async fn passed(stage: &Stage, way: Way, bytes: u64, is_over: impl Fn() -> bool) {
    let end = Instant::now() + LIMIT;
    while stage.proxy.bytes(towards(way)) < bytes && !is_over() {
        assert!(Instant::now() < end, "nothing passes any more");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Stops a sync when so many bytes have passed.
async fn sync_and_stop(stage: &mut Stage, way: Way, stop: Stop, bytes: u64) {
    match stop {
        Stop::Cut => {
            stage.proxy.cut_after(bytes.max(1), towards(way));
            let reply = stage.call(way, json!({})).await;
            // Cut so late, it may be that all of it had arrived.
            if reply.is_error {
                assert_eq!(reply.json["code"], "link_lost", "{}", reply.text);
            }
            stage.proxy.cut_after(u64::MAX, towards(way));
        }
        Stop::KillServer => {
            stage.proxy.trickle(Some(RATE));
            let wanted = stage.proxy.bytes(towards(way)) + bytes;
            let call = stage.begin(way, json!({})).await;
            passed(stage, way, wanted, || stage.client.has_reply(call)).await;
            stage.restart().await;
            stage.proxy.trickle(None);
        }
        Stop::KillWorker => {
            stage.proxy.trickle(Some(RATE));
            let wanted = stage.proxy.bytes(towards(way)) + bytes;
            let started = stage.call(way, json!({})).await;
            assert!(!started.is_error, "{}", started.text);
            let pid = u32::try_from(started.json["pid"].as_u64().unwrap()).unwrap();
            passed(stage, way, wanted, || !process::is_alive(pid)).await;
            process::kill_and_wait(&[pid]);
            stage.proxy.trickle(None);
            let task = started.json["task_id"].as_u64().unwrap();
            let now = stage.check(task).await;
            let is_stale = now["stale"] == true && now["running"] == false;
            assert!(is_stale || now["status"] == "completed", "{now}");
        }
    }
}

/// Under every name is the old file or the new one, and never a part of one.
fn assert_old_or_new(
    now: &BTreeMap<PathBuf, Vec<u8>>,
    old: &BTreeMap<PathBuf, Vec<u8>>,
    new: &BTreeMap<PathBuf, Vec<u8>>,
) {
    assert_eq!(now.len(), old.len(), "no file is missing and none is new");
    for (name, content) in now {
        let is_known = old.get(name) == Some(content) || new.get(name) == Some(content);
        assert!(is_known, "{} is neither old nor new", name.display());
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn f59_sync_that_is_stopped_anywhere_leaves_old_or_new_and_the_next_one_completes_it(
    #[values(Load::File, Load::Tree)] load: Load,
    #[values(Way::Up, Way::Down)] way: Way,
    #[values(Stop::Cut, Stop::KillServer, Stop::KillWorker)] stop: Stop,
) {
    let mut stage = match stop {
        Stop::KillWorker => Stage::in_background().await,
        Stop::Cut | Stop::KillServer => Stage::with_large_calls().await,
    };
    fill(&stage, way, load, 0);
    let before = stage.proxy.bytes(towards(way));
    stage.sync(way, json!({})).await;
    stage.assert_same();
    let all = stage.proxy.bytes(towards(way)) - before;
    for percent in [0, 1, 50, 99, 100] {
        println!("stopped at {percent} %");
        let old = contents(stage.target(way));
        fill(&stage, way, load, percent + 1);
        let new = contents(stage.source(way));
        sync_and_stop(&mut stage, way, stop, all * percent / 100).await;
        assert_old_or_new(&contents(stage.target(way)), &old, &new);
        stage.sync(way, json!({})).await;
        stage.assert_same();
    }
}

#[rstest]
#[case::up(Way::Up)]
#[case::down(Way::Down)]
#[tokio::test(flavor = "multi_thread")]
async fn f59_large_file_goes_on_where_it_was_cut(#[case] way: Way) {
    let stage = Stage::with_large_calls().await;
    stage.write(way, "notes", "1");
    stage.sync(way, json!({})).await;
    stage.write(way, "weights", Random::new(7).bytes(40_000_000));
    stage.proxy.refuse().await;
    stage.proxy.cut_after(30_000_000, towards(way));
    let cut = stage.call(way, json!({})).await;
    stage.proxy.accept().await;
    assert_eq!(cut.json["code"], "link_lost", "{}", cut.text);
    assert_eq!(cut.json["retry"], true, "{}", cut.text);
    let target = stage.target(way).join("weights");
    assert!(!target.exists(), "nothing has its name before it is whole");
    assert_eq!(unfinished(stage.target(way)).len(), 1);
    let before = stage.proxy.bytes(towards(way));
    stage.sync(way, json!({})).await;
    let more = stage.proxy.bytes(towards(way)) - before;
    assert!(more < 30_000_000, "{more} bytes went once more");
    stage.assert_same();
}

#[rstest]
#[case::up(Way::Up, "uploaded_files")]
#[case::down(Way::Down, "downloaded_files")]
#[tokio::test(flavor = "multi_thread")]
async fn f59_large_file_goes_on_by_itself_when_the_host_is_back_at_once(
    #[case] way: Way,
    #[case] count: &str,
) {
    let stage = Stage::with_large_calls().await;
    stage.write(way, "weights", Random::new(7).bytes(40_000_000));
    stage.write(way, "more-weights", Random::new(8).bytes(10_000_000));
    stage.proxy.cut_after(40_000_000, towards(way));
    let done = stage.sync(way, json!({})).await;
    assert_eq!(done["problem_count"], 0, "{done}");
    assert_eq!(done[count], 2, "{done}");
    let went = stage.proxy.bytes(towards(way));
    assert!(went < 75_000_000, "{went} bytes went for 50,000,000");
    assert!(stage.proxy.connections() > 1, "it was not cut");
    stage.assert_same();
}

#[rstest]
#[case::up(Way::Up)]
#[case::down(Way::Down)]
#[tokio::test]
async fn f59_what_nobody_came_back_for_goes_after_a_day_and_what_is_fresh_stays(#[case] way: Way) {
    let stage = Stage::new().await;
    stage.write(way, "a", "1");
    stage.sync(way, json!({})).await;
    let name = |digit: &str| format!(".rsmcp-sync-{}-0", digit.repeat(32));
    let (old, fresh) = (name("a"), name("b"));
    // For a tree of this machine, the time of the last change counts, which no program can set.
    if way == Way::Up {
        let target = stage.target(way);
        std::fs::create_dir_all(target.join(&old).join("1")).unwrap();
        std::fs::write(target.join(&old).join("1/x"), "half").unwrap();
        std::fs::write(target.join(&fresh), "half").unwrap();
        let touched = std::process::Command::new("touch")
            .args(["-d", "2 days ago"])
            .arg(target.join(&old))
            .status();
        assert!(touched.unwrap().success());
        stage.sync(way, json!({})).await;
        assert!(!target.join(&old).exists());
        assert!(target.join(&fresh).exists());
    } else {
        std::fs::write(stage.here.join(&fresh), "half").unwrap();
        stage.sync(way, json!({"delete_extras": true})).await;
        assert!(stage.here.join(&fresh).exists());
    }
    // No scan speaks of it, so that it never goes over the link.
    let back = match way {
        Way::Up => Way::Down,
        Way::Down => Way::Up,
    };
    let plan = stage.call(back, json!({"dry_run": true})).await;
    assert!(!plan.text.contains(".rsmcp-sync-"), "{}", plan.text);
}

#[rstest]
#[case::cancelled(true)]
#[case::killed(false)]
#[tokio::test(flavor = "multi_thread")]
async fn file_that_came_before_a_download_broke_off_is_not_taken_for_an_edit(
    #[case] is_cancelled: bool,
) {
    let mut stage = Stage::with_large_calls().await;
    let way = Way::Down;
    let fill = |stage: &Stage, version: u64| {
        stage.write(way, "log", format!("version {version}"));
        stage.write(way, "weights", Random::new(version).bytes(20_000_000));
    };
    fill(&stage, 1);
    stage.sync(way, json!({})).await;
    fill(&stage, 2);
    stage.proxy.trickle(Some(1_000_000));
    let call = stage.begin(way, json!({})).await;
    let log = stage.here.join("log");
    let has_come = || std::fs::read(&log).unwrap() == b"version 2";
    assert!(remote_sandbox_testkit::wait_until(LIMIT, has_come).await);
    match is_cancelled {
        true => {
            stage.client.cancel(call).await;
            // A cancelled call gets no answer; the lock tells when it is over.
            stage.proxy.trickle(None);
        }
        false => {
            stage.restart().await;
            stage.proxy.trickle(None);
        }
    }
    stage.write(way, "log", "written on by the job");
    let done = stage.sync(way, json!({})).await;
    assert_eq!(done["conflicts"], 0, "{done}");
    stage.assert_same();
}
