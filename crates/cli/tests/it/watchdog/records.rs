//! f50: nothing begins of which no record can be kept.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use remote_sandbox_testkit::mcp::ToolReply;
use remote_sandbox_testkit::wait::wait_until;
use rusqlite::Connection;
use serde_json::{Value, json};

use super::clocks::last_look;
use super::stored::open;
use super::{Dog, LIMIT, Stage, begun, marked};
use crate::faults::scarcity::FullDisk;
use crate::jobs::{Host, start};
use crate::support::{builder, entry, ready};

fn store_of(home: &Path) -> PathBuf {
    home.join(".local/state/remote-sandbox-mcp/store.sqlite3")
}

/// Keeps everybody from writing to a store until the answer is dropped.
fn locked(home: &Path) -> Connection {
    let store = open(&store_of(home)).expect("a store");
    store.execute_batch("BEGIN IMMEDIATE").unwrap();
    store
}

/// The jobs that a host knows of.
fn jobs_on(host: &Host) -> BTreeSet<String> {
    let files = fs::read_dir(host.home().join(".remote-sandbox-mcp/jobs"));
    let files = files.into_iter().flatten().flatten();
    files
        .map(|file| file.file_name().into_string().unwrap())
        .collect()
}

fn id(job: &Value) -> String {
    job["task_id"].as_str().unwrap().to_owned()
}

/// Asks for a job that says when it begins.
async fn ask(stage: &Stage, marker: &Path, word: &str) -> ToolReply {
    let more = json!({"ensure_watchdog": false, "notify_local": false});
    start(&stage.client, &marked(marker, word), more).await
}

fn assert_refused(reply: &ToolReply, place: &Path) {
    assert_eq!(reply.json["code"], "store_unavailable", "{}", reply.text);
    let place = place.to_str().unwrap();
    assert!(reply.text.contains(place), "{}", reply.text);
}

#[tokio::test]
async fn f50_start_is_refused_and_nothing_reaches_the_host_while_the_store_is_not_to_be_written() {
    let stage = Stage::new().await;
    let marker = stage.host.sshd.dir().join("begun");
    let first = stage.job(&marked(&marker, "first"), json!({})).await;
    let lock = locked(stage.home());
    let reply = ask(&stage, &marker, "refused").await;
    assert_refused(&reply, &store_of(stage.home()));
    assert_eq!(jobs_on(&stage.host), BTreeSet::from([id(&first)]));
    drop(lock);
    // It works again without a restart, and nothing was only put off.
    let reply = ask(&stage, &marker, "taken").await;
    assert!(!reply.is_error, "{}", reply.text);
    assert!(wait_until(LIMIT, || begun(&marker, "taken") == 1).await);
    let taken = BTreeSet::from([id(&first), id(&reply.json)]);
    assert_eq!(jobs_on(&stage.host), taken);
    assert_eq!(begun(&marker, "refused"), 0);
}

#[tokio::test]
async fn f50_start_is_refused_and_nothing_reaches_the_host_when_the_disk_of_the_store_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = FullDisk::with_room(folder.path(), "2m") else {
        return;
    };
    let state = folder.path().join("state");
    let host = Host::start();
    let server = builder(&[entry("box", &host.sshd)]).env("REMOTE_SANDBOX_MCP_HOME", &state);
    let client = ready(server.start()).await;
    let stage = Stage { host, client };
    let marker = stage.host.sshd.dir().join("begun");
    let first = ask(&stage, &marker, "first").await;
    assert!(!first.is_error, "{}", first.text);
    disk.fill();
    let (mut taken, mut refused) = (vec![first.json], Vec::new());
    for number in 0..8 {
        let word = format!("full{number}");
        let reply = ask(&stage, &marker, &word).await;
        // A little room may be left within the files that are there.
        if reply.is_error {
            assert_refused(&reply, &state);
            refused.push((word, reply.text));
        } else {
            taken.push(reply.json);
        }
    }
    let by_store = |(_, text): &(String, String)| text.contains("store.sqlite3");
    assert!(refused.iter().any(by_store), "{refused:?}");
    fs::remove_file(folder.path().join("filler")).unwrap();
    let last = ask(&stage, &marker, "last").await;
    assert!(!last.is_error, "{}", last.text);
    assert!(wait_until(LIMIT, || begun(&marker, "last") == 1).await);
    taken.push(last.json);
    let taken: BTreeSet<String> = taken.iter().map(id).collect();
    assert_eq!(jobs_on(&stage.host), taken);
    for (word, text) in &refused {
        assert_eq!(begun(&marker, word), 0, "{text}");
    }
    // What was begun is known.
    let store = open(&state.join("store.sqlite3")).expect("a store");
    let rows = super::stored::rows(&store, "SELECT id FROM jobs");
    let known: BTreeSet<String> = rows.into_iter().flatten().collect();
    assert_eq!(known, taken);
}

#[tokio::test]
async fn f50_watchdog_resumes_nothing_while_it_cannot_write_that_down_and_once_when_it_can() {
    let stage = Stage::new().await;
    let marker = stage.host.sshd.dir().join("begun");
    let more = json!({"resume_command": marked(&marker, "again"), "auto_resume": true});
    let job = stage.job(&marked(&marker, "first"), more).await;
    assert!(wait_until(LIMIT, || begun(&marker, "first") == 1).await);
    let dog = Dog::start_with(stage.home(), &["-v"], &[]);
    assert!(wait_until(LIMIT, || last_look(stage.home()) > 0).await);
    let lock = locked(stage.home());
    stage.kill(&job);
    let says = || dog.log().contains("the watchdog cannot use its store");
    assert!(wait_until(LIMIT, says).await, "{}", dog.log());
    assert_eq!(begun(&marker, "again"), 0, "{}", dog.log());
    assert_eq!(stage.events(), Vec::<String>::new(), "{}", dog.log());
    drop(lock);
    let types = ["interrupted", "resume_started"];
    stage.told(&dog, &types).await;
    stage.nothing_more(&dog, &types).await;
    assert_eq!(begun(&marker, "again"), 1, "{}", dog.log());
}
