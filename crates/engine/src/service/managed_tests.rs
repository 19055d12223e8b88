//! launchd and systemd, played by stand-ins; the system is a value, so both are tested everywhere.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use remote_sandbox_core::config::Platform;
use remote_sandbox_core::service::{CopyName, LAUNCHD_LABEL, SYSTEMD_UNIT, ServiceKind};
use rstest::rstest;

use super::testing::{CANARY, Stage, mode};
use super::*;

const ASK: &str = "systemctl --user show --property=Version";
const SHOW: &str = "systemctl --user show remote-sandbox-watchdog.service \
    --property=ActiveState,SubState,UnitFileState,MainPID";

fn linger() -> String {
    let user = rustix::process::getuid().as_raw();
    format!("loginctl show-user {user} --property=Linger")
}

fn gui() -> String {
    format!("gui/{}", rustix::process::getuid().as_raw())
}

fn launchctl(words: &str) -> String {
    format!("launchctl {}", words.replace("LABEL", LAUNCHD_LABEL))
}

#[tokio::test]
async fn systemd_is_told_once_and_then_left_alone() {
    let stage = Stage::new(Platform::Linux);
    stage.set("lingers");
    let service = stage.service();
    let report = service.install(true).await.unwrap();
    assert_eq!((report.kind, report.started), (ServiceKind::Systemd, true));
    assert_eq!((report.warning, report.ran_before), (None, false));
    let unit = stage.home.join(".config/systemd/user").join(SYSTEMD_UNIT);
    assert_eq!(report.file.as_deref(), Some(unit.as_path()));
    let enable = format!("systemctl --user enable --now {SYSTEMD_UNIT}");
    let linger = linger();
    let expected = [
        ASK,
        "systemctl --user daemon-reload",
        SHOW,
        &enable,
        &linger,
    ];
    assert_eq!(stage.calls(), expected);
    let text = fs::read_to_string(&unit).unwrap();
    assert!(text.contains(&format!(
        "ExecStart=\"{}\" \"watchdog\" \"run\"\n",
        report.program.display()
    )));
    let folder = report.program.parent().unwrap();
    assert_eq!(folder, stage.state().join("bin"));
    assert_eq!(
        (mode(&unit), mode(&report.program), mode(folder)),
        (0o600, 0o700, 0o700)
    );
    assert_eq!(
        fs::read(&report.program).unwrap(),
        fs::read(stage.folder.path().join("watchdog")).unwrap()
    );

    let again = service.install(true).await.unwrap();
    assert!(!again.started && again.program == report.program);
    assert!(again.ran_before && again.pid.is_none());
    assert_eq!(stage.calls(), [ASK, SHOW, &linger]);
}

#[rstest]
#[case::now(true)]
#[case::later(false)]
#[tokio::test]
async fn systemd_that_ends_with_the_session_is_warned_of_with_what_to_run(#[case] start_now: bool) {
    let stage = Stage::new(Platform::Linux);
    let report = stage.service().install(start_now).await.unwrap();
    assert_eq!(report.kind, ServiceKind::Systemd);
    let warning = report.warning.unwrap();
    assert!(warning.contains("`loginctl enable-linger`"), "{warning}");
}

#[tokio::test]
async fn whoever_ensures_is_warned_once_that_systemd_ends_with_the_session() {
    let stage = Stage::new(Platform::Linux);
    let enable = stage.read("programs/systemctl");
    let enable = enable.replace("touch active enabled", "touch active enabled alive");
    stage.put_program("programs/systemctl", &enable);
    let (service, heartbeat) = (stage.service(), stage.heartbeat());
    let first = service.ensure(&heartbeat).await.unwrap();
    assert!(first.warning().unwrap().contains("loginctl enable-linger"));
    let second = service.ensure(&heartbeat).await.unwrap();
    assert_eq!(second.warning(), None);
    assert_eq!(second, Ensured::Alive);
}

#[tokio::test]
async fn systemd_restarts_the_watchdog_when_its_unit_changes() {
    let stage = Stage::new(Platform::Linux);
    stage.service().install(true).await.unwrap();
    stage.calls();
    let config = stage.home.join("my config.toml");
    let report = stage
        .service_with(Some(&config))
        .install(true)
        .await
        .unwrap();
    assert!(report.started && report.ran_before);
    let enable = format!("systemctl --user enable --now {SYSTEMD_UNIT}");
    let restart = format!("systemctl --user restart {SYSTEMD_UNIT}");
    let linger = linger();
    let expected = [
        ASK,
        "systemctl --user daemon-reload",
        SHOW,
        &enable,
        &restart,
        &linger,
    ];
    assert_eq!(stage.calls(), expected);
    let text = fs::read_to_string(report.file.unwrap()).unwrap();
    assert!(
        text.contains(&format!("\"--config\" \"{}\"\n", config.display())),
        "{text}"
    );
}

#[tokio::test]
async fn systemd_starts_nothing_when_that_is_for_later() {
    let stage = Stage::new(Platform::Linux);
    let report = stage.service().install(false).await.unwrap();
    assert!(!report.started);
    let calls = stage.calls();
    let enable = format!("systemctl --user enable {SYSTEMD_UNIT}");
    assert!(calls.contains(&enable), "{calls:?}");
    assert!(
        calls.iter().all(|call| !call.contains("--now")),
        "{calls:?}"
    );
}

#[tokio::test]
async fn systemd_that_refuses_is_done_without_and_it_is_said_why() {
    let stage = Stage::new(Platform::Linux);
    stage.set("no-enable");
    let report = stage.service().install(true).await.unwrap();
    assert_eq!((report.kind, report.started), (ServiceKind::Detached, true));
    let warning = report.warning.unwrap();
    assert!(
        warning.contains("enable --now") && warning.contains("it does not exist"),
        "{warning}"
    );
    assert!(
        !stage
            .home
            .join(".config/systemd/user")
            .join(SYSTEMD_UNIT)
            .exists()
    );
    assert!(stage.begun(1).await);
    let status = stage.service().status().await.unwrap();
    assert_eq!((status.kind, status.running), (ServiceKind::Detached, true));

    stage.unset("no-enable");
    let lone = stage.living();
    assert_eq!(report.pid, lone.first().copied());
    let report = stage.service().install(true).await.unwrap();
    assert_eq!(report.kind, ServiceKind::Systemd);
    assert_eq!(report.ended_process, lone.first().copied());
    assert_eq!(stage.living(), Vec::<u32>::new(), "two would run");
}

#[tokio::test]
async fn status_of_systemd_has_the_process_and_what_ends_it() {
    let stage = Stage::new(Platform::Linux);
    let service = stage.service();
    let before = service.status().await.unwrap();
    assert!(!before.installed && !before.running && before.hint.is_none());
    service.install(true).await.unwrap();
    let status = service.status().await.unwrap();
    assert_eq!(
        (status.kind, status.name),
        (ServiceKind::Systemd, SYSTEMD_UNIT)
    );
    assert_eq!(
        (status.installed, status.running, status.pid),
        (true, true, Some(4242))
    );
    assert!(status.hint.unwrap().contains("loginctl enable-linger"));
    stage.set("lingers");
    assert_eq!(service.status().await.unwrap().hint, None);
    stage.unset("active");
    let stopped = service.status().await.unwrap();
    assert_eq!((stopped.running, stopped.pid), (false, None));
    assert!(
        stopped.detail.contains("inactive, dead, enabled"),
        "{}",
        stopped.detail
    );
    assert!(stopped.hint.unwrap().contains("watchdog install"));
    stage.set("no-manager");
    let unknown = service.status().await.unwrap();
    assert!(
        unknown.installed && unknown.detail.contains("No medium found"),
        "{unknown:?}"
    );
}

#[tokio::test]
async fn launchd_is_told_once_and_then_left_alone() {
    let stage = Stage::new(Platform::MacOs);
    let service = stage.service();
    let report = service.install(true).await.unwrap();
    assert_eq!((report.kind, report.started), (ServiceKind::Launchd, true));
    let plist = stage
        .home
        .join(format!("Library/LaunchAgents/{LAUNCHD_LABEL}.plist"));
    assert_eq!(report.file.as_deref(), Some(plist.as_path()));
    let expected = [
        launchctl(&format!("print {}/LABEL", gui())),
        launchctl("list LABEL"),
        launchctl(&format!("enable {}/LABEL", gui())),
        launchctl(&format!("bootstrap {} {}", gui(), plist.display())),
    ];
    assert_eq!(stage.calls(), expected);
    let log = stage.state().join("service/watchdog.log");
    assert_eq!((mode(&plist), mode(&log)), (0o600, 0o600));
    let text = fs::read_to_string(&plist).unwrap();
    assert!(text.contains(&format!("<string>{}</string>", report.program.display())));

    assert!(!service.install(true).await.unwrap().started);
    assert_eq!(stage.calls(), expected[..1]);
    let status = service.status().await.unwrap();
    assert_eq!(
        (status.running, status.pid, status.loaded),
        (true, Some(4242), true)
    );
}

#[tokio::test]
async fn launchd_is_told_again_when_the_agent_changes() {
    let stage = Stage::new(Platform::MacOs);
    stage.service().install(true).await.unwrap();
    stage.calls();
    let config = stage.home.join("config.toml");
    stage
        .service_with(Some(&config))
        .install(true)
        .await
        .unwrap();
    let calls = stage.calls();
    let place = |words: &str| calls.iter().position(|call| call.contains(words));
    assert!(
        place("bootout").unwrap() < place("bootstrap").unwrap(),
        "{calls:?}"
    );
}

#[rstest]
#[case::says_well_and_takes_its_time("slow-end")]
#[case::says_that_it_is_in_progress("ending")]
#[tokio::test]
async fn launchd_is_told_of_a_changed_agent_only_when_the_old_one_has_ended(#[case] way: &str) {
    let stage = Stage::new(Platform::MacOs);
    stage.service().install(true).await.unwrap();
    stage.set(way);
    stage.calls();
    let config = stage.home.join("config.toml");
    let changed = stage.service_with(Some(&config));
    let report = changed.install(true).await.unwrap();
    assert_eq!((report.kind, report.started), (ServiceKind::Launchd, true));
    let calls = stage.calls();
    let count = |words: &str| calls.iter().filter(|call| call.contains(words)).count();
    assert_eq!((count("bootstrap"), count("unload")), (1, 0), "{calls:?}");
}

#[tokio::test]
async fn launchd_that_is_still_busy_is_asked_again() {
    let stage = Stage::new(Platform::MacOs);
    stage.set("busy");
    assert!(stage.service().install(true).await.unwrap().started);
    let calls = stage.calls();
    let count = calls
        .iter()
        .filter(|call| call.contains("bootstrap"))
        .count();
    assert_eq!(count, 3, "{calls:?}");
}

#[tokio::test]
async fn launchd_without_a_desktop_is_told_in_the_old_way() {
    let stage = Stage::new(Platform::MacOs);
    stage.set("no-bootstrap");
    let report = stage.service().install(true).await.unwrap();
    assert_eq!(report.kind, ServiceKind::Launchd);
    assert!(stage.calls().iter().any(|call| call.contains("load -w ")));
    let status = stage.service().status().await.unwrap();
    assert_eq!((status.running, status.pid), (true, Some(77)));
}

#[tokio::test]
async fn launchd_that_loads_nothing_is_done_without() {
    let stage = Stage::new(Platform::MacOs);
    stage.set("no-bootstrap");
    stage.set("no-load");
    let report = stage.service().install(true).await.unwrap();
    assert_eq!(report.kind, ServiceKind::Detached);
    assert!(report.warning.unwrap().contains("launchctl load"));
    assert!(!stage.service().plist_path().exists());
}

#[tokio::test]
async fn launchd_starts_nothing_when_that_is_for_later() {
    let stage = Stage::new(Platform::MacOs);
    let report = stage.service().install(false).await.unwrap();
    assert!(!report.started && report.file.unwrap().exists());
    // Otherwise one that somebody disabled would not begin with the next login.
    let enabled = launchctl(&format!("enable {}/LABEL", gui()));
    assert_eq!(stage.calls(), [enabled]);
    let status = stage.service().status().await.unwrap();
    assert!(status.installed && !status.running && !status.loaded);
    assert!(status.hint.unwrap().contains("watchdog install"));
}

#[rstest]
#[case::launchd(Platform::MacOs, "home")]
#[case::systemd(Platform::Linux, "home")]
#[case::nasty_launchd(Platform::MacOs, "h ö&<%n$HOME\"q\"'s'\\t")]
#[case::nasty_systemd(Platform::Linux, "h ö&<%n$HOME\"q\"'s'\\t")]
#[tokio::test]
async fn uninstall_leaves_nothing(#[case] platform: Platform, #[case] home: &str) {
    let stage = Stage::in_home(platform, home);
    let service = stage.service();
    let report = service.install(true).await.unwrap();
    assert!(report.program.exists() && report.file.unwrap().exists());
    let removed = service.uninstall().await.unwrap().removed;
    assert_eq!(removed, [report.kind]);
    assert_eq!(stage.files(), Vec::<std::path::PathBuf>::new());
    assert!(!stage.state().join("bin").exists() && !stage.state().join("service").exists());
    let calls = stage.calls();
    let ended = |call: &String| call.contains("bootout") || call.contains("disable --now");
    assert!(calls.iter().any(ended), "{calls:?}");
    assert_eq!(service.uninstall().await.unwrap().removed, []);
}

#[tokio::test]
async fn uninstall_leaves_everything_when_no_manager_answers() {
    let stage = Stage::new(Platform::Linux);
    stage.service().install(true).await.unwrap();
    stage.set("no-manager");
    let before = stage.files();
    // What runs could not be ended, and nobody would find it any more.
    let error = stage.service().uninstall().await.unwrap_err();
    assert!(error.to_string().contains("disable --now"), "{error}");
    assert_eq!(stage.files(), before);
}

#[rstest]
#[case::launchd(Platform::MacOs)]
#[case::systemd(Platform::Linux)]
#[tokio::test]
async fn link_in_place_of_a_definition_is_left_alone(#[case] platform: Platform) {
    let stage = Stage::new(platform);
    let (_, path) = stage.service().best();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let precious = stage.folder.path().join("precious");
    fs::write(&precious, "mine").unwrap();
    symlink(&precious, &path).unwrap();
    let error = stage.service().install(true).await.unwrap_err();
    assert!(
        matches!(&error, ServiceError::Linked(linked) if *linked == path),
        "{error}"
    );
    stage.service().uninstall().await.unwrap();
    assert_eq!(fs::read_to_string(&precious).unwrap(), "mine");
    assert_eq!(fs::read_link(&path).unwrap(), precious);
}

#[tokio::test]
async fn link_in_place_of_our_own_folders_is_refused() {
    for name in ["bin", "service"] {
        let stage = Stage::new(Platform::Linux);
        let elsewhere = stage.folder.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        fs::create_dir_all(stage.state()).unwrap();
        symlink(&elsewhere, stage.state().join(name)).unwrap();
        let error = stage.service().install(true).await.unwrap_err();
        assert!(matches!(error, ServiceError::File(_)), "{error}");
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
    }
}

#[tokio::test]
async fn copy_is_made_anew_only_when_it_is_not_as_it_should_be() {
    use std::os::unix::fs::MetadataExt;
    let stage = Stage::new(Platform::Linux);
    let service = stage.service();
    let copy = service.install(true).await.unwrap().program;
    let number = |path: &Path| fs::metadata(path).unwrap().ino();
    let first = number(&copy);
    service.install(true).await.unwrap();
    assert_eq!(number(&copy), first);
    let right = fs::read(&copy).unwrap();
    fs::write(&copy, "something else").unwrap();
    service.install(true).await.unwrap();
    assert_eq!((fs::read(&copy).unwrap(), mode(&copy)), (right, 0o700));
}

#[tokio::test]
async fn copies_that_nothing_points_to_are_removed() {
    let stage = Stage::new(Platform::Linux);
    let service = stage.service();
    let first = service.install(true).await.unwrap().program;
    let folder = first.parent().unwrap().to_owned();
    let part = folder.join("remote-sandbox-mcp-9.9.9-000000000000.abc.tmp");
    let foreign = folder.join("notes.txt");
    for path in [&part, &foreign] {
        fs::write(path, "x").unwrap();
    }
    stage.put_program("watchdog", "#!/bin/sh\n# another build\n");
    let second = service.install(true).await.unwrap().program;
    assert_ne!(first, second);
    assert!(!first.exists() && !part.exists());
    assert!(second.exists() && foreign.exists());
    let name = second.file_name().unwrap().to_str().unwrap();
    assert!(CopyName::parse(name).is_some(), "{name}");
}

#[rstest]
#[case::launchd(Platform::MacOs)]
#[case::systemd(Platform::Linux)]
#[tokio::test]
async fn no_secret_is_in_any_file_argument_or_variable(#[case] platform: Platform) {
    let stage = Stage::new(platform);
    let service = stage.service();
    service.install(true).await.unwrap();
    service.status().await.unwrap();
    assert!(!format!("{service:?}").contains(CANARY));
    let mut texts = vec![stage.read("calls"), stage.read("environment")];
    assert!(texts.iter().all(|text| !text.is_empty()));
    texts.extend(
        stage
            .files()
            .iter()
            .map(|file| fs::read_to_string(file).unwrap()),
    );
    assert!(texts.len() >= 4);
    for text in texts {
        assert!(!text.contains(CANARY), "{text}");
    }
}

#[rstest]
#[case::launchd(Platform::MacOs)]
#[case::systemd(Platform::Linux)]
#[tokio::test]
async fn service_of_another_state_folder_is_left_alone(#[case] platform: Platform) {
    let mut stage = Stage::new(platform);
    stage.service().install(true).await.unwrap();
    let (_, path) = stage.service().best();
    let before = fs::read_to_string(&path).unwrap();
    let other = stage.folder.path().join("other");
    let name = "REMOTE_SANDBOX_MCP_HOME".to_owned();
    stage
        .environment
        .insert(name, other.to_str().unwrap().to_owned());
    let service = stage.service();
    assert!(service.is_foreign(&path));
    assert_eq!(service.uninstall().await.unwrap().removed, []);
    assert_eq!(fs::read_to_string(&path).unwrap(), before);
    let kind = service.choose().await.kind;
    assert_eq!(kind, super::ServiceKind::Detached);
}
