//! `list_remote_files` and `read_remote_file`.

use std::sync::Arc;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::files::{Content, Part};
use remote_sandbox_core::output::clean_text;
use remote_sandbox_core::sync::path::shown;
use remote_sandbox_core::sync::{Glob, Kind};
use remote_sandbox_engine::call::CallContext;
use remote_sandbox_engine::engine::{
    Engine, FileEntry, ListReport, ListRequest, ReadReport, ReadRequest,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Definition, Label, Nature, given, positive};
use crate::mcp::render::Reply;

/// Most entries in one reply.
const MOST_ENTRIES: i64 = 50_000;

/// Most bytes of a file in one reply.
const MOST_BYTES: i64 = 16_000_000;

pub(super) fn definitions() -> Vec<Definition> {
    vec![
        Label {
            name: "list_remote_files",
            title: "List files",
            description: "List a directory of a sandbox (or show one file), sorted. Relative paths begin in the sandbox's workdir, else in its home; ~/x works.",
            nature: Nature::READS,
            core: false,
        }
        .define(list),
        Label {
            name: "read_remote_file",
            title: "Read a file",
            description: "Read a file of a sandbox: from byte offset on, its last tail_lines, or lines start_line to end_line. Binary content comes as base64 (see encoding). If truncated, read on at next_offset.",
            nature: Nature::READS,
            core: false,
        }
        .define(read),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListParams {
    #[serde(default = "here")]
    remote_path: String,
    #[serde(default)]
    recursive: bool,
    #[serde(default = "usual_entries")]
    max_entries: i64,
    #[serde(default)]
    sandbox_name: Option<String>,
    /// Such as *.py (names) or src/**/*.py (paths)
    #[serde(default)]
    glob: Option<String>,
}

fn here() -> String {
    ".".to_owned()
}

fn usual_entries() -> i64 {
    200
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReadParams {
    remote_path: String,
    #[serde(default = "usual_bytes")]
    max_bytes: i64,
    #[serde(default)]
    sandbox_name: Option<String>,
    #[serde(default)]
    offset: Option<i64>,
    #[serde(default)]
    tail_lines: Option<i64>,
    /// Counted from 1
    #[serde(default)]
    start_line: Option<i64>,
    #[serde(default)]
    end_line: Option<i64>,
}

fn usual_bytes() -> i64 {
    200_000
}

fn invalid(error: impl std::fmt::Display) -> Failure {
    Failure::new(Code::InvalidParams, error.to_string())
}

#[derive(Serialize)]
struct ListReply {
    truncated: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    sandbox: String,
    entries: Vec<EntryReply>,
}

#[derive(Serialize)]
struct EntryReply {
    path: String,
    is_dir: bool,
    size: u64,
    mtime: Option<i64>,
    #[serde(rename = "type")]
    kind: &'static str,
    mode: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    /// Bytes that are no plain text are written as `\xNN`, here and in the target.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    escaped: bool,
}

impl From<FileEntry> for EntryReply {
    fn from(FileEntry { path, entry }: FileEntry) -> Self {
        let target = match &entry.kind {
            Kind::Link { target, .. } => Some(shown(target)),
            _ => None,
        };
        // Where a host cannot tell when a link was made, the scan has the beginning of time.
        let is_known = target.is_none() || entry.mtime.seconds != 0;
        EntryReply {
            escaped: path.escaped || target.as_ref().is_some_and(|target| target.escaped),
            path: path.text,
            is_dir: entry.kind.is_directory(),
            size: entry.size_bytes,
            mtime: is_known.then_some(entry.mtime.seconds),
            kind: entry.kind.name(),
            mode: format!("{:04o}", entry.mode),
            target: target.map(|target| target.text),
        }
    }
}

/// A list as the tool `list_remote_files` returns it.
pub fn file_list(report: ListReport) -> serde_json::Value {
    serde_json::to_value(ListReply::from(report)).unwrap_or_default()
}

impl From<ListReport> for ListReply {
    fn from(report: ListReport) -> Self {
        ListReply {
            truncated: report.truncated,
            notes: report.notes,
            sandbox: report.sandbox,
            entries: report.entries.into_iter().map(EntryReply::from).collect(),
        }
    }
}

async fn list(
    engine: Arc<Engine>,
    context: CallContext,
    params: ListParams,
) -> Result<Reply, Failure> {
    let glob = given(params.glob).map(|glob| Glob::parse(&glob));
    let request = ListRequest {
        sandbox: given(params.sandbox_name),
        path: params.remote_path.into_bytes(),
        recursive: params.recursive,
        most_entries: positive("max_entries", params.max_entries, MOST_ENTRIES)?,
        glob: glob.transpose().map_err(invalid)?,
    };
    let reply = ListReply::from(engine.list_files(&context, request).await?);
    let more = if reply.truncated { " and more" } else { "" };
    let (count, sandbox) = (reply.entries.len(), &reply.sandbox);
    let verdict = format!("{count} entries{more} (sandbox {sandbox})");
    let body: Vec<String> = reply.entries.iter().map(line).collect();
    let body = body.join("\n")
        + &reply
            .notes
            .iter()
            .fold(String::new(), |all, note| format!("{all}\n[{note}]"));
    Ok(Reply::new(reply, verdict).body(body))
}

/// One entry as a line of text.
fn line(entry: &EntryReply) -> String {
    let EntryReply {
        kind, mode, size, ..
    } = entry;
    let target = entry.target.as_ref();
    let target = target.map(|target| format!(" -> {target}"));
    let target = target.unwrap_or_default();
    format!("{mode} {size:>10} {kind} {}{target}", entry.path)
}

#[derive(Serialize)]
struct ReadReply {
    size: u64,
    truncated: bool,
    encoding: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_line: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    changed: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    masked: bool,
    sandbox: String,
    content: String,
}

impl From<ReadReport> for ReadReply {
    fn from(report: ReadReport) -> Self {
        let (encoding, content) = report.content.written();
        ReadReply {
            size: report.size_bytes,
            truncated: report.truncated,
            encoding,
            next_offset: report.next_offset,
            next_line: report.next_line,
            changed: report.changed,
            masked: report.masked,
            sandbox: report.sandbox,
            content,
        }
    }
}

/// What was read of a file, in the form of the tool.
pub fn file_content(report: ReadReport) -> serde_json::Value {
    serde_json::to_value(ReadReply::from(report)).unwrap_or_default()
}

async fn read(
    engine: Arc<Engine>,
    context: CallContext,
    params: ReadParams,
) -> Result<Reply, Failure> {
    let part = Part::parse(
        params.offset,
        params.tail_lines,
        params.start_line,
        params.end_line,
    );
    let request = ReadRequest {
        sandbox: given(params.sandbox_name),
        path: params.remote_path.into_bytes(),
        part: part.map_err(invalid)?,
        max_bytes: positive("max_bytes", params.max_bytes, MOST_BYTES)?,
    };
    let report = engine.read_file(&context, request).await?;
    let more = if report.truncated { ", truncated" } else { "" };
    let verdict = format!(
        "{} bytes{more} (sandbox {})",
        report.size_bytes, report.sandbox
    );
    // Text for a reader must not steer a terminal; the field itself is exact.
    let clean = match &report.content {
        Content::Text(text) => Some(clean_text(text.as_bytes())),
        Content::Binary(_) => None,
    };
    let reply = ReadReply::from(report);
    let body = clean.unwrap_or_else(|| reply.content.clone());
    Ok(Reply::new(reply, verdict).body(body))
}
