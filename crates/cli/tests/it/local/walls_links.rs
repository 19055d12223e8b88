//! Links lead nowhere: neither commands nor the server itself follow one out of a sandbox.

use std::path::Path;

use rstest::rstest;
use serde_json::json;

use super::support::{CANARY, Local, Setup, Wall, Who, open_folder};

async fn start(who: Who, wall: Wall) -> Option<Local> {
    let local = Setup::new().isolation(wall.word()).start_for(who).await?;
    local.assert_level(wall).await;
    Some(local)
}

#[rstest]
#[case::root_bubblewrap(Who::Root, Wall::Bubblewrap)]
#[case::root_landlock(Who::Root, Wall::Landlock)]
#[case::user_account_bubblewrap(Who::Plain, Wall::Bubblewrap)]
#[case::user_account_landlock(Who::Plain, Wall::Landlock)]
#[tokio::test]
async fn links_do_not_lead_out(#[case] who: Who, #[case] wall: Wall) {
    let Some(local) = start(who, wall).await else {
        return;
    };
    let key = local.file(".ssh/id", CANARY);
    let home = local.home().display();
    let place = open_folder();
    let place = place.path().display();
    let key = key.display();
    for (attack, script) in [
        ("read", format!("ln -sf {key} PLACE/link && cat PLACE/link")),
        (
            "read below",
            format!("ln -sfn {home} PLACE/folder && cat PLACE/folder/.ssh/id"),
        ),
        (
            "read through a process",
            format!("ln -sfn /proc/self/root{home} PLACE/root && cat PLACE/root/.ssh/id"),
        ),
        (
            "write",
            format!("ln -sf {home}/written PLACE/new && echo x >PLACE/new && rm {home}/written"),
        ),
        (
            "hard link",
            format!("ln {key} PLACE/hard && cat PLACE/hard"),
        ),
        (
            "hard link and write",
            format!("ln {key} PLACE/hard-2 && printf {CANARY} >PLACE/hard-2"),
        ),
    ] {
        let inside = script.replace("PLACE", "~");
        let reply = local.run(&inside).await;
        let code = reply.json["exit_code"].as_i64();
        assert!(code > Some(0), "{attack}: {}", reply.text);
        assert!(!reply.json["stdout"].as_str().unwrap().contains(CANARY));
        let outside = script.replace("PLACE", &place.to_string());
        // Hard links need one file system.
        let outside = match attack.starts_with("hard") {
            true => script.replace("PLACE", &home.to_string()),
            false => outside,
        };
        local.assert_works_outside(attack, &outside);
    }
    for file in ["/etc/shadow", "/etc/passwd", "/usr/bin/env"] {
        let reply = local.run(&format!("ln {file} ~/hard-link")).await;
        assert!(reply.json["exit_code"].as_i64() > Some(0), "{}", reply.text);
    }
}

#[rstest]
#[case::root_bubblewrap(Who::Root, Wall::Bubblewrap)]
#[case::root_landlock(Who::Root, Wall::Landlock)]
#[case::user_account_bubblewrap(Who::Plain, Wall::Bubblewrap)]
#[case::user_account_landlock(Who::Plain, Wall::Landlock)]
#[tokio::test]
async fn deleting_a_sandbox_follows_no_link_that_it_left(#[case] who: Who, #[case] wall: Wall) {
    let Some(local) = start(who, wall).await else {
        return;
    };
    let kept = local.file("kept/file", "mine");
    let folder = kept.parent().unwrap();
    local.create(json!({"name": "two"})).await;
    let place = folder.display();
    let script = format!(
        "cd ~ && rm -rf workspace && ln -s {place} workspace && ln -s {place} other && ln -s {place}/none dangling && ls -l workspace"
    );
    let reply = local.run_in("two", &script).await;
    assert_eq!(reply.json["exit_code"], 0, "{}", reply.text);
    // The next command begins in what was the workspace.
    let reply = local.run_in("two", "touch made && rm -f file").await;
    assert_ne!(reply.json["exit_code"], 0, "{}", reply.text);
    assert_eq!(std::fs::read(&kept).unwrap(), b"mine");
    let reply = local.delete("two").await;
    assert_eq!(reply.json["status"], "deleted", "{}", reply.text);
    assert!(!local.folder("two").exists());
    let names: Vec<_> = std::fs::read_dir(folder).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert_eq!(std::fs::read(&kept).unwrap(), b"mine");
}

/// Where the state lies below /tmp, the way to the home leads through a folder of the sandbox.
#[tokio::test]
async fn link_on_the_way_to_the_home_makes_no_folder_outside() {
    let local = Setup::new().isolation("bubblewrap").start().await;
    let Ok(within) = local.home().strip_prefix("/tmp") else {
        remote_sandbox_testkit::skip("temporary files are not in /tmp");
        return;
    };
    let first = Path::new("/tmp").join(within.components().next().unwrap());
    let first = first.display();
    let outside = open_folder();
    // Commands cannot put something else there.
    let reply = local.run(&format!("mv {first} /tmp/away")).await;
    assert!(reply.json["exit_code"].as_i64() > Some(0), "{}", reply.text);
    // Bubblewrap sees the machine there while it builds the sandbox.
    let target = format!("/oldroot{}", outside.path().display());
    // What a sandbox may have left that began elsewhere.
    let own = local
        .folder("local")
        .join("tmp")
        .join(within.components().next().unwrap());
    let _ = std::fs::remove_dir_all(&own);
    std::os::unix::fs::symlink(&target, &own).unwrap();
    local.client.close_stdin().await;
    let limit = std::time::Duration::from_secs(10);
    local.client.wait_exit(limit).await.unwrap();
    let again = local.server.start().await;
    let reply = super::support::run_in(&again, "local", "echo on").await;
    let made: Vec<_> = std::fs::read_dir(outside.path()).unwrap().collect();
    assert_eq!(made.len(), 0, "{made:?}: {}", reply.text);
}
