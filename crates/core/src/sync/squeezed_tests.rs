use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use rstest::rstest;

use super::*;

fn mark() -> RunToken {
    RunToken::from_uuid_bytes([5; 16])
}

fn run(program: &str, arguments: &[&str], path: Option<&Path>, input: &[u8]) -> (u32, Vec<u8>) {
    let mut command = Command::new(program);
    if let Some(path) = path {
        command.env("PATH", path);
    }
    let mut child = command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let feeding = std::thread::spawn(move || {
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    feeding.join().unwrap();
    (
        output.status.code().unwrap().try_into().unwrap(),
        output.stdout,
    )
}

fn sh(script: &str, path: Option<&Path>, input: &[u8]) -> (u32, Vec<u8>) {
    run("/bin/sh", &["-c", script], path, input)
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 1000 % 251) as u8).collect()
}

/// A folder with these programs of busybox alone; none where there is no busybox.
fn busybox(programs: &[&str]) -> Option<tempfile::TempDir> {
    let busybox = ["/bin/busybox", "/usr/bin/busybox"];
    let busybox = busybox.into_iter().find(|path| Path::new(path).exists())?;
    let folder = tempfile::tempdir().unwrap();
    for program in programs {
        symlink(busybox, folder.path().join(program)).unwrap();
    }
    Some(folder)
}

#[rstest]
#[case::usual(false)]
#[case::busybox(true)]
fn part_of_a_file_is_put_where_it_belongs_and_comes_back(#[case] is_busybox: bool) {
    let programs = is_busybox.then(|| busybox(&["gzip", "dd"]));
    let Some(programs) = programs.map_or(Some(None), |found| found.map(Some)) else {
        println!("skipped: no busybox");
        return;
    };
    let programs = programs.as_ref().map(tempfile::TempDir::path);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("it's a\nfile");
    let whole = content(5 * BLOCK as usize + 77);
    let (first, last) = whole.split_at(2 * BLOCK as usize);
    fs::write(&file, first).unwrap();
    let (_, packed) = run("gzip", &["-c"], None, last);
    let script = take_script(file.as_os_str().as_bytes(), 2, &mark());
    let (status, said) = sh(&script, programs, &packed);
    assert_eq!(status, 0);
    assert!(parse_taken(&mark(), &said));
    assert!(fs::read(&file).unwrap() == whole);
    let script = give_script(file.as_os_str().as_bytes(), 3);
    let (status, packed) = sh(&script, programs, b"");
    assert_eq!(status, 0);
    let (_, plain) = run("gzip", &["-dc"], None, &packed);
    assert!(plain == whole[3 * BLOCK as usize..]);
}

#[test]
fn part_that_breaks_off_is_not_said_to_be_taken() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f");
    fs::write(&file, "").unwrap();
    let (_, packed) = run("gzip", &["-c"], None, &content(300_000));
    let script = take_script(file.as_os_str().as_bytes(), 0, &mark());
    let (_, said) = sh(&script, None, &packed[..packed.len() - 3]);
    assert!(!parse_taken(&mark(), &said));
    let (_, said) = sh(&script, None, b"");
    assert!(!parse_taken(&mark(), &said));
}

#[test]
fn link_pipe_and_missing_programs_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let precious = folder.path().join("precious");
    fs::write(&precious, "mine").unwrap();
    let link = folder.path().join("link");
    symlink(&precious, &link).unwrap();
    let (_, packed) = run("gzip", &["-c"], None, b"yours");
    let script = take_script(link.as_os_str().as_bytes(), 0, &mark());
    assert_eq!(sh(&script, None, &packed).0, NO_GZIP);
    assert_eq!(fs::read(&precious).unwrap(), b"mine");
    let pipe = folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let script = give_script(pipe.as_os_str().as_bytes(), 0);
    assert_eq!(sh(&script, None, b"").0, NO_GZIP);
    let empty = tempfile::tempdir().unwrap();
    for script in [
        take_script(precious.as_os_str().as_bytes(), 0, &mark()),
        give_script(precious.as_os_str().as_bytes(), 0),
    ] {
        assert_eq!(sh(&script, Some(empty.path()), b"").0, NO_GZIP);
    }
}
