use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use remote_sandbox_core::secret::Mask;
use remote_sandbox_testkit::wait::wait_until;
use rustix::process::Signal;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::log::TransferLog;
use super::*;
use crate::store::{ProcessMark, TransferStatus};
use crate::sync::{Phase, SyncReport, SyncRequest, Way};

const LIMIT: Duration = Duration::from_secs(10);
const PASSWORD: &str = "hunter2-hunter2";

/// Transfers whose workers are a shell script.
struct Stage {
    folder: TempDir,
    transfers: Transfers,
}

impl Stage {
    fn new(script: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let program = folder.path().join("worker");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let path = std::env::var("PATH").unwrap();
        let environment = [
            ("PATH", path.as_str()),
            ("HOME", "/home/of/test"),
            ("REMOTE_PASSWORD", PASSWORD),
            ("API_TOKEN", PASSWORD),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let state = folder.path().join("state");
        let mut transfers = Transfers::new(&state, &environment.into_iter().collect());
        transfers.set_working_directory(Some(folder.path().to_owned()));
        transfers.set_program(program);
        Stage { folder, transfers }
    }

    async fn start(&self) -> Result<Started, Failure> {
        self.transfers.start(request(), "local").await
    }

    fn said(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }
}

fn request() -> SyncRequest {
    SyncRequest::new("box", Way::Up, "tree", "there")
}

fn report() -> SyncReport {
    SyncReport {
        local_path: "/tree".to_owned(),
        remote_path: "there".to_owned(),
        synced_type: "directory".to_owned(),
        made_dirs: 1,
        sent_files: 2,
        sent_bytes: 3,
        unchanged_files: 4,
        changed_modes: 0,
        deleted_files: 0,
        deleted_dirs: 0,
        delete_extras: false,
        skipped: 0,
        conflicts: 0,
        problems: Vec::new(),
        problem_count: 0,
        revision: None,
        duration_s: 0.5,
        rate_bytes_s: 6,
    }
}

/// A process that sleeps until the test is over.
struct Sleeper(std::process::Child);

impl Sleeper {
    fn new() -> Self {
        let sleep = std::process::Command::new("sleep").arg("4711").spawn();
        Sleeper(sleep.unwrap())
    }

    fn mark(&self) -> ProcessMark {
        process::mark_of(self.0.id()).unwrap()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn start_time_is_found_behind_any_name() {
    let rest = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20";
    for name in ["sh", "a b", "a) R 1", ") Z "] {
        let stat = format!("77 ({name}) S {rest}");
        assert_eq!(process::parse_start(&stat), Some(4242), "{name}");
    }
    let dead = format!("77 (sh) Z {rest}");
    assert_eq!(process::parse_start(&dead), None);
    assert_eq!(process::parse_start("77 (sh) S 1 2"), None);
    assert_eq!(process::parse_start(""), None);
}

#[test]
fn f66_process_with_a_used_number_is_neither_taken_for_ours_nor_signalled() {
    let sleeper = Sleeper::new();
    let ours = sleeper.mark();
    let other_start = ProcessMark {
        start: ours.start + 1,
        ..ours.clone()
    };
    let other_boot = ProcessMark {
        boot: "another life".to_owned(),
        ..ours.clone()
    };
    for other in [other_start, other_boot] {
        assert!(!process::is_alive(&other));
        assert!(!process::signal(&other, Signal::KILL));
    }
    assert!(process::is_alive(&ours));
    assert!(process::signal(&ours, Signal::KILL));
}

#[test]
fn process_that_was_not_waited_for_counts_as_gone() {
    let mut sleeper = Sleeper::new();
    let mark = sleeper.mark();
    sleeper.0.kill().unwrap();
    let gone = || !process::is_alive(&mark);
    assert!(remote_sandbox_testkit::wait::wait_until_blocking(
        LIMIT, gone
    ));
    assert!(!process::signal(&mark, Signal::TERM));
}

#[tokio::test]
async fn worker_gets_secrets_over_its_pipe_and_nothing_else_of_ours() {
    let stage = Stage::new(
        "cd \"$(dirname \"$0\")\" && pwd -P > where && cat > pipe && env > environment && echo \"$@\" > arguments
        ls -l /proc/self/fd > descriptors; ps -o sid= -p $$ > session; echo $$ > pid; echo complaint >&2",
    );
    // A descriptor that somebody forgot to mark as ours alone.
    let forgotten = fs::File::open("/etc/hostname").unwrap();
    let flags = rustix::io::FdFlags::empty();
    rustix::io::fcntl_setfd(&forgotten, flags).unwrap();
    let started = stage.start().await.unwrap();
    assert_eq!(started.status, "queued");
    assert!(!started.was_running);
    let wrote = || !stage.said("pid").is_empty();
    assert!(wait_until(LIMIT, wrote).await);
    assert_eq!(stage.said("pid").trim(), started.pid.unwrap().to_string());
    assert_eq!(stage.said("session").trim(), stage.said("pid").trim());
    let arguments = format!("transfer-worker --task-id {}\n", started.task_id);
    assert_eq!(stage.said("arguments"), arguments);
    let environment = stage.said("environment");
    assert!(environment.contains("HOME=/home/of/test"), "{environment}");
    assert!(!environment.contains(PASSWORD), "{environment}");
    let descriptors = stage.said("descriptors");
    assert!(!descriptors.contains("hostname"), "{descriptors}");
    let told = read_assignment(stage.said("pipe").as_bytes()).unwrap();
    assert_eq!(told.environment["REMOTE_PASSWORD"], PASSWORD);
    assert_eq!(told.working_directory.as_deref(), Some(stage.folder.path()));
    assert!(!format!("{told:?}").contains(PASSWORD));
    let log = fs::read_to_string(&started.log_file).unwrap();
    assert_eq!(log, "complaint\n");
    let mode = fs::metadata(&started.log_file)
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(forgotten);
}

#[tokio::test]
async fn row_is_there_before_the_process_with_paths_that_hold_anywhere() {
    let stage = Stage::new("cat > /dev/null; exec sleep 4712");
    let mut request = request();
    request.exclude_file = Some("~/rules".into());
    let started = stage.transfers.start(request, "local").await.unwrap();
    let row = stage.transfers.find(started.task_id, "local").await;
    let row = row.unwrap();
    let wanted: SyncRequest = serde_json::from_str(&row.request).unwrap();
    let tree = stage.folder.path().join("tree");
    assert_eq!(wanted.local_path, tree.to_str().unwrap().into());
    assert_eq!(wanted.exclude_file, Some("~/rules".into()));
    assert_eq!(row.worker.map(|worker| worker.pid), started.pid);
    let ended = stage.transfers.cancel(started.task_id, "local", LIMIT);
    assert_eq!(ended.await.unwrap().status, TransferStatus::Cancelled);
}

#[tokio::test]
async fn paths_of_any_bytes_reach_the_process_and_are_shown_as_text() {
    let stage = Stage::new("cat > /dev/null; exec sleep 4713");
    let request = || SyncRequest {
        local_path: b"/tree\xff/".as_slice().into(),
        ..SyncRequest::new("box", Way::Up, "", b"there\xfe".as_slice())
    };
    let started = stage.transfers.start(request(), "local").await.unwrap();
    let row = stage
        .transfers
        .find(started.task_id, "local")
        .await
        .unwrap();
    let wanted: SyncRequest = serde_json::from_str(&row.request).unwrap();
    assert_eq!(wanted, request());
    assert_eq!(
        (row.local_path.as_str(), row.remote_path.as_str()),
        (r"/tree\xff/", r"there\xfe")
    );
    // Slashes at the end make no other pair.
    let mut again = request();
    again.remote_path = b"there\xfe/".as_slice().into();
    let same = stage.transfers.start(again, "local").await.unwrap();
    assert_eq!(same.task_id, started.task_id);
    let ended = stage.transfers.cancel(started.task_id, "local", LIMIT);
    assert_eq!(ended.await.unwrap().status, TransferStatus::Cancelled);
}

#[tokio::test]
async fn slash_at_the_end_says_where_a_single_file_goes() {
    let stage = Stage::new("cat > /dev/null; exec sleep 4713");
    let file = tempfile::NamedTempFile::new().unwrap();
    let request = |there: &str| {
        let here = file.path().to_str().unwrap();
        SyncRequest::new("box", Way::Up, here, there.as_bytes())
    };
    let started = stage.transfers.start(request("there"), "local").await;
    let started = started.unwrap();
    let other = stage.transfers.start(request("there/"), "local").await;
    assert_eq!(other.unwrap_err().code, Code::Busy);
    let ended = stage.transfers.cancel(started.task_id, "local", LIMIT);
    assert_eq!(ended.await.unwrap().status, TransferStatus::Cancelled);
}

#[tokio::test]
async fn second_start_of_a_pair_is_the_first_one_as_long_as_that_lives() {
    let stage = Stage::new("cat > /dev/null; exec sleep 4713");
    let first = stage.start().await.unwrap();
    let second = stage.start().await.unwrap();
    assert_eq!(second.task_id, first.task_id);
    assert_eq!(second.pid, first.pid);
    assert!(second.was_running);
    remote_sandbox_testkit::process::kill_and_wait(&[first.pid.unwrap()]);
    let stale = stage.transfers.check(first.task_id, "local", 5).await;
    assert!(stale.unwrap().is_stale);
    let third = stage.start().await.unwrap();
    assert_ne!(third.task_id, first.task_id);
    let put_away = stage.transfers.check(first.task_id, "local", 5).await;
    let put_away = put_away.unwrap();
    assert_eq!(put_away.status, TransferStatus::Failed);
    assert!(!put_away.is_stale);
    let ended = stage.transfers.cancel(third.task_id, "local", LIMIT);
    ended.await.unwrap();
}

#[tokio::test]
async fn transfer_whose_process_cannot_be_started_has_failed() {
    let mut stage = Stage::new("");
    stage.transfers.set_program("/nonexistent/worker".into());
    let failure = stage.start().await.unwrap_err();
    assert!(failure.message.contains("cannot be started"), "{failure:?}");
    let all = stage.transfers.list("local").await.unwrap();
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].status, TransferStatus::Failed);
    assert!(all[0].error["error"].as_str().is_some());
}

#[tokio::test]
async fn cancelled_process_ends_at_once_and_leaves_no_zombie() {
    let stage = Stage::new("cat > /dev/null; exec sleep 4714");
    let started = stage.start().await.unwrap();
    let begun = Instant::now();
    let cancelled = stage.transfers.cancel(started.task_id, "local", LIMIT);
    let cancelled = cancelled.await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert_eq!(cancelled.status, TransferStatus::Cancelled);
    assert!(cancelled.terminated && !cancelled.force_killed && !cancelled.already_finished);
    let pid = started.pid.unwrap();
    let reaped = || remote_sandbox_testkit::process::state(pid).is_none();
    assert!(wait_until(LIMIT, reaped).await);
    let again = stage.transfers.cancel(started.task_id, "local", LIMIT);
    let again = again.await.unwrap();
    assert!(again.already_finished && !again.terminated);
}

#[tokio::test]
async fn process_that_was_stopped_goes_on_to_end_when_it_is_cancelled() {
    let stage = Stage::new("cat > /dev/null; exec sleep 4716");
    let started = stage.start().await.unwrap();
    let mark = process::mark_of(started.pid.unwrap()).unwrap();
    assert!(process::signal(&mark, Signal::STOP));
    let cancelled = stage.transfers.cancel(started.task_id, "local", LIMIT);
    let cancelled = cancelled.await.unwrap();
    assert!(cancelled.terminated && !cancelled.force_killed);
    assert_eq!(cancelled.status, TransferStatus::Cancelled);
}

#[tokio::test]
async fn process_that_does_not_want_to_end_is_ended_by_force() {
    let stage = Stage::new("trap '' TERM; cat > /dev/null; echo on >&2; sleep 4715 & wait; wait");
    let started = stage.start().await.unwrap();
    let log = started.log_file.clone();
    let deaf = || fs::read_to_string(&log).unwrap().contains("on");
    assert!(wait_until(LIMIT, deaf).await);
    let sleepers = remote_sandbox_testkit::process::descendants(started.pid.unwrap());
    let patience = Duration::from_millis(300);
    let cancelled = stage.transfers.cancel(started.task_id, "local", patience);
    let cancelled = cancelled.await.unwrap();
    assert!(cancelled.terminated && cancelled.force_killed);
    assert_eq!(cancelled.status, TransferStatus::Cancelled);
    remote_sandbox_testkit::process::kill_and_wait(&sleepers);
}

#[tokio::test]
async fn f66_cancel_never_signals_a_process_that_only_has_the_number() {
    let stage = Stage::new("cat > /dev/null; exec sleep 4716");
    let started = stage.start().await.unwrap();
    remote_sandbox_testkit::process::kill_and_wait(&[started.pid.unwrap()]);
    let sleeper = Sleeper::new();
    let mut reused = sleeper.mark();
    reused.start += 1;
    let id = TransferId::new(started.task_id).unwrap();
    let claimed = stage.transfers.store.claim_transfer(id, reused).await;
    assert!(claimed.unwrap().is_some());
    let report = stage.transfers.check(started.task_id, "local", 5).await;
    let report = report.unwrap();
    assert_eq!(report.status, TransferStatus::Running);
    assert!(report.is_stale);
    let cancelled = stage.transfers.cancel(started.task_id, "local", LIMIT);
    let cancelled = cancelled.await.unwrap();
    assert!(!cancelled.terminated && !cancelled.force_killed);
    assert_eq!(cancelled.status, TransferStatus::Cancelled);
    assert!(process::is_alive(&sleeper.mark()));
}

#[tokio::test]
async fn transfer_of_another_principal_is_not_found() {
    let stage = Stage::new("cat > /dev/null");
    let started = stage.start().await.unwrap();
    for number in [started.task_id, 1, 0, u64::MAX] {
        let failure = stage.transfers.check(number, "other", 5).await;
        assert_eq!(failure.unwrap_err().code, Code::NotFound);
    }
    let failure = stage.transfers.cancel(started.task_id, "other", LIMIT);
    assert_eq!(failure.await.unwrap_err().code, Code::NotFound);
    assert!(stage.transfers.list("other").await.unwrap().is_empty());
}

#[tokio::test]
async fn log_has_no_secret_and_no_end_that_is_not_read() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("transfers/a.log");
    let log = TransferLog::open(&path, Mask::new([PASSWORD])).unwrap();
    log.line(&format!("with {PASSWORD}\nin\x1b[1mside"));
    for number in 0..30_000 {
        log.line(&format!("line {number}"));
    }
    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains(PASSWORD) && !text.contains('\x1b'));
    assert!(text.lines().next().unwrap().contains("in"));
    let tail = log::tail(&path, 3);
    assert_eq!(tail.lines().count(), 3);
    assert!(tail.ends_with("line 29999"), "{tail}");
    assert!(
        log::tail(&path, 1_000_000)
            .lines()
            .all(|line| line.contains(" line "))
    );
    assert_eq!(log::tail(&folder.path().join("none"), 3), "");
}

/// A row that waits, and the work on it.
async fn claimed(stage: &Stage) -> (u64, Work) {
    let started = stage.start().await.unwrap();
    remote_sandbox_testkit::process::kill_and_wait(&[started.pid.unwrap()]);
    let id = TransferId::new(started.task_id).unwrap();
    let mask = Mask::new([PASSWORD]);
    let work = Work::claim(&stage.transfers.store, id, &mask).await;
    (started.task_id, work.unwrap().unwrap())
}

#[tokio::test]
async fn worker_tells_how_far_it_is_at_least_every_second() {
    let stage = Stage::new("cat > /dev/null; exec sleep 4717");
    let (task, work) = claimed(&stage).await;
    assert_eq!(work.request.sandbox, "box");
    let transfers = &stage.transfers;
    let done = work.run(CancellationToken::new(), |progress, _| async move {
        progress.expect(2, 100);
        progress.enter(Phase::Uploading);
        let mut seen = Vec::new();
        for _ in 0..3 {
            progress.moved(10);
            tokio::time::sleep(Duration::from_secs(1)).await;
            let now = transfers.check(task, "local", 50).await.unwrap();
            assert!(!now.is_stale);
            assert_eq!(now.progress["phase"], "uploading");
            assert_eq!(now.progress["bytes_total"], 100);
            seen.push(now.progress["bytes_done"].as_u64().unwrap());
        }
        assert_eq!(seen, [10, 20, 30]);
        Ok(report())
    });
    done.await.unwrap();
    let end = transfers.check(task, "local", 50).await.unwrap();
    assert_eq!(end.status, TransferStatus::Completed);
    assert_eq!(end.progress["phase"], "complete");
    assert_eq!(end.result, Some(report()));
    assert!(
        end.log_tail.contains("uploading: 0 of 2 files"),
        "{}",
        end.log_tail
    );
    assert!(end.finished.is_some() && end.error.is_null());
}

#[tokio::test]
async fn worker_that_fails_says_why_without_secrets() {
    let stage = Stage::new("cat > /dev/null; exec sleep 4718");
    let (task, work) = claimed(&stage).await;
    let done = work.run(CancellationToken::new(), |_, _| async {
        let text = format!("refused {PASSWORD}");
        Err(Failure::new(Code::AuthFailed, text).hint("look"))
    });
    done.await.unwrap();
    let end = stage.transfers.check(task, "local", 50).await.unwrap();
    assert_eq!(end.status, TransferStatus::Failed);
    assert_eq!(end.error["code"], "auth_failed");
    assert!(end.log_tail.contains("failed: refused"), "{}", end.log_tail);
    assert!(!format!("{end:?}").contains(PASSWORD), "{end:?}");
}

#[tokio::test]
async fn worker_ends_soon_when_it_is_asked_to_even_if_the_sync_does_not() {
    let stage = Stage::new("cat > /dev/null; exec sleep 4719");
    let (task, work) = claimed(&stage).await;
    let stop = CancellationToken::new();
    let guard = Arc::new(());
    let held = guard.clone();
    let begun = Instant::now();
    stop.cancel();
    let done = work.run(stop, |_, _| async move {
        let _held = held;
        std::future::pending().await
    });
    done.await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert_eq!(Arc::strong_count(&guard), 1, "the sync was not let go of");
    let end = stage.transfers.check(task, "local", 5).await.unwrap();
    assert_eq!(end.status, TransferStatus::Cancelled);
    assert_eq!(end.progress["phase"], "cancelled");
}

#[tokio::test]
async fn worker_ends_when_its_row_was_ended_by_somebody_else() {
    let stage = Stage::new("cat > /dev/null; exec sleep 4720");
    let (task, work) = claimed(&stage).await;
    let transfers = &stage.transfers;
    let done = work.run(CancellationToken::new(), |_, cancel| async move {
        let id = TransferId::new(task).unwrap();
        transfers.put_away(id).await.unwrap();
        cancel.cancelled().await;
        Err(Failure::new(Code::Cancelled, "cancelled"))
    });
    let done = tokio::time::timeout(LIMIT, done).await;
    done.unwrap().unwrap();
    let end = transfers.check(task, "local", 5).await.unwrap();
    assert_eq!(end.status, TransferStatus::Failed);
}

#[tokio::test]
async fn transfer_that_was_cancelled_before_it_began_is_not_taken_up() {
    let stage = Stage::new("cat > /dev/null; exec sleep 4721");
    let started = stage.start().await.unwrap();
    let cancelled = stage.transfers.cancel(started.task_id, "local", LIMIT);
    cancelled.await.unwrap();
    let id = TransferId::new(started.task_id).unwrap();
    let mask = Mask::new(std::iter::empty::<&str>());
    let work = Work::claim(&stage.transfers.store, id, &mask).await;
    assert!(work.unwrap().is_none());
}
