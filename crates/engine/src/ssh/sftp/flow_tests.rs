//! How much is under way, and what happens to it when a caller gives up.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use remote_sandbox_core::sftp::{Attributes, OpenFlags, RemotePath};
use remote_sandbox_testkit::wait_until;
use rstest::rstest;

use super::stand_in::*;
use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

fn path(text: &str) -> RemotePath {
    RemotePath::new(text).unwrap()
}

fn few(requests: usize, bytes: usize) -> Options {
    Options {
        requests,
        bytes,
        ..Options::default()
    }
}

async fn client((read, write): Streams, options: Options) -> Client {
    Client::start_with(read, write, options).await.unwrap()
}

async fn open(client: &Client) -> File {
    client
        .open(&path("f"), OpenFlags::READ, Attributes::default())
        .await
        .unwrap()
}

/// Runs a future for one step only, and gives it up then if it has not come to an end.
fn one_step<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

#[tokio::test]
async fn no_more_requests_are_under_way_than_allowed() {
    let most = Arc::new(Mutex::new(0));
    let seen = most.clone();
    let mut waiting = Vec::new();
    let streams = stand_in(move |asked| {
        waiting.push(asked.id);
        let mut most = seen.lock().unwrap();
        *most = waiting.len().max(*most);
        // Answered only when four are there, so that there are four or the test hangs.
        Act::Say(match waiting.len() {
            4 => {
                let answers = waiting.drain(..).map(|id| size(id, 1));
                answers.collect::<Vec<_>>().concat()
            }
            _ => Vec::new(),
        })
    });
    let client = client(streams, few(4, 1 << 20)).await;
    let calls = (0..100).map(|_| {
        let client = client.clone();
        async move { client.stat(&path("f")).await }
    });
    let all = tokio::time::timeout(PATIENCE, futures::future::try_join_all(calls)).await;
    all.unwrap().unwrap();
    assert_eq!(*most.lock().unwrap(), 4);
}

#[tokio::test]
async fn no_more_bytes_are_under_way_than_allowed() {
    const MOST: usize = 200_000;
    let load = Arc::new(Mutex::new((0, 0)));
    let seen = load.clone();
    let mut waiting: Vec<Asked> = Vec::new();
    let streams = stand_in(move |asked| {
        if asked.kind != READ {
            return Act::Say(handle(asked.id, b"h"));
        }
        waiting.push(asked);
        let under_way: usize = waiting.iter().map(Asked::length).sum();
        let mut load = seen.lock().unwrap();
        load.0 += 1;
        load.1 = under_way.max(load.1);
        // The sixth request of 32 KiB would be too much.
        if under_way < MOST - 32 * 1024 && load.0 < 24 {
            return Act::Say(Vec::new());
        }
        let answers = waiting
            .drain(..)
            .map(|asked| data(asked.id, &vec![7; asked.length()]));
        Act::Say(answers.collect::<Vec<_>>().concat())
    });
    let client = client(streams, few(1000, MOST)).await;
    let file = open(&client).await;
    let length = 24 * 32 * 1024;
    // Two readers share what is allowed.
    let (mut one, mut other) = (Vec::new(), Vec::new());
    let reading = async {
        tokio::join!(
            file.read_range(0, length / 2, &mut one),
            file.read_range(length / 2, length / 2, &mut other),
        )
    };
    let (first, second) = tokio::time::timeout(PATIENCE, reading).await.unwrap();
    assert_eq!(first.unwrap() + second.unwrap(), length);
    let (count, most) = *load.lock().unwrap();
    assert_eq!(count, 24);
    assert!((MOST - 32 * 1024..=MOST).contains(&most), "{most}");
}

#[tokio::test]
async fn request_that_is_larger_than_all_that_is_allowed_goes_alone() {
    let streams = stand_in(|asked| {
        Act::Say(match asked.kind {
            OPEN => handle(asked.id, b"h"),
            READ => data(asked.id, &vec![7; asked.length()]),
            _ => status(asked.id, OK),
        })
    });
    let client = client(streams, few(1, 1)).await;
    let file = open(&client).await;
    let mut read = Vec::new();
    let reading = file.read_range(0, 100_000, &mut read);
    let count = tokio::time::timeout(PATIENCE, reading).await;
    assert_eq!(count.unwrap().unwrap(), 100_000);
    let mut source = [7; 100_000].as_slice();
    let writing = file.write_range(0, &mut source);
    let count = tokio::time::timeout(PATIENCE, writing).await;
    assert_eq!(count.unwrap().unwrap(), 100_000);
}

#[tokio::test]
async fn reader_that_is_not_polled_keeps_nobody_waiting() {
    let streams = stand_in(|asked| {
        Act::Say(match asked.kind {
            OPEN => handle(asked.id, b"h"),
            READ => data(asked.id, &vec![7; asked.length()]),
            STAT => size(asked.id, 5),
            _ => status(asked.id, OK),
        })
    });
    let client = client(streams, few(8, 100_000)).await;
    let file = open(&client).await;
    let mut reader = file.reader(0, u64::MAX);
    for _ in 0..20 {
        reader.next().await.unwrap().unwrap();
        let asking = tokio::time::timeout(PATIENCE, client.stat(&path("f"))).await;
        assert_eq!(asking.unwrap().unwrap().size_bytes, Some(5));
    }
}

#[rstest]
#[case::wide(1 << 20)]
#[case::narrow(40_000)]
#[tokio::test]
async fn reader_loses_nothing_when_its_callers_give_up(#[case] bytes: usize) {
    let content: Vec<u8> = (0..500_000_u32).map(|at| (at * 7 / 3) as u8).collect();
    let served = content.clone();
    let streams = stand_in(move |asked| {
        Act::Say(match asked.kind {
            OPEN => handle(asked.id, b"h"),
            READ => {
                let rest = served.get(asked.offset()..).unwrap_or_default();
                match &rest[..rest.len().min(asked.length()).min(20_000)] {
                    [] => status(asked.id, END_OF_FILE),
                    bytes => data(asked.id, bytes),
                }
            }
            _ => status(asked.id, OK),
        })
    });
    let client = client(streams, few(100, bytes)).await;
    let file = open(&client).await;
    let mut reader = file.reader(0, u64::MAX);
    let (mut read, mut given_up) = (Vec::new(), 0);
    loop {
        match one_step(reader.next()) {
            None => {
                given_up += 1;
                tokio::task::yield_now().await;
            }
            Some(next) => match next.unwrap() {
                Some((at, data)) => {
                    assert_eq!(at, read.len() as u64);
                    read.extend_from_slice(&data);
                }
                None => break,
            },
        }
    }
    assert!(given_up > 5, "{given_up}");
    assert!(read == content);
}

#[tokio::test]
async fn writer_loses_and_repeats_nothing_when_its_callers_give_up() {
    let written = Arc::new(Mutex::new((vec![0; 400_000], 0)));
    let seen = written.clone();
    let streams = stand_in(move |asked| {
        Act::Say(match asked.kind {
            OPEN => handle(asked.id, b"h"),
            WRITE => {
                let mut written = seen.lock().unwrap();
                let (offset, data) = (asked.offset(), asked.data());
                written.0[offset..offset + data.len()].copy_from_slice(data);
                written.1 += data.len();
                status(asked.id, OK)
            }
            _ => status(asked.id, OK),
        })
    });
    let client = client(streams, few(100, 70_000)).await;
    let file = open(&client).await;
    let content: Vec<u8> = (0..400_000_u32).map(|at| (at * 5 / 3) as u8).collect();
    let mut writer = file.writer(0);
    let mut data = Bytes::from(content.clone());
    let mut given_up = 0;
    while !data.is_empty() {
        if let Some(sent) = one_step(writer.send(&mut data)) {
            sent.unwrap();
        } else {
            given_up += 1;
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(writer.finish().await.unwrap(), 400_000);
    assert!(given_up > 2, "{given_up}");
    let written = written.lock().unwrap();
    assert!(written.0 == content);
    assert_eq!(written.1, 400_000);
}

#[tokio::test]
async fn writer_counts_nothing_behind_the_first_refusal() {
    let mut writes = 0;
    let streams = stand_in(move |asked| {
        writes += usize::from(asked.kind == WRITE);
        Act::Say(match asked.kind {
            OPEN => handle(asked.id, b"h"),
            WRITE if writes == 3 => status(asked.id, FAILURE),
            _ => status(asked.id, OK),
        })
    });
    let client = client(streams, Options::default()).await;
    let file = open(&client).await;
    let mut writer = file.writer(1000);
    writer
        .send(&mut Bytes::from(vec![7; 10 * 32 * 1024]))
        .await
        .unwrap();
    let error = writer.finish().await.unwrap_err();
    assert!(error.to_string().contains("failure (as told)"), "{error}");
    assert_eq!(writer.confirmed(), 1000 + 2 * 32 * 1024);
    assert!(writer.finish().await.is_err());
    assert!(writer.send(&mut Bytes::from_static(b"more")).await.is_err());
}

#[tokio::test]
async fn handle_that_comes_too_late_is_closed() {
    let closed = Arc::new(Mutex::new(Vec::new()));
    let seen = closed.clone();
    let mut late = Vec::new();
    let streams = stand_in(move |asked| {
        Act::Say(match asked.kind {
            OPEN => {
                late.push(asked.id);
                Vec::new()
            }
            STAT => {
                let handles = late.drain(..).map(|id| handle(id, b"late"));
                let mut answer = handles.collect::<Vec<_>>().concat();
                answer.extend(size(asked.id, 1));
                answer
            }
            CLOSE => {
                seen.lock().unwrap().push(asked.subject().to_vec());
                status(asked.id, OK)
            }
            other => panic!("{other}"),
        })
    });
    let client = client(streams, Options::default()).await;
    assert!(one_step(open(&client)).is_none());
    client.stat(&path("f")).await.unwrap();
    let is_closed = || *closed.lock().unwrap() == [b"late".to_vec()];
    assert!(wait_until(PATIENCE, is_closed).await);
}
