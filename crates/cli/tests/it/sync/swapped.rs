//! A host where somebody puts a link in the place of a directory between the scan and what follows it (f56, f61).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use remote_sandbox_testkit::Sshd;
use rstest::rstest;
use serde_json::json;
use tempfile::TempDir;

use super::stage::{Stage, Way};
use super::{problems, snapshot};
use crate::files::write;

const SECRET: &str = "not for anybody who may write into the tree";

/// A host with stand-ins for its programs, and a folder beside the tree.
struct Swapper {
    stage: Stage,
    programs: TempDir,
    secret: PathBuf,
}

impl Swapper {
    async fn new() -> Self {
        let programs = TempDir::with_prefix("swapper-").unwrap();
        fs::set_permissions(programs.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/bin:/bin", programs.path().display());
        let host = Sshd::builder().session_environment("PATH", &path);
        let stage = Stage::with(host, json!({}), &[]).await;
        fs::create_dir_all(&stage.there).unwrap();
        let secret = stage.sshd.dir().join("home/secret");
        write(&secret.join("f"), SECRET);
        fs::set_permissions(secret.join("f"), PermissionsExt::from_mode(0o600)).unwrap();
        Swapper {
            stage,
            programs,
            secret,
        }
    }

    /// Lets a program put a link in the place of `d` before it does its work, when its arguments match; and take it away
    /// again afterwards.
    fn swaps_in(&self, program: &str, pattern: &str, and_back: bool) {
        let (there, secret) = (self.stage.there.display(), self.secret.display());
        let back = match and_back {
            true => format!("rm {there}/d; mv {there}-d {there}/d"),
            false => ":".to_owned(),
        };
        let script = format!(
            "#!/bin/sh\nswapped=\ncase \"$*\" in {pattern}) if [ -d {there}/d ] && [ ! -h {there}/d ]; then\n\
             mv {there}/d {there}-d && ln -sn {secret} {there}/d && swapped=1\nfi ;; esac\n\
             /usr/bin/{program} \"$@\"; code=$?\n[ -z \"$swapped\" ] || {{ {back}; }}\nexit $code\n"
        );
        let path = self.programs.path().join(program);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    fn assert_untouched(&self) {
        let found = snapshot(&self.secret);
        assert_eq!(found.len(), 1, "{:?}", found.keys());
        let (_, mode, _, content) = &found[b"f".as_slice()];
        assert_eq!((*mode, content.as_slice()), (0o600, SECRET.as_bytes()));
    }
}

#[rstest]
#[case::for_good(false)]
#[case::and_back(true)]
#[tokio::test]
async fn f56_directory_swapped_for_a_link_while_it_is_packed_gives_nothing_away(
    #[case] and_back: bool,
) {
    let swapper = Swapper::new().await;
    write(&swapper.stage.there.join("d/f"), "mine");
    write(&swapper.stage.there.join("e/g"), "mine, too");
    swapper.swaps_in("tar", "*-cf*", and_back);
    let done = swapper.stage.sync(Way::Down, json!({})).await;
    let come = fs::read(swapper.stage.here.join("d/f")).unwrap_or_default();
    assert_ne!(come, SECRET.as_bytes(), "{done}");
    assert!(problems(&done).contains_key("d/f"), "{done}");
    assert!(done["revision"].is_null(), "{done}");
    assert_eq!(
        fs::read(swapper.stage.here.join("e/g")).unwrap(),
        b"mine, too"
    );
}

#[rstest]
#[case::by_programs(1)]
#[case::by_the_file_protocol(12)]
#[tokio::test]
async fn f61_directory_swapped_for_a_link_is_not_written_through(#[case] folders: usize) {
    let swapper = Swapper::new().await;
    let stage = &swapper.stage;
    stage.write(Way::Up, "d/f", "first");
    for number in 1..folders {
        stage.write(Way::Up, &format!("d{number}/g"), "first");
    }
    stage.sync(Way::Up, json!({})).await;
    stage.write(Way::Up, "d/f", "the second one");
    for number in 1..folders {
        stage.write(Way::Up, &format!("d{number}/g"), "the second one");
    }
    swapper.swaps_in("tar", "-x*", false);
    let done = stage.sync(Way::Up, json!({})).await;
    swapper.assert_untouched();
    assert!(problems(&done).contains_key("d/f"), "{done}");
    assert_eq!(done["uploaded_files"], folders - 1, "{done}");
    // The next one finds a link and says so.
    let again = stage.sync(Way::Up, json!({})).await;
    swapper.assert_untouched();
    assert!(again["problem_count"].as_u64() > Some(0), "{again}");
}

#[rstest]
#[case::before_the_list_is_read("xargs")]
#[case::just_before_it_is_deleted("rm")]
#[tokio::test]
async fn f61_directory_swapped_for_a_link_is_not_deleted_through(#[case] program: &str) {
    let swapper = Swapper::new().await;
    let stage = &swapper.stage;
    for name in ["d/f", "d/kept", "e/f", "e/kept", "kept"] {
        stage.write(Way::Up, name, "1");
    }
    stage.sync(Way::Up, json!({})).await;
    fs::remove_file(stage.here.join("d/f")).unwrap();
    fs::remove_file(stage.here.join("e/f")).unwrap();
    swapper.swaps_in(program, "*", false);
    let delete = json!({"delete_extras": true, "confirm_delete": 2});
    let done = stage.sync(Way::Up, delete).await;
    swapper.assert_untouched();
    assert!(!stage.there.join("e/f").exists(), "{done}");
    if program == "xargs" {
        assert!(problems(&done).contains_key("d/f"), "{done}");
    }
}

#[tokio::test]
async fn f61_permissions_are_not_set_through_a_link() {
    let swapper = Swapper::new().await;
    let stage = &swapper.stage;
    stage.write(Way::Up, "d/f", "1");
    stage.write(Way::Up, "e/f", "1");
    stage.sync(Way::Up, json!({})).await;
    for name in ["d/f", "e/f"] {
        fs::set_permissions(stage.here.join(name), PermissionsExt::from_mode(0o755)).unwrap();
    }
    swapper.swaps_in("xargs", "*", false);
    let done = stage.sync(Way::Up, json!({})).await;
    swapper.assert_untouched();
    assert!(problems(&done).contains_key("d/f"), "{done}");
    let mode = fs::metadata(stage.there.join("e/f")).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o755);
}
