use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use rstest::rstest;

use super::*;
use crate::archive::{ArchiveReader, Event, MemberKind, Place};

/// Folders of programs: the host's own, and one where `tar` is that of busybox; none where that is missing.
fn programs(kind: &str) -> Option<(tempfile::TempDir, String)> {
    let folder = tempfile::tempdir().unwrap();
    let usual = std::env::var("PATH").unwrap();
    match kind {
        "usual" => {}
        "busybox" => {
            let busybox = ["/bin/busybox", "/usr/bin/busybox"];
            let busybox = busybox.into_iter().find(|path| Path::new(path).exists())?;
            symlink(busybox, folder.path().join("tar")).unwrap();
        }
        _ => {
            let path = folder.path().to_str().unwrap().to_owned();
            return Some((folder, path));
        }
    }
    let path = format!("{}:{usual}", folder.path().display());
    Some((folder, path))
}

fn run(script: &str, path: &str, input: &[u8]) -> (Option<i32>, Vec<u8>) {
    let mut child = Command::new("/bin/sh")
        .args(["-c", script])
        .env("PATH", path)
        .env("TAR_OPTIONS", "--exclude=*")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let _ = stdin.write_all(input);
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    (output.status.code(), output.stdout)
}

fn members(archive: &[u8]) -> Vec<(RelPath, MemberKind)> {
    let (mut reader, mut rest) = (ArchiveReader::reading_on(), archive);
    let mut found = Vec::new();
    loop {
        let (used, event) = reader.read(rest).unwrap();
        rest = &rest[used..];
        match event {
            Event::Member(member) => match member.place {
                Place::Below(path) => found.push((path, member.kind)),
                Place::Root => panic!("the root was not asked for"),
            },
            Event::More => {
                reader.finish().unwrap();
                return found;
            }
            Event::End => panic!("more could follow"),
            Event::Content(_) | Event::MemberEnd => {}
        }
    }
}

const NAMES: [&[u8]; 8] = [
    b"a",
    b"-rf",
    b"d/with space",
    b"d/back\\slash",
    b"d/\xff\xfe",
    b"link",
    b"*",
    b"new\nline",
];

fn tree() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("d")).unwrap();
    for name in NAMES.into_iter().chain([b"other".as_slice()]) {
        let place = folder.path().join(OsStr::from_bytes(name));
        match name {
            b"link" => symlink("a", place).unwrap(),
            _ => std::fs::write(place, name).unwrap(),
        }
    }
    folder
}

fn path(bytes: &[u8]) -> RelPath {
    RelPath::parse(bytes).unwrap()
}

#[rstest]
#[case("usual")]
#[case("busybox")]
fn exactly_the_listed_files_are_packed(#[case] kind: &str, #[values(false, true)] follow: bool) {
    let Some((_folder, programs)) = programs(kind) else {
        return;
    };
    let tree = tree();
    let packing = Packing {
        root: tree.path().as_os_str().as_bytes(),
        follow_links: follow,
    };
    let mut list = Vec::new();
    for name in NAMES.into_iter().chain([b"missing".as_slice()]) {
        list.extend(listed(&path(name)));
        list.push(0);
    }
    let (code, archive) = run(&packing.script(), &programs, &list);
    assert_ne!(code, Some(0), "something was missing");
    let found = members(&archive);
    let names: Vec<_> = found.iter().map(|(path, _)| path.as_bytes()).collect();
    assert_eq!(names, NAMES);
    let is_link = matches!(found[5].1, MemberKind::Link(_));
    assert_eq!(is_link, !follow);
}

#[test]
fn missing_program_and_missing_root_are_told_apart() {
    let tree = tree();
    let root = tree.path().as_os_str().as_bytes();
    let (_folder, nothing) = programs("none").unwrap();
    let packing = |root| Packing {
        root,
        follow_links: false,
    };
    let (code, _) = run(&packing(root).script(), &nothing, b"");
    assert_eq!(code, Some(NO_TAR as i32));
    let (code, _) = run(&packing(b"/nowhere/at all").script(), &nothing, b"");
    assert_eq!(code, Some(NO_ROOT as i32));
}

#[test]
fn more_names_than_one_call_takes_come_in_several_archives() {
    let Some((_folder, programs)) = programs("busybox") else {
        return;
    };
    let tree = tempfile::tempdir().unwrap();
    let names: Vec<RelPath> = (0..3000)
        .map(|number| path(format!("{number:0>100}").as_bytes()))
        .collect();
    let mut list = Vec::new();
    for name in &names {
        std::fs::write(tree.path().join(OsStr::from_bytes(name.as_bytes())), "x").unwrap();
        list.extend(listed(name));
        list.push(0);
    }
    let packing = Packing {
        root: tree.path().as_os_str().as_bytes(),
        follow_links: false,
    };
    let (code, archive) = run(&packing.script(), &programs, &list);
    assert_eq!(code, Some(0));
    let found: Vec<_> = members(&archive)
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    assert_eq!(found, names);
}
