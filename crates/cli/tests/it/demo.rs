//! `demo`: the true binary as a newcomer runs it.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use remote_sandbox_testkit::process;
use remote_sandbox_testkit::wait::wait_until_blocking;
use rstest::rstest;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::commands::{SOON, code, text, wait};
use crate::support::program;

/// A home and a place for temporary files of its own.
struct Newcomer {
    home: TempDir,
    scratch: TempDir,
}

impl Newcomer {
    fn new() -> Self {
        Newcomer {
            home: TempDir::with_prefix("demo-home-").unwrap(),
            scratch: TempDir::with_prefix("demo-tmp-").unwrap(),
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(program());
        command
            .arg("demo")
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home.path())
            .env("TMPDIR", self.scratch.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// No file and no process is left, neither in the home nor in the place for temporary files.
    fn assert_clean(&self) {
        for folder in [&self.home, &self.scratch] {
            let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
            assert!(left.is_empty(), "{left:?}");
        }
        let mark = self.scratch.path().to_str().unwrap();
        let gone = || process::with_command_line(mark).is_empty();
        let left = process::with_command_line(mark);
        assert!(wait_until_blocking(SOON, gone), "{left:?}");
    }
}

/// A folder of programs without those that make walls.
fn programs_without_walls() -> TempDir {
    let folder = TempDir::with_prefix("demo-bin-").unwrap();
    for name in ["sh", "python3"] {
        let found = [
            Path::new("/usr/bin").join(name),
            Path::new("/bin").join(name),
        ];
        if let Some(found) = found.into_iter().find(|path| path.exists()) {
            std::os::unix::fs::symlink(found, folder.path().join(name)).unwrap();
        }
    }
    folder
}

fn assert_worked(output: &Output) -> String {
    let said = text(&output.stdout);
    assert_eq!(code(output), 0, "{said}{}", text(&output.stderr));
    assert!(said.contains("\nAll 9 steps worked, "), "{said}");
    assert_eq!(said.matches("\n   ok ").count(), 9, "{said}");
    said
}

#[test]
fn demo_shows_every_step_and_leaves_nothing_behind() {
    let here = Newcomer::new();
    // What would break it if it were read: it must not be.
    let output = here
        .command()
        .env("REMOTE_SANDBOX_CONFIG", "/nonexistent/config.toml")
        .env("REMOTE_SANDBOX_LIST", "broken")
        .env("REMOTE_SANDBOX_RESULT_STYLE", "text")
        .output()
        .unwrap();
    let said = assert_worked(&output);
    let program = program().display().to_string();
    for part in [
        "create_sandbox: demo".to_owned(),
        "| ok: nothing lies below two".to_owned(),
        "| 62 primes up to 300, the largest is 293".to_owned(),
        "exec_bash_background: exec sh train.sh".to_owned(),
        "ok the watchdog found it gone and resumed it after step ".to_owned(),
        format!("  claude mcp add remote-sandbox -- {program}\n"),
        format!("  codex mcp add remote-sandbox -- {program}\n"),
        format!("  [mcp_servers.remote-sandbox]\n  command = \"{program}\"\n"),
    ] {
        assert!(said.contains(&part), "{part}: {said}");
    }
    assert!(!said.contains('\x1b'), "no colours without a terminal");
    assert_eq!(text(&output.stderr), "");
    here.assert_clean();
}

#[test]
fn demo_works_without_bubblewrap_on_the_path() {
    let (here, programs) = (Newcomer::new(), programs_without_walls());
    let output = here
        .command()
        .env("PATH", programs.path())
        .output()
        .unwrap();
    let said = assert_worked(&output);
    assert!(!said.contains("isolation: bubblewrap"), "{said}");
    here.assert_clean();
}

#[test]
fn demo_tries_the_configuration_that_it_is_given() {
    let here = Newcomer::new();
    let folder = TempDir::with_prefix("demo-config-").unwrap();
    let config = folder.path().join("config.toml");
    std::fs::write(
        &config,
        "[local]\nisolation = \"none\"\nnetwork = \"off\"\n",
    )
    .unwrap();
    let output = here.command().arg("--config").arg(&config).output();
    let said = assert_worked(&output.unwrap());
    assert!(said.contains("isolation: none; network: off"), "{said}");
    assert!(!said.contains("NO WALL"), "{said}");
    here.assert_clean();
}

#[test]
fn demo_leaves_python_out_where_there_is_none() {
    let here = Newcomer::new();
    let folder = TempDir::with_prefix("demo-config-").unwrap();
    let config = folder.path().join("config.toml");
    let no_python = "[local]\nisolation = \"none\"\ninit = \"python3() { return 127; }\"\n";
    std::fs::write(&config, no_python).unwrap();
    let output = here.command().arg("--config").arg(&config).output();
    let said = assert_worked(&output.unwrap());
    assert!(said.contains("no python3 in the sandbox"), "{said}");
    assert!(!said.contains("python3 -m unittest"), "{said}");
    here.assert_clean();
}

/// Runs a command whose kernel knows no Landlock; its search path should have no bubblewrap.
#[cfg(target_os = "linux")]
fn without_landlock(mut command: Command) -> Output {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
    // A filter holds for the thread that asks for it and for what that starts.
    let running = std::thread::spawn(move || {
        let refused = u32::try_from(libc::EOPNOTSUPP).unwrap();
        let filter = SeccompFilter::new(
            [(libc::SYS_landlock_create_ruleset, vec![])].into(),
            SeccompAction::Allow,
            SeccompAction::Errno(refused),
            std::env::consts::ARCH.try_into().unwrap(),
        );
        let filter: BpfProgram = filter.unwrap().try_into().unwrap();
        apply_filter(&filter).unwrap();
        command.output().unwrap()
    });
    running.join().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn demo_goes_on_without_a_wall_where_none_stands_and_says_so_loudly() {
    let (here, programs) = (Newcomer::new(), programs_without_walls());
    let mut command = here.command();
    command.env("PATH", programs.path());
    let output = without_landlock(command);
    let said = assert_worked(&output);
    let loud: Vec<&str> = said.lines().filter(|line| line.contains("!!")).collect();
    assert_eq!(loud.len(), 1, "{said}");
    for part in [
        "NO WALL",
        "bwrap is not installed",
        "Landlock",
        "throw-away",
    ] {
        assert!(loud[0].contains(part), "{part}: {}", loud[0]);
    }
    assert!(said.contains("isolation: none"), "{said}");
    here.assert_clean();
}

#[cfg(target_os = "linux")]
#[test]
fn demo_never_goes_without_a_wall_against_a_configuration() {
    let (here, programs) = (Newcomer::new(), programs_without_walls());
    let folder = TempDir::with_prefix("demo-config-").unwrap();
    let config = folder.path().join("config.toml");
    std::fs::write(&config, "[local]\nisolation = \"bubblewrap\"\n").unwrap();
    let mut command = here.command();
    command
        .arg("--config")
        .arg(&config)
        .env("PATH", programs.path());
    let output = command.output().unwrap();
    let (said, told) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(code(&output), 1, "{said}");
    assert!(
        said.ends_with("create_sandbox: demo\n   failed\n"),
        "{said}"
    );
    assert!(told.contains("bwrap is not installed"), "{told}");
    assert!(
        told.lines()
            .nth(1)
            .unwrap()
            .starts_with("hint: install bubblewrap"),
        "{told}"
    );
    here.assert_clean();
}

#[test]
fn demo_fails_with_the_servers_own_words_when_the_server_cannot_start() {
    let here = Newcomer::new();
    let missing = here.home.path().join("missing.toml");
    let output = here.command().arg("--config").arg(&missing).output();
    let output = output.unwrap();
    let (said, told) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(code(&output), 1, "{said}");
    assert!(
        said.ends_with("as an agent's client does\n   failed\n"),
        "{said}"
    );
    assert!(told.contains("missing.toml` does not exist"), "{told}");
    assert!(told.lines().last().unwrap().starts_with("hint: "), "{told}");
    assert!(!said.contains("claude mcp add"), "{said}");
    here.assert_clean();
}

#[test]
fn demo_says_what_to_do_when_there_is_no_room_for_its_files() {
    let here = Newcomer::new();
    let output = here.command().env("TMPDIR", "/nonexistent/tmp").output();
    let output = output.unwrap();
    let told = text(&output.stderr);
    assert_eq!((code(&output), &*text(&output.stdout)), (1, ""));
    assert!(
        told.contains("/nonexistent/tmp") && told.contains("TMPDIR"),
        "{told}"
    );
}

#[rstest]
#[case::interrupt(Signal::INT, 130)]
#[case::terminate(Signal::TERM, 143)]
fn demo_cleans_up_when_it_is_interrupted(#[case] signal: Signal, #[case] expected: i32) {
    let here = Newcomer::new();
    let mut child = here.command().spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let running = lines.find(|line| line.as_ref().unwrap().contains("up to 100"));
    assert!(running.is_some(), "the long command never spoke");
    process::signal(child.id(), signal);
    let output = wait(child);
    assert_eq!((code(&output), &*text(&output.stderr)), (expected, ""));
    here.assert_clean();
}

#[test]
fn demo_cleans_up_when_its_server_is_killed() {
    let here = Newcomer::new();
    let mut child = here.command().spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let running = lines.find(|line| line.as_ref().unwrap().contains("up to 100"));
    assert!(running.is_some(), "the long command never spoke");
    let bare = program().display().to_string();
    let mut server = process::descendants(child.id());
    server.retain(|pid| process::command_line(*pid).is_some_and(|line| line == bare));
    assert_eq!(server.len(), 1, "{server:?}");
    process::signal(server[0], Signal::KILL);
    // Somebody has to read, or it would wait for that.
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    let output = wait(child);
    assert_eq!(code(&output), 1, "{rest:?}");
    assert_eq!(rest.last().unwrap(), "   failed");
    here.assert_clean();
}

#[test]
fn demo_cleans_up_when_its_reader_goes_away() {
    let here = Newcomer::new();
    let mut child = here.command().spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("create_sandbox: demo") {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0);
    }
    drop(output);
    let output = wait(child);
    assert_eq!((code(&output), &*text(&output.stderr)), (141, ""));
    here.assert_clean();
}

/// Colours on a terminal, made by `script`; none where somebody does not want them.
#[rstest]
#[case::welcome(None, true)]
#[case::not_wanted(Some("1"), false)]
fn demo_is_coloured_on_a_terminal_unless_nobody_wants_it(
    #[case] no_color: Option<&str>,
    #[case] coloured: bool,
) {
    let terminal = Path::new("/usr/bin/script");
    if !terminal.exists() || !cfg!(target_os = "linux") {
        println!("skipped: no program makes a terminal here");
        return;
    }
    let here = Newcomer::new();
    let wrapper = here.scratch.path().join("run");
    let line = format!(
        "#!/bin/sh\nstty cols 50\nexec '{}' demo\n",
        program().display()
    );
    std::fs::write(&wrapper, line).unwrap();
    std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(terminal);
    command
        .args(["-qec", wrapper.to_str().unwrap(), "/dev/null"])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", here.home.path())
        .env("TMPDIR", here.scratch.path())
        .stdin(Stdio::null());
    if let Some(value) = no_color {
        command.env("NO_COLOR", value);
    }
    let output = command.output().unwrap();
    let said = text(&output.stdout).replace('\r', "");
    assert_eq!(code(&output), 0, "{said}");
    assert_eq!(said.contains("\x1b[32mok\x1b[0m"), coloured, "{said}");
    if !coloured {
        let steps = said.split("All 9 steps worked").next().unwrap();
        let wide = steps.lines().skip(3).find(|line| line.chars().count() > 50);
        assert_eq!(wide, None);
    }
    std::fs::remove_file(&wrapper).unwrap();
    here.assert_clean();
}
