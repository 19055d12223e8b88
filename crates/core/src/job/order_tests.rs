use rstest::rstest;

use super::*;

fn wish() -> WatchWish {
    WatchWish {
        ensure_watchdog: true,
        resume_command: String::new(),
        resume_plan_json: String::new(),
        checkpoint_path: String::new(),
        checkpoint_format: "text".to_owned(),
        checkpoint_command: String::new(),
        interval_s: 300,
        max_log_lines: 80,
        webhook_url: String::new(),
        event_command: String::new(),
        auto_resume: false,
        max_resume_attempts: 1,
        notify_local: true,
        alert_after_failures: 2,
        resume_delay_s: 300,
        codex_wakeup: false,
        codex_command: String::new(),
        claude_wakeup: false,
        claude_command: String::new(),
        stall_after_s: 0,
    }
}

#[test]
fn usual_wish_has_the_usual_policy() {
    let order = wish().check().unwrap();
    assert_eq!(order.policy, WatchPolicy::default());
    let kept = serde_json::to_string(&order).unwrap();
    assert_eq!(serde_json::from_str::<WatchOrder>(&kept).unwrap(), order);
}

#[test]
fn order_that_was_kept_before_there_was_claude_is_still_read() {
    let mut kept = serde_json::to_value(wish().check().unwrap()).unwrap();
    let members = kept.as_object_mut().unwrap();
    assert!(members.remove("claude_wakeup").is_some());
    assert!(members.remove("claude_command").is_some());
    let order: WatchOrder = serde_json::from_value(kept).unwrap();
    assert!(!order.claude_wakeup && order.claude_command.is_none());
}

#[rstest]
#[case("text", r#"{"checkpoint_format": "json"}"#, CheckpointFormat::Json)]
#[case("", r#"{"checkpoint_format": "json"}"#, CheckpointFormat::Json)]
#[case("json", r#"{"checkpoint_format": "text"}"#, CheckpointFormat::Json)]
#[case("json", "{}", CheckpointFormat::Json)]
#[case("text", "{}", CheckpointFormat::Text)]
fn format_of_the_plan_counts_when_nobody_chose_another(
    #[case] argument: &str,
    #[case] plan: &str,
    #[case] expected: CheckpointFormat,
) {
    let mut wish = wish();
    wish.checkpoint_format = argument.to_owned();
    wish.resume_plan_json = plan.to_owned();
    wish.checkpoint_command = "progress".to_owned();
    let order = wish.clone().check().unwrap();
    assert_eq!(order.checkpoint_format, expected);
    let is_json = matches!(order.checkpoint(), Some(Checkpoint::JsonCommand(_)));
    assert_eq!(is_json, expected == CheckpointFormat::Json);
    wish.checkpoint_format = "text".to_owned();
    wish.resume_plan_json = r#"{"checkpoint_format": "xml"}"#.to_owned();
    assert!(matches!(wish.check(), Err(OrderError::Format)));
}

#[test]
fn resume_command_of_the_plan_counts_when_there_is_no_other() {
    let mut wish = wish();
    wish.auto_resume = true;
    wish.resume_plan_json =
        r#"{"resume_command": "again", "checkpoint_path": "~/c", "step": 3}"#.to_owned();
    let order = wish.clone().check().unwrap();
    assert_eq!(order.resume.command.as_deref(), Some("again"));
    assert_eq!(order.checkpoint_path.as_deref(), Some("~/c"));
    assert_eq!(order.resume.plan.unwrap()["step"], 3);
    wish.resume_command = "mine".to_owned();
    let order = wish.check().unwrap();
    assert_eq!(order.resume.command.as_deref(), Some("mine"));
    assert!(order.policy.has_resume_command);
}

#[rstest]
#[case(|wish: &mut WatchWish| wish.resume_plan_json = "{".into(), "resume_plan_json")]
#[case(|wish: &mut WatchWish| wish.resume_plan_json = "[]".into(), "resume_plan_json")]
#[case(|wish: &mut WatchWish| wish.resume_plan_json = r#"{"resume_command": 1}"#.into(), "resume_command")]
#[case(|wish: &mut WatchWish| wish.auto_resume = true, "auto_resume")]
#[case(|wish: &mut WatchWish| wish.interval_s = 0, "interval_s")]
#[case(|wish: &mut WatchWish| wish.max_log_lines = -1, "max_log_lines")]
#[case(|wish: &mut WatchWish| wish.max_resume_attempts = -1, "max_resume_attempts")]
#[case(|wish: &mut WatchWish| wish.checkpoint_format = "xml".into(), "checkpoint_format")]
#[case(|wish: &mut WatchWish| wish.checkpoint_path = "a\nb".into(), "checkpoint_path")]
#[case(|wish: &mut WatchWish| wish.webhook_url = "file:///etc".into(), "webhook_url")]
#[case(|wish: &mut WatchWish| wish.webhook_url = "http://".into(), "webhook_url")]
#[case(|wish: &mut WatchWish| wish.webhook_url = "http://u:p@h/".into(), "webhook_url")]
#[case(|wish: &mut WatchWish| wish.event_command = "a\0b".into(), "event_command")]
#[case(|wish: &mut WatchWish| wish.claude_command = "a\0b".into(), "claude_command")]
fn wish_is_refused_by_the_name_of_what_is_wrong(
    #[case] spoil: fn(&mut WatchWish),
    #[case] field: &str,
) {
    let mut wish = wish();
    spoil(&mut wish);
    let error = wish.check().unwrap_err().to_string();
    assert!(error.contains(field), "{error}");
}

#[rstest]
#[case("", true)]
#[case(r#"{"a": 1}"#, true)]
#[case("[1]", false)]
#[case("{", false)]
fn metadata_is_an_object(#[case] text: &str, #[case] is_right: bool) {
    assert_eq!(WatchOrder::metadata(text).is_ok(), is_right);
}
