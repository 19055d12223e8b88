//! A TCP proxy that behaves like a bad network: slow, frozen, cut, reset, half closed.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::proxy_connection::serve;
use crate::wait::free_port;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server behind the proxy.
    ToServer,
    /// From the server to the client.
    ToClient,
}

impl Direction {
    const BOTH: [Self; 2] = [Self::ToServer, Self::ToClient];

    pub(crate) fn index(self) -> usize {
        match self {
            Self::ToServer => 0,
            Self::ToClient => 1,
        }
    }
}

/// What happens to the bytes of one direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lane {
    pub(crate) delay: Duration,
    pub(crate) frozen: bool,
    pub(crate) bytes_per_second: Option<u64>,
    pub(crate) cut_each_after: Option<u64>,
    pub(crate) half_closes: u64,
    pub(crate) split_seed: Option<u64>,
}

/// What happens to all connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Weather {
    pub(crate) lanes: [Lane; 2],
    pub(crate) resets: u64,
    pub(crate) closes: u64,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) weather: watch::Sender<Weather>,
    pub(crate) forwarded: [AtomicU64; 2],
    pub(crate) cut_once: [Mutex<Option<u64>>; 2],
    target: Mutex<SocketAddr>,
    connections: AtomicU64,
    open: AtomicU64,
}

/// A proxy on a loopback port that leads to one server and obeys the test.
#[derive(Debug)]
pub struct FaultProxy {
    shared: Arc<Shared>,
    port: u16,
    acceptor: Mutex<Option<JoinHandle<()>>>,
    sessions: Arc<Mutex<JoinSet<()>>>,
}

impl FaultProxy {
    /// Listens on a free loopback port and forwards to `target_port` on 127.0.0.1.
    pub async fn start(target_port: u16) -> Self {
        let shared = Arc::new(Shared {
            weather: watch::Sender::new(Weather::default()),
            forwarded: [AtomicU64::new(0), AtomicU64::new(0)],
            cut_once: [Mutex::new(None), Mutex::new(None)],
            target: Mutex::new(loopback(target_port)),
            connections: AtomicU64::new(0),
            open: AtomicU64::new(0),
        });
        let mut listener = None;
        for _ in 0..20 {
            // Not port 0: the port has to be still there after `refuse` and `accept`.
            if let Ok(bound) = TcpListener::bind(loopback(free_port())).await {
                listener = Some(bound);
                break;
            }
        }
        let listener = listener.expect("a loopback port is free");
        let port = listener.local_addr().expect("a bound socket").port();
        let proxy = Self {
            shared,
            port,
            acceptor: Mutex::new(None),
            sessions: Arc::new(Mutex::new(JoinSet::new())),
        };
        proxy.accept_on(listener);
        proxy
    }

    /// The port clients connect to.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Leads connections made from now on to another port.
    pub fn retarget(&self, target_port: u16) {
        *self.shared.target.lock().expect("no holder panicked") = loopback(target_port);
    }

    /// Delivers every byte this much later, both ways; bytes in flight are not held up by each other.
    pub fn delay(&self, each_way: Duration) {
        for direction in Direction::BOTH {
            self.delay_direction(direction, each_way);
        }
    }

    /// Delivers every byte of one direction this much later.
    pub fn delay_direction(&self, direction: Direction, delay: Duration) {
        self.change(direction, |lane| lane.delay = delay);
    }

    /// Closes the connection that forwards the `bytes`-th byte from now on, once.
    pub fn cut_after(&self, bytes: u64, direction: Direction) {
        let mut left = self.shared.cut_once[direction.index()]
            .lock()
            .expect("no holder panicked");
        *left = Some(bytes);
    }

    /// Closes every connection after it forwarded `bytes`, counted from its own start; `None` ends that.
    pub fn cut_each_after(&self, bytes: Option<u64>, direction: Direction) {
        self.change(direction, |lane| lane.cut_each_after = bytes);
    }

    /// Closes every connection after a number of bytes below `below` drawn from `seed`; returns the number.
    pub fn cut_each_randomly(&self, seed: u64, below: u64, direction: Direction) -> u64 {
        let bytes = Random::new(seed).below(below.max(1));
        self.cut_each_after(Some(bytes), direction);
        bytes
    }

    /// Delivers in pieces of random size (1 to 1400 bytes) drawn from `seed`, both ways.
    pub fn split_randomly(&self, seed: u64) {
        for direction in Direction::BOTH {
            self.change(direction, |lane| lane.split_seed = Some(seed));
        }
    }

    /// Delivers nothing and reads nothing in this direction; connections stay open.
    pub fn freeze(&self, direction: Direction) {
        self.change(direction, |lane| lane.frozen = true);
    }

    /// Freezes both directions.
    pub fn freeze_all(&self) {
        for direction in Direction::BOTH {
            self.freeze(direction);
        }
    }

    /// Lets both directions flow again.
    pub fn thaw(&self) {
        for direction in Direction::BOTH {
            self.change(direction, |lane| lane.frozen = false);
        }
    }

    /// Limits the speed, both ways; `None` lifts the limit.
    pub fn trickle(&self, bytes_per_second: Option<u64>) {
        assert_ne!(bytes_per_second, Some(0), "freeze is the word for no speed");
        for direction in Direction::BOTH {
            self.change(direction, |lane| lane.bytes_per_second = bytes_per_second);
        }
    }

    /// Sends an end of stream in this direction on every open connection; the other way stays open.
    pub fn half_close(&self, direction: Direction) {
        self.change(direction, |lane| lane.half_closes += 1);
    }

    /// Ends every open connection with a TCP reset on both sides.
    pub fn drop_all(&self) {
        self.shared
            .weather
            .send_modify(|weather| weather.resets += 1);
    }

    /// Ends every open connection in good order on both sides.
    pub fn close_all(&self) {
        self.shared
            .weather
            .send_modify(|weather| weather.closes += 1);
    }

    /// Stops listening: new connections are refused, open ones go on.
    pub async fn refuse(&self) {
        let acceptor = self.acceptor.lock().expect("no holder panicked").take();
        if let Some(acceptor) = acceptor {
            acceptor.abort();
            let _ = acceptor.await;
        }
    }

    /// Listens again on the same port.
    pub async fn accept(&self) {
        let listener = TcpListener::bind(loopback(self.port))
            .await
            .unwrap_or_else(|error| panic!("port {} is gone: {error}", self.port));
        self.accept_on(listener);
    }

    /// How many connections were taken.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// How many connections are open.
    #[must_use]
    pub fn open_connections(&self) -> u64 {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// How many bytes were delivered in this direction.
    #[must_use]
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.shared.forwarded[direction.index()].load(Ordering::SeqCst)
    }

    fn change(&self, direction: Direction, change: impl FnOnce(&mut Lane)) {
        self.shared
            .weather
            .send_modify(|weather| change(&mut weather.lanes[direction.index()]));
    }

    fn accept_on(&self, listener: TcpListener) {
        let task = tokio::spawn(accept_loop(
            listener,
            Arc::clone(&self.shared),
            Arc::clone(&self.sessions),
        ));
        let before = self
            .acceptor
            .lock()
            .expect("no holder panicked")
            .replace(task);
        assert!(before.is_none(), "the proxy was listening already");
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        if let Ok(mut acceptor) = self.acceptor.lock()
            && let Some(task) = acceptor.take()
        {
            task.abort();
        }
        if let Ok(mut sessions) = self.sessions.lock() {
            sessions.abort_all();
        }
    }
}

async fn accept_loop(
    listener: TcpListener,
    shared: Arc<Shared>,
    sessions: Arc<Mutex<JoinSet<()>>>,
) {
    while let Ok((client, _)) = listener.accept().await {
        shared.connections.fetch_add(1, Ordering::SeqCst);
        let mut sessions = sessions.lock().expect("no holder panicked");
        while sessions.try_join_next().is_some() {}
        // What the test orders from here on is meant for this connection too.
        let at_start = shared.weather.borrow().clone();
        sessions.spawn(run_connection(client, Arc::clone(&shared), at_start));
    }
}

async fn run_connection(client: TcpStream, shared: Arc<Shared>, at_start: Weather) {
    let target = *shared.target.lock().expect("no holder panicked");
    shared.open.fetch_add(1, Ordering::SeqCst);
    let _open = Open(Arc::clone(&shared));
    match TcpStream::connect(target).await {
        Ok(server) => serve(client, server, &shared, &at_start).await,
        Err(_) => {
            // Nothing behind the proxy looks like a host that dropped the line.
            let _ = client.set_zero_linger();
        }
    }
}

/// Counts a connection as open for as long as it lives, also when its task is aborted.
struct Open(Arc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Numbers that look random and repeat for the same seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        // SplitMix64: every seed is good, zero too.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}
