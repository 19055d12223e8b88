//! `exec` on the command line: the true binary as a person or a script uses it, against a real sshd.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use remote_sandbox_testkit::process;
use remote_sandbox_testkit::proxy::FaultProxy;
use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::wait::{free_port, wait_until_blocking};
use rstest::rstest;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{entry, entry_via, program, unique, with};

pub(crate) const SOON: Duration = Duration::from_secs(15);

/// The program in an environment of its own.
pub(crate) struct Surroundings {
    pub(crate) home: TempDir,
    list: String,
}

impl Surroundings {
    pub(crate) fn new(sandboxes: &[Value]) -> Self {
        Surroundings::with_list(&Value::from(sandboxes.to_vec()).to_string())
    }

    /// The same with a list as the user wrote it.
    pub(crate) fn with_list(list: &str) -> Self {
        Surroundings {
            home: TempDir::with_prefix("commands-").unwrap(),
            list: list.to_owned(),
        }
    }

    /// A program that gets these surroundings.
    pub(crate) fn start(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home.path())
            .env("REMOTE_SANDBOX_LIST", &self.list)
            // Never the keychain of whoever runs the tests.
            .env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.start(program());
        command.args(arguments);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn exec(&self, words: &[&str]) -> Output {
        let mut arguments = vec!["exec", "box", "--"];
        arguments.extend(words);
        self.run(&arguments)
    }
}

pub(crate) fn one() -> (Sshd, Surroundings) {
    let sshd = Sshd::start();
    let surroundings = Surroundings::new(&[entry("box", &sshd)]);
    (sshd, surroundings)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Exit code, and no panic on the way to it.
pub(crate) fn code(output: &Output) -> i32 {
    let said = text(&output.stderr);
    assert!(!said.contains("panicked"), "{said}");
    output.status.code().unwrap_or_else(|| panic!("{output:?}"))
}

pub(crate) fn wait(mut child: Child) -> Output {
    let ended = wait_until_blocking(Duration::from_secs(30), || {
        child.try_wait().is_ok_and(|status| status.is_some())
    });
    if !ended {
        let _ = child.kill();
    }
    assert!(ended, "it does not end");
    child.wait_with_output().unwrap()
}

#[rstest]
#[case::plain("echo out; echo err >&2; exit 3", 3, "out\n", "err\n")]
#[case::signal("kill -SEGV $$", 139, "", "")]
#[case::own_124("exit 124", 124, "", "")]
#[case::no_input("cat; echo end", 0, "end\n", "")]
fn exec_passes_streams_and_exit_code_on(
    #[case] command: &str,
    #[case] expected: i32,
    #[case] out: &str,
    #[case] err: &str,
) {
    let (_sshd, here) = one();
    let output = here.exec(&[command]);
    assert_eq!(code(&output), expected);
    assert_eq!((&*text(&output.stdout), &*text(&output.stderr)), (out, err));
}

#[test]
fn exec_passes_binary_output_on_byte_by_byte() {
    let (_sshd, here) = one();
    let mut bytes = vec![0; 5_000_000];
    std::fs::File::open("/dev/urandom")
        .unwrap()
        .read_exact(&mut bytes)
        .unwrap();
    bytes[..512].copy_from_slice(&std::array::from_fn::<u8, 512, _>(|at| at as u8));
    let file = here.home.path().join("bytes");
    std::fs::write(&file, &bytes).unwrap();
    let file = file.to_str().unwrap();
    for _ in 0..3 {
        let output = here.exec(&["cat", file]);
        assert_eq!((code(&output), output.stdout.len()), (0, bytes.len()));
        assert!(output.stdout == bytes);
    }
    // The other stream is no narrower.
    let output = here.exec(&[&format!("cat {file} >&2")]);
    assert!(output.stderr == bytes && output.stdout.is_empty());
    let kept = std::fs::read_dir(
        here.home
            .path()
            .join(".local/state/remote-sandbox-mcp/runs"),
    );
    assert_eq!(
        kept.map_or(0, Iterator::count),
        0,
        "output was kept on disk"
    );
}

#[test]
fn exec_shows_output_while_the_command_still_runs() {
    let (_sshd, here) = one();
    let mark = unique();
    let line = format!("echo first; exec sleep 60.{mark}");
    let mut child = here.command(&["exec", "box", "--", &line]).spawn().unwrap();
    let mut first = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut first).unwrap();
    assert_eq!(first, "first\n");
    assert!(child.try_wait().unwrap().is_none());
    process::signal(child.id(), Signal::INT);
    assert_eq!(code(&wait(child)), 130);
}

#[test]
fn exec_quotes_several_words_and_runs_one_word_as_a_line() {
    let (_sshd, here) = one();
    let output = here.exec(&["printf", "%s|", "a b", "$HOME", "it's", ""]);
    assert_eq!(text(&output.stdout), "a b|$HOME|it's||");
    let output = here.exec(&["echo $((6*7)) | tr 4 x"]);
    assert_eq!(text(&output.stdout), "x2\n");
}

#[test]
fn exec_takes_directory_variables_and_piped_input() {
    let (_sshd, here) = one();
    let arguments = [
        "exec",
        "box",
        "--cwd",
        "/",
        "--env",
        "A=it's $B=c",
        "--env",
        "B=",
        "--stdin",
    ];
    let mut command = here.command(&arguments);
    command
        .args(["--", "pwd; echo \"$A$B\"; cat"])
        .stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all("piped é".as_bytes())
        .unwrap();
    let output = wait(child);
    assert_eq!(text(&output.stdout), "/\nit's $B=c\npiped é");
    // Without the flag, nothing is taken from a pipe.
    let mut command = here.command(&["exec", "box", "--", "cat"]);
    let child = command.stdin(Stdio::piped()).spawn().unwrap();
    assert_eq!(wait(child).stdout, b"");
}

#[test]
fn exec_ends_the_remote_processes_at_the_timeout() {
    let (_sshd, here) = one();
    let sleep = format!("sleep 71.{}", unique());
    let begun = Instant::now();
    let line = format!("echo begun; {sleep} & {sleep}");
    let output = here.run(&["exec", "box", "--timeout", "2", "--", &line]);
    assert_eq!((code(&output), &*text(&output.stdout)), (124, "begun\n"));
    assert!(
        text(&output.stderr).contains("timed out after 2 s"),
        "{output:?}"
    );
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert_eq!(process::with_command_line(&sleep), Vec::<u32>::new());
}

#[rstest]
#[case::interrupt(Signal::INT, 130)]
#[case::terminate(Signal::TERM, 143)]
fn exec_ends_the_remote_processes_on_a_signal(#[case] signal: Signal, #[case] expected: i32) {
    let (_sshd, here) = one();
    let sleep = format!("sleep 72.{}", unique());
    let line = format!("(trap '' INT; exec {sleep}) & exec {sleep}");
    let child = here.command(&["exec", "box", "--", &line]).spawn().unwrap();
    let remote = || process::with_command_line(&sleep);
    let own = child.id();
    let both = || remote().iter().filter(|&&pid| pid != own).count() >= 2;
    assert!(wait_until_blocking(SOON, both), "{:?}", remote());
    process::signal(own, signal);
    let output = wait(child);
    assert_eq!((code(&output), &*text(&output.stderr)), (expected, ""));
    assert_eq!(remote(), Vec::<u32>::new());
}

#[test]
fn exec_says_what_is_wrong_and_what_to_do() {
    let sshd = Sshd::start();
    let dead = with(entry("dead", &sshd), json!({"port": free_port()}));
    let here = Surroundings::new(&[entry("box", &sshd), dead]);
    for (arguments, words) in [
        (
            &["exec", "nobody", "--", "true"][..],
            "no sandbox is named `nobody`",
        ),
        (&["exec", "dead", "--", "true"], "refused"),
        (
            &["exec", "box", "--cwd", "/no/such", "--", "true"],
            "/no/such",
        ),
    ] {
        let output = here.run(arguments);
        let said = text(&output.stderr);
        assert_eq!(code(&output), 125, "{said}");
        assert!(
            said.starts_with("remote-sandbox-mcp: ") && said.contains(words),
            "{said}"
        );
        assert_eq!(said.lines().count(), 2, "{said}");
        assert!(said.lines().nth(1).unwrap().starts_with("hint: "), "{said}");
    }
    let output = here.run(&["exec", "box", "--env", "novalue", "--", "true"]);
    assert_eq!(code(&output), 125);
    assert_eq!(code(&here.run(&["exec", "box"])), 2);
    assert_eq!(
        code(&here.run(&["exec", "box", "--timeout", "0", "--", "true"])),
        2
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn exec_ends_with_255_when_the_link_is_lost() {
    let sshd = Sshd::start();
    let proxy = FaultProxy::start(sshd.port()).await;
    let here = Surroundings::new(&[entry_via("box", &sshd, proxy.port())]);
    let line = format!("echo begun; exec sleep 73.{}", unique());
    let mut child = here.command(&["exec", "box", "--", &line]).spawn().unwrap();
    let mut first = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut first).unwrap();
    proxy.drop_all();
    let output = tokio::task::spawn_blocking(|| wait(child)).await.unwrap();
    let said = text(&output.stderr);
    assert_eq!(code(&output), 255, "{said}");
    assert!(said.contains("lost") && said.contains("clean"), "{said}");
}

#[test]
fn exec_ends_quietly_and_cleans_up_when_its_reader_goes_away() {
    let (_sshd, here) = one();
    let word = format!("y{}", unique());
    let mut child = here
        .command(&["exec", "box", "--", "yes", &word])
        .spawn()
        .unwrap();
    let own = child.id();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    output.read_line(&mut first).unwrap();
    drop(output);
    let ended = wait(child);
    assert_eq!((code(&ended), &*text(&ended.stderr)), (141, ""));
    let gone = || {
        !process::with_command_line(&word)
            .iter()
            .any(|&pid| pid != own)
    };
    assert!(wait_until_blocking(SOON, gone));
}

#[test]
fn exec_waits_for_a_slow_reader_and_loses_nothing() {
    let (_sshd, here) = one();
    let mut command = here.command(&["exec", "box", "--", "head -c 30000000 /dev/zero"]);
    let mut child = command.spawn().unwrap();
    // More than all buffers on the way hold, and nobody reads.
    std::thread::sleep(Duration::from_secs(2));
    assert!(process::rss_kb(child.id()).unwrap() < 100_000);
    assert!(child.try_wait().unwrap().is_none());
    let mut bytes = Vec::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_end(&mut bytes)
        .unwrap();
    assert_eq!((code(&wait(child)), bytes.len()), (0, 30_000_000));
}

#[test]
fn exec_can_be_interrupted_while_its_reader_sleeps() {
    let (_sshd, here) = one();
    let word = format!("y{}", unique());
    let child = here
        .command(&["exec", "box", "--", "yes", &word])
        .spawn()
        .unwrap();
    let (own, begun) = (child.id(), Instant::now());
    assert!(wait_until_blocking(SOON, || process::with_command_line(
        &word
    )
    .len()
        > 1));
    std::thread::sleep(Duration::from_secs(1));
    process::signal(own, Signal::INT);
    assert_eq!(code(&wait(child)), 130);
    assert!(begun.elapsed() < SOON + SOON);
    let gone = || {
        !process::with_command_line(&word)
            .iter()
            .any(|&pid| pid != own)
    };
    assert!(wait_until_blocking(SOON, gone));
}

#[test]
fn closed_and_full_outputs_are_told_apart() {
    let (_sshd, here) = one();
    let shell = |line: &str| {
        let mut command = here.start("sh");
        command.arg("-c").arg(line).arg(program()).output().unwrap()
    };
    assert_eq!(
        code(&shell("exec \"$0\" exec box -- 'echo x; exit 3' >&-")),
        3
    );
    assert_eq!(
        code(&shell("exec \"$0\" exec box -- 'exit 3' 2>&- >&- <&-")),
        3
    );
    let full = shell("exec \"$0\" exec box -- 'echo x' >/dev/full");
    assert_eq!(code(&full), 125);
    assert!(text(&full.stderr).contains("standard output"), "{full:?}");
    assert_eq!(code(&shell("exec \"$0\" list >/dev/full")), 1);
    let piped = shell("{ \"$0\" list; echo $? >&2; } | head -n 1");
    assert!(
        ["0", "141"].contains(&text(&piped.stderr).trim()),
        "{piped:?}"
    );
    assert!(text(&piped.stdout).starts_with("NAME"), "{piped:?}");
}

#[test]
fn missing_and_unwritable_homes_are_told() {
    let (_sshd, here) = one();
    let blocked = here.home.path().join("file");
    std::fs::write(&blocked, b"").unwrap();
    for home in [
        None,
        Some(blocked.as_path()),
        Some(Path::new("/proc/1/none")),
    ] {
        for (arguments, expected) in [
            (&["exec", "box", "--", "true"][..], 125),
            (&["secret", "set", "x", "--file"], 1),
        ] {
            let mut command = here.command(arguments);
            match home {
                Some(home) => command.env("HOME", home),
                None => command.env_remove("HOME"),
            };
            command.stdin(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let _ = child.stdin.take().unwrap().write_all(b"value");
            let output = wait(child);
            let said = text(&output.stderr);
            assert_eq!(code(&output), expected, "{home:?} {arguments:?}: {said}");
            let told = said
                .lines()
                .any(|line| line.starts_with("remote-sandbox-mcp: "));
            assert!(told, "{said}");
        }
    }
}

#[test]
fn exec_lets_a_command_end_whose_output_nobody_reads_yet_and_loses_none_of_it() {
    let (_sshd, here) = one();
    let ended = here.home.path().join("ended");
    let line = format!("yes | head -c 30000000; touch {}", ended.display());
    let mut child = here.command(&["exec", "box", "--", &line]).spawn().unwrap();
    assert!(wait_until_blocking(SOON, || ended.exists()));
    let mut seen = Vec::new();
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_to_end(&mut seen)
        .unwrap();
    let expected = b"y\n".repeat(15_000_000);
    assert!(seen == expected, "{} bytes", seen.len());
    assert_eq!(code(&wait(child)), 0);
}
