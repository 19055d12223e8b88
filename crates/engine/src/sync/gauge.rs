//! How fast a link is, and whether packing what goes over it is worth the work.

use std::io::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use remote_sandbox_core::sync::receive::Packing;
use tokio::time::Instant;

use crate::clock;

/// Below this many bytes per second, which is 200 Mbit/s, the link is slower than packing.
const SLOW: f64 = 25_000_000.0;

/// What is packed has to become at least so much smaller.
const WORTH_IT: f64 = 0.8;

/// Before this time nothing is known: buffers on the way take the first bytes at once.
pub(crate) const LOOK_AT_LEAST: Duration = Duration::from_millis(300);

/// What is known of a link and of what goes over it.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    known: Mutex<Known>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Known {
    /// Whether the link is slow, once that is known.
    is_slow: Option<bool>,
    ratio: Option<f64>,
    /// Whether the other side cannot unpack.
    is_in_vain: bool,
    /// Whether it cannot build a file out of an old one.
    cannot_build: bool,
}

impl Gauge {
    /// How the next archive is packed.
    pub(crate) fn packing(&self) -> Packing {
        let known = *self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match known.is_slow == Some(true)
            && !known.is_in_vain
            && known.ratio.is_some_and(|ratio| ratio < WORTH_IT)
        {
            true => Packing::Gzip,
            false => Packing::Plain,
        }
    }

    /// Whether the link is slower than packing, once that is known.
    pub(crate) fn is_slow(&self) -> Option<bool> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.is_slow
    }

    /// Takes note of how fast the link is, in bytes and the time they took; nothing before it can be known.
    pub(crate) fn judge(&self, bytes: u64, elapsed: Duration) -> Option<bool> {
        // What came so soon is fast however long one looks.
        let is_slow = (bytes as f64) < SLOW * elapsed.max(LOOK_AT_LEAST).as_secs_f64();
        if is_slow && elapsed < LOOK_AT_LEAST {
            return None;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.is_slow = Some(is_slow);
        known.is_slow
    }

    /// Takes note that the other side cannot unpack.
    pub(crate) fn give_up(&self) {
        let known = self.known.lock();
        known.unwrap_or_else(PoisonError::into_inner).is_in_vain = true;
    }

    /// Takes note that the other side cannot build a file out of an old one.
    pub(crate) fn cannot_build(&self) {
        let known = self.known.lock();
        known.unwrap_or_else(PoisonError::into_inner).cannot_build = true;
    }

    /// Whether it is worth asking the other side to build a file out of an old one.
    pub(crate) fn may_build(&self) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        !known.cannot_build
    }

    /// Begins to measure.
    pub(crate) fn begin(&self) -> Measure<'_> {
        Measure {
            gauge: self,
            began: clock::instant(),
            bytes: 0,
        }
    }

    /// Takes note that the link is slow, and of how much smaller what goes over it becomes.
    pub(crate) fn learn(&self, piece: &[u8]) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.is_slow = Some(true);
        known.ratio.get_or_insert_with(|| ratio_of(piece));
    }
}

/// One archive on its way.
pub(crate) struct Measure<'a> {
    gauge: &'a Gauge,
    began: Instant,
    bytes: u64,
}

impl Measure<'_> {
    /// Counts what was taken by the link; `piece` stands for what goes over it.
    pub(crate) fn sent(&mut self, bytes: u64, piece: &[u8]) {
        self.bytes += bytes;
        let elapsed = self.began.elapsed();
        // What waits in buffers counts as gone, so a link is never taken for slower than it is.
        if elapsed >= LOOK_AT_LEAST && self.bytes as f64 / elapsed.as_secs_f64() < SLOW {
            self.gauge.learn(piece);
        }
    }

    /// Whether what is left should go packed.
    pub(crate) fn wants_packing(&self) -> bool {
        self.gauge.packing() == Packing::Gzip
    }
}

/// Whether content of which this is a sample becomes so much smaller that packing pays on a slow link.
pub(crate) fn gets_smaller(sample: &[u8]) -> bool {
    ratio_of(sample) < WORTH_IT
}

fn ratio_of(piece: &[u8]) -> f64 {
    let mut squeeze = Squeeze::new(Packing::Gzip);
    let packed = squeeze.pass(piece).len() + squeeze.finish().len();
    match piece.len() {
        0 => 1.0,
        length => packed as f64 / length as f64,
    }
}

/// Packs a stream, or passes it on as it is.
pub(crate) struct Squeeze {
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Squeeze {
    /// One for a stream.
    pub(crate) fn new(packing: Packing) -> Self {
        let encoder = match packing {
            Packing::Plain => None,
            Packing::Gzip => Some(GzEncoder::new(Vec::new(), Compression::fast())),
        };
        Squeeze { encoder }
    }

    /// What is to be sent for these bytes; nothing may be.
    pub(crate) fn pass(&mut self, piece: &[u8]) -> Vec<u8> {
        match &mut self.encoder {
            None => piece.to_vec(),
            Some(encoder) => {
                // A vector takes everything.
                let _ = encoder.write_all(piece);
                std::mem::take(encoder.get_mut())
            }
        }
    }

    /// The same without a copy where nothing is packed.
    pub(crate) fn pass_whole(&mut self, piece: Bytes) -> Bytes {
        match self.encoder {
            None => piece,
            Some(_) => self.pass(&piece).into(),
        }
    }

    /// What is to be sent at the end.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        match self.encoder.take() {
            None => Vec::new(),
            Some(encoder) => encoder.finish().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn squeezed_stream_comes_back_whole() {
        let mut squeeze = Squeeze::new(Packing::Gzip);
        let text = b"loss 0.5\n".repeat(100_000);
        let mut packed = Vec::new();
        for piece in text.chunks(70_000) {
            packed.extend(squeeze.pass(piece));
        }
        packed.extend(squeeze.finish());
        assert!(packed.len() < text.len() / 10);
        let mut whole = Vec::new();
        flate2::read::GzDecoder::new(&*packed)
            .read_to_end(&mut whole)
            .unwrap();
        assert_eq!(whole, text);
    }

    #[test]
    fn speed_is_judged_only_after_a_while() {
        let gauge = Gauge::default();
        assert_eq!(gauge.judge(1, Duration::from_millis(299)), None);
        assert_eq!(gauge.is_slow(), None);
        assert_eq!(gauge.judge(7_600_000, Duration::ZERO), Some(false));
        assert_eq!(gauge.judge(7_400_000, LOOK_AT_LEAST), Some(true));
        assert_eq!(gauge.judge(7_600_000, LOOK_AT_LEAST), Some(false));
        assert_eq!(gauge.is_slow(), Some(false));
        assert!(gets_smaller(&b"loss 0.5\n".repeat(100)) && !gets_smaller(b"short"));
        assert!(!gets_smaller(b""));
    }

    #[tokio::test(start_paused = true)]
    async fn slow_link_packs_what_gets_smaller_and_nothing_else() {
        let text = b"loss 0.5\n".repeat(10_000);
        let mut state = 1_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        })
        .take(90_000)
        .collect();
        for (bytes, piece, packing) in [
            (10_000_000, &text, Packing::Plain),
            (7_000_000, &text, Packing::Gzip),
            (7_000_000, &noise, Packing::Plain),
        ] {
            let gauge = Gauge::default();
            let mut measure = gauge.begin();
            tokio::time::advance(Duration::from_millis(200)).await;
            measure.sent(0, piece);
            assert_eq!(gauge.packing(), Packing::Plain);
            tokio::time::advance(Duration::from_millis(101)).await;
            measure.sent(bytes, piece);
            assert_eq!(gauge.packing(), packing, "{bytes}");
        }
    }
}
