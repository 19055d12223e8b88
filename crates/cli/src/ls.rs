//! `ls`: the files of a sandbox.

use std::ffi::OsString;
use std::sync::Arc;

use remote_sandbox_core::sync::path::shown;
use remote_sandbox_core::sync::{Kind, Special};
use remote_sandbox_engine::call::{CallContext, Principal};
use remote_sandbox_engine::engine::{Engine, FileEntry, ListReport, ListRequest};
use remote_sandbox_server::mcp::file_list;
use tokio_util::sync::CancellationToken;

use crate::arguments::Common;
use crate::engine::with_engine;
use crate::remote::Remote;
use crate::report::{Failed, notice, print};

/// Most entries that are shown; whoever wants more has a shell there.
const MOST_ENTRIES: usize = 100_000;

/// List a directory of a sandbox, or one file
///
/// Exit codes: 125 it could not be listed, 130 interrupted, 255 connection lost.
#[derive(Debug, clap::Args)]
pub(crate) struct Ls {
    /// The directory; `NAME:` is where commands of the sandbox begin
    #[arg(value_name = "NAME:PATH")]
    directory: OsString,

    /// List everything below it, too
    #[arg(short = 'R', long)]
    recursive: bool,

    /// Print what the tool list_remote_files returns
    #[arg(long)]
    pub(crate) json: bool,
}

impl Ls {
    /// Prints the list.
    pub(crate) fn run(&self, common: &Common) -> Result<u8, Failed> {
        let report = with_engine(common, |engine, stop| self.list(engine, stop))?;
        if self.json {
            print(&format!("{:#}\n", file_list(report)))?;
            return Ok(0);
        }
        print(&page(&report))?;
        for note in &report.notes {
            notice(note);
        }
        if report.truncated {
            notice("there is more; name a directory further down");
        }
        Ok(0)
    }

    async fn list(
        &self,
        engine: Arc<Engine>,
        stop: CancellationToken,
    ) -> Result<ListReport, Failed> {
        let remote = Remote::parse(&self.directory, &engine)?;
        let context = CallContext::new(Principal::local(), stop);
        let request = ListRequest {
            path: remote.path_or_start().to_vec(),
            sandbox: Some(remote.name),
            recursive: self.recursive,
            most_entries: MOST_ENTRIES,
            glob: None,
        };
        Ok(engine.list_files(&context, request).await?)
    }
}

fn page(report: &ListReport) -> String {
    let sizes = report.entries.iter().map(|file| file.entry.size_bytes);
    let width = sizes.max().unwrap_or(0).to_string().len();
    let mut text = String::new();
    for file in &report.entries {
        text.push_str(&line(file, width));
        text.push('\n');
    }
    text
}

/// As `ls` has it.
fn letter(special: Special) -> char {
    match special {
        Special::Fifo => 'p',
        Special::Socket => 's',
        Special::BlockDevice => 'b',
        Special::CharacterDevice => 'c',
        Special::Unknown => '?',
    }
}

fn line(file: &FileEntry, width: usize) -> String {
    let entry = &file.entry;
    let (letter, target) = match &entry.kind {
        Kind::File => ('-', String::new()),
        Kind::Directory => ('d', String::new()),
        Kind::Link { target, .. } => ('l', format!(" -> {}", shown(target))),
        Kind::Special(special) => (letter(*special), String::new()),
    };
    format!(
        "{letter}{:04o} {:>width$} {}{target}",
        entry.mode, entry.size_bytes, file.path
    )
}
