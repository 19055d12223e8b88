//! Watches, events and the watchdog itself as they are shown.

use std::time::Duration;

use remote_sandbox_core::job::{CheckpointFormat, Phase, shown_webhook};
use remote_sandbox_core::service::ServiceKind;
use remote_sandbox_engine::engine::WatchdogReport;
use remote_sandbox_engine::store::{DeadLetter, EventRow, WatchRow};
use serde_json::{Map, Value, json};

/// What is told when nobody would notice anything.
pub(super) fn note_of_status() -> &'static str {
    "no watchdog runs, so nothing new is noticed; get_watchdog_status shows more"
}

fn seconds(time: Option<Duration>) -> Option<u64> {
    time.map(|time| time.as_secs())
}

pub(super) fn format_word(format: CheckpointFormat) -> &'static str {
    match format {
        CheckpointFormat::Text => "text",
        CheckpointFormat::Json => "json",
    }
}

/// What a checkpoint says, and what that means where it is JSON.
pub(super) fn checkpoint_json(text: &str, format: CheckpointFormat) -> Value {
    let parsed = match format {
        CheckpointFormat::Json => serde_json::from_str(text).unwrap_or(Value::Null),
        CheckpointFormat::Text => Value::Null,
    };
    json!({ "format": format_word(format), "parsed": parsed, "raw": text })
}

/// A watch with all its fields. Times are whole seconds since 1970.
pub fn watch_json(row: &WatchRow) -> Value {
    let mut watch = Map::new();
    for part in [task_part(row), wish_part(row), history_part(row)] {
        if let Value::Object(part) = part {
            watch.extend(part);
        }
    }
    Value::Object(watch)
}

/// Which task it is, and how it stands.
fn task_part(row: &WatchRow) -> Value {
    let metadata = row.metadata.as_deref().map(serde_json::from_str::<Value>);
    let metadata = metadata.and_then(Result::ok).unwrap_or_else(|| json!({}));
    json!({
        "id": row.id.number(),
        "run_id": row.run_id.as_deref().unwrap_or(&row.session),
        "name": text(row.name.as_deref()),
        "task_id": row.job,
        "sandbox_name": row.sandbox,
        "tmux_session": row.session,
        "log_file": row.log_file,
        "cwd": text(row.cwd.as_deref()),
        "status": row.status.word(),
        "last_state": row.last_state,
        "last_summary": row.last_summary,
        "last_error": row.last_error,
        "last_exit_code": row.last_exit_code,
        "metadata": metadata,
    })
}

/// What is wanted of it.
fn wish_part(row: &WatchRow) -> Value {
    let order = &row.order;
    let policy = &order.policy;
    let webhook = order.webhook_url.as_deref().map(shown_webhook);
    json!({
        "interval_s": policy.interval_s,
        "max_log_lines": order.max_log_lines,
        "auto_resume": policy.auto_resume,
        "max_resume_attempts": policy.max_resume_attempts,
        "resume_delay_s": policy.resume_delay_s,
        "alert_after_failures": policy.alert_after_failures,
        "stall_after_s": policy.stall_after_s.unwrap_or(0),
        "notify_local": order.notify_local,
        "webhook_url": webhook.unwrap_or_default(),
        "event_command": text(order.event_command.as_deref()),
        "codex_wakeup": order.codex_wakeup,
        "claude_wakeup": order.claude_wakeup,
        "checkpoint_path": text(order.checkpoint_path.as_deref()),
        "checkpoint_format": format_word(order.checkpoint_format),
        "checkpoint_command": text(order.checkpoint_command.as_deref()),
        "launch_command": row.launch_command,
        "resume_command": text(order.resume.command.as_deref()),
        "resume_plan": plan(row),
    })
}

/// What it has seen and done; long texts last.
fn history_part(row: &WatchRow) -> Value {
    let history = &row.history;
    let due = match history.phase {
        Phase::Interrupted { due } => due,
        _ => None,
    };
    json!({
        "resume_attempts": history.resumes,
        "interrupted_ts": seconds(row.interrupted),
        "resume_due_ts": due,
        "consecutive_ssh_failures": history.failures,
        "ssh_alert_sent": history.is_unreachable_told,
        "created_ts": row.created.as_secs(),
        "updated_ts": row.updated.as_secs(),
        "last_checked_ts": seconds(row.last_checked),
        "next_check_ts": seconds(row.next_check),
        "last_event_ts": seconds(row.last_event),
        "checkpoint_updated_ts": seconds(row.checkpoint_updated),
        "last_log_digest": row.last_log_digest,
        "last_checkpoint_digest": row.last_checkpoint_digest,
        "last_checkpoint_text": row.last_checkpoint,
        "last_log_tail": row.last_log_tail,
    })
}

/// Text that was not given is empty, as the older server has it.
fn text(given: Option<&str>) -> &str {
    given.unwrap_or_default()
}

/// What a resume needs to know: what the caller wrote, and what is known anyway.
fn plan(row: &WatchRow) -> Value {
    let order = &row.order;
    let mut plan = Map::new();
    let known = [
        ("launch_command", Some(row.launch_command.as_str())),
        ("cwd", row.cwd.as_deref()),
        ("resume_command", order.resume.command.as_deref()),
        ("checkpoint_path", order.checkpoint_path.as_deref()),
        ("checkpoint_command", order.checkpoint_command.as_deref()),
        (
            "checkpoint_format",
            Some(format_word(order.checkpoint_format)),
        ),
        ("tmux_session", Some(row.session.as_str())),
    ];
    for (name, text) in known {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            plan.insert(name.to_owned(), json!(text));
        }
    }
    if let Some(Value::Object(given)) = &order.resume.plan {
        plan.extend(given.clone());
    }
    Value::Object(plan)
}

/// An event, as its file and its webhook have it.
pub fn event_json(event: &EventRow) -> Value {
    json!({
        "id": event.id,
        "watch_id": event.watch.number(),
        "event_type": event.event_type,
        "summary": event.summary,
        "created_ts": event.created.as_secs(),
        "payload": event.payload,
    })
}

/// An event that could not be told by one way.
pub fn dead_letter_json(letter: &DeadLetter) -> Value {
    json!({
        "event_id": letter.event.id,
        "watch_id": letter.event.watch.number(),
        "event_type": letter.event.event_type,
        "created_ts": letter.event.created.as_secs(),
        "channel": letter.channel,
        "tries": letter.tries,
        "error": letter.error,
    })
}

/// How the watchdog is, without what keeps it running.
pub(super) fn short_status(report: &WatchdogReport) -> Value {
    let paths = json!({ "config_path": report.config_file, "db_path": report.store });
    let heartbeat = report.heartbeat.map(|at| {
        json!({
            "key": "heartbeat",
            "value": {
                "ts": at.as_secs(),
                "stale_after_s": report.stale_after.as_secs(),
                "config_path": report.config_file,
                "db_path": report.store,
            },
            "updated_ts": at.as_secs(),
        })
    });
    let counts = &report.counts;
    let mut status = json!({
        "paths": paths,
        "heartbeat": heartbeat,
        "heartbeat_stale": report.is_stale,
        "lease": report.holder.as_ref().map(|holder| json!({
            "holder": holder.words,
            "pid": holder.pid,
            "since_ts": holder.since.as_secs(),
        })),
        "watch_counts": {
            "active": counts.active,
            "completed": counts.completed,
            "exhausted": counts.exhausted,
            "cancelled": counts.cancelled,
        },
        "unreachable_hosts": counts.unreachable_hosts,
        "deliveries": {
            "pending": counts.pending_deliveries,
            "dead": counts.dead_deliveries,
        },
        "taken_over": report.taken_over,
    });
    if let Some(why) = &report.unshown {
        status["notify_local_impossible"] = json!(why);
    }
    if report.is_off {
        status["turned_off"] = json!(true);
    }
    status
}

/// What `get_watchdog_status` returns: how the watchdog is, with what keeps it running.
pub fn watchdog_status(report: &WatchdogReport) -> Value {
    let mut status = short_status(report);
    let label = ServiceKind::Launchd.name();
    (status["launchd"], status["service"]) = match &report.keeper {
        Some(service) => (
            json!({
                "platform": service.platform,
                "label": label,
                "loaded": service.kind == ServiceKind::Launchd && service.loaded,
                "detail": service.detail,
            }),
            json!(service),
        ),
        None => {
            let detail = "turned off by REMOTE_SANDBOX_WATCHDOG or the configuration";
            let platform = std::env::consts::OS;
            (
                json!({ "platform": platform, "label": label, "loaded": false, "detail": detail }),
                json!({ "running": false, "detail": detail }),
            )
        }
    };
    status
}
