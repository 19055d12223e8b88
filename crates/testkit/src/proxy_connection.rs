//! One proxied connection: two lanes, each a reader and a writer with a bounded queue between.

use std::time::{Duration, Instant};

use bytes::Bytes;
use std::sync::atomic::Ordering;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};

use crate::proxy::{Direction, Lane, Random, Shared, Weather};

const CHUNK_BYTES: usize = 16 << 10;
const QUEUE_CHUNKS: usize = 1024;

/// How a connection came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Both sides get an ordinary end of stream.
    Closed,
    /// Both sides get a reset.
    Reset,
}

type Chunk = (Instant, Bytes);

/// Forwards between two sockets until they or the test end it.
pub(crate) async fn serve(
    mut client: TcpStream,
    mut server: TcpStream,
    shared: &Shared,
    at_start: &Weather,
) {
    // A proxy must not add its own delays.
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let end = {
        let (client_read, client_write) = client.split();
        let (server_read, server_write) = server.split();
        let to_server = run_lane(
            client_read,
            server_write,
            shared,
            at_start,
            Direction::ToServer,
        );
        let to_client = run_lane(
            server_read,
            client_write,
            shared,
            at_start,
            Direction::ToClient,
        );
        let both = async { tokio::try_join!(to_server, to_client) };
        tokio::select! {
            result = both => result.err().unwrap_or(End::Closed),
            end = ended_by_test(shared.weather.subscribe(), at_start) => end,
        }
    };
    if end == End::Reset {
        let _ = client.set_zero_linger();
        let _ = server.set_zero_linger();
    }
}

async fn ended_by_test(mut weather: watch::Receiver<Weather>, at_start: &Weather) -> End {
    let (resets, closes) = (at_start.resets, at_start.closes);
    let changed = weather.wait_for(|now| now.resets != resets || now.closes != closes);
    match changed.await {
        Ok(now) if now.resets == resets => End::Closed,
        _ => End::Reset,
    }
}

/// Carries one direction; an error ends the whole connection.
async fn run_lane(
    from: ReadHalf<'_>,
    to: WriteHalf<'_>,
    shared: &Shared,
    at_start: &Weather,
    direction: Direction,
) -> Result<(), End> {
    let (queue, chunks) = mpsc::channel(QUEUE_CHUNKS);
    let reader = read_lane(from, queue, LaneView::new(shared, direction));
    let half_closes = at_start.lanes[direction.index()].half_closes;
    let view = LaneView::new(shared, direction);
    let writer = write_lane(to, chunks, shared, view, half_closes);
    tokio::try_join!(reader, writer).map(|_| ())
}

/// What the test wants of one direction, now and when it changes.
struct LaneView {
    weather: watch::Receiver<Weather>,
    direction: Direction,
}

impl LaneView {
    fn new(shared: &Shared, direction: Direction) -> Self {
        Self {
            weather: shared.weather.subscribe(),
            direction,
        }
    }

    fn now(&mut self) -> Lane {
        self.weather.borrow_and_update().lanes[self.direction.index()].clone()
    }

    /// Waits until the lane satisfies `condition`; for ever when the proxy is gone, since then the task ends too.
    async fn until(&mut self, condition: impl Fn(&Lane) -> bool) {
        let index = self.direction.index();
        let met = self.weather.wait_for(|now| condition(&now.lanes[index]));
        if met.await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

async fn read_lane(
    mut from: ReadHalf<'_>,
    queue: mpsc::Sender<Chunk>,
    mut lane: LaneView,
) -> Result<(), End> {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        lane.until(|lane| !lane.frozen).await;
        let count = from.read(&mut buffer).await.map_err(|_| End::Reset)?;
        if count == 0 {
            return Ok(());
        }
        let due = Instant::now() + lane.now().delay;
        let chunk = Bytes::copy_from_slice(&buffer[..count]);
        // A failure means that the lane was half closed: what comes now is lost, as on a real link.
        let _ = queue.send((due, chunk)).await;
    }
}

async fn write_lane(
    mut to: WriteHalf<'_>,
    mut chunks: mpsc::Receiver<Chunk>,
    shared: &Shared,
    mut lane: LaneView,
    half_closes: u64,
) -> Result<(), End> {
    let mut half_closed = LaneView::new(shared, lane.direction);
    let mut progress = Progress {
        sent: 0,
        random: None,
    };
    let carry = async {
        while let Some((due, mut chunk)) = chunks.recv().await {
            tokio::time::sleep_until(due.into()).await;
            while !chunk.is_empty() {
                lane.until(|lane| !lane.frozen).await;
                deliver_piece(&mut to, &mut chunk, shared, &mut lane, &mut progress).await?;
            }
        }
        Ok(())
    };
    let outcome = tokio::select! {
        outcome = carry => outcome,
        () = half_closed.until(|lane| lane.half_closes != half_closes) => Ok(()),
    };
    outcome?;
    let _ = to.shutdown().await;
    Ok(())
}

struct Progress {
    sent: u64,
    random: Option<Random>,
}

/// Delivers the next piece of a chunk, as large as the present weather allows.
async fn deliver_piece(
    to: &mut WriteHalf<'_>,
    chunk: &mut Bytes,
    shared: &Shared,
    lane: &mut LaneView,
    progress: &mut Progress,
) -> Result<(), End> {
    let now = lane.now();
    let mut size = chunk.len();
    if let Some(rate) = now.bytes_per_second {
        // Twenty pieces a second are smooth enough.
        size = size.min(usize::try_from(rate / 20).unwrap_or(usize::MAX).max(1));
    }
    if let Some(seed) = now.split_seed {
        let random = progress.random.get_or_insert_with(|| Random::new(seed));
        size = size.min(1 + random.below(1400) as usize);
    }
    let index = lane.direction.index();
    let mut cut = false;
    if let Some(limit) = now.cut_each_after {
        let left = usize::try_from(limit.saturating_sub(progress.sent)).unwrap_or(usize::MAX);
        cut = size >= left;
        size = size.min(left);
    }
    {
        let mut once = shared.cut_once[index].lock().expect("no holder panicked");
        if let Some(left) = once.as_mut() {
            let allowed = usize::try_from(*left).unwrap_or(usize::MAX);
            if size >= allowed {
                size = allowed;
                cut = true;
                *once = None;
            } else {
                *left -= size as u64;
            }
        }
    }
    let piece = chunk.split_to(size);
    to.write_all(&piece).await.map_err(|_| End::Reset)?;
    shared.forwarded[index].fetch_add(size as u64, Ordering::SeqCst);
    progress.sent += size as u64;
    if cut {
        return Err(End::Closed);
    }
    if let Some(rate) = now.bytes_per_second {
        tokio::time::sleep(Duration::from_secs_f64(size as f64 / rate as f64)).await;
    }
    Ok(())
}
