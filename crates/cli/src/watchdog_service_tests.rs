use std::path::PathBuf;
use std::time::Duration;

use remote_sandbox_core::config::Platform;
use remote_sandbox_engine::engine::LeaseHolder;
use remote_sandbox_engine::store::WatchCounts;
use rstest::rstest;

use super::*;

#[rstest]
#[case::lone_found(
    ServiceKind::Detached,
    false,
    true,
    "runs already as a process of its own (process 7); it was left as it is"
)]
#[case::lone_started(
    ServiceKind::Detached,
    true,
    false,
    "started the watchdog as a process of its own (process 7)"
)]
#[case::lone_replaced(
    ServiceKind::Detached,
    true,
    true,
    "it was ended and started anew (process 7)"
)]
#[case::lone_later(
    ServiceKind::Detached,
    false,
    false,
    "starts with the next background task"
)]
#[case::unit_found(
    ServiceKind::Systemd,
    false,
    true,
    "is installed and runs already; it was left as it is"
)]
#[case::unit_started(ServiceKind::Systemd, true, false, "installed and started ")]
#[case::unit_replaced(ServiceKind::Systemd, true, true, "anew and restarted it")]
#[case::unit_later(ServiceKind::Systemd, false, false, "it starts with your next login")]
fn install_says_what_it_found_and_what_it_did(
    #[case] kind: ServiceKind,
    #[case] started: bool,
    #[case] ran_before: bool,
    #[case] words: &str,
) {
    let is_lone = kind == ServiceKind::Detached;
    let mut report = InstallReport {
        kind,
        name: kind.name(),
        file: None,
        program: PathBuf::from("/p"),
        started,
        ran_before,
        pid: is_lone.then_some(7),
        ended_process: None,
        warning: None,
    };
    let text = installed(&report);
    assert!(
        text.lines().next().unwrap().ends_with(words.trim_end()) || text.contains(words),
        "{text}"
    );
    assert_eq!(text.lines().count(), 2, "{text}");
    report.ended_process = Some(8);
    let text = installed(&report);
    assert!(
        text.contains("a process of its own (process 8), for "),
        "{text}"
    );
}

fn report() -> WatchdogReport {
    WatchdogReport {
        store: PathBuf::from("/s"),
        config_file: None,
        heartbeat: None,
        stale_after: Duration::from_secs(30),
        is_stale: true,
        holder: None,
        counts: WatchCounts::default(),
        unshown: None,
        taken_over: 0,
        keeper: Some(ServiceStatus::absent(
            Platform::Linux,
            ServiceKind::Detached,
        )),
        is_off: false,
    }
}

#[test]
fn status_shows_heartbeat_lease_and_counts() {
    let empty = page(&report());
    assert!(empty.starts_with("watchdog: not installed\n"), "{empty}");
    assert!(empty.contains("lease: held by nobody\n"), "{empty}");
    assert!(!empty.contains("heartbeat"), "{empty}");
    let now = clock::wall();
    let full = WatchdogReport {
        heartbeat: Some(now - Duration::from_secs(3)),
        is_stale: false,
        holder: Some(LeaseHolder {
            words: "watchdog, process 77".to_owned(),
            pid: Some(77),
            since: now - Duration::from_secs(600),
        }),
        counts: WatchCounts {
            active: 5,
            unreachable_hosts: 2,
            pending_deliveries: 3,
            dead_deliveries: 1,
            ..WatchCounts::default()
        },
        unshown: Some("notifications cannot be shown on this machine: no bus".to_owned()),
        ..report()
    };
    let text = page(&full);
    for line in [
        "watchdog: running, started by hand\n",
        "lease: held by process 77 for 10 min\n",
        "watches: 5 active, 0 completed, 0 exhausted, 0 cancelled\n",
        "hosts: 2 cannot be reached\n",
        "deliveries: 3 not delivered yet, 1 given up\n",
        "desktop: notifications cannot be shown on this machine: no bus\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let heartbeat = text.lines().find(|line| line.starts_with("heartbeat: "));
    assert!(heartbeat.unwrap().ends_with(" s ago, fresh"), "{text}");
}
