//! What an earlier transfer left, and what of it is right.

use std::ops::Range;
use std::time::Duration;

use remote_sandbox_core::delta::{
    MOST_RANGES, RANGE_BYTES, RangeDigest, RangeHashes, parse_ranges, range_hashes_script,
};
use sha2::{Digest, Sha256};

use super::error::LargeError;
use super::source::Source;
use crate::mark::new_mark;
use crate::sandbox::Sandbox;

/// A host hashes at least so many bytes in a second; slower ones are not waited for.
const SLOWEST_HASHING: u64 = 20 * 1024 * 1024;

/// What is waited for in any case.
const HASHING_LIMIT: Duration = Duration::from_secs(20);

/// Bytes that are read at once.
const CHUNK: usize = 256 * 1024;

/// Finds what has to be sent of a file of which the host has a part of this size.
pub(super) async fn missing_ranges(
    far: &dyn Sandbox,
    there: &[u8],
    size_there: u64,
    source: &Source,
    size_bytes: u64,
) -> Result<Vec<Range<u64>>, LargeError> {
    let count = size_there.div_ceil(RANGE_BYTES).min(MOST_RANGES);
    Ok(
        match hashes_of_both(far, there, source, size_bytes, count).await? {
            Some((local, remote)) => differing(&local, &remote, size_bytes),
            None => everything(size_bytes),
        },
    )
}

/// Finds up to where the file here is the beginning of the one that the host has.
pub(super) async fn right_prefix(
    far: &dyn Sandbox,
    there: &[u8],
    source: &Source,
    size_here: u64,
) -> Result<u64, LargeError> {
    // Only whole ranges: the host has more of the last one.
    let count = (size_here / RANGE_BYTES).min(MOST_RANGES);
    if count == 0 {
        return Ok(0);
    }
    let hashes = hashes_of_both(far, there, source, size_here, count).await?;
    let (local, remote) = hashes.unwrap_or_default();
    let same = local
        .iter()
        .zip(&remote)
        .take_while(|(one, other)| one == other);
    Ok(same.count() as u64 * RANGE_BYTES)
}

/// Hashes of the first ranges, made at the same time; nothing where the host cannot.
async fn hashes_of_both(
    far: &dyn Sandbox,
    there: &[u8],
    source: &Source,
    size_bytes: u64,
    count: u64,
) -> Result<Option<(Vec<String>, Vec<String>)>, LargeError> {
    let asking = remote_hashes(far, there, count);
    let hashing = local_hashes(source, count, size_bytes, RangeDigest::Sha256);
    let (remote, local) = tokio::join!(asking, hashing);
    let mut local = local?;
    let Some(remote) = remote else {
        return Ok(None);
    };
    if remote.digest != RangeDigest::Sha256 {
        local = local_hashes(source, count, size_bytes, remote.digest).await?;
    }
    Ok(Some((local, remote.hashes)))
}

/// The one range that a whole file is.
pub(super) fn everything(size_bytes: u64) -> Vec<Range<u64>> {
    std::iter::once(0..size_bytes).collect()
}

/// The ranges whose hashes are not the same, joined.
fn differing(local: &[String], remote: &[String], size_bytes: u64) -> Vec<Range<u64>> {
    let mut missing: Vec<Range<u64>> = Vec::new();
    for (number, start) in (0..size_bytes).step_by(RANGE_BYTES as usize).enumerate() {
        let same = matches!((local.get(number), remote.get(number)), (Some(one), Some(other)) if one == other);
        if same {
            continue;
        }
        let end = size_bytes.min(start + RANGE_BYTES);
        match missing.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => missing.push(start..end),
        }
    }
    missing
}

/// Asks the host; nothing where it cannot tell.
async fn remote_hashes(far: &dyn Sandbox, path: &[u8], count: u64) -> Option<RangeHashes> {
    let mark = new_mark();
    let script = range_hashes_script(path, count, &mark);
    let limit = HASHING_LIMIT + Duration::from_secs(count * RANGE_BYTES / SLOWEST_HASHING);
    match far.ask(script, limit).await {
        Ok(answer) => parse_ranges(&mark, &answer),
        Err(failure) => {
            tracing::debug!(message = %failure.message, "an unfinished file could not be looked at");
            None
        }
    }
}

/// The same of the file here.
async fn local_hashes(
    source: &Source,
    count: u64,
    size_bytes: u64,
    digest: RangeDigest,
) -> Result<Vec<String>, LargeError> {
    let file = source.clone();
    source
        .apart(move || {
            let starts = (0..size_bytes).step_by(RANGE_BYTES as usize);
            starts
                .take(count as usize)
                .map(|start| {
                    let end = size_bytes.min(start + RANGE_BYTES);
                    hash_range(&file, start..end, digest)
                })
                .collect()
        })
        .await
}

fn hash_range(
    source: &Source,
    range: Range<u64>,
    digest: RangeDigest,
) -> Result<String, LargeError> {
    let mut buffer = vec![0; CHUNK];
    let (mut sha, mut md5) = (Sha256::new(), md5::Context::new());
    let mut at = range.start;
    while at < range.end {
        let length = (range.end - at).min(CHUNK as u64);
        let chunk = buffer.get_mut(..length as usize).unwrap_or_default();
        source.read_now(at, chunk)?;
        match digest {
            RangeDigest::Sha256 => sha.update(&*chunk),
            RangeDigest::Md5 => md5.consume(&*chunk),
        }
        at += length;
    }
    Ok(match digest {
        RangeDigest::Sha256 => hexadecimal(&sha.finalize()),
        RangeDigest::Md5 => hexadecimal(&md5.finalize().0),
    })
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ranges_that_differ_or_are_absent_are_missing() {
        let texts = |words: &[&str]| {
            words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>()
        };
        let local = texts(&["a", "b", "c", "d"]);
        let size = 5 * RANGE_BYTES - 7;
        let missing = differing(&local, &texts(&["a", "x", "c"]), size);
        assert_eq!(
            missing,
            [RANGE_BYTES..2 * RANGE_BYTES, 3 * RANGE_BYTES..size]
        );
        assert_eq!(differing(&local, &local, 4 * RANGE_BYTES), []);
        let all = differing(&[], &[], size);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0], 0..size);
    }
}
