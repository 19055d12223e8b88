//! Uploads through links to directories in the target.

use std::fs;
use std::os::unix::fs::symlink;

use rstest::rstest;
use serde_json::json;

use super::{Pair, problems, snapshot};
use crate::files::{Kind, write};

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn second_sync_through_a_directory_link_sends_nothing(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    // So many folders that names are given over the file protocol.
    for number in 0..12 {
        pair.write(&format!("data/d{number}/a"), number.to_string());
        pair.write(&format!("data/deep/d{number}/a"), number.to_string());
    }
    pair.write("data/node_modules/x", "not synced");
    let elsewhere = pair.ground.at("elsewhere");
    let further = pair.ground.at("further");
    for folder in [&pair.there, &elsewhere, &further] {
        fs::create_dir_all(folder).unwrap();
    }
    symlink(&elsewhere, pair.there.join("data")).unwrap();
    symlink(&further, elsewhere.join("deep")).unwrap();
    let keep = json!({"keep_dirlinks": true});
    let first = pair.up(keep.clone()).await;
    assert_eq!(first["uploaded_files"], 24, "{first}");
    assert_eq!(first["problem_count"], 0, "{first}");
    assert_eq!(fs::read(further.join("d3/a")).unwrap(), b"3");
    let second = pair.up(keep.clone()).await;
    assert_eq!(second["uploaded_files"], 0, "{second}");
    assert_eq!(second["uploaded_dirs"], 0, "{second}");
    assert_eq!(second["bytes"], 0, "{second}");
    assert_eq!(second["skipped_files"], 24, "{second}");
    assert_eq!(second["revision"], first["revision"], "{second}");
    pair.write("data/deep/d3/a", "another one");
    let third = pair.up(keep).await;
    assert_eq!(third["uploaded_files"], 1, "{third}");
    assert_eq!(fs::read(further.join("d3/a")).unwrap(), b"another one");
    assert!(pair.there.join("data").is_symlink() && elsewhere.join("deep").is_symlink());
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 13);
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn what_lies_behind_a_directory_link_is_never_superfluous(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    pair.write("data/a", "1");
    pair.write("data/was_file/b", "2");
    let elsewhere = pair.ground.at("elsewhere");
    write(&elsewhere.join("precious"), "3");
    write(&elsewhere.join("d/precious"), "4");
    write(&elsewhere.join("was_file"), "5");
    pair.write_there("extra", "6");
    symlink(&elsewhere, pair.there.join("data")).unwrap();
    let more = json!({"keep_dirlinks": true, "delete_extras": true});
    let done = pair.up(more).await;
    // The one more is what gives way below.
    assert_eq!(done["deleted_files"], 2, "{done}");
    assert!(!pair.there.join("extra").exists());
    let behind = snapshot(&elsewhere);
    assert_eq!(behind[b"precious".as_slice()].3, b"3");
    assert_eq!(behind[b"d/precious".as_slice()].3, b"4");
    assert_eq!(behind[b"a".as_slice()].3, b"1");
    // What is of another kind gives way, as it does everywhere.
    assert_eq!(
        behind[b"was_file/b".as_slice()].3,
        b"2",
        "{:?}",
        problems(&done)
    );
}
