//! What is deleted, and what is not.

use std::fs;
use std::os::unix::fs::symlink;

use rstest::rstest;
use serde_json::json;

use super::{Pair, snapshot};
use crate::files::Kind;

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn logs_and_records_of_jobs_are_never_extras(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    pair.write("a", "1");
    pair.write("both/.codex_logs/old.log", "1");
    pair.up(json!({})).await;
    let kept = [
        ".codex_logs/train.log",
        ".remote-sandbox-mcp/jobs/x/1/nonce",
        "both/.codex_logs/new.log",
        "gone/.codex_logs/sub/x.log",
    ];
    for name in kept {
        pair.write_there(name, "2");
    }
    pair.write_there("gone/extra", "2");
    let done = pair.up(json!({"delete_extras": true})).await;
    assert_eq!(
        (&done["deleted_files"], &done["deleted_dirs"]),
        (&json!(1), &json!(0)),
        "{done}"
    );
    for name in kept {
        assert!(pair.there.join(name).exists(), "{name}");
    }
    assert!(!pair.there.join("gone/extra").exists());
    // They can be brought and sent like anything else.
    pair.down(json!({})).await;
    assert!(pair.here.join(".codex_logs/train.log").exists());
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn extras_go_and_what_is_excluded_stays(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    pair.write("a", "1");
    pair.up(json!({})).await;
    for name in [
        "extra",
        "gone/deep/x",
        "-rf",
        "new\nline",
        "d/node_modules/y",
        "keep.log",
    ] {
        pair.write_there(name, "2");
    }
    fs::create_dir_all(pair.ground.at("outside")).unwrap();
    fs::write(pair.ground.at("outside/kept"), "3").unwrap();
    symlink(pair.ground.at("outside"), pair.there.join("link")).unwrap();
    let more = json!({"delete_extras": true, "excludes": ["*.log"]});
    let done = pair.up(more).await;
    assert_eq!(
        (&done["deleted_files"], &done["deleted_dirs"]),
        (&json!(5), &json!(2))
    );
    let left: Vec<_> = snapshot(&pair.there).into_keys().collect();
    let left: Vec<_> = left
        .iter()
        .map(|name| String::from_utf8_lossy(name))
        .collect();
    // A directory stays for what is excluded in it.
    assert_eq!(
        left,
        ["a", "d", "d/node_modules", "d/node_modules/y", "keep.log"]
    );
    assert!(pair.ground.at("outside/kept").exists());
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn f61_empty_source_and_more_than_half_are_refused_until_the_number_is_given(
    #[case] kind: Kind,
) {
    let pair = Pair::new(kind).await;
    for number in 0..30 {
        pair.write_there(&format!("f{number}"), "x");
    }
    let refused = pair.up_refused(json!({"delete_extras": true})).await;
    assert_eq!(refused["code"], "delete_refused");
    assert!(
        refused["error"].as_str().unwrap().contains("empty"),
        "{refused}"
    );
    for number in 0..10 {
        pair.write(&format!("f{number}"), "x");
    }
    let refused = pair.up_refused(json!({"delete_extras": true})).await;
    assert!(
        refused["error"]
            .as_str()
            .unwrap()
            .contains("more than half"),
        "{refused}"
    );
    assert!(
        refused["hint"]
            .as_str()
            .unwrap()
            .contains("confirm_delete: 20"),
        "{refused}"
    );
    assert_eq!(snapshot(&pair.there).len(), 30);
    let wrong = json!({"delete_extras": true, "confirm_delete": 19});
    assert_eq!(pair.up_refused(wrong).await["code"], "delete_refused");
    let agreed = json!({"delete_extras": true, "confirm_delete": 20});
    assert_eq!(pair.up(agreed).await["deleted_files"], 20);
    pair.assert_same();
}

#[tokio::test]
async fn f61_home_and_top_of_the_host_are_refused() {
    let pair = Pair::new(Kind::Ssh).await;
    pair.write("a", "1");
    fs::write(pair.ground.at("precious"), "x").unwrap();
    for place in ["~", ".", "/"] {
        let more = json!({"remote_path": place, "delete_extras": true, "dry_run": true});
        if place == "/" {
            continue;
        }
        let plan = pair.up(more).await;
        assert!(plan["delete_refused"].is_string(), "{place}: {plan}");
        let more = json!({"remote_path": place, "delete_extras": true});
        assert_eq!(
            pair.up_refused(more).await["code"],
            "delete_refused",
            "{place}"
        );
    }
    assert!(pair.ground.at("precious").exists());
    assert!(!pair.ground.at("a").exists(), "nothing is sent either");
}

#[tokio::test]
async fn deleting_for_a_single_file_is_refused() {
    let pair = Pair::new(Kind::Ssh).await;
    pair.write("a", "1");
    let more = json!({"local_path": pair.here.join("a"), "delete_extras": true});
    let refused = pair.up_refused(more).await;
    assert_eq!(refused["code"], "invalid_params");
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn thousands_of_extras_go_with_their_directories(
    #[case] kind: Kind,
    #[values(true, false)] is_up: bool,
) {
    let pair = Pair::new(kind).await;
    let (source, target) = match is_up {
        true => (&pair.here, &pair.there),
        false => (&pair.there, &pair.here),
    };
    crate::files::write(&source.join("a"), "1");
    crate::files::write(&target.join("a"), "1");
    for folder in 0..60 {
        fs::create_dir_all(target.join(format!("d/{folder}"))).unwrap();
        for file in 0..100 {
            fs::write(target.join(format!("d/{folder}/{file}")), "").unwrap();
        }
    }
    let more = json!({"delete_extras": true, "confirm_delete": 6061, "overwrite": true});
    let done = match is_up {
        true => {
            let more = json!({"delete_extras": true, "confirm_delete": 6061});
            pair.up(more).await
        }
        false => pair.down(more).await,
    };
    let deleted = (&done["deleted_files"], &done["deleted_dirs"]);
    assert_eq!(deleted, (&json!(6000), &json!(61)), "{done}");
    assert_eq!(done["problem_count"], 0, "{done}");
    assert_eq!(snapshot(target).len(), 1);
}

#[tokio::test]
async fn source_of_empty_directories_and_special_files_counts_as_empty() {
    let pair = Pair::new(Kind::Ssh).await;
    for number in 0..5 {
        pair.write_there(&format!("f{number}"), "1");
    }
    fs::create_dir_all(pair.here.join("empty/deep")).unwrap();
    crate::files::mkfifo(&pair.here.join("pipe"));
    let refused = pair.up_refused(json!({"delete_extras": true})).await;
    assert_eq!(refused["code"], "delete_refused", "{refused}");
    assert_eq!(snapshot(&pair.there).len(), 5);
    // What is passed over is a part of the source that did not arrive.
    let done = pair.up(json!({})).await;
    assert!(done["revision"].is_null(), "{done}");
}

#[tokio::test]
async fn f62_special_file_that_keeps_its_directory_from_going_is_told() {
    let pair = Pair::new(Kind::Ssh).await;
    for number in 0..3 {
        pair.write(&format!("f{number}"), "1");
    }
    pair.up(json!({})).await;
    pair.write_there("extra/file", "1");
    let made = std::process::Command::new("mkfifo")
        .arg(pair.there.join("extra/pipe"))
        .status();
    assert!(made.unwrap().success());
    let done = pair.up(json!({"delete_extras": true})).await;
    assert!(!pair.there.join("extra/file").exists(), "{done}");
    let told = super::problems(&done);
    assert!(told["extra/pipe"].contains("never deleted"), "{done}");
    assert!(done["revision"].is_string(), "{done}");
}
