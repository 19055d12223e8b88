//! The faulty network.

use std::time::{Duration, Instant};

use remote_sandbox_testkit::{Direction, FaultProxy, Sshd, TestUser, wait_until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const LIMIT: Duration = Duration::from_secs(10);

/// A proxy and the two ends of one connection through it.
async fn connected() -> (FaultProxy, TcpStream, TcpStream, TcpListener) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let proxy = FaultProxy::start(listener.local_addr().unwrap().port()).await;
    let client = TcpStream::connect(("127.0.0.1", proxy.port()))
        .await
        .unwrap();
    let (server, _) = listener.accept().await.unwrap();
    (proxy, client, server, listener)
}

async fn read_some(stream: &mut TcpStream, limit: Duration) -> Option<Vec<u8>> {
    let mut buffer = vec![0; 65536];
    let count = tokio::time::timeout(limit, stream.read(&mut buffer))
        .await
        .ok()?
        .unwrap();
    buffer.truncate(count);
    Some(buffer)
}

#[tokio::test]
async fn proxy_carries_a_real_ssh_session() {
    let sshd = Sshd::start();
    let proxy = FaultProxy::start(sshd.port()).await;
    proxy.split_randomly(7);
    let port = proxy.port();
    let name = TestUser::current().name().to_owned();
    let output = tokio::task::spawn_blocking(move || {
        let output = sshd.ssh(&name, port, "head -c 300000 /dev/zero");
        drop(sshd);
        output
    })
    .await
    .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout.len(), 300_000);
    assert_eq!(proxy.connections(), 1);
    assert!(proxy.bytes(Direction::ToClient) > 300_000);
    assert!(proxy.bytes(Direction::ToServer) > 1000);
    assert!(wait_until(LIMIT, || proxy.open_connections() == 0).await);
}

#[tokio::test]
async fn proxy_delays_each_way_without_piling_up() {
    let (proxy, mut client, mut server, _listener) = connected().await;
    proxy.delay(Duration::from_millis(200));
    let start = Instant::now();
    client.write_all(b"a").await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    client.write_all(b"b").await.unwrap();
    let mut both = [0; 2];
    server.read_exact(&mut both).await.unwrap();
    let took = start.elapsed();
    assert_eq!(&both, b"ab");
    assert!(took >= Duration::from_millis(290), "{took:?}");
    assert!(took < Duration::from_millis(390), "piled up: {took:?}");
}

#[tokio::test]
async fn proxy_cuts_after_exactly_the_bytes_asked() {
    let (proxy, mut client, mut server, listener) = connected().await;
    proxy.cut_after(5, Direction::ToClient);
    server.write_all(b"hello world").await.unwrap();
    let mut got = Vec::new();
    client.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"hello");
    assert_eq!(proxy.bytes(Direction::ToClient), 5);

    // Once only: the next connection is whole.
    let mut again = TcpStream::connect(("127.0.0.1", proxy.port()))
        .await
        .unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    server.write_all(b"hello world").await.unwrap();
    drop(server);
    got.clear();
    again.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"hello world");
}

#[tokio::test]
async fn proxy_cuts_every_connection_when_asked_for_each() {
    let (proxy, mut client, mut server, listener) = connected().await;
    let bytes = proxy.cut_each_randomly(42, 9, Direction::ToServer);
    assert_eq!(bytes, proxy.cut_each_randomly(42, 9, Direction::ToServer));
    for _ in 0..2 {
        client.write_all(b"0123456789").await.unwrap();
        let mut got = Vec::new();
        server.read_to_end(&mut got).await.unwrap();
        assert_eq!(got.len() as u64, bytes);
        client = TcpStream::connect(("127.0.0.1", proxy.port()))
            .await
            .unwrap();
        (server, _) = listener.accept().await.unwrap();
    }
}

#[tokio::test]
async fn proxy_freezes_one_direction_and_thaws() {
    let (proxy, mut client, mut server, _listener) = connected().await;
    proxy.freeze(Direction::ToServer);
    client.write_all(b"ping").await.unwrap();
    assert_eq!(
        read_some(&mut server, Duration::from_millis(150)).await,
        None
    );
    server.write_all(b"pong").await.unwrap();
    assert_eq!(read_some(&mut client, LIMIT).await.unwrap(), b"pong");
    proxy.thaw();
    assert_eq!(read_some(&mut server, LIMIT).await.unwrap(), b"ping");
}

#[tokio::test]
async fn proxy_trickles_at_the_speed_asked() {
    let (proxy, mut client, mut server, _listener) = connected().await;
    proxy.trickle(Some(1000));
    let start = Instant::now();
    client.write_all(&[7; 500]).await.unwrap();
    let mut got = [0; 500];
    server.read_exact(&mut got).await.unwrap();
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(400), "{took:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[tokio::test]
async fn proxy_half_close_leaves_the_other_way_open() {
    let (proxy, mut client, mut server, _listener) = connected().await;
    proxy.half_close(Direction::ToServer);
    assert_eq!(read_some(&mut server, LIMIT).await.unwrap(), b"");
    server.write_all(b"still here").await.unwrap();
    assert_eq!(read_some(&mut client, LIMIT).await.unwrap(), b"still here");
}

#[tokio::test]
async fn proxy_passes_an_ordinary_end_of_stream_on() {
    let (_proxy, mut client, mut server, _listener) = connected().await;
    client.write_all(b"last").await.unwrap();
    client.shutdown().await.unwrap();
    let mut got = Vec::new();
    server.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"last");
    server.write_all(b"answer").await.unwrap();
    assert_eq!(read_some(&mut client, LIMIT).await.unwrap(), b"answer");
}

#[tokio::test]
async fn proxy_resets_when_told_to_drop_and_closes_when_told_to_close() {
    let (proxy, mut client, mut server, listener) = connected().await;
    proxy.drop_all();
    let mut byte = [0];
    for end in [&mut client, &mut server] {
        let error = end.read(&mut byte).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    let mut client = TcpStream::connect(("127.0.0.1", proxy.port()))
        .await
        .unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    proxy.close_all();
    assert_eq!(client.read(&mut byte).await.unwrap(), 0);
    assert_eq!(server.read(&mut byte).await.unwrap(), 0);
}

#[tokio::test]
async fn proxy_refuses_accepts_again_and_changes_its_target() {
    let (proxy, _client, _server, listener) = connected().await;
    proxy.refuse().await;
    let error = TcpStream::connect(("127.0.0.1", proxy.port()))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    proxy.accept().await;
    let other = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    proxy.retarget(other.local_addr().unwrap().port());
    let _again = TcpStream::connect(("127.0.0.1", proxy.port()))
        .await
        .unwrap();
    assert!(tokio::time::timeout(LIMIT, other.accept()).await.is_ok());
    drop(listener);
    assert_eq!(proxy.connections(), 2);
}
