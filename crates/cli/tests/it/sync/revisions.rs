//! The name of a set: by content with `checksum`, by size and time without.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use rstest::rstest;
use serde_json::{Value, json};

use super::Pair;
use crate::files::Kind;

fn revision(done: &Value) -> String {
    assert_eq!(done["problem_count"], 0, "{done}");
    let revision = done["revision"].as_str();
    revision.unwrap_or_else(|| panic!("{done}")).to_owned()
}

fn set_time(path: &std::path::Path, seconds: u64) {
    let file = File::options().append(true).open(path).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    file.set_modified(time).unwrap();
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn checksum_names_the_content_whatever_the_direction_and_the_times(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    pair.write("a", "12345");
    pair.write("d/run.sh", "exit 0");
    pair.write("d/same", "x");
    pair.write("large", vec![b'y'; 9_000_000]);
    fs::set_permissions(pair.here.join("d/run.sh"), PermissionsExt::from_mode(0o755)).unwrap();
    fs::create_dir(pair.here.join("empty")).unwrap();
    symlink("a", pair.here.join("link")).unwrap();
    let first = revision(&pair.up(json!({"checksum": true})).await);
    assert!(first.starts_with("content-"), "{first}");
    let again = pair.up(json!({"checksum": true})).await;
    assert_eq!(
        (&again["uploaded_files"], revision(&again)),
        (&json!(0), first.clone())
    );
    let other = pair.ground.client().home().join("other");
    let down = json!({"local_path": other, "checksum": true});
    let brought = pair.down(down.clone()).await;
    assert_eq!(revision(&brought), first);
    let brought = pair.down(down).await;
    assert_eq!(
        (&brought["downloaded_files"], revision(&brought)),
        (&json!(0), first.clone())
    );
    set_time(&pair.here.join("a"), 1_500_000_000);
    assert_eq!(revision(&pair.up(json!({"checksum": true})).await), first);
    let plain = revision(&pair.up(json!({})).await);
    assert!(plain.starts_with("stamps-"), "{plain}");
}

#[rstest]
#[case::ssh(Kind::Ssh)]
#[case::local(Kind::Local)]
#[tokio::test]
async fn one_byte_of_the_same_size_and_time_changes_the_name_and_is_sent(#[case] kind: Kind) {
    let pair = Pair::new(kind).await;
    pair.write("a", "12345");
    pair.write("b", "other");
    set_time(&pair.here.join("a"), 1_500_000_000);
    let first = revision(&pair.up(json!({"checksum": true})).await);
    pair.write("a", "12355");
    set_time(&pair.here.join("a"), 1_500_000_000);
    let blind = pair.up(json!({})).await;
    assert_eq!(blind["uploaded_files"], 0, "size and time are the same");
    let done = pair.up(json!({"checksum": true})).await;
    assert_eq!(done["uploaded_files"], 1);
    let second = revision(&done);
    assert_ne!(first, second);
    assert_eq!(fs::read(pair.there.join("a")).unwrap(), b"12355");
    // And the other way round.
    pair.write_there("a", "12345");
    set_time(&pair.there.join("a"), 1_500_000_000);
    let done = pair.down(json!({"checksum": true})).await;
    assert_eq!(
        (&done["downloaded_files"], revision(&done)),
        (&json!(1), first)
    );
    assert_eq!(fs::read(pair.here.join("a")).unwrap(), b"12345");
}

#[tokio::test]
async fn lone_file_is_named_by_its_content_too() {
    let pair = Pair::new(Kind::Ssh).await;
    pair.write("a", "12345");
    let file = pair.here.join("a");
    let up = json!({"local_path": file, "remote_path": "there/b", "checksum": true});
    let done = pair.up(up.clone()).await;
    let first = revision(&done);
    assert!(first.starts_with("content-"), "{done}");
    assert_eq!(revision(&pair.up(up).await), first);
    let down =
        json!({"local_path": pair.here.join("b"), "remote_path": "there/b", "checksum": true});
    assert_eq!(revision(&pair.down(down).await), first);
}

/// Number and time of the one file in which a pair is remembered.
fn remembered(pair: &Pair) -> (u64, SystemTime, std::path::PathBuf) {
    let folder = crate::support::state(pair.ground.client()).join("pairs");
    let files: Vec<_> = fs::read_dir(folder).unwrap().collect();
    let [Ok(file)] = &files[..] else {
        panic!("{files:?}");
    };
    let about = file.metadata().unwrap();
    (about.ino(), about.modified().unwrap(), file.path())
}

#[tokio::test]
async fn sync_that_finds_nothing_to_do_writes_nothing_and_names_the_same_set() {
    let pair = Pair::new(Kind::Ssh).await;
    pair.write("a", "12345");
    pair.write("d/b", "x");
    symlink("a", pair.here.join("link")).unwrap();
    let first = revision(&pair.up(json!({})).await);
    let (number, _, file) = remembered(&pair);
    set_time(&file, 1_500_000_000);
    assert_eq!(revision(&pair.up(json!({})).await), first);
    let (again, time, _) = remembered(&pair);
    assert_eq!(number, again, "what is remembered was written anew");
    let age = SystemTime::now().duration_since(time).unwrap_or_default();
    assert!(age < Duration::from_secs(600), "it looks unused: {age:?}");
    // The other direction reads the same record.
    assert_eq!(revision(&pair.down(json!({})).await), first);
    assert_eq!(number, remembered(&pair).0);
    pair.write("a", "other");
    let second = revision(&pair.up(json!({})).await);
    assert!(second != first && number != remembered(&pair).0);
}
