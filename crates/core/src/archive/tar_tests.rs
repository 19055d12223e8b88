//! Archives exchanged with the real programs.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use super::tests::{pack, unpack};
use super::*;
use crate::sync::samples::{directory, file, link, path};
use crate::sync::{Entry, LinkEnd, Mtime, RelPath};

/// The tar programs of this machine out of those a host may have.
fn programs() -> Vec<&'static [&'static str]> {
    let all: [&[&str]; 3] = [&["tar"], &["busybox", "tar"], &["bsdtar"]];
    all.into_iter()
        .filter(|program| {
            let found = Command::new(program[0])
                .args(&program[1..])
                .arg("--help")
                .output()
                .is_ok();
            if !found {
                println!("skipped: this machine has no {}", program.join(" "));
            }
            found
        })
        .collect()
}

fn command(program: &[&str], directory: &Path) -> Command {
    let mut command = Command::new(program[0]);
    command
        .args(&program[1..])
        .current_dir(directory)
        .env("LC_ALL", "C");
    command
}

fn long(length: usize) -> String {
    "n".repeat(length)
}

/// Names of every length at which something else is written, and odd ones.
fn entries() -> Vec<Entry> {
    let mut script = file("-run", 600, 0);
    script.mode = 0o751;
    let mut entries = vec![
        directory("d"),
        directory("d/empty"),
        file("d/empty file", 0, 0),
        file("d/f", 512, 5),
        file("d/g", 513, 5),
        script,
        link("l", "d/f", LinkEnd::Other),
        link("ll", &format!("/{}", long(240)), LinkEnd::Nothing),
        file("new\nline", 3, 0),
    ];
    for length in [98, 99, 100, 101, 120, 255] {
        entries.push(file(&long(length), 1, 0));
    }
    let mut deep = String::new();
    for length in [60, 90, 120, 200] {
        deep = if deep.is_empty() {
            long(length)
        } else {
            format!("{deep}/{}", long(length))
        };
        entries.push(directory(&deep));
        entries.push(file(&format!("{deep}/x"), 2, 0));
        entries.push(file(&format!("{deep}/{}", "m".repeat(99)), 2, 0));
    }
    let mut odd = file("x", 2, 0);
    odd.path = RelPath::parse(&[b"\xff\xfe".as_slice(), &[0xfe; 120]].concat()).unwrap();
    entries.push(odd);
    let mut old = file("old", 1, 0);
    old.mtime = Mtime::exact(-5, 250_000_000).unwrap();
    entries.push(old);
    entries
}

#[test]
fn real_tar_unpacks_what_is_written_here() {
    for program in programs() {
        let target = tempfile::tempdir().unwrap();
        let mut child = command(program, target.path())
            .args(["-x", "-p", "-f", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let archive = pack(&entries(), Precision::Nanoseconds);
        child.stdin.take().unwrap().write_all(&archive).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{program:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let knows_pax = program[0] != "busybox";
        for entry in entries() {
            let at = target.path().join(OsStr::from_bytes(entry.path.as_bytes()));
            let found = at
                .symlink_metadata()
                .unwrap_or_else(|error| panic!("{program:?} {entry:?}: {error}"));
            if let crate::sync::Kind::Link { target, .. } = &entry.kind {
                assert_eq!(
                    fs::read_link(&at).unwrap().as_os_str().as_bytes(),
                    &**target
                );
                continue;
            }
            assert_eq!(found.is_dir(), entry.kind.is_directory());
            assert_eq!(
                found.mode() & 0o7777,
                u32::from(entry.mode),
                "{program:?} {entry:?}"
            );
            if !entry.kind.is_file() {
                continue;
            }
            assert_eq!(found.len(), entry.size_bytes);
            let time = (found.mtime(), found.mtime_nsec());
            if knows_pax {
                let nanoseconds = i64::from(entry.mtime.nanoseconds().unwrap());
                assert_eq!(
                    time,
                    (entry.mtime.seconds, nanoseconds),
                    "{program:?} {entry:?}"
                );
            } else if entry.mtime.seconds > 0 {
                assert_eq!(time, (entry.mtime.seconds, 0), "{program:?}");
            }
        }
    }
}

/// A tree with what a tree can hold, and its names.
fn plant(root: &Path) -> Vec<Vec<u8>> {
    let names: Vec<Vec<u8>> = entries()
        .iter()
        .filter(|entry| entry.kind.is_file())
        .map(|entry| entry.path.as_bytes().to_vec())
        .collect();
    for name in &names {
        let at = root.join(OsStr::from_bytes(name));
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(&at, "content").unwrap();
        fs::set_permissions(&at, fs::Permissions::from_mode(0o640)).unwrap();
    }
    symlink("d/f", root.join("link")).unwrap();
    symlink(long(200), root.join("long link")).unwrap();
    fs::hard_link(root.join("d/f"), root.join("twin")).unwrap();
    names
}

fn find<'a>(members: &'a [(Member, Vec<u8>)], name: &[u8]) -> &'a (Member, Vec<u8>) {
    let wanted = Place::Below(RelPath::parse(name).unwrap());
    let found = members.iter().find(|(member, _)| member.place == wanted);
    found.unwrap_or_else(|| panic!("{:?} is missing", String::from_utf8_lossy(name)))
}

/// Compares an archive of the planted tree with the tree.
fn check(root: &Path, names: &[Vec<u8>], members: &[(Member, Vec<u8>)]) {
    assert_eq!(members[0].0.place, Place::Root);
    for name in names.iter().filter(|name| *name != b"d/f") {
        let (member, content) = find(members, name);
        assert_eq!((&member.kind, member.mode), (&MemberKind::File, 0o640));
        assert_eq!(content, b"content");
        let found = root.join(OsStr::from_bytes(name)).metadata().unwrap();
        assert_eq!(member.mtime.seconds, found.mtime());
        if let Some(nanoseconds) = member.mtime.nanoseconds() {
            assert_eq!(i64::from(nanoseconds), found.mtime_nsec());
        }
    }
    let kind = |name: &[u8]| find(members, name).0.kind.clone();
    assert_eq!(kind(b"link"), MemberKind::Link(b"d/f".as_slice().into()));
    assert_eq!(
        kind(b"long link"),
        MemberKind::Link(long(200).as_bytes().into())
    );
    // Which of two names of one file comes first depends on the order of the directory.
    let twins = [kind(b"d/f"), kind(b"twin")];
    assert!(twins.contains(&MemberKind::File));
    let other = |text| twins.contains(&MemberKind::HardLink(path(text)));
    assert!(other("d/f") || other("twin"), "{twins:?}");
}

#[test]
fn archives_of_real_tar_are_read_here() {
    let root = tempfile::tempdir().unwrap();
    let names = plant(root.path());
    for program in programs() {
        let formats: &[&[&str]] = match program[0] {
            "busybox" => &[&[]],
            "bsdtar" => &[&["--format", "pax"], &["--format", "gnutar"]],
            _ => &[&["--format=gnu"], &["--format=pax"]],
        };
        for format in formats {
            let output = command(program, root.path())
                .args(["-c", "-f", "-"])
                .args(*format)
                .arg(".")
                .output()
                .unwrap();
            println!(
                "{program:?} {format:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            assert!(output.status.success());
            check(root.path(), &names, &unpack(&output.stdout, 4096).unwrap());
        }
    }
}

#[test]
fn sparse_archive_of_real_tar_is_refused_and_a_plain_one_keeps_the_content() {
    let root = tempfile::tempdir().unwrap();
    let holes = fs::File::create(root.path().join("holes")).unwrap();
    holes.set_len(1 << 20).unwrap();
    let tar = |arguments: &[&str]| {
        command(&["tar"], root.path())
            .args(arguments)
            .arg("holes")
            .output()
            .unwrap()
            .stdout
    };
    let members = unpack(&tar(&["-c", "-f", "-"]), 4096).unwrap();
    assert_eq!(
        (
            members[0].1.len(),
            members[0].1.iter().all(|byte| *byte == 0)
        ),
        (1 << 20, true)
    );
    for format in ["gnu", "pax"] {
        let sparse = tar(&["-c", "-S", "-f", "-", &format!("--format={format}")]);
        assert_eq!(unpack(&sparse, 4096), Err(ArchiveError::Sparse), "{format}");
    }
}

#[test]
fn size_beyond_the_octal_field_is_listed_right_by_real_tar() {
    for program in programs() {
        let mut writer = ArchiveWriter::default();
        let header = writer.begin(&file("huge", 10 << 30, 0)).unwrap();
        let mut reader = ArchiveReader::default();
        let mut rest = header.as_slice();
        let size_bytes = loop {
            let (used, event) = reader.read(rest).unwrap();
            rest = &rest[used..];
            if let Event::Member(member) = event {
                break member.size_bytes;
            }
        };
        assert_eq!(size_bytes, 10 << 30);
        // The content is missing, which the program says after it has listed the header.
        let mut child = command(program, Path::new("/"))
            .args(["-t", "-v", "-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&header).unwrap();
        let listed = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        assert!(
            listed.contains(&(10_u64 << 30).to_string()),
            "{program:?}: {listed}"
        );
    }
}
