//! Slow links: nothing is taken for dead (f10), and what gets smaller goes packed.

use std::time::{Duration, Instant};

use remote_sandbox_testkit::{Direction, Sshd};
use rstest::rstest;
use serde_json::json;

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
    let stage = Stage::with(Sshd::builder(), more, &[]).await;
    for number in 0..files {
        let bytes = Random::new(number as u64).bytes(8_500_000 / files);
        stage.write(way, &format!("f{number}"), bytes);
    }
    stage.proxy.trickle(Some(1_000_000));
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

#[test]
#[ignore = "root: a network of its own"]
fn f10_sync_over_two_megabits_makes_progress_and_goes_packed() {
    let test = "f10_sync_over_two_megabits_makes_progress_and_goes_packed";
    if !namespace::entered(module_path!(), test) {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let stage = Stage::new().await;
        for number in 0..160 {
            let text = format!("loss {number} 0.5\n").repeat(6000);
            stage.write(Way::Up, &format!("f{number}"), &text.as_bytes()[..60_000]);
        }
        namespace::slow_loopback();
        let before = namespace::loopback_bytes();
        let done = stage.sync(Way::Up, json!({})).await;
        let went = namespace::loopback_bytes() - before;
        assert_eq!(done["problem_count"], 0, "{done}");
        // Each byte passes the loopback twice, once on either side of the proxy.
        assert!(went < 2 * 6_000_000, "{went} bytes for 9600000");
        stage.assert_same();
    });
}
