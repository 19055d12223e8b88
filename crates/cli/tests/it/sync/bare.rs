//! Hosts that have no program to list files with: what they lack is done over SFTP.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use remote_sandbox_testkit::Sshd;
use rstest::rstest;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::stage::{Random, Stage, Way, contents, unfinished};
use super::{action, problems};

/// A host whose programs are these alone.
async fn bare(programs: &[&str]) -> (Stage, TempDir) {
    let folder = TempDir::with_prefix("bare-").unwrap();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    for program in programs {
        let places = ["/usr/bin", "/bin"].map(|place| Path::new(place).join(program));
        let found = places.iter().find(|place| place.exists());
        symlink(found.expect("a usual program"), folder.path().join(program)).unwrap();
    }
    let path = folder.path().display().to_string();
    let host = Sshd::builder().session_environment("PATH", &path);
    let variables = [
        ("REMOTE_SANDBOX_INLINE_SYNC_MAX_FILES", "1000000"),
        ("REMOTE_SANDBOX_INLINE_SYNC_MAX_BYTES", "1000000000000"),
    ];
    (Stage::with(host, json!({}), &variables).await, folder)
}

fn plant(stage: &Stage, way: Way) {
    for number in 0..300 {
        let name = format!("d{}/e{}/f{number}", number % 5, number % 30);
        stage.write(way, &name, format!("content of {number}"));
    }
    stage.write(way, "run.sh", "exit 0");
    stage.write(way, "new\nline", "1");
    stage.write(way, "large", Random::new(1).bytes(9_000_000));
    let source = stage.source(way);
    fs::set_permissions(source.join("run.sh"), PermissionsExt::from_mode(0o755)).unwrap();
    fs::create_dir(source.join("empty")).unwrap();
    symlink("d1", source.join("link")).unwrap();
}

fn assert_alike(stage: &Stage) {
    assert!(contents(&stage.here) == contents(&stage.there));
    for root in [&stage.here, &stage.there] {
        assert_eq!(unfinished(root), Vec::<std::path::PathBuf>::new());
        let mode = fs::metadata(root.join("run.sh")).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o755);
        assert!(root.join("empty").is_dir());
        assert_eq!(fs::read_link(root.join("link")).unwrap(), Path::new("d1"));
    }
}

fn count(done: &Value, name: &str) -> u64 {
    done[name].as_u64().unwrap_or_else(|| panic!("{done}"))
}

const NOTHING: &[&str] = &["sh"];
const NO_TAR: &[&str] = &["sh", "mkdir", "rm", "mv", "chmod", "touch", "sleep"];
const FIND: &[&str] = &[
    "sh", "find", "sed", "tr", "sort", "tar", "mkdir", "rm", "mv", "sleep",
];
const TAR: &[&str] = &["sh", "tar", "gzip", "mkdir", "rm", "sleep"];

#[rstest]
#[case::nothing(NOTHING)]
#[case::no_tar(NO_TAR)]
#[case::tar(TAR)]
#[tokio::test(flavor = "multi_thread")]
async fn host_without_find_takes_a_tree_and_knows_it_again(#[case] programs: &[&str]) {
    let (stage, _programs) = bare(programs).await;
    plant(&stage, Way::Up);
    fs::set_permissions(&stage.here, PermissionsExt::from_mode(0o770)).unwrap();
    let done = stage.sync(Way::Up, json!({})).await;
    let root = fs::metadata(&stage.there).unwrap().permissions();
    assert_eq!(root.mode() & 0o777, 0o770);
    assert_eq!(done["problem_count"], 0, "{done}");
    assert_eq!(count(&done, "uploaded_files"), 304);
    assert_alike(&stage);
    let again = stage.sync(Way::Up, json!({})).await;
    assert_eq!(count(&again, "uploaded_files"), 0, "{again}");
    assert_eq!(count(&again, "skipped_files"), 304, "{again}");
    // What is excluded there stays, whatever it holds; what is superfluous goes.
    for name in ["node_modules/x/y", "extra/one", "extra/deep/two"] {
        crate::files::write(&stage.there.join(name), "1");
    }
    stage.write(Way::Up, "d1/e1/f1", "another content");
    let done = stage.sync(Way::Up, json!({"delete_extras": true})).await;
    assert_eq!(done["problem_count"], 0, "{done}");
    assert_eq!(count(&done, "uploaded_files"), 1);
    assert_eq!(count(&done, "deleted_files"), 2);
    assert!(!stage.there.join("extra").exists());
    assert!(stage.there.join("node_modules/x/y").exists());
    fs::remove_dir_all(stage.there.join("node_modules")).unwrap();
    assert_alike(&stage);
}

#[rstest]
#[case::nothing(NOTHING)]
#[case::tar(TAR)]
#[tokio::test(flavor = "multi_thread")]
async fn host_without_find_gives_a_tree(#[case] programs: &[&str]) {
    let (stage, _programs) = bare(programs).await;
    plant(&stage, Way::Down);
    let done = stage.sync(Way::Down, json!({})).await;
    assert_eq!(done["problem_count"], 0, "{done}");
    assert_eq!(count(&done, "downloaded_files"), 304);
    assert_alike(&stage);
    let again = stage.sync(Way::Down, json!({})).await;
    assert_eq!(count(&again, "downloaded_files"), 0, "{again}");
    // One file, rules of the tree itself, and links as what they lead to.
    crate::files::write(&stage.there.join(".gitignore"), "drop\n");
    crate::files::write(&stage.there.join("d1/drop"), "1");
    crate::files::write(&stage.there.join("d1/keep"), "1");
    stage.sync(Way::Down, json!({"use_gitignore": true})).await;
    assert!(stage.here.join("d1/keep").exists() && !stage.here.join("d1/drop").exists());
    let other = stage.home().join("other");
    let more = json!({"local_path": other, "follow_links": true});
    stage.sync(Way::Down, more).await;
    assert!(other.join("link/keep").is_file());
    let lone = json!({"local_path": stage.home().join("lone"), "remote_path": "copy/run.sh"});
    let done = stage.sync(Way::Down, lone).await;
    assert_eq!(done["synced_type"], "file");
    assert_eq!(fs::read(stage.home().join("lone")).unwrap(), b"exit 0");
}

#[rstest]
#[case::nothing(NOTHING)]
#[case::tar(TAR)]
#[tokio::test(flavor = "multi_thread")]
async fn weakness_3_edit_within_the_same_second_is_known_where_a_host_keeps_whole_ones(
    #[case] programs: &[&str],
) {
    let (stage, _programs) = bare(programs).await;
    let second = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let edit = |content: &str, milliseconds: u64| {
        stage.write(Way::Up, "a", content);
        let file = fs::File::open(stage.here.join("a")).unwrap();
        let time = second + Duration::from_millis(milliseconds);
        file.set_modified(time).unwrap();
    };
    edit("old1", 300);
    stage.sync(Way::Up, json!({})).await;
    edit("new2", 700);
    let done = stage.sync(Way::Up, json!({})).await;
    assert_eq!(count(&done, "uploaded_files"), 1, "{done}");
    assert_eq!(fs::read(stage.there.join("a")).unwrap(), b"new2");
    let again = stage.sync(Way::Up, json!({})).await;
    assert_eq!(count(&again, "uploaded_files"), 0, "{again}");
    // What came from there and was edited here within its second is an edit, too.
    fs::remove_file(stage.here.join("a")).unwrap();
    stage.sync(Way::Down, json!({})).await;
    edit("mine", 400);
    let kept = stage.sync(Way::Down, json!({})).await;
    assert!(problems(&kept).contains_key("a"), "{kept}");
    assert!(kept["revision"].is_null(), "{kept}");
    let done = stage.sync(Way::Up, json!({})).await;
    assert_eq!(count(&done, "uploaded_files"), 1, "{done}");
}

#[tokio::test(flavor = "multi_thread")]
async fn f56_circles_of_links_end_where_find_goes_round_in_them() {
    let (stage, programs) = bare(&["sh", "mkdir", "rm", "mv", "sleep"]).await;
    let busybox = Path::new("/bin/busybox");
    if !busybox.exists() {
        println!("skipped: this machine has no busybox");
        return;
    }
    for name in ["find", "stat", "readlink", "tar", "chmod", "touch", "xargs"] {
        symlink(busybox, programs.path().join(name)).unwrap();
    }
    stage.write(Way::Down, "d/a", "1");
    symlink("..", stage.there.join("d/up")).unwrap();
    symlink("../d", stage.there.join("d/same")).unwrap();
    let done = stage.sync(Way::Down, json!({"follow_links": true})).await;
    let told = problems(&done);
    assert!(
        told.contains_key("d/up") && told.contains_key("d/same"),
        "{done}"
    );
    assert_eq!(done["downloaded_files"], 1, "{done}");
}

#[rstest]
#[case::excludes(json!({"excludes": ["/data/"]}))]
#[case::among_many(json!({"excludes": many_rules()}))]
#[case::gitignore(json!({"use_gitignore": true}))]
#[tokio::test(flavor = "multi_thread")]
async fn f67_excluded_directory_of_the_host_is_never_listed(#[case] more: Value) {
    let (stage, programs) = bare(FIND).await;
    let (find, log) = (programs.path().join("find"), programs.path().join("log"));
    let real = fs::read_link(&find).unwrap();
    fs::remove_file(&find).unwrap();
    // What it says is kept, too.
    let text = format!(
        "#!/bin/sh\n{real} \"$@\" >>{log}\nexec {real} \"$@\"\n",
        log = log.display(),
        real = real.display()
    );
    fs::write(&find, text).unwrap();
    fs::set_permissions(&find, PermissionsExt::from_mode(0o755)).unwrap();
    stage.write(Way::Up, "a", "1");
    stage.write(Way::Up, ".gitignore", "data/\n");
    crate::files::write(&stage.there.join("data/deep/file"), "1");
    stage.sync(Way::Up, more).await;
    let said = fs::read(&log).unwrap();
    let said = String::from_utf8_lossy(&said);
    let begins = |begin: &str| said.split('\0').any(|record| record.starts_with(begin));
    assert!(begins("data//d "), "{said}");
    assert!(!begins("data/deep"), "{said}");
}

#[rstest]
#[case::nothing(NOTHING)]
#[case::tar(TAR)]
#[case::find(FIND)]
#[tokio::test(flavor = "multi_thread")]
async fn link_that_is_named_gives_what_it_leads_to_whatever_the_host_has(
    #[case] programs: &[&str],
    #[values(7, 9_000_000)] size: usize,
) {
    let (stage, _programs) = bare(programs).await;
    let content = Random::new(3).bytes(size);
    stage.write(Way::Down, "v1.bin", &content);
    symlink("v1.bin", stage.there.join("latest.bin")).unwrap();
    let paths = json!({"remote_path": "copy/latest.bin"});
    let done = stage.sync(Way::Down, paths).await;
    assert_eq!(done["problem_count"], 0, "{done}");
    let here = stage.here.join("latest.bin");
    assert!(!here.is_symlink() && fs::read(here).unwrap() == content);
}

/// The rule for `data`, after more others than would fit on a page.
fn many_rules() -> Vec<String> {
    let others = (0..400).map(|number| format!("/a{number}/"));
    others.chain(["/data/".to_owned()]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn f56_circle_of_links_is_told_by_its_path_where_find_is_all_there_is() {
    let (stage, _programs) = bare(FIND).await;
    stage.write(Way::Down, "d/a", "1");
    symlink("..", stage.there.join("d/it's up")).unwrap();
    symlink("../d", stage.there.join("d/same")).unwrap();
    symlink("..", stage.there.join("d/100% zurück")).unwrap();
    symlink("self", stage.there.join("self")).unwrap();
    symlink("d", stage.there.join("other")).unwrap();
    let done = stage.sync(Way::Down, json!({"follow_links": true})).await;
    let told = problems(&done);
    let mut named: Vec<&str> = told.keys().map(String::as_str).collect();
    named.sort_unstable();
    let names = ["100% zurück", "it's up", "same"];
    let places = ["d", "other"].into_iter();
    let circles = places.flat_map(|place| names.map(|name| format!("{place}/{name}")));
    let circles: Vec<String> = circles.chain(["self".to_owned()]).collect();
    assert_eq!(named, circles, "{done}");
    let is_clear = |words: &String| words.contains("leads back");
    assert!(told.values().all(is_clear), "{told:?}");
    assert_eq!(fs::read(stage.here.join("other/a")).unwrap(), b"1");
}

#[tokio::test(flavor = "multi_thread")]
async fn host_without_find_is_planned_for_and_lists_its_files() {
    let (stage, _programs) = bare(NOTHING).await;
    plant(&stage, Way::Down);
    let plan = stage.sync(Way::Down, json!({"dry_run": true})).await;
    assert_eq!(action(&plan, "send_file")["count"], 303, "{plan}");
    assert_eq!(problems(&plan).len(), 0);
    let list = |more: Value| async {
        let arguments = crate::support::with(json!({"remote_path": "copy"}), more);
        let reply = stage.client.call_tool("list_remote_files", arguments).await;
        assert!(!reply.is_error, "{}", reply.text);
        reply.json
    };
    let names = |list: &Value| -> Vec<String> {
        let entries = list["entries"].as_array().unwrap().iter();
        let paths = entries.map(|entry| entry["path"].as_str().unwrap());
        paths.map(str::to_owned).collect()
    };
    let level = list(json!({})).await;
    let expected = ["d0", "d1", "d2", "d3", "d4", "empty", "large", "link"];
    let found = names(&level);
    assert_eq!(found.len(), 10, "{level}");
    for (name, expected) in found.iter().zip(expected) {
        assert_eq!(*name, format!("copy/{expected}"));
    }
    let part = list(json!({"recursive": true, "max_entries": 20})).await;
    assert_eq!((names(&part).len(), &part["truncated"]), (20, &json!(true)));
    let refused = stage
        .call(Way::Down, json!({"remote_path": "copy/nowhere"}))
        .await;
    assert_eq!(refused.json["code"], "not_found", "{}", refused.text);
    stage.sync(Way::Down, json!({})).await;
    let refused = stage.call(Way::Up, json!({"checksum": true})).await;
    assert_eq!(refused.json["code"], "remote_refused", "{}", refused.text);
}
