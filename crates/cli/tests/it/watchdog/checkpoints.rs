//! f45: checkpoints that change while they are read.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::wait::wait_until;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::stored::rows_of;
use super::{Dog, LIMIT, Stage, events};
use crate::jobs::Host;
use crate::support::{builder, entry, ready};

/// Most bytes of a checkpoint that the watchdog keeps.
const KEPT: usize = 8 * 1024;

/// A file that grows all the time and is begun anew when it is long, until this value goes. It never is whole JSON.
struct Growing {
    is_over: Arc<AtomicBool>,
    writer: Option<JoinHandle<()>>,
}

impl Growing {
    fn start(path: PathBuf) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let is_told = is_over.clone();
        let writer = std::thread::spawn(move || {
            while !is_told.load(Ordering::Relaxed) {
                grow(&path, &is_told);
            }
        });
        Growing {
            is_over,
            writer: Some(writer),
        }
    }

    fn stop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(writer) = self.writer.take() {
            writer.join().unwrap();
        }
    }
}

impl Drop for Growing {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Writes a file from its beginning, a little each millisecond.
fn grow(path: &Path, is_over: &AtomicBool) {
    let mut file = fs::File::create(path).unwrap();
    file.write_all(b"{\"steps\": [0").unwrap();
    for step in 1..200 {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        file.write_all(format!(", {step:400}").as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A stage with a server that offers every tool.
async fn stage(host: Host) -> Stage {
    let server = builder(&[entry("box", &host.sshd)]);
    let server = server.env("REMOTE_SANDBOX_EXPOSE_ADVANCED_TOOLS", "1");
    let client = ready(server.start()).await;
    Stage { host, client }
}

/// So many bytes of a checkpoint at most: their number, the size of the file, and whether something was left out.
async fn read(stage: &Stage, job: &Value, most: u64) -> (u64, u64, bool) {
    let query = json!({"watch_id": job["watch_id"], "max_bytes": most});
    let tool = "read_background_watch_checkpoint";
    let reply = stage.client.call_tool(tool, query).await;
    assert!(!reply.is_error, "{}", reply.text);
    let text = reply.json["checkpoint"]["raw"].as_str().unwrap();
    let file = &reply.json["file_result"];
    let (size, is_cut) = (file["size"].as_u64(), file["truncated"].as_bool());
    (text.len() as u64, size.unwrap(), is_cut.unwrap())
}

/// How long the checkpoints are that the watchdog has kept.
fn kept(stage: &Stage) -> Vec<usize> {
    let query = "SELECT coalesce(last_checkpoint, '') FROM watches";
    let rows = rows_of(stage.home(), query);
    rows.iter().map(|row| row[0].len()).collect()
}

/// Up to when the watchdog has looked at all its tasks, in milliseconds.
fn looked_until(stage: &Stage) -> i64 {
    let query = "SELECT cast(min(coalesce(last_checked, 0)) AS text) FROM watches";
    let rows = rows_of(stage.home(), query);
    rows.first().map_or(0, |row| row[0].parse().unwrap())
}

#[tokio::test]
async fn f45_growing_checkpoint_is_read_within_bounds_and_alarms_only_when_it_stays_half_written() {
    let stage = stage(Host::start()).await;
    let path = stage.host.sshd.dir().join("progress.json");
    let mut growing = Growing::start(path.clone());
    let text = json!({ "checkpoint_path": path });
    let text = stage.job("sleep 600", text).await;
    let strict = json!({"checkpoint_path": path, "checkpoint_format": "json"});
    let strict = stage.job("sleep 600", strict).await;
    let dog = Dog::start(stage.home());
    assert!(wait_until(LIMIT, || looked_until(&stage) > 0).await);
    let begun = looked_until(&stage);
    for _ in 0..20 {
        let (bytes, size, is_cut) = read(&stage, &text, 1000).await;
        assert!(bytes <= 1000, "{bytes} bytes");
        assert!(is_cut || size <= bytes, "{bytes} of {size} bytes");
        assert!(kept(&stage).iter().all(|kept| *kept <= KEPT));
    }
    // Longer than a file may rest before it counts as written.
    let looked = || looked_until(&stage) > begun + 5000;
    assert!(wait_until(LIMIT, looked).await, "{}", dog.log());
    assert_eq!(stage.events(), Vec::<String>::new(), "{}", dog.log());
    growing.stop();
    fs::write(&path, "{\"steps\": [0, 1").unwrap();
    stage.told(&dog, &["alarm"]).await;
    stage.nothing_more(&dog, &["alarm"]).await;
    let told = events(stage.home()).remove(0);
    assert_eq!(told["watch_id"], strict["watch_id"], "{told}");
    assert_eq!(told["payload"]["alarm"], "checkpoint_unreadable", "{told}");
    fs::write(&path, "x".repeat(70_000)).unwrap();
    assert_eq!(read(&stage, &text, 5000).await, (5000, 70_000, true));
    assert!(wait_until(LIMIT, || kept(&stage) == [KEPT; 2]).await);
    stage.kill(&text);
    stage.told(&dog, &["alarm", "interrupted"]).await;
    let told = events(stage.home()).remove(1);
    let shown = told["payload"]["checkpoint_text"].as_str().unwrap();
    assert_eq!(shown.len(), KEPT, "{told}");
}

/// A host on which a checkpoint changes whenever its content is about to be read, right after its size was.
struct Changing {
    programs: TempDir,
    path: PathBuf,
}

impl Changing {
    /// `change` is what a shell does to the file, which is its `$file`.
    fn new(content: &str, change: &str) -> Self {
        let programs = TempDir::with_prefix("programs-").unwrap();
        let path = programs.path().join("progress.json");
        fs::write(&path, content).unwrap();
        let old = SystemTime::now() - Duration::from_secs(60);
        fs::File::open(&path).unwrap().set_modified(old).unwrap();
        let script = format!(
            "#!/bin/sh\nfile={}\nfor last; do :; done\n[ \"$last\" != \"$file\" ] || {change}\nexec /usr/bin/head \"$@\"\n",
            path.display()
        );
        let program = programs.path().join("head");
        fs::write(&program, script).unwrap();
        for path in [program.as_path(), programs.path()] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Changing { programs, path }
    }

    async fn stage(&self) -> Stage {
        let search = format!("{}:/usr/bin:/bin", self.programs.path().display());
        let sshd = Sshd::builder().session_environment("PATH", &search);
        stage(Host::start_with(sshd)).await
    }
}

#[tokio::test]
async fn f45_checkpoint_that_has_grown_since_its_size_was_told_is_told_as_cut() {
    let changing = Changing::new("0123456789", "printf '%05000d' 0 >>\"$file\"");
    let stage = changing.stage().await;
    let more = json!({ "checkpoint_path": changing.path });
    let job = stage.job("sleep 600", more).await;
    let (bytes, size, is_cut) = read(&stage, &job, 1000).await;
    assert_eq!(bytes, 1000);
    assert!(is_cut, "{bytes} bytes are all of {size}");
    assert!(fs::metadata(&changing.path).unwrap().len() > 1000);
}

#[tokio::test]
async fn f45_checkpoint_that_is_begun_anew_while_it_is_read_is_no_alarm() {
    let half = "{\"step\": ";
    let change = format!("printf %s '{half}' >\"$file\"");
    let changing = Changing::new("{\"step\": 7, \"loss\": 0.5}", &change);
    let stage = changing.stage().await;
    let more = json!({"checkpoint_path": changing.path, "checkpoint_format": "json"});
    stage.job("sleep 600", more).await;
    let dog = Dog::start(stage.home());
    // Only the first look finds a file that has rested; each later one finds what the one before has made of it.
    assert!(wait_until(LIMIT, || looked_until(&stage) > 0).await);
    assert_eq!(fs::read_to_string(&changing.path).unwrap(), half);
    stage.nothing_more(&dog, &[]).await;
}
