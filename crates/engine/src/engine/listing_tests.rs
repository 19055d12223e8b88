use remote_sandbox_core::failure::Code;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use remote_sandbox_core::config::{Config, Environment, Surroundings};
use remote_sandbox_core::doctor::StepName;
use remote_sandbox_core::ids::SandboxName;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::call::Principal;
use crate::doctor::StepLog;
use crate::sandbox::{Description, Ended, FileConversation, Order, Sink};
use crate::shell::ByteStream;

/// A sandbox whose scripts run here, and that counts them.
struct Counting {
    description: Description,
    surroundings: Surroundings,
    asked: AtomicUsize,
    /// The programs that it has.
    programs: std::sync::Mutex<String>,
}

impl Counting {
    fn new(home: &Path) -> Arc<Self> {
        Arc::new(Counting {
            description: Description {
                name: "box".parse::<SandboxName>().unwrap(),
                kind: "test",
                host: String::new(),
                port: None,
                user: "somebody".to_owned(),
                place: None,
                tags: Vec::new(),
                warnings: Vec::new(),
                local: None,
            },
            surroundings: Surroundings {
                workdir: Some(home.display().to_string()),
                ..Surroundings::default()
            },
            asked: AtomicUsize::new(0),
            programs: std::sync::Mutex::new("/usr/bin:/bin".to_owned()),
        })
    }
}

#[async_trait]
impl Sandbox for Counting {
    fn description(&self) -> &Description {
        &self.description
    }

    fn surroundings(&self) -> &Surroundings {
        &self.surroundings
    }

    async fn check(&self) -> Result<(), Failure> {
        Ok(())
    }

    async fn run(&self, _: Order, _: Sink) -> Result<Ended, Failure> {
        Err(Failure::new(Code::Unsupported, "no commands"))
    }

    async fn ask(&self, script: String, _: Duration) -> Result<Vec<u8>, Failure> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let path = self.programs.lock().unwrap().clone();
        let output = Command::new("/bin/sh")
            .args(["-c", &script])
            .env("PATH", path)
            .stdin(Stdio::null())
            .output();
        Ok(output.unwrap().stdout)
    }

    async fn open(&self, _: &[&str]) -> Result<ByteStream, Failure> {
        Err(Failure::new(Code::Unsupported, "no streams"))
    }

    async fn files(&self) -> Result<Option<FileConversation>, Failure> {
        Ok(None)
    }

    async fn examine(&self, _: &StepLog) {}

    fn steps(&self) -> &'static [StepName] {
        &[]
    }

    async fn close(&self) {}
}

fn engine(home: &Path, sandbox: &Arc<Counting>) -> Engine {
    let environment = Environment::from([("HOME".to_owned(), home.display().to_string())]);
    let mut engine = Engine::new(&Config::default(), &environment).unwrap();
    engine.sandboxes.insert("box".to_owned(), sandbox.clone());
    engine
}

fn request(most_entries: usize) -> ListRequest {
    ListRequest {
        sandbox: Some("box".to_owned()),
        path: b".".to_vec(),
        recursive: false,
        most_entries,
        glob: None,
    }
}

async fn list(engine: &Engine) -> Result<ListReport, Failure> {
    let context = CallContext::new(Principal::local(), CancellationToken::new());
    engine.list_files(&context, request(10)).await
}

#[tokio::test]
async fn sandbox_is_asked_once_what_it_lists_with_and_then_once_for_each_list() {
    let home = tempfile::tempdir().unwrap();
    let sandbox = Counting::new(home.path());
    let engine = engine(home.path(), &sandbox);
    for asked in [2, 3, 4] {
        list(&engine).await.unwrap();
        assert_eq!(sandbox.asked.load(Ordering::Relaxed), asked);
    }
}

#[tokio::test]
async fn sandbox_that_lost_its_program_is_asked_anew() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("f"), "").unwrap();
    let sandbox = Counting::new(home.path());
    let engine = engine(home.path(), &sandbox);
    list(&engine).await.unwrap();
    let nothing = home.path().display().to_string();
    let before = std::mem::replace(&mut *sandbox.programs.lock().unwrap(), nothing);
    let unsupported = list(&engine).await.unwrap_err();
    assert_eq!(unsupported.code, Code::Unsupported);
    *sandbox.programs.lock().unwrap() = before;
    let found = list(&engine).await.unwrap();
    assert!(found.entries.iter().any(|file| file.path.text == "./f"));
}

#[tokio::test]
async fn list_that_nobody_waits_for_any_more_ends_as_cancelled() {
    let cancel = CancellationToken::new();
    cancel.cancel();
    let context = CallContext::new(Principal::local(), cancel);
    let waits = unless_cancelled(&context, std::future::pending::<Result<(), Failure>>()).await;
    assert_eq!(waits.unwrap_err().code, Code::Cancelled);
}

fn collector<'a>(scanner: Scanner, request: &'a ListRequest) -> Collector<'a> {
    let mark = RunToken::from_uuid_bytes([1; 16]);
    let mut collector = Collector::new(&mark, scanner, request);
    let begin = format!("RSMCP:{mark}:scan\n//root d\0");
    collector.feed(begin.as_bytes()).unwrap();
    collector
}

fn record(name: &str) -> Vec<u8> {
    format!("{name}//f f 644 1 5.0 1 2 3//\0").into_bytes()
}

#[test]
fn sorted_list_is_over_when_there_is_enough_and_an_unsorted_one_is_not() {
    for (scanner, is_over) in [(Scanner::Python, true), (Scanner::Find, false)] {
        let request = request(1);
        let mut collector = collector(scanner, &request);
        collector.feed(&record("a")).unwrap();
        assert!(!collector.has_enough());
        collector.feed(&record("b")).unwrap();
        assert_eq!(collector.has_enough(), is_over);
        let collected = collector.stop();
        assert_eq!((collected.entries.len(), collected.truncated), (1, true));
    }
}

#[test]
fn list_that_takes_too_long_is_given_as_far_as_it_came_and_says_so() {
    let request = request(10);
    let mut collector = collector(Scanner::Find, &request);
    collector.feed(&record("a")).unwrap();
    let collected = collector.stop_late();
    assert_eq!((collected.entries.len(), collected.truncated), (1, true));
    assert!(collected.notes[0].contains("not complete"));
}

#[test]
fn list_that_breaks_off_is_an_error_and_many_notes_are_cut() {
    let request = request(10);
    let mut broken = collector(Scanner::Find, &request);
    broken.feed(&record("a")).unwrap();
    assert!(broken.finish().is_err());
    let mut noted = collector(Scanner::Find, &request);
    for number in 0..25 {
        let word = format!("//unreadable d{number}\0");
        noted.feed(word.as_bytes()).unwrap();
    }
    noted.feed(b"//status 1\0//end 0\0").unwrap();
    let notes = noted.finish().unwrap().notes;
    assert_eq!(notes.len(), MOST_NOTES + 1);
    assert_eq!(notes.last().unwrap(), "and 5 more");
}
