//! Sends the parts of a file over several channels at the same time.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{join, try_join_all};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use super::error::LargeError;
use super::place::Place;
use super::source::Source;
use crate::clock;
use crate::sandbox::Sandbox;
use crate::sandbox::conversation::{File, SftpError};
use crate::sync::Progress;

/// Bytes that are taken from the queue at once. A slow channel holds up no more than a few of these.
const PIECE: u64 = 512 * 1024;

/// Pieces under way on one channel; more do not fit into what a server lets a channel have.
const LANES: usize = 4;

/// Most channels for one file. Each has a window of its own at the server, which is what bounds a distant one.
const MOST_CHANNELS: u64 = 8;

/// A further channel pays for so many bytes at least.
const BYTES_OF_CHANNEL: u64 = 8 * 1024 * 1024;

/// Pieces under way in all: 8 MiB, which may lie in memory twice, here and in the connection.
const MOST_PIECES: usize = 16;

/// The same while it is open whether all of it has to go: what is under way stands in the way of all that comes later.
const GENTLE_PIECES: usize = 2;
const GENTLE_PIECE: u64 = 64 * 1024;

/// The same while it is open whether they should go packed. At 80 ms these are 200 Mbit/s, so a link that is fast enough
/// is not taken for a slow one before that.
const TRIAL_PIECES: usize = 4;

/// The parts of one file that have to go to its place.
pub(super) struct Stripes<'a> {
    far: &'a dyn Sandbox,
    source: &'a Source,
    place: &'a Place,
    progress: &'a Progress,
    queue: Mutex<VecDeque<Range<u64>>>,
    room: Semaphore,
    /// What was in it at the beginning.
    first_room: usize,
    sent_bytes: AtomicU64,
    total_bytes: u64,
    began: Instant,
    /// When the first part arrived, and its bytes.
    first: Mutex<Option<(Instant, u64)>>,
    pace: watch::Sender<Pace>,
}

/// How much of the link is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// As little as it takes to see how fast it is.
    Gentle,
    /// As much as it takes to see whether it is slower than packing.
    Trial,
    /// All of it.
    Full,
    /// None any more, once what is under way has arrived.
    Resting,
    /// None, for there is nothing left to take.
    Drained,
}

impl<'a> Stripes<'a> {
    pub(super) fn new(
        far: &'a dyn Sandbox,
        source: &'a Source,
        place: &'a Place,
        progress: &'a Progress,
        missing: Vec<Range<u64>>,
        pace: Pace,
    ) -> Self {
        let room = match pace {
            Pace::Gentle => GENTLE_PIECES,
            Pace::Trial => TRIAL_PIECES,
            _ => MOST_PIECES,
        };
        Stripes {
            far,
            source,
            place,
            progress,
            total_bytes: missing.iter().map(|range| range.end - range.start).sum(),
            queue: Mutex::new(missing.into()),
            room: Semaphore::new(room),
            first_room: room,
            sent_bytes: AtomicU64::new(0),
            began: clock::instant(),
            first: Mutex::new(None),
            pace: watch::Sender::new(pace),
        }
    }

    /// Lets it use all of the link, after a gentle beginning.
    pub(super) fn widen(&self) {
        self.room.add_permits(MOST_PIECES - self.first_room);
        self.pace.send_replace(Pace::Full);
    }

    /// Has `send` end when what is under way has arrived.
    pub(super) fn rest(&self) {
        self.pace.send_replace(Pace::Resting);
    }

    /// Bytes that have arrived.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that have not.
    pub(super) fn missing_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.sent_bytes())
    }

    /// What has arrived after the first part, and the time it took; none before that one.
    pub(super) fn flow(&self) -> Option<(u64, Duration)> {
        let first = *self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, bytes) = first?;
        Some((self.sent_bytes().saturating_sub(bytes), at.elapsed()))
    }

    /// Takes note of a part that has arrived.
    fn count(&self, bytes: u64) {
        let sent = self.sent_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| (clock::instant(), sent));
    }

    /// Takes out everything that has not been sent, to be sent another way.
    pub(super) fn take_rest(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut *self.queue()).into()
    }

    /// Takes back what could not be sent another way.
    pub(super) fn put_back(&self, ranges: impl IntoIterator<Item = Range<u64>>) {
        self.queue().extend(ranges);
    }

    /// Counts bytes that have arrived another way.
    pub(super) fn arrived_otherwise(&self, bytes: u64) {
        self.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// How long the rest takes if it goes on as it went.
    pub(super) fn time_left(&self) -> Duration {
        let sent = self.sent_bytes();
        if sent == 0 {
            return Duration::MAX;
        }
        let seconds =
            self.began.elapsed().as_secs_f64() * self.missing_bytes() as f64 / sent as f64;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// Sends everything, or what is under way when paused. The file is open on the first channel.
    pub(super) async fn send(&self, first: &File) -> Result<(), LargeError> {
        let channels = self.missing_bytes().div_ceil(BYTES_OF_CHANNEL);
        let further = 1..channels.min(MOST_CHANNELS);
        let further = try_join_all(further.map(|_| self.further_channel()));
        let first_channel = async {
            let sent = self.channel(first).await;
            if sent.is_err() {
                // It is over, and nobody waits for a sign to begin any more.
                self.rest();
            }
            sent
        };
        let (sent, further) = join(first_channel, further).await;
        sent.and(further.map(drop))?;
        // What a channel took that broke came back when the first had nothing to do any more.
        self.channel(first).await
    }

    /// Sends what there is over one channel.
    async fn channel(&self, file: &File) -> Result<(), LargeError> {
        try_join_all((0..LANES).map(|_| self.lane(file))).await?;
        Ok(())
    }

    /// One more channel, if the host gives one; it is no harm if not, or if it is lost.
    async fn further_channel(&self) -> Result<(), LargeError> {
        let mut pace = self.pace.subscribe();
        let begun = pace
            .wait_for(|pace| !matches!(pace, Pace::Gentle | Pace::Trial))
            .await;
        if begun.is_ok_and(|pace| *pace != Pace::Full) {
            return Ok(());
        }
        let opening = async {
            let client = self.far.files().await.ok().flatten()?;
            let file = self.place.open(&client, false).await.ok()?;
            Some((client, file))
        };
        let opened = tokio::select! {
            opened = opening => opened,
            _ = pace.wait_for(|pace| *pace != Pace::Full) => None,
        };
        let Some((_client, file)) = opened else {
            return Ok(());
        };
        match self.channel(&file).await {
            Ok(()) => file.close().await.map_err(|error| self.place.failed(error)),
            Err(LargeError::Cut { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn lane(&self, file: &File) -> Result<(), LargeError> {
        loop {
            let _room = self
                .room
                .acquire()
                .await
                .map_err(|_| self.source.broken())?;
            let Some(piece) = self.take() else {
                return Ok(());
            };
            let length = piece.range.end - piece.range.start;
            let data = self.source.read(piece.range.start, length as usize);
            let mut data = data.await?;
            let failed = |error: SftpError| self.place.failed(error);
            let mut writer = file.writer(piece.range.start);
            writer.send(&mut data).await.map_err(failed)?;
            drop(data);
            writer.finish().await.map_err(failed)?;
            piece.arrived();
            self.count(length);
            self.progress.moved(length);
        }
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Range<u64>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next piece; none when there is none, or when it shall rest.
    fn take(&self) -> Option<Piece<'_>> {
        let most = match *self.pace.borrow() {
            Pace::Resting => return None,
            Pace::Gentle => GENTLE_PIECE,
            Pace::Trial | Pace::Full | Pace::Drained => PIECE,
        };
        let mut queue = self.queue();
        let Some(range) = queue.front_mut() else {
            self.pace.send_replace(Pace::Drained);
            return None;
        };
        let end = range.end.min(range.start + most);
        let piece = range.start..end;
        range.start = end;
        if range.is_empty() {
            queue.pop_front();
        }
        Some(Piece {
            queue: &self.queue,
            range: piece,
        })
    }
}

/// A part that somebody sends; it goes back when that fails.
struct Piece<'a> {
    queue: &'a Mutex<VecDeque<Range<u64>>>,
    range: Range<u64>,
}

impl Piece<'_> {
    fn arrived(mut self) {
        self.range.end = self.range.start;
    }
}

impl Drop for Piece<'_> {
    fn drop(&mut self) {
        if !self.range.is_empty() {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.push_front(self.range.clone());
        }
    }
}
