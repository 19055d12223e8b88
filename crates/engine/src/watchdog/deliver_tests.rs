use std::path::Path;
use std::sync::Mutex;

use remote_sandbox_core::config::{Config, Environment, WatchdogSettings};
use remote_sandbox_core::job::WatchPolicy;
use serde_json::json;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::super::{Deliver, Options, USUAL_LEASE};
use super::*;
use crate::engine::Engine;
use crate::store::{ForeignWatch, NewWatch, Store};

/// What was delivered: the type of the event and the content of its file.
type Seen = Arc<Mutex<Vec<(String, String)>>>;

fn engine(home: &Path) -> Arc<Engine> {
    let home = home.to_str().unwrap().to_owned();
    let environment = Environment::from([
        ("HOME".to_owned(), home.clone()),
        (
            "REMOTE_SANDBOX_MCP_HOME".to_owned(),
            format!("{home}/state"),
        ),
    ]);
    Arc::new(Engine::new(&Config::default(), &environment).unwrap())
}

fn foreign() -> ForeignWatch {
    let order = json!({
        "ensure_watchdog": false,
        "policy": WatchPolicy::default(),
        "resume": {"command": null, "plan": null},
        "checkpoint_path": null,
        "checkpoint_command": null,
        "checkpoint_format": "text",
        "max_log_lines": 80,
        "webhook_url": null,
        "event_command": "tell",
        "notify_local": false,
        "codex_wakeup": false,
        "codex_command": null,
    });
    ForeignWatch {
        principal: "local".to_owned(),
        sandbox: "nowhere".to_owned(),
        session: "s".to_owned(),
        log_file: "/l".to_owned(),
        cwd: None,
        launch_command: String::new(),
        run_id: None,
        name: None,
        metadata: None,
        watch: NewWatch {
            order: serde_json::from_value(order).unwrap(),
            entry: None,
        },
    }
}

fn undelivered(words: &str, is_permanent: bool) -> Undelivered {
    Undelivered {
        is_impossible: false,
        words: words.to_owned(),
        is_permanent,
    }
}

/// One round of a watchdog whose deliveries end so.
async fn round(engine: &Arc<Engine>, seen: &Seen, outcome: Result<(), Undelivered>) {
    let seen = seen.clone();
    let deliver: Deliver = Arc::new(move |parcel| {
        let (seen, outcome) = (seen.clone(), outcome.clone());
        Box::pin(async move {
            let file = std::fs::read_to_string(&parcel.event_file).unwrap();
            let word = parcel.event.event_type.word().to_owned();
            assert_eq!(parcel.channel, Channel::Command);
            seen.lock().unwrap().push((word, file));
            outcome
        })
    });
    let options = Options {
        loop_sleep: Duration::from_millis(50),
        lease: USUAL_LEASE,
        is_once: true,
    };
    let settings = WatchdogSettings::default();
    let watchdog = Watchdog::new(engine.clone(), settings, options, deliver);
    Arc::new(watchdog)
        .run(CancellationToken::new())
        .await
        .unwrap();
}

async fn change(store: &Store, change: &'static str) {
    let changed = store.commit(move |transaction| transaction.execute(change, []));
    assert_eq!(changed.await.unwrap(), 1);
}

#[tokio::test]
async fn event_is_told_again_until_that_works_and_then_no_more() {
    let home = TempDir::new().unwrap();
    let engine = engine(home.path());
    engine.store().add_watch(foreign()).await.unwrap();
    let seen = Seen::default();
    round(&engine, &seen, Err(undelivered("no way", false))).await;
    round(&engine, &seen, Ok(())).await;
    // The pause after the first try is not over.
    assert_eq!(seen.lock().unwrap().len(), 1);
    change(engine.store(), "UPDATE deliveries SET next_try = 0").await;
    round(&engine, &seen, Ok(())).await;
    round(&engine, &seen, Ok(())).await;
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 2, "{seen:?}");
    let (word, file) = &seen[1];
    assert_eq!(word, "config_missing");
    let file: serde_json::Value = serde_json::from_str(file).unwrap();
    assert_eq!(file["event_type"], "config_missing");
}

#[tokio::test]
async fn event_that_cannot_be_told_ends_in_the_dead_letters() {
    let home = TempDir::new().unwrap();
    let engine = engine(home.path());
    engine.store().add_watch(foreign()).await.unwrap();
    let seen = Seen::default();
    round(&engine, &seen, Err(undelivered("no way", false))).await;
    let last = "UPDATE deliveries SET next_try = 0, tries = 11";
    change(engine.store(), last).await;
    round(&engine, &seen, Err(undelivered("no way at all", false))).await;
    round(&engine, &seen, Ok(())).await;
    assert_eq!(seen.lock().unwrap().len(), 2);
    let dead = engine.store().dead_letters(Some("local"), 9).await.unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].error.as_deref(), Some("no way at all"));
}

#[tokio::test]
async fn event_that_nobody_will_ever_take_is_not_told_again() {
    let home = TempDir::new().unwrap();
    let engine = engine(home.path());
    engine.store().add_watch(foreign()).await.unwrap();
    let seen = Seen::default();
    round(&engine, &seen, Err(undelivered("gone", true))).await;
    let dead = engine.store().dead_letters(Some("local"), 9).await.unwrap();
    assert_eq!(dead[0].error.as_deref(), Some("gone"));
}

#[tokio::test]
async fn delivery_that_panics_is_a_failed_try_and_is_told_later() {
    let home = TempDir::new().unwrap();
    let engine = engine(home.path());
    engine.store().add_watch(foreign()).await.unwrap();
    let options = Options {
        loop_sleep: Duration::from_millis(50),
        lease: USUAL_LEASE,
        is_once: true,
    };
    let words = || -> &'static str { panic!("as a notifier might") };
    let panicking: Deliver =
        Arc::new(move |_| Box::pin(async move { Err(undelivered(words(), false)) }));
    let settings = WatchdogSettings::default();
    let watchdog = Watchdog::new(engine.clone(), settings, options, panicking);
    let done = Arc::new(watchdog).run(CancellationToken::new()).await;
    done.unwrap();
    change(
        engine.store(),
        "UPDATE deliveries SET next_try = 0 WHERE tries = 1",
    )
    .await;
    let seen = Seen::default();
    round(&engine, &seen, Ok(())).await;
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn event_that_this_machine_cannot_show_is_neither_told_again_nor_dead() {
    let home = TempDir::new().unwrap();
    let engine = engine(home.path());
    engine.store().add_watch(foreign()).await.unwrap();
    let seen = Seen::default();
    let mut impossible = undelivered("no desktop", false);
    impossible.is_impossible = true;
    round(&engine, &seen, Err(impossible)).await;
    let counts = engine.store().watch_counts(None).await.unwrap();
    assert_eq!((counts.pending_deliveries, counts.dead_deliveries), (0, 0));
    round(&engine, &seen, Ok(())).await;
    assert_eq!(seen.lock().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn event_that_was_told_while_others_were_looked_for_is_not_told_again() {
    const EVENTS: usize = 400;
    let home = TempDir::new().unwrap();
    let engine = engine(home.path());
    for _ in 0..EVENTS {
        engine.store().add_watch(foreign()).await.unwrap();
    }
    let told: Arc<Mutex<Vec<u64>>> = Arc::default();
    let deliver: Deliver = {
        let told = told.clone();
        Arc::new(move |parcel| {
            let told = told.clone();
            Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(parcel.event.id % 7)).await;
                told.lock().unwrap().push(parcel.event.id);
                Ok(())
            })
        })
    };
    let options = Options {
        loop_sleep: Duration::from_millis(50),
        lease: USUAL_LEASE,
        is_once: false,
    };
    let watchdog = Watchdog::new(engine, WatchdogSettings::default(), options, deliver);
    let stop = CancellationToken::new();
    let running = tokio::spawn(Arc::new(watchdog).run(stop.clone()));
    let all = || told.lock().unwrap().len() >= EVENTS;
    let limit = Duration::from_secs(60);
    assert!(remote_sandbox_testkit::wait::wait_until(limit, all).await);
    // Whatever is told twice is told at once.
    tokio::time::sleep(Duration::from_millis(300)).await;
    stop.cancel();
    running.await.unwrap().unwrap();
    let told = told.lock().unwrap().clone();
    let distinct: std::collections::BTreeSet<u64> = told.iter().copied().collect();
    assert_eq!((told.len(), distinct.len()), (EVENTS, EVENTS));
}
