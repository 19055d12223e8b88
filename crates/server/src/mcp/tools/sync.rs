//! `sync_local_to_remote`, `sync_remote_to_local`, `sync_local_to_remote_background`.

use std::sync::Arc;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::sync::WrittenPath;
use remote_sandbox_engine::call::CallContext;
use remote_sandbox_engine::engine::{Engine, SyncAnswer, Where};
use remote_sandbox_engine::sync::{
    PlanReport, Progress, SyncReport, SyncRequest, USUAL_MIRROR, Way,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Definition, Label, Nature, given};
use crate::mcp::render::Reply;

const UP: &str =
    "Copy a local file or directory to a sandbox, only what changed. A large one gives a task_id.";
const DOWN: &str = "Copy a file or directory of a sandbox here, only what changed. Local edits stay unless overwrite.";
const BACKGROUND: &str = "sync_local_to_remote, always in the background; answers with a task_id.";

const COPIES: Nature = Nature {
    read_only: false,
    destructive: true,
    idempotent: true,
    open_world: true,
};

pub(super) fn definitions() -> Vec<Definition> {
    vec![
        Label {
            name: "sync_local_to_remote",
            title: "Upload",
            description: UP,
            nature: COPIES,
            core: false,
        }
        .define(up),
        Label {
            name: "sync_remote_to_local",
            title: "Download",
            description: DOWN,
            nature: COPIES,
            core: false,
        }
        .define(down),
    ]
}

/// Tools that are shown on request.
pub(super) fn advanced() -> Vec<Definition> {
    vec![
        Label {
            name: "sync_local_to_remote_background",
            title: "Upload in the background",
            description: BACKGROUND,
            nature: COPIES,
            core: false,
        }
        .define(up_later),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UpParams {
    #[serde(default = "here")]
    local_path: String,
    #[serde(default = "here")]
    remote_path: String,
    #[serde(default)]
    delete_extras: bool,
    #[serde(default)]
    excludes: Option<Vec<String>>,
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    exclude_file: Option<String>,
    #[serde(default)]
    sandbox_name: Option<String>,
    #[serde(default)]
    use_gitignore: bool,
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    checksum: bool,
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    follow_links: bool,
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    keep_dirlinks: bool,
    #[serde(default)]
    dry_run: bool,
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    confirm_delete: Option<i64>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DownParams {
    #[serde(default = "here")]
    remote_path: String,
    #[serde(default = "mirror")]
    local_path: String,
    #[serde(default)]
    excludes: Option<Vec<String>>,
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    exclude_file: Option<String>,
    #[serde(default)]
    sandbox_name: Option<String>,
    #[serde(default)]
    delete_extras: bool,
    #[serde(default)]
    use_gitignore: bool,
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    checksum: bool,
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    follow_links: bool,
    #[serde(default)]
    overwrite: bool,
    #[serde(default)]
    dry_run: bool,
    #[serde(default)]
    #[schemars(extend("unlisted" = true))]
    confirm_delete: Option<i64>,
}

fn here() -> String {
    ".".to_owned()
}

fn mirror() -> String {
    USUAL_MIRROR.to_owned()
}

fn agreed(number: Option<i64>) -> Result<Option<u64>, Failure> {
    let number = number.map(u64::try_from).transpose();
    number.map_err(|_| Failure::new(Code::InvalidParams, "`confirm_delete` must not be negative"))
}

/// Nowhere when only the plan is wanted.
fn planned_or(dry_run: bool, place: Where) -> Where {
    match dry_run {
        true => Where::Nowhere,
        false => place,
    }
}

fn up_request(engine: &Engine, params: UpParams) -> Result<SyncRequest, Failure> {
    let sandbox = engine.sandbox(given(params.sandbox_name).as_deref())?;
    let name = sandbox.description().name.as_str();
    Ok(SyncRequest {
        delete_extras: params.delete_extras,
        confirm_delete: agreed(params.confirm_delete)?,
        excludes: params.excludes.unwrap_or_default(),
        exclude_file: given(params.exclude_file).map(WrittenPath::from),
        use_gitignore: params.use_gitignore,
        checksum: params.checksum,
        follow_links: params.follow_links,
        keep_dirlinks: params.keep_dirlinks,
        ..SyncRequest::new(name, Way::Up, params.local_path, params.remote_path)
    })
}

async fn up(engine: Arc<Engine>, context: CallContext, params: UpParams) -> Result<Reply, Failure> {
    let place = planned_or(params.dry_run, Where::BySize);
    let request = up_request(&engine, params)?;
    answer(&engine, &context, request, place).await
}

async fn up_later(
    engine: Arc<Engine>,
    context: CallContext,
    params: UpParams,
) -> Result<Reply, Failure> {
    let place = planned_or(params.dry_run, Where::Background);
    let request = up_request(&engine, params)?;
    answer(&engine, &context, request, place).await
}

async fn down(
    engine: Arc<Engine>,
    context: CallContext,
    params: DownParams,
) -> Result<Reply, Failure> {
    let sandbox = engine.sandbox(given(params.sandbox_name).as_deref())?;
    let name = sandbox.description().name.as_str();
    let request = SyncRequest {
        delete_extras: params.delete_extras,
        confirm_delete: agreed(params.confirm_delete)?,
        excludes: params.excludes.unwrap_or_default(),
        exclude_file: given(params.exclude_file).map(WrittenPath::from),
        use_gitignore: params.use_gitignore,
        checksum: params.checksum,
        follow_links: params.follow_links,
        overwrite: params.overwrite,
        ..SyncRequest::new(name, Way::Down, params.local_path, params.remote_path)
    };
    let place = planned_or(params.dry_run, Where::BySize);
    answer(&engine, &context, request, place).await
}

async fn answer(
    engine: &Engine,
    context: &CallContext,
    request: SyncRequest,
    place: Where,
) -> Result<Reply, Failure> {
    let (way, sandbox) = (request.way, request.sandbox.clone());
    let progress = Arc::new(Progress::default());
    let answer = engine.sync(context, request, place, &progress).await?;
    Ok(match answer {
        SyncAnswer::Done(report) => {
            let verdict = verdict(way, &report, &sandbox);
            Reply::new(sync_result("inline", way, &report, &sandbox), verdict)
        }
        SyncAnswer::Planned(plan) => planned(&plan, &sandbox),
        SyncAnswer::Background(started) => {
            let verdict = format!(
                "{} in the background as task {} (sandbox {sandbox})",
                started.status, started.task_id
            );
            let reply = json!({
                "mode": "background",
                "auto_switched": place == Where::BySize,
                "task_id": started.task_id,
                "status": started.status,
                "pid": started.pid,
                "log_file": started.log_file,
                "was_running": started.was_running,
                "sandbox": sandbox,
            });
            Reply::new(reply, verdict)
        }
    })
}

fn verdict(way: Way, report: &SyncReport, sandbox: &str) -> String {
    let word = match way {
        Way::Up => "uploaded",
        Way::Down => "downloaded",
    };
    let problems = match report.problem_count {
        0 => String::new(),
        count => format!(", {count} problems"),
    };
    format!(
        "{word} {} files ({} bytes), {} unchanged, {} deleted{problems} in {} s (sandbox {sandbox})",
        report.sent_files,
        report.sent_bytes,
        report.unchanged_files,
        report.deleted_files + report.deleted_dirs,
        report.duration_s
    )
}

/// What a sync says when it is done, under the names that the old server has, and ours.
pub fn sync_result(mode: &str, way: Way, report: &SyncReport, sandbox: &str) -> Value {
    let mut result = json!({
        "mode": mode,
        "local_path": report.local_path,
        "remote_path": report.remote_path,
        "synced_type": report.synced_type,
    });
    let counts = match way {
        Way::Up => json!({
            "uploaded_dirs": report.made_dirs,
            "uploaded_files": report.sent_files,
        }),
        Way::Down => json!({
            "created_dirs": report.made_dirs,
            "downloaded_files": report.sent_files,
        }),
    };
    let rest = json!({
        "skipped_files": report.unchanged_files,
        "deleted_dirs": report.deleted_dirs,
        "deleted_files": report.deleted_files,
        "delete_extras": report.delete_extras,
        "changed_modes": report.changed_modes,
        "bytes": report.sent_bytes,
        "duration_s": report.duration_s,
        "rate_bytes_s": report.rate_bytes_s,
        "revision": report.revision,
        "sandbox": sandbox,
        "passed_over": report.skipped,
        "conflicts": report.conflicts,
        "problem_count": report.problem_count,
        "problems": report.problems,
    });
    if let Value::Object(result) = &mut result {
        for part in [counts, rest] {
            if let Value::Object(part) = part {
                result.extend(part);
            }
        }
    }
    result
}

/// What a sync would do, as the tools return it.
pub fn sync_plan(plan: &PlanReport, sandbox: &str) -> Value {
    let mut reply = json!({ "mode": "dry_run", "sandbox": sandbox });
    if let (Value::Object(reply), Ok(Value::Object(plan))) =
        (&mut reply, serde_json::to_value(plan))
    {
        reply.extend(plan);
    }
    reply
}

fn planned(plan: &PlanReport, sandbox: &str) -> Reply {
    let line = |actions: &remote_sandbox_engine::sync::PlannedActions| {
        let first = actions.first.join(", ");
        let (action, count, bytes) = (&actions.action, actions.count, actions.bytes);
        format!("{action}: {count} ({bytes} bytes) {first}")
    };
    let body: Vec<String> = plan.actions.iter().map(line).collect();
    let reply = sync_plan(plan, sandbox);
    let verdict = format!("nothing was changed: this is the plan (sandbox {sandbox})");
    Reply::new(reply, verdict).body(body.join("\n"))
}
