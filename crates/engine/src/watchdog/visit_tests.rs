use std::path::Path;

use remote_sandbox_core::config::{Environment, Sources, WatchdogSettings, resolve};
use remote_sandbox_core::job::{JobId, LostReason, Nonce, WatchHistory};
use serde_json::json;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::super::{Deliver, Options, USUAL_LEASE};
use super::*;
use crate::engine::Engine;
use crate::store::{BegunResume, NewAttempt, NewJob, ProcessMark, ResumeOrder, Store, testing};

/// An engine that knows a sandbox behind which nobody listens.
fn engine(home: &Path) -> Arc<Engine> {
    let home = home.to_str().unwrap().to_owned();
    let list = json!([{"name": "dead", "host": "127.0.0.1", "port": 1, "user": "nobody"}]);
    let environment = Environment::from([
        ("HOME".to_owned(), home.clone()),
        (
            "REMOTE_SANDBOX_MCP_HOME".to_owned(),
            format!("{home}/state"),
        ),
        ("REMOTE_SANDBOX_LIST".to_owned(), list.to_string()),
    ]);
    let config = resolve(&Sources {
        environment: environment.clone(),
        file: None,
    });
    Arc::new(Engine::new(&config, &environment).unwrap())
}

fn new_job(number: u8) -> NewJob {
    let spec = json!({"cwd": null, "log_file": "", "gpus": "", "max_log_bytes": 0, "watch": null});
    NewJob {
        sandbox: "dead".to_owned(),
        spec: spec.to_string(),
        ..testing::new_job(number)
    }
}

/// A job whose resume somebody wrote down who is gone.
async fn unfinished(store: &Store, number: u8) {
    let row = store.begin_job(new_job(number)).await.unwrap();
    let lost = JobState::Lost {
        reason: LostReason::ProcessGone,
    };
    let noted = store.note_job_state(&row.id, row.attempt.number, lost, None);
    assert!(noted.await.unwrap());
    let order = ResumeOrder {
        attempt: NewAttempt {
            nonce: Nonce::from_bytes([number + 100; 16]),
            command: "again".to_owned(),
            starter: Some(ProcessMark {
                pid: 0,
                start: 0,
                boot: String::new(),
            }),
        },
        job: row.id.clone(),
        session: row.session.clone(),
        spec: row.spec.clone(),
    };
    let begun = store.begin_resume(row.watch_id.unwrap(), "local", order);
    assert!(matches!(begun.await.unwrap(), BegunResume::Begun(_)));
    let history = WatchHistory {
        phase: Phase::Resuming,
        resumes: 1,
        ..WatchHistory::default()
    };
    let history = serde_json::to_string(&history).unwrap();
    let change = "UPDATE watches SET history = ?1, next_check = 0";
    let changed = store.commit(move |transaction| transaction.execute(change, [&history]));
    changed.await.unwrap();
}

#[tokio::test]
async fn dead_host_with_nothing_but_unfinished_resumes_is_doubtful_and_none_is_given_up() {
    let home = TempDir::new().unwrap();
    let engine = engine(home.path());
    for number in 1..=6 {
        unfinished(engine.store(), number).await;
    }
    let options = Options {
        loop_sleep: Duration::from_millis(50),
        lease: USUAL_LEASE,
        is_once: true,
    };
    let deliver: Deliver = Arc::new(|_| Box::pin(async { Ok(()) }));
    let settings = WatchdogSettings::default();
    let watchdog = Arc::new(Watchdog::new(engine.clone(), settings, options, deliver));
    let done = watchdog.clone().run(CancellationToken::new()).await;
    done.unwrap();
    let key = HostKey {
        entry: None,
        sandbox: "dead".to_owned(),
    };
    assert!(locked(&watchdog.doubtful).contains_key(&key));
    assert!(!watchdog.busy.all().contains(&key));
    for number in 1..=6 {
        let id = JobId::from_uuid_bytes([number; 16]);
        let row = engine.store().job(&id, "local").await.unwrap().unwrap();
        assert_eq!(row.attempt.number.get(), 2);
        assert_eq!(row.attempt.state, JobState::Starting);
        let watch = engine.store().watch(row.watch_id.unwrap(), "local").await;
        let watch = watch.unwrap().unwrap();
        assert_eq!(watch.history.phase, Phase::Resuming);
        assert_eq!(watch.history.failures, 1, "each was told that once");
    }
}
