use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use rstest::rstest;
use sha2::Digest;

use super::*;
use crate::sync::samples::path;

fn mark() -> RunToken {
    RunToken::from_uuid_bytes([9; 16])
}

fn root() -> HostPath {
    HostPath::parse(b"~/t").unwrap()
}

/// Runs a script as an argument of a shell, with a list on its standard input.
fn run(home: &Path, shell: &[&str], script: &str, list: &[u8]) -> Vec<u8> {
    let mut child = Command::new(shell[0])
        .args(&shell[1..])
        .args(["-c", script])
        .env("HOME", home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(list).unwrap();
    child.wait_with_output().unwrap().stdout
}

#[rstest]
#[case(&["dash"])]
#[case(&["bash"])]
#[case(&["busybox", "sh"])]
fn list_is_removed_and_what_stays_is_told(#[case] shell: &[&str]) {
    let home = tempfile::tempdir().unwrap();
    let target = home.path().join("t");
    std::fs::create_dir_all(target.join("full/sub")).unwrap();
    std::fs::create_dir(target.join("outside")).unwrap();
    std::fs::write(target.join("outside/kept"), "").unwrap();
    for name in ["a", "-rf", "new\nline"] {
        std::fs::write(target.join(name), "").unwrap();
    }
    symlink("outside", target.join("link")).unwrap();
    let names = ["a", "-rf", "new\nline", "link", "missing", "full"].map(path);
    let script = remove_script(&root(), Removal::Files, &[], &mark());
    let mut list = sealed_list(&mark(), names.iter());
    // What a cut link leaves of a name is not taken for one.
    std::fs::write(target.join("log"), "").unwrap();
    list.extend_from_slice(b"./log");
    let output = run(home.path(), shell, &script, &list);
    assert!(target.join("log").exists());
    assert_eq!(parse_removed(&mark(), &output), Some(vec![path("full")]));
    assert!(target.join("outside/kept").exists());
    let directories = [path("full/sub"), path("full"), path("outside")];
    let script = remove_script(&root(), Removal::Directories, &[], &mark());
    let output = run(
        home.path(),
        shell,
        &script,
        &sealed_list(&mark(), directories.iter()),
    );
    assert_eq!(parse_removed(&mark(), &output), Some(vec![path("outside")]));
    assert!(!target.join("full").exists());
    assert_eq!(parse_removed(&mark(), b"RSMCP:./a\0"), None);
}

#[test]
fn modes_and_times_are_set() {
    let home = tempfile::tempdir().unwrap();
    let target = home.path().join("t");
    std::fs::create_dir(&target).unwrap();
    std::fs::write(target.join("a b"), "").unwrap();
    let names = [path("a b")];
    let script = mode_script(&root(), 0o751, &[], &mark());
    let output = run(
        home.path(),
        &["dash"],
        &script,
        &sealed_list(&mark(), names.iter()),
    );
    assert_eq!(parse_modes(&mark(), &output), Some((true, Vec::new())));
    let output = run(
        home.path(),
        &["dash"],
        &script,
        &sealed_list(&mark(), [path("no")].iter()),
    );
    assert_eq!(parse_modes(&mark(), &output), Some((false, Vec::new())));
    let times = [(
        path("a b"),
        Mtime::exact(1_700_000_000, 123_456_789).unwrap(),
    )];
    run(
        home.path(),
        &["dash"],
        &times_script(&root(), &times, &[], &mark()),
        b"",
    );
    let found = std::fs::metadata(target.join("a b")).unwrap();
    assert_eq!(found.mode() & 0o777, 0o751);
    assert_eq!(
        (found.mtime(), found.mtime_nsec()),
        (1_700_000_000, 123_456_789)
    );
}

#[rstest]
#[case(&["dash"])]
#[case(&["busybox", "sh"])]
fn digests_are_told_by_path(#[case] shell: &[&str]) {
    let home = tempfile::tempdir().unwrap();
    let target = home.path().join("t");
    std::fs::create_dir(&target).unwrap();
    let names = ["a b", "-x", "back\\slash", "n\nl"];
    for name in names {
        std::fs::write(target.join(name), name).unwrap();
    }
    let paths = names.map(path);
    let list = path_list(paths.iter().chain([&path("missing")]));
    let output = run(home.path(), shell, &digest_script(&root(), &mark()), &list);
    let digests = parse_digests(&mark(), &output).unwrap();
    for name in ["a b", "-x", "back\\slash"] {
        let expected: ContentDigest = sha2::Sha256::digest(name).into();
        assert_eq!(digests.get(&path(name)), Some(&expected), "{name}");
    }
    assert!(!digests.contains_key(&path("missing")));
}

#[rstest]
#[case(&["dash"])]
#[case(&["bash", "--posix"])]
fn clock_of_the_host_is_told_where_it_has_one(#[case] shell: &[&str]) {
    let home = tempfile::tempdir().unwrap();
    let script = clock_script(&mark());
    let now = parse_clock(&mark(), &run(home.path(), shell, &script, b"")).unwrap();
    assert!(now > 1_600_000_000, "{now}");
    let none = format!("PATH=/nowhere\n{script}");
    let output = run(home.path(), shell, &none, b"");
    assert_eq!(parse_clock(&mark(), &output), None);
}

#[test]
fn free_space_is_told_also_for_what_is_not_there_yet() {
    let home = tempfile::tempdir().unwrap();
    let missing = HostPath::parse(b"~/not/yet/here").unwrap();
    let script = space_script(&missing, &mark());
    let output = run(home.path(), &["dash"], &script, b"");
    assert!(parse_space(&mark(), &output).unwrap() > 0);
    assert_eq!(parse_space(&mark(), b"RSMCP:x"), None);
    // A device may have blanks in its name.
    let odd = format!("df() {{ echo 'my disk 100 40 60 40% /mnt/x'; }}\n{script}");
    let output = run(home.path(), &["dash"], &odd, b"");
    assert_eq!(parse_space(&mark(), &output), Some(60 * 1024));
}

#[rstest]
#[case(&["dash"])]
#[case(&["bash"])]
#[case(&["busybox", "sh"])]
fn nothing_is_done_behind_a_link_that_is_no_directory_of_the_tree(#[case] shell: &[&str]) {
    let home = tempfile::tempdir().unwrap();
    let target = home.path().join("t");
    std::fs::create_dir_all(target.join("d")).unwrap();
    std::fs::create_dir_all(home.path().join("other/deep")).unwrap();
    for name in ["other/f", "other/deep/f", "t/d/f"] {
        std::fs::write(home.path().join(name), "").unwrap();
    }
    symlink("../other", target.join("link")).unwrap();
    symlink("../../other/f", target.join("d/name")).unwrap();
    let before = std::fs::metadata(home.path().join("other/f"))
        .unwrap()
        .mode();
    let names = ["link/f", "link/deep/f", "d/f", "d/name"].map(path);
    let list = sealed_list(&mark(), names.iter());
    let script = mode_script(&root(), 0o711, &[], &mark());
    let output = run(home.path(), shell, &script, &list);
    let left = vec![path("link/f"), path("link/deep/f"), path("d/name")];
    assert_eq!(parse_modes(&mark(), &output), Some((true, left)));
    let after = std::fs::metadata(home.path().join("other/f"))
        .unwrap()
        .mode();
    assert_eq!(before, after);
    let script = remove_script(&root(), Removal::Files, &[], &mark());
    let output = run(home.path(), shell, &script, &list);
    let left = vec![path("link/f"), path("link/deep/f")];
    assert_eq!(parse_removed(&mark(), &output), Some(left));
    assert!(home.path().join("other/deep/f").exists() && !target.join("d/f").exists());
    // A link that files are meant to go through is gone through, and the next one is not.
    symlink("deep", home.path().join("other/inner")).unwrap();
    let names = ["link/f", "link/inner/f"].map(path);
    let (link, list) = (path("link"), sealed_list(&mark(), names.iter()));
    let script = remove_script(&root(), Removal::Files, &[&link], &mark());
    let output = run(home.path(), shell, &script, &list);
    let left = vec![path("link/inner/f")];
    assert_eq!(parse_removed(&mark(), &output), Some(left));
    assert!(!home.path().join("other/f").exists());
}

#[rstest]
#[case::python("/usr/bin:/bin")]
#[case::touch("")]
fn times_are_set_only_below_the_root(#[case] programs: &str) {
    let folder = tempfile::tempdir().unwrap();
    symlink("/usr/bin/touch", folder.path().join("touch")).unwrap();
    let programs = match programs {
        "" => folder.path().to_str().unwrap(),
        usual => usual,
    };
    let home = tempfile::tempdir().unwrap();
    let target = home.path().join("t");
    std::fs::create_dir_all(target.join("d")).unwrap();
    std::fs::create_dir(home.path().join("other")).unwrap();
    for name in ["other/f", "t/d/a b", "t/d/c", "t/e"] {
        std::fs::write(home.path().join(name), "").unwrap();
    }
    symlink("../other", target.join("link")).unwrap();
    let time = Mtime::exact(1_700_000_000, 5).unwrap();
    let names = ["d/a b", "d/c", "e", "link/f"];
    let times = names.map(|name| (path(name), time));
    let script = times_script(&root(), &times, &[], &mark());
    let script = format!("PATH='{programs}'\n{script}");
    run(home.path(), &["dash"], &script, b"");
    for name in ["t/d/a b", "t/d/c", "t/e"] {
        let found = std::fs::metadata(home.path().join(name)).unwrap();
        assert_eq!((found.mtime(), found.mtime_nsec()), (1_700_000_000, 5));
    }
    let other = std::fs::metadata(home.path().join("other/f")).unwrap();
    assert_ne!(other.mtime(), 1_700_000_000);
    let (link, times) = (path("link"), [(path("link/f"), time)]);
    let script = times_script(&root(), &times, &[&link], &mark());
    let script = format!("PATH='{programs}'\n{script}");
    run(home.path(), &["dash"], &script, b"");
    let other = std::fs::metadata(home.path().join("other/f")).unwrap();
    assert_eq!(other.mtime(), 1_700_000_000);
}

#[test]
fn thousands_of_files_of_one_directory_take_no_quadratic_time() {
    let home = tempfile::tempdir().unwrap();
    let target = home.path().join("t");
    std::fs::create_dir(&target).unwrap();
    let names: Vec<RelPath> = (0..20_000)
        .map(|number| path(&format!("{number}")))
        .collect();
    for name in &names {
        std::fs::write(target.join(name.shown().text), "").unwrap();
    }
    let list = sealed_list(&mark(), names.iter());
    let script = remove_script(&root(), Removal::Files, &[], &mark());
    let began = std::time::Instant::now();
    let output = run(home.path(), &["dash"], &script, &list);
    assert_eq!(parse_removed(&mark(), &output), Some(Vec::new()));
    assert_eq!(std::fs::read_dir(&target).unwrap().count(), 0);
    // The quadratic way takes half a minute.
    assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
}
