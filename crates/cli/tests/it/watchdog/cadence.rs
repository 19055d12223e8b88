//! f46: hosts that die among many, and when the others are looked at from then on.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::Duration;

use remote_sandbox_testkit::wait::wait_until;
use remote_sandbox_testkit::{FaultProxy, McpClient};
use serde_json::{Value, json};

use super::clocks::works;
use super::site::{Kind, Site};
use super::stored::{open, rows, rows_of};
use super::{Dog, LIMIT};
use crate::faults::namespace;
use crate::jobs::started;
use crate::support::{builder, entry, entry_via, ready};

/// Between two looks at a task, in seconds; a tenth of it is more than a round of the watchdog and a look take.
const INTERVAL_S: u64 = 10;

/// Looks at each task that are timed.
const LOOKS: usize = 5;

/// Many hosts, each with a task: one machine under many names, to which each of the doomed has a way of its own.
struct Fleet {
    dog: Dog,
    client: McpClient,
    doomed: Vec<FaultProxy>,
    _site: Site,
}

impl Fleet {
    async fn start(living: usize, doomed: usize) -> Self {
        // Many views in tmux would only be slow.
        let site = Site::start(Kind::Bare);
        let sshd = site.sshd().expect("a host");
        let mut entries: Vec<Value> = (0..living)
            .map(|number| entry(&format!("living{number}"), sshd))
            .collect();
        let mut ways = Vec::new();
        for number in 0..doomed {
            let way = FaultProxy::start(sshd.port()).await;
            entries.push(entry_via(&format!("doomed{number}"), sshd, way.port()));
            ways.push(way);
        }
        let client = ready(builder(&entries).start()).await;
        // Before there are tasks: it looks at each when it comes, and so not at all of them at once later on.
        let dog = Dog::start_with(client.home(), &["-v"], &[]);
        assert!(wait_until(LIMIT, || works(&dog)).await, "{}", dog.log());
        for entry in &entries {
            let more = json!({
                "sandbox_name": entry["name"], "interval_s": INTERVAL_S, "ensure_watchdog": false,
                "notify_local": false,
            });
            started(&client, "sleep 3600", more).await;
        }
        let fleet = Fleet {
            dog,
            client,
            doomed: ways,
            _site: site,
        };
        fleet.stand("running", living + doomed).await;
        fleet
    }

    /// Waits until so many tasks stand like this.
    async fn stand(&self, state: &str, count: usize) {
        let query = format!("SELECT sandbox FROM watches WHERE last_state = '{state}'");
        let found = || rows_of(self.client.home(), &query).len();
        let enough = wait_until(LIMIT * 2, || found() == count).await;
        assert!(enough, "{state}: {}\n{}", found(), self.dog.log());
    }

    /// When each of the living was looked at, in milliseconds; the first of these looks was before now.
    async fn looks(&self) -> BTreeMap<String, Vec<i64>> {
        let home = self.client.home();
        let store = open(&home.join(".local/state/remote-sandbox-mcp/store.sqlite3"));
        let store = store.expect("a store");
        let query =
            "SELECT sandbox, cast(last_checked AS text) FROM watches WHERE sandbox LIKE 'living%'";
        let mut looks: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        let limit = Duration::from_secs(2 * INTERVAL_S) * u32::try_from(LOOKS).unwrap();
        let look = || {
            for row in rows(&store, query) {
                let at: i64 = row[1].parse().unwrap();
                let times = looks.entry(row[0].clone()).or_default();
                if times.last() != Some(&at) {
                    times.push(at);
                }
            }
            looks.values().all(|times| times.len() > LOOKS)
        };
        let enough = wait_until(limit, look).await;
        assert!(enough, "{looks:?}\n{}", self.dog.log());
        looks
    }
}

/// Has some hosts of many die, and sees that the others are looked at in their interval.
async fn die_among(living: usize, doomed: usize, die: impl Fn(&FaultProxy)) {
    let fleet = Fleet::start(living, doomed).await;
    fleet.doomed.iter().for_each(die);
    let looks = fleet.looks().await;
    assert_eq!(looks.len(), living);
    let interval = i64::try_from(INTERVAL_S * 1000).unwrap();
    let mut worst = 0;
    for (sandbox, times) in &looks {
        for pair in times[1..].windows(2) {
            let off = (pair[1] - pair[0] - interval).abs();
            assert!(off <= interval / 10, "{sandbox}: {off} ms off, {times:?}");
            worst = worst.max(off);
        }
    }
    println!("no look was off by more than {worst} ms");
    // They were asked meanwhile, and they are dead.
    fleet.stand("ssh_unreachable", doomed).await;
    fleet.stand("running", living).await;
}

/// Nothing comes through an open connection any more, and new ones are taken by somebody who never speaks. They do not
/// go to the sshd, which would be full of logins that do not go on.
fn fall_silent(nobody: &TcpListener, way: &FaultProxy) {
    way.retarget(nobody.local_addr().unwrap().port());
    way.freeze_all();
}

#[tokio::test]
#[ignore = "minutes: fifty hosts"]
async fn f46_one_host_that_falls_silent_among_fifty_leaves_the_others_their_interval() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    die_among(49, 1, |way| fall_silent(&nobody, way)).await;
}

#[tokio::test]
#[ignore = "minutes: more than fifty hosts"]
async fn f46_fifty_hosts_that_fall_silent_leave_the_others_their_interval() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    die_among(5, 50, |way| fall_silent(&nobody, way)).await;
}

#[tokio::test]
#[ignore = "root: a network of its own; minutes: fifty hosts"]
async fn f46_one_host_whose_packets_are_dropped_among_fifty_leaves_the_others_their_interval() {
    let test =
        "f46_one_host_whose_packets_are_dropped_among_fifty_leaves_the_others_their_interval";
    if !namespace::entered(module_path!(), test) {
        return;
    }
    die_among(49, 1, |way| namespace::drop_packets(way.port(), true)).await;
}
