use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rstest::rstest;

use super::super::JobState;
use super::super::testing::*;
use super::*;
use crate::shell::RunSpec;

#[rstest]
#[case::plain("echo a", JobState::Exited { code: 0 }, "a\nEXIT_CODE=0\n")]
#[case::exit("echo a; exit 7; echo b", JobState::Exited { code: 7 }, "a\nEXIT_CODE=7\n")]
#[case::exec("exec sh -c 'exit 5'", JobState::Exited { code: 5 }, "EXIT_CODE=5\n")]
#[case::set_e("set -e; false; echo no", JobState::Exited { code: 1 }, "EXIT_CODE=1\n")]
#[case::no_final_newline("printf abc", JobState::Exited { code: 0 }, "abc\nEXIT_CODE=0\n")]
#[case::own_line("echo EXIT_CODE=0; exit 3", JobState::Exited { code: 3 }, "EXIT_CODE=0\nEXIT_CODE=3\n")]
#[case::here_document("cat <<E\nx $((1+1))\nE", JobState::Exited { code: 0 }, "x 2\nEXIT_CODE=0\n")]
#[case::quotes(r#"echo "it's" 'a "b"' \$x"#, JobState::Exited { code: 0 }, "it's a \"b\" $x\nEXIT_CODE=0\n")]
#[case::trailing_backslash("echo a\\", JobState::Exited { code: 0 }, "a\\\nEXIT_CODE=0\n")]
#[case::breaks_out("}; echo inj; {", JobState::Exited { code: 2 }, "")]
#[case::old_delimiter("cat <<'X'\n__RSMCP_BG__\nX", JobState::Exited { code: 0 }, "__RSMCP_BG__\nEXIT_CODE=0\n")]
#[case::unset("echo [$NOPE]", JobState::Exited { code: 0 }, "[]\nEXIT_CODE=0\n")]
#[case::syntax_error("if true; then", JobState::Exited { code: 2 }, "")]
#[case::no_input("cat; read -r x; echo \"[$x]\"", JobState::Exited { code: 0 }, "[]\nEXIT_CODE=0\n")]
#[case::killed("kill -KILL $$", JobState::Signalled { signal: 9 }, "EXIT_CODE=137\n")]
#[case::terminated("echo a; kill -TERM $$; sleep 5", JobState::Signalled { signal: 15 }, "a\nEXIT_CODE=143\n")]
#[case::interrupted("kill -INT $$; sleep 5", JobState::Signalled { signal: 2 }, "EXIT_CODE=130\n")]
#[case::hung_up("kill -HUP $$; echo still here", JobState::Exited { code: 0 }, "still here\nEXIT_CODE=0\n")]
#[case::errors_in_the_log("echo e >&2", JobState::Exited { code: 0 }, "e\nEXIT_CODE=0\n")]
fn command_ends_as_it_should_on_every_host(
    #[case] command: &str,
    #[case] state: JobState,
    #[case] log: &str,
) {
    for host in Host::all() {
        let (ended, written) = host.outcome(&job(command));
        assert_eq!(ended, state, "{}: {written}", host.name);
        if log.is_empty() {
            let line = format!("EXIT_CODE={}\n", state.exit_code().unwrap());
            assert!(
                written.len() > line.len() && written.ends_with(&line),
                "{}: {written}",
                host.name
            );
        } else {
            assert_eq!(written, log, "{}", host.name);
        }
    }
}

#[test]
fn signal_is_told_from_a_code_where_bash_has_no_name_but_sh() {
    let Some(host) = Host::sparse("bash as sh", "bash") else {
        return;
    };
    let killed = host.outcome(&job("kill -KILL $$")).0;
    assert_eq!(killed, JobState::Signalled { signal: 9 });
    let exited = host.outcome(&job("exit 137")).0;
    assert_eq!(exited, JobState::Exited { code: 137 });
}

#[test]
fn start_works_where_sh_is_zsh_and_nothing_leaves_processes_behind() {
    let Some(host) = Host::sparse("zsh as sh", "zsh") else {
        return;
    };
    for _ in 0..20 {
        assert_eq!(host.outcome(&job("exit 4")).0, JobState::Exited { code: 4 });
    }
}

#[test]
fn code_above_128_is_told_from_a_signal_where_there_is_bash() {
    let host = Host::full("dash", &["dash"]);
    assert_eq!(
        host.outcome(&job("exit 143")).0,
        JobState::Exited { code: 143 }
    );
}

#[test]
fn long_command_runs_whole() {
    let padding = "# padding padding padding padding\n".repeat(31_000);
    let command = format!(
        "{padding}x=0\n{}echo $x\nexit 9",
        "x=$((x+1))\n".repeat(1000)
    );
    assert!(command.len() > 1 << 20);
    for host in Host::all() {
        let (state, log) = host.outcome(&job(&command));
        assert_eq!(
            (state, log.as_str()),
            (JobState::Exited { code: 9 }, "1000\nEXIT_CODE=9\n"),
            "{}",
            host.name
        );
    }
}

#[test]
fn started_job_is_told_with_process_log_and_boot_and_its_folder_is_private() {
    for host in Host::all() {
        let spec = job("sleep 60");
        let started = host.started(&spec);
        let pid = started.process.pid.to_string();
        assert_eq!(
            start_time(&pid).as_deref(),
            Some(started.process.start_time.as_str()),
            "{}",
            host.name
        );
        assert_eq!(
            started.process.session, started.process.pid,
            "{}",
            host.name
        );
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        assert_eq!(started.process.boot_id.as_str(), boot.trim());
        let home = host.home.path().canonicalize().unwrap();
        let log = home.join(format!(".codex_logs/{}.log", spec.session));
        assert_eq!(started.log_file, log.to_str().unwrap());
        for folder in [
            host.folder(&spec),
            host.home.path().join(".remote-sandbox-mcp/jobs"),
        ] {
            assert_eq!(
                fs::metadata(folder).unwrap().permissions().mode() & 0o777,
                0o700,
                "{}",
                host.name
            );
        }
        assert_eq!(
            host.judge(&spec, &started.log_file).state,
            JobState::Running,
            "{}",
            host.name
        );
    }
}

#[test]
fn variables_directory_and_umask_are_the_callers_own() {
    for host in Host::all() {
        let odd = host.home.path().join("a b;echo $HOME 'q'");
        fs::create_dir(&odd).unwrap();
        let run =
            RunSpec::new("printf '%s\\n' \"$PWD\" \"$V\" \"$PATH\" \"$log\"; umask".to_owned())
                .unwrap()
                .in_directory("~/a b;echo $HOME 'q'")
                .unwrap()
                .with_variable("V", "$(id) 'x' \"y\"".to_owned())
                .unwrap()
                .with_variable("log", "mine".to_owned())
                .unwrap()
                .with_variable("PATH", "/no/such/place".to_owned())
                .unwrap();
        let spec = job_of(run).with_log_file("logs/out.txt").unwrap();
        let (state, log) = host.outcome(&spec);
        let lines: Vec<&str> = log.lines().collect();
        assert_eq!(state, JobState::Exited { code: 0 }, "{}: {log}", host.name);
        assert!(
            lines[0].ends_with("a b;echo $HOME 'q'"),
            "{}: {log}",
            host.name
        );
        assert_eq!(
            lines[1..4],
            ["$(id) 'x' \"y\"", "/no/such/place", "mine"],
            "{}",
            host.name
        );
        assert_eq!(lines[4].trim_start_matches('0'), "22", "{}", host.name);
        assert!(odd.join("logs/out.txt").is_file());
        let secret = Command::new("grep")
            .args(["-r", "(id) 'x'"])
            .arg(host.folder(&spec))
            .output()
            .unwrap();
        assert!(secret.stdout.is_empty(), "a variable was written down");
    }
}

/// All that lies in a home.
fn tree(host: &Host) -> String {
    let found = Command::new("find")
        .arg(host.home.path())
        .args(["-mindepth", "1", "-not", "-path", "*/tmux-*"])
        .output();
    String::from_utf8_lossy(&found.unwrap().stdout).into_owned()
}

#[test]
fn refused_start_names_its_reason_and_leaves_nothing_behind() {
    for host in Host::all() {
        fs::create_dir(host.home.path().join("folder")).unwrap();
        host.write("file", "x");
        let before = tree(&host);
        let run = || RunSpec::new("touch ran".to_owned()).unwrap();
        let no_cwd = job_of(run().in_directory("/no/such place").unwrap());
        assert!(
            matches!(host.refused(&no_cwd), StartRefusal::Cwd { detail } if detail.contains("/no/such place"))
        );
        let logs = ["~/folder", "~/file/x.log", "/proc/none/x.log", "/dev/null"];
        for log in logs {
            let spec = job_of(run()).with_log_file(log).unwrap();
            let refusal = host.refused(&spec);
            assert!(
                matches!(refusal, StartRefusal::Log { .. }),
                "{} {log}: {refusal:?}",
                host.name
            );
        }
        let deep = job_of(run())
            .with_log_file("~/new/deep/../../file/x.log")
            .unwrap();
        assert!(matches!(host.refused(&deep), StartRefusal::Log { .. }));
        // Some of the folders are made before one turns out to be impossible.
        let long = "x".repeat(300);
        for log in [
            format!("~/new/deep/{long}/x.log"),
            format!("~/new/../{long}/x.log"),
        ] {
            let spec = job_of(run()).with_log_file(&log).unwrap();
            let refusal = host.refused(&spec);
            assert!(matches!(refusal, StartRefusal::Log { .. }), "{refusal:?}");
        }
        let gpu = job_of(run())
            .with_gpus(GpuWish::parse("1").unwrap())
            .with_log_file("~/new/x.log")
            .unwrap();
        assert_eq!(
            host.refused(&gpu),
            StartRefusal::NoFreeGpu {
                free: 0,
                present: 0
            },
            "{}",
            host.name
        );
        let shell: crate::shell::ShellProgram =
            crate::shell::ShellProgram::parse("no-such-shell").unwrap();
        let surroundings = crate::config::Surroundings {
            shell: Some(shell),
            ..Default::default()
        };
        assert_eq!(
            host.refused(&job_of(run().within(&surroundings))),
            StartRefusal::Shell
        );
        assert_eq!(tree(&host), before, "{}", host.name);
    }
}

#[test]
fn beginning_of_the_sandbox_runs_in_the_same_shell_and_its_failure_ends_the_job() {
    for host in Host::all() {
        let with = |init: &str| {
            let surroundings = crate::config::Surroundings {
                init: Some(init.to_owned()),
                ..Default::default()
            };
            job_of(
                RunSpec::new("echo [$x]; pwd".to_owned())
                    .unwrap()
                    .within(&surroundings),
            )
        };
        let (state, log) = host.outcome(&with("x=1; cd /"));
        let home = host.home.path().canonicalize().unwrap();
        assert_eq!(state, JobState::Exited { code: 0 }, "{}: {log}", host.name);
        assert_eq!(
            log,
            format!("[1]\n{}\nEXIT_CODE=0\n", home.display()),
            "{}",
            host.name
        );
        assert_eq!(
            host.outcome(&with("false")).0,
            JobState::Exited { code: 125 },
            "{}",
            host.name
        );
    }
}

#[test]
fn log_past_its_bound_loses_its_middle_and_no_byte_its_place() {
    let hosts = [
        Some(Host::full("dash", &["dash"])),
        Host::sparse("busybox alone", "busybox"),
    ];
    for host in hosts.into_iter().flatten() {
        let lines = "i=0; while [ $i -lt 6 ]; do seq -f 'line %09.0f' $((i*20000)) $((i*20000+19999)) 2>/dev/null || seq $((i*20000)) $((i*20000+19999)); sleep 1.2; i=$((i+1)); done; touch over";
        let mut spec = job(lines).with_max_log_bytes(512 * 1024).unwrap();
        spec.log_pause_s = 1;
        let log = host.started(&spec).log_file;
        let can_punch = host.programs.is_none();
        if can_punch {
            host.end_of(&spec, &log);
            use std::os::unix::fs::MetadataExt;
            let entry = fs::metadata(&log).unwrap();
            assert_eq!(entry.len(), 6 * 20_000 * 15 + 12);
            assert!(
                entry.blocks() * 512 < 1024 * 1024,
                "{}: {}",
                host.name,
                entry.blocks() * 512
            );
            let bytes = fs::read(&log).unwrap();
            assert!(bytes.starts_with(b"line 000000000\nline 000000001\n"));
            assert!(bytes.ends_with(b"line 000119999\nEXIT_CODE=0\n"));
            let middle = &bytes[15 * 40_000..15 * 40_001];
            assert_eq!(middle, &[0; 15], "{}", host.name);
            let hole = fs::read_to_string(host.folder(&spec).join("hole")).unwrap();
            let hole: Vec<usize> = hole
                .split_whitespace()
                .map(|byte| byte.parse().unwrap())
                .collect();
            let &[from, to] = &hole[..] else {
                panic!("{hole:?}")
            };
            assert!(from > 0 && bytes[from..to].iter().all(|byte| *byte == 0));
            assert!(bytes[from - 1] != 0 && bytes[to] != 0, "{hole:?}");
        } else {
            until("the alarm is there", || {
                host.look(&spec, &log).log_is_unbounded
            });
        }
    }
}

#[test]
fn starts_in_the_same_second_both_work() {
    for host in Host::all() {
        let (one, two) = (job("echo 1"), job("echo 2"));
        let (first, second) = (host.started(&one), host.started(&two));
        assert_ne!(first.log_file, second.log_file);
    }
}

#[test]
fn full_disk_refuses_the_start() {
    let host = Host::full("dash", &["dash"]);
    // A limit on the size of files stands in for a disk that is full.
    let script = start_script(&job(&format!("echo {}", "x".repeat(200_000))), &mark());
    let answer = host.run(&format!("trap '' XFSZ; ulimit -f 8\n{script}"));
    let verdict = parse_start(&mark(), &answer).unwrap();
    assert!(
        matches!(verdict, StartVerdict::Refused(StartRefusal::NoSpace { .. })),
        "{verdict:?}"
    );
    assert_eq!(tree(&host), "");
}

#[test]
fn answer_that_broke_off_is_no_verdict() {
    let whole = format!("noise\nRSMCP:{}:verdict:refused:shell\n", mark());
    assert_eq!(
        parse_start(&mark(), whole.as_bytes()),
        Ok(StartVerdict::Refused(StartRefusal::Shell))
    );
    for end in 0..whole.len() - 1 {
        assert_eq!(
            parse_start(&mark(), &whole.as_bytes()[..end]),
            Err(StartReportError::NoVerdict)
        );
    }
}
