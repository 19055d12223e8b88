//! `watchdog install`, `status` and `uninstall` with a stand-in for systemd: the true binary copies itself.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::commands::{Surroundings, code, text};
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
    assert_eq!(status["running"], true);
    assert_eq!(
        (&status["pid"], &status["platform"]),
        (&json!(4242), &json!("linux"))
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
fn configuration_file_of_the_command_line_is_named_absolutely_in_the_unit() {
    let here = Here::new();
    let config = here.home().join("my config.toml");
    fs::write(&config, "").unwrap();
    let mut command = here.command(&["install", "--no-start", "--config", "my config.toml"]);
    let output = command.current_dir(here.home()).output().unwrap();
    assert_eq!(code(&output), 0, "{output:?}");
    let said = text(&output.stdout);
    assert!(
        said.starts_with("installed remote-sandbox-watchdog.service\n"),
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
