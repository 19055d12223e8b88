use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use rstest::rstest;

use super::*;
use crate::archive::{ArchiveWriter, Precision};
use crate::sync::plan::{Action, Difference};
use crate::sync::samples::{directory, file, link};
use crate::sync::staging::{Regions, Stager};
use crate::sync::{Entry, LinkEnd};

fn mark() -> RunToken {
    RunToken::from_uuid_bytes([9; 16])
}

fn batch(entries: &[Entry]) -> Batch {
    let regions = Regions::default();
    let mut stager = Stager::new(RunToken::from_uuid_bytes([7; 16]), &regions);
    for entry in entries {
        let entry = entry.clone();
        let action = match &entry.kind {
            crate::sync::Kind::Directory => Action::MakeDirectory {
                entry,
                replaces: None,
            },
            crate::sync::Kind::Link { .. } => Action::SendLink {
                entry,
                replaces: None,
            },
            _ => Action::SendFile {
                entry,
                replaces: None,
                difference: Difference::Missing,
            },
        };
        stager.add(action).unwrap();
    }
    stager.take().unwrap()
}

/// An archive of a batch in which every file holds its size in `x`.
fn archive(batch: &Batch, is_sealed: bool) -> Vec<u8> {
    let mut writer = ArchiveWriter::new(Precision::Nanoseconds);
    let mut bytes = Vec::new();
    for staged in &batch.staged {
        let entry = Entry {
            path: staged.place.clone(),
            ..staged.source.clone()
        };
        bytes.extend(writer.begin(&entry).unwrap());
        if entry.kind.is_file() {
            let content = vec![b'x'; entry.size_bytes as usize];
            writer.content(content.len()).unwrap();
            bytes.extend(content);
        }
        bytes.extend(writer.end_entry().unwrap());
    }
    let seal = if is_sealed { SEAL } else { UNSEALED };
    let path = batch.folders[0].join(seal).unwrap();
    bytes.extend(writer.begin(&file(&path.shown().text, 0, 0)).unwrap());
    bytes.extend(writer.end_entry().unwrap());
    bytes.extend(writer.finish().unwrap());
    bytes
}

/// Runs a script as a host with one of the usual sets of programs does.
fn run(home: &Path, programs: &str, script: &str, input: &[u8]) -> Vec<u8> {
    let mut command = match programs {
        "busybox" => {
            let mut command = Command::new("busybox");
            command.args(["sh", "-c"]);
            command
        }
        shell => {
            let mut command = Command::new(shell);
            command.arg("-c");
            command
        }
    };
    let mut child = command
        .arg(script)
        .env("HOME", home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let _ = stdin.write_all(input);
    drop(stdin);
    child.wait_with_output().unwrap().stdout
}

fn receive(home: &Path, programs: &str, batch: &Batch, input: &[u8]) -> Option<Received> {
    let root = HostPath::parse(b"~/my target").unwrap();
    let script = receive_script(
        (&root, None),
        batch,
        Packing::Plain,
        Publishing::AtOnce,
        &mark(),
    );
    let output = run(home, programs, &script, input);
    parse_received(&mark(), &output, Publishing::AtOnce)
}

#[rstest]
#[case("dash")]
#[case("bash")]
#[case("busybox")]
fn batch_gets_its_names_when_it_is_sealed(#[case] programs: &str) {
    let home = tempfile::tempdir().unwrap();
    let target = home.path().join("my target");
    std::fs::create_dir_all(target.join("old")).unwrap();
    std::fs::create_dir(target.join("elsewhere")).unwrap();
    std::fs::write(target.join("old/-f"), "before").unwrap();
    symlink("elsewhere", target.join("old/link")).unwrap();
    let mut program = file("new/run", 3, 9);
    program.mode = 0o755;
    let batch = batch(&[
        directory("new"),
        directory("new/empty"),
        program,
        file("new/x y\n", 2, 0),
        link("old/dangling", "nowhere", LinkEnd::Nothing),
        file("old/-f", 5, 0),
        file("old/link", 4, 0),
    ]);
    let received = receive(home.path(), programs, &batch, &archive(&batch, true)).unwrap();
    assert_eq!((received.unpacked, received.published), (Some(0), true));
    assert!(received.left.is_empty() && !received.has_no_gzip);
    let found = std::fs::metadata(target.join("new/run")).unwrap();
    assert_eq!(received.keeps_fractions, found.mtime_nsec() != 0);
    let found = std::fs::metadata(target.join("new/run")).unwrap();
    assert_eq!((found.len(), found.mode() & 0o777), (3, 0o755));
    assert_eq!(found.mtime(), 1_700_000_009);
    assert_eq!(std::fs::read(target.join("new/x y\n")).unwrap(), b"xx");
    assert_eq!(std::fs::read(target.join("old/-f")).unwrap(), b"xxxxx");
    // The link was replaced, not gone through.
    let replaced = std::fs::symlink_metadata(target.join("old/link")).unwrap();
    assert!(replaced.is_file());
    assert_eq!(
        std::fs::read_dir(target.join("elsewhere")).unwrap().count(),
        0
    );
    assert!(target.join("new/empty").is_dir());
    assert!(target.join("old/dangling").is_symlink());
    let rest = std::fs::read_dir(&target).unwrap();
    assert_eq!(rest.count(), 3, "the folder is gone");
}

#[test]
fn batch_that_broke_off_is_not_renamed() {
    let home = tempfile::tempdir().unwrap();
    let batch = batch(&[file("a", 3, 0), file("b", 3, 0)]);
    let whole = archive(&batch, true);
    let received = receive(home.path(), "dash", &batch, &whole[..whole.len() - 2600]);
    assert!(received.is_none_or(|received| !received.published));
    // Nobody waits for it any more, so nothing of it is left.
    let left = std::fs::read_dir(home.path().join("my target")).unwrap();
    assert_eq!(left.count(), 0);
    let unsealed = receive(home.path(), "dash", &batch, &archive(&batch, false)).unwrap();
    assert_eq!((unsealed.unpacked, unsealed.published), (Some(0), false));
    let target = home.path().join("my target");
    assert!(!target.join("a").exists() && !target.join("b").exists());
    let folder = target.join(batch.folders[0].shown().text);
    assert!(folder.join("1/b").exists());
    let root = HostPath::parse(b"~/my target").unwrap();
    let scripts = publish_scripts(&root, &batch, &mark());
    assert_eq!(scripts.len(), 1);
    let output = run(home.path(), "dash", &scripts[0], b"");
    let received = parse_received(&mark(), &output, Publishing::AtOnce).unwrap();
    assert!(received.published && received.left.is_empty());
    assert!(target.join("b").exists() && !folder.exists());
}

#[test]
fn what_cannot_be_renamed_is_told_and_the_rest_is_renamed() {
    let home = tempfile::tempdir().unwrap();
    let target = home.path().join("my target");
    std::fs::create_dir_all(target.join("d/taken/full")).unwrap();
    let batch = batch(&[
        file("d/taken", 3, 0),
        file("d/z", 3, 0),
        file("gone/x", 1, 0),
    ]);
    let received = receive(home.path(), "bash", &batch, &archive(&batch, true)).unwrap();
    let left = batch.renames.iter();
    let left = left.filter(|rename| received.left.contains(&rename.from));
    let left: Vec<String> = left.map(|rename| rename.to.shown().text).collect();
    assert_eq!(left, ["d/taken", "gone/x"]);
    assert!(target.join("d/z").exists() && target.join("d/taken/full").exists());
}

#[test]
fn folders_are_private_and_can_be_discarded() {
    let home = tempfile::tempdir().unwrap();
    let batch = batch(&[file("a", 3, 0)]);
    receive(home.path(), "dash", &batch, &archive(&batch, false)).unwrap();
    let target = home.path().join("my target");
    let folder = target.join(batch.folders[0].shown().text);
    let mode = std::fs::metadata(&folder).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let root = HostPath::parse(b"~/my target").unwrap();
    run(
        home.path(),
        "dash",
        &discard_script(&root, &batch.folders, &mark()),
        b"",
    );
    assert!(!folder.exists() && target.exists());
}

#[test]
fn packed_archive_is_unpacked() {
    let home = tempfile::tempdir().unwrap();
    let batch = batch(&[file("a", 3, 0)]);
    let mut gzip = Command::new("gzip")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    gzip.stdin
        .take()
        .unwrap()
        .write_all(&archive(&batch, true))
        .unwrap();
    let packed = gzip.wait_with_output().unwrap().stdout;
    let root = HostPath::parse(b"~/my target").unwrap();
    let script = receive_script(
        (&root, None),
        &batch,
        Packing::Gzip,
        Publishing::AtOnce,
        &mark(),
    );
    let output = run(home.path(), "dash", &script, &packed);
    assert!(
        parse_received(&mark(), &output, Publishing::AtOnce)
            .unwrap()
            .published
    );
    assert!(home.path().join("my target/a").exists());
}

#[test]
fn target_that_cannot_be_made_says_nothing() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("my target"), "a file").unwrap();
    let batch = batch(&[file("a", 3, 0)]);
    assert_eq!(
        receive(home.path(), "dash", &batch, &archive(&batch, true)),
        None
    );
}

#[test]
fn archive_with_an_entry_that_cannot_be_unpacked_is_not_published_although_it_is_sealed() {
    let home = tempfile::tempdir().unwrap();
    let mut batch = batch(&[file("a", 3, 0), file("b", 3, 0)]);
    // A file cannot lie in a file.
    batch.staged[1].place = batch.staged[0].place.join(b"below").unwrap();
    let received = receive(home.path(), "dash", &batch, &archive(&batch, true)).unwrap();
    assert!(received.unpacked != Some(0) && !received.published);
    assert!(!home.path().join("my target/a").exists());
}

#[test]
fn names_of_a_thousand_folders_are_given_by_scripts_that_every_system_takes() {
    let home = tempfile::tempdir().unwrap();
    let target = home.path().join("my target");
    let long = "long name of a folder ".repeat(5);
    let names: Vec<String> = (0..1000).map(|number| format!("{long}{number}")).collect();
    let mut files = Vec::new();
    for name in &names {
        std::fs::create_dir_all(target.join(name)).unwrap();
        files.push(file(&format!("{name}/a"), 3, 0));
    }
    let batch = batch(&files);
    assert!(!fits_into_script(&batch));
    let root = HostPath::parse(b"~/my target").unwrap();
    let later = Publishing::Later;
    let script = receive_script((&root, None), &batch, Packing::Plain, later, &mark());
    let output = run(home.path(), "dash", &script, &archive(&batch, true));
    let received = parse_received(&mark(), &output, later).unwrap();
    assert_eq!((received.unpacked, received.published), (Some(0), false));
    let scripts = publish_scripts(&root, &batch, &mark());
    assert!(scripts.len() > 2);
    for script in scripts {
        assert!(script.len() < 100 * 1024, "{} bytes", script.len());
        let output = run(home.path(), "dash", &script, b"");
        let received = parse_received(&mark(), &output, Publishing::AtOnce).unwrap();
        assert!(received.published && received.left.is_empty());
    }
    assert!(
        names
            .iter()
            .all(|name| target.join(name).join("a").exists())
    );
    assert_eq!(std::fs::read_dir(&target).unwrap().count(), 1000);
}
