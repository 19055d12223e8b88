//! What the tests of events share.

use super::WatchFacts;
use crate::job::{WatchOrder, WatchWish};

pub(super) fn order() -> WatchOrder {
    WatchOrder {
        notify_local: false,
        ..WatchWish::default().check().unwrap()
    }
}

pub(super) fn facts(order: &WatchOrder) -> WatchFacts<'_> {
    WatchFacts {
        watch_id: 7,
        run_id: Some("train-001"),
        name: None,
        sandbox: "gpu1",
        session: "bg-1",
        log_file: "/home/u/.codex_logs/bg-1.log",
        order,
        resumes: 0,
        status: "active",
        last_state: "running",
        attempt: Some(1),
        log_tail: "step 1\nstep 2\n",
        checkpoint_text: "",
        checkpoint_age_s: None,
        error: None,
        stdout: "",
        stderr: "",
    }
}
