//! Deletions that are refused, and those that are not done (f61).

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use remote_sandbox_testkit::{Sshd, TestUser};
use serde_json::json;

use super::stage::{Stage, Way, contents};
use crate::files::write;

#[tokio::test]
async fn f61_root_of_the_host_and_missing_source_are_refused() {
    let stage = Stage::new().await;
    stage.write(Way::Up, "a", "1");
    stage.sync(Way::Up, json!({})).await;
    // Most is left out of the listing, so that only the refusal is looked at.
    let excludes = [
        "/proc", "/sys", "/dev", "/usr", "/var", "/tmp", "/root", "/home", "/work", "/opt", "/etc",
        "/lib*",
    ];
    let more = json!({"remote_path": "/", "delete_extras": true, "excludes": excludes});
    let refused = stage.call(Way::Up, more).await;
    assert!(refused.is_error, "{}", refused.text);
    assert!(
        ["delete_refused", "path_refused"].contains(&refused.json["code"].as_str().unwrap()),
        "{}",
        refused.text
    );
    let gone = json!({"local_path": stage.here.join("gone"), "delete_extras": true});
    let refused = stage.call(Way::Up, gone).await;
    assert_eq!(refused.json["code"], "not_found", "{}", refused.text);
    assert_eq!(contents(&stage.there).len(), 1);
}

#[tokio::test]
async fn f61_empty_source_that_is_a_link_deletes_nothing() {
    let stage = Stage::new().await;
    stage.write(Way::Up, "a", "1");
    stage.sync(Way::Up, json!({})).await;
    let empty = stage.home().join("empty");
    fs::create_dir(&empty).unwrap();
    let link = stage.home().join("link");
    symlink(&empty, &link).unwrap();
    let more = json!({"local_path": link, "delete_extras": true});
    let refused = stage.call(Way::Up, more).await;
    assert_eq!(refused.json["code"], "delete_refused", "{}", refused.text);
    assert_eq!(contents(&stage.there).len(), 1);
}

#[tokio::test]
async fn f61_rule_that_was_added_keeps_what_it_names_on_the_other_side() {
    let stage = Stage::new().await;
    for name in ["a", "data/x", "data/y"] {
        stage.write(Way::Up, name, "1");
    }
    stage.sync(Way::Up, json!({})).await;
    fs::remove_dir_all(stage.here.join("data")).unwrap();
    let more = json!({"delete_extras": true, "excludes": ["data"]});
    let done = stage.sync(Way::Up, more).await;
    assert_eq!(done["deleted_files"], 0, "{done}");
    assert_eq!(contents(&stage.there).len(), 3);
}

#[tokio::test]
async fn f61_user_account_that_cannot_list_all_deletes_nothing() {
    let Some(user) = TestUser::create() else {
        return;
    };
    let host = Sshd::builder().user(&user);
    let stage = Stage::with(host, json!({"user": user.name()}), &[]).await;
    let there = user.home().join("copy");
    write(&there.join("a"), "1");
    write(&there.join("closed/x"), "2");
    // What lies in it belongs to root.
    fs::set_permissions(there.join("closed"), PermissionsExt::from_mode(0o700)).unwrap();
    stage.write(Way::Down, "unused", "1");
    let paths = json!({"local_path": stage.here, "remote_path": there});
    write(&stage.here.join("closed/x"), "mine");
    write(&stage.here.join("extra"), "mine");
    let mut more = paths.clone();
    more["delete_extras"] = json!(true);
    let refused = stage.call(Way::Down, more).await;
    assert_eq!(refused.json["code"], "delete_refused", "{}", refused.text);
    assert!(stage.here.join("extra").exists() && stage.here.join("closed/x").exists());
    let done = stage.call(Way::Down, paths).await;
    assert!(done.text.contains("closed"), "{}", done.text);
    assert_eq!(fs::read(stage.here.join("a")).unwrap(), b"1");
}
