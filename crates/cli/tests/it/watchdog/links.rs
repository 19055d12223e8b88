//! f11, f16: links that come and go, and that are gone for long.

use std::time::{Duration, Instant};

use remote_sandbox_testkit::wait::wait_until;
use remote_sandbox_testkit::{EvilTcp, FaultProxy, McpClient, TcpBehaviour, process};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::stored::rows_of;
use super::{Dog, LIMIT, begun};
use crate::jobs::{Host, check, start, started};
use crate::support::{builder, entry_via, ready, with};

/// A way to a host that can be closed; attempts to go it are counted while it is.
struct Link {
    host: Host,
    proxy: FaultProxy,
    /// Where a closed one leads. A greeting comes from there: what breaks before that is tried again at once, in case a
    /// host only has too many guests, and here each dial is to count once.
    nowhere: EvilTcp,
}

impl Link {
    async fn new() -> Self {
        let host = Host::start();
        let proxy = FaultProxy::start(host.sshd.port()).await;
        Link {
            host,
            proxy,
            nowhere: EvilTcp::start(TcpBehaviour::BannerThenClose).await,
        }
    }

    fn down(&self) {
        self.proxy.retarget(self.nowhere.port());
        self.proxy.drop_all();
    }

    fn up(&self) {
        self.proxy.retarget(self.host.sshd.port());
    }

    fn entry(&self, name: &str) -> Value {
        entry_via(name, &self.host.sshd, self.proxy.port())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        process::kill_and_wait(&self.host.sshd.command_pids());
    }
}

fn watched(interval_s: u64) -> Value {
    json!({"interval_s": interval_s, "ensure_watchdog": false, "notify_local": false})
}

/// Has the link come and go for so long.
async fn flap(link: &Link, phase: Duration, length: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < length {
        tokio::time::sleep(phase).await;
        link.down();
        tokio::time::sleep(phase).await;
        link.up();
    }
}

/// Asks for a job each `pause` while the link comes and goes; then each that was answered must have begun once, and no
/// other more than that.
async fn start_over_flapping_link(length: Duration, pause: Duration, most_dials: u64) {
    let link = Link::new().await;
    let client = ready(builder(&[link.entry("box")]).start()).await;
    let marker = link.host.sshd.dir().join("begun");
    let long = started(&client, "sleep 3600", watched(1)).await;
    let dog = Dog::start(client.home());
    let (mut answered, mut asked) = (Vec::new(), 0);
    let asking = async {
        let begun = Instant::now();
        while begun.elapsed() < length {
            let command = format!("echo {asked} >>{}", marker.display());
            let reply = start(&client, &command, watched(1)).await;
            if !reply.is_error {
                answered.push((asked, reply.json["task_id"].clone()));
            }
            asked += 1;
            tokio::time::sleep(pause).await;
        }
    };
    tokio::join!(flap(&link, Duration::from_secs(5), length), asking);
    let dials = link.proxy.connections();
    println!(
        "{dials} dials for {asked} starts, {} answered",
        answered.len()
    );
    assert!(answered.len() * 4 >= asked, "{} of {asked}", answered.len());
    for (number, task) in &answered {
        let ended = || async {
            let seen = check(&client, json!({ "task_id": task })).await;
            seen["exit_code"] == 0
        };
        let is_there = remote_sandbox_testkit::wait_until_async(LIMIT, ended).await;
        assert!(is_there, "{number}: {task}");
        assert_eq!(begun(&marker, &number.to_string()), 1);
    }
    for number in 0..asked {
        assert!(begun(&marker, &number.to_string()) <= 1, "{number}");
    }
    assert!(dials < most_dials, "{dials} dials for {asked} starts");
    let seen = check(&client, json!({ "task_id": long["task_id"] })).await;
    assert_eq!(seen["running"], true, "{seen}\n{}", dog.log());
}

#[tokio::test]
async fn f11_starts_over_a_link_that_comes_and_goes_run_once_and_are_not_a_storm() {
    start_over_flapping_link(Duration::from_secs(30), Duration::from_secs(2), 30).await;
}

#[tokio::test]
#[ignore = "minutes: a link that comes and goes for five of them"]
async fn f11_five_minutes_of_a_link_that_comes_and_goes_take_less_than_sixty_dials() {
    let (length, pause) = (Duration::from_secs(300), Duration::from_secs(12));
    start_over_flapping_link(length, pause, 60).await;
}

fn signal_both(client: &McpClient, dog: &Dog, signal: Signal) {
    for pid in [client.pid(), dog.pid()] {
        process::signal(pid, signal);
    }
}

/// Takes several hosts away for so long, the second half of it asleep; all come back by themselves.
async fn stay_away(length: Duration, most_dials: u64) {
    let links = [Link::new().await, Link::new().await, Link::new().await];
    let name = |number: usize| format!("box{number}");
    let entries: Vec<Value> = links
        .iter()
        .enumerate()
        .map(|(number, link)| link.entry(&name(number)))
        .collect();
    let client = ready(builder(&entries).start()).await;
    let mut tasks = Vec::new();
    // Several of one host, which must not mean several dials.
    for number in (0..links.len()).cycle().take(3 * links.len()) {
        let more = with(watched(1), json!({"sandbox_name": name(number)}));
        tasks.push(started(&client, "sleep 3600", more).await);
    }
    let dog = Dog::start(client.home());
    let looked = || {
        let query = "SELECT type FROM events UNION ALL SELECT last_state FROM watches WHERE last_state = 'running'";
        rows_of(client.home(), query).len() == tasks.len()
    };
    assert!(wait_until(LIMIT, looked).await, "{}", dog.log());
    let before: Vec<u64> = links.iter().map(|link| link.proxy.connections()).collect();
    links.iter().for_each(Link::down);
    tokio::time::sleep(length / 2).await;
    signal_both(&client, &dog, Signal::STOP);
    tokio::time::sleep(length / 2).await;
    links.iter().for_each(Link::up);
    signal_both(&client, &dog, Signal::CONT);
    for task in &tasks {
        let query = json!({"task_id": task["task_id"]});
        let runs = || async { check(&client, query.clone()).await["running"] == true };
        assert!(
            remote_sandbox_testkit::wait_until_async(LIMIT, runs).await,
            "{task}"
        );
    }
    let told = |word: &str| {
        let query = format!("SELECT type FROM events WHERE type = '{word}'");
        rows_of(client.home(), &query).len()
    };
    let restored = || told("running_restored") == tasks.len();
    let is_well = wait_until(LIMIT * 4, restored).await;
    assert!(
        is_well,
        "{} restored\n{}",
        told("running_restored"),
        dog.log()
    );
    assert_eq!(told("ssh_unreachable"), tasks.len(), "each once");
    let all = rows_of(client.home(), "SELECT type FROM events");
    assert_eq!(all.len(), 2 * tasks.len(), "{all:?}");
    for (link, before) in links.iter().zip(before) {
        let dials = link.proxy.connections() - before;
        println!("{dials} dials in {length:?}");
        assert!(dials <= most_dials, "{dials} dials in {length:?}");
    }
}

#[tokio::test]
async fn f16_hosts_that_are_away_for_long_come_back_without_a_restart_and_a_storm() {
    stay_away(Duration::from_secs(24), 9).await;
}

#[tokio::test]
#[ignore = "minutes: three hosts are away for ten of them"]
async fn f16_hosts_that_are_away_for_ten_minutes_come_back_without_a_restart_and_a_storm() {
    stay_away(Duration::from_secs(600), 20).await;
}
