//! A large file on its way from a host.

use std::fs;
use std::time::Duration;

use bytes::Bytes;
use remote_sandbox_core::sftp::{Attributes, FileKind, OpenFlags};
use remote_sandbox_core::sync::{Entry, Mtime, RelPath, Stamp};

use super::error::LargeError;
use super::packed_down::read_packed;
use super::place::Place;
use super::resume::right_prefix;
use super::source::Source;
use crate::clock;
use crate::sandbox::Sandbox;
use crate::sandbox::conversation::{Client, File};
use crate::sync::Progress;
use crate::sync::gauge::{Gauge, gets_smaller};

/// Bytes that are asked for ahead while it is open whether the rest should come packed.
const TRIAL: u64 = 2 * 1024 * 1024;

/// Bytes that show whether the rest gets smaller.
const SAMPLE: u64 = 128 * 1024;

/// Bytes that may be asked for ahead; the conversation has a bound of its own below that.
const WINDOW: u64 = 16 * 1024 * 1024;

/// Bytes that are written at once.
const WRITE: usize = 1024 * 1024;

/// A large file that comes from a host.
pub(crate) struct LargeDown<'a> {
    /// Where it is written to, readable and writable; what it holds already is checked and continued. Giving it
    /// mode, time and name is the caller's business.
    pub(crate) file: fs::File,
    /// What the scan saw of it.
    pub(crate) entry: &'a Entry,
    /// The root of the sync on the host.
    pub(crate) remote_root: &'a [u8],
    /// Where it lies below that.
    pub(crate) path: &'a RelPath,
    /// Whom to tell how far it has come.
    pub(crate) progress: &'a Progress,
    /// What is known of the link.
    pub(crate) gauge: &'a Gauge,
}

/// A large file that has come whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LargeReceived {
    /// Bytes of it that came.
    pub(crate) received_bytes: u64,
    /// Bytes that an earlier transfer had brought.
    pub(crate) resumed_bytes: u64,
    /// Bytes of it that came packed.
    pub(crate) packed_bytes: u64,
}

/// Reads a large file into one of this machine. When the link breaks, the file here is a right beginning.
pub(crate) async fn download_large(
    far: &dyn Sandbox,
    job: LargeDown<'_>,
) -> Result<LargeReceived, LargeError> {
    let sink = Source::new(job.file, job.entry);
    // Nothing is written there.
    let place = Place::new(job.remote_root, job.path, job.entry, b"")?;
    let size_here = sink.cut_to(job.entry.size_bytes).await?;
    let there = place.target.as_bytes();
    let (client, right) = tokio::join!(far.files(), right_prefix(far, there, &sink, size_here));
    let client = client.map_err(LargeError::Unreachable)?;
    let client = client.ok_or(LargeError::NoConversation)?;
    let resumed_bytes = right?;
    let download = Download {
        place,
        sink,
        entry: job.entry,
        progress: job.progress,
        gauge: job.gauge,
    };
    let file = download.open(&client).await?;
    download.progress.moved(resumed_bytes);
    let tried = download.try_link(&file, resumed_bytes).await?;
    let rest = match download.wants_packed(&tried) {
        true => download.rest_packed(far, &client, tried.end).await?,
        false => tried.end,
    };
    let left = job.entry.size_bytes - rest;
    let end = download.read(&file, rest, left, WINDOW).await?.end;
    // What changed while it was read is a mixture, whatever its length.
    download.check(&file).await?;
    if end < job.entry.size_bytes {
        return Err(LargeError::Short {
            path: download.place.shown().to_owned(),
            expected_bytes: job.entry.size_bytes,
            got_bytes: end,
        });
    }
    Ok(LargeReceived {
        received_bytes: end - resumed_bytes,
        resumed_bytes,
        packed_bytes: rest - tried.end,
    })
}

/// What was read at a stretch.
struct Read {
    /// How far it came.
    end: u64,
    /// The last bytes of it, some of them.
    sample: Bytes,
    /// What came after the first bytes, and the time it took.
    flow: (u64, Duration),
}

struct Download<'a> {
    place: Place,
    sink: Source,
    entry: &'a Entry,
    progress: &'a Progress,
    gauge: &'a Gauge,
}

impl Download<'_> {
    /// Reads a beginning, until it is known how fast the link is; one piece where that is known.
    async fn try_link(&self, file: &File, from: u64) -> Result<Read, LargeError> {
        let size_bytes = self.entry.size_bytes;
        let mut stretch = match self.gauge.is_slow() {
            Some(true) => SAMPLE,
            Some(false) => 0,
            None => TRIAL,
        };
        let mut read = Read {
            end: from,
            sample: Bytes::new(),
            flow: (0, Duration::ZERO),
        };
        let (mut bytes, mut taken) = (0, Duration::ZERO);
        while stretch > 0 && read.end < size_bytes {
            stretch = stretch.min(size_bytes - read.end);
            let expected = read.end + stretch;
            read = self.read(file, read.end, stretch, stretch).await?;
            bytes += read.flow.0;
            taken += read.flow.1;
            let is_known = self.gauge.is_slow().is_some();
            // One that is shorter than it should be is looked at in the end.
            if is_known || self.gauge.judge(bytes, taken).is_some() || read.end < expected {
                break;
            }
        }
        Ok(read)
    }

    /// Whether the rest should come packed.
    fn wants_packed(&self, tried: &Read) -> bool {
        let left = self.entry.size_bytes - tried.end;
        self.gauge.is_slow() == Some(true) && left >= TRIAL && gets_smaller(&tried.sample)
    }

    /// Reads the rest packed, as far as the host gives it; how far that is.
    async fn rest_packed(
        &self,
        far: &dyn Sandbox,
        client: &Client,
        from: u64,
    ) -> Result<u64, LargeError> {
        let end = read_packed(
            far,
            &self.place,
            &self.sink,
            self.entry,
            from,
            self.progress,
        )
        .await?;
        // That was read by its name, so it has to be the same file still.
        let found = client.stat(&self.place.target).await;
        self.judge(&found.map_err(|error| self.place.failed(error))?)?;
        Ok(end)
    }

    /// Opens the file if it is still the one that the scan saw; what else has its name now may never answer.
    async fn open(&self, client: &Client) -> Result<File, LargeError> {
        let target = &self.place.target;
        let found = client.stat(target).await;
        self.judge(&found.map_err(|error| self.place.failed(error))?)?;
        let file = client.open(target, OpenFlags::READ, Attributes::default());
        let file = file.await.map_err(|error| self.place.failed(error))?;
        self.check(&file).await?;
        Ok(file)
    }

    async fn check(&self, file: &File) -> Result<(), LargeError> {
        let found = file.stat().await;
        self.judge(&found.map_err(|error| self.place.failed(error))?)
    }

    fn judge(&self, found: &Attributes) -> Result<(), LargeError> {
        let expected = self.entry.stamp();
        let mtime = found
            .times
            .map(|times| Mtime::whole(times.modified_s.into()));
        let now = Stamp {
            size_bytes: found.size_bytes.unwrap_or(expected.size_bytes),
            mtime: mtime.unwrap_or(expected.mtime),
        };
        // The protocol knows times from 1970 to 2106 only.
        let is_same_time =
            u32::try_from(expected.mtime.seconds).is_err() || now.mtime.agrees(expected.mtime);
        let is_file = matches!(found.kind(), None | Some(FileKind::File));
        match is_file && is_same_time && now.size_bytes == expected.size_bytes {
            true => Ok(()),
            false => Err(self.sink.changed()),
        }
    }

    /// Reads so many bytes from an offset on, and no more; says how far it came.
    async fn read(
        &self,
        file: &File,
        from: u64,
        length: u64,
        window: u64,
    ) -> Result<Read, LargeError> {
        let mut reader = file.reader(from, length).window(window);
        let (mut written, mut held, mut held_bytes) = (from, Vec::<Bytes>::new(), 0);
        let (mut sample, mut first) = (Bytes::new(), None);
        loop {
            let next = reader.next().await;
            let next = next.map_err(|error| self.place.failed(error));
            let is_over = !matches!(next, Ok(Some(_)));
            if let Ok(Some((_, data))) = &next {
                held_bytes += data.len();
                held.push(data.clone());
                sample = data.clone();
                first.get_or_insert_with(|| (clock::instant(), data.len() as u64));
            }
            // Also what came before the link broke is worth keeping.
            if held_bytes >= WRITE || is_over && held_bytes > 0 {
                self.sink.write(written, std::mem::take(&mut held)).await?;
                written += held_bytes as u64;
                self.progress.moved(held_bytes as u64);
                held_bytes = 0;
            }
            if is_over {
                next?;
                let (since, bytes) = first.unwrap_or_else(|| (clock::instant(), 0));
                return Ok(Read {
                    end: written,
                    sample,
                    flow: (written - from - bytes, since.elapsed()),
                });
            }
        }
    }
}
