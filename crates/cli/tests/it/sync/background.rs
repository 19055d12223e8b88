//! Syncs that go on in the background: when, how they are watched, and what a second call finds.

use std::time::{Duration, Instant};

use remote_sandbox_testkit::{Sshd, process, wait_until};
use rstest::rstest;
use serde_json::{Value, json};

use super::stage::{LIMIT, Random, Stage, Way, contents, unfinished};
use crate::local::support::Setup;
use crate::support::{files_below, state};

/// A stage whose link is so slow that everything can be watched.
async fn slow() -> Stage {
    let stage = Stage::in_background().await;
    stage.proxy.trickle(Some(2_000_000));
    stage
}

async fn start(stage: &Stage, way: Way) -> (u64, u32) {
    let started = stage.call(way, json!({})).await;
    assert_eq!(started.json["mode"], "background", "{}", started.text);
    let number = |name: &str| started.json[name].as_u64().unwrap();
    (number("task_id"), u32::try_from(number("pid")).unwrap())
}

async fn wait_for_bytes(stage: &Stage, task: u64) {
    let end = Instant::now() + LIMIT;
    loop {
        let now = stage.check(task).await;
        if now["progress"]["bytes_done"].as_u64() > Some(0) {
            return;
        }
        assert!(now["running"] == true || now["pending"] == true, "{now}");
        assert!(Instant::now() < end, "{now}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[rstest]
#[case::up(Way::Up)]
#[case::down(Way::Down)]
#[tokio::test]
async fn two_hundred_files_are_synced_in_the_call_and_one_more_in_the_background(#[case] way: Way) {
    let stage = Stage::new().await;
    for number in 0..200 {
        stage.write(way, &format!("f{number}"), "x");
    }
    let done = stage.call(way, json!({})).await;
    assert_eq!(done.json["mode"], "inline", "{}", done.text);
    stage.assert_same();
    for number in 0..201 {
        stage.write(way, &format!("f{number}"), "other");
    }
    let started = stage.call(way, json!({})).await.json;
    assert_eq!(started["mode"], "background", "{started}");
    assert_eq!(started["auto_switched"], true, "{started}");
    assert_eq!(started["was_running"], false, "{started}");
    assert_eq!(started["sandbox"], "box", "{started}");
    let log = started["log_file"].as_str().unwrap();
    assert!(log.starts_with(stage.home().to_str().unwrap()), "{log}");
    let end = stage.wait(started["task_id"].as_u64().unwrap()).await;
    assert_eq!(end["status"], "completed", "{end}");
    let files = match way {
        Way::Up => "uploaded_files",
        Way::Down => "downloaded_files",
    };
    assert_eq!(end["result"][files], 201, "{end}");
    assert_eq!(end["result"]["problem_count"], 0, "{end}");
    assert!(end["result"]["revision"].is_string(), "{end}");
    assert_eq!(end["progress"]["phase"], "complete", "{end}");
    assert!(
        std::fs::read_to_string(log)
            .unwrap()
            .contains("201 of 201 files")
    );
    stage.assert_same();
}

#[rstest]
#[case::up(Way::Up)]
#[case::down(Way::Down)]
#[tokio::test]
async fn sixty_four_mebibytes_are_synced_in_the_call_and_one_byte_more_in_the_background(
    #[case] way: Way,
) {
    let stage = Stage::new().await;
    let file = stage.source(way).join("large");
    std::fs::create_dir_all(stage.source(way)).unwrap();
    let large = std::fs::File::create(&file).unwrap();
    large.set_len(64 * 1024 * 1024 + 1).unwrap();
    let started = stage.call(way, json!({})).await.json;
    assert_eq!(started["mode"], "background", "{started}");
    let end = stage.wait(started["task_id"].as_u64().unwrap()).await;
    assert_eq!(end["status"], "completed", "{end}");
    large.set_len(64 * 1024 * 1024).unwrap();
    let done = stage.call(way, json!({})).await;
    assert_eq!(done.json["mode"], "inline", "{}", done.text);
    stage.assert_same();
}

#[rstest]
#[case::files("REMOTE_SANDBOX_INLINE_SYNC_MAX_FILES")]
#[case::bytes("REMOTE_SANDBOX_INLINE_SYNC_MAX_BYTES")]
#[tokio::test]
async fn threshold_of_nothing_puts_every_sync_into_the_background(
    #[case] variable: &'static str,
    #[values(Way::Up, Way::Down)] way: Way,
) {
    let stage = Stage::with(Sshd::builder(), json!({}), &[(variable, "0")]).await;
    stage.write(way, "a", "1");
    let (task, _) = start(&stage, way).await;
    assert_eq!(stage.wait(task).await["status"], "completed");
    stage.assert_same();
    // Also one that has nothing to do.
    let (task, _) = start(&stage, way).await;
    let end = stage.wait(task).await;
    assert_eq!(end["result"]["skipped_files"], 1, "{end}");
}

#[rstest]
#[case::up(Way::Up)]
#[case::down(Way::Down)]
#[tokio::test]
async fn what_was_compared_by_content_counts_as_done(#[case] way: Way) {
    let variable = "REMOTE_SANDBOX_INLINE_SYNC_MAX_FILES";
    let stage = Stage::with(Sshd::builder(), json!({}), &[(variable, "0")]).await;
    let size = 3_000_000;
    stage.write(way, "same", Random::new(1).bytes(size));
    let (task, _) = start(&stage, way).await;
    assert_eq!(stage.wait(task).await["status"], "completed");
    let reply = stage.call(way, json!({"checksum": true})).await;
    let end = stage.wait(reply.json["task_id"].as_u64().unwrap()).await;
    assert_eq!(end["result"]["skipped_files"], 1, "{end}");
    let progress = &end["progress"];
    assert_eq!(progress["files_done"], progress["files_total"], "{end}");
    assert_eq!(progress["bytes_done"], progress["bytes_total"], "{end}");
    assert_eq!(progress["bytes_done"], size, "{end}");
}

#[tokio::test]
async fn local_sandbox_is_synced_in_the_background_in_both_directions() {
    let variable = "REMOTE_SANDBOX_INLINE_SYNC_MAX_FILES";
    let local = Setup::new().variable(variable, "0").start().await;
    let there = std::path::PathBuf::from(local.output("pwd").await).join("copy");
    let here = local.home().join("project");
    std::fs::create_dir_all(here.join("d")).unwrap();
    std::fs::write(here.join("d/a"), Random::new(1).bytes(100_000)).unwrap();
    for (tool, edited) in [
        ("sync_local_to_remote", &here),
        ("sync_remote_to_local", &there),
    ] {
        std::fs::create_dir_all(edited).unwrap();
        std::fs::write(edited.join("b"), tool).unwrap();
        let paths = json!({"local_path": here, "remote_path": "copy"});
        let started = local.call(tool, paths).await;
        assert_eq!(started.json["mode"], "background", "{}", started.text);
        let task = json!({"task_id": started.json["task_id"]});
        let end = Instant::now() + LIMIT;
        loop {
            let now = local.call("check_file_transfer_task", task.clone()).await;
            if now.json["status"] == "completed" {
                break;
            }
            assert!(Instant::now() < end && !now.is_error, "{}", now.text);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        super::assert_same_trees(&here, &there);
    }
}

#[rstest]
#[case::file_up(Way::Up, 1)]
#[case::file_down(Way::Down, 1)]
#[case::files_up(Way::Up, 12)]
#[case::files_down(Way::Down, 12)]
#[tokio::test(flavor = "multi_thread")]
async fn progress_comes_every_second_with_bytes_totals_rate_and_time_left(
    #[case] way: Way,
    #[case] files: usize,
) {
    let stage = slow().await;
    let size = 12_000_000;
    for number in 0..files {
        let bytes = Random::new(number as u64).bytes(size / files);
        stage.write(way, &format!("f{number}"), bytes);
    }
    let (task, _) = start(&stage, way).await;
    wait_for_bytes(&stage, task).await;
    let (mut last, mut changed, mut steps) = (0, Instant::now(), 0);
    let mut longest = Duration::ZERO;
    loop {
        let now = stage.check(task).await;
        let progress = &now["progress"];
        if now["running"] == false {
            assert_eq!(now["status"], "completed", "{now}");
            break;
        }
        let figure = |name: &str| {
            progress[name]
                .as_u64()
                .unwrap_or_else(|| panic!("{name}: {now}"))
        };
        assert_eq!(
            figure("bytes_total"),
            (size / files * files) as u64,
            "{now}"
        );
        assert_eq!(figure("files_total"), files as u64, "{now}");
        assert!(progress["current_path"].is_string(), "{now}");
        let done = figure("bytes_done");
        assert!(figure("rate_bytes_s") > 0, "{now}");
        assert!(figure("rate_bytes_s") < 40_000_000, "{now}");
        assert!(figure("eta_s") < 1200, "{now}");
        if done != last {
            longest = longest.max(changed.elapsed());
            (last, changed, steps) = (done, Instant::now(), steps + 1);
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    assert!(steps >= 3, "{steps} steps");
    // Twice a second is what the worker means to do; the rest is for a machine that has other things to do.
    assert!(
        longest < Duration::from_secs(4),
        "{longest:?} without a word"
    );
    stage.assert_same();
}

#[rstest]
#[case::up(Way::Up)]
#[case::down(Way::Down)]
#[tokio::test(flavor = "multi_thread")]
async fn progress_of_a_sync_in_the_call_is_told_while_it_works(#[case] way: Way) {
    let stage = Stage::with_large_calls().await;
    stage.proxy.trickle(Some(3_000_000));
    stage.write(way, "large", Random::new(3).bytes(10_000_000));
    let done = stage.call(way, json!({})).await;
    assert!(!done.is_error, "{}", done.text);
    let figures: Vec<f64> = done
        .notifications
        .iter()
        .map(|note| note["progress"].as_f64().unwrap())
        .collect();
    assert!(figures.len() >= 3, "{:?}", done.notifications);
    assert!(figures.is_sorted(), "{figures:?}");
}

#[rstest]
#[case::up(Way::Up)]
#[case::down(Way::Down)]
#[tokio::test(flavor = "multi_thread")]
async fn f66_second_call_for_the_same_pair_finds_the_first(#[case] way: Way) {
    let stage = slow().await;
    stage.write(way, "large", Random::new(5).bytes(8_000_000));
    let (task, pid) = start(&stage, way).await;
    wait_for_bytes(&stage, task).await;
    assert_eq!(start(&stage, way).await, (task, pid));
    let again = stage.call(way, json!({})).await;
    assert_eq!(again.json["was_running"], true, "{}", again.text);
    for otherwise in [
        json!({"remote_path": "~/copy"}),
        json!({"remote_path": "copy/"}),
        json!({"local_path": format!("{}/", stage.here.display())}),
    ] {
        let otherwise = stage.call(way, otherwise).await;
        assert_eq!(otherwise.json["task_id"], task, "{}", otherwise.text);
    }
    let end = stage.wait(task).await;
    assert_eq!(end["status"], "completed", "{end}");
    stage.assert_same();
}

#[rstest]
#[case::up(Way::Up)]
#[case::down(Way::Down)]
#[tokio::test(flavor = "multi_thread")]
async fn f66_another_sync_to_the_same_target_is_refused_while_one_works(#[case] way: Way) {
    let stage = Stage::with_large_calls().await;
    stage.write(way, "large", Random::new(6).bytes(9_000_000));
    stage.proxy.trickle(Some(900_000));
    let first = stage.begin(way, json!({})).await;
    let moves = || {
        !stage.client.notifications_for(first).is_empty()
            && !unfinished(stage.target(way)).is_empty()
    };
    assert!(wait_until(LIMIT, moves).await);
    let before = contents(stage.target(way));
    let second = stage.call(way, json!({"excludes": ["nothing"]})).await;
    assert!(second.is_error, "{}", second.text);
    assert_eq!(second.json["code"], "busy", "{}", second.text);
    assert_eq!(second.json["retry"], true, "{}", second.text);
    assert_eq!(contents(stage.target(way)), before);
    let done = stage.client.wait_tool_reply(first, LIMIT).await.unwrap();
    assert!(!done.is_error, "{}", done.text);
    stage.assert_same();
    let third = stage.call(way, json!({})).await;
    assert!(!third.is_error, "{}", third.text);
}

#[rstest]
#[case::up(Way::Up)]
#[case::down(Way::Down)]
#[tokio::test(flavor = "multi_thread")]
async fn f66_sync_of_the_same_pair_the_other_way_is_refused_before_it_looks(#[case] way: Way) {
    let stage = Stage::with_large_calls().await;
    stage.write(way, "large", Random::new(6).bytes(9_000_000));
    stage.proxy.trickle(Some(600_000));
    let first = stage.begin(way, json!({})).await;
    assert!(wait_until(LIMIT, || !unfinished(stage.target(way)).is_empty()).await);
    let back = match way {
        Way::Up => Way::Down,
        Way::Down => Way::Up,
    };
    // What it would have done is shown all the same.
    let plan = stage.call(back, json!({"dry_run": true})).await;
    assert!(!plan.is_error, "{}", plan.text);
    // It waits for its turn, but not as long as the other one takes.
    let second = stage.call(back, json!({})).await;
    assert_eq!(second.json["code"], "busy", "{}", second.text);
    assert_eq!(second.json["retry"], true, "{}", second.text);
    // Written otherwise it is the same pair.
    let there = json!({"remote_path": stage.there});
    let third = stage.call(back, there).await;
    assert_eq!(third.json["code"], "busy", "{}", third.text);
    let done = stage.client.wait_tool_reply(first, LIMIT).await.unwrap();
    assert!(!done.is_error, "{}", done.text);
    stage.assert_same();
    let fourth = stage.call(back, json!({})).await;
    assert!(!fourth.is_error, "{}", fourth.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn f64_host_removes_what_came_of_an_upload_that_was_cancelled_or_killed() {
    let stage = slow().await;
    stage.proxy.trickle(Some(400_000));
    for number in 0..60 {
        let bytes = Random::new(number).bytes(100_000);
        stage.write(Way::Up, &format!("d/f{number}"), bytes);
    }
    for is_killed in [false, true] {
        let (task, pid) = start(&stage, Way::Up).await;
        wait_for_bytes(&stage, task).await;
        assert!(wait_until(LIMIT, || !unfinished(&stage.there).is_empty()).await);
        if is_killed {
            process::kill_and_wait(&[pid]);
        } else {
            let tool = "cancel_file_transfer_task";
            let cancelled = stage.client.call_tool(tool, json!({"task_id": task})).await;
            assert_eq!(cancelled.json["status"], "cancelled", "{}", cancelled.text);
            assert!(wait_until(LIMIT, || !process::is_alive(pid)).await);
        }
        // Nobody asks it to, but what is still under way has to come through the slow link first.
        let is_clean = || unfinished(&stage.there).is_empty();
        assert!(wait_until(Duration::from_secs(30), is_clean).await);
        assert!(contents(&stage.there).is_empty());
    }
}

#[rstest]
#[case::up(Way::Up)]
#[case::down(Way::Down)]
#[tokio::test(flavor = "multi_thread")]
async fn f64_weakness_15_cancel_ends_a_transfer_within_two_seconds_and_leaves_no_half_file(
    #[case] way: Way,
    #[values(1, 60)] files: usize,
) {
    let stage = slow().await;
    for number in 0..files {
        let bytes = Random::new(number as u64).bytes(30_000_000 / files);
        stage.write(way, &format!("d/f{number}"), bytes);
    }
    let (task, pid) = start(&stage, way).await;
    wait_for_bytes(&stage, task).await;
    let began = Instant::now();
    let tool = "cancel_file_transfer_task";
    let cancelled = stage.client.call_tool(tool, json!({"task_id": task})).await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(cancelled.json["status"], "cancelled", "{}", cancelled.text);
    assert_eq!(cancelled.json["force_killed"], false, "{}", cancelled.text);
    assert!(wait_until(LIMIT, || !process::is_alive(pid)).await);
    let source = contents(stage.source(way));
    for (name, content) in contents(stage.target(way)) {
        assert!(source.get(&name) == Some(&content), "{}", name.display());
    }
    // What is left of a large file is what the next sync goes on with; a link as slow as this one may be too slow
    // for more cleaning than that, and then the next sync does it.
    let left = unfinished(stage.target(way)).len();
    assert!(left <= 1, "{left} unfinished");
    stage.proxy.trickle(None);
    stage.sync(way, json!({})).await;
    stage.assert_same();
}

#[tokio::test(flavor = "multi_thread")]
async fn transfer_goes_on_and_ends_when_the_server_was_killed() {
    let mut stage = slow().await;
    stage.write(Way::Up, "large", Random::new(8).bytes(9_000_000));
    let (task, pid) = start(&stage, Way::Up).await;
    wait_for_bytes(&stage, task).await;
    stage.restart().await;
    assert!(process::is_alive(pid));
    let end = stage.wait(task).await;
    assert_eq!(end["status"], "completed", "{end}");
    stage.assert_same();
}

#[rstest]
#[case::up(Way::Up)]
#[case::down(Way::Down)]
#[tokio::test(flavor = "multi_thread")]
async fn f15_f24_worker_tells_no_secret_and_its_files_are_private(#[case] way: Way) {
    const SECRET: &str = "correct-horse-battery";
    let variables = [("REMOTE_SANDBOX_INLINE_SYNC_MAX_FILES", "0")];
    let more = json!({"password": SECRET});
    // New keys are agreed on all the time.
    let host = Sshd::builder().extra_config("RekeyLimit 1M");
    let stage = Stage::with(host, more, &variables).await;
    stage.proxy.trickle(Some(8_000_000));
    stage.write(way, "large", Random::new(9).bytes(20_000_000));
    stage.write(way, "small", "x");
    let (task, pid) = start(&stage, way).await;
    wait_for_bytes(&stage, task).await;
    let of_kernel = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap();
    for name in ["cmdline", "environ"] {
        assert!(!holds(&of_kernel(name), SECRET), "{name}");
    }
    let end = stage.wait(task).await;
    assert_eq!(end["status"], "completed", "{end}");
    assert!(!end.to_string().contains(SECRET));
    stage.assert_same();
    let folder = state(&stage.client);
    let files = files_below(&folder);
    assert!(
        files
            .iter()
            .any(|(path, _)| path.extension().is_some_and(|it| it == "log"))
    );
    for (path, content) in files {
        assert!(!holds(&content, SECRET), "{}", path.display());
        let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap());
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
    }
}

fn holds(bytes: &[u8], word: &str) -> bool {
    bytes
        .windows(word.len())
        .any(|part| part == word.as_bytes())
}

#[tokio::test]
async fn transfer_that_fails_says_why_and_names_the_path() {
    let stage = Stage::in_background().await;
    let reply = stage
        .call(Way::Down, json!({"remote_path": "missing"}))
        .await;
    let end: Value = match reply.is_error {
        true => reply.json,
        false => stage.wait(reply.json["task_id"].as_u64().unwrap()).await,
    };
    assert_eq!(end["code"], "not_found", "{end}");
    assert!(end["error"].as_str().unwrap().contains("missing"), "{end}");
}
