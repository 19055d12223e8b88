//! Why a sync does not even begin, or does not go on.

use remote_sandbox_core::failure::{Code, Failure};

use super::far::Far;
use super::large::LargeError;
use super::request::SyncRequest;
use super::roots::Resolved;
use crate::beneath::BeneathError;
use crate::sandbox::Sandbox;

/// What went wrong on this machine, before anything was done.
pub(super) fn local_failure(error: &BeneathError) -> Failure {
    let code = match error.is_disk_full() {
        true => Code::NoSpace,
        false if error.is_missing() => Code::NotFound,
        false => Code::PathRefused,
    };
    Failure::new(code, Failure::chain(error)).hint("check the local path")
}

/// Nothing is at the path here.
pub(super) fn missing_here(local: &Resolved) -> Failure {
    let text = format!(
        "`{}` does not exist on this machine",
        local.path.as_path().display()
    );
    Failure::new(Code::NotFound, text).hint("check local_path")
}

/// What is at the path here cannot be read.
pub(super) fn unreadable_here(local: &Resolved) -> Failure {
    let text = format!(
        "`{}` on this machine cannot be read",
        local.path.as_path().display()
    );
    Failure::new(Code::PermissionDenied, text).hint("check local_path and its permissions")
}

/// A file is where a directory comes.
pub(super) fn file_here(local: &Resolved) -> Failure {
    let text = format!(
        "`{}` on this machine is a file, and a directory comes there",
        local.path.as_path().display()
    );
    Failure::new(Code::InvalidParams, text).hint("choose another local_path, or remove that file")
}

fn place_there(sandbox: &dyn Sandbox, request: &SyncRequest) -> String {
    let name = &sandbox.description().name;
    format!("`{}` in sandbox `{name}`", request.remote_path.shown())
}

/// Nothing is at the path there.
pub(super) fn missing_there(sandbox: &dyn Sandbox, request: &SyncRequest) -> Failure {
    let text = format!("{} does not exist", place_there(sandbox, request));
    Failure::new(Code::NotFound, text).hint("list_remote_files shows what is there")
}

/// What is at the path there is a link to nothing.
pub(super) fn leads_nowhere(sandbox: &dyn Sandbox, request: &SyncRequest) -> Failure {
    let place = place_there(sandbox, request);
    let text = format!("{place} is a link, and what it leads to does not exist");
    Failure::new(Code::NotFound, text).hint("list_remote_files shows where it leads")
}

/// What is at the path there cannot be read.
pub(super) fn unreadable_there(sandbox: &dyn Sandbox, request: &SyncRequest) -> Failure {
    let text = format!("{} cannot be read", place_there(sandbox, request));
    Failure::new(Code::PermissionDenied, text).hint("the account may not read it there")
}

/// A file is where a directory comes.
pub(super) fn file_there(sandbox: &dyn Sandbox, request: &SyncRequest) -> Failure {
    let text = format!(
        "{} is a file, and a directory comes there",
        place_there(sandbox, request)
    );
    Failure::new(Code::InvalidParams, text).hint("choose another remote_path, or remove that file")
}

/// What a large file that did not get through means for the whole sync.
pub(super) fn large_failure(far: &Far<'_>, error: &LargeError) -> Failure {
    match error {
        LargeError::Unreachable(failure) => failure.clone(),
        LargeError::NoSpace { .. } => far
            .failure(Code::NoSpace, &Failure::chain(error))
            .hint("make room there and sync again: what has arrived is not sent twice"),
        _ => far
            .failure(Code::LinkLost, &Failure::chain(error))
            .hint("sync again: it goes on where it stopped")
            .retry(),
    }
}

/// Whether trying the next file makes no sense.
pub(super) fn is_final(error: &LargeError) -> bool {
    matches!(
        error,
        LargeError::NoSpace { .. } | LargeError::Cut { .. } | LargeError::Unreachable(_)
    )
}
