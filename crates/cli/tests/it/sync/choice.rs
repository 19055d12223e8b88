//! What is left out, what is only planned, and which places may be used.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};

use rstest::rstest;
use serde_json::json;

use super::{Pair, action, snapshot};
use crate::files::Kind;
use crate::support::state;

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn weakness_26_default_excludes_hold_at_every_depth(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    for name in [
        "a",
        "pkg/node_modules/x",
        "d/.git/HEAD",
        "d/__pycache__/y",
        "d/z.pyc",
        "d/b",
    ] {
        pair.write(name, "1");
    }
    pair.up(json!({})).await;
    let names: Vec<_> = snapshot(&pair.there).into_keys().collect();
    let names: Vec<_> = names
        .iter()
        .map(|name| String::from_utf8_lossy(name))
        .collect();
    assert_eq!(names, ["a", "d", "d/b", "pkg"]);
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn rules_of_the_call_of_a_file_and_of_gitignore_leave_out(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    for name in [
        "keep",
        "a.log",
        "b/a.log",
        "b/keep.log",
        "out/x",
        "b/out/x",
        "drop",
    ] {
        pair.write(name, "1");
    }
    pair.write(".gitignore", "drop\n");
    pair.write("b/.gitignore", "out/\n");
    let rules = pair.ground.client().home().join("rules");
    fs::write(&rules, "# comment\n*.log\n").unwrap();
    let more = json!({
        "exclude_file": rules,
        "excludes": ["/out", "!keep.log"],
        "use_gitignore": true,
    });
    pair.up(more).await;
    let names: Vec<_> = snapshot(&pair.there).into_keys().collect();
    let names: Vec<_> = names
        .iter()
        .map(|name| String::from_utf8_lossy(name))
        .collect();
    assert_eq!(
        names,
        [".gitignore", "b", "b/.gitignore", "b/keep.log", "keep"]
    );
}

#[tokio::test]
async fn f67_rule_file_that_cannot_be_read_is_an_error_and_nothing_is_sent() {
    let pair = Pair::new(Kind::Ssh).await;
    pair.write("a", "1");
    let rules = pair.ground.client().home().join("rules");
    let refused = pair.up_refused(json!({"exclude_file": rules})).await;
    assert_eq!(refused["code"], "invalid_params");
    assert!(
        refused["error"]
            .as_str()
            .unwrap()
            .contains("does not exist"),
        "{refused}"
    );
    fs::create_dir(&rules).unwrap();
    let refused = pair.up_refused(json!({"exclude_file": rules})).await;
    assert!(
        refused["error"]
            .as_str()
            .unwrap()
            .contains("cannot be read"),
        "{refused}"
    );
    assert!(!pair.there.exists());
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn dry_run_tells_the_plan_and_changes_nothing(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    pair.write("a", "12345");
    pair.write("d/b", "1");
    pair.write_there("old", "x");
    let plan = pair
        .up(json!({"dry_run": true, "delete_extras": true}))
        .await;
    assert_eq!(plan["mode"], "dry_run");
    let sent = action(&plan, "send_file");
    assert_eq!((&sent["count"], &sent["bytes"]), (&json!(2), &json!(6)));
    assert_eq!(sent["first"], json!(["a", "d/b"]));
    assert_eq!(action(&plan, "make_directory")["first"], json!(["d"]));
    assert_eq!(action(&plan, "delete")["first"], json!(["old"]));
    assert_eq!(plan["deletes"], 1);
    assert_eq!(snapshot(&pair.there).len(), 1);
}

#[tokio::test]
async fn f65_weakness_23_local_paths_outside_the_roots_are_refused_in_both_directions() {
    let pair = Pair::new(Kind::Ssh).await;
    let client = pair.ground.client();
    let home = client.home();
    fs::create_dir_all(home.join(".ssh")).unwrap();
    fs::write(home.join(".ssh/id_ed25519"), "key").unwrap();
    symlink("/etc", home.join("shortcut")).unwrap();
    symlink(home.join(".ssh"), pair.here.join("keys")).unwrap();
    let own = state(client);
    let places = [
        "/etc/shadow".to_owned(),
        "~/.ssh/id_ed25519".to_owned(),
        "~/.ssh".to_owned(),
        "~".to_owned(),
        "/".to_owned(),
        format!("{}/../../../../../../etc/shadow", pair.here.display()),
        "~/shortcut/shadow".to_owned(),
        pair.here.join("keys").display().to_string(),
        "/proc/self/root/etc/shadow".to_owned(),
        own.join("audit.jsonl").display().to_string(),
        own.display().to_string(),
    ];
    fs::create_dir_all(&pair.there).unwrap();
    for place in places {
        let refused = pair.up_refused(json!({"local_path": place})).await;
        assert_eq!(refused["code"], "path_refused", "{place}: {refused}");
        let reply = pair.call_down(json!({"local_path": place})).await;
        assert!(reply.is_error, "{place}");
        assert_eq!(
            reply.json["code"], "path_refused",
            "{place}: {}",
            reply.text
        );
    }
    assert_eq!(fs::read_dir(&pair.there).unwrap().count(), 0);
}

#[tokio::test]
async fn link_to_keys_in_the_tree_is_sent_as_a_link_and_never_followed() {
    let pair = Pair::new(Kind::Ssh).await;
    let home = pair.ground.client().home();
    fs::create_dir_all(home.join(".ssh")).unwrap();
    fs::write(home.join(".ssh/id"), "key").unwrap();
    symlink(home.join(".ssh"), pair.here.join("keys")).unwrap();
    pair.up(json!({})).await;
    assert!(pair.there.join("keys").is_symlink());
    let done = pair
        .up(json!({"follow_links": true, "remote_path": "followed"}))
        .await;
    assert!(!pair.ground.at("followed/keys").exists(), "{done}");
}

/// Rules that fill a file of this size; the last one leaves out `drop`.
fn rules_of(size: usize) -> String {
    let last = "\ndrop\n";
    let mut text = "# a long list of nothing\n".repeat(size / 25 - 1);
    text.push_str(&"#".repeat(size - text.len() - last.len()));
    text + last
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn gitignore_files_may_be_of_the_same_size_on_both_sides(#[case] kind: Kind) {
    const MOST: usize = 1 << 20;
    let pair = Pair::new(kind).await;
    for name in ["keep", "drop"] {
        pair.write(name, "1");
        pair.write_there(&format!("source/{name}"), "1");
    }
    let down = json!({"use_gitignore": true, "remote_path": "copy/source"});
    for (size, is_taken) in [(MOST, true), (MOST + 1, false)] {
        pair.write(".gitignore", rules_of(size));
        pair.write_there("source/.gitignore", rules_of(size));
        let up = json!({"use_gitignore": true, "remote_path": "sent"});
        let (up, down) = (pair.call_up(up).await, pair.call_down(down.clone()).await);
        for reply in [up, down] {
            assert_eq!(reply.is_error, !is_taken, "{size}: {}", reply.text);
            if !is_taken {
                let why = reply.json["error"].as_str().unwrap();
                assert!(
                    why.contains(".gitignore") && why.contains("1048576 bytes"),
                    "{why}"
                );
            }
        }
    }
    assert!(pair.ground.at("sent/keep").exists() && !pair.ground.at("sent/drop").exists());
}

#[tokio::test]
async fn what_is_kept_of_a_pair_goes_with_a_sync_long_after_its_last_one() {
    let pair = Pair::new(Kind::Ssh).await;
    pair.write("a", "1");
    pair.up(json!({"remote_path": "other"})).await;
    pair.up(json!({})).await;
    let own = state(pair.ground.client());
    let files = |folder: &str| -> Vec<_> {
        let entries = fs::read_dir(own.join(folder)).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    // Three locks for each of them.
    assert_eq!((files("pairs").len(), files("sync-locks").len()), (2, 6));
    let long_ago = SystemTime::now() - Duration::from_secs(100 * 86_400);
    for path in files("pairs").into_iter().chain(files("sync-locks")) {
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(long_ago).unwrap();
    }
    let again = pair.up(json!({})).await;
    assert_eq!(again["skipped_files"], 1, "{again}");
    assert_eq!((files("pairs").len(), files("sync-locks").len()), (1, 3));
    pair.up(json!({"remote_path": "other"})).await;
    assert_eq!(files("pairs").len(), 2);
}
