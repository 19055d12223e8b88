//! `cat`: a file of a sandbox on standard output, byte by byte.

use std::ffi::OsString;
use std::sync::Arc;

use remote_sandbox_core::files::Part;
use remote_sandbox_engine::call::{CallContext, Principal};
use remote_sandbox_engine::engine::{Engine, ReadReport, ReadRequest};
use remote_sandbox_server::mcp::file_content;
use tokio::io::AsyncWriteExt as _;
use tokio_util::sync::CancellationToken;

use crate::arguments::Common;
use crate::engine::with_engine;
use crate::remote::Remote;
use crate::report::{Failed, print};

/// Write a file of a sandbox to standard output, of any size and byte by byte
///
/// Exit codes: 125 it could not be read, 130 interrupted, 255 connection lost.
#[derive(Debug, clap::Args)]
pub(crate) struct Cat {
    /// The file; a relative path begins where commands of the sandbox begin
    #[arg(value_name = "NAME:PATH")]
    file: OsString,

    /// Print what the tool read_remote_file returns, of at most 16 MB
    #[arg(long)]
    pub(crate) json: bool,
}

/// Most bytes of a file that are printed as JSON.
const MOST_BYTES: usize = 16_000_000;

impl Cat {
    /// Streams it.
    pub(crate) fn run(&self, common: &Common) -> Result<u8, Failed> {
        if self.json {
            let report = with_engine(common, |engine, stop| self.read(engine, stop))?;
            print(&format!("{:#}\n", file_content(report)))?;
            return Ok(0);
        }
        with_engine(common, |engine, stop| self.stream(engine, stop))
    }

    async fn read(
        &self,
        engine: Arc<Engine>,
        stop: CancellationToken,
    ) -> Result<ReadReport, Failed> {
        let remote = Remote::parse(&self.file, &engine)?;
        let context = CallContext::new(Principal::local(), stop);
        let request = ReadRequest {
            sandbox: Some(remote.name),
            path: remote.path,
            part: Part::From(0),
            max_bytes: MOST_BYTES,
        };
        Ok(engine.read_file(&context, request).await?)
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
