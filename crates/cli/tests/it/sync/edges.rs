//! Roots that are empty or taken, calls at the same time, keys behind links, and disks with little room.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use remote_sandbox_testkit::wait_until;
use rstest::rstest;
use serde_json::json;

use super::Pair;
use super::stage::{Random, Stage, Way};
use crate::files::Kind;

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn empty_tree_makes_its_root_on_the_other_side(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    fs::create_dir_all(&pair.here).unwrap();
    let _ = fs::remove_dir_all(&pair.there);
    pair.up(json!({})).await;
    assert!(pair.there.is_dir());
}

#[tokio::test]
async fn file_for_a_folder_that_has_a_directory_of_its_name_is_refused() {
    let stage = Stage::new().await;
    stage.write(Way::Up, "f", "1");
    fs::create_dir_all(stage.there.join("d/f")).unwrap();
    let into = format!("{}/d/", stage.there.display());
    let more = json!({"local_path": stage.here.join("f"), "remote_path": into});
    let refused = stage.call(Way::Up, more).await;
    assert!(refused.is_error, "{}", refused.text);
    assert!(refused.text.contains("is a directory"), "{}", refused.text);
    assert_eq!(fs::read_dir(stage.there.join("d/f")).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_the_same_two_folders_go_in_calls_at_the_same_time() {
    let stage = Stage::new().await;
    for name in ["a", "b", "c", "d"] {
        stage.write(Way::Up, name, name);
    }
    fs::create_dir_all(&stage.there).unwrap();
    let send = |name: &str| {
        let (from, to) = (stage.here.join(name), stage.there.join(name));
        stage.call(Way::Up, json!({"local_path": from, "remote_path": to}))
    };
    let (a, b, c, d) = tokio::join!(send("a"), send("b"), send("c"), send("d"));
    for done in [a, b, c, d] {
        assert!(!done.is_error, "{}", done.text);
    }
    stage.assert_same();
}

#[tokio::test]
async fn keys_behind_a_link_are_not_sent() {
    let mut stage = Stage::new().await;
    let home = stage.home();
    fs::create_dir_all(home.join("dots/ssh")).unwrap();
    fs::write(home.join("dots/ssh/id_ed25519"), "secret").unwrap();
    let _ = fs::remove_dir_all(home.join(".ssh"));
    symlink("dots/ssh", home.join(".ssh")).unwrap();
    // The places are looked up when a server starts.
    stage.restart().await;
    let home = stage.home();
    for path in [home.join(".ssh"), home.join("dots/ssh")] {
        let refused = stage.call(Way::Up, json!({"local_path": path})).await;
        assert_eq!(refused.json["code"], "path_refused", "{}", refused.text);
    }
    let more = json!({"local_path": home.join("dots"), "remote_path": stage.there.join("dots")});
    stage.call(Way::Up, more).await;
    assert!(!stage.there.join("dots/ssh/id_ed25519").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn private_directory_is_private_while_its_files_still_come() {
    let stage = Stage::with_large_calls().await;
    let source = stage.source(Way::Down).join("private");
    fs::create_dir_all(&source).unwrap();
    fs::set_permissions(&source, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(source.join("large"), Random::new(1).bytes(9_000_000)).unwrap();
    stage.proxy.trickle(Some(4_000_000));
    let target = stage.target(Way::Down).join("private");
    let looking = async {
        let made = || target.is_dir();
        assert!(wait_until(Duration::from_secs(60), made).await);
        fs::metadata(&target).unwrap().permissions().mode() & 0o777
    };
    let (mode, done) = tokio::join!(looking, stage.sync(Way::Down, json!({})));
    assert_eq!(mode, 0o700);
    assert_eq!(done["problem_count"], 0, "{done}");
}
