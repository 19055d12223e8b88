//! `push`, `pull` and `transfers` on the command line.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Output};
use std::time::{Duration, Instant};

use remote_sandbox_testkit::{Sshd, process, wait_until_blocking};
use rstest::rstest;
use rustix::process::Signal;
use serde_json::Value;

use super::assert_same_trees;
use super::stage::{Random, unfinished};
use crate::commands::{SOON, Surroundings, code, text, wait};
use crate::files::{Kind, mkfifo, write};
use crate::support::entry;

/// The program with one sandbox, and a folder on each side.
struct Here {
    surroundings: Surroundings,
    sshd: Option<Sshd>,
    here: PathBuf,
    there: PathBuf,
    local: String,
    remote: String,
}

impl Here {
    fn new(kind: Kind) -> Self {
        let (surroundings, sshd, name) = match kind {
            Kind::Ssh => {
                let sshd = Sshd::start();
                let surroundings = Surroundings::new(&[entry("box", &sshd)]);
                (surroundings, Some(sshd), "box")
            }
            Kind::Local => (Surroundings::with_list(""), None, "local"),
        };
        let first = surroundings.run(&["exec", name, "--", "pwd"]);
        assert_eq!(code(&first), 0, "{first:?}");
        let begin = match &sshd {
            // Where a command begins is the account's true home.
            Some(sshd) => sshd.dir().join("home"),
            None => PathBuf::from(text(&first.stdout).trim_end()),
        };
        let here = surroundings.home.path().join("project");
        fs::create_dir(&here).unwrap();
        Here {
            local: here.to_str().unwrap().to_owned(),
            remote: format!("{name}:copy"),
            there: begin.join("copy"),
            surroundings,
            sshd,
            here,
        }
    }

    fn push(&self, more: &[&str]) -> Output {
        let words = [&["push", &self.local, &self.remote], more].concat();
        self.surroundings.run(&words)
    }

    fn pull(&self, more: &[&str]) -> Output {
        let words = [&["pull", &self.remote, &self.local], more].concat();
        self.surroundings.run(&words)
    }
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
fn push_and_pull_copy_and_say_so_in_one_plain_line(#[case] kind: Kind) {
    let at = Here::new(kind);
    write(&at.here.join("d/a"), "12345");
    let pushed = at.push(&[]);
    assert_eq!(code(&pushed), 0, "{pushed:?}");
    let said = text(&pushed.stdout);
    assert!(said.starts_with("pushed 1 files, 5 B in "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    // No terminal, no colours and no bars.
    assert!(
        !said.contains('\x1b') && pushed.stderr.is_empty(),
        "{pushed:?}"
    );
    assert_same_trees(&at.here, &at.there);
    write(&at.there.join("d/a"), "123456");
    let pulled = at.pull(&[]);
    assert!(
        text(&pulled.stdout).starts_with("pulled 1 files, 6 B in "),
        "{pulled:?}"
    );
    assert_same_trees(&at.here, &at.there);
    let again = text(&at.push(&[]).stdout);
    assert!(
        again.starts_with("pushed 0 files") && again.contains("1 unchanged"),
        "{again}"
    );
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
fn dry_run_prints_the_plan_and_changes_nothing(#[case] kind: Kind) {
    let at = Here::new(kind);
    write(&at.here.join("a"), "12345");
    let plan = at.push(&["--dry-run"]);
    assert_eq!(code(&plan), 0, "{plan:?}");
    let page = text(&plan.stdout);
    assert!(page.contains("send_file: 1, 5 B\n  a\n"), "{page}");
    assert!(!at.there.exists());
    let json: Value = serde_json::from_slice(&at.push(&["-n", "--json"]).stdout).unwrap();
    assert_eq!(
        (&json["mode"], &json["actions"][0]["bytes"]),
        (&"dry_run".into(), &5.into())
    );
    assert!(!at.there.exists());
    write(&at.there.join("b"), "1");
    let json: Value = serde_json::from_slice(&at.pull(&["-n", "--json"]).stdout).unwrap();
    assert_eq!(json["actions"][0]["first"][0], "b");
    assert!(!at.here.join("b").exists());
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
fn json_is_what_the_tool_returns_and_nothing_else(#[case] kind: Kind) {
    let at = Here::new(kind);
    write(&at.here.join("a"), "12345");
    let pushed = at.push(&["--json"]);
    let json: Value = serde_json::from_slice(&pushed.stdout).unwrap();
    assert_eq!(
        (&json["mode"], &json["uploaded_files"]),
        (&"inline".into(), &1.into())
    );
    assert!(
        json["revision"].is_string() && pushed.stderr.is_empty(),
        "{pushed:?}"
    );
    write(&at.there.join("b"), "1");
    let json: Value = serde_json::from_slice(&at.pull(&["--json"]).stdout).unwrap();
    assert_eq!(json["downloaded_files"], 1);
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
fn exit_code_tells_what_was_not_copied(#[case] kind: Kind) {
    let at = Here::new(kind);
    write(&at.here.join("a"), "1");
    mkfifo(&at.here.join("pipe"));
    let partly = at.push(&[]);
    assert_eq!(code(&partly), 1, "{partly:?}");
    assert!(
        text(&partly.stderr).contains("pipe: it is a special file"),
        "{partly:?}"
    );
    assert_eq!(fs::read(at.there.join("a")).unwrap(), b"1");
    let nothing = at.surroundings.run(&["push", "/etc/shadow", &at.remote]);
    assert_eq!(code(&nothing), 125, "{nothing:?}");
    assert!(text(&nothing.stderr).contains("/etc/shadow"), "{nothing:?}");
    let gone = format!("{}/gone", at.remote);
    let missing = at.surroundings.run(&["pull", &gone, &at.local]);
    assert_eq!(code(&missing), 125, "{missing:?}");
    assert!(
        text(&missing.stderr).contains("does not exist"),
        "{missing:?}"
    );
    let unknown = at.surroundings.run(&["push", &at.local, "nobody:x"]);
    assert_eq!(code(&unknown), 125, "{unknown:?}");
    for number in 0..30 {
        write(&at.there.join(format!("x{number}")), "1");
    }
    fs::remove_file(at.here.join("pipe")).unwrap();
    let refused = at.push(&["--delete-extras"]);
    assert_eq!(code(&refused), 125, "{refused:?}");
    let said = text(&refused.stderr);
    assert!(
        said.contains("`--dry-run`") && said.contains("`--confirm-delete 30`"),
        "{said}"
    );
    let agreed = at.push(&["--delete-extras", "--confirm-delete", "30"]);
    assert_eq!(code(&agreed), 0, "{agreed:?}");
    assert!(text(&agreed.stdout).contains("30 deleted"), "{agreed:?}");
    assert_same_trees(&at.here, &at.there);
}

/// Starts a push of so much that it can be stopped in the middle.
fn push_much(at: &Here) -> Child {
    for number in 0..2000 {
        write(
            &at.here.join(format!("f{number}")),
            Random::new(number).bytes(60_000),
        );
    }
    let words = ["push", &at.local, &at.remote];
    let child = at.surroundings.command(&words).spawn().unwrap();
    let begins = || !unfinished(&at.there).is_empty();
    assert!(wait_until_blocking(SOON, begins), "nothing arrives");
    child
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
fn push_that_is_interrupted_ends_with_130_and_leaves_nothing_unfinished(#[case] kind: Kind) {
    let at = Here::new(kind);
    let child = push_much(&at);
    let began = Instant::now();
    process::signal(child.id(), Signal::INT);
    let ended = wait(child);
    assert_eq!(code(&ended), 130, "{ended:?}");
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
    let is_clean = || unfinished(&at.there).is_empty();
    assert!(
        wait_until_blocking(SOON, is_clean),
        "{:?}",
        unfinished(&at.there)
    );
    let rest = at.push(&[]);
    assert_eq!(code(&rest), 0, "{rest:?}");
    assert_same_trees(&at.here, &at.there);
}

#[test]
fn push_whose_link_is_lost_ends_with_255_and_the_next_one_goes_on() {
    let at = Here::new(Kind::Ssh);
    let child = push_much(&at);
    at.sshd.as_ref().unwrap().kill_sessions();
    let ended = wait(child);
    assert_eq!(code(&ended), 255, "{ended:?}");
    let rest = at.push(&[]);
    assert_eq!(code(&rest), 0, "{rest:?}");
    assert_same_trees(&at.here, &at.there);
}

/// What indicatif draws a bar with.
const BAR: [char; 2] = ['█', '░'];

#[rstest]
#[case::push("push", "uploading")]
#[case::pull("pull", "downloading")]
fn bar_is_drawn_on_a_terminal_only_and_without_colours_where_none_are_wanted(
    #[case] word: &str,
    #[case] phase: &str,
) {
    let at = Here::new(Kind::Ssh);
    let (from, to, source, done) = match word {
        "push" => (&at.local, &at.remote, &at.here, "pushed 20 files"),
        _ => (&at.remote, &at.local, &at.there, "pulled 20 files"),
    };
    for number in 0..20 {
        let bytes = Random::new(number).bytes(60_000);
        write(&source.join(format!("f{number}")), bytes);
    }
    // Every command there takes so long that there is something to draw.
    let settings = at.sshd.as_ref().unwrap().dir().join("home/.bashrc");
    fs::write(settings, "sleep 0.5\n").unwrap();
    for (number, variables) in ["", "NO_COLOR=1 "].into_iter().enumerate() {
        let program = crate::support::program();
        let command = format!(
            "{variables}{} {word} {from} {to}-{number}",
            program.display()
        );
        let mut script = at.surroundings.start("script");
        script
            .args(["-qec", &command, "/dev/null"])
            .env("TERM", "xterm");
        let said = text(&script.output().unwrap().stdout);
        assert!(said.contains(done), "{said}");
        let bars: Vec<_> = said.split('\r').filter(|line| line.contains(BAR)).collect();
        let is_drawn = bars
            .iter()
            .any(|line| line.contains(phase) && line.contains("/20"));
        assert!(is_drawn, "{said:?}");
        if number == 1 {
            assert!(!said.contains("\x1b[3"), "{said:?}");
        }
    }
    // Without a terminal there is none, also when there is a terminal's name.
    let mut plain = at
        .surroundings
        .command(&[word, from, &format!("{to}-plain")]);
    let plain = plain.env("TERM", "xterm").output().unwrap();
    assert_eq!(code(&plain), 0, "{plain:?}");
    for said in [text(&plain.stdout), text(&plain.stderr)] {
        assert!(
            !said.contains(BAR) && !said.contains(['\r', '\x1b']),
            "{said:?}"
        );
    }
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
fn push_and_pull_take_roots_of_any_bytes(#[case] kind: Kind) {
    let at = Here::new(kind);
    let odd = OsStr::from_bytes(b"odd\xff\n");
    let (here, there) = (at.here.join(odd), at.there.join(odd));
    write(&here.join("d/a"), "1");
    write(&here.join("left-out"), "1");
    let rules = at.here.join(OsStr::from_bytes(b"rules\xfe"));
    write(&rules, "left-out\n");
    let remote = Path::new(&at.remote).join(odd);
    let run = |word: &str, paths: [&Path; 2], more: &[&str]| {
        let mut command = at.surroundings.command(&[word]);
        let done = command.args(paths).args(more).output().unwrap();
        assert_eq!(code(&done), 0, "{done:?}");
        text(&done.stdout)
    };
    let plan = run("push", [&here, &remote], &["-n"]);
    assert!(plan.contains(r"odd\xff\x0a <-> "), "{plan}");
    let mut command = at.surroundings.command(&["push"]);
    let pushed = command
        .args([&here, &remote])
        .arg("--exclude-file")
        .arg(&rules);
    assert_eq!(code(&pushed.output().unwrap()), 0);
    assert!(there.join("d/a").exists() && !there.join("left-out").exists());
    fs::remove_file(here.join("left-out")).unwrap();
    assert_same_trees(&here, &there);
    write(&there.join("b"), "22");
    let pulled = run("pull", [&remote, &here], &[]);
    assert!(pulled.starts_with("pulled 1 files"), "{pulled}");
    assert_same_trees(&here, &there);
    // One file, whose own name is no text.
    write(&there.join(odd), "3");
    run("pull", [&remote.join(odd), &here], &[]);
    assert_same_trees(&here, &there);
}

#[test]
fn failure_is_one_json_object_where_the_result_would_be() {
    let at = Here::new(Kind::Ssh);
    write(&at.here.join("a"), "1");
    for number in 0..30 {
        write(&at.there.join(format!("x{number}")), "1");
    }
    let gone = format!("{}/gone", at.remote);
    let cases: [(&[&str], i32, &str, &str); 6] = [
        (
            &["pull", &gone, &at.local],
            125,
            "not_found",
            "`remote-sandbox-mcp ls`",
        ),
        (&["ls", &gone], 125, "not_found", "`remote-sandbox-mcp ls`"),
        (&["ls", "nothing"], 125, "invalid_params", "NAME:PATH"),
        (
            &["push", &at.local, &at.remote, "--delete-extras"],
            125,
            "delete_refused",
            "`--confirm-delete 30`",
        ),
        (&["transfers", "12"], 1, "not_found", "ID"),
        (
            &["watch", "show", "12"],
            1,
            "not_found",
            "`remote-sandbox-mcp watch list`",
        ),
    ];
    for (words, exit_code, reason, hint) in cases {
        let told = at.surroundings.run(&[words, &["--json"]].concat());
        assert_eq!(code(&told), exit_code, "{told:?}");
        let json: Value = serde_json::from_slice(&told.stdout).unwrap();
        assert_eq!(json["code"], reason, "{json}");
        assert!(json["error"].is_string(), "{json}");
        assert!(json["hint"].as_str().unwrap().contains(hint), "{json}");
        assert!(told.stderr.is_empty(), "{told:?}");
        // Without it the exit code is the same, and the words go to people.
        let told = at.surroundings.run(words);
        assert_eq!((code(&told), told.stdout.len()), (exit_code, 0), "{told:?}");
        assert!(text(&told.stderr).contains(hint), "{told:?}");
    }
}
