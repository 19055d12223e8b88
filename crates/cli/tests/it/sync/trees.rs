//! What arrives is what was sent.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, UNIX_EPOCH};

use rstest::rstest;
use serde_json::json;

use super::stage::Way;
use super::{Pair, problems, snapshot};
use crate::files::{Kind, mkfifo, write};

/// A tree with everything that a tree can have.
fn plant(pair: &Pair) {
    pair.write("plain", "text");
    pair.write("with space/-dash", "1");
    pair.write("new\nline", "2");
    pair.write("中文/文件", "3");
    write(&pair.here.join(OsStr::from_bytes(b"bytes\xff\xfe")), "4");
    pair.write(&"n".repeat(255), "5");
    pair.write("run.sh", "#!/bin/sh\n");
    fs::set_permissions(pair.here.join("run.sh"), PermissionsExt::from_mode(0o755)).unwrap();
    pair.write("private", "secret");
    fs::set_permissions(pair.here.join("private"), PermissionsExt::from_mode(0o600)).unwrap();
    pair.write("empty file", "");
    fs::create_dir_all(pair.here.join("empty/below")).unwrap();
    pair.write("closed/x", "6");
    fs::set_permissions(pair.here.join("closed"), PermissionsExt::from_mode(0o555)).unwrap();
    symlink("plain", pair.here.join("link")).unwrap();
    symlink("with space", pair.here.join("dirlink")).unwrap();
    symlink("/nowhere", pair.here.join("dangling")).unwrap();
    let old = UNIX_EPOCH + Duration::new(1_000_000_000, 987_654_321);
    let file = fs::File::open(pair.here.join("plain")).unwrap();
    file.set_modified(old).unwrap();
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn upload_keeps_content_names_modes_times_links_and_empty_directories(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    plant(&pair);
    let done = pair.up(json!({})).await;
    pair.assert_same();
    assert_eq!(done["mode"], "inline");
    assert_eq!(done["synced_type"], "directory");
    assert_eq!(
        (&done["uploaded_files"], &done["uploaded_dirs"]),
        (&json!(13), &json!(5))
    );
    assert_eq!(
        (&done["problem_count"], &done["skipped_files"]),
        (&json!(0), &json!(0))
    );
    assert!(
        done["revision"].as_str().unwrap().starts_with("stamps-"),
        "{done}"
    );
    // A second one has nothing to do and says the same revision.
    let again = pair.up(json!({})).await;
    assert_eq!(
        (&again["uploaded_files"], &again["skipped_files"]),
        (&json!(0), &json!(13))
    );
    assert_eq!(again["revision"], done["revision"]);
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn weakness_3_edit_of_the_same_size_within_the_same_second_is_uploaded(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    pair.write("a", "old");
    pair.up(json!({})).await;
    let second = fs::metadata(pair.here.join("a"))
        .unwrap()
        .modified()
        .unwrap();
    pair.write("a", "new");
    let file = fs::File::open(pair.here.join("a")).unwrap();
    file.set_modified(second + Duration::from_nanos(1)).unwrap();
    let done = pair.up(json!({})).await;
    assert_eq!(done["uploaded_files"], 1);
    pair.assert_same();
}

#[rstest]
#[tokio::test]
async fn weakness_4_odd_entries_are_named_and_the_rest_arrives_with_its_modes(
    #[values(Kind::Ssh, Kind::Local)] kind: Kind,
    #[values(Way::Up, Way::Down)] way: Way,
) {
    let pair = Pair::new(kind).await;
    let (source, sent) = match way {
        Way::Up => (&pair.here, "uploaded_files"),
        Way::Down => (&pair.there, "downloaded_files"),
    };
    for (name, mode) in [
        ("run", 0o755),
        ("d/tool", 0o775),
        ("own", 0o600),
        ("set", 0o444),
    ] {
        write(&source.join(name), name);
        fs::set_permissions(source.join(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    fs::set_permissions(source.join("d"), PermissionsExt::from_mode(0o750)).unwrap();
    mkfifo(&source.join("pipe"));
    mkfifo(&source.join("d/pipe"));
    symlink("/nowhere", source.join("broken")).unwrap();
    symlink("d", source.join("directory link")).unwrap();
    symlink("/etc", source.join("link out")).unwrap();
    symlink("itself", source.join("itself")).unwrap();
    write(&source.join(OsStr::from_bytes(b"\xff")), "2");
    let reply = match way {
        Way::Up => pair.up(json!({})).await,
        Way::Down => pair.down(json!({})).await,
    };
    assert_eq!(reply[sent], 9, "{reply}");
    assert_eq!(reply["passed_over"], 2, "{reply}");
    let problems = problems(&reply);
    assert_eq!(problems.len(), 2, "{problems:?}");
    for name in ["pipe", "d/pipe"] {
        assert!(problems[name].contains("special"), "{problems:?}");
        fs::remove_file(source.join(name)).unwrap();
    }
    pair.assert_same();
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn kinds_change_places(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    pair.write("becomes directory", "file");
    pair.write("becomes link", "file");
    pair.write("becomes file/inner", "x");
    symlink("a", pair.here.join("link moves")).unwrap();
    pair.up(json!({})).await;
    fs::remove_file(pair.here.join("becomes directory")).unwrap();
    pair.write("becomes directory/inner", "y");
    fs::remove_file(pair.here.join("becomes link")).unwrap();
    symlink("elsewhere", pair.here.join("becomes link")).unwrap();
    fs::remove_dir_all(pair.here.join("becomes file")).unwrap();
    pair.write("becomes file", "z");
    fs::remove_file(pair.here.join("link moves")).unwrap();
    symlink("b", pair.here.join("link moves")).unwrap();
    let kept = pair.up(json!({})).await;
    // A directory with something in it does not give way without being told so.
    assert!(
        problems(&kept)["becomes file"].contains("not empty"),
        "{kept}"
    );
    assert!(pair.there.join("becomes file/inner").exists());
    pair.up(json!({"delete_extras": true})).await;
    pair.assert_same();
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn single_file_goes_where_it_is_told(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    pair.write("a.pyc", "content");
    let file = json!({"local_path": pair.here.join("a.pyc")});
    let send = async |remote: &str| {
        let more = crate::support::with(file.clone(), json!({"remote_path": remote}));
        pair.up(more).await
    };
    let done = send("as/this.txt").await;
    assert_eq!(
        (&done["synced_type"], &done["uploaded_files"]),
        (&json!("file"), &json!(1))
    );
    let read = |name: &str| fs::read_to_string(pair.ground.at(name)).unwrap();
    assert_eq!(read("as/this.txt"), "content");
    // A slash at the end is a directory, also one that is not there yet.
    send("fresh/").await;
    assert_eq!(read("fresh/a.pyc"), "content");
    send("fresh").await;
    let again = send("fresh").await;
    assert_eq!(
        (&again["uploaded_files"], &again["skipped_files"]),
        (&json!(0), &json!(1))
    );
    pair.write("a.pyc", "other");
    assert_eq!(send("as/this.txt").await["uploaded_files"], 1);
    assert_eq!(read("as/this.txt"), "other");
    let left = snapshot(&pair.ground.at("as"));
    assert_eq!(left.len(), 1, "nothing of ours stays behind");
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn hard_links_arrive_as_separate_files_and_sparse_ones_with_their_content(
    #[case] kind: Kind,
) {
    let pair = Pair::new(kind).await;
    pair.write("one", "same");
    fs::hard_link(pair.here.join("one"), pair.here.join("two")).unwrap();
    let sparse = fs::File::create(pair.here.join("sparse")).unwrap();
    sparse.set_len(3_000_000).unwrap();
    use std::os::unix::fs::FileExt;
    sparse.write_all_at(b"end", 2_999_997).unwrap();
    drop(sparse);
    pair.up(json!({})).await;
    pair.assert_same();
    fs::write(pair.there.join("one"), "changed").unwrap();
    assert_eq!(fs::read(pair.there.join("two")).unwrap(), b"same");
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn content_is_compared_when_times_are_not_believed(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    for name in ["same", "other\nname"] {
        pair.write(name, "12345");
    }
    pair.up(json!({})).await;
    // Same size, same time, other content.
    let time = fs::metadata(pair.there.join("same"))
        .unwrap()
        .modified()
        .unwrap();
    pair.write_there("same", "54321");
    let file = fs::File::open(pair.there.join("same")).unwrap();
    file.set_modified(time).unwrap();
    assert_eq!(pair.up(json!({})).await["uploaded_files"], 0);
    let done = pair.up(json!({"checksum": true})).await;
    assert_eq!(done["uploaded_files"], 1, "{done}");
    pair.assert_same();
    // Same content, other time: nothing is sent, and the time is set.
    pair.write("same", "12345");
    let done = pair.up(json!({"checksum": true})).await;
    assert_eq!(done["uploaded_files"], 0, "{done}");
    pair.assert_same();
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn changed_permissions_are_carried_over_without_the_content(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    pair.write("d/a", "1");
    pair.up(json!({})).await;
    let there = fs::metadata(pair.there.join("d/a")).unwrap();
    fs::set_permissions(pair.here.join("d/a"), PermissionsExt::from_mode(0o700)).unwrap();
    fs::set_permissions(pair.here.join("d"), PermissionsExt::from_mode(0o711)).unwrap();
    let done = pair.up(json!({})).await;
    assert_eq!(
        (&done["uploaded_files"], &done["changed_modes"]),
        (&json!(0), &json!(2))
    );
    pair.assert_same();
    use std::os::unix::fs::MetadataExt;
    let after = fs::metadata(pair.there.join("d/a")).unwrap();
    assert_eq!(there.ino(), after.ino());
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn links_are_sent_as_what_they_lead_to_on_request(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    pair.write("real/a", "1");
    symlink("real/a", pair.here.join("file")).unwrap();
    symlink("real", pair.here.join("directory")).unwrap();
    symlink(".", pair.here.join("loop")).unwrap();
    symlink("/etc/passwd", pair.here.join("outside")).unwrap();
    let done = pair.up(json!({"follow_links": true})).await;
    let there = snapshot(&pair.there);
    assert_eq!(there[b"file".as_slice()].0, 'f');
    assert_eq!(there[b"directory/a".as_slice()].3, b"1");
    assert!(!there.contains_key(b"outside".as_slice()), "{done}");
    let problems = problems(&done);
    assert!(
        problems.contains_key("loop") && problems.contains_key("outside"),
        "{problems:?}"
    );
}

#[tokio::test]
async fn remote_directory_link_is_kept_and_reported_or_followed_on_request() {
    let pair = Pair::new(Kind::Ssh).await;
    pair.write("data/a", "1");
    fs::create_dir_all(&pair.there).unwrap();
    let elsewhere = pair.ground.at("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, pair.there.join("data")).unwrap();
    let done = pair.up(json!({})).await;
    assert!(problems(&done)["data"].contains("link"), "{done}");
    assert!(!elsewhere.join("a").exists());
    pair.up(json!({"keep_dirlinks": true})).await;
    assert_eq!(fs::read(elsewhere.join("a")).unwrap(), b"1");
    assert!(pair.there.join("data").is_symlink());
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
}

#[tokio::test]
async fn files_in_a_thousand_folders_arrive_where_there_is_no_file_protocol() {
    let pair = Pair::new(Kind::Local).await;
    let long = "a folder with a long name ".repeat(6);
    for round in ["1", "22"] {
        for number in 0..1000 {
            pair.write(&format!("{long}{number}/a"), round);
        }
        let done = pair.up(json!({})).await;
        if done["mode"] == "background" {
            let task = json!({"task_id": done["task_id"]});
            let end = std::time::Instant::now() + std::time::Duration::from_secs(90);
            loop {
                let tool = "check_file_transfer_task";
                let now = pair.ground.call(tool, task.clone()).await;
                if now.json["status"] == "completed" {
                    assert_eq!(now.json["result"]["problem_count"], 0, "{}", now.text);
                    break;
                }
                assert!(
                    now.json["status"] != "failed" && std::time::Instant::now() < end,
                    "{}",
                    now.text
                );
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
        pair.assert_same();
    }
}

#[rstest]
#[case::usual(0o755, 0o755)]
#[case::private(0o700, 0o700)]
#[case::of_a_group(0o2770, 0o770)]
#[case::read_only(0o500, 0o700)]
#[case::of_everybody(0o1777, 0o775)]
#[tokio::test]
async fn new_root_has_the_permissions_of_its_source(
    #[case] mode: u32,
    #[case] expected: u32,
    #[values(Kind::Ssh, Kind::Local)] kind: Kind,
) {
    use std::os::unix::fs::PermissionsExt as _;
    let pair = Pair::new(kind).await;
    if kind == Kind::Ssh {
        // The mask of the host decides nothing.
        crate::files::write(&pair.ground.at(".bashrc"), "umask 027\n");
    }
    let mode_of = |path: &std::path::Path| {
        let about = std::fs::metadata(path).unwrap();
        about.permissions().mode() & 0o7777
    };
    pair.write("a", "1");
    std::fs::set_permissions(&pair.here, PermissionsExt::from_mode(mode)).unwrap();
    pair.up(json!({})).await;
    assert_eq!(mode_of(&pair.there), expected);
    std::fs::set_permissions(&pair.there, PermissionsExt::from_mode(mode)).unwrap();
    let back = pair.here.with_file_name("back");
    pair.down(json!({"local_path": back})).await;
    assert_eq!(mode_of(&back), expected);
    // One that is there keeps its own.
    std::fs::set_permissions(&back, PermissionsExt::from_mode(0o755)).unwrap();
    pair.down(json!({"local_path": back})).await;
    assert_eq!(mode_of(&back), 0o755);
    for root in [&pair.here, &pair.there] {
        std::fs::set_permissions(root, PermissionsExt::from_mode(0o755)).unwrap();
    }
}
