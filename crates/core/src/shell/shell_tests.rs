use std::io::Write;
use std::process::{Command, Output, Stdio};

use super::*;
use crate::ids::RunToken;
use proptest::prelude::*;
use rstest::rstest;

fn token() -> RunToken {
    RunToken::from_uuid_bytes([7; 16])
}

/// Runs a script as a host would: on the standard input of a shell.
fn feed(shell: &[&str], script: &str) -> Output {
    let mut command = Command::new(shell[0]);
    command.args(&shell[1..]);
    crate::fed_shell::feed(command, script)
}

/// The command's own output and exit code.
fn run(shell: &[&str], spec: &RunSpec) -> (String, String, Option<i32>) {
    let output = feed(
        shell,
        &run_script(spec, &token(), 60, facts(TimeoutProgram::Unknown)),
    );
    let (mut out, mut err) = (Gate::new(&token()), Gate::new(&token()));
    let stdout = String::from_utf8_lossy(&out.pass(&output.stdout)).into_owned();
    let stderr = String::from_utf8_lossy(&err.pass(&output.stderr)).into_owned();
    (stdout, stderr, output.status.code())
}

fn facts(program: TimeoutProgram) -> HostFacts {
    HostFacts {
        program,
        age: ShellAge::New,
        tells_signals: true,
    }
}

fn spec(command: &str) -> RunSpec {
    RunSpec::new(command.to_owned()).unwrap()
}

fn shells() -> Vec<Vec<&'static str>> {
    let all: [&[&str]; 4] = [&["dash"], &["bash", "--posix"], &["busybox", "sh"], &["sh"]];
    all.iter()
        .filter(|shell| Command::new(shell[0]).arg("--help").output().is_ok())
        .map(|shell| shell.to_vec())
        .collect()
}

#[rstest]
#[case::exit("exit 7", "", 7)]
#[case::exit_in_the_middle("echo a; exit 3; echo b", "a\n", 3)]
#[case::quotes(r#"echo "it's" 'a "b"' \$x"#, "it's a \"b\" $x\n", 0)]
#[case::here_document("cat <<EOF\nx $((1+1))\nEOF", "x 2\n", 0)]
#[case::trailing_backslash("echo a\\", "a\\\n", 0)]
#[case::own_124("exit 124", "", 124)]
#[case::exec("exec bash -c 'exit 5'", "", 5)]
#[case::set_e("set -e; false; echo no", "", 1)]
#[case::no_input("cat; read -r x; echo \"[$x]\"", "[]\n", 0)]
#[case::marker_forged("echo RSMCP:00:B:1:1:1:k", "RSMCP:00:B:1:1:1:k\n", 0)]
#[case::leading_dash("-x 2>/dev/null; echo $?", "127\n", 0)]
fn command_runs_the_same_under_every_shell(
    #[case] command: &str,
    #[case] expected: &str,
    #[case] code: i32,
) {
    for shell in shells() {
        let (stdout, stderr, exit) = run(&shell, &spec(command));
        assert_eq!(
            (stdout.as_str(), exit),
            (expected, Some(code)),
            "{shell:?}: {stderr}"
        );
    }
}

#[test]
fn long_command_runs_whole() {
    let padding = "# padding padding padding padding\n".repeat(60_000);
    let command = format!(
        "{padding}x=0\n{}echo $x\nexit 9",
        "x=$((x+1))\n".repeat(10_000)
    );
    assert!(command.len() > 2 << 20);
    for shell in shells() {
        let (stdout, stderr, exit) = run(&shell, &spec(&command));
        assert_eq!(
            (stdout.as_str(), exit),
            ("10000\n", Some(9)),
            "{shell:?}: {stderr}"
        );
    }
}

#[rstest]
#[case::with_newline("a\nb\n")]
#[case::without_newline("a\nb")]
#[case::empty("")]
#[case::quotes("it's $HOME `id`\n")]
fn standard_input_arrives_exactly(#[case] text: &str) {
    for shell in shells() {
        let spec = spec("cat; exit 4").with_stdin(StdinText::parse(text.to_owned()).unwrap());
        let (stdout, stderr, exit) = run(&shell, &spec);
        assert_eq!(
            (stdout.as_str(), exit),
            (text, Some(4)),
            "{shell:?}: {stderr}"
        );
    }
}

#[test]
fn variables_and_directory_are_taken_literally() {
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join("a b;echo $HOME 'q'");
    std::fs::create_dir(&odd).unwrap();
    for shell in shells() {
        let spec = spec("pwd; printf '%s\\n' \"$V\"")
            .in_directory(odd.to_str().unwrap())
            .unwrap()
            .with_variable("V", "$(id) 'x' \"y\"".to_owned())
            .unwrap();
        let (stdout, stderr, exit) = run(&shell, &spec);
        let expected = format!("{}\n$(id) 'x' \"y\"\n", odd.display());
        assert_eq!((stdout, exit), (expected, Some(0)), "{shell:?}: {stderr}");
    }
}

#[test]
fn missing_directory_is_told_and_nothing_runs() {
    for shell in shells() {
        let spec = spec("touch ran; echo ran")
            .in_directory("/no/such place")
            .unwrap();
        let output = feed(
            &shell,
            &run_script(&spec, &token(), 60, facts(TimeoutProgram::Absent)),
        );
        let mut gate = Gate::new(&token());
        let rest = gate.pass(&output.stdout).into_owned();
        assert_eq!(gate.refused(), Some("cwd"), "{shell:?}");
        assert!(rest.is_empty(), "{shell:?}");
        assert!(!output.stderr.is_empty(), "{shell:?}");
    }
}

#[test]
fn start_is_told_with_process_and_session() {
    let output = feed(
        &["dash"],
        &run_script(
            &spec("echo $$"),
            &token(),
            60,
            facts(TimeoutProgram::Unknown),
        ),
    );
    let mut gate = Gate::new(&token());
    gate.pass(&output.stdout);
    let started = gate.started().unwrap();
    assert!(
        started.pid > 1 && started.session > 1 && started.start_time > 0,
        "{started:?}"
    );
    assert_eq!(started.timeout_program, TimeoutProgram::WithKill);
}

#[test]
fn gate_drops_login_noise_however_it_is_cut() {
    let text = format!(
        "motd: hi\nno newline hereRSMCP:{}:B:10:10:99:n\nout",
        token()
    )
    .into_bytes();
    for size in 1..text.len() {
        let mut gate = Gate::new(&token());
        let seen: Vec<u8> = text
            .chunks(size)
            .flat_map(|chunk| gate.pass(chunk).into_owned())
            .collect();
        assert_eq!(seen, b"out", "chunks of {size}");
        assert_eq!(gate.noise(), b"motd: hi\nno newline here");
    }
}

#[test]
fn gate_keeps_noise_within_bounds() {
    let mut gate = Gate::new(&token());
    for _ in 0..1000 {
        assert!(gate.pass(&[b'x'; 1000]).is_empty());
    }
    assert!(gate.noise().len() < 40_000);
}

#[rstest]
#[case::empty("  \n")]
#[case::nul("a\0b")]
fn impossible_command_is_refused(#[case] command: &str) {
    assert!(RunSpec::new(command.to_owned()).is_err());
}

#[rstest]
#[case("A=B")]
#[case("1X")]
#[case("")]
#[case("X;id")]
#[case("X\nY")]
#[case("UID")]
fn impossible_variable_name_is_refused(#[case] name: &str) {
    assert!(EnvironmentName::parse(name).is_err());
}

#[test]
fn end_script_ends_a_session_with_all_its_kinds_of_children() {
    for shell in shells() {
        let token = RunToken::from_uuid_bytes(*uuid_bytes());
        let command = "trap '' TERM; setsid sleep 321 & (setsid sleep 322 >/dev/null 2>&1 &) ; sleep 323 & sleep 324; sleep 325";
        let script = run_script(&spec(command), &token, 60, facts(TimeoutProgram::Unknown));
        let mut child = Command::new("setsid")
            .args(["sh", "-c", "exec sh"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(script.as_bytes())
            .unwrap();
        let mut gate = Gate::new(&token);
        let mut stdout = child.stdout.take().unwrap();
        while !gate.is_open() {
            let mut buffer = [0; 512];
            let length = std::io::Read::read(&mut stdout, &mut buffer).unwrap();
            assert!(length > 0, "the script ended without starting");
            gate.pass(&buffer[..length]);
        }
        std::thread::sleep(std::time::Duration::from_millis(300));
        let target = Target {
            token: token.clone(),
            started: gate.started(),
        };
        let look = feed(&shell, &end_script(&target, Purpose::Look));
        let seen = parse_end_report(&token, &look.stdout).unwrap();
        assert!(seen.survivors.len() >= 5, "{shell:?}: {seen:?}");
        let end = feed(&shell, &end_script(&target, Purpose::End));
        let report = parse_end_report(&token, &end.stdout)
            .unwrap_or_else(|| panic!("{shell:?}: {}", String::from_utf8_lossy(&end.stderr)));
        assert!(
            report.found >= 5 && report.survivors.is_empty(),
            "{shell:?}: {report:?}"
        );
        child.wait().unwrap();
    }
}

#[test]
fn end_script_ends_a_group_on_a_host_without_proc() {
    let without_proc = |script: String| script.replace("/proc/", "/nowhere/");
    let token = RunToken::from_uuid_bytes(uuid_bytes().map(|byte| !byte));
    let script = run_script(
        &spec("sleep 326 & sleep 327"),
        &token,
        60,
        facts(TimeoutProgram::Absent),
    );
    let mut child = Command::new("setsid")
        .args(["sh", "-c", "exec sh"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(without_proc(script).as_bytes()).unwrap();
    drop(input);
    let mut gate = Gate::new(&token);
    let mut stdout = child.stdout.take().unwrap();
    while !gate.is_open() {
        let mut buffer = [0; 512];
        let length = std::io::Read::read(&mut stdout, &mut buffer).unwrap();
        assert!(length > 0, "the script ended without starting");
        gate.pass(&buffer[..length]);
    }
    let started = gate.started().unwrap();
    assert_eq!(started.session, started.pid);
    std::thread::sleep(std::time::Duration::from_millis(300));
    let target = Target {
        token: token.clone(),
        started: Some(started),
    };
    let end = feed(&["sh"], &without_proc(end_script(&target, Purpose::End)));
    let report = parse_end_report(&token, &end.stdout).unwrap();
    assert!(
        report.found >= 3 && report.survivors.is_empty(),
        "{report:?}"
    );
    child.wait().unwrap();
    let blind = Target {
        token: token.clone(),
        started: None,
    };
    let end = feed(&["sh"], &without_proc(end_script(&blind, Purpose::End)));
    assert_eq!(parse_end_report(&token, &end.stdout), None);
}

#[test]
fn callers_own_search_path_is_for_the_command_only() {
    for shell in shells() {
        let spec = spec("echo \"$PATH\"; exit 3")
            .with_variable("PATH", "/no/such/place".to_owned())
            .unwrap();
        let (stdout, stderr, exit) = run(&shell, &spec);
        assert_eq!(
            (stdout.as_str(), exit),
            ("/no/such/place\n", Some(3)),
            "{shell:?}: {stderr}"
        );
    }
}

#[test]
fn end_script_leaves_a_reused_session_number_alone() {
    let mut innocent = Command::new("setsid")
        .args(["sleep", "30"])
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let started = Started {
        pid: innocent.id(),
        session: innocent.id(),
        start_time: 1,
        timeout_program: TimeoutProgram::Absent,
        closes_early: false,
        tells_changes: false,
    };
    let target = Target {
        token: token(),
        started: Some(started),
    };
    let end = feed(&["sh"], &end_script(&target, Purpose::End));
    let report = parse_end_report(&token(), &end.stdout).unwrap();
    assert_eq!(report.found, 0);
    assert!(
        innocent.try_wait().unwrap().is_none(),
        "an innocent process was ended"
    );
    innocent.kill().unwrap();
    innocent.wait().unwrap();
}

fn uuid_bytes() -> &'static [u8; 16] {
    // Different for every test process, so that parallel runs do not find each other.
    static BYTES: std::sync::OnceLock<[u8; 16]> = std::sync::OnceLock::new();
    BYTES.get_or_init(|| {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&std::process::id().to_be_bytes());
        let time = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        bytes[4..12].copy_from_slice(&time.as_nanos().to_be_bytes()[8..]);
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn quoted_text_stands_for_itself(text in "[^\0]{0,40}") {
        let output = feed(&["sh"], &format!("printf %s {}", quote(&text)));
        prop_assert_eq!(String::from_utf8_lossy(&output.stdout), text);
    }
}

proptest! {
    #[test]
    fn report_parser_survives_anything(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_end_report(&token(), &bytes);
        let mut gate = Gate::new(&token());
        gate.pass(&bytes);
    }
}
