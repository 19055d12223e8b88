//! `ls` and `cat` on the command line.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Output};

use remote_sandbox_testkit::{Sshd, process, wait_until_blocking};
use rstest::rstest;
use rustix::process::Signal;
use serde_json::Value;

use super::{Kind, write};
use crate::commands::{SOON, Surroundings, code, text, wait};
use crate::support::entry;

/// The program with one sandbox, and the folder in which its relative paths begin.
struct Here {
    surroundings: Surroundings,
    sshd: Option<Sshd>,
    name: &'static str,
    begin: PathBuf,
}

impl Here {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Ssh => {
                let sshd = Sshd::start();
                Here {
                    surroundings: Surroundings::new(&[entry("box", &sshd)]),
                    begin: sshd.dir().join("home"),
                    sshd: Some(sshd),
                    name: "box",
                }
            }
            Kind::Local => {
                let surroundings = Surroundings::with_list("");
                let first = surroundings.run(&["exec", "local", "--", "pwd"]);
                assert_eq!(code(&first), 0, "{first:?}");
                Here {
                    begin: PathBuf::from(text(&first.stdout).trim_end()),
                    surroundings,
                    sshd: None,
                    name: "local",
                }
            }
        }
    }

    fn command(&self, words: &[&str], path: impl AsRef<[u8]>) -> Command {
        use std::os::unix::ffi::OsStrExt;
        let mut command = self.surroundings.command(words);
        let word = [self.name.as_bytes(), b":", path.as_ref()].concat();
        command.arg(std::ffi::OsStr::from_bytes(&word));
        command
    }

    fn run(&self, words: &[&str], path: impl AsRef<[u8]>) -> Output {
        self.command(words, path).output().unwrap()
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        let state = ".local/state/remote-sandbox-mcp";
        process::end_sandboxes_below(&self.surroundings.home.path().join(state));
    }
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
fn cat_writes_a_file_of_any_bytes_as_it_is(#[case] kind: Kind) {
    let here = Here::new(kind);
    let mut bytes = vec![0; 9_000_000];
    fs::File::open("/dev/urandom")
        .unwrap()
        .read_exact(&mut bytes)
        .unwrap();
    write(&here.begin.join("d/some bytes"), &bytes);
    let output = here.run(&["cat"], "d/some bytes");
    assert_eq!((code(&output), output.stdout.len()), (0, bytes.len()));
    assert!(output.stdout == bytes);
    write(&here.begin.join("empty"), "");
    let output = here.run(&["cat"], "empty");
    assert_eq!((code(&output), output.stdout.len()), (0, 0));
}

#[test]
fn cat_prints_what_the_tool_returns_when_json_is_wanted() {
    let here = Here::new(Kind::Ssh);
    write(&here.begin.join("binary"), b"\xff\x00");
    let output = here.run(&["cat", "--json"], "binary");
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(code(&output), 0);
    assert_eq!(
        (&printed["encoding"], &printed["content"], &printed["size"]),
        (&"base64".into(), &"/wA=".into(), &2.into())
    );
    let output = here.run(&["cat", "--json"], "gone");
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (code(&output), &printed["code"]),
        (125, &"not_found".into())
    );
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
fn cat_reaches_a_file_whose_name_is_no_text(#[case] kind: Kind) {
    use std::os::unix::ffi::OsStrExt;
    let here = Here::new(kind);
    let name = b"a\xff\n";
    write(&here.begin.join(std::ffi::OsStr::from_bytes(name)), "odd");
    let output = here.run(&["cat"], name);
    assert_eq!((code(&output), text(&output.stdout)), (0, "odd".to_owned()));
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
fn cat_says_why_there_is_nothing_and_ends_with_125(#[case] kind: Kind) {
    let here = Here::new(kind);
    for (path, word) in [
        ("gone", "does not exist"),
        ("~", "directory"),
        ("/dev/zero", "character device"),
    ] {
        let output = here.run(&["cat"], path);
        assert_eq!(code(&output), 125, "{output:?}");
        assert!(output.stdout.is_empty());
        let said = text(&output.stderr);
        assert!(said.contains(word) && said.contains(path), "{said}");
    }
    let nameless = here.surroundings.run(&["cat", "gone"]);
    assert_eq!(code(&nameless), 125);
    assert!(text(&nameless.stderr).contains("NAME:PATH"));
}

/// Starts to read a file that has no end soon.
fn cat_for_long(here: &Here) -> std::process::Child {
    let file = fs::File::create(here.begin.join("huge")).unwrap();
    file.set_len(1 << 40).unwrap();
    let mut child = here.command(&["cat"], "huge").spawn().unwrap();
    let mut some = vec![0; 100_000];
    let output = child.stdout.as_mut().unwrap();
    output.read_exact(&mut some).unwrap();
    child
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
fn cat_ends_with_130_when_it_is_interrupted(#[case] kind: Kind) {
    let here = Here::new(kind);
    let child = cat_for_long(&here);
    let begun = std::time::Instant::now();
    process::signal(child.id(), Signal::INT);
    assert_eq!(code(&wait(child)), 130);
    assert!(begun.elapsed() < SOON);
    if let Some(sshd) = &here.sshd {
        let is_idle = || sshd.command_pids().is_empty();
        assert!(wait_until_blocking(SOON, is_idle));
    }
}

#[test]
fn cat_ends_with_255_when_the_link_is_lost() {
    let here = Here::new(Kind::Ssh);
    let mut child = cat_for_long(&here);
    let mut output = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
    here.sshd.as_ref().unwrap().kill_sessions();
    let ended = wait(child);
    reader.join().unwrap().unwrap();
    assert_eq!(code(&ended), 255, "{ended:?}");
    assert!(text(&ended.stderr).contains("not the whole file"));
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
fn ls_lists_a_level_a_tree_or_the_object_of_the_tool(#[case] kind: Kind) {
    let here = Here::new(kind);
    write(&here.begin.join("d/sub/inner"), "12");
    write(&here.begin.join("d/a"), "1234567890");
    std::os::unix::fs::symlink("a", here.begin.join("d/link")).unwrap();
    let level = here.run(&["ls"], "d");
    assert_eq!(code(&level), 0, "{level:?}");
    let lines: Vec<String> = text(&level.stdout).lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].starts_with("-06") && lines[0].ends_with(" 10 d/a"));
    assert!(lines[1].starts_with('l') && lines[1].ends_with("d/link -> a"));
    assert!(lines[2].starts_with('d') && lines[2].ends_with(" d/sub"));
    let tree = text(&here.run(&["ls", "-R"], "d").stdout);
    assert!(tree.ends_with(" d/sub/inner\n"), "{tree}");
    let json = here.run(&["ls", "--json"], "d");
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["entries"][0]["path"], "d/a");
    let begin = text(&here.run(&["ls"], "").stdout);
    assert!(begin.contains(" ./d\n"), "{begin}");
    let gone = here.run(&["ls"], "gone");
    assert_eq!(code(&gone), 125);
    assert!(text(&gone.stderr).contains("`gone`"), "{gone:?}");
}
