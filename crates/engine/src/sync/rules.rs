//! From what a caller wants left alone to rules.

use std::path::Path;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::sync::{Filter, WrittenPath};

use super::request::SyncRequest;
use super::roots::LocalPaths;
use crate::fsio;

/// A file of rules is no longer than this.
const MOST_RULES: u64 = 1024 * 1024;

/// The rules of a request.
pub(super) fn filter(request: &SyncRequest, paths: &LocalPaths) -> Result<Filter, Failure> {
    let file = match &request.exclude_file {
        None => None,
        Some(written) => Some(read(paths.resolve(written)?.path.as_path(), written)?),
    };
    let patterns: Vec<&[u8]> = request.excludes.iter().map(String::as_bytes).collect();
    Filter::new(file.as_deref(), &patterns).map_err(|error| {
        Failure::new(Code::InvalidParams, Failure::chain(&error))
            .hint("the rules are described in docs/reference/excludes.md")
    })
}

fn read(path: &Path, written: &WrittenPath) -> Result<Vec<u8>, Failure> {
    let read = fsio::read_bounded(path, MOST_RULES);
    let text = match read {
        Ok(Some(rules)) => return Ok(rules),
        Ok(None) => format!("exclude_file does not exist: {}", written.shown()),
        Err(error) => format!("exclude_file cannot be read: {}", Failure::chain(&error)),
    };
    Err(Failure::new(Code::InvalidParams, text)
        .hint("nothing was synced; correct exclude_file or leave it out"))
}

/// A file that is named itself is never left out.
pub(super) fn everything() -> Filter {
    Filter::new(None, &[b"!*"]).unwrap_or_default()
}

/// Deleting makes sense for directories only.
pub(super) fn no_deletes_for_a_file(request: &SyncRequest) -> Result<(), Failure> {
    if !request.delete_extras {
        return Ok(());
    }
    let text = "delete_extras is only supported for directories, and this is a file";
    Err(Failure::new(Code::InvalidParams, text).hint("call again without delete_extras"))
}
