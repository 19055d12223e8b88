//! What is remembered of two places is found again, however they are written.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rstest::rstest;
use serde_json::{Value, json};

use super::{Pair, problems};
use crate::files::{Kind, write};

/// Edits the file on both sides after an upload, and asserts that a download keeps the edit here and tells of it.
async fn assert_edit_is_kept(pair: &Pair, paths: Value, here: &Path, there: &Path) {
    write(here, "mine, edited");
    write(there, "theirs");
    let done = pair.down(paths).await;
    assert_eq!(done["conflicts"], 1, "{done}");
    assert_eq!(fs::read(here).unwrap(), b"mine, edited", "{done}");
}

#[rstest]
#[case::below_a_link("link/new", "real/new")]
#[case::below_a_link_and_deeper("link/new/er/", "real/new/er")]
#[case::back_out_of_a_directory("real/../new", "new")]
#[case::back_out_of_a_link("link/../new", "new")]
#[case::back_out_of_nothing("gone/../new", "new")]
#[tokio::test]
async fn edit_is_known_after_the_first_upload_to_a_place_that_has_another_name(
    #[case] written: &str,
    #[case] lies: &str,
    #[values(Kind::Ssh, Kind::Local)] kind: Kind,
    #[values(true, false)] is_written_alike: bool,
) {
    let pair = Pair::new(kind).await;
    fs::create_dir_all(pair.ground.at("real")).unwrap();
    symlink("real", pair.ground.at("link")).unwrap();
    pair.write("a", "mine");
    pair.up(json!({"remote_path": written})).await;
    let there = pair.ground.at(lies).join("a");
    assert_eq!(fs::read(&there).unwrap(), b"mine");
    assert!(!pair.ground.at("gone").exists());
    let again = if is_written_alike { written } else { lies };
    let paths = json!({"remote_path": again});
    assert_edit_is_kept(&pair, paths, &pair.here.join("a"), &there).await;
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn single_file_below_a_link_is_known_from_the_sync_of_its_directory(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    pair.write("a", "mine");
    pair.up(json!({})).await;
    symlink("copy", pair.ground.at("link")).unwrap();
    let here = pair.here.join("a");
    let paths = json!({"local_path": here, "remote_path": "link/a"});
    assert_edit_is_kept(&pair, paths, &here, &pair.there.join("a")).await;
}

#[tokio::test]
async fn sync_that_cannot_be_written_down_says_so_and_what_follows() {
    let pair = Pair::new(Kind::Ssh).await;
    pair.write("a", "1");
    let pairs = crate::support::state(pair.ground.client()).join("pairs");
    write(&pairs, "in the way");
    for done in [pair.up(json!({})).await, pair.down(json!({})).await] {
        assert_eq!(done["problem_count"], 1, "{done}");
        let told = &problems(&done)[""];
        assert!(told.contains("could not be written down"), "{told}");
        assert!(told.contains("cannot tell edits"), "{told}");
        assert!(done["revision"].is_string(), "{done}");
    }
    fs::remove_file(pairs).unwrap();
    let done = pair.up(json!({})).await;
    assert_eq!(done["problem_count"], 0, "{done}");
}

#[rstest]
#[case::plain("copy/b", "copy/b")]
#[case::below_a_link("link/b", "copy/b")]
#[case::into_a_directory_that_comes_with_it("new/b", "new/b")]
#[tokio::test]
async fn single_file_with_two_names_is_known_by_both(
    #[case] written: &str,
    #[case] lies: &str,
    #[values(Kind::Ssh, Kind::Local)] kind: Kind,
) {
    let pair = Pair::new(kind).await;
    fs::create_dir_all(&pair.there).unwrap();
    symlink("copy", pair.ground.at("link")).unwrap();
    pair.write("a", "mine");
    // Another file has the name that this one has there.
    pair.write("b", "another");
    let (here, there) = (pair.here.join("a"), pair.ground.at(lies));
    let paths = json!({"local_path": here, "remote_path": written});
    let done = pair.up(paths.clone()).await;
    assert_eq!(done["uploaded_files"], 1, "{done}");
    let again = pair.up(paths.clone()).await;
    assert_eq!(again["uploaded_files"], 0, "{again}");
    assert_edit_is_kept(&pair, paths.clone(), &here, &there).await;
    // What was kept once is still known as an edit.
    assert_edit_is_kept(&pair, paths.clone(), &here, &there).await;
    pair.up(paths.clone()).await;
    write(&there, "theirs alone");
    let back = pair.down(paths.clone()).await;
    assert_eq!(
        (&back["downloaded_files"], &back["conflicts"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(fs::read(&here).unwrap(), b"theirs alone");
    assert_edit_is_kept(&pair, paths, &here, &there).await;
    assert_eq!(fs::read(pair.here.join("b")).unwrap(), b"another");
}

#[rstest]
#[case::directory("s", "s")]
#[case::deeper("s/t", "s/t")]
#[case::single_file("s/t/f", "s/t/f")]
#[tokio::test]
async fn edits_in_a_part_of_a_synced_tree_are_known(#[case] here: &str, #[case] there: &str) {
    let pair = Pair::new(Kind::Ssh).await;
    pair.write("s/t/f", "1");
    pair.write("s/t/g", "1");
    pair.up(json!({})).await;
    let part = json!({
        "local_path": pair.here.join(here), "remote_path": format!("copy/{there}"),
    });
    // What only changed there comes.
    pair.write_there("s/t/f", "theirs, first");
    let done = pair.down(part.clone()).await;
    assert_eq!(
        (&done["downloaded_files"], &done["conflicts"]),
        (&json!(1), &json!(0)),
        "{done}"
    );
    pair.write("s/t/f", "mine");
    pair.up(json!({})).await;
    pair.write("s/t/f", "mine, edited");
    pair.write_there("s/t/f", "theirs, edited");
    let done = pair.down(part).await;
    assert_eq!(done["conflicts"], 1, "{done}");
    let kept = std::fs::read_to_string(pair.here.join("s/t/f")).unwrap();
    assert_eq!(kept, "mine, edited");
}
