//! A program of ours beside a test.

use std::process::{Child, Command, Output, Stdio};

use remote_sandbox_testkit::process;

use super::LIMIT;

/// A program of ours that runs beside a test and ends with it.
pub(super) struct Beside(Option<Child>);

impl Beside {
    pub(super) fn start(mut command: Command) -> Self {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Beside(Some(child.spawn().unwrap()))
    }

    /// Its number.
    pub(super) fn pid(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    /// Whether it still runs.
    pub(super) fn runs(&mut self) -> bool {
        let child = self.0.as_mut().unwrap();
        child.try_wait().unwrap().is_none()
    }

    /// What it has printed when it ends by itself.
    pub(super) async fn end(mut self) -> Output {
        let child = self.0.take().unwrap();
        let pid = child.id();
        let ending = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap());
        let ended = tokio::time::timeout(LIMIT * 2, ending).await;
        if ended.is_err() {
            process::kill_and_wait(&[pid]);
        }
        ended.unwrap().unwrap()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
