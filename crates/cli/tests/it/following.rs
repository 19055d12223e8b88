//! Whoever follows a command at his own pace, beside others on the same connection.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use remote_sandbox_core::outcome::Outcome;
use remote_sandbox_core::shell::RunSpec;
use remote_sandbox_engine::call::{CallContext, Principal};
use remote_sandbox_engine::engine::{Engine, ExecReport, ExecRequest, load_config};
use remote_sandbox_engine::run::follow;
use remote_sandbox_testkit::sshd::Sshd;
use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::support::entry;

fn engine(sshd: &Sshd, home: &TempDir) -> Arc<Engine> {
    let path = std::env::var("PATH").unwrap_or_default();
    let list = Value::from(vec![entry("box", sshd)]).to_string();
    let environment = BTreeMap::from([
        ("HOME".to_owned(), home.path().display().to_string()),
        ("PATH".to_owned(), path),
        ("REMOTE_SANDBOX_LIST".to_owned(), list),
    ]);
    let config = load_config(None, environment.clone()).unwrap();
    Arc::new(Engine::new(&config, &environment).unwrap())
}

fn request(command: &str) -> ExecRequest {
    ExecRequest {
        sandbox: Some("box".to_owned()),
        spec: RunSpec::new(command.to_owned()).unwrap(),
        timeout: Duration::from_secs(60),
        wait: Duration::from_secs(90),
        max_output_chars: 1000,
    }
}

fn context() -> CallContext {
    CallContext::new(Principal::local(), CancellationToken::new())
}

fn assert_ended_well(report: &ExecReport) {
    let finished = report.finished.as_ref().unwrap();
    let outcome = &finished.result.as_ref().unwrap().outcome;
    assert!(matches!(outcome, Outcome::Exited(0)), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_that_stands_still_holds_up_neither_its_command_nor_another() {
    let (sshd, home) = (Sshd::start(), TempDir::new().unwrap());
    let engine = engine(&sshd, &home);
    let (tap, follower) = follow();
    let long = {
        let engine = engine.clone();
        let request = request("yes | head -c 30000000; sleep 1");
        tokio::spawn(async move { engine.exec_followed(&context(), request, tap).await })
    };
    // The flood has begun when the first byte is there.
    let (first, follower) = tokio::task::spawn_blocking(|| (follower.next_piece(), follower))
        .await
        .unwrap();
    let begun = Instant::now();
    for _ in 0..5 {
        let other = engine.exec(&context(), request("echo served")).await;
        assert_ended_well(&other.unwrap());
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    let report = tokio::time::timeout(Duration::from_secs(30), long).await;
    assert_ended_well(&report.unwrap().unwrap().unwrap());
    assert_eq!(sshd.accepted_auth_count(), 1);
    let mut seen = first.unwrap().1;
    while let Some((_, bytes)) = follower.next_piece() {
        seen.extend(bytes);
    }
    assert!(seen == b"y\n".repeat(15_000_000), "{} bytes", seen.len());
    assert_eq!(follower.dropped_bytes(), 0);
    engine.shut_down().await;
}
