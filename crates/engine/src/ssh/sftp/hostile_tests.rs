use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::sftp::{Attributes, Extension, OpenFlags, PacketError, RemotePath};
use rstest::rstest;

use super::stand_in::*;
use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

fn path(text: &str) -> RemotePath {
    RemotePath::new(text).unwrap()
}

async fn client((read, write): Streams) -> Client {
    Client::start(read, write).await.unwrap()
}

async fn open(client: &Client) -> File {
    client
        .open(&path("f"), OpenFlags::READ, Attributes::default())
        .await
        .unwrap()
}

async fn failed_start((read, write): Streams) -> Arc<Loss> {
    match Client::start(read, write).await {
        Err(SftpError::Closed(loss)) => loss,
        other => panic!("{other:?}"),
    }
}

/// The bytes that break a conversation, made for the request that came last.
type Poison = fn(&Asked) -> Act;

fn unknown_id(asked: &Asked) -> Act {
    Act::Say(status(asked.id + 1000, OK))
}

fn same_twice(asked: &Asked) -> Act {
    Act::Say([size(asked.id, 1), size(asked.id, 1)].concat())
}

fn oversized(_: &Asked) -> Act {
    Act::Say(vec![0x7f, 0xff, 0xff, 0xff, 101])
}

fn too_short(_: &Asked) -> Act {
    Act::Say(vec![0, 0, 0, 2, 101, 0])
}

fn cut_off(asked: &Asked) -> Act {
    let whole = size(asked.id, 1);
    Act::End(whole[..whole.len() - 1].to_vec())
}

fn ended(_: &Asked) -> Act {
    Act::End(Vec::new())
}

fn truncated_inside(asked: &Asked) -> Act {
    Act::Say(reply(105, asked.id, &[0, 0, 0, 1, 9]))
}

fn other_kind(asked: &Asked) -> Act {
    Act::Say(data(asked.id, b"what"))
}

fn ok_without_an_answer(asked: &Asked) -> Act {
    Act::Say(status(asked.id, OK))
}

fn unknown_kind(asked: &Asked) -> Act {
    Act::Say(reply(150, asked.id, b""))
}

fn long_handle(asked: &Asked) -> Act {
    Act::Say(handle(asked.id, &[1; 257]))
}

#[rstest]
#[case::unknown_id(unknown_id, "which is not open")]
#[case::same_twice(same_twice, "which is not open")]
#[case::oversized(oversized, "claims 2147483647 bytes")]
#[case::too_short(too_short, "a packet of 2 bytes cannot be a reply")]
#[case::cut_off(cut_off, "in the middle of a packet")]
#[case::ended(ended, "the server ended it")]
#[case::truncated_inside(truncated_inside, "a packet is cut off")]
#[case::other_kind(other_kind, "with something else")]
#[case::ok_without_an_answer(ok_without_an_answer, "with something else")]
#[case::unknown_kind(unknown_kind, "unknown kind 150")]
#[case::long_handle(long_handle, "a handle of 257 bytes")]
#[tokio::test]
async fn every_call_fails_when_the_server_breaks_the_protocol(
    #[case] poison: Poison,
    #[case] words: &str,
) {
    let mut count = 0;
    let client = client(stand_in(move |asked| {
        count += 1;
        match count {
            20 => poison(&asked),
            _ => Act::Say(Vec::new()),
        }
    }))
    .await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let client = client.clone();
        calls.spawn(async move { client.stat(&path("f")).await });
    }
    let results = tokio::time::timeout(PATIENCE, calls.join_all()).await;
    // The one reply that is in order may arrive before its double.
    let errors: Vec<_> = results
        .unwrap()
        .into_iter()
        .filter_map(Result::err)
        .collect();
    assert!(errors.len() >= 19, "{}", errors.len());
    for error in errors {
        let text = Failure::chain(&error);
        assert!(text.contains(words), "{text}");
    }
    let later = client.stat(&path("f")).await.unwrap_err();
    assert!(Failure::chain(&later).contains(words));
}

#[tokio::test]
async fn more_data_than_was_asked_for_ends_the_conversation() {
    let client = client(stand_in(|asked| {
        Act::Say(match asked.kind {
            OPEN => handle(asked.id, b"h"),
            _ => data(asked.id, &[7; 101]),
        })
    }))
    .await;
    let file = open(&client).await;
    let error = file.read(0, 100).await.unwrap_err();
    let text = Failure::chain(&error);
    assert!(
        text.contains("101 bytes where 100 were asked for"),
        "{text}"
    );
}

#[tokio::test]
async fn handles_go_back_byte_for_byte() {
    let table: Vec<Vec<u8>> = (128..=255_u8)
        .map(|byte| vec![0, 0, 0, byte])
        .chain([vec![], vec![0xff; 256], (0..=255).collect(), vec![0xc3]])
        .collect();
    let (given, count) = (table.clone(), table.len());
    let returned = Arc::new(Mutex::new(Vec::new()));
    let seen = returned.clone();
    let mut next = 0;
    let client = client(stand_in(move |asked| {
        Act::Say(match asked.kind {
            OPEN => {
                next += 1;
                handle(asked.id, &given[next - 1])
            }
            READ => data(asked.id, &[asked.subject().len() as u8]),
            CLOSE => {
                seen.lock().unwrap().push(asked.subject().to_vec());
                status(asked.id, OK)
            }
            other => panic!("{other}"),
        })
    }))
    .await;
    let mut files = Vec::new();
    for _ in 0..count {
        files.push(open(&client).await);
    }
    for (file, bytes) in files.into_iter().zip(&table) {
        assert_eq!(file.read(0, 1).await.unwrap(), [bytes.len() as u8][..]);
        file.close().await.unwrap();
    }
    assert_eq!(*returned.lock().unwrap(), table);
}

#[tokio::test]
async fn replies_find_their_calls_when_they_come_in_another_order() {
    let mut asked_for = Vec::new();
    let client = client(stand_in(move |asked| {
        asked_for.push(asked);
        if asked_for.len() < 50 {
            return Act::Say(Vec::new());
        }
        let answers = asked_for.drain(..).rev().map(|asked| {
            let name = String::from_utf8(asked.subject().to_vec()).unwrap();
            size(asked.id, name.parse().unwrap())
        });
        Act::Say(answers.collect::<Vec<_>>().concat())
    }))
    .await;
    let calls = (0..50_u64).map(|number| {
        let client = client.clone();
        async move { client.stat(&path(&number.to_string())).await }
    });
    let sizes = futures::future::try_join_all(calls).await.unwrap();
    let sizes: Vec<_> = sizes
        .iter()
        .map(|attributes| attributes.size_bytes.unwrap())
        .collect();
    assert_eq!(sizes, (0..50).collect::<Vec<_>>());
}

fn content(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at % 251) as u8 ^ (at / 251) as u8)
        .collect()
}

/// A server of one file that gives at most so many bytes per read.
fn short_reads(content: Vec<u8>, most: usize) -> Streams {
    stand_in(move |asked| {
        Act::Say(match asked.kind {
            OPEN => handle(asked.id, b"h"),
            READ => {
                let rest = content.get(asked.offset()..).unwrap_or_default();
                match &rest[..rest.len().min(asked.length()).min(most)] {
                    [] => status(asked.id, END_OF_FILE),
                    bytes => data(asked.id, bytes),
                }
            }
            _ => status(asked.id, OK),
        })
    })
}

#[rstest]
#[case::one_byte(1, 5_000)]
#[case::odd(1_000, 300_000)]
#[case::nearly_whole(32 * 1024 - 1, 1_000_000)]
#[case::whole(1 << 20, 1_000_000)]
#[tokio::test]
async fn file_is_whole_when_the_server_gives_less_than_asked(
    #[case] most: usize,
    #[case] length: usize,
) {
    let content = content(length);
    let client = client(short_reads(content.clone(), most)).await;
    let file = open(&client).await;
    let mut whole = Vec::new();
    let read = file.read_range(0, u64::MAX, &mut whole).await.unwrap();
    assert_eq!(read, length as u64);
    assert!(whole == content);
    let mut part = Vec::new();
    file.read_range(777, 2_222, &mut part).await.unwrap();
    assert!(part == content[777..2_999]);
}

#[tokio::test]
async fn reader_stops_when_the_server_gives_nothing_for_ever() {
    let client = client(stand_in(|asked| {
        Act::Say(match asked.kind {
            OPEN => handle(asked.id, b"h"),
            READ => data(asked.id, b""),
            _ => status(asked.id, OK),
        })
    }))
    .await;
    let file = open(&client).await;
    let error = file.read_range(0, 100, &mut Vec::new()).await.unwrap_err();
    assert!(matches!(error, SftpError::NoProgress { .. }), "{error:?}");
}

/// A server of one directory whose entries never end.
fn endless(batch: impl Fn(u32) -> Vec<u8> + Send + 'static) -> Streams {
    stand_in(move |asked| {
        Act::Say(match asked.kind {
            OPENDIR => handle(asked.id, b"d"),
            READDIR => batch(asked.id),
            _ => status(asked.id, OK),
        })
    })
}

#[tokio::test]
async fn endless_directory_ends_at_the_callers_limit() {
    let client = client(endless(|id| names(id, &[b".", b"a", b"b", b"c"]))).await;
    let mut listing = client.read_dir(&path("d"), 100).await.unwrap();
    let mut seen = 0;
    let error = loop {
        match listing.next_batch().await {
            Ok(batch) => seen += batch.unwrap().entries.len(),
            Err(error) => break error,
        }
    };
    assert_eq!(seen, 100);
    assert!(
        matches!(error, SftpError::TooManyEntries { most: 100, .. }),
        "{error:?}"
    );
    assert!(listing.next_batch().await.is_err());
}

#[rstest]
#[case::empty(&[])]
#[case::dots(&[b"." as &[u8], b".."])]
#[tokio::test]
async fn directory_ends_when_nothing_comes_of_it(#[case] entries: &'static [&'static [u8]]) {
    let client = client(endless(move |id| names(id, entries))).await;
    let mut listing = client.read_dir(&path("d"), usize::MAX).await.unwrap();
    let ending = tokio::time::timeout(PATIENCE, listing.collect()).await;
    let error = ending.unwrap().unwrap_err();
    assert!(matches!(error, SftpError::NoProgress { .. }), "{error:?}");
}

#[tokio::test]
async fn names_that_lead_elsewhere_are_set_apart() {
    let mut batches = VecDeque::from([
        vec![b"good".as_slice(), b"../x", b"/etc/x", b".."],
        vec![b"", b"a\0b", b"also good"],
    ]);
    let client = client(stand_in(move |asked| {
        Act::Say(match (asked.kind, &mut batches) {
            (OPENDIR, _) => handle(asked.id, b"d"),
            (READDIR, batches) => match batches.pop_front() {
                Some(batch) => names(asked.id, &batch),
                None => status(asked.id, END_OF_FILE),
            },
            _ => status(asked.id, OK),
        })
    }))
    .await;
    let mut listing = client.read_dir(&path("d"), 100).await.unwrap();
    let batch = listing.collect().await.unwrap();
    let good: Vec<_> = batch.entries.iter().map(|e| e.name.to_string()).collect();
    assert_eq!(good, ["good", "also good"]);
    assert_eq!(batch.refused.len(), 4);
    assert!(
        batch.refused[0].to_string().contains("`../x`"),
        "{}",
        batch.refused[0]
    );
}

#[tokio::test]
async fn listing_is_whole_when_the_server_answers_side_by_side() {
    // The end overtakes the last entries.
    let mut asked_for = Vec::new();
    let client = client(stand_in(move |asked| match asked.kind {
        OPENDIR => Act::Say(handle(asked.id, b"d")),
        READDIR => {
            asked_for.push(asked.id);
            Act::Say(match asked_for.as_slice() {
                [first, second] => {
                    [status(*first, END_OF_FILE), names(*second, &[b"late"])].concat()
                }
                [_] => Vec::new(),
                _ => status(asked.id, END_OF_FILE),
            })
        }
        _ => Act::Say(status(asked.id, OK)),
    }))
    .await;
    let mut listing = client.read_dir(&path("d"), 100).await.unwrap();
    let batch = listing.collect().await.unwrap();
    assert_eq!(batch.entries.len(), 1);
}

#[tokio::test]
async fn start_fails_with_the_text_when_login_files_print() {
    let greeting = b"Welcome to \x1b[1mhost\x1b[0m!\nlast login: ...\n".to_vec();
    let loss = failed_start(stand_in_with(greeting, |_| Act::Say(Vec::new()))).await;
    let text = loss.to_string();
    assert!(
        text.contains("Welcome to") && !text.contains('\u{1b}'),
        "{text}"
    );
}

#[rstest]
#[case(2)]
#[case(6)]
#[tokio::test]
async fn start_fails_when_the_server_speaks_another_version(#[case] version: u32) {
    let greeting = packet(2, &version.to_be_bytes());
    let loss = failed_start(stand_in_with(greeting, |_| Act::Say(Vec::new()))).await;
    let found = matches!(&*loss, Loss::Packet(PacketError::Version(found)) if *found == version);
    assert!(found, "{loss:?}");
}

#[tokio::test(start_paused = true)]
async fn start_fails_when_the_server_says_nothing() {
    let loss = failed_start(stand_in_with(Vec::new(), |_| Act::Say(Vec::new()))).await;
    assert!(matches!(*loss, Loss::Silent(_)), "{loss:?}");
}

/// A server that tells its limits; all that is opened has the same handle.
fn with_limits(values: [u64; 4]) -> Streams {
    let extension = Extension::Limits;
    let pair = [
        counted(extension.name().as_bytes()),
        counted(extension.version().as_bytes()),
    ];
    let greeting = [vec![0, 0, 0, 3], pair.concat()].concat();
    stand_in_with(packet(2, &greeting), move |asked| {
        Act::Say(match asked.kind {
            EXTENDED => reply(201, asked.id, &values.map(u64::to_be_bytes).concat()),
            OPEN => handle(asked.id, b"h"),
            _ => status(asked.id, OK),
        })
    })
}

#[rstest]
#[case::tiny(1, 4096)]
#[case::unsaid(0, 32 * 1024)]
#[case::usual(261_120, 128 * 1024)]
#[case::huge(u64::MAX, 128 * 1024)]
#[tokio::test]
async fn limits_are_followed_as_far_as_they_make_sense(#[case] value: u64, #[case] length: u32) {
    let client = client(with_limits([value; 4])).await;
    assert_eq!(client.read_length(), length);
    assert_eq!(client.write_length(), length);
}

#[tokio::test]
async fn open_fails_at_once_when_the_server_allows_no_more_handles() {
    let client = client(with_limits([0, 0, 0, 2])).await;
    let first = open(&client).await;
    let _second = open(&client).await;
    let third = client
        .open(&path("f"), OpenFlags::READ, Attributes::default())
        .await;
    assert!(
        matches!(third, Err(SftpError::TooManyHandles { most: 2, .. })),
        "{third:?}"
    );
    first.close().await.unwrap();
    open(&client).await;
}

#[tokio::test]
async fn extension_that_is_not_offered_is_not_asked_for() {
    let client = client(stand_in(|asked| panic!("{asked:?}"))).await;
    let (a, b) = (path("a"), path("b"));
    let errors = [
        client.posix_rename(&a, &b).await,
        client.hardlink(&a, &b).await,
        client.lsetstat(&a, Attributes::default()).await,
        client.statvfs(&a).await.map(drop),
        client.expand_path(&a).await.map(drop),
    ];
    for result in errors {
        assert!(matches!(result, Err(SftpError::Missing(_))), "{result:?}");
    }
}
