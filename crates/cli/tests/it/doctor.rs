//! `doctor` on the command line, against real servers and some that are none.

use std::process::Output;
use std::time::{Duration, Instant};

use remote_sandbox_testkit::evil_tcp::{EvilTcp, TcpBehaviour};
use remote_sandbox_testkit::keys::ClientKey;
use remote_sandbox_testkit::skip;
use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::wait::{free_port, wait_until_blocking};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::commands::{SOON, Surroundings, code, text};
use crate::ssh_config::{SshConfig, target};
use crate::support::{entry, program, with};

/// What `doctor --json` says, and its exit code.
fn examine(here: &Surroundings, names: &[&str]) -> (Value, i32) {
    let mut arguments = vec!["doctor", "--json"];
    arguments.extend(names);
    read(&here.run(&arguments))
}

fn read(output: &Output) -> (Value, i32) {
    let said = text(&output.stdout);
    let report = serde_json::from_str(&said).unwrap_or_else(|error| {
        panic!("{error}: {said}{}", text(&output.stderr));
    });
    (report, code(output))
}

/// A step of the only host.
fn step<'a>(report: &'a Value, name: &str) -> &'a Value {
    let steps = report["hosts"][0]["steps"].as_array().expect("steps");
    let found = steps.iter().find(|step| step["step"] == name);
    found.unwrap_or_else(|| panic!("no step {name}: {report:#}"))
}

/// That everything before the named step went well, that this one failed with a fix, and that
/// nothing after it was tried.
fn assert_ends_at(report: &Value, failed: &str) -> String {
    let steps = report["hosts"][0]["steps"].as_array().expect("steps");
    let at = steps.iter().position(|step| step["step"] == failed);
    let at = at.unwrap_or_else(|| panic!("no step {failed}: {report:#}"));
    for (place, step) in steps.iter().enumerate() {
        let status = step["status"].as_str().unwrap();
        let right = match place.cmp(&at) {
            std::cmp::Ordering::Less => status == "ok",
            std::cmp::Ordering::Equal => status == "failed",
            std::cmp::Ordering::Greater => status == "skipped",
        };
        assert!(right, "{step}: {report:#}");
    }
    assert!(steps[at]["fix"].is_string(), "{report:#}");
    steps[at]["detail"].as_str().unwrap().to_owned()
}

#[test]
fn doctor_finds_every_step_of_a_healthy_host_well() {
    let sshd = Sshd::start();
    let here = Surroundings::new(&[entry("box", &sshd)]);
    let (report, ended) = examine(&here, &[]);
    let steps = report["hosts"][0]["steps"].as_array().unwrap();
    let names: Vec<&str> = steps
        .iter()
        .filter_map(|step| step["step"].as_str())
        .collect();
    assert_eq!(
        names,
        [
            "dns", "tcp", "banner", "host_key", "auth", "shell", "bash", "tmux", "timeout", "find",
            "tar", "python", "sftp", "disk", "inodes", "clock", "sessions"
        ]
    );
    // What this machine lacks is a warning, and warnings are no failure.
    assert!(
        steps.iter().all(|step| step["status"] != "failed"),
        "{report:#}"
    );
    assert_eq!(ended, 0, "{report:#}");
    for name in [
        "dns", "tcp", "host_key", "auth", "shell", "sftp", "clock", "sessions",
    ] {
        assert_eq!(step(&report, name)["status"], "ok", "{report:#}");
    }
    let detail = |name: &str| step(&report, name)["detail"].as_str().unwrap().to_owned();
    assert!(detail("banner").contains("OpenSSH_"), "{report:#}");
    assert!(detail("banner").contains("released"), "{report:#}");
    assert!(detail("host_key").contains("SHA256:"), "{report:#}");
    assert!(detail("host_key").contains("new"), "{report:#}");
    assert!(detail("auth").contains("client"), "{report:#}");
    assert_eq!(detail("sftp"), "version 3");
    assert_eq!(detail("sessions"), "10 at a time");
    assert!(step(&report, "auth")["ms"].is_u64(), "{report:#}");
    assert_eq!(sshd.accepted_auth_count(), 1, "one login is enough");
    let (again, _) = examine(&here, &["box"]);
    let key = step(&again, "host_key")["detail"].as_str().unwrap();
    assert!(
        key.contains("known from") && key.contains("line 1"),
        "{key}"
    );
    assert!(wait_until_blocking(SOON, || sshd.session_pids().is_empty()));
}

#[test]
fn doctor_prints_lines_without_colour_in_a_pipe() {
    let sshd = Sshd::start();
    let here = Surroundings::new(&[entry("box", &sshd)]);
    let output = here.run(&["doctor"]);
    let said = text(&output.stdout);
    assert_eq!(code(&output), 0, "{said}");
    assert!(said.starts_with("configuration\n  ok file "), "{said}");
    assert!(
        said.contains("\nbox\n  ok dns          127.0.0.1"),
        "{said}"
    );
    assert!(!said.contains('\x1b'), "{said}");
    if here.start("script").arg("--version").output().is_err() {
        skip("there is no `script` program to make a terminal with");
        return;
    }
    let mut command = here.start("script");
    let line = format!("{} doctor box", program().display());
    command.args(["-qec", &line, "/dev/null"]);
    let drawn = text(&command.output().unwrap().stdout);
    assert!(drawn.contains("\x1b[32mok\x1b[0m dns"), "{drawn}");
    let drawn = text(&command.env("NO_COLOR", "1").output().unwrap().stdout);
    assert!(
        drawn.contains("ok dns") && !drawn.contains('\x1b'),
        "{drawn}"
    );
}

#[test]
fn doctor_ends_at_tcp_when_the_port_is_closed() {
    let sshd = Sshd::start();
    let dead = with(entry("dead", &sshd), json!({"port": free_port()}));
    let here = Surroundings::new(&[dead]);
    let (report, ended) = examine(&here, &[]);
    assert_eq!(ended, 1);
    let detail = assert_ends_at(&report, "tcp");
    assert!(detail.contains("refused"), "{detail}");
    let output = here.run(&["doctor"]);
    let said = text(&output.stdout);
    assert!(said.contains("\n  x  tcp "), "{said}");
    assert!(said.contains("fix: check that the host is up"), "{said}");
    assert!(
        said.contains("\n  -  banner, host_key, auth, shell"),
        "{said}"
    );
    assert!(said.ends_with("failed: 1; warnings: 0\n"), "{said}");
}

#[test]
fn doctor_ends_at_dns_when_the_name_does_not_exist() {
    let sshd = Sshd::start();
    let lost = with(entry("lost", &sshd), json!({"host": "host.invalid"}));
    let (report, ended) = examine(&Surroundings::new(&[lost]), &[]);
    assert_eq!(ended, 1);
    let detail = assert_ends_at(&report, "dns");
    assert!(detail.contains("host.invalid"), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_ends_at_the_banner_when_the_server_is_silent_and_looks_at_others_meanwhile() {
    let (first, second) = (
        EvilTcp::start(TcpBehaviour::Silent).await,
        EvilTcp::start(TcpBehaviour::Silent).await,
    );
    let sshd = Sshd::start();
    let silent = |name: &str, port: u16| {
        let more = json!({"port": port, "banner_timeout_s": 2});
        with(entry(name, &sshd), more)
    };
    let here = Surroundings::new(&[
        silent("first", first.port()),
        silent("second", second.port()),
        entry("box", &sshd),
    ]);
    let started = Instant::now();
    let (report, ended) = examine(&here, &[]);
    assert!(
        started.elapsed() < Duration::from_millis(3900),
        "one after the other"
    );
    assert_eq!(ended, 1);
    assert_ends_at(&report, "banner");
    let names: Vec<&Value> = (0..3)
        .map(|place| &report["hosts"][place]["name"])
        .collect();
    assert_eq!(names, ["first", "second", "box"]);
    assert_eq!(report["hosts"][2]["steps"][4]["status"], "ok", "{report:#}");
}

#[test]
fn doctor_ends_at_the_host_key_when_it_has_changed() {
    let mut sshd = Sshd::start();
    let here = Surroundings::new(&[entry("box", &sshd)]);
    assert_eq!(examine(&here, &[]).1, 0);
    sshd.restart_with_new_host_key();
    let (report, ended) = examine(&here, &[]);
    assert_eq!(ended, 1);
    let detail = assert_ends_at(&report, "host_key");
    assert!(
        detail.contains("has changed") && detail.contains("line 1"),
        "{detail}"
    );
}

#[test]
fn doctor_ends_at_the_login_when_the_key_is_the_wrong_one() {
    let sshd = Sshd::start();
    let folder = TempDir::new().unwrap();
    let wrong = ClientKey::ed25519(folder.path(), "wrong");
    let entry = with(
        entry("box", &sshd),
        json!({"key_file": wrong.private_path()}),
    );
    let (report, ended) = examine(&Surroundings::new(&[entry]), &[]);
    assert_eq!(ended, 1);
    let detail = assert_ends_at(&report, "auth");
    assert!(detail.contains("refused"), "{detail}");
    assert_eq!(sshd.accepted_auth_count(), 0);
}

#[test]
fn doctor_counts_sessions_and_still_sees_the_rest_when_there_are_two() {
    let sshd = Sshd::builder().max_sessions(2).start();
    let (report, ended) = examine(&Surroundings::new(&[entry("box", &sshd)]), &[]);
    assert_eq!(ended, 0, "{report:#}");
    let sessions = step(&report, "sessions");
    assert_eq!(sessions["status"], "warning");
    assert!(
        sessions["detail"]
            .as_str()
            .unwrap()
            .starts_with("2 at a time")
    );
    assert!(sessions["fix"].as_str().unwrap().contains("MaxSessions"));
    assert_eq!(step(&report, "shell")["status"], "ok", "{report:#}");
    assert_eq!(step(&report, "sftp")["status"], "ok", "{report:#}");
}

#[test]
fn doctor_warns_of_tools_that_are_not_on_the_search_path() {
    // What the script itself needs, and no more.
    let tools = TempDir::new().unwrap();
    for tool in ["sh", "date", "uname", "df", "head", "tail", "find"] {
        let at = ["/usr/bin", "/bin"].map(|folder| format!("{folder}/{tool}"));
        let at = at.iter().find(|path| std::path::Path::new(path).exists());
        std::os::unix::fs::symlink(at.unwrap(), tools.path().join(tool)).unwrap();
    }
    let sshd = Sshd::builder()
        .session_environment("PATH", &tools.path().display().to_string())
        .start();
    let (report, ended) = examine(&Surroundings::new(&[entry("box", &sshd)]), &[]);
    assert_eq!(ended, 0, "{report:#}");
    for (name, package) in [("tmux", "tmux"), ("bash", "bash"), ("timeout", "coreutils")] {
        let found = step(&report, name);
        assert_eq!(found["status"], "warning", "{report:#}");
        let fix = found["fix"].as_str().unwrap();
        assert!(fix.contains(&format!("apt install {package}")), "{fix}");
    }
    assert_eq!(step(&report, "find")["status"], "ok", "{report:#}");
}

#[test]
fn doctor_tells_file_transfer_and_shell_apart_when_the_account_is_restricted() {
    let sshd = Sshd::builder().max_sessions(1).start();
    // A forced command takes the place of everything, as restricted accounts have it.
    let forced = Sshd::builder().extra_config("ForceCommand true").start();
    let here = Surroundings::new(&[entry("box", &sshd), entry("forced", &forced)]);
    let (report, ended) = examine(&here, &["box"]);
    assert_eq!(ended, 0, "{report:#}");
    assert_eq!(step(&report, "sftp")["status"], "ok", "{report:#}");
    assert_eq!(step(&report, "shell")["status"], "ok", "{report:#}");
    let (report, ended) = examine(&here, &["forced"]);
    assert_eq!(ended, 1);
    let sftp = step(&report, "sftp");
    assert_eq!(sftp["status"], "warning", "{report:#}");
    assert!(
        sftp["fix"].as_str().unwrap().contains("Subsystem sftp"),
        "{report:#}"
    );
    assert_eq!(step(&report, "shell")["status"], "failed", "{report:#}");
    assert_eq!(step(&report, "bash")["status"], "skipped", "{report:#}");
}

#[test]
fn doctor_says_how_file_transfer_is_enabled_when_the_server_has_none() {
    let sshd = Sshd::builder()
        .extra_config("Subsystem other /bin/false")
        .start();
    let (report, ended) = examine(&Surroundings::new(&[entry("box", &sshd)]), &[]);
    assert_eq!(ended, 0, "{report:#}");
    let sftp = step(&report, "sftp");
    assert_eq!(
        (&sftp["status"], &sftp["detail"]),
        (&json!("warning"), &json!("the server refuses it"))
    );
    assert!(
        sftp["fix"].as_str().unwrap().contains("Subsystem sftp"),
        "{report:#}"
    );
}

#[test]
fn doctor_shows_the_way_of_the_ssh_configuration_over_a_jump_host() {
    let (gate, inner) = (Sshd::start(), Sshd::start());
    let config =
        SshConfig::new()
            .host("gate", &gate, &[])
            .host("target", &inner, &["ProxyJump gate"]);
    let here = Surroundings::new(&[target()]);
    let mut command = here.command(&["doctor", "--json"]);
    command.env("REMOTE_SANDBOX_SSH_CONFIG", config.path());
    let (report, ended) = read(&command.output().unwrap());
    assert_eq!(ended, 0, "{report:#}");
    let steps = report["hosts"][0]["steps"].as_array().unwrap();
    let way: Vec<(&str, &str)> = steps
        .iter()
        .take(11)
        .map(|step| {
            (
                step["step"].as_str().unwrap(),
                step["status"].as_str().unwrap(),
            )
        })
        .collect();
    let expected = [
        ("route", "ok"),
        ("dns", "ok"),
        ("tcp", "ok"),
        ("banner", "ok"),
        ("host_key", "ok"),
        ("auth", "ok"),
        ("dns", "skipped"),
        ("tcp", "ok"),
        ("banner", "ok"),
        ("host_key", "ok"),
        ("auth", "ok"),
    ];
    assert_eq!(way, expected, "{report:#}");
    let route = steps[0]["detail"].as_str().unwrap();
    let port = |sshd: &Sshd| format!("127.0.0.1 port {}", sshd.port());
    assert!(route.contains(&port(&inner)), "{route}");
    assert!(
        route.contains(&format!("over {}@{}", user(), port(&gate))),
        "{route}"
    );
    assert!(
        route.contains(&*inner.client_key_path().to_string_lossy()),
        "{route}"
    );
    let login = |place: usize| steps[place]["detail"].as_str().unwrap();
    assert!(login(5).starts_with("jump host "), "{report:#}");
    assert!(login(10).starts_with("with "), "{report:#}");
}

fn user() -> String {
    remote_sandbox_testkit::users::TestUser::current()
        .name()
        .to_owned()
}

#[test]
fn doctor_tells_which_entry_is_broken_and_looks_at_the_others() {
    let sshd = Sshd::start();
    let broken = json!({"name": "broken", "host": "h", "password": "canary-secret-1"});
    let here = Surroundings::new(&[entry("box", &sshd), broken]);
    let output = here.run(&["doctor"]);
    let said = text(&output.stdout);
    assert_eq!(code(&output), 1, "{said}");
    assert!(
        said.contains("x  entry        `broken` is disabled: "),
        "{said}"
    );
    assert!(said.contains("ok auth"), "{said}");
    assert!(!said.contains("canary"), "{said}");
    let (report, ended) = examine(&here, &["broken"]);
    assert_eq!(ended, 1);
    assert_eq!(report["hosts"][0]["steps"][0]["step"], "entry");
    let unknown = here.run(&["doctor", "nobody"]);
    assert_eq!(code(&unknown), 1);
    assert!(text(&unknown.stderr).contains("no sandbox is named `nobody`"));
}

#[test]
fn doctor_says_what_to_do_when_nothing_is_configured() {
    let here = Surroundings::with_list("[{");
    let (report, ended) = examine(&here, &[]);
    assert_eq!(ended, 1);
    assert_eq!(report["hosts"], json!([]));
    let steps = report["configuration"]["steps"].as_array().unwrap();
    let failed: Vec<&Value> = steps
        .iter()
        .filter(|step| step["status"] == "failed")
        .collect();
    assert_eq!(failed.len(), 2, "{report:#}");
    assert_eq!(failed[0]["step"], "problem");
    assert_eq!(failed[1]["step"], "sandboxes");
    assert!(
        failed[1]["fix"]
            .as_str()
            .unwrap()
            .contains("REMOTE_SANDBOX_LIST")
    );
    let missing = here.run(&["doctor", "--json", "--config", "/nonexistent/own.toml"]);
    let (report, ended) = read(&missing);
    assert_eq!(ended, 1);
    assert_eq!(report["configuration"]["file"], "/nonexistent/own.toml");
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_keeps_secrets_to_itself() {
    let evil = EvilTcp::start(TcpBehaviour::HttpAnswer).await;
    let sshd = Sshd::start();
    let password = "canary-secret-2";
    let spelled = json!({
        "name": "box", "host": "127.0.0.1", "port": sshd.port(), "user": user(),
        "password": password,
    });
    let strange = with(
        spelled.clone(),
        json!({"name": "http", "port": evil.port()}),
    );
    let here = Surroundings::new(&[spelled, strange]);
    for arguments in [&["doctor"][..], &["doctor", "--json"], &["doctor", "-vv"]] {
        let output = here.run(arguments);
        assert_eq!(code(&output), 1);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(!said.contains("canary"), "{said}");
    }
}
