//! Slow links: nothing is taken for dead (f10), and what gets smaller goes packed.

use std::time::{Duration, Instant};

use remote_sandbox_testkit::{Direction, Sshd};
use rstest::rstest;
use serde_json::{Value, json};

use super::stage::{Random, Stage, Way};
use crate::faults::namespace;

#[rstest]
#[case::small_up(Way::Up, 30)]
#[case::large_up(Way::Up, 1)]
#[case::small_down(Way::Down, 30)]
#[case::large_down(Way::Down, 1)]
#[tokio::test(flavor = "multi_thread")]
async fn f10_sync_over_a_slow_link_makes_progress_and_ends_right(
    #[case] way: Way,
    #[case] files: usize,
) {
    // A dead link would be noticed after four seconds.
    let more = json!({"keepalive_interval_s": 1, "keepalive_count": 3});
    over_a_slow_link(way, files, 8_500_000, 1_000_000, more).await;
}

#[rstest]
#[case::up(Way::Up)]
#[case::down(Way::Down)]
#[tokio::test(flavor = "multi_thread")]
#[ignore = "minutes: a link of 20 KiB a second"]
async fn f10_sync_over_a_very_slow_link_makes_progress_and_ends_right(#[case] way: Way) {
    over_a_slow_link(way, 30, 800_000, 20 << 10, json!({})).await;
}

async fn over_a_slow_link(
    way: Way,
    files: usize,
    bytes: usize,
    bytes_per_second: u64,
    more: Value,
) {
    let stage = Stage::with(Sshd::builder(), more, &[]).await;
    for number in 0..files {
        let bytes = Random::new(number as u64).bytes(bytes / files);
        stage.write(way, &format!("f{number}"), bytes);
    }
    stage.proxy.trickle(Some(bytes_per_second));
    let began = Instant::now();
    let done = stage.sync(way, json!({})).await;
    assert!(
        began.elapsed() > Duration::from_secs(5),
        "the link was slow"
    );
    assert_eq!(done["problem_count"], 0, "{done}");
    stage.assert_same();
    assert_eq!(stage.sshd.accepted_auth_count(), 1, "one connection did it");
}

#[rstest]
#[case::text(true)]
#[case::noise(false)]
#[tokio::test(flavor = "multi_thread")]
async fn upload_over_a_slow_link_goes_packed_only_where_that_is_worth_while(#[case] is_text: bool) {
    let stage = Stage::with_large_calls().await;
    let size = 40_000;
    for number in 0..400 {
        let bytes = match is_text {
            true => format!("loss {number} 0.5\n").repeat(5000).into_bytes(),
            false => Random::new(number).bytes(size),
        };
        stage.write(Way::Up, &format!("f{number}"), &bytes[..size]);
    }
    stage.proxy.trickle(Some(3_000_000));
    let before = stage.proxy.bytes(Direction::ToServer);
    let done = stage.sync(Way::Up, json!({})).await;
    let went = stage.proxy.bytes(Direction::ToServer) - before;
    assert_eq!(done["bytes"], 400 * size, "{done}");
    match is_text {
        true => assert!(went < 9_000_000, "{went} bytes"),
        false => assert!(went > 16_000_000, "{went} bytes"),
    }
    stage.assert_same();
}

/// Text that gets much smaller, or bytes that do not.
fn content(is_text: bool, seed: u64, size: usize) -> Vec<u8> {
    match is_text {
        true => {
            let line = format!("loss {seed} 0.5\n");
            let mut text = line.repeat(size / line.len() + 1).into_bytes();
            text.truncate(size);
            text
        }
        false => Random::new(seed).bytes(size),
    }
}

#[rstest]
#[case::text(true)]
#[case::noise(false)]
#[tokio::test(flavor = "multi_thread")]
async fn download_over_a_slow_link_comes_packed_only_where_that_is_worth_while(
    #[case] is_text: bool,
) {
    let stage = Stage::with_large_calls().await;
    let size = 40_000;
    for number in 0..400 {
        let bytes = content(is_text, number, size);
        stage.write(Way::Down, &format!("f{number}"), bytes);
    }
    stage.proxy.trickle(Some(3_000_000));
    let before = stage.proxy.bytes(Direction::ToClient);
    let done = stage.sync(Way::Down, json!({})).await;
    let came = stage.proxy.bytes(Direction::ToClient) - before;
    assert_eq!(done["bytes"], 400 * size, "{done}");
    assert_eq!(done["problem_count"], 0, "{done}");
    match is_text {
        true => assert!(came < 9_000_000, "{came} bytes"),
        false => assert!(came > 16_000_000, "{came} bytes"),
    }
    stage.assert_same();
}

#[rstest]
#[case::text_up(Way::Up, true)]
#[case::noise_up(Way::Up, false)]
#[case::text_down(Way::Down, true)]
#[case::noise_down(Way::Down, false)]
#[tokio::test(flavor = "multi_thread")]
async fn large_file_over_a_slow_link_is_packed_only_where_that_is_worth_while(
    #[case] way: Way,
    #[case] is_text: bool,
) {
    let stage = Stage::with_large_calls().await;
    stage.write(way, "large", content(is_text, 1, 16_000_000));
    stage.proxy.trickle(Some(3_000_000));
    let direction = match way {
        Way::Up => Direction::ToServer,
        Way::Down => Direction::ToClient,
    };
    let before = stage.proxy.bytes(direction);
    let done = stage.sync(way, json!({})).await;
    let passed = stage.proxy.bytes(direction) - before;
    assert_eq!(done["bytes"], 16_000_000, "{done}");
    assert_eq!(done["problem_count"], 0, "{done}");
    match is_text {
        true => assert!(passed < 9_000_000, "{passed} bytes"),
        false => assert!(passed > 16_000_000, "{passed} bytes"),
    }
    stage.assert_same();
}

#[test]
#[ignore = "root: a network of its own"]
fn f10_sync_over_two_megabits_makes_progress_and_goes_packed() {
    let test = "f10_sync_over_two_megabits_makes_progress_and_goes_packed";
    if !namespace::entered(module_path!(), test) {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        for is_text in [true, false] {
            let stage = Stage::new().await;
            let size = if is_text { 60_000 } else { 20_000 };
            for number in 0..160 {
                let bytes = content(is_text, number, size);
                stage.write(Way::Up, &format!("f{number}"), bytes);
            }
            if is_text {
                namespace::slow_loopback();
            }
            let before = namespace::loopback_bytes();
            let done = stage.sync(Way::Up, json!({})).await;
            let went = namespace::loopback_bytes() - before;
            assert_eq!(done["problem_count"], 0, "{done}");
            // Each byte passes the loopback twice, once on either side of the proxy.
            match is_text {
                true => assert!(went < 2 * 6_000_000, "{went} bytes for 9600000"),
                false => assert!(went > 2 * 3_200_000, "{went} bytes for 3200000"),
            }
            stage.assert_same();
        }
    });
}

#[test]
#[ignore = "root: a network of its own"]
fn f10_download_over_two_megabits_comes_packed() {
    let test = "f10_download_over_two_megabits_comes_packed";
    if !namespace::entered(module_path!(), test) {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        for is_text in [true, false] {
            let stage = Stage::with_large_calls().await;
            let size = if is_text { 60_000 } else { 20_000 };
            for number in 0..160 {
                let bytes = content(is_text, number, size);
                stage.write(Way::Down, &format!("f{number}"), bytes);
            }
            if is_text {
                stage.write(Way::Down, "large", content(true, 1, 12_000_000));
                namespace::slow_loopback();
            }
            let before = namespace::loopback_bytes();
            let done = stage.sync(Way::Down, json!({})).await;
            let came = namespace::loopback_bytes() - before;
            assert_eq!(done["problem_count"], 0, "{done}");
            // Each byte passes the loopback twice, once on either side of the proxy.
            match is_text {
                true => assert!(came < 2 * 7_000_000, "{came} bytes for 21600000"),
                false => assert!(came > 2 * 3_200_000, "{came} bytes for 3200000"),
            }
            stage.assert_same();
        }
    });
}
