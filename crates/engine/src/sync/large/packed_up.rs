//! Sends a part of a file packed, to a program on the host that writes it where it belongs.

use std::ops::Range;

use remote_sandbox_core::sync::receive::Packing;
use remote_sandbox_core::sync::squeezed::{BLOCK, parse_taken, take_script};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::time::timeout;

use super::error::LargeError;
use super::source::Source;
use crate::mark::new_mark;
use crate::sandbox::Sandbox;
use crate::sync::Progress;
use crate::sync::far::SILENCE_LIMIT;
use crate::sync::gauge::Squeeze;

/// Bytes of the file that are packed at once.
const CHUNK: u64 = 256 * 1024;

/// What the host may say.
const MOST_SAID: u64 = 64 * 1024;

/// What became of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packed {
    /// It lies where it belongs.
    Arrived,
    /// The host cannot take it this way; what lies there counts as nothing.
    Refused,
}

/// Sends a part of a file into the unfinished one on the host.
pub(super) async fn send_packed(
    far: &dyn Sandbox,
    temporary: &[u8],
    source: &Source,
    range: &Range<u64>,
    progress: &Progress,
) -> Result<Packed, LargeError> {
    if !range.start.is_multiple_of(BLOCK) {
        return Ok(Packed::Refused);
    }
    let mark = new_mark();
    let script = take_script(temporary, range.start / BLOCK, &mark);
    let opened = far.open(&["sh", "-c", &script]).await;
    let mut stream = opened.map_err(LargeError::Unreachable)?;
    let mut said = Vec::new();
    let (input, output) = (&mut stream.input, &mut stream.output);
    let mut output = output.take(MOST_SAID);
    let giving = give(input, source, range, progress);
    // As long as it takes something, it may take its time.
    let listening = async {
        let given = giving.await;
        (
            given,
            timeout(SILENCE_LIMIT, output.read_to_end(&mut said)).await,
        )
    };
    let (given, heard) = listening.await;
    let given = given?;
    let ended = match heard {
        Ok(_) => timeout(SILENCE_LIMIT, stream.end()).await,
        Err(late) => Err(late),
    };
    let Ok(ended) = ended else {
        progress.moved_in_vain(given);
        return Err(LargeError::silent(source.path()));
    };
    if let Err(error) = ended {
        progress.moved_in_vain(given);
        return Err(LargeError::broken_off(&error));
    }
    if parse_taken(&mark, &said) {
        return Ok(Packed::Arrived);
    }
    progress.moved_in_vain(given);
    Ok(Packed::Refused)
}

/// Packs and sends; how much of the file was told to be on its way.
async fn give(
    input: &mut DuplexStream,
    source: &Source,
    range: &Range<u64>,
    progress: &Progress,
) -> Result<u64, LargeError> {
    let mut squeeze = Squeeze::new(Packing::Gzip);
    let mut at = range.start;
    while at < range.end {
        let length = (range.end - at).min(CHUNK);
        let packed = squeeze.pass(&source.read(at, length as usize).await?);
        let writing = timeout(SILENCE_LIMIT, input.write_all(&packed)).await;
        let written = writing.map_err(|_| LargeError::silent(source.path()))?;
        if written.is_err() {
            // A program that ended takes no more, which its end will explain.
            return Ok(at - range.start);
        }
        at += length;
        progress.moved(length);
    }
    let last = squeeze.finish();
    let ending = async {
        let _ = input.write_all(&last).await;
        let _ = input.shutdown().await;
    };
    let ended = timeout(SILENCE_LIMIT, ending).await;
    ended.map_err(|_| LargeError::silent(source.path()))?;
    Ok(at - range.start)
}
