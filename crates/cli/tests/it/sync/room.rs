//! Room is asked for before a large transfer begins.

use std::fs;

use rstest::rstest;
use serde_json::json;

use super::obstacles::Disk;
use super::stage::{Random, Stage, Way, contents, unfinished};

const FILES: usize = 20;
const SIZE: usize = 5_000_000;

/// Something of the form of our names that no sync of this tree goes on with.
const OF_ANOTHER: &str = ".rsmcp-sync-0123456789abcdef0123456789abcdef-0";

#[rstest]
#[case::up(Way::Up, 0)]
#[case::up_with_leftovers_of_others(Way::Up, 40_000_000)]
#[case::down(Way::Down, 0)]
#[case::down_with_leftovers_of_others(Way::Down, 40_000_000)]
#[tokio::test(flavor = "multi_thread")]
async fn f60_nothing_is_sent_where_it_would_not_fit(#[case] way: Way, #[case] leftover: usize) {
    let stage = Stage::with_large_calls().await;
    let room = stage.target(way).to_owned();
    let Some(_disk) = Disk::mount(&room, 80_000_000) else {
        return;
    };
    for number in 0..FILES {
        let bytes = Random::new(number as u64).bytes(SIZE);
        stage.write(way, &format!("f{number}"), bytes);
    }
    fs::write(room.join(OF_ANOTHER), vec![0; leftover]).unwrap();
    let full = stage.call(way, json!({})).await;
    assert_eq!(full.json["code"], "no_space", "{}", full.text);
    assert!(
        full.text.contains("100000000 bytes are needed"),
        "{}",
        full.text
    );
    assert!(contents(&room).is_empty(), "{}", full.text);
}

#[rstest]
#[case::up(Way::Up)]
#[case::down(Way::Down)]
#[tokio::test(flavor = "multi_thread")]
async fn f60_what_has_arrived_of_a_large_file_needs_no_room_again(#[case] way: Way) {
    let stage = Stage::with_large_calls().await;
    let room = stage.target(way).to_owned();
    let Some(_disk) = Disk::mount(&room, 110_000_000) else {
        return;
    };
    stage.write(way, "small", "1");
    stage.sync(way, json!({})).await;
    stage.write(way, "weights", Random::new(3).bytes(100_000_000));
    stage.proxy.refuse().await;
    stage.proxy.cut_after(60_000_000, super::cuts::towards(way));
    let cut = stage.call(way, json!({})).await;
    assert_eq!(cut.json["code"], "link_lost", "{}", cut.text);
    assert_eq!(unfinished(&room).len(), 1);
    stage.proxy.accept().await;
    stage.sync(way, json!({})).await;
    stage.assert_same();
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_download_makes_no_folder() {
    let stage = Stage::with_large_calls().await;
    let disk = stage.home().join("disk");
    let Some(_disk) = Disk::mount(&disk, 1_000_000) else {
        return;
    };
    for number in 0..FILES {
        let bytes = Random::new(number as u64).bytes(SIZE);
        stage.write(Way::Down, &format!("f{number}"), bytes);
    }
    let folder = disk.join("new/folder");
    let full = stage.call(Way::Down, json!({"local_path": folder})).await;
    assert_eq!(full.json["code"], "no_space", "{}", full.text);
    assert!(!disk.join("new").exists());
}
