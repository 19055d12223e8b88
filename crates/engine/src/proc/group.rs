//! A child with everything it starts in its own process group.

use std::process::ExitStatus;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;

/// A child that leads a process group; the whole group ends when this is dropped.
#[derive(Debug)]
pub(super) struct Group(Option<Child>);

impl Group {
    /// Takes charge of a child that was started as the leader of its group.
    pub(super) fn new(child: Child) -> Self {
        Group(Some(child))
    }

    /// Waits until the child has ended by itself, and lets go of what it left running.
    pub(super) async fn end(mut self) -> std::io::Result<ExitStatus> {
        let status = match &mut self.0 {
            Some(child) => child.wait().await?,
            None => return Err(std::io::ErrorKind::NotFound.into()),
        };
        self.0 = None;
        Ok(status)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let Some(mut child) = self.0.take() else {
            return;
        };
        // As long as the leader is not waited for, no other group can have its number.
        let leader = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        if let Some(leader) = leader {
            // The group may be gone already.
            let _ = kill_process_group(leader, Signal::KILL);
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let _ = child.wait().await;
            });
        }
    }
}
