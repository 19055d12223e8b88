//! The process of its own, and what makes sure that one runs.

use std::fs;
use std::os::unix::fs::symlink;

use remote_sandbox_core::config::Platform;
use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::service::ServiceKind;
use remote_sandbox_testkit::{process, wait_until};
use rstest::rstest;
use serde_json::{Value, json};

use super::testing::{BROKEN, CANARY, SOON, Stage, mode};
use super::*;

/// Changes the record of the process.
fn change_record(stage: &Stage, key: &str, value: Value) {
    let path = stage.state().join("service/detached.json");
    let mut record: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert!(record.get(key).is_some());
    record[key] = value;
    fs::write(path, record.to_string()).unwrap();
}

fn started(ensured: Ensured) -> InstallReport {
    match ensured {
        Ensured::Started(report) => report,
        Ensured::Alive => panic!("it was alive"),
    }
}

#[rstest]
#[case::no_launchctl(Platform::MacOs, false)]
#[case::no_systemctl(Platform::Linux, false)]
#[case::no_manager(Platform::Linux, true)]
#[tokio::test]
async fn process_of_its_own_is_started_where_no_manager_is(
    #[case] platform: Platform,
    #[case] has_program: bool,
) {
    let stage = match has_program {
        true => Stage::new(platform),
        false => Stage::bare(platform),
    };
    stage.set("no-manager");
    let service = stage.service();
    let report = service.install(true).await.unwrap();
    assert_eq!((report.kind, report.started), (ServiceKind::Detached, true));
    assert_eq!((report.file, report.warning), (None, None));
    assert!(!report.ran_before);
    assert!(stage.begun(1).await);
    let status = service.status().await.unwrap();
    assert_eq!((status.installed, status.running), (true, true));
    assert_eq!(stage.living(), [status.pid.unwrap()]);
    assert!(
        status.detail.contains("without a service manager"),
        "{}",
        status.detail
    );
    let line = stage.read("started");
    assert_eq!(line, format!("{} watchdog run\n", report.program.display()));

    for start_now in [true, false] {
        let again = service.install(start_now).await.unwrap();
        assert_eq!((again.started, again.ran_before), (false, true));
        assert_eq!((again.pid, again.pid), (report.pid, status.pid));
    }
    assert_eq!(stage.pids().len(), 1);
    assert_eq!(
        service.uninstall().await.unwrap().removed,
        [ServiceKind::Detached]
    );
    assert_eq!(stage.living(), Vec::<u32>::new());
    assert_eq!(stage.files(), Vec::<std::path::PathBuf>::new());
}

#[tokio::test(start_paused = true)]
async fn manager_that_hangs_is_done_without() {
    let stage = Stage::new(Platform::Linux);
    stage.set("hang");
    let report = stage.service().install(true).await.unwrap();
    assert_eq!((report.kind, report.started), (ServiceKind::Detached, true));
    let status = stage.service().status().await.unwrap();
    assert!(
        status.detail.contains("did not end within 10 s"),
        "{}",
        status.detail
    );
}

#[tokio::test]
async fn process_has_a_session_and_nothing_of_ours() {
    let stage = Stage::bare(Platform::Linux);
    let secret = stage.folder.path().join("open");
    fs::write(&secret, CANARY).unwrap();
    let _open = fs::File::open(&secret).unwrap();
    stage.service().install(true).await.unwrap();
    assert!(stage.begun(1).await);
    let [pid] = stage.living()[..] else {
        panic!("one should live");
    };
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let session = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(3);
    assert_eq!(session, Some(pid.to_string().as_str()));
    let log = stage.state().join("service/watchdog.log");
    let opened = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let opened = opened.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let opened: Vec<String> = opened.map(|path| path.display().to_string()).collect();
    assert!(opened.contains(&log.display().to_string()), "{opened:?}");
    assert!(
        opened.iter().all(|path| !path.ends_with("/open")),
        "{opened:?}"
    );
    assert!(fs::read_to_string(&log).unwrap().contains("watchdog: here"));

    let environment = fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
    assert!(environment.contains("SSH_AUTH_SOCK=") && environment.contains("HOME="));
    let arguments = process::command_line(pid).unwrap();
    let mut texts = vec![environment, arguments];
    let files = stage.files();
    assert_eq!(
        files.len(),
        4,
        "the copy, the log, the lock and the record: {files:?}"
    );
    for file in &files {
        assert_eq!(mode(file) & 0o077, 0, "{}", file.display());
        texts.push(fs::read_to_string(file).unwrap());
    }
    for text in texts {
        assert!(!text.contains(CANARY), "{text}");
    }
}

#[tokio::test]
async fn process_that_ends_at_once_is_an_error_with_its_last_words() {
    let stage = Stage::bare(Platform::Linux);
    stage.put_program("watchdog", BROKEN);
    let error = stage
        .service()
        .ensure(&stage.heartbeat())
        .await
        .unwrap_err();
    assert!(
        matches!(&error, ServiceError::Ended(words) if words == "no store"),
        "{error}"
    );
    assert!(error.warning().contains("no store") && error.warning().contains("watchdog install"));
    let failure = Failure::from(error);
    assert!(failure.hint.contains("watchdog status"));
}

#[tokio::test]
async fn process_with_another_start_is_neither_taken_for_ours_nor_ended() {
    let stage = Stage::bare(Platform::Linux);
    let service = stage.service();
    service.install(true).await.unwrap();
    assert!(stage.begun(1).await);
    change_record(&stage, "start", json!(1));
    assert!(!service.status().await.unwrap().running);
    service.uninstall().await.unwrap();
    assert_eq!(stage.living().len(), 1);
}

#[tokio::test]
async fn process_that_does_not_want_to_end_is_ended() {
    let stage = Stage::bare(Platform::Linux);
    let stubborn = "#!/bin/sh\ntrap '' TERM\necho $$ >> 'FOLDER/pids'\n: > 'FOLDER/alive'\n\
        while :; do /bin/sleep 0.05; done\n";
    stage.put_program("watchdog", stubborn);
    stage.service().install(true).await.unwrap();
    assert!(stage.begun(1).await);
    stage.service().uninstall().await.unwrap();
    assert_eq!(stage.pids().len(), 1);
    assert_eq!(stage.living(), Vec::<u32>::new());
}

#[tokio::test]
async fn fresh_heartbeat_starts_and_writes_nothing() {
    let stage = Stage::new(Platform::Linux);
    stage.set("alive");
    let ensured = stage.service().ensure(&stage.heartbeat()).await.unwrap();
    assert_eq!(ensured, Ensured::Alive);
    assert_eq!(stage.calls(), Vec::<String>::new());
    assert_eq!(stage.files(), Vec::<std::path::PathBuf>::new());
}

#[rstest]
#[case::detached(true)]
#[case::systemd(false)]
#[tokio::test]
async fn many_that_ensure_at_once_start_one(#[case] is_bare: bool) {
    let stage = match is_bare {
        true => Stage::bare(Platform::Linux),
        false => Stage::new(Platform::Linux),
    };
    if !is_bare {
        // The stand-in does not start the program, so it says by itself that it lives.
        let enable = stage.read("programs/systemctl");
        let enable = enable.replace("touch active enabled", "touch active enabled alive");
        stage.put_program("programs/systemctl", &enable);
    }
    let heartbeat = stage.heartbeat();
    let ensuring = (0..8).map(|_| {
        let service = stage.service();
        let heartbeat = &heartbeat;
        async move { service.ensure(heartbeat).await.unwrap() }
    });
    let ensured = futures::future::join_all(ensuring).await;
    let count = |wanted: bool| {
        let is_alive = |ensured: &&Ensured| (**ensured == Ensured::Alive) == wanted;
        ensured.iter().filter(is_alive).count()
    };
    assert_eq!((count(true), count(false)), (7, 1));
    match is_bare {
        true => assert_eq!(stage.pids().len(), 1),
        false => {
            let calls = stage.calls();
            let starts = calls.iter().filter(|call| call.contains("--now"));
            assert_eq!(starts.count(), 1, "{calls:?}");
        }
    }
}

#[test]
fn many_servers_that_ensure_at_once_start_one() {
    // Each in a runtime and with a lock of its own, as processes have them.
    let stage = Stage::bare(Platform::Linux);
    let (service, heartbeat) = (stage.service(), stage.heartbeat());
    let ensure = || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let ensured = runtime.block_on(service.ensure(&heartbeat)).unwrap();
        usize::from(ensured != Ensured::Alive)
    };
    let starts: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(ensure)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!((starts, stage.pids().len()), (1, 1));
}

#[tokio::test]
async fn process_that_runs_but_says_nothing_is_started_afresh() {
    let stage = Stage::bare(Platform::Linux);
    stage.set("silent");
    stage.service().install(true).await.unwrap();
    assert!(wait_until(SOON, || stage.pids().len() == 1).await);
    let first = stage.living();
    let report = started(stage.service().ensure(&stage.heartbeat()).await.unwrap());
    assert!(report.started);
    assert!(wait_until(SOON, || stage.pids().len() == 2).await);
    assert_ne!(stage.living(), first);
    assert_eq!(stage.living().len(), 1);
}

#[rstest]
#[case::older("0.0.1", true)]
#[case::same(VERSION, false)]
#[case::newer("999.0.0", false)]
#[tokio::test]
async fn only_an_older_watchdog_is_replaced(#[case] version: &str, #[case] is_replaced: bool) {
    let stage = Stage::bare(Platform::Linux);
    stage.service().install(true).await.unwrap();
    assert!(stage.begun(1).await);
    let copy = stage
        .state()
        .join(format!("bin/remote-sandbox-mcp-{version}-0123456789ab"));
    change_record(&stage, "program", json!(copy));
    let ensured = stage.service().ensure(&stage.heartbeat()).await.unwrap();
    assert_eq!(ensured != Ensured::Alive, is_replaced);
    assert!(stage.begun(1 + usize::from(is_replaced)).await);
    assert_eq!(stage.living().len(), 1);
}

#[tokio::test]
async fn process_is_brought_back_after_a_restart_of_the_machine() {
    let stage = Stage::bare(Platform::Linux);
    let (service, heartbeat) = (stage.service(), stage.heartbeat());
    let never = service.restart_when_needed(true, &heartbeat).await.unwrap();
    assert_eq!(never, None, "nobody has set it up");
    service.install(true).await.unwrap();
    assert!(stage.begun(1).await);
    process::kill_and_wait(&stage.living());
    stage.unset("alive");
    let dead = service.status().await.unwrap();
    assert!(
        !dead.running && dead.detail.contains("has ended"),
        "{}",
        dead.detail
    );
    change_record(&stage, "boot", json!("another"));
    let status = service.status().await.unwrap();
    assert!(status.installed && !status.running);
    assert!(status.detail.contains("was restarted"), "{}", status.detail);
    assert!(status.hint.unwrap().contains("next start of the server"));
    let idle = service
        .restart_when_needed(false, &heartbeat)
        .await
        .unwrap();
    assert_eq!((idle, stage.pids().len()), (None, 1));
    let back = service.restart_when_needed(true, &heartbeat).await.unwrap();
    assert!(started(back.unwrap()).started);
    assert_eq!(stage.living().len(), 1);
}

#[tokio::test]
async fn start_for_later_starts_no_process() {
    let stage = Stage::bare(Platform::Linux);
    let report = stage.service().install(false).await.unwrap();
    assert_eq!(
        (report.kind, report.started),
        (ServiceKind::Detached, false)
    );
    assert_eq!(stage.pids(), Vec::<u32>::new());
    assert!(!stage.service().status().await.unwrap().installed);
}

#[tokio::test]
async fn log_begins_anew_when_it_is_long_and_no_link_is_followed() {
    let stage = Stage::bare(Platform::Linux);
    let folder = stage.state().join("service");
    fs::create_dir_all(&folder).unwrap();
    let log = folder.join("watchdog.log");
    fs::write(&log, vec![b'x'; 1024 * 1024 + 1]).unwrap();
    stage.service().install(true).await.unwrap();
    assert!(stage.begun(1).await);
    assert!(fs::metadata(&log).unwrap().len() < 1024);
    fs::write(&log, vec![b'x'; 1024 * 1024 + 1]).unwrap();
    keep_log_short(&stage.state()).unwrap();
    assert_eq!(fs::metadata(&log).unwrap().len(), 0);
    stage.service().uninstall().await.unwrap();

    fs::create_dir_all(&folder).unwrap();
    let precious = stage.folder.path().join("precious");
    fs::write(&precious, "mine").unwrap();
    symlink(&precious, &log).unwrap();
    assert!(stage.service().install(true).await.is_err());
    assert_eq!(fs::read_to_string(&precious).unwrap(), "mine");
}
