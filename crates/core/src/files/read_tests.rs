//! The scripts run by real shells.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use rstest::rstest;
use tempfile::TempDir;

use super::*;
use crate::files::Content;

fn mark() -> RunToken {
    RunToken::from_uuid_bytes([5; 16])
}

/// The shells of this machine, busybox with its own programs among them.
fn shells() -> Vec<(Vec<&'static str>, Option<TempDir>)> {
    let mut shells = vec![(vec!["sh"], None)];
    if Command::new("bash").arg("--version").output().is_ok() {
        shells.push((vec!["bash", "--posix"], None));
    }
    let busybox = ["/bin/busybox", "/usr/bin/busybox"];
    match busybox.into_iter().find(|path| Path::new(path).exists()) {
        None => println!("skipped: this machine has no busybox"),
        Some(busybox) => {
            let programs = tempfile::tempdir().unwrap();
            for name in ["sh", "head", "tail", "cat", "ls", "printf"] {
                symlink(busybox, programs.path().join(name)).unwrap();
            }
            shells.push((vec![busybox, "sh"], Some(programs)));
        }
    }
    shells
}

fn run(
    shell: &[&str],
    programs: Option<&TempDir>,
    home: &Path,
    script: &str,
) -> (Vec<u8>, Option<i32>) {
    let mut command = Command::new(shell[0]);
    command
        .args(&shell[1..])
        .env("HOME", home)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    if let Some(programs) = programs {
        command.env("PATH", programs.path());
    }
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(script.as_bytes()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    (output.stdout, output.status.code())
}

/// What every shell of this machine says; they must agree.
fn read(home: &Path, path: &str, part: Part, budget: usize) -> ReadAnswer {
    let path = HostPath::parse(path.as_bytes()).unwrap();
    let script = read_script(&path, part, budget, &mark());
    let mut answers = shells().into_iter().map(|(shell, programs)| {
        let (mut output, _) = run(&shell, programs.as_ref(), home, &script);
        output.splice(0..0, *b"Welcome to RSMCP:\n");
        parse_read(&mark(), &output, part, budget).unwrap()
    });
    let first = answers.next().unwrap();
    for other in answers {
        assert_eq!(other, first);
    }
    first
}

fn text(answer: ReadAnswer) -> String {
    assert!(answer.is_read, "{answer:?}");
    match answer.piece.content {
        Content::Text(text) => text,
        Content::Binary(bytes) => panic!("no text: {bytes:?}"),
    }
}

#[rstest]
#[case(Part::From(0), 100, "one\ntwo\nthree\nfour", false)]
#[case(Part::From(4), 100, "two\nthree\nfour", false)]
#[case(Part::From(4), 3, "two", true)]
#[case(Part::From(99), 100, "", false)]
#[case(Part::LastLines(2), 100, "three\nfour", false)]
#[case(Part::LastLines(9), 100, "one\ntwo\nthree\nfour", false)]
#[case(Part::LastLines(2), 4, "four", true)]
#[case(Part::Lines { first: 2, last: Some(3) }, 100, "two\nthree\n", false)]
#[case(Part::Lines { first: 2, last: None }, 100, "two\nthree\nfour", false)]
#[case(Part::Lines { first: 2, last: Some(3) }, 5, "two\nt", true)]
#[case(Part::Lines { first: 9, last: None }, 100, "", false)]
fn part_of_a_file_is_read(
    #[case] part: Part,
    #[case] budget: usize,
    #[case] expected: &str,
    #[case] is_cut: bool,
) {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("f"), "one\ntwo\nthree\nfour").unwrap();
    let answer = read(home.path(), "f", part, budget);
    assert_eq!((answer.header.size_bytes, answer.size_after), (18, 18));
    assert_eq!(answer.piece.is_cut, is_cut);
    assert_eq!(text(answer), expected);
}

#[rstest]
#[case::dash("-f")]
#[case::blank("a b ")]
#[case::newline("a\nb\n")]
#[case::quotes("it's \"$(id)\" `x`")]
#[case::pattern("*[a]?")]
#[case::home("~/f")]
#[case::dots("./d/../f")]
fn path_stands_for_itself(#[case] name: &str) {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("d")).unwrap();
    fs::write(
        home.path().join(name.strip_prefix("~/").unwrap_or(name)),
        "x",
    )
    .unwrap();
    assert_eq!(text(read(home.path(), name, Part::From(0), 9)), "x");
}

#[test]
fn bytes_come_as_they_are() {
    let home = tempfile::tempdir().unwrap();
    let all: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    fs::write(home.path().join("f"), &all).unwrap();
    let answer = read(home.path(), "f", Part::From(0), 100_000);
    assert_eq!(answer.piece.content, Content::Binary(all.clone()));
    let answer = read(home.path(), "f", Part::From(1000), 300);
    assert_eq!(
        answer.piece.content,
        Content::Binary(all[1000..1300].to_vec())
    );
}

#[test]
fn what_is_no_file_is_told_without_opening_it() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    fs::create_dir(at("dir")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    let made = Command::new("mkfifo").arg(at("pipe")).status().unwrap();
    assert!(made.success());
    symlink("pipe", at("to-pipe")).unwrap();
    let state = |path: &str| read(home.path(), path, Part::From(0), 9).header.state;
    assert_eq!(state("dir"), FileState::Directory);
    assert_eq!(state("~"), FileState::Directory);
    assert_eq!(state("dangling"), FileState::Dangling);
    assert_eq!(state("gone"), FileState::Missing);
    assert_eq!(state("gone/deeper/still"), FileState::Missing);
    assert_eq!(state("pipe"), FileState::Special(Special::Fifo));
    assert_eq!(state("to-pipe"), FileState::Special(Special::Fifo));
    assert_eq!(
        state("/dev/zero"),
        FileState::Special(Special::CharacterDevice)
    );
}

#[rstest]
#[case(Part::From(0))]
#[case(Part::LastLines(500))]
#[case(Part::Lines { first: 1, last: None })]
fn file_of_the_kernel_that_calls_itself_empty_is_read(#[case] part: Part) {
    if !Path::new("/proc/filesystems").exists() {
        println!("skipped: this machine has no /proc");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let answer = read(home.path(), "/proc/filesystems", part, 60_000);
    assert_eq!(answer.header.size_bytes, 0);
    assert_eq!(
        text(answer),
        fs::read_to_string("/proc/filesystems").unwrap()
    );
}

#[test]
fn whole_file_follows_its_header() {
    let home = tempfile::tempdir().unwrap();
    let all: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    fs::write(home.path().join("f"), &all).unwrap();
    let script = |path: &str| whole_script(&HostPath::parse(path.as_bytes()).unwrap(), &mark());
    for (shell, programs) in shells() {
        let (output, code) = run(&shell, programs.as_ref(), home.path(), &script("f"));
        let (header, from) = parse_header(&mark(), &output).unwrap().unwrap();
        assert_eq!(
            (header.state, header.size_bytes),
            (FileState::File, 300_000)
        );
        assert!(output[from..] == all && code == Some(0));
        let (output, code) = run(&shell, programs.as_ref(), home.path(), &script("gone"));
        let (header, _) = parse_header(&mark(), &output).unwrap().unwrap();
        assert_eq!((header.state, code), (FileState::Missing, Some(3)));
    }
}

#[test]
fn answer_that_breaks_off_is_an_error() {
    let part = Part::From(0);
    let parse = |text: String| parse_read(&mark(), text.as_bytes(), part, 100);
    let begin = format!("noise\nRSMCP:{}:file:f:5\n", mark());
    assert_eq!(parse("noise".to_owned()), Err(ReadError::NotBegun));
    assert_eq!(parse(format!("{begin}12")), Err(ReadError::BrokenOff));
    let end = format!("RSMCP:{}:end:0:5\n", mark());
    assert_eq!(
        parse(format!("{begin}12{}", &end[..end.len() - 1])),
        Err(ReadError::BrokenOff)
    );
    assert_eq!(parse(format!("{begin}12345{end}")).unwrap().size_after, 5);
    let silent = vec![b'x'; MOST_NOISE + 1];
    assert_eq!(parse_header(&mark(), &silent), Err(ReadError::NotBegun));
}
