//! Reads the rest of a file packed, from a program on the host.

use std::io::Write as _;

use bytes::Bytes;
use flate2::write::GzDecoder;
use remote_sandbox_core::sync::Entry;
use remote_sandbox_core::sync::squeezed::{BLOCK, give_script};
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use super::error::LargeError;
use super::place::Place;
use super::source::Source;
use crate::sandbox::Sandbox;
use crate::sync::Progress;
use crate::sync::far::SILENCE_LIMIT;

/// Bytes that are taken from the host at once.
const CHUNK: usize = 64 * 1024;

/// Packed bytes that are unpacked at once; they cannot become more than a thousand times as many.
const STEP: usize = 4 * 1024;

/// Bytes that are written at once.
const WRITE: usize = 1024 * 1024;

/// Reads a file packed from an offset to its end; says how far that came. Where it did not come to its end, nothing of it
/// counts, and the rest can be read another way.
pub(super) async fn read_packed(
    far: &dyn Sandbox,
    place: &Place,
    sink: &Source,
    entry: &Entry,
    from: u64,
    progress: &Progress,
) -> Result<u64, LargeError> {
    if !from.is_multiple_of(BLOCK) {
        return Ok(from);
    }
    let script = give_script(place.target.as_bytes(), from / BLOCK);
    let opened = far.open(&["sh", "-c", &script]).await;
    let mut stream = opened.map_err(LargeError::Unreachable)?;
    let mut unpacking = Unpacking {
        decoder: GzDecoder::new(Vec::new()),
        sink,
        progress,
        written: from,
        most: entry.size_bytes,
    };
    let mut chunk = vec![0; CHUNK];
    let is_right = loop {
        let reading = timeout(SILENCE_LIMIT, stream.output.read(&mut chunk)).await;
        let read = reading.map_err(|_| LargeError::silent(place.shown()))?;
        match read.unwrap_or(0) {
            0 => break unpacking.finish().await?,
            length => {
                if !unpacking
                    .take(chunk.get(..length).unwrap_or_default())
                    .await?
                {
                    break false;
                }
            }
        }
    };
    let came = unpacking.written - from;
    let end = match is_right {
        true => timeout(SILENCE_LIMIT, stream.end())
            .await
            .map_err(|_| LargeError::silent(place.shown()))?,
        false => {
            drop(stream);
            progress.moved_in_vain(came);
            return Ok(from);
        }
    };
    // What came before the link broke is a right beginning.
    let end = end.map_err(|error| LargeError::broken_off(&error))?;
    if end.exit_code == Some(0) && unpacking.written == entry.size_bytes {
        return Ok(unpacking.written);
    }
    progress.moved_in_vain(came);
    Ok(from)
}

struct Unpacking<'a> {
    decoder: GzDecoder<Vec<u8>>,
    sink: &'a Source,
    progress: &'a Progress,
    written: u64,
    most: u64,
}

impl Unpacking<'_> {
    /// Unpacks what came and writes what is enough; false when it is wrong, or more than there should be.
    async fn take(&mut self, packed: &[u8]) -> Result<bool, LargeError> {
        for step in packed.chunks(STEP) {
            if self.decoder.write_all(step).is_err() || !self.fits() {
                return Ok(false);
            }
            if self.decoder.get_ref().len() >= WRITE {
                self.write().await?;
            }
        }
        Ok(true)
    }

    /// Writes the last of it; false when the end of it is wrong.
    async fn finish(&mut self) -> Result<bool, LargeError> {
        let is_right = self.decoder.try_finish().is_ok() && self.fits();
        if self.fits() {
            self.write().await?;
        }
        Ok(is_right)
    }

    fn fits(&self) -> bool {
        self.decoder.get_ref().len() as u64 <= self.most - self.written
    }

    async fn write(&mut self) -> Result<(), LargeError> {
        let unpacked = Bytes::from(std::mem::take(self.decoder.get_mut()));
        let length = unpacked.len() as u64;
        self.sink.write(self.written, vec![unpacked]).await?;
        self.written += length;
        self.progress.moved(length);
        Ok(())
    }
}
