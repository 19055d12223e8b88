//! A watchdog that a background task set up as a process of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use remote_sandbox_testkit::process;
use remote_sandbox_testkit::wait::wait_until;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{LIMIT, events};
use crate::jobs::{Host, started};
use crate::support::{builder, entry, program, ready};

/// A home whose watchdog is ended whatever becomes of the test, and a search path without a service manager.
pub(super) struct Home {
    folder: TempDir,
    path: String,
}

impl Home {
    pub(super) fn new() -> Self {
        let folder = TempDir::with_prefix("detached-").unwrap();
        let programs = folder.path().join("programs");
        fs::create_dir(&programs).unwrap();
        for name in ["systemctl", "launchctl"] {
            let file = programs.join(name);
            fs::write(&file, "#!/bin/sh\necho no bus here >&2\nexit 1\n").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let path = format!("{}:/usr/bin:/bin", programs.display());
        Home { folder, path }
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A search path without a service manager.
    pub(super) fn search_path(&self) -> &str {
        &self.path
    }

    /// The watchdogs that run from this home: theirs is a copy of the program in it.
    pub(super) fn dogs(&self) -> Vec<u32> {
        let here = self.path().display().to_string();
        let mut dogs = process::with_command_line("watchdog run");
        dogs.retain(|pid| process::command_line(*pid).is_some_and(|line| line.starts_with(&here)));
        dogs.retain(|pid| process::is_alive(*pid));
        dogs
    }

    fn watchdog(&self, action: &str) -> Output {
        Command::new(program())
            .args(["watchdog", action, "--json"])
            .env_clear()
            .env("PATH", &self.path)
            .env("HOME", self.path())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn said(&self, action: &str) -> Value {
        let output = self.watchdog(action);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        process::kill_and_wait(&self.dogs());
    }
}

#[tokio::test]
async fn watchdog_that_a_job_set_up_outlives_the_server_is_shown_and_is_ended() {
    let home = Home::new();
    let host = Host::start();
    let server = builder(&[entry("box", &host.sshd)])
        .home(home.path())
        .env("PATH", &home.path)
        .env("REMOTE_SANDBOX_WATCHDOG", "on");
    let client = ready(server.start()).await;
    let gate = host.sshd.dir().join("gate");
    let command = format!(
        "until [ -e {} ]; do sleep 0.3; done; exit 4",
        gate.display()
    );
    let more = json!({"interval_s": 1, "notify_local": false});
    started(&client, &command, more.clone()).await;
    assert!(wait_until(LIMIT, || home.dogs().len() == 1).await);
    let dogs = home.dogs();
    // A second job finds it and starts no other.
    started(&client, "exit 0", more).await;
    assert_eq!(home.dogs(), dogs);

    client.close_stdin().await;
    assert!(client.wait_exit(LIMIT).await.is_some());
    let status = &home.said("status")["service"];
    assert_eq!(status["running"], true, "{status}");
    assert_eq!(status["pid"], dogs[0], "{status}");
    assert_eq!(status["kind"], "detached", "{status}");
    // It works, now that nobody else does.
    fs::write(&gate, "").unwrap();
    let ended = || {
        let all = events(home.path());
        all.iter()
            .filter(|event| event["event_type"] == "completed")
            .count()
            == 2
    };
    assert!(wait_until(LIMIT, ended).await, "{:?}", events(home.path()));
    assert_eq!(home.dogs(), dogs);

    let removed = home.said("uninstall");
    assert_eq!(removed["removed"], json!(["detached"]), "{removed}");
    assert!(wait_until(LIMIT, || home.dogs().is_empty()).await);
    let status = &home.said("status")["service"];
    assert_eq!(status["running"], false, "{status}");
}
