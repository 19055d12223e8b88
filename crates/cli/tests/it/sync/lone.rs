//! Syncs of a single file.

use std::fs;
use std::os::unix::fs::symlink;

use rstest::rstest;
use serde_json::json;

use super::Pair;
use crate::files::Kind;

#[rstest]
#[case::into_a_directory("lone/", "lone/latest.bin")]
#[case::under_another_name("other.bin", "other.bin")]
#[tokio::test]
async fn link_that_is_named_gives_what_it_leads_to_under_its_own_name(
    #[case] remote: &str,
    #[case] arrives: &str,
    #[values(Kind::Ssh, Kind::Local)] kind: Kind,
) {
    let pair = Pair::new(kind).await;
    pair.write("v1.bin", "weights");
    symlink("v1.bin", pair.here.join("latest.bin")).unwrap();
    let link = pair.here.join("latest.bin");
    let done = pair
        .up(json!({"local_path": link, "remote_path": remote}))
        .await;
    assert_eq!(done["synced_type"], "file", "{done}");
    let there = pair.ground.at(arrives);
    assert!(!there.is_symlink(), "{done}");
    assert_eq!(fs::read(there).unwrap(), b"weights", "{done}");
    let again = pair
        .up(json!({"local_path": link, "remote_path": remote}))
        .await;
    assert_eq!(again["uploaded_files"], 0, "{again}");
}

#[rstest]
#[case::into_a_directory("", "latest.bin")]
#[case::under_another_name("other.bin", "other.bin")]
#[tokio::test]
async fn link_of_the_sandbox_that_is_named_gives_what_it_leads_to_under_its_own_name(
    #[case] local: &str,
    #[case] arrives: &str,
    #[values("weights", "large")] content: &str,
    #[values(Kind::Ssh, Kind::Local)] kind: Kind,
) {
    let pair = Pair::new(kind).await;
    // Large ones come in another way.
    let times = if content == "large" { 2_000_000 } else { 1 };
    let content = content.repeat(times);
    pair.write_there("v1.bin", &content);
    symlink("v1.bin", pair.there.join("latest.bin")).unwrap();
    let paths = json!({"local_path": pair.here.join(local), "remote_path": "copy/latest.bin"});
    let done = pair.down(paths.clone()).await;
    assert_eq!(done["synced_type"], "file", "{done}");
    let here = pair.here.join(arrives);
    assert!(!here.is_symlink(), "{done}");
    assert!(fs::read(&here).unwrap() == content.as_bytes(), "{done}");
    let again = pair.down(paths.clone()).await;
    assert_eq!(again["downloaded_files"], 0, "{again}");
    // Another version is behind it now.
    pair.write_there("v2.bin", "newer");
    fs::remove_file(pair.there.join("latest.bin")).unwrap();
    symlink("v2.bin", pair.there.join("latest.bin")).unwrap();
    pair.down(paths.clone()).await;
    assert_eq!(fs::read(&here).unwrap(), b"newer");
    let listed = pair
        .ground
        .call(
            "list_remote_files",
            json!({"remote_path": "copy/latest.bin"}),
        )
        .await;
    assert_eq!(listed.json["entries"][0]["type"], "link", "{}", listed.text);
    fs::remove_file(pair.there.join("v2.bin")).unwrap();
    let refused = pair.call_down(paths).await;
    assert_eq!(refused.json["code"], "not_found", "{}", refused.text);
    let words = refused.json["error"].as_str().unwrap_or_default();
    assert!(
        words.contains("copy/latest.bin") && words.contains("is a link"),
        "{words}"
    );
    assert_eq!(fs::read(&here).unwrap(), b"newer");
}

#[rstest]
#[case::missing(json!({"exclude_file": "/nowhere/rules"}))]
#[case::no_rule(json!({"excludes": ["[a"]}))]
#[tokio::test]
async fn rules_that_are_wrong_are_told_also_for_a_single_file(
    #[case] more: serde_json::Value,
    #[values(true, false)] is_up: bool,
) {
    let pair = Pair::new(Kind::Ssh).await;
    pair.write("a", "1");
    pair.write_there("a", "2");
    let paths = json!({"local_path": pair.here.join("a"), "remote_path": "copy/a"});
    let arguments = crate::support::with(paths, more);
    let reply = match is_up {
        true => pair.call_up(arguments).await,
        false => pair.call_down(arguments).await,
    };
    assert!(reply.is_error, "{}", reply.text);
    assert_eq!(fs::read(pair.there.join("a")).unwrap(), b"2");
    assert_eq!(fs::read(pair.here.join("a")).unwrap(), b"1");
}
