//! A large file on its way to a host.

use std::fs;
use std::ops::Range;
use std::pin::Pin;
use std::time::Duration;

use futures::future::{Either, MaybeDone, maybe_done, select};
use remote_sandbox_core::sync::{Entry, Mtime, RelPath};

use super::delta::{self, Built, Rebuilder};
use super::error::LargeError;
use super::packed_up::{Packed, send_packed};
use super::place::Place;
use super::resume::{everything, missing_ranges};
use super::source::Source;
use super::stripes::{Pace, Stripes};
use crate::sandbox::Sandbox;
use crate::sandbox::conversation::{Client, File};
use crate::sync::Progress;
use crate::sync::gauge::{Gauge, gets_smaller};

/// How often it is looked whether the link is slow.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// So long it is looked how fast the link is, from the first bytes that arrive, and in all.
const LOOK_FOR: Duration = Duration::from_millis(80);
const LOOK_LIMIT: Duration = Duration::from_secs(1);

/// Less than this is not worth being packed.
const WORTH_PACKING: u64 = 2 * 1024 * 1024;

/// Bytes of one piece of a sample, of which there are three.
const SAMPLE: u64 = 64 * 1024;

/// What takes less time than this is sent as a whole; finding out what changed takes about as long.
const WORTH_A_DELTA: Duration = Duration::from_secs(1);

/// So long a host whose file server ended has to answer again.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// A large file that goes to a host.
pub(crate) struct LargeUp<'a> {
    /// The file, opened by somebody who knows that it may be read.
    pub(crate) file: fs::File,
    /// What the scan saw of it.
    pub(crate) entry: &'a Entry,
    /// The root of the sync on the host.
    pub(crate) remote_root: &'a [u8],
    /// Where it goes below that; its directory exists.
    pub(crate) path: &'a RelPath,
    /// What tells who sends it from everybody else who may send to the same place.
    pub(crate) owner: &'a [u8],
    /// What the host has there.
    pub(crate) old: Option<&'a Entry>,
    /// Whom to tell how far it has come.
    pub(crate) progress: &'a Progress,
    /// What is known of the link.
    pub(crate) gauge: &'a Gauge,
}

/// A large file that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LargeDone {
    /// Bytes of it that were sent, also in vain.
    pub(crate) sent_bytes: u64,
    /// Bytes that an earlier transfer had sent.
    pub(crate) resumed_bytes: u64,
    /// Whether the host built it out of its old one.
    pub(crate) is_delta: bool,
    /// Whether a part of it went packed.
    pub(crate) is_packed: bool,
    /// The time it should have, where the protocol could not set it to the nanosecond.
    pub(crate) pending_mtime: Option<Mtime>,
}

/// Sends a large file and puts it in its place. When the link breaks, what has arrived is kept for the next time.
pub(crate) async fn upload_large(
    far: &dyn Sandbox,
    job: LargeUp<'_>,
) -> Result<LargeDone, LargeError> {
    let source = Source::new(job.file, job.entry);
    source.check(job.entry.stamp()).await?;
    let client = far.files().await.map_err(LargeError::Unreachable)?;
    let upload = Upload {
        far,
        client: client.ok_or(LargeError::NoConversation)?,
        place: Place::new(job.remote_root, job.path, job.entry, job.owner)?,
        source,
        entry: job.entry,
        old: job
            .old
            .filter(|old| job.gauge.may_build() && delta::is_candidate(old, job.entry)),
        progress: job.progress,
        gauge: job.gauge,
    };
    let done = match upload.run().await {
        // Whether the link is gone, or only the server that wrote this file.
        Err(error) if error.is_cut() && still_answers(far).await => Err(LargeError::Dropped {
            path: upload.place.shown().to_owned(),
            source: Box::new(error),
        }),
        done => done,
    };
    if let Err(error) = &done
        && error.is_final()
    {
        upload.place.forget(&upload.client).await;
    }
    done
}

struct Upload<'a> {
    far: &'a dyn Sandbox,
    client: Client,
    place: Place,
    source: Source,
    entry: &'a Entry,
    old: Option<&'a Entry>,
    progress: &'a Progress,
    gauge: &'a Gauge,
}

/// What the host is asked about its old file, while other things are done.
type Asking<'a, F> = Pin<&'a mut MaybeDone<F>>;

/// How a file was sent.
struct Sending {
    built: Built,
    is_packed: bool,
}

impl Upload<'_> {
    async fn run(&self) -> Result<LargeDone, LargeError> {
        // The host needs its time for the old file, while it is found out what it has of the new one.
        let asking = std::pin::pin!(maybe_done(self.ask_about_old()));
        let mut asking: Asking<'_, _> = asking;
        let beginning = std::pin::pin!(self.begin());
        let (file, missing) = match select(beginning, asking.as_mut()).await {
            Either::Left((begun, _)) => begun?,
            Either::Right(((), beginning)) => beginning.await?,
        };
        let missing_bytes: u64 = missing.iter().map(|range| range.end - range.start).sum();
        let resumed_bytes = self.entry.size_bytes - missing_bytes;
        self.progress.moved(resumed_bytes);
        let packs = self.may_pack(missing_bytes).await?;
        let pace = match (self.old, packs) {
            (Some(_), _) => Pace::Gentle,
            (None, true) => Pace::Trial,
            (None, false) => Pace::Full,
        };
        let (far, place) = (self.far, &self.place);
        let stripes = Stripes::new(far, &self.source, place, self.progress, missing, pace);
        let sending = match self.send(&stripes, &file, packs, asking).await {
            Ok(sending) => sending,
            Err(error) => {
                let needed = stripes.missing_bytes();
                return Err(place.refused_write(&self.client, error, needed).await);
            }
        };
        self.source.check(self.entry.stamp()).await?;
        let mut done = LargeDone {
            sent_bytes: stripes.sent_bytes(),
            resumed_bytes,
            is_delta: false,
            is_packed: sending.is_packed,
            pending_mtime: None,
        };
        match sending.built {
            Built::Done(finished) => {
                drop(file);
                let (published, _) = tokio::join!(
                    place.publish(&self.client, &place.built),
                    self.client.remove(&place.temporary)
                );
                published?;
                done.sent_bytes += finished.sent_bytes;
                done.is_delta = true;
            }
            Built::No => {
                place.complete(file, self.entry).await?;
                place.publish(&self.client, &place.temporary).await?;
                done.pending_mtime = pending_mtime(self.entry.mtime);
            }
        }
        Ok(done)
    }

    /// Opens the file on the host, new or as it was left; says what of it has to be sent.
    async fn begin(&self) -> Result<(File, Vec<Range<u64>>), LargeError> {
        let size_bytes = self.entry.size_bytes;
        let (left, free) = tokio::join!(
            self.place.left_behind(&self.client, size_bytes),
            self.place.free_bytes(&self.client)
        );
        let left = left?;
        // What lies there already takes no further space, whether it is right or not.
        let needed_bytes = size_bytes - left;
        if free.is_some_and(|free| free < needed_bytes) {
            return Err(LargeError::NoSpace {
                path: self.place.shown().to_owned(),
                needed_bytes,
            });
        }
        let missing = match left {
            0 => everything(size_bytes),
            left => {
                let there = self.place.temporary.as_bytes();
                missing_ranges(self.far, there, left, &self.source, size_bytes).await?
            }
        };
        Ok((self.place.open(&self.client, left == 0).await?, missing))
    }

    /// Whether what has to be sent may be worth packing: the link is not known to be fast, and a sample gets smaller.
    async fn may_pack(&self, missing_bytes: u64) -> Result<bool, LargeError> {
        if self.gauge.is_slow() == Some(false) || missing_bytes < WORTH_PACKING {
            return Ok(false);
        }
        let last = self.entry.size_bytes.saturating_sub(SAMPLE);
        let mut sample = Vec::new();
        for at in [0, last / 2, last] {
            let length = (self.entry.size_bytes - at).min(SAMPLE);
            sample.extend_from_slice(&self.source.read(at, length as usize).await?);
        }
        Ok(gets_smaller(&sample))
    }

    /// Sends the file whole, unless the host can build it sooner out of what it has.
    async fn send(
        &self,
        stripes: &Stripes<'_>,
        file: &File,
        packs: bool,
        mut asking: Asking<'_, impl Future<Output = Option<Rebuilder>>>,
    ) -> Result<Sending, LargeError> {
        let whole = |is_packed| Sending {
            built: Built::No,
            is_packed,
        };
        if self.old.is_none() {
            return match packs {
                true => self.send_trying(stripes, file).await.map(whole),
                false => stripes.send(file).await.map(|()| whole(false)),
            };
        }
        let built = {
            let sending = stripes.send(file);
            tokio::pin!(sending);
            tokio::select! {
                sent = &mut sending => return sent.map(|()| whole(false)),
                () = &mut asking => {}
            };
            let rebuilder = asking.as_mut().take_output().flatten();
            match rebuilder {
                Some(_) => tokio::select! {
                    sent = &mut sending => return sent.map(|()| whole(false)),
                    () = measured(stripes) => {}
                },
                None => self.gauge.cannot_build(),
            }
            match rebuilder {
                Some(rebuilder) if stripes.time_left() > WORTH_A_DELTA => {
                    stripes.rest();
                    self.build(rebuilder, stripes, sending).await?
                }
                rebuilder => {
                    let Some(rebuilder) = rebuilder else {
                        stripes.widen();
                        return sending.await.map(|()| whole(false));
                    };
                    // Both files need space; the one that is given up makes room first.
                    stripes.rest();
                    sending.await?;
                    self.progress.moved_in_vain(stripes.sent_bytes());
                    rebuilder.give_up().await;
                    Built::No
                }
            }
        };
        if matches!(built, Built::Done(_)) {
            let is_packed = false;
            return Ok(Sending { built, is_packed });
        }
        self.progress.moved(stripes.sent_bytes());
        if packs && self.judge(stripes) == Some(true) {
            return self.send_rest_packed(stripes, file).await.map(whole);
        }
        stripes.widen();
        stripes.send(file).await.map(|()| whole(false))
    }

    /// Has the host build the file, while what is under way of it still arrives.
    async fn build(
        &self,
        rebuilder: Rebuilder,
        stripes: &Stripes<'_>,
        sending: impl Future<Output = Result<(), LargeError>>,
    ) -> Result<Built, LargeError> {
        let resting = async {
            sending.await?;
            self.progress.moved_in_vain(stripes.sent_bytes());
            Ok(())
        };
        let building = delta::build(rebuilder, &self.source, self.entry, self.progress);
        let ((), built) = tokio::try_join!(resting, building)?;
        Ok(built)
    }

    /// Has the host tell of its old file and get ready to build out of it; nothing where there is none, or it cannot.
    async fn ask_about_old(&self) -> Option<Rebuilder> {
        let old = self.old?;
        Rebuilder::begin(self.far, &self.place, old, self.entry).await
    }

    /// Whether the link is slow, as far as it can be seen.
    fn judge(&self, stripes: &Stripes<'_>) -> Option<bool> {
        let (bytes, taken) = stripes.flow()?;
        self.gauge.judge(bytes, taken)
    }

    /// Sends a beginning to see how fast the link is, and the rest packed when it is slow; whether it was.
    async fn send_trying(&self, stripes: &Stripes<'_>, file: &File) -> Result<bool, LargeError> {
        if self.gauge.is_slow() == Some(true) {
            return self.send_rest_packed(stripes, file).await;
        }
        {
            let sending = stripes.send(file);
            tokio::pin!(sending);
            let is_slow = loop {
                tokio::select! {
                    sent = &mut sending => return sent.map(|()| false),
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                }
                if let Some(is_slow) = self.judge(stripes) {
                    break is_slow;
                }
            };
            if !is_slow || stripes.missing_bytes() < WORTH_PACKING {
                stripes.widen();
                return sending.await.map(|()| false);
            }
            stripes.rest();
            sending.await?;
        }
        self.send_rest_packed(stripes, file).await
    }

    /// Sends packed what has not been sent, as far as the host takes it; whether it took any.
    async fn send_rest_packed(
        &self,
        stripes: &Stripes<'_>,
        file: &File,
    ) -> Result<bool, LargeError> {
        let mut rest = stripes.take_rest().into_iter();
        let mut is_packed = false;
        for range in rest.by_ref() {
            let length = range.end - range.start;
            let temporary = self.place.temporary.as_bytes();
            let sent = send_packed(self.far, temporary, &self.source, &range, self.progress);
            match sent.await? {
                Packed::Arrived => {
                    stripes.arrived_otherwise(length);
                    is_packed = true;
                }
                Packed::Refused => {
                    stripes.put_back([range]);
                    break;
                }
            }
        }
        stripes.put_back(rest);
        stripes.widen();
        // What the host did not take goes as usual.
        stripes.send(file).await?;
        Ok(is_packed)
    }
}

/// Whether the host begins a new conversation about files, when one was cut off.
pub(crate) async fn still_answers(far: &dyn Sandbox) -> bool {
    let begun = tokio::time::timeout(ANSWER_LIMIT, far.files()).await;
    matches!(begun, Ok(Ok(Some(_))))
}

/// Waits until it can be seen how fast the link is.
async fn measured(stripes: &Stripes<'_>) {
    let is_seen = || matches!(stripes.flow(), Some((_, taken)) if taken >= LOOK_FOR);
    let seeing = async {
        while !is_seen() {
            tokio::time::sleep(LOOK_FOR / 4).await;
        }
    };
    // Where so little arrives, it is slow.
    let _ = tokio::time::timeout(LOOK_LIMIT, seeing).await;
}

/// The time that has to be set by another way.
fn pending_mtime(mtime: Mtime) -> Option<Mtime> {
    let is_whole = mtime.nanoseconds().unwrap_or(0) == 0;
    let is_set = is_whole && u32::try_from(mtime.seconds).is_ok();
    (!is_set).then_some(mtime)
}
