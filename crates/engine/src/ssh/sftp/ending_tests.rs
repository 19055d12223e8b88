//! How a conversation with OpenSSH's server ends, and what is left then.

use std::fs;
use std::time::Duration;

use remote_sandbox_core::failure::Failure;
use remote_sandbox_testkit::wait_until;

use super::server_tests::{Host, noise, path};
use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

#[tokio::test]
async fn every_call_that_waits_fails_at_once_when_the_server_dies() {
    let Some(mut host) = Host::start().await else {
        return;
    };
    fs::write(host.local(b"f"), noise(1_000_000)).unwrap();
    let file = host.create("g").await;
    host.server.freeze();
    let client = host.client.clone();
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..2000 {
        let client = client.clone();
        // More than may be under way: some wait for room.
        calls.spawn(async move { client.stat(&path(format!("f{number}"))).await.map(drop) });
    }
    calls.spawn(async move {
        file.write_range(0, &mut tokio::io::repeat(7))
            .await
            .map(drop)
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    host.server.kill();
    let ended = tokio::time::timeout(PATIENCE, calls.join_all()).await;
    for result in ended.unwrap() {
        let error = result.unwrap_err();
        assert!(matches!(&error, SftpError::Closed(_)), "{error:?}");
    }
    let error = client.stat(&path("f")).await.unwrap_err();
    let text = Failure::chain(&error);
    assert!(
        text.contains("the server ended it") || text.contains("the stream broke"),
        "{text}"
    );
}

#[tokio::test]
async fn silence_ends_the_conversation_when_an_answer_is_due() {
    let silence_limit = Duration::from_millis(300);
    let options = Options {
        silence_limit,
        ..Options::default()
    };
    let Some(host) = Host::start_with(options).await else {
        return;
    };
    // While nothing is asked, silence is in order.
    tokio::time::sleep(silence_limit * 3).await;
    host.client.stat(&path(".")).await.unwrap();
    host.server.freeze();
    let waiting = tokio::time::timeout(PATIENCE, host.client.stat(&path("."))).await;
    let error = waiting.unwrap().unwrap_err();
    let SftpError::Closed(loss) = error else {
        panic!("{error:?}");
    };
    assert!(matches!(*loss, Loss::Silent(_)), "{loss:?}");
}

#[tokio::test]
async fn server_keeps_nothing_open_when_files_are_dropped_or_calls_given_up() {
    let Some(host) = Host::start().await else {
        return;
    };
    fs::write(host.local(b"f"), "x").unwrap();
    let before = host.server.open_files();
    let kept = host.open("f").await.unwrap();
    drop(host.open("f").await.unwrap());
    drop(host.client.read_dir(&path("."), 9).await.unwrap());
    host.server.freeze();
    let opening = tokio::time::timeout(Duration::from_millis(50), host.open("f"));
    assert!(opening.await.is_err());
    host.server.thaw();
    host.client.stat(&path("f")).await.unwrap();
    let server = &host.server;
    assert!(wait_until(PATIENCE, || server.open_files() == before + 1).await);
    drop(kept);
}

#[tokio::test]
async fn conversation_ends_with_the_last_clone_and_the_last_open_file() {
    let Some(host) = Host::start().await else {
        return;
    };
    fs::write(host.local(b"f"), "x").unwrap();
    let file = host.open("f").await.unwrap();
    let Host {
        mut server,
        client,
        folder: _folder,
    } = host;
    drop(client.clone());
    drop(client);
    assert_eq!(file.read(0, 9).await.unwrap(), "x");
    drop(file);
    server.ended().await;
}
