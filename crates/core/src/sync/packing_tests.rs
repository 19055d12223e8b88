use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
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

fn mark() -> RunToken {
    RunToken::parse("0123456789abcdef0123456789abcdef").unwrap()
}

type Members = Vec<(RelPath, MemberKind)>;

fn members(archive: &[u8]) -> Members {
    members_and_remarks(archive).0
}

/// What is in an archive, and how many entries there were before each remark.
fn members_and_remarks(archive: &[u8]) -> (Members, Vec<(usize, Remark)>) {
    let blocks = Remark::ALL.map(|remark| remark.block(&mark())).to_vec();
    let mut reader = ArchiveReader::reading_on().with_remarks(blocks);
    let (mut rest, mut found, mut remarks) = (archive, Vec::new(), Vec::new());
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
                return (found, remarks);
            }
            Event::End => panic!("more could follow"),
            Event::Remark(number) => remarks.push((found.len(), Remark::ALL[number])),
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
    let mark = mark();
    let packing = Packing {
        root: tree.path().as_os_str().as_bytes(),
        follow_links: follow,
        mark: &mark,
        as_named: false,
        gzip: false,
        directories: Some(&[]),
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
    let mark = mark();
    let packing = |root| Packing {
        root,
        follow_links: false,
        mark: &mark,
        as_named: false,
        gzip: false,
        directories: Some(&[]),
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
    let mark = mark();
    let packing = Packing {
        root: tree.path().as_os_str().as_bytes(),
        follow_links: false,
        mark: &mark,
        as_named: false,
        gzip: false,
        directories: Some(&[]),
    };
    let (code, archive) = run(&packing.script(), &programs, &list);
    assert_eq!(code, Some(0));
    let found: Vec<_> = members(&archive)
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    assert_eq!(found, names);
}

#[test]
fn remark_behind_each_thousand_tells_whether_a_file_changed() {
    let tree = tempfile::tempdir().unwrap();
    let mut list = Vec::new();
    for number in 0..2500 {
        let name = format!("{number:04}");
        // Something of the second thousand cannot be packed.
        if number != 1500 {
            std::fs::write(tree.path().join(&name), "x").unwrap();
        }
        list.extend(listed(&path(name.as_bytes())));
        list.push(0);
    }
    let mark = mark();
    let packing = Packing {
        root: tree.path().as_os_str().as_bytes(),
        follow_links: false,
        mark: &mark,
        as_named: false,
        gzip: false,
        directories: Some(&[]),
    };
    let (_folder, programs) = programs("usual").unwrap();
    let (code, archive) = run(&packing.script(), &programs, &list);
    assert!(![Some(0), Some(NO_TAR as i32), Some(NO_ROOT as i32)].contains(&code));
    let (found, remarks) = members_and_remarks(&archive);
    assert_eq!(found.len(), 2499);
    let expected = [
        (1000, Remark::Unchanged),
        (1999, Remark::Unknown),
        (2499, Remark::Unchanged),
    ];
    assert_eq!(remarks, expected);
}

#[rstest]
#[case("usual")]
#[case("busybox")]
fn packed_archive_holds_the_same_and_ends_as_tar_does(
    #[case] kind: &str,
    #[values(false, true)] as_named: bool,
) {
    let Some((_folder, programs)) = programs(kind) else {
        return;
    };
    let (tree, mark) = (tree(), mark());
    let packing = |gzip| Packing {
        root: tree.path().as_os_str().as_bytes(),
        follow_links: false,
        mark: &mark,
        as_named,
        gzip,
        directories: Some(&[]),
    };
    for (name, is_whole) in [(b"a".as_slice(), true), (b"missing", false)] {
        let list = [&listed(&path(name)), b"\0".as_slice()].concat();
        let (code, plain) = run(&packing(false).script(), &programs, &list);
        let (packed_code, packed) = run(&packing(true).script(), &programs, &list);
        assert_eq!((code == Some(0), packed_code), (is_whole, code));
        assert!(packed.starts_with(&GZIP_MAGIC) && !plain.starts_with(&GZIP_MAGIC));
        let (_, unpacked) = run("exec gzip -dc", &programs, &packed);
        assert!(unpacked == plain);
        let remark = match is_whole {
            true => Remark::Unchanged,
            false => Remark::Unknown,
        };
        // What busybox has does not look twice.
        let remarks = match kind {
            "usual" => vec![(usize::from(is_whole), remark)],
            _ => Vec::new(),
        };
        assert_eq!(members_and_remarks(&unpacked).1, remarks);
    }
}

#[test]
fn archive_comes_plain_where_there_is_no_gzip() {
    let folder = tempfile::tempdir().unwrap();
    let usual = ["/bin/tar", "/usr/bin/tar"];
    let tar = usual.into_iter().find(|path| Path::new(path).exists());
    symlink(
        tar.expect("this machine has tar"),
        folder.path().join("tar"),
    )
    .unwrap();
    symlink("/bin/sh", folder.path().join("sh")).unwrap();
    let (tree, mark) = (tree(), mark());
    let packing = Packing {
        root: tree.path().as_os_str().as_bytes(),
        follow_links: false,
        mark: &mark,
        as_named: false,
        gzip: true,
        directories: Some(&[]),
    };
    let list = [&listed(&path(b"a")), b"\0".as_slice()].concat();
    let programs = folder.path().to_str().unwrap();
    let (code, archive) = run(&packing.script(), programs, &list);
    assert_eq!(code, Some(0));
    // There is no `xargs` either, and what was packed is known to be whole all the same.
    let (found, remarks) = members_and_remarks(&archive);
    assert_eq!((found.len(), remarks), (1, vec![(1, Remark::Unchanged)]));
}

#[test]
fn file_comes_before_the_next_is_named_where_that_is_wanted() {
    let (tree, mark) = (tree(), mark());
    std::fs::write(tree.path().join("large"), vec![7; 200_000]).unwrap();
    let packing = Packing {
        root: tree.path().as_os_str().as_bytes(),
        follow_links: false,
        mark: &mark,
        as_named: true,
        gzip: false,
        directories: Some(&[]),
    };
    let mut child = Command::new("/bin/sh")
        .args(["-c", &packing.script()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut names, mut archive) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    names.write_all(b"./large\0").unwrap();
    let mut first = vec![0; 100_000];
    archive.read_exact(&mut first).unwrap();
    names.write_all(b"./a\0").unwrap();
    drop(names);
    archive.read_to_end(&mut first).unwrap();
    assert!(child.wait().unwrap().success());
    let (found, remarks) = members_and_remarks(&first);
    assert_eq!((found.len(), remarks), (2, vec![(2, Remark::Unchanged)]));
}
