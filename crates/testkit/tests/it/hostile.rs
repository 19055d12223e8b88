//! The hostile servers, looked at with the real OpenSSH client and with bare sockets.

use std::process::{Output, Stdio};
use std::time::Duration;

use remote_sandbox_testkit::{
    ChannelPolicy, ClientKey, EvilSsh, EvilTcp, ExecScript, Offer, Sshd, TcpBehaviour, TestUser,
    wait_until,
};
use russh::Sig;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

const LIMIT: Duration = Duration::from_secs(10);

/// Runs the OpenSSH client with a key of its own; `None` when it did not end within `limit`.
async fn ssh(port: u16, options: &[&str], command: &str, limit: Duration) -> Option<Output> {
    let dir = tempfile::tempdir().unwrap();
    let key = ClientKey::ed25519(dir.path(), "key");
    let child = tokio::process::Command::new("ssh")
        .args(["-F", "none", "-o", "BatchMode=yes", "-o"])
        .args(["StrictHostKeyChecking=no", "-o"])
        .args(["UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o"])
        .args(["IdentitiesOnly=yes", "-o", "IdentityAgent=none", "-i"])
        .arg(key.private_path())
        .args(options)
        .args(["-p", &port.to_string(), "somebody@127.0.0.1", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let output = tokio::time::timeout(limit, child.wait_with_output()).await;
    Some(output.ok()?.unwrap())
}

async fn run_script(script: ExecScript, limit: Duration) -> Option<Output> {
    let server = EvilSsh::builder().exec(script).start().await;
    let output = ssh(server.port(), &[], "some command", limit).await;
    assert_eq!(server.commands(), ["some command"]);
    output
}

#[tokio::test]
async fn evil_ssh_answers_and_remembers() {
    let server = EvilSsh::builder()
        .exec_with(|command| ExecScript::Reply {
            stdout: command.as_bytes().to_vec(),
            stderr: b"noise".to_vec(),
            status: 3,
        })
        .start()
        .await;
    let output = ssh(server.port(), &[], "echo hi", LIMIT).await.unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(output.stdout, b"echo hi");
    assert_eq!(output.stderr, b"noise");
    assert_eq!((server.connections(), server.auth_attempts()), (1, 1));
    assert_eq!(server.channels(), 1);
    let secrets = server.secrets();
    assert!(
        matches!(&secrets[..], [Offer::Signature { user, .. }] if user == "somebody"),
        "{secrets:?}"
    );
    assert!(matches!(server.offers()[0], Offer::Nothing { .. }));
}

#[tokio::test]
async fn evil_ssh_gets_nothing_from_a_client_that_distrusts_its_key() {
    let mut sshd = Sshd::start();
    let port = sshd.port();
    let user = TestUser::current();
    let known_hosts = sshd.known_hosts();
    sshd.stop();
    let server = EvilSsh::builder().port(port).start().await;
    assert!(!known_hosts.contains(server.host_public_key()));
    let (sshd, output) = tokio::task::spawn_blocking(move || {
        let output = sshd.ssh(user.name(), port, "true");
        (sshd, output)
    })
    .await
    .unwrap();
    assert_eq!(output.status.code(), Some(255), "{output:?}");
    assert_eq!(server.connections(), 1);
    assert_eq!(server.offers(), []);
    drop(sshd);
}

#[tokio::test]
async fn evil_ssh_keeps_the_host_key_it_is_given() {
    let dir = tempfile::tempdir().unwrap();
    let key = ClientKey::ed25519(dir.path(), "host");
    let server = EvilSsh::builder()
        .host_key(key.private_path())
        .start()
        .await;
    assert!(key.public_line().starts_with(server.host_public_key()));
    assert!(
        server
            .known_hosts()
            .contains(&format!("]:{} ", server.port()))
    );
}

#[tokio::test]
async fn evil_ssh_rejects_as_often_as_told() {
    let server = EvilSsh::builder().reject_first(1).start().await;
    let first = ssh(server.port(), &[], "true", LIMIT).await.unwrap();
    assert_eq!(first.status.code(), Some(255));
    assert_eq!(server.auth_attempts(), 1);
    let second = ssh(server.port(), &[], "true", LIMIT).await.unwrap();
    assert_eq!(second.status.code(), Some(0), "{second:?}");

    let never = EvilSsh::builder().reject_all().start().await;
    for _ in 0..2 {
        let output = ssh(never.port(), &[], "true", LIMIT).await.unwrap();
        assert_eq!(output.status.code(), Some(255));
    }
    assert_eq!(never.auth_attempts(), 2);
    assert_eq!(never.commands(), Vec::<String>::new());
}

#[tokio::test]
async fn evil_ssh_asks_its_prompts_and_notes_the_answers() {
    let server = EvilSsh::builder()
        .prompts(&[("Password: ", false), ("Colour: ", true)])
        .prompts(&[("Code: ", false)])
        .start()
        .await;
    let config = std::sync::Arc::new(russh::client::Config::default());
    let address = ("127.0.0.1", server.port());
    let mut client = russh::client::connect(config, address, Trusting)
        .await
        .unwrap();
    let mut answer = client
        .authenticate_keyboard_interactive_start("somebody", None::<String>)
        .await
        .unwrap();
    let mut asked = Vec::new();
    use russh::client::KeyboardInteractiveAuthResponse as Reply;
    while let Reply::InfoRequest { prompts, .. } = &answer {
        let replies = prompts.iter().map(|prompt| prompt.prompt.to_uppercase());
        let replies: Vec<String> = replies.collect();
        asked.extend(
            prompts
                .iter()
                .map(|prompt| (prompt.prompt.clone(), prompt.echo)),
        );
        answer = client
            .authenticate_keyboard_interactive_respond(replies)
            .await
            .unwrap();
    }
    assert!(matches!(answer, Reply::Success), "{answer:?}");
    assert_eq!(
        asked,
        [
            ("Password: ".to_owned(), false),
            ("Colour: ".to_owned(), true),
            ("Code: ".to_owned(), false)
        ]
    );
    let secrets = server.secrets();
    let expected = [vec!["PASSWORD: ", "COLOUR: "], vec!["CODE: "]].map(|answers| Offer::Answers {
        user: "somebody".to_owned(),
        answers: answers.into_iter().map(str::to_owned).collect(),
    });
    assert_eq!(secrets, expected);
    assert_eq!(server.auth_attempts(), 1);

    let mut other = russh::client::connect(Default::default(), address, Trusting)
        .await
        .unwrap();
    let result = other.authenticate_password("somebody", "tiger").await;
    assert!(result.unwrap().success());
    let expected = Offer::Password {
        user: "somebody".to_owned(),
        password: "tiger".to_owned(),
    };
    assert_eq!(server.secrets().last(), Some(&expected));
}

struct Trusting;

impl russh::client::Handler for Trusting {
    type Error = russh::Error;

    async fn check_server_key(
        &mut self,
        _: &russh::keys::PublicKeyOrCertificate,
    ) -> Result<bool, russh::Error> {
        Ok(true)
    }
}

#[tokio::test]
async fn evil_ssh_closes_without_a_status() {
    let script = ExecScript::CloseWithoutStatus(b"half".to_vec());
    let output = run_script(script, LIMIT).await.unwrap();
    assert_eq!(output.stdout, b"half");
    assert_eq!(output.status.code(), Some(255), "{output:?}");
}

#[tokio::test]
async fn evil_ssh_reports_a_signal_or_refuses_or_disconnects() {
    let output = run_script(ExecScript::Signal(Sig::SEGV), LIMIT).await;
    assert_eq!(output.unwrap().status.code(), Some(255));
    let output = run_script(ExecScript::Refuse, LIMIT).await.unwrap();
    assert_eq!(output.status.code(), Some(255));
    assert!(String::from_utf8_lossy(&output.stderr).contains("request failed"));
    let output = run_script(ExecScript::Disconnect(b"part".to_vec()), LIMIT).await;
    assert_eq!(output.unwrap().status.code(), Some(255));
}

#[tokio::test]
async fn evil_ssh_leaves_the_client_waiting() {
    let short = Duration::from_millis(1500);
    for script in [
        ExecScript::NeverAnswer,
        ExecScript::Hang(b"x".to_vec()),
        ExecScript::StatusWithoutClose(0),
    ] {
        let name = format!("{script:?}");
        assert!(run_script(script, short).await.is_none(), "{name}");
    }
}

#[tokio::test]
async fn evil_ssh_sends_data_after_the_end_of_stream() {
    let config = std::sync::Arc::new(russh::client::Config::default());
    let script = ExecScript::DataAfterEof(b"late".to_vec());
    let server = EvilSsh::builder().exec(script).start().await;
    let address = ("127.0.0.1", server.port());
    let mut client = russh::client::connect(config, address, Trusting)
        .await
        .unwrap();
    let login = client.authenticate_password("somebody", "x").await.unwrap();
    assert!(login.success());
    let mut channel = client.channel_open_session().await.unwrap();
    channel.exec(true, "anything").await.unwrap();
    channel.data_bytes(vec![1; 5000]).await.unwrap();
    let mut events = Vec::new();
    while let Some(message) = channel.wait().await {
        match message {
            russh::ChannelMsg::Eof => events.push("eof".to_owned()),
            russh::ChannelMsg::Data { data } => {
                events.push(String::from_utf8_lossy(&data).into_owned());
            }
            russh::ChannelMsg::ExitStatus { .. } => events.push("status".to_owned()),
            _ => {}
        }
    }
    assert_eq!(events, ["eof", "late", "status"]);
    assert!(wait_until(LIMIT, || server.bytes_received() == 5000).await);
}

#[tokio::test]
async fn evil_ssh_floods_until_the_client_goes() {
    let server = EvilSsh::builder().exec(ExecScript::Flood).start().await;
    let address = ("127.0.0.1", server.port());
    let mut client = russh::client::connect(Default::default(), address, Trusting)
        .await
        .unwrap();
    let login = client.authenticate_password("somebody", "x").await.unwrap();
    assert!(login.success());
    let mut channel = client.channel_open_session().await.unwrap();
    channel.exec(true, "anything").await.unwrap();
    let flooded = tokio::time::timeout(LIMIT, async {
        let mut received = 0;
        // More than several windows, so that the server must have obeyed the client's adjustments.
        while received < 10 << 20 {
            if let Some(russh::ChannelMsg::Data { data }) = channel.wait().await {
                received += data.len();
            }
        }
    });
    assert!(flooded.await.is_ok());
}

#[tokio::test]
async fn evil_ssh_refuses_or_ignores_channels() {
    let server = EvilSsh::builder()
        .channels(ChannelPolicy::RefuseAfter(0))
        .start()
        .await;
    let output = ssh(server.port(), &[], "true", LIMIT).await.unwrap();
    assert_eq!(output.status.code(), Some(255));
    assert_eq!((server.channels(), server.commands().len()), (1, 0));
    let server = EvilSsh::builder()
        .channels(ChannelPolicy::NeverAnswer)
        .start()
        .await;
    let short = Duration::from_secs(1);
    assert!(ssh(server.port(), &[], "true", short).await.is_none());
    assert_eq!(server.channels(), 1);
}

async fn read_for(port: u16, limit: Duration) -> (Vec<u8>, bool) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let mut got = Vec::new();
    let mut buffer = vec![0; 65536];
    let end = tokio::time::Instant::now() + limit;
    while got.len() < 8 << 20 {
        match tokio::time::timeout_at(end, stream.read(&mut buffer)).await {
            Ok(Ok(0) | Err(_)) => return (got, true),
            Ok(Ok(count)) => got.extend_from_slice(&buffer[..count]),
            Err(_) => break,
        }
    }
    (got, false)
}

#[tokio::test]
async fn evil_tcp_does_what_each_name_says() {
    let moment = Duration::from_millis(400);
    for (behaviour, least, most, closed) in [
        (TcpBehaviour::Silent, 0, 0, false),
        (TcpBehaviour::EndlessLines, 4 << 20, usize::MAX, false),
        (TcpBehaviour::LongLine, 1 << 20, 1 << 20, false),
        (TcpBehaviour::SlowBanner, 1, 1, false),
        (TcpBehaviour::HugePacket, 60_000, 70_000, false),
        (TcpBehaviour::KexGarbage, 4 << 20, usize::MAX, false),
        (TcpBehaviour::BannerThenClose, 21, 21, true),
        (TcpBehaviour::BannerThenDisconnect, 30, 100, true),
        (TcpBehaviour::BannerThenSilence, 21, 21, false),
        (TcpBehaviour::CloseAtOnce, 0, 0, true),
        (TcpBehaviour::HttpAnswer, 20, 100, true),
    ] {
        let server = EvilTcp::start(behaviour).await;
        let (got, ended) = read_for(server.port(), moment).await;
        assert!(got.len() >= least, "{behaviour:?}: {} bytes", got.len());
        assert!(got.len() <= most, "{behaviour:?}: {} bytes", got.len());
        assert_eq!(ended, closed, "{behaviour:?}");
        assert_eq!(server.connections(), 1);
        assert!(server.bytes_sent() >= got.len() as u64, "{behaviour:?}");
        assert_eq!(server.bytes_received(), 0);
    }
}

#[tokio::test]
async fn evil_tcp_disconnect_message_is_understood_by_a_real_client() {
    let server = EvilTcp::start(TcpBehaviour::BannerThenDisconnect).await;
    let output = ssh(server.port(), &[], "true", LIMIT).await.unwrap();
    assert_eq!(output.status.code(), Some(255));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("too many connections"), "{text}");
    // What the client sent may be counted a moment after it has gone.
    assert!(wait_until(LIMIT, || server.bytes_received() > 0).await);
}
