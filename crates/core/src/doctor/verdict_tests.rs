use rstest::rstest;

use super::super::Status;
use super::*;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn step(found: &CheckUp, name: StepName) -> Step {
    let steps = judge_checkup(found, seconds(1000), seconds(1001));
    steps.into_iter().find(|step| step.step == name).unwrap()
}

#[rstest]
#[case::same(1000, Status::Ok)]
#[case::fraction(999, Status::Ok)]
#[case::tolerated_behind(997, Status::Ok)]
#[case::behind(996, Status::Warning)]
#[case::tolerated_ahead(1003, Status::Ok)]
#[case::ahead(1004, Status::Warning)]
fn clock_is_warned_of_when_it_is_off_by_more_than_two_seconds(
    #[case] host: u64,
    #[case] status: Status,
) {
    let judged = clock(Some(host), seconds(1000), seconds(1001));
    assert_eq!(judged.status, status, "{judged:?}");
}

#[test]
fn clock_is_skipped_when_the_host_does_not_tell() {
    let judged = clock(None, seconds(1), seconds(2));
    assert_eq!(judged.status, Status::Skipped);
}

#[rstest]
#[case::plenty(5 << 20, Some(40), Status::Ok)]
#[case::nearly_full(5 << 20, Some(96), Status::Warning)]
#[case::little((1 << 20) - 1, Some(10), Status::Warning)]
#[case::full(0, Some(100), Status::Failed)]
#[case::no_limit(5 << 20, None, Status::Ok)]
fn disk_is_judged_by_what_is_left(
    #[case] free: u64,
    #[case] used_percent: Option<u64>,
    #[case] status: Status,
) {
    let place = "home".to_owned();
    let filled = Filling {
        place,
        free,
        used_percent,
    };
    let judged = room(StepName::Disk, &[filled]);
    assert_eq!(judged.status, status, "{judged:?}");
    assert_eq!(judged.fix.is_some(), status != Status::Ok);
}

#[test]
fn few_inodes_are_no_fault_where_most_are_free() {
    let filled = Filling {
        place: "/tmp".to_owned(),
        free: 500,
        used_percent: Some(10),
    };
    assert_eq!(room(StepName::Inodes, &[filled]).status, Status::Ok);
}

#[rstest]
#[case(0, Status::Warning)]
#[case(3, Status::Warning)]
#[case(4, Status::Ok)]
#[case(12, Status::Ok)]
fn sessions_are_warned_of_when_no_shell_can_wait(#[case] opened: usize, #[case] status: Status) {
    let judged = judge_sessions(opened, 12);
    assert_eq!(judged.status, status);
    assert!(judged.detail.contains(&opened.to_string()), "{judged:?}");
}

#[test]
fn missing_tools_are_warnings_with_the_package_to_install() {
    let bare = CheckUp::default();
    for (name, package) in [
        (StepName::Bash, "bash"),
        (StepName::Tmux, "tmux"),
        (StepName::Timeout, "coreutils"),
        (StepName::Find, "findutils"),
        (StepName::Tar, "tar"),
        (StepName::Python, "python3"),
    ] {
        let judged = step(&bare, name);
        assert_eq!(judged.status, Status::Warning, "{judged:?}");
        let fix = judged.fix.unwrap();
        assert!(fix.contains(&format!("apt install {package}")), "{fix}");
    }
}

#[test]
fn present_tools_say_their_version() {
    let found = CheckUp {
        tmux: Tool::Present("tmux 3.3a".to_owned()),
        find: Tool::Present(String::new()),
        timeout: TimeoutProgram::Plain,
        ..CheckUp::default()
    };
    assert_eq!(
        step(&found, StepName::Tmux),
        Step::ok(StepName::Tmux, "tmux 3.3a")
    );
    assert_eq!(step(&found, StepName::Find).status, Status::Ok);
    assert_eq!(step(&found, StepName::Timeout).status, Status::Ok);
}
