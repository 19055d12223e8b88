//! The tools about watches: registering, listing, ending, events.

use std::sync::Arc;
use std::time::Duration;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::job::{WatchOrder, WatchWish};
use remote_sandbox_engine::call::CallContext;
use remote_sandbox_engine::engine::{
    Engine, EventQuery, EventReport, LONGEST_WAIT, WatchReport, WatchRequest,
};
use remote_sandbox_engine::store::{WatchRow, WatchStatus};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::background::{given_name, invalid, one, text, wish_of, yes};
use super::background::{usual_delay, usual_failures, usual_interval, usual_lines};
use super::watch_row::{event_json, note_of_status, short_status, watch_json};
use super::{Definition, Label, Nature, given, positive};
use crate::mcp::render::Reply;

/// Most watches in one list.
const MOST_WATCHES: usize = 500;

/// Most events in one list.
const MOST_EVENTS: i64 = 500;

pub(super) fn definitions() -> Vec<Definition> {
    let label = |name, title, description, nature| Label {
        name,
        title,
        description,
        nature,
        core: false,
    };
    vec![
        label(
            "watch_background_task",
            "Watch a task",
            "Have the watchdog look after a task that runs already in a tmux session.",
            Nature::SETS,
        )
        .define(add),
        label(
            "list_background_watches",
            "List watches",
            "Watches, newest first. status: active, completed, exhausted or cancelled.",
            Nature::READS,
        )
        .define(list),
        label(
            "get_background_watch",
            "Show a watch",
            "One watch with all its fields.",
            Nature::READS,
        )
        .define(get),
        label(
            "cancel_background_watch",
            "End a watch",
            "End a watch; its task goes on.",
            Nature::SETS,
        )
        .define(cancel),
        label(
            "list_background_watch_events",
            "List events",
            "What happened to watched tasks, newest first; with after_event_id those after it, oldest first. wait_s waits for the first new event of any watch.",
            Nature::READS,
        )
        .define(events),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WatchParams {
    tmux_session: String,
    log_file: String,
    #[serde(default)]
    sandbox_name: Option<String>,
    /// Your own name for it, kept with it
    #[serde(default)]
    run_id: String,
    /// A name for people
    #[serde(default)]
    name: String,
    /// Where resume_command and checkpoints begin
    #[serde(default)]
    cwd: Option<String>,
    #[serde(default)]
    launch_command: String,
    /// Run when it was interrupted
    #[serde(default)]
    resume_command: Option<String>,
    /// JSON object with `resume_command`, `checkpoint_path` and what else you want to keep
    #[serde(default)]
    resume_plan_json: String,
    /// A file in which it tells how far it is
    #[serde(default)]
    checkpoint_path: String,
    /// `text` or `json`
    #[serde(default = "text")]
    checkpoint_format: String,
    /// Prints the checkpoint instead
    #[serde(default)]
    checkpoint_command: String,
    #[serde(default = "usual_interval")]
    interval_s: i64,
    /// Lines of log in an event
    #[serde(default = "usual_lines")]
    max_log_lines: i64,
    #[serde(default)]
    webhook_url: String,
    #[serde(default)]
    event_command: String,
    /// Run resume_command by itself
    #[serde(default)]
    auto_resume: bool,
    #[serde(default = "one")]
    max_resume_attempts: i64,
    /// JSON object, kept with it
    #[serde(default)]
    metadata_json: String,
    #[serde(default = "yes")]
    ensure_watchdog: bool,
    #[serde(default = "yes")]
    notify_local: bool,
    #[serde(default = "usual_failures")]
    alert_after_failures: i64,
    #[serde(default = "usual_delay")]
    resume_delay_s: i64,
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    codex_wakeup: bool,
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    codex_command: String,
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    claude_wakeup: bool,
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    claude_command: String,
    /// Tell when the log has not grown for so long; 0 for never
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    stall_after_s: i64,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListParams {
    #[serde(default)]
    status: String,
}

/// The number of a watch.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OneParams {
    watch_id: i64,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EventParams {
    /// 0 for all
    #[serde(default)]
    watch_id: i64,
    #[serde(default = "usual_events")]
    limit: i64,
    /// Go on after this event
    #[serde(default)]
    after_event_id: Option<i64>,
    /// Seconds to wait for the first, at most 280
    #[serde(default)]
    wait_s: f64,
}

fn usual_events() -> i64 {
    20
}

/// The number of a watch, of which there is none below 1.
pub(super) fn number(watch_id: i64) -> Result<u64, Failure> {
    u64::try_from(watch_id)
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| Failure::new(Code::InvalidParams, "`watch_id` must be positive"))
}

impl WatchParams {
    fn into_request(self) -> Result<WatchRequest, Failure> {
        if self.tmux_session.trim().is_empty() {
            return Err(Failure::new(
                Code::InvalidParams,
                "`tmux_session` cannot be empty",
            ));
        }
        if self.log_file.trim().is_empty() {
            return Err(Failure::new(
                Code::InvalidParams,
                "`log_file` cannot be empty",
            ));
        }
        let metadata = WatchOrder::metadata(&self.metadata_json);
        let run_id = given_name("run_id", &self.run_id)?;
        let shown = given_name("name", &self.name)?;
        let wish = wish_of!(self);
        Ok(WatchRequest {
            sandbox: given(self.sandbox_name),
            session: self.tmux_session,
            log_file: self.log_file,
            cwd: given(self.cwd),
            launch_command: self.launch_command,
            run_id,
            name: shown,
            metadata: metadata.map_err(|error| invalid(&error))?,
            order: wish.check().map_err(|error| invalid(&error))?,
        })
    }
}

async fn add(
    engine: Arc<Engine>,
    context: CallContext,
    params: WatchParams,
) -> Result<Reply, Failure> {
    let report = engine.add_watch(&context, params.into_request()?).await?;
    let status = engine.watchdog_report(&context, false).await?;
    let verdict = format!("watch {} of {}", report.row.id.number(), report.row.session);
    let mut reply = watch_added(&report);
    reply["persisted_sandboxes"]["config_path"] = json!(status.store);
    reply["status"] = short_status(&status);
    Ok(Reply::new(reply, verdict))
}

/// What `watch_background_task` returns, without how the watchdog is.
pub fn watch_added(report: &WatchReport) -> Value {
    let number = report.row.id.number();
    let mut reply = json!({ "watch_id": number, "watch_query_id": number });
    if report.was_watched {
        reply["note"] =
            json!("the task was watched already; its watch now does what is wanted here");
    }
    if !report.warnings.is_empty() {
        reply["warning"] = json!(report.warnings.join("; "));
    }
    reply["watchdog_setup"] = match &report.watchdog_warning {
        Some(warning) => json!({ "warning": warning }),
        None => json!({ "status": "ok" }),
    };
    reply["persisted_sandboxes"] = json!({ "sandbox_count": report.kept_entries });
    reply["watch"] = watch_json(&report.row);
    reply
}

async fn list(
    engine: Arc<Engine>,
    context: CallContext,
    params: ListParams,
) -> Result<Reply, Failure> {
    let status = status_of(&params.status)?;
    let rows = engine.watches(&context, status, MOST_WATCHES).await?;
    let report = engine.watchdog_report(&context, false).await?;
    let mut reply = watch_list(&rows);
    reply["status"] = short_status(&report);
    Ok(Reply::new(reply, format!("{} watches", rows.len())))
}

/// The status that a word names; none when it is empty.
pub fn status_of(word: &str) -> Result<Option<WatchStatus>, Failure> {
    if word.is_empty() {
        return Ok(None);
    }
    let words = WatchStatus::ALL.map(WatchStatus::word);
    match WatchStatus::parse(word) {
        Some(status) => Ok(Some(status)),
        None => Err(Failure::new(
            Code::InvalidParams,
            format!("`status` is one of {}", words.join(", ")),
        )
        .hint("leave it out to see all watches")),
    }
}

/// The watches of `list_background_watches`.
pub fn watch_list(rows: &[WatchRow]) -> Value {
    json!({ "watches": rows.iter().map(watch_json).collect::<Vec<_>>() })
}

async fn get(
    engine: Arc<Engine>,
    context: CallContext,
    params: OneParams,
) -> Result<Reply, Failure> {
    let row = engine.watch(&context, number(params.watch_id)?).await?;
    let verdict = format!("watch {}: {}", row.id.number(), row.status.word());
    Ok(Reply::new(json!({ "watch": watch_json(&row) }), verdict))
}

async fn cancel(
    engine: Arc<Engine>,
    context: CallContext,
    params: OneParams,
) -> Result<Reply, Failure> {
    let row = engine.cancel_watch(&context, number(params.watch_id)?);
    let row = row.await?;
    let report = engine.watchdog_report(&context, false).await?;
    let verdict = format!("watch {}: {}", row.id.number(), row.status.word());
    let mut reply = json!({ "watch": watch_json(&row) });
    if row.status != WatchStatus::Cancelled {
        reply["note"] = json!("the watch was over already");
    }
    reply["status"] = short_status(&report);
    Ok(Reply::new(reply, verdict))
}

async fn events(
    engine: Arc<Engine>,
    context: CallContext,
    params: EventParams,
) -> Result<Reply, Failure> {
    let wait = params.wait_s.clamp(0.0, LONGEST_WAIT.as_secs_f64());
    let after = params.after_event_id.map(u64::try_from).transpose();
    let query = EventQuery {
        watch: match params.watch_id {
            0 => None,
            watch => Some(number(watch)?),
        },
        after: after.map_err(|_| {
            Failure::new(Code::InvalidParams, "`after_event_id` must not be negative")
        })?,
        most: positive("limit", params.limit, MOST_EVENTS)?,
        wait: Duration::from_secs_f64(if wait.is_nan() { 0.0 } else { wait }),
    };
    let report = engine.watch_events(&context, query).await?;
    let verdict = format!("{} events", report.events.len());
    Ok(Reply::new(event_list(&report, wait > 0.0), verdict))
}

/// What `list_background_watch_events` returns.
pub fn event_list(report: &EventReport, has_waited: bool) -> Value {
    let events: Vec<Value> = report.events.iter().map(event_json).collect();
    let mut reply = json!({ "last_event_id": report.last });
    if has_waited && events.is_empty() && !report.is_watchdog_alive {
        reply["note"] = json!(note_of_status());
    }
    reply["events"] = json!(events);
    reply
}
