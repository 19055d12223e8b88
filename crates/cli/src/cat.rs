//! `cat`: a file of a sandbox on standard output, byte by byte.

use std::ffi::OsString;
use std::sync::Arc;

use remote_sandbox_engine::call::{CallContext, Principal};
use remote_sandbox_engine::engine::Engine;
use tokio::io::AsyncWriteExt as _;
use tokio_util::sync::CancellationToken;

use crate::arguments::Common;
use crate::engine::with_engine;
use crate::remote::Remote;
use crate::report::Failed;

/// Write a file of a sandbox to standard output, of any size and byte by byte
///
/// Exit codes: 125 it could not be read, 130 interrupted, 255 connection lost.
#[derive(Debug, clap::Args)]
pub(crate) struct Cat {
    /// The file; a relative path begins where commands of the sandbox begin
    #[arg(value_name = "NAME:PATH")]
    file: OsString,
}

impl Cat {
    /// Streams it.
    pub(crate) fn run(&self, common: &Common) -> Result<u8, Failed> {
        with_engine(common, |engine, stop| self.stream(engine, stop))
    }

    async fn stream(&self, engine: Arc<Engine>, stop: CancellationToken) -> Result<u8, Failed> {
        let remote = Remote::parse(&self.file, &engine)?;
        let context = CallContext::new(Principal::local(), stop.clone());
        let opened = engine.open_file(&context, Some(&remote.name), &remote.path);
        let mut file = opened.await?;
        let mut output = tokio::io::stdout();
        let copying = async {
            while let Some(bytes) = file.next().await? {
                output.write_all(&bytes).await.map_err(Failed::Output)?;
            }
            output.flush().await.map_err(Failed::Output)
        };
        // Ctrl-C must not wait for a reader that has stopped reading.
        tokio::select! {
            copied = copying => copied.map(|()| 0),
            () = stop.cancelled() => Ok(0),
        }
    }
}
