//! `watchdog install`, `status` and `uninstall` with a stand-in for systemd: the true binary copies itself.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use remote_sandbox_testkit::{process, wait_until_blocking};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::commands::{SOON, Surroundings, code, text};
use crate::support::files_below;

const CANARY: &str = "canary-hunter2-canary";

const SYSTEMCTL: &str = "#!/bin/sh
PATH=/usr/bin:/bin
cd 'FOLDER' || exit 9
echo \"$*\" >> calls
env >> environment
case \"$*\" in
*Version*) echo Version=252;;
*show*) [ -f active ] && printf 'ActiveState=active\\nSubState=running\\nUnitFileState=enabled\\nMainPID=4242\\n'; :;;
*'enable --now'*) touch active;;
*'disable --now'*) rm -f active;;
esac
";

/// A home with a user whose systemd answers.
struct Here {
    surroundings: Surroundings,
    programs: TempDir,
}

impl Here {
    fn new() -> Self {
        let entry = json!({"name": "box", "host": "h", "user": "u", "password": CANARY});
        let programs = TempDir::with_prefix("programs-").unwrap();
        let file = programs.path().join("systemctl");
        let folder = programs.path().to_str().unwrap();
        fs::write(&file, SYSTEMCTL.replace("FOLDER", folder)).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        Here {
            surroundings: Surroundings::new(&[entry]),
            programs,
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.surroundings.command(&["watchdog"]);
        command.args(arguments).env("PATH", self.programs.path());
        command.env("REMOTE_PASSWORD", CANARY);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let output = self.command(arguments).output().unwrap();
        assert_eq!(code(&output), 0, "{output:?}");
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(!said.contains(CANARY), "{said}");
        output
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_slice(&self.run(arguments).stdout).unwrap()
    }

    fn home(&self) -> &Path {
        self.surroundings.home.path()
    }
}

#[test]
fn service_is_installed_shown_and_removed() {
    let here = Here::new();
    assert!(text(&here.run(&["status"]).stdout).contains("watchdog: not installed\n"));
    let report = here.json(&["install", "--json"]);
    assert_eq!(
        (&report["kind"], &report["started"]),
        (&json!("systemd"), &json!(true))
    );
    let copy = PathBuf::from(report["program"].as_str().unwrap());
    let version = Command::new(&copy).arg("--version").output().unwrap();
    assert_eq!(
        text(&version.stdout).trim(),
        concat!("remote-sandbox-mcp ", env!("CARGO_PKG_VERSION"))
    );
    let unit = fs::read_to_string(report["file"].as_str().unwrap()).unwrap();
    assert!(unit.contains(&format!(
        "ExecStart=\"{}\" \"watchdog\" \"run\"\n",
        copy.display()
    )));

    let status = here.json(&["status", "--json"]);
    let service = &status["service"];
    assert_eq!(
        (&service["running"], &service["pid"], &service["platform"]),
        (&json!(true), &json!(4242), &json!("linux"))
    );
    assert_eq!(
        (&status["lease"], &status["heartbeat_stale"]),
        (&Value::Null, &json!(true)),
        "{status:#}"
    );
    let shown = text(&here.run(&["status"]).stdout);
    assert!(
        shown.contains("watchdog: running\n") && shown.contains("process: 4242\n"),
        "{shown}"
    );

    for (path, content) in files_below(here.home()) {
        let is_copy = path == copy;
        assert!(
            is_copy || !text(&content).contains(CANARY),
            "{}",
            path.display()
        );
    }
    for name in ["calls", "environment"] {
        let said = fs::read_to_string(here.programs.path().join(name)).unwrap();
        assert!(!said.contains(CANARY), "{said}");
    }

    let removed = text(&here.run(&["uninstall"]).stdout);
    assert_eq!(
        removed,
        "ended and removed remote-sandbox-watchdog.service\n"
    );
    assert_eq!(files_below(here.home()), Vec::new());
    assert_eq!(
        text(&here.run(&["uninstall"]).stdout),
        "nothing was installed\n"
    );
}

#[test]
fn install_warns_that_the_unit_ends_with_the_session() {
    let here = Here::new();
    let file = here.programs.path().join("loginctl");
    fs::write(&file, "#!/bin/sh\necho Linger=no\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let first = here.run(&["install"]);
    let told = text(&first.stderr);
    assert!(told.contains("loginctl enable-linger"), "{told}");
    let again = text(&here.run(&["install"]).stdout);
    assert!(
        again.starts_with("remote-sandbox-watchdog.service is installed and runs already"),
        "{again}"
    );
    here.run(&["uninstall"]);
}

/// Ends the watchdog of a test whatever becomes of the test.
struct Uninstall<'a>(&'a Here);

impl Drop for Uninstall<'_> {
    fn drop(&mut self) {
        let _ = self.0.command(&["uninstall"]).output();
    }
}

#[test]
fn lone_watchdog_holds_the_lease_and_is_left_alone_by_a_second_install() {
    let here = Here::new();
    fs::remove_file(here.programs.path().join("systemctl")).unwrap();
    let _end = Uninstall(&here);
    let first = here.json(&["install", "--json"]);
    assert_eq!(
        (&first["kind"], &first["started"], &first["ran_before"]),
        (&json!("detached"), &json!(true), &json!(false)),
        "{first:#}"
    );
    let pid = first["pid"].clone();
    let holds = || here.json(&["status", "--json"])["lease"]["pid"] == pid;
    assert!(wait_until_blocking(SOON, holds));
    let shown = text(&here.run(&["status"]).stdout);
    for line in [
        "watchdog: running\n".to_owned(),
        format!("process: {pid}\n"),
        format!("lease: held by process {pid} for "),
        "watches: 0 active".to_owned(),
        "hosts: 0 cannot be reached\n".to_owned(),
        "deliveries: 0 not delivered yet, 0 given up\n".to_owned(),
    ] {
        assert!(shown.contains(&line), "{line}: {shown}");
    }
    assert!(shown.contains(" s ago, fresh\n"), "{shown}");
    let again = text(&here.run(&["install"]).stdout);
    let expected = format!(
        "the watchdog runs already as a process of its own (process {pid}); it was left as it is\n"
    );
    assert!(again.starts_with(&expected), "{again}");
    let removed = text(&here.run(&["uninstall"]).stdout);
    assert_eq!(removed, "ended and removed a process of its own\n");
    let pid = u32::try_from(pid.as_u64().unwrap()).unwrap();
    assert!(!process::is_alive(pid));
    assert!(text(&here.run(&["status"]).stdout).contains("lease: held by nobody\n"));
}

#[test]
fn configuration_file_of_the_command_line_is_named_absolutely_in_the_unit() {
    let here = Here::new();
    let config = here.home().join("my config.toml");
    fs::write(&config, "").unwrap();
    let mut command = here.command(&["install", "--no-start", "--config", "my config.toml"]);
    let output = command.current_dir(here.home()).output().unwrap();
    assert_eq!(code(&output), 0, "{output:?}");
    let said = text(&output.stdout);
    assert!(
        said.starts_with("installed remote-sandbox-watchdog.service; it starts with"),
        "{said}"
    );
    let unit = here
        .home()
        .join(".config/systemd/user/remote-sandbox-watchdog.service");
    let unit = fs::read_to_string(unit).unwrap();
    let expected = format!(" \"--config\" \"{}\"\n", config.display());
    assert!(unit.contains(&expected), "{unit}");
    let calls = fs::read_to_string(here.programs.path().join("calls")).unwrap();
    assert!(
        calls.contains("--user enable remote-sandbox-watchdog.service\n"),
        "{calls}"
    );
}
