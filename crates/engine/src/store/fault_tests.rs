//! Faults that need other processes: this test program runs itself again, as the one who is disturbed.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_testkit::{process, skip};
use tempfile::TempDir;

use super::testing::new_job;
use super::tests::{begin, end, mark};
use super::*;

/// Where the other process finds the folder that it works on.
const FOLDER: &str = "TESTKIT_STORE_FOLDER";

/// This test program as it runs one of its tests.
fn own_test(name: &str, before: &[&str]) -> Command {
    let program = std::env::current_exe().unwrap();
    let mut command = match before.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
        None => Command::new(program),
    };
    // The path of a test starts below the name of its crate.
    let path = module_path!().split_once("::").unwrap().1;
    command
        .args(["--exact", "--nocapture", "--include-ignored"])
        .arg(format!("{path}::{name}"))
        .stdin(Stdio::null());
    command
}

/// The folder, in the process that was started for it.
fn given_folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(work)
}

async fn is_sound(store: &Store) -> bool {
    let words = store.read(|transaction| {
        transaction.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0))
    });
    words.await.unwrap() == "ok"
}

/// One round of what a worker does; `number` makes its pair its own.
async fn work(store: &Store, number: usize) -> Result<TransferId, StoreError> {
    let row = begin(store, &format!("{} {number}", std::process::id())).await?;
    store.claim_transfer(row.id, mark()).await?;
    store.note_progress(row.id, format!("{number}")).await?;
    let done = end(TransferStatus::Completed);
    store.finish_transfer(row.id, done).await?;
    Ok(row.id)
}

/// Eight processes write, one of them empties the log all the time.
fn write_together(test: &str, rounds: usize) {
    const PROCESSES: usize = 8;
    if let Some(folder) = given_folder() {
        block_on(async {
            let store = Store::open(&folder).await.unwrap();
            let empties = std::env::var_os("TESTKIT_STORE_EMPTIES").is_some();
            for number in 0..rounds {
                let started = Instant::now();
                match work(&store, number).await {
                    Ok(_) => {}
                    Err(StoreError::Busy { .. }) => {
                        assert!(started.elapsed() >= Duration::from_secs(5));
                    }
                    Err(error) => panic!("{error:?}"),
                }
                if empties && number % 10 == 0 {
                    let emptied = store
                        .shared
                        .with_connection(Durability::Usual, |connection| {
                            connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
                        });
                    emptied.unwrap();
                }
            }
        });
        return;
    }
    let folder = TempDir::new().unwrap();
    let start = |number: usize| {
        let mut command = own_test(test, &[]);
        command.env(FOLDER, folder.path());
        if number == 0 {
            command.env("TESTKIT_STORE_EMPTIES", "1");
        }
        command.stdout(Stdio::null()).spawn().unwrap()
    };
    let writers: Vec<Child> = (0..PROCESSES).map(start).collect();
    for mut writer in writers {
        assert!(writer.wait().unwrap().success());
    }
    block_on(async {
        let store = Store::open(folder.path()).await.unwrap();
        let done = store.read(|transaction| {
            let query = "SELECT count(*) FROM transfers WHERE status = 'completed'";
            transaction.query_row(query, [], |row| row.get::<_, u32>(0))
        });
        assert_eq!(done.await.unwrap() as usize, PROCESSES * rounds);
        assert!(is_sound(&store).await);
        assert_eq!(damaged_files(folder.path()), Vec::<PathBuf>::new());
    });
}

#[test]
fn f49_eight_processes_write_together_and_no_row_is_lost() {
    // Four commits each round.
    write_together("f49_eight_processes_write_together_and_no_row_is_lost", 25);
}

#[test]
#[ignore = "minutes: eight processes with two thousand writes each"]
fn f49_eight_processes_write_long_together() {
    write_together("f49_eight_processes_write_long_together", 500);
}

/// Whether this process has file systems of its own; outside it starts one that has.
fn entered_own_mounts(test: &str) -> bool {
    const INSIDE: &str = "TESTKIT_STORE_MOUNTS";
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let tried = Command::new("unshare").args(["--mount", "true"]).status();
    if !process::is_root() || !tried.is_ok_and(|status| status.success()) {
        skip("needs root: file systems of its own");
        return false;
    }
    let output = own_test(test, &["unshare", "--mount"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("1 passed"), "{words}{complaints}");
    false
}

fn mount(options: &str, at: &Path) {
    let arguments = ["-t", "tmpfs", "-o", options, "testkit"];
    let status = Command::new("mount").args(arguments).arg(at).status();
    assert!(status.unwrap().success());
}

#[test]
fn f50_full_disk_fails_the_call_and_it_works_again_when_there_is_room() {
    if !entered_own_mounts("f50_full_disk_fails_the_call_and_it_works_again_when_there_is_room") {
        return;
    }
    let folder = TempDir::new().unwrap();
    mount("size=2m,mode=0700", folder.path());
    block_on(async {
        let store = Store::open(folder.path()).await.unwrap();
        let mut acknowledged = vec![work(&store, 0).await.unwrap()];
        let filler = folder.path().join("filler");
        assert!(fs::write(&filler, vec![0; 4 << 20]).is_err());
        let mut refused = 0;
        for number in 1..40 {
            let pair = format!("{number} {}", "x".repeat(20_000));
            match begin(&store, &pair).await {
                Ok(row) => acknowledged.push(row.id),
                Err(error) => {
                    assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
                    let failure = Failure::from(error);
                    assert_eq!(failure.code, Code::StoreUnavailable);
                    let path = folder.path().join(FILE_NAME).display().to_string();
                    assert!(failure.message.contains(&path) && failure.retry);
                    refused += 1;
                }
            }
        }
        assert!(refused > 30, "only {refused} were refused");
        // Another process cannot begin either, and says the same.
        let other = TempDir::new_in(folder.path()).unwrap();
        let error = Store::open(other.path()).await.unwrap_err();
        let failure = Failure::from(error);
        assert_eq!(failure.code, Code::StoreUnavailable, "{failure:?}");
        fs::remove_file(filler).unwrap();
        acknowledged.push(work(&store, 99).await.unwrap());
        let rows = store.transfers("local").await.unwrap();
        assert_eq!(rows.len(), acknowledged.len());
        assert!(is_sound(&store).await);
        assert_eq!(damaged_files(folder.path()), Vec::<PathBuf>::new());
        drop(other);
    });
}

/// A job of which much is to be kept.
fn large_job(number: u8) -> NewJob {
    NewJob {
        metadata: Some(format!("\"{}\"", "x".repeat(20_000))),
        ..new_job(number)
    }
}

/// How many jobs, attempts and watches there are.
async fn rows(store: &Store) -> [usize; 3] {
    let counted = store.read(|transaction| {
        let count = |table: &str| {
            let query = format!("SELECT count(*) FROM {table}");
            transaction.query_row(&query, [], |row| row.get::<_, u32>(0))
        };
        Ok([count("jobs")?, count("attempts")?, count("watches")?])
    });
    counted.await.unwrap().map(|count| count as usize)
}

#[test]
fn f50_start_of_a_job_is_written_down_whole_or_not_at_all_when_the_disk_is_full() {
    let test = "f50_start_of_a_job_is_written_down_whole_or_not_at_all_when_the_disk_is_full";
    if !entered_own_mounts(test) {
        return;
    }
    let folder = TempDir::new().unwrap();
    mount("size=2m,mode=0700", folder.path());
    block_on(async {
        let store = Store::open(folder.path()).await.unwrap();
        store.begin_job(large_job(1)).await.unwrap();
        let filler = folder.path().join("filler");
        assert!(fs::write(&filler, vec![0; 4 << 20]).is_err());
        let (mut taken, mut refused) = (1, Vec::new());
        for number in 2..40 {
            match store.begin_job(large_job(number)).await {
                Ok(_) => taken += 1,
                Err(error) => {
                    assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
                    assert_eq!(Failure::from(error).code, Code::StoreUnavailable);
                    refused.push(number);
                }
            }
        }
        assert!(refused.len() > 30, "only {} were refused", refused.len());
        fs::remove_file(filler).unwrap();
        assert_eq!(rows(&store).await, [taken; 3]);
        for number in &refused {
            let id = new_job(*number).id;
            assert_eq!(store.job(&id, "local").await.unwrap(), None);
        }
        // The same one may be asked for again.
        store.begin_job(large_job(refused[0])).await.unwrap();
        assert_eq!(rows(&store).await, [taken + 1; 3]);
        assert!(is_sound(&store).await);
        assert_eq!(damaged_files(folder.path()), Vec::<PathBuf>::new());
    });
}

#[test]
fn f53_store_in_a_folder_that_cannot_be_written_is_refused_with_its_name() {
    let test = "f53_store_in_a_folder_that_cannot_be_written_is_refused_with_its_name";
    if !entered_own_mounts(test) {
        return;
    }
    let folder = TempDir::new().unwrap();
    mount("size=2m,mode=0700", folder.path());
    block_on(async {
        work(&Store::open(folder.path()).await.unwrap(), 0)
            .await
            .unwrap();
        let before = fs::read(folder.path().join(FILE_NAME)).unwrap();
        mount("remount,ro", folder.path());
        let failure = Failure::from(Store::open(folder.path()).await.unwrap_err());
        assert_eq!(failure.code, Code::StoreUnavailable);
        let shown = folder.path().display().to_string();
        assert!(failure.message.contains(&shown), "{failure:?}");
        assert_eq!(fs::read(folder.path().join(FILE_NAME)).unwrap(), before);
        mount("remount,rw", folder.path());
    });
}

/// Writes until it is ended, and prints the number of each transfer once it was acknowledged.
fn write_and_tell(folder: &Path, rounds: usize) {
    block_on(async {
        let store = Store::open(folder).await;
        let Ok(store) = store else {
            println!("not opened");
            return;
        };
        for number in 0..rounds {
            match work(&store, number).await {
                Ok(id) => println!("done {id}"),
                Err(error) => println!("failed {}", Failure::chain(&error)),
            }
        }
        println!("the end");
    });
}

/// All acknowledged transfers are there and complete, and the file is sound; seconds the opening took.
fn assert_acknowledged_are_there(folder: &Path, told: &str) -> Duration {
    let started = Instant::now();
    block_on(async {
        let store = Store::open(folder).await.unwrap();
        let took = started.elapsed();
        assert!(is_sound(&store).await, "{told}");
        for line in told.lines() {
            let Some(number) = line.strip_prefix("done ") else {
                continue;
            };
            // The last line may have been cut off.
            let Ok(number) = number.parse() else {
                continue;
            };
            let id = TransferId::new(number).unwrap();
            let row = store.transfer(id, "local").await.unwrap();
            let status = row.map(|row| row.status);
            assert_eq!(status, Some(TransferStatus::Completed), "{told}");
        }
        took
    })
}

fn kill_again_and_again(test: &str, times: u64) {
    if let Some(folder) = given_folder() {
        return write_and_tell(&folder, usize::MAX);
    }
    let folder = TempDir::new().unwrap();
    let mut told = String::new();
    for number in 0..times {
        let mut child = own_test(test, &[])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // From before the opening to many rounds later.
        std::thread::sleep(Duration::from_millis(5 + number * 37 % 120));
        child.kill().unwrap();
        let mut output = child.stdout.take().unwrap();
        let mut words = Vec::new();
        output.read_to_end(&mut words).unwrap();
        child.wait().unwrap();
        let words = String::from_utf8(words).unwrap();
        assert!(!words.contains("failed"), "{words}");
        let whole = words.rfind('\n').map_or("", |end| &words[..=end]);
        let took = assert_acknowledged_are_there(folder.path(), whole);
        assert!(took < Duration::from_secs(2), "opening took {took:?}");
        told.push_str(whole);
    }
    assert!(told.contains("done"), "nothing was done between the kills");
    assert_acknowledged_are_there(folder.path(), &told);
    assert_eq!(damaged_files(folder.path()), Vec::<PathBuf>::new());
}

#[test]
fn f52_acknowledged_rows_outlive_a_kill_at_any_moment() {
    kill_again_and_again("f52_acknowledged_rows_outlive_a_kill_at_any_moment", 15);
}

#[test]
#[ignore = "minutes: five hundred kills"]
fn f52_acknowledged_rows_outlive_five_hundred_kills() {
    kill_again_and_again("f52_acknowledged_rows_outlive_five_hundred_kills", 500);
}

#[test]
#[ignore = "minutes: every system call that writes fails once"]
fn f51_acknowledged_rows_are_there_whichever_system_call_fails() {
    let test = "f51_acknowledged_rows_are_there_whichever_system_call_fails";
    if let Some(folder) = given_folder() {
        return write_and_tell(&folder, 3);
    }
    if !Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .status()
        .is_ok_and(|status| status.success())
    {
        return skip("needs strace and the right to trace");
    }
    for (call, error) in [
        ("pwrite64", "ENOSPC"),
        ("pwrite64", "EIO"),
        ("fsync,fdatasync", "EIO"),
        ("ftruncate", "ENOSPC"),
        ("rename,renameat,renameat2,unlink,unlinkat", "EIO"),
    ] {
        let mut reached_the_end = false;
        for number in 1..400 {
            let folder = TempDir::new().unwrap();
            let log = folder.path().join("strace");
            let state = folder.path().join("state");
            let inject = format!("inject={call}:error={error}:when={number}");
            let shown = log.display().to_string();
            let before = ["strace", "-f", "-qq", "-o", &shown, "-e", &inject];
            let output = own_test(test, &before).env(FOLDER, &state).output();
            let told = String::from_utf8(output.unwrap().stdout).unwrap();
            assert_acknowledged_are_there(&state, &told);
            if !fs::read_to_string(&log).unwrap().contains("INJECTED") {
                assert_eq!(told.matches("done").count(), 3, "{told}");
                reached_the_end = true;
                break;
            }
            let outcome = told.contains("the end") || told.contains("not opened");
            assert!(outcome, "{inject}: {told}");
        }
        assert!(
            reached_the_end,
            "{call} is called more often than was tried"
        );
    }
}
