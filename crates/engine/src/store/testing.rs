//! What the tests of jobs and watches share.

use remote_sandbox_core::job::{JobId, Nonce, SessionName, WatchOrder, WatchPolicy};
use serde_json::json;

use super::{NewJob, NewWatch};

pub(crate) fn order() -> WatchOrder {
    let order = json!({
        "ensure_watchdog": true,
        "policy": WatchPolicy::default(),
        "resume": {"command": "again", "plan": null},
        "checkpoint_path": null,
        "checkpoint_command": null,
        "checkpoint_format": "text",
        "max_log_lines": 80,
        "webhook_url": null,
        "event_command": null,
        "notify_local": false,
        "codex_wakeup": false,
        "codex_command": null,
    });
    serde_json::from_value(order).unwrap()
}

/// A job with a watch, of which everything follows from a number.
pub(crate) fn new_job(number: u8) -> NewJob {
    let id = JobId::from_uuid_bytes([number; 16]);
    NewJob {
        session: SessionName::for_job(&id),
        id,
        principal: "local".to_owned(),
        sandbox: "box".to_owned(),
        log_file: "~/.codex_logs/x.log".to_owned(),
        cwd: None,
        command: "make".to_owned(),
        spec: "{}".to_owned(),
        metadata: None,
        run_id: None,
        name: None,
        watch: Some(NewWatch {
            order: order(),
            entry: None,
        }),
        nonce: Nonce::from_bytes([number; 16]),
        starter: None,
    }
}
