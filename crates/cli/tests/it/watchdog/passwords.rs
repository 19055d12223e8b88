//! A sandbox that is logged in to by password, where there is no keychain.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use remote_sandbox_testkit::wait::wait_until;
use remote_sandbox_testkit::{McpClient, Sshd, TestUser, process};
use serde_json::{Value, json};

use super::detached::Home;
use super::{LIMIT, events};
use crate::jobs::started;
use crate::support::{program, ready};

const PASSWORD: &str = "canary-password-4711";

/// Looks all the time where the password is seen by somebody else.
struct Spy {
    is_over: Arc<AtomicBool>,
    watching: Option<JoinHandle<Vec<String>>>,
}

impl Spy {
    fn start(state: PathBuf, server: u32) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = is_over.clone();
        let watching = std::thread::spawn(move || {
            let mut seen = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                seen.extend(open_files(&state));
                seen.extend(open_processes(server));
            }
            seen
        });
        Spy {
            is_over,
            watching: Some(watching),
        }
    }

    /// What it has seen.
    fn end(mut self) -> Vec<String> {
        self.is_over.store(true, Ordering::Relaxed);
        self.watching.take().unwrap().join().unwrap()
    }
}

impl Drop for Spy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).map_or(0, |entry| entry.permissions().mode() & 0o777)
}

fn has_password(bytes: &[u8]) -> bool {
    bytes
        .windows(PASSWORD.len())
        .any(|part| part == PASSWORD.as_bytes())
}

/// Files below a folder that have the password in them. The copy of the program is too long to be looked through.
fn with_password(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let has_it = || has_password(&fs::read(&path).unwrap_or_default());
        match entry.metadata() {
            Ok(entry) if entry.is_dir() => found.extend(with_password(&path)),
            Ok(entry) if entry.len() < 8 << 20 && has_it() => found.push(path),
            _ => {}
        }
    }
    found
}

/// Those of them that anybody else may read, or that lie where anybody else may look.
fn open_files(state: &Path) -> Vec<String> {
    let mut found = with_password(state);
    found.retain(|path| {
        let folder = path.parent().unwrap_or(path);
        (mode(path) | mode(folder)) & 0o077 != 0
    });
    let shown = found.iter();
    shown
        .map(|path| format!("{}: {:o}", path.display(), mode(path)))
        .collect()
}

fn read_of(pid: u32, name: &str) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default()
}

/// Processes that carry the password. Only the server was given it in its environment, by the test.
fn open_processes(server: u32) -> Vec<String> {
    let mut seen = Vec::new();
    for pid in process::all() {
        let line = read_of(pid, "cmdline");
        // One that is just being started is still a copy of the server, with the server's own memory.
        let is_copy = || line == read_of(server, "cmdline");
        let carries = |name: &str| has_password(&read_of(pid, name));
        if has_password(&line) || (pid != server && carries("environ") && !is_copy()) {
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            seen.push(format!("{pid}: {line}"));
        }
    }
    seen
}

/// The server with the least careful mask that a user may have.
fn careless(home: &Path) -> PathBuf {
    let script = home.join("careless");
    let text = format!(
        "#!/bin/sh\numask 000\nexec '{}' \"$@\"\n",
        program().display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    script
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn password_of_a_watched_sandbox_lies_in_a_file_of_its_own_and_the_watchdog_logs_in_with_it()
{
    let Some(user) = TestUser::builder().password(PASSWORD).create() else {
        return;
    };
    let sshd = Sshd::builder().password_auth().user(&user).start();
    let home = Home::new();
    let sandbox = json!([{"name": "box", "host": "127.0.0.1", "port": sshd.port(), "user": user.name(),
        "password": PASSWORD}]);
    let server = McpClient::builder(careless(home.path()))
        .home(home.path())
        .env("PATH", home.search_path())
        .env("REMOTE_SANDBOX_LIST", sandbox.to_string())
        .env("REMOTE_SANDBOX_WATCHDOG", "on")
        .env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus");
    let client = ready(server.start()).await;
    let state = home.path().join(".local/state/remote-sandbox-mcp");
    let spy = Spy::start(state.clone(), client.pid());
    let more = json!({"interval_s": 1, "notify_local": false});
    let job = started(
        &client,
        "until [ -e gate ]; do sleep 0.3; done; exit 3",
        more,
    )
    .await;
    // The watchdog's own environment can log in, so that nobody is warned.
    assert_eq!(
        (&job["warning"], &job["watchdog_warning"]),
        (&Value::Null, &Value::Null),
        "{job:#}"
    );
    assert!(wait_until(LIMIT, || home.dogs().len() == 1).await);
    let kept = with_password(&state);
    assert_eq!(kept.len(), 1, "{kept:?}");
    let folder = kept[0].parent().unwrap();
    assert_eq!(
        (mode(&kept[0]), mode(folder)),
        (0o600, 0o700),
        "{}",
        kept[0].display()
    );

    // Nobody but the watchdog is left, which was told nothing but where its state is.
    client.close_stdin().await;
    assert!(client.wait_exit(LIMIT).await.is_some());
    let before = sshd.accepted_auth_count();
    sshd.kill_sessions();
    let logged_in = || sshd.accepted_auth_count() > before;
    assert!(wait_until(LIMIT, logged_in).await, "{}", sshd.log());
    assert!(sshd.log().contains("Accepted password"), "{}", sshd.log());
    fs::write(user.home().join("gate"), "").unwrap();
    let ended = || {
        let all = events(home.path());
        all.iter().any(|event| event["event_type"] == "completed")
    };
    assert!(wait_until(LIMIT, ended).await, "{:?}", events(home.path()));
    assert_eq!(spy.end(), Vec::<String>::new());
    process::kill_and_wait(&user.pids());
}
