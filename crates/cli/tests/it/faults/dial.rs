//! Hosts that cannot be reached, and things that answer without being an SSH server.

use std::time::{Duration, Instant};

use remote_sandbox_testkit::evil_tcp::{EvilTcp, TcpBehaviour};
use remote_sandbox_testkit::mcp::{McpClient, ToolReply};
use remote_sandbox_testkit::proxy::{Direction, FaultProxy};
use remote_sandbox_testkit::sshd::Sshd;
use remote_sandbox_testkit::wait::{free_port, wait_until};
use rstest::rstest;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::namespace;
use crate::support::{entry_via, exec, exec_with, serve, with};

const LIMIT: Duration = Duration::from_secs(2);

/// An entry that leads to a place where no login is ever tried.
fn nowhere(name: &str, host: &str, port: u16) -> Value {
    json!({
        "name": name, "host": host, "port": port, "user": "nobody", "password": "canary-secret-7",
        "connect_timeout_s": 2, "banner_timeout_s": 2, "key_exchange_timeout_s": 2,
    })
}

async fn exec_on(client: &McpClient, sandbox: &str) -> ToolReply {
    let more = json!({"sandbox_name": sandbox});
    exec_with(client, "true", more).await
}

/// A port where the handshake never ends, because nobody takes the connections that wait.
struct FullPort {
    listener: TcpListener,
    _waiting: Vec<TcpStream>,
}

impl FullPort {
    async fn start() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        let patience = Duration::from_millis(500);
        while let Ok(stream) = tokio::time::timeout(patience, TcpStream::connect(address)).await {
            waiting.push(stream.unwrap());
            assert!(waiting.len() < 10, "the queue never fills");
        }
        Self {
            listener,
            _waiting: waiting,
        }
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }
}

/// Four places, four ways not to get there: each names its step and its host, in its time.
async fn four_ways_to_fail(route: &str, name: &str, silent: u16) {
    let refused = free_port();
    let client = serve(&[
        nowhere("refused", "127.0.0.1", refused),
        nowhere("unroutable", route, 22),
        nowhere("unnamed", name, 22),
        nowhere("silent", "127.0.0.1", silent),
    ])
    .await;
    let words = [
        (
            "refused",
            format!("no TCP connection to 127.0.0.1 port {refused}: Connection refused"),
        ),
        (
            "unroutable",
            format!("no TCP connection to {route} port 22: Network is unreachable"),
        ),
        ("unnamed", format!("the name {name} ")),
        (
            "silent",
            format!("127.0.0.1 port {silent} did not answer on TCP within 2 s"),
        ),
    ];
    for (sandbox, expected) in words {
        let begun = Instant::now();
        let reply = exec_on(&client, sandbox).await;
        assert!(begun.elapsed() < LIMIT + Duration::from_millis(1500));
        assert!(reply.is_error);
        assert_eq!(reply.json["code"], "unreachable", "{}", reply.text);
        let error = reply.json["error"].as_str().unwrap();
        assert!(error.contains(&expected), "{error}");
        assert!(error.contains(&format!("`{sandbox}`")), "{error}");
        assert!(!reply.text.contains("canary"), "{}", reply.text);
    }
    let list = client.call_tool("list_sandboxes", json!({})).await;
    assert_eq!(list.json["sandboxes"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn f07_each_way_not_to_reach_a_host_has_its_own_words() {
    let silent = FullPort::start().await;
    // No packet leaves for a broadcast address, and no question for a label above 63 letters.
    let name = format!("{}.invalid", "x".repeat(64));
    four_ways_to_fail("255.255.255.255", &name, silent.port()).await;
}

#[tokio::test]
async fn f07_each_way_not_to_reach_a_host_has_its_own_words_on_a_true_network() {
    let test = "f07_each_way_not_to_reach_a_host_has_its_own_words_on_a_true_network";
    if !namespace::entered(module_path!(), test) {
        return;
    }
    let silent = free_port();
    namespace::drop_packets(silent, true);
    four_ways_to_fail("192.0.2.1", "no-such-host.invalid", silent).await;
}

/// One conversation with something hostile: a clean error in time, with little memory, and the server lives.
async fn refuse_cleanly(behaviour: TcpBehaviour, words: &str) {
    let warm_up = EvilTcp::start(TcpBehaviour::BannerThenClose).await;
    let evil = EvilTcp::start(behaviour).await;
    let client = serve(&[
        nowhere("warm", "127.0.0.1", warm_up.port()),
        nowhere("evil", "127.0.0.1", evil.port()),
    ])
    .await;
    // Memory that any first dial takes is not the hostile one's doing.
    exec_on(&client, "warm").await;
    let memory = client.rss_kb();
    let begun = Instant::now();
    let reply = exec_on(&client, "evil").await;
    let waited = begun.elapsed();
    assert!(waited < LIMIT + Duration::from_secs(2), "{waited:?}");
    assert!(reply.is_error);
    assert_eq!(reply.json["code"], "unreachable", "{}", reply.text);
    let expected = format!("{words} 127.0.0.1 port {}", evil.port());
    assert!(reply.text.contains(&expected), "{}", reply.text);
    assert!(!reply.text.contains("canary"), "{}", reply.text);
    let grown = client.rss_kb().saturating_sub(memory);
    assert!(grown < 2048, "{grown} KiB more");
    assert!(!client.stderr().contains("panicked"), "{}", client.stderr());
    assert!(client.stdout_violations().is_empty());
    let list = client.call_tool("list_sandboxes", json!({})).await;
    assert!(!list.is_error);
}

#[rstest]
#[case::silent(TcpBehaviour::Silent)]
#[case::endless_lines(TcpBehaviour::EndlessLines)]
#[case::long_line(TcpBehaviour::LongLine)]
#[case::byte_per_second(TcpBehaviour::SlowBanner)]
#[case::web_server(TcpBehaviour::HttpAnswer)]
#[case::closed_at_once(TcpBehaviour::CloseAtOnce)]
#[tokio::test]
async fn f08_missing_banner_is_named_within_its_limits(#[case] behaviour: TcpBehaviour) {
    refuse_cleanly(behaviour, "no SSH banner from").await;
}

#[tokio::test]
async fn f08_banner_must_be_whole_within_its_limit() {
    // After five seconds of one byte per second the banner has begun, but it is not there.
    let evil = EvilTcp::start(TcpBehaviour::SlowBanner).await;
    let slow = with(
        nowhere("slow", "127.0.0.1", evil.port()),
        json!({"banner_timeout_s": 5, "key_exchange_timeout_s": 1}),
    );
    let client = serve(&[slow]).await;
    let reply = exec(&client, "true").await;
    let expected = format!(
        "no SSH banner from 127.0.0.1 port {} within 5 s",
        evil.port()
    );
    assert!(reply.text.contains(&expected), "{}", reply.text);
}

#[rstest]
#[case::four_gibibytes_claimed(TcpBehaviour::HugePacket)]
#[case::endless_noise(TcpBehaviour::KexGarbage)]
#[case::disconnected(TcpBehaviour::BannerThenDisconnect)]
#[case::closed(TcpBehaviour::BannerThenClose)]
#[case::silent(TcpBehaviour::BannerThenSilence)]
#[tokio::test]
async fn f09_broken_key_exchange_is_a_clean_error(#[case] behaviour: TcpBehaviour) {
    refuse_cleanly(behaviour, "the key exchange with").await;
}

#[tokio::test]
async fn f16_host_that_fails_is_left_alone_for_longer_and_longer() {
    // One connection per dial: what fails after its banner is not tried a second time by itself.
    let evil = EvilTcp::start(TcpBehaviour::BannerThenClose).await;
    let client = serve(&[nowhere("evil", "127.0.0.1", evil.port())]).await;
    let (mut calls, mut waiting) = (0, Vec::new());
    let mut dials: Vec<Instant> = Vec::new();
    while dials.len() < 4 {
        while waiting.len() < 8 {
            let call = json!({"command": "true"});
            waiting.push(client.start_call("exec_bash", call).await);
            calls += 1;
        }
        let seen = dials.len();
        let news = || {
            let answered = waiting.iter().any(|call| client.has_reply(*call));
            answered || evil.connections() > seen as u64
        };
        assert!(wait_until(Duration::from_secs(10), news).await);
        while (dials.len() as u64) < evil.connections() {
            dials.push(Instant::now());
        }
        waiting.retain(|call| !client.has_reply(*call));
    }
    // Pauses of 1, 2 and 4 s, each up to a quarter shorter or longer, however many call.
    let pauses = [700, 1400, 2900].map(Duration::from_millis);
    for (pair, pause) in dials.windows(2).zip(pauses) {
        let waited = pair[1] - pair[0];
        assert!(waited >= pause, "{waited:?} instead of {pause:?}");
    }
    assert!(calls >= 24, "{calls} calls");
    // The first call may still join the last dial; the second one comes after it.
    exec_on(&client, "evil").await;
    let reply = exec_on(&client, "evil").await;
    assert_eq!(reply.json["code"], "unreachable");
    assert!(reply.text.contains("tried again in"), "{}", reply.text);
    assert_eq!(reply.json["retry"], true);
}

#[tokio::test]
async fn f16_host_that_drops_every_login_is_not_stormed() {
    let sshd = Sshd::start();
    let proxy = FaultProxy::start(sshd.port()).await;
    let through_login = {
        let client = serve(&[entry_via("box", &sshd, proxy.port())]).await;
        let alive = client.call_tool("get_active_sandbox", json!({})).await;
        assert_eq!(alive.json["connection_alive"], true);
        proxy.bytes(Direction::ToClient)
    };
    let before = proxy.connections();
    proxy.cut_each_after(Some(through_login), Direction::ToClient);
    let client = serve(&[entry_via("box", &sshd, proxy.port())]).await;
    let reply = exec(&client, "true").await;
    assert_eq!(reply.json["code"], "remote_refused", "{}", reply.text);
    let dials = proxy.connections() - before;
    assert!((2..=6).contains(&dials), "{dials} dials for one call");
}
