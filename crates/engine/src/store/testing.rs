//! What the tests of watches share.

use remote_sandbox_core::job::{WatchOrder, WatchPolicy};
use serde_json::json;

pub(super) fn order() -> WatchOrder {
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
