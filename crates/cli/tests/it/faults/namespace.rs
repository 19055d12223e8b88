//! A network of a test's own: the test runs itself again inside `unshare --net`.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use remote_sandbox_testkit::wait::wait_until_blocking;
use remote_sandbox_testkit::{process, skip};

const INSIDE: &str = "TESTKIT_OWN_NETWORK";

/// Whether this is the run inside; outside it starts that run, waits for it and fails with it.
pub(crate) fn entered(module: &str, test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        command("ip", &["link", "set", "lo", "up"]);
        return true;
    }
    if !process::is_root() {
        skip("needs root: a network namespace");
        return false;
    }
    let allowed = Command::new("unshare")
        .args(["--net", "iptables", "-L", "-n"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !allowed.is_ok_and(|status| status.success()) {
        skip("this machine gives no network namespace with iptables");
        return false;
    }
    // The path of a test starts below the test binary's own name.
    let path = module.split_once("::").map_or("", |(_, path)| path);
    let status = Command::new("unshare")
        .arg("--net")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "--include-ignored"])
        .arg(format!("{path}::{test}"))
        .env(INSIDE, "1")
        .status()
        .unwrap();
    assert!(status.success(), "the run in its own network failed");
    false
}

/// Runs a command that must succeed.
pub(crate) fn command(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {words}");
}

/// Lets no packet from or to a TCP port through, or all of them again.
pub(crate) fn drop_packets(port: u16, drop: bool) {
    let action = if drop { "-A" } else { "-D" };
    for side in ["--dport", "--sport"] {
        let port = port.to_string();
        let rule = [action, "INPUT", "-p", "tcp", side, &port, "-j", "DROP"];
        command("iptables", &rule);
    }
}

/// Gives the loopback a megabit per second and sockets that hold little.
pub(crate) fn slow_loopback() {
    for buffer in ["tcp_wmem", "tcp_rmem"] {
        let sizes = "4096 16384 65536";
        std::fs::write(format!("/proc/sys/net/ipv4/{buffer}"), sizes).unwrap();
    }
    command("ip", &["link", "set", "lo", "mtu", "1500"]);
    let shape = "qdisc add dev lo root tbf rate 2mbit burst 16kb latency 400ms";
    command("tc", &shape.split(' ').collect::<Vec<_>>());
}

/// How many bytes came in over the loopback.
pub(crate) fn loopback_bytes() -> u64 {
    let table = std::fs::read_to_string("/proc/self/net/dev").unwrap();
    let line = table
        .lines()
        .find_map(|line| line.trim().strip_prefix("lo:"));
    let received = line.and_then(|line| line.split_whitespace().next());
    received.unwrap().parse().unwrap()
}

/// A second network, joined to the present one by a virtual cable.
pub(crate) struct Neighbour {
    holder: Child,
}

impl Neighbour {
    /// The address of the near end.
    pub(crate) const NEAR: &'static str = "10.99.0.1";

    /// Makes the network and the cable; the far end has the address after [`Self::NEAR`].
    pub(crate) fn join() -> Self {
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let holder = Command::new("unshare")
            .args(["--net", "sleep", "9199.5"])
            .spawn()
            .unwrap();
        let pid = holder.id().to_string();
        let there = format!("/proc/{pid}/ns/net");
        let apart = wait_until_blocking(Duration::from_secs(5), || {
            std::fs::read_link(&there).is_ok_and(|network| network != own)
        });
        assert!(apart, "no second network");
        let cable = ["link", "add", "near", "type", "veth", "peer", "name", "far"];
        command("ip", &[&cable[..], &["netns", &pid]].concat());
        command("ip", &["addr", "add", "10.99.0.1/30", "dev", "near"]);
        command("ip", &["link", "set", "near", "up"]);
        let neighbour = Self { holder };
        neighbour.inside(&["ip", "addr", "add", "10.99.0.2/30", "dev", "far"]);
        neighbour.inside(&["ip", "link", "set", "far", "up"]);
        neighbour
    }

    /// The arguments of `nsenter` that lead there.
    pub(crate) fn entrance(&self) -> Vec<String> {
        let target = format!("--target={}", self.holder.id());
        vec![target, "--net".to_owned()]
    }

    /// Takes the cable away without a word to either side.
    pub(crate) fn cut(&self) {
        command("ip", &["link", "del", "near"]);
    }

    fn inside(&self, words: &[&str]) {
        let entrance = self.entrance();
        let mut all: Vec<&str> = entrance.iter().map(String::as_str).collect();
        all.extend(words);
        command("nsenter", &all);
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
