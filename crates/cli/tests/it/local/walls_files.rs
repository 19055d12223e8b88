//! Commands neither read nor write what lies outside their own folders.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use remote_sandbox_testkit::process;
use remote_sandbox_testkit::wait::skip;
use rstest::rstest;
use serde_json::json;

use super::support::{CANARY, Cleanup, Local, Setup, Wall, Who, open_folder};
use crate::support::unique;

#[rstest]
#[case::root_bubblewrap(Who::Root, Wall::Bubblewrap)]
#[case::root_landlock(Who::Root, Wall::Landlock)]
#[case::user_account_bubblewrap(Who::Plain, Wall::Bubblewrap)]
#[case::user_account_landlock(Who::Plain, Wall::Landlock)]
#[tokio::test]
async fn files_of_the_user_cannot_be_read(#[case] who: Who, #[case] wall: Wall) {
    let setup = Setup::new().isolation(wall.word());
    let Some(local) = setup.start_for(who).await else {
        return;
    };
    local.assert_level(wall).await;
    let key = local.file(".ssh/id", CANARY);
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
    let notes = local.file("notes", CANARY);
    let elsewhere = open_folder();
    std::fs::write(elsewhere.path().join("file"), CANARY).unwrap();
    local
        .create(json!({"name": "two", "env": {"K": CANARY}}))
        .await;
    let two = local.folder("two");
    local.run_in("two", &format!("echo {CANARY} >~/mine")).await;
    let mut paths = vec![
        key.clone(),
        notes,
        elsewhere.path().join("file"),
        local.server.state().join("audit.jsonl"),
        local.folder("local").join("record.json"),
        two.join("record.json"),
        two.join("home/mine"),
        local.home().join("sandboxes.toml"),
    ];
    if who == Who::Root {
        paths.extend(["/etc/shadow", "/root/.profile"].map(PathBuf::from));
    }
    for path in paths.iter().filter(|path| path.exists()) {
        let path = path.display();
        local.assert_refused("read", &format!("cat {path}")).await;
        let around = format!("cat /proc/self/root{path}");
        local.assert_refused("read past the root", &around).await;
    }
    let folder = key.parent().unwrap().display();
    local.assert_refused("list", &format!("ls {folder}")).await;
    let enter = format!("cd {folder} && cat id");
    local.assert_refused("enter", &enter).await;
    let state = local.server.state();
    let list = format!("ls {}/sandboxes/two", state.display());
    local.assert_refused("another sandbox", &list).await;
}

/// A way to change something, and the path that shows whether it did.
struct Change {
    script: String,
    path: PathBuf,
}

fn changes(local: &Local, folder: &Path, name: &str) -> Vec<Change> {
    let change = |script: &str, path: PathBuf| Change {
        script: script.replace("PATH", &path.display().to_string()),
        path,
    };
    let state = local.server.state();
    let own = local.folder("local");
    vec![
        change("echo x >PATH", local.home().join(name)),
        change("echo x >>PATH", local.file("notes", "mine")),
        change("truncate -s 0 PATH", local.file("cut", "mine")),
        change("rm -f PATH", local.file("removed", "mine")),
        change("mv PATH ~/", local.file("moved", "mine")),
        change("mkdir PATH", local.home().join(format!("{name}-folder"))),
        change("ln -s / PATH", local.home().join(format!("{name}-link"))),
        change("mkfifo PATH", local.home().join(format!("{name}-pipe"))),
        change("echo x >PATH", folder.join(name)),
        change("echo x >PATH", Path::new("/tmp").join(name)),
        change("echo x >PATH", Path::new("/var/tmp").join(name)),
        change("echo x >PATH", Path::new("/dev/shm").join(name)),
        change("echo x >PATH", Path::new("/usr").join(name)),
        change("echo x >PATH", Path::new("/etc").join(name)),
        change("echo x >>PATH", state.join("audit.jsonl")),
        change("echo x >>PATH", own.join("record.json")),
        change("mv PATH PATH-moved", own.join("record.json")),
        change("rm -f PATH", own.join("socket")),
        change("touch PATH", own.join("more")),
    ]
}

fn content(path: &Path) -> Option<Vec<u8>> {
    let found = std::fs::symlink_metadata(path).ok()?;
    if found.is_file() {
        return Some(std::fs::read(path).unwrap());
    }
    Some(vec![])
}

fn put_back(path: &Path, before: Option<Vec<u8>>) {
    let found = std::fs::symlink_metadata(path);
    if found.is_ok_and(|found| found.is_dir()) {
        std::fs::remove_dir(path).unwrap();
    } else if before.is_none() {
        std::fs::remove_file(path).unwrap();
    }
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        std::fs::write(path, before).unwrap();
    }
}

#[rstest]
#[case::root_bubblewrap(Who::Root, Wall::Bubblewrap)]
#[case::root_landlock(Who::Root, Wall::Landlock)]
#[case::user_account_bubblewrap(Who::Plain, Wall::Bubblewrap)]
#[case::user_account_landlock(Who::Plain, Wall::Landlock)]
#[tokio::test]
async fn nothing_outside_can_be_written(#[case] who: Who, #[case] wall: Wall) {
    let setup = Setup::new().isolation(wall.word());
    let Some(local) = setup.start_for(who).await else {
        return;
    };
    local.assert_level(wall).await;
    local.run("true").await;
    let folder = open_folder();
    let name = format!("testkit-{}", unique());
    let mut all = changes(&local, folder.path(), &name);
    if wall == Wall::Bubblewrap {
        // Landlock does not guard these and the list of sandboxes says so.
        for script in ["chmod 0777 PATH", "touch -d 2001-01-01 PATH"] {
            let path = local.file("kept", "mine");
            let script = script.replace("PATH", &path.display().to_string());
            all.push(Change { script, path });
        }
    }
    assert_eq!(
        local.is_open("modes and dates of your files").await,
        wall == Wall::Landlock
    );
    let look = |path: &Path| {
        let found = std::fs::symlink_metadata(path);
        let about = found.map(|found| (found.permissions().mode(), found.modified().unwrap()));
        (content(path), about.ok())
    };
    for Change { script, path } in &all {
        let before = look(path);
        // What looks like success inside is one only where something has changed outside. The log of
        // all calls grows by itself.
        let reply = local.run(script).await;
        if path.ends_with("audit.jsonl") {
            assert!(reply.json["exit_code"].as_i64() > Some(0), "{script}");
            let text = std::fs::read_to_string(path).unwrap();
            assert!(text.lines().all(|line| line != "x"), "{script}");
            continue;
        }
        assert_eq!(look(path), before, "{script}: {}", reply.text);
    }
    let only_root = |path: &Path| path.starts_with("/usr") || path.starts_with("/etc");
    for Change { script, path } in &all {
        if who == Who::Plain && only_root(path) {
            continue;
        }
        let before = look(path);
        let script = script.replace("~/", &format!("{}/", folder.path().display()));
        local.assert_works_outside("change", &script);
        assert_ne!(look(path), before, "{script} changes nothing outside");
        put_back(path, before.0);
    }
}

/// Files that only root may read stay so when somebody puts new ones in their place, as every change of
/// a password does.
#[rstest]
#[case::bubblewrap(Wall::Bubblewrap)]
#[case::landlock(Wall::Landlock)]
#[tokio::test]
async fn secret_of_root_that_is_replaced_stays_hidden(#[case] wall: Wall) {
    if !process::is_root() {
        skip("needs root: a file in /etc");
        return;
    }
    let file = PathBuf::from(format!("/etc/testkit-{}", unique()));
    let new = file.with_extension("new");
    let _files = [Cleanup(file.clone()), Cleanup(new.clone())];
    let write = |path: &Path| {
        std::fs::write(path, CANARY).unwrap();
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
    };
    write(&file);
    let local = Setup::new().isolation(wall.word()).start().await;
    let read = format!("cat {}", file.display());
    local.assert_refused("a secret", &read).await;
    write(&new);
    std::fs::rename(&new, &file).unwrap();
    local.assert_refused("a secret in its place", &read).await;
    write(&new);
    let read = format!("cat {}", new.display());
    local.assert_refused("a new secret", &read).await;
    // Everything else goes on as before, also moving files between folders.
    let ordinary = "cat /usr/bin/env >~/a && mkdir ~/b && mv ~/a ~/b/ && ln ~/b/a ~/c && cmp ~/c /usr/bin/env && mv ~/c ~/workspace/";
    let reply = local.run(ordinary).await;
    assert_eq!(reply.json["exit_code"], 0, "{}", reply.text);
}
