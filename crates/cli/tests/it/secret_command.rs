//! `secret`: kept in a keychain that works, in a private file where none does, shown nowhere.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use remote_sandbox_testkit::skip;

use crate::commands::{Surroundings, code, text};
use crate::support::{files_below, program};

const CANARY: &str = "canary-hunter2-canary";

fn set(mut command: Command, value: &str) -> Output {
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(value.as_bytes());
    child.wait_with_output().unwrap()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn secret_is_set_listed_and_removed_without_being_shown() {
    let here = Surroundings::new(&[]);
    let empty = here.run(&["secret", "list"]);
    assert_eq!((code(&empty), empty.stdout.len()), (0, 0));
    let kept = set(
        here.command(&["secret", "set", "gpu1", "--file"]),
        &format!("{CANARY}\n"),
    );
    assert_eq!(code(&kept), 0, "{kept:?}");
    let listed = here.run(&["secret", "list"]);
    assert_eq!(text(&listed.stdout), "NAME  KEPT IN\ngpu1  a file\n");
    let holding: Vec<_> = files_below(here.home.path())
        .into_iter()
        .filter(|(_, content)| text(content).contains(CANARY))
        .collect();
    assert_eq!(holding.len(), 1);
    assert_eq!(
        holding[0].1,
        CANARY.as_bytes(),
        "the line break is not part of it"
    );
    let removed = here.run(&["secret", "remove", "gpu1"]);
    assert_eq!(text(&removed.stdout), "removed `gpu1` from a file\n");
    let again = here.run(&["secret", "remove", "gpu1"]);
    assert_eq!(code(&again), 1);
    assert!(text(&again.stderr).contains("hint: `remote-sandbox-mcp secret list`"));
    for output in [kept, listed, removed, again] {
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(!said.contains(CANARY), "{said}");
    }
    let left = files_below(here.home.path());
    assert!(
        left.iter()
            .all(|(_, content)| !text(content).contains(CANARY))
    );
}

#[test]
fn secret_cannot_be_given_as_an_argument_and_a_bad_name_is_refused() {
    let here = Surroundings::new(&[]);
    assert_eq!(code(&here.run(&["secret", "set", "gpu1", CANARY])), 2);
    for name in ["../x", "a b", "a/b"] {
        let output = set(here.command(&["secret", "set", name, "--file"]), CANARY);
        assert_eq!(code(&output), 1, "{output:?}");
    }
    let empty = set(here.command(&["secret", "set", "gpu1", "--file"]), "\n");
    assert_eq!(code(&empty), 1);
    assert!(files_below(here.home.path()).is_empty());
}

#[test]
fn f24_secret_files_are_never_wider_under_any_umask() {
    let here = Surroundings::new(&[]);
    let done = AtomicBool::new(false);
    let state = here.home.path().join(".local/state/remote-sandbox-mcp");
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut wide = Vec::new();
            while !done.load(Ordering::Relaxed) {
                let mut paths = vec![state.clone(), state.join("secrets")];
                for folder in paths.clone() {
                    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
                    paths.extend(entries.map(|entry| entry.path()));
                }
                for path in paths {
                    let found = std::fs::symlink_metadata(&path);
                    if found.is_ok_and(|found| found.permissions().mode() & 0o077 != 0) {
                        wide.push(path);
                    }
                }
            }
            wide
        });
        for number in 0..10 {
            let mut command = here.start("sh");
            let line = format!("umask 000; exec \"$0\" secret set n{number} --file");
            command.arg("-c").arg(line).arg(program());
            assert_eq!(code(&set(command, CANARY)), 0);
        }
        done.store(true, Ordering::Relaxed);
        assert_eq!(watch.join().unwrap(), Vec::<std::path::PathBuf>::new());
    });
    assert_eq!(mode(&state.join("secrets")), 0o700);
    assert_eq!(mode(&state.join("secrets/n0")), 0o600);
    assert_eq!(mode(&state.join("secrets.json")), 0o600);
}

#[test]
fn secret_goes_into_a_file_with_a_notice_when_there_is_no_keychain() {
    let here = Surroundings::new(&[]);
    let kept = set(here.command(&["secret", "set", "gpu1"]), CANARY);
    assert_eq!(code(&kept), 0, "{kept:?}");
    assert!(
        text(&kept.stderr).contains("no keychain can be used here"),
        "{kept:?}"
    );
    assert!(text(&kept.stdout).contains("in a file that only you can read"));
}

#[test]
fn secret_goes_into_a_file_after_two_seconds_when_the_keychain_hangs() {
    let here = Surroundings::new(&[]);
    let socket = here.home.path().join("bus");
    let listener = UnixListener::bind(&socket).unwrap();
    // It accepts, keeps the connection open and says nothing; it ends with this process.
    std::thread::spawn(move || {
        let kept: Vec<_> = listener.incoming().flatten().take(16).collect();
        drop(kept);
    });
    let mut command = here.command(&["secret", "set", "gpu1"]);
    let address = format!("unix:path={}", socket.display());
    command.env("DBUS_SESSION_BUS_ADDRESS", address);
    let begun = Instant::now();
    let kept = set(command, CANARY);
    let took = begun.elapsed();
    assert_eq!(code(&kept), 0, "{kept:?}");
    assert!(
        took > Duration::from_millis(1900) && took < Duration::from_secs(6),
        "{took:?}"
    );
    assert!(
        text(&kept.stderr).contains("did not answer within 2 s"),
        "{kept:?}"
    );
    let listed = here.run(&["secret", "list"]);
    assert!(text(&listed.stdout).contains("gpu1  a file"), "{listed:?}");
}

/// Starts a keyring on a bus of its own, runs the lines with it, and ends it by its id.
fn with_keyring(here: &Surroundings, lines: &str) -> Option<Output> {
    for needed in ["dbus-run-session", "gnome-keyring-daemon"] {
        if here.start(needed).arg("--version").output().is_err() {
            skip(format!("there is no `{needed}`"));
            return None;
        }
    }
    let script = format!(
        "printf test | gnome-keyring-daemon --foreground --unlock --components=secrets >/dev/null 2>&1 &\n\
         keyring=$!; trap 'kill $keyring 2>/dev/null' EXIT\n\
         n=0; until dbus-send --session --print-reply --dest=org.freedesktop.secrets \
         /org/freedesktop/secrets org.freedesktop.DBus.Peer.Ping >/dev/null 2>&1; do\n\
         n=$((n+1)); [ $n -lt 100 ] || exit 99; sleep 0.1; done\n{lines}"
    );
    let mut command = here.start("dbus-run-session");
    command.env_remove("DBUS_SESSION_BUS_ADDRESS");
    command.env("XDG_RUNTIME_DIR", here.home.path());
    command.args(["--", "sh", "-c", &script]).arg(program());
    Some(command.output().unwrap())
}

#[test]
fn secret_is_kept_in_a_keychain_that_works() {
    let here = Surroundings::new(&[]);
    let lines = format!(
        "printf %s {CANARY} | \"$0\" secret set gpu1; echo code $?; \"$0\" secret list\n\
         \"$0\" secret remove gpu1; \"$0\" secret list"
    );
    let Some(output) = with_keyring(&here, &lines) else {
        return;
    };
    let said = text(&output.stdout);
    assert!(
        said.contains("kept `gpu1` in the keychain\ncode 0\n"),
        "{output:?}"
    );
    assert!(said.contains("gpu1  the keychain\n"), "{said}");
    assert!(
        said.contains("removed `gpu1` from the keychain\n"),
        "{said}"
    );
    let state = here.home.path().join(".local/state/remote-sandbox-mcp");
    assert!(!state.join("secrets").exists());
    let files = files_below(here.home.path());
    assert!(
        files
            .iter()
            .all(|(_, content)| !text(content).contains(CANARY))
    );
}

#[test]
fn secret_moves_to_the_keychain_and_leaves_no_file_behind() {
    let here = Surroundings::new(&[]);
    let before = set(here.command(&["secret", "set", "gpu1", "--file"]), CANARY);
    assert_eq!(code(&before), 0);
    let lines = format!("printf %s {CANARY} | \"$0\" secret set gpu1; \"$0\" secret list");
    let Some(output) = with_keyring(&here, &lines) else {
        return;
    };
    assert!(
        text(&output.stdout).contains("gpu1  the keychain\n"),
        "{output:?}"
    );
    let state = here.home.path().join(".local/state/remote-sandbox-mcp");
    assert!(!state.join("secrets/gpu1").exists());
}

#[test]
fn typed_secret_is_not_shown_on_the_terminal() {
    let here = Surroundings::new(&[]);
    if here.start("script").arg("--version").output().is_err() {
        skip("there is no `script` program to make a terminal with");
        return;
    }
    let mut command = here.start("script");
    let line = format!("{} secret set gpu1 --file", program().display());
    command
        .args(["-qec", &line, "/dev/null"])
        .stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    // What is typed before the question is thrown away, as it would be shown.
    let asked = read_until(child.stdout.as_mut().unwrap(), "not shown");
    std::thread::sleep(Duration::from_millis(500));
    input.write_all(format!("{CANARY}\r").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = asked + &text(&output.stdout);
    assert!(
        said.contains("kept `gpu1`") && !said.contains(CANARY),
        "{said}"
    );
    let kept = here
        .home
        .path()
        .join(".local/state/remote-sandbox-mcp/secrets/gpu1");
    assert_eq!(std::fs::read_to_string(kept).unwrap(), CANARY);
}

fn read_until(input: &mut impl std::io::Read, words: &str) -> String {
    let mut seen = String::new();
    let mut byte = [0];
    while !seen.contains(words) && input.read(&mut byte).unwrap() > 0 {
        seen.push(char::from(byte[0]));
    }
    seen
}
