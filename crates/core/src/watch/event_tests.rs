use proptest::prelude::*;
use rstest::rstest;

use super::super::testing::{facts, order};
use super::*;
use crate::job::{Alarm, LostReason};

fn record(draft: EventDraft) -> EventRecord {
    EventRecord {
        id: 12,
        watch_id: 7,
        event_type: draft.event_type,
        summary: draft.summary,
        created: 1_794_775_643,
        payload: draft.payload,
    }
}

fn keys(value: &Value) -> Vec<&str> {
    let members = value.as_object().unwrap();
    members.keys().map(String::as_str).collect()
}

#[test]
fn event_has_the_documented_form() {
    let mut order = order();
    order.checkpoint_path = Some("~/c.json".to_owned());
    let event = WatchEvent::Completed {
        state: JobState::Exited { code: 3 },
    };
    let json = record(EventDraft::new(&event, &facts(&order))).json();
    assert_eq!(
        keys(&json),
        [
            "id",
            "watch_id",
            "event_type",
            "summary",
            "created_ts",
            "payload"
        ]
    );
    assert_eq!(json["event_type"], "completed");
    assert_eq!(json["created_ts"], 1_794_775_643);
    let payload = &json["payload"];
    let documented = [
        "watch",
        "summary",
        "log_tail",
        "checkpoint_text",
        "suggested_codex_prompt",
    ];
    assert_eq!(keys(payload)[..5], documented);
    assert_eq!(keys(payload)[5..], ["exit_code", "state", "attempt"]);
    assert_eq!(payload["exit_code"], 3);
    assert_eq!(payload["summary"], json["summary"]);
    let watch = [
        "id",
        "run_id",
        "name",
        "sandbox_name",
        "tmux_session",
        "log_file",
        "checkpoint_path",
        "resume_attempts",
        "max_resume_attempts",
        "auto_resume",
        "status",
        "last_state",
    ];
    assert_eq!(keys(&payload["watch"]), watch);
    assert_eq!(payload["watch"]["checkpoint_path"], "~/c.json");
}

#[test]
fn watch_without_names_of_its_own_is_told_as_the_package_does() {
    let order = order();
    let mut facts = facts(&order);
    facts.run_id = None;
    let draft = EventDraft::new(&WatchEvent::RunningRestored, &facts);
    let watch = &draft.payload["watch"];
    assert_eq!(watch["run_id"], "bg-1");
    assert_eq!(
        (&watch["name"], &watch["checkpoint_path"]),
        (&json!(""), &json!(""))
    );
    let prompt = draft.payload["suggested_codex_prompt"].as_str().unwrap();
    assert!(prompt.contains("Run id: bg-1\n"), "{prompt}");
    assert!(
        draft.summary.starts_with("bg-1 on gpu1: "),
        "{}",
        draft.summary
    );
}

#[test]
fn failed_resume_carries_its_number_and_both_outputs() {
    let order = order();
    let mut facts = facts(&order);
    facts.stderr = "no such file";
    facts.error = Some("exit code 127");
    let payload = EventDraft::new(&WatchEvent::ResumeFailed { number: 1 }, &facts).payload;
    assert_eq!(payload["resume_attempt"], 1);
    assert_eq!(payload["stderr"], "no such file");
    assert_eq!(payload["stdout"], "");
    assert_eq!(payload["error"], "exit code 127");
}

#[rstest]
#[case(WatchEvent::SshUnreachable { failures: 2 }, "could not be reached 2 times")]
#[case(WatchEvent::Interrupted { state: JobState::Lost { reason: LostReason::ProcessGone } }, "left no record")]
#[case(WatchEvent::Completed { state: JobState::Signalled { signal: 9 } }, "signal KILL")]
#[case(WatchEvent::Completed { state: JobState::Stopped }, "stopped on purpose")]
#[case(WatchEvent::Alarm(Alarm::NanLoss), "not a number")]
#[case(WatchEvent::Exhausted { resumes: 1 }, "1 of 1 resumes")]
#[case(WatchEvent::Stalled { silent_s: 900 }, "900 s")]
fn summary_names_task_sandbox_and_what_happened(#[case] event: WatchEvent, #[case] words: &str) {
    let order = order();
    let text = summary(&event, &facts(&order));
    assert!(text.starts_with("train-001 on gpu1: "), "{text}");
    assert!(text.contains(words), "{text}");
}

#[test]
fn summary_is_one_line_whatever_the_host_says() {
    let order = order();
    let mut facts = facts(&order);
    facts.error = Some("a\nb\u{1b}[31m");
    let text = summary(&WatchEvent::SshUnreachable { failures: 2 }, &facts);
    assert!(text.ends_with("a b\\x1b[31m"), "{text}");
}

#[test]
fn type_is_the_word_of_the_event() {
    for kind in EventType::ALL {
        assert_eq!(EventType::parse(kind.word()), Some(kind));
    }
    let event = WatchEvent::HostRebooted;
    assert_eq!(EventType::from(&event).word(), event.word());
    assert_eq!(EventType::parse("nothing"), None);
}

#[test]
fn long_log_is_cut_from_its_beginning_and_the_rest_stays() {
    let order = order();
    let log = format!("{}the end", "é".repeat(60_000));
    let mut facts = facts(&order);
    facts.log_tail = &log;
    let record = record(EventDraft::new(&WatchEvent::RunningRestored, &facts));
    assert!(record.payload["log_tail"].as_str().unwrap().len() <= LONGEST_EVENT_TEXT);
    let text = record.text_within(40_000);
    assert!(text.len() <= 40_000);
    let short: Value = serde_json::from_str(&text).unwrap();
    assert!(
        short["payload"]["log_tail"]
            .as_str()
            .unwrap()
            .ends_with("the end")
    );
    assert_eq!(short["payload"]["shortened"], true);
    assert_eq!(short["payload"]["watch"], record.payload["watch"]);
}

proptest! {
    #[test]
    fn text_fits_its_bound_and_is_json(
        log in "\\PC{0,400}", checkpoint in "(?s).{0,400}", other in "\\PC{0,2000}", most in 400_usize..3000,
    ) {
        let order = order();
        let mut facts = facts(&order);
        (facts.log_tail, facts.checkpoint_text) = (&log, &checkpoint);
        let mut record = record(EventDraft::new(&WatchEvent::HostRebooted, &facts));
        record.payload["other"] = json!(other);
        let text = record.text_within(most);
        prop_assert!(text.len() <= most, "{} of {most}", text.len());
        let value: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&value["id"], 12);
    }
}
