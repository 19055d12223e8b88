//! Sockets of every kind: those of other programs are out of reach, and the network is where it is off.

use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use remote_sandbox_testkit::process;
use remote_sandbox_testkit::wait::skip;
use rstest::rstest;
use serde_json::json;

use super::support::{Cleanup, Local, Setup, Wall, Who, open_folder};
use crate::support::unique;

/// Connects to a socket in a file, or with a leading `@` to one in the kernel's own namespace.
fn connect(address: &str) -> String {
    format!(
        "perl -MSocket -e 'my $a = shift; $a =~ s/^@/\\0/; socket(my $s, AF_UNIX, SOCK_STREAM, 0) or exit 3; connect($s, pack_sockaddr_un($a)) or exit 4' {address}"
    )
}

fn has_perl() -> bool {
    let found = Path::new("/usr/bin/perl").exists();
    if !found {
        skip("perl is not installed");
    }
    found
}

async fn start(who: Who, wall: Wall) -> Option<Local> {
    let local = Setup::new().isolation(wall.word()).start_for(who).await?;
    local.assert_level(wall).await;
    Some(local)
}

fn listen(path: &Path) -> UnixListener {
    let listener = UnixListener::bind(path).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o666)).unwrap();
    listener
}

#[rstest]
#[case::root_bubblewrap(Who::Root, Wall::Bubblewrap)]
#[case::root_landlock(Who::Root, Wall::Landlock)]
#[case::user_account_bubblewrap(Who::Plain, Wall::Bubblewrap)]
#[case::user_account_landlock(Who::Plain, Wall::Landlock)]
#[tokio::test]
async fn sockets_of_other_programs_are_out_of_reach(#[case] who: Who, #[case] wall: Wall) {
    if !has_perl() {
        return;
    }
    let Some(local) = start(who, wall).await else {
        return;
    };
    local.run("true").await;
    let folder = open_folder();
    let anywhere = folder.path().join("socket");
    let mut listeners = vec![listen(&anywhere)];
    let mut paths = vec![anywhere, local.folder("local").join("socket")];
    let at_home = local.home().join("agent");
    listeners.push(listen(&at_home));
    paths.push(at_home);
    let mut files = Vec::new();
    if process::is_root() {
        // Where the one of docker is, which every wall must keep away.
        let run = PathBuf::from(format!("/run/testkit-{}.sock", unique()));
        listeners.push(listen(&run));
        files.push(Cleanup(run.clone()));
        paths.push(run);
    }
    for path in &paths {
        let script = connect(path.to_str().unwrap());
        local.assert_refused("a socket in a file", &script).await;
    }
    for path in ["/run/docker.sock", "/var/run/docker.sock"] {
        let reply = local.run(&connect(path)).await;
        assert!(reply.json["exit_code"].as_i64() > Some(0), "{}", reply.text);
    }
    let name = format!("testkit-{}", unique());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    listeners.push(UnixListener::bind_addr(&address).unwrap());
    if local.is_open("abstract sockets").await {
        skip("the wall does not keep abstract sockets away, and says so");
    } else {
        let script = connect(&format!("@{name}"));
        local.assert_refused("an abstract socket", &script).await;
    }
}

/// Connects over TCP and sends a datagram.
fn send(port: u16, datagrams: u16) -> [String; 2] {
    [
        format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached >&3"),
        format!("echo reached >/dev/udp/127.0.0.1/{datagrams}"),
    ]
}

struct Listeners {
    connections: TcpListener,
    datagrams: UdpSocket,
}

impl Listeners {
    fn new() -> Self {
        let connections = TcpListener::bind("127.0.0.1:0").unwrap();
        connections.set_nonblocking(true).unwrap();
        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        datagrams
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        Listeners {
            connections,
            datagrams,
        }
    }

    fn scripts(&self) -> [String; 2] {
        let connections = self.connections.local_addr().unwrap();
        let datagrams = self.datagrams.local_addr().unwrap();
        send(connections.port(), datagrams.port())
    }

    /// What has come over TCP and as a datagram since the last look.
    fn heard(&self) -> [bool; 2] {
        let connection = self.connections.accept().is_ok_and(|(mut stream, _)| {
            let mut text = String::new();
            stream.set_nonblocking(false).unwrap();
            stream.read_to_string(&mut text).is_ok() && text == "reached\n"
        });
        let datagram = self.datagrams.recv(&mut [0; 16]).is_ok();
        [connection, datagram]
    }
}

#[rstest]
#[case::root_bubblewrap(Who::Root, Wall::Bubblewrap)]
#[case::root_landlock(Who::Root, Wall::Landlock)]
#[case::user_account_bubblewrap(Who::Plain, Wall::Bubblewrap)]
#[case::user_account_landlock(Who::Plain, Wall::Landlock)]
#[tokio::test]
async fn network_is_there_only_where_it_is_on(#[case] who: Who, #[case] wall: Wall) {
    let Some(local) = start(who, wall).await else {
        return;
    };
    let made = local
        .create(json!({"name": "quiet", "network": "off"}))
        .await;
    assert_eq!(made.json["network"], "off");
    assert_eq!(local.line("local").await["network"], "on");
    let listeners = Listeners::new();
    for script in listeners.scripts() {
        // A datagram to a loopback of its own is sent, and nobody hears it.
        let reply = local.run_in("quiet", &script).await;
        let failed = reply.json["exit_code"].as_i64() > Some(0);
        assert!(failed || script.contains("udp"), "{script}: {}", reply.text);
    }
    assert_eq!(listeners.heard(), [false, false]);
    for script in listeners.scripts() {
        let reply = local.run(&script).await;
        assert_eq!(reply.json["exit_code"], 0, "{script}: {}", reply.text);
    }
    assert_eq!(listeners.heard(), [true, true]);
    // Names are asked for over sockets too, also on a machine that has no network itself.
    let reply = local.run_in("quiet", "echo q >/dev/udp/192.0.2.1/53").await;
    assert!(reply.json["exit_code"].as_i64() > Some(0), "{}", reply.text);
    let families = "ls /sys/class/net 2>/dev/null | grep -v '^lo$'; cat /proc/net/dev | sed -n '3,$p' | grep -vc ' lo:'; true";
    if wall == Wall::Bubblewrap {
        let devices = super::support::output(&local.client, "quiet", families).await;
        assert!(devices.ends_with('0'), "{devices}");
    }
}

#[tokio::test]
async fn network_that_the_configuration_turns_off_is_off_unless_a_sandbox_asks() {
    let local = Setup::new().local("network = \"off\"").start().await;
    local.create(json!({"name": "loud", "network": "on"})).await;
    local.create(json!({"name": "plain"})).await;
    let listeners = Listeners::new();
    let [connect, _] = listeners.scripts();
    for (name, word) in [("local", "off"), ("plain", "off"), ("loud", "on")] {
        assert_eq!(local.line(name).await["network"], word);
        let reply = local.run_in(name, &connect).await;
        let reached = reply.json["exit_code"] == 0;
        assert_eq!(reached, word == "on", "{name}: {}", reply.text);
    }
    assert!(listeners.heard()[0]);
}
