//! Downloads: what comes is what is there, and what was edited here is not lost.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};

use rstest::rstest;
use serde_json::json;

use super::{Pair, problems, snapshot};
use crate::files::{Kind, mkfifo, write};

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn download_keeps_content_names_modes_times_links_and_empty_directories(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    for name in ["plain", "with space/-dash", "new\nline", "中文/文件"] {
        pair.write_there(name, name);
    }
    write(&pair.there.join(OsStr::from_bytes(b"bytes\xff")), "4");
    pair.write_there(&"n".repeat(255), "5");
    pair.write_there("run.sh", "#!/bin/sh\n");
    fs::set_permissions(pair.there.join("run.sh"), PermissionsExt::from_mode(0o755)).unwrap();
    fs::create_dir_all(pair.there.join("empty/below")).unwrap();
    pair.write_there("closed/x", "6");
    fs::set_permissions(pair.there.join("closed"), PermissionsExt::from_mode(0o555)).unwrap();
    symlink("plain", pair.there.join("link")).unwrap();
    symlink("/nowhere", pair.there.join("dangling")).unwrap();
    fs::hard_link(pair.there.join("plain"), pair.there.join("second name")).unwrap();
    let done = pair.down(json!({})).await;
    pair.assert_same();
    assert_eq!(
        (&done["downloaded_files"], &done["created_dirs"]),
        (&json!(11), &json!(5))
    );
    assert_eq!(done["problem_count"], 0, "{done}");
    let again = pair.down(json!({})).await;
    assert_eq!(
        (&again["downloaded_files"], &again["skipped_files"]),
        (&json!(0), &json!(11))
    );
    assert_eq!(again["revision"], done["revision"]);
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn special_file_of_the_sandbox_leaves_the_local_file_as_it_was(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    pair.write("a", "precious");
    pair.write_there("b", "1");
    mkfifo(&pair.there.join("a"));
    symlink("/etc", pair.there.join("directory link")).unwrap();
    let done = pair.down(json!({})).await;
    assert_eq!(fs::read(pair.here.join("a")).unwrap(), b"precious");
    assert_eq!(fs::read(pair.here.join("b")).unwrap(), b"1");
    assert!(pair.here.join("directory link").is_symlink());
    assert!(problems(&done).contains_key("a"), "{done}");
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn local_edits_are_kept_and_reported_unless_they_may_be_lost(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    for name in ["both", "here", "there", "neither"] {
        pair.write_there(name, "old");
    }
    pair.down(json!({})).await;
    pair.write("both", "mine");
    pair.write("here", "mine");
    pair.write_there("both", "theirs");
    pair.write_there("there", "theirs");
    let done = pair.down(json!({})).await;
    let read = |name: &str| fs::read_to_string(pair.here.join(name)).unwrap();
    assert_eq!(
        [read("both"), read("here"), read("there")],
        ["mine", "mine", "theirs"]
    );
    assert_eq!(done["conflicts"], 2);
    let problems = problems(&done);
    assert!(problems["both"].contains("both sides"), "{problems:?}");
    assert!(done["revision"].is_null(), "{done}");
    pair.down(json!({"overwrite": true})).await;
    pair.assert_same();
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn edit_that_was_uploaded_does_not_count_as_one_afterwards(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    pair.write("a", "1");
    pair.up(json!({})).await;
    pair.write_there("a", "result");
    let done = pair.down(json!({})).await;
    assert_eq!(
        (&done["downloaded_files"], &done["conflicts"]),
        (&json!(1), &json!(0))
    );
    pair.assert_same();
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn download_deletes_under_the_same_rules(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    pair.write_there("a", "1");
    pair.down(json!({})).await;
    pair.write("extra/x", "2");
    pair.write("keep.log", "3");
    let done = pair
        .down(json!({"delete_extras": true, "excludes": ["*.log"]}))
        .await;
    assert_eq!(
        (&done["deleted_files"], &done["deleted_dirs"]),
        (&json!(1), &json!(1))
    );
    let names: Vec<_> = snapshot(&pair.here).into_keys().collect();
    assert_eq!(names, [b"a".to_vec(), b"keep.log".to_vec()]);
    fs::remove_file(pair.there.join("a")).unwrap();
    let reply = pair.call_down(json!({"delete_extras": true})).await;
    assert_eq!(reply.json["code"], "delete_refused", "{}", reply.text);
    assert!(pair.here.join("a").exists());
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn single_file_comes_where_it_is_told(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    pair.write_there("a.txt", "content");
    let get = async |local: String| {
        pair.down(json!({"remote_path": "copy/a.txt", "local_path": local}))
            .await
    };
    let done = get(pair.here.join("as.txt").display().to_string()).await;
    assert_eq!(
        (&done["synced_type"], &done["downloaded_files"]),
        (&json!("file"), &json!(1))
    );
    get(format!("{}/fresh/", pair.here.display())).await;
    get(pair.here.display().to_string()).await;
    for name in ["as.txt", "fresh/a.txt", "a.txt"] {
        assert_eq!(
            fs::read_to_string(pair.here.join(name)).unwrap(),
            "content",
            "{name}"
        );
    }
    let reply = pair.call_down(json!({"remote_path": "copy/missing"})).await;
    assert_eq!(reply.json["code"], "not_found", "{}", reply.text);
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn gitignore_files_of_the_sandbox_leave_out(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    for name in ["a", "drop", "d/x.log", "d/y"] {
        pair.write_there(name, "1");
    }
    pair.write_there(".gitignore", "drop\n");
    pair.write_there("d/.gitignore", "*.log\n");
    pair.down(json!({"use_gitignore": true})).await;
    let names: Vec<_> = snapshot(&pair.here).into_keys().collect();
    let names: Vec<_> = names
        .iter()
        .map(|name| String::from_utf8_lossy(name))
        .collect();
    assert_eq!(names, [".gitignore", "a", "d", "d/.gitignore", "d/y"]);
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn links_are_brought_as_what_they_lead_to_on_request(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    pair.write_there("real/a", "1");
    symlink("real/a", pair.there.join("file")).unwrap();
    symlink("real", pair.there.join("directory")).unwrap();
    pair.down(json!({"follow_links": true})).await;
    let here = snapshot(&pair.here);
    assert_eq!(here[b"file".as_slice()].0, 'f');
    assert_eq!(here[b"directory/a".as_slice()].3, b"1");
}

#[tokio::test]
async fn link_that_was_made_or_changed_here_is_kept_and_reported() {
    let pair = Pair::new(Kind::Ssh).await;
    pair.write_there("file", "1");
    symlink("x", pair.there.join("both")).unwrap();
    symlink("x", pair.there.join("theirs")).unwrap();
    pair.down(json!({})).await;
    let set = |root: &std::path::Path, name: &str, target: &str| {
        fs::remove_file(root.join(name)).unwrap();
        symlink(target, root.join(name)).unwrap();
    };
    set(&pair.here, "file", "mine");
    set(&pair.here, "both", "mine");
    set(&pair.there, "both", "another");
    set(&pair.there, "theirs", "another");
    let done = pair.down(json!({})).await;
    let read = |name: &str| fs::read_link(pair.here.join(name)).unwrap();
    let now = [read("file"), read("both"), read("theirs")];
    assert_eq!(
        now,
        ["mine", "mine", "another"].map(std::path::PathBuf::from)
    );
    assert_eq!(done["conflicts"], 2, "{done}");
    pair.down(json!({"overwrite": true})).await;
    pair.assert_same();
}
