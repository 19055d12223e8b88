//! The tools: one table, one file per group.

mod background;
mod containers;
mod exec;
mod files;
mod jobs;
mod runs;
mod sandboxes;
mod sync;
mod transfers;
mod watch;
mod watch_progress;
mod watch_row;
mod watchdog;

pub use background::{given_name, job_started};
pub use files::{file_content, file_list};
pub use jobs::{job_list, job_status};
pub use sandboxes::sandbox_list;
pub use sync::{sync_plan, sync_result};
pub use transfers::{transfer_status, transfer_statuses};
pub use watch::{event_list, status_of, watch_added, watch_list};
pub use watch_progress::watch_progress;
pub use watch_row::{dead_letter_json, event_json, watch_json, watchdog_status};

use std::sync::Arc;

use futures::future::BoxFuture;
use remote_sandbox_core::config::Toolset;
use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_engine::call::CallContext;
use remote_sandbox_engine::engine::Engine;
use rmcp::model::{MetaObject, Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::arguments;
use super::render::Reply;
use super::schema::{listed, schema_of};

type Handler = Box<
    dyn Fn(
            Arc<Engine>,
            CallContext,
            Map<String, Value>,
        ) -> BoxFuture<'static, Result<Reply, Failure>>
        + Send
        + Sync,
>;

/// What a client may assume about a tool.
#[derive(Debug, Clone, Copy)]
pub(super) struct Nature {
    read_only: bool,
    destructive: bool,
    idempotent: bool,
    open_world: bool,
}

impl Nature {
    const READS: Nature = Nature {
        read_only: true,
        destructive: false,
        idempotent: true,
        open_world: false,
    };
    const SETS: Nature = Nature {
        read_only: false,
        destructive: false,
        idempotent: true,
        open_world: false,
    };
    const RUNS: Nature = Nature {
        read_only: false,
        destructive: true,
        idempotent: false,
        open_world: true,
    };
    const MAKES: Nature = Nature {
        read_only: false,
        destructive: false,
        idempotent: false,
        open_world: false,
    };
    const ENDS: Nature = Nature {
        read_only: false,
        destructive: true,
        idempotent: true,
        open_world: false,
    };
}

/// One tool: what clients see and what it does.
pub(super) struct Definition {
    pub(super) tool: Tool,
    /// All parameters, those included that clients are not told of.
    pub(super) schema: Arc<Map<String, Value>>,
    pub(super) handler: Handler,
}

/// What describes a tool, without what it does.
struct Label {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    nature: Nature,
    /// Whether clients that load tools late shall load this one at once.
    core: bool,
}

impl Label {
    fn define<P, F, W>(self, handle: F) -> Definition
    where
        P: DeserializeOwned + JsonSchema + Send + 'static,
        F: Fn(Arc<Engine>, CallContext, P) -> W + Send + Sync + Copy + 'static,
        W: Future<Output = Result<Reply, Failure>> + Send + 'static,
    {
        let schema = schema_of::<P>();
        let mut tool = Tool::new(self.name, self.description, Arc::new(listed(&schema)));
        tool.title = Some(self.title.to_owned());
        let mut annotations = ToolAnnotations::default();
        annotations.read_only_hint = Some(self.nature.read_only);
        annotations.destructive_hint = Some(self.nature.destructive);
        annotations.idempotent_hint = Some(self.nature.idempotent);
        annotations.open_world_hint = Some(self.nature.open_world);
        tool.annotations = Some(annotations);
        if self.core {
            let mut meta = MetaObject::default();
            meta.insert("anthropic/alwaysLoad".to_owned(), Value::Bool(true));
            tool.meta = Some(meta);
        }
        let name = self.name;
        let all = schema.clone();
        let handler: Handler = Box::new(move |engine, context, given| {
            let schema = all.clone();
            Box::pin(async move {
                handle(engine, context, arguments::decode(name, &schema, given)?).await
            })
        });
        Definition {
            tool,
            schema,
            handler,
        }
    }
}

/// All tools, sorted by name.
pub(super) fn all() -> Vec<Definition> {
    offered(|_| true)
}

/// The tools of the groups that are offered, sorted by name.
pub(super) fn offered(is_offered: impl Fn(Toolset) -> bool) -> Vec<Definition> {
    let mut definitions = Vec::new();
    definitions.extend(sandboxes::definitions());
    if is_offered(Toolset::Containers) {
        definitions.extend(containers::definitions());
    }
    definitions.extend(exec::definitions());
    definitions.extend(background::definitions());
    definitions.extend(files::definitions());
    definitions.extend(jobs::definitions());
    definitions.extend(sync::definitions());
    definitions.extend(transfers::definitions());
    if is_offered(Toolset::Advanced) {
        definitions.extend(sync::advanced());
        definitions.extend(jobs::advanced());
        definitions.extend(background::advanced());
        definitions.extend(watch::definitions());
        definitions.extend(watch_progress::definitions());
        definitions.extend(watchdog::definitions());
    }
    definitions.sort_by(|a, b| a.tool.name.cmp(&b.tool.name));
    definitions
}

/// A number that counts something, at most this many.
fn positive(name: &str, value: i64, most: i64) -> Result<usize, Failure> {
    if value <= 0 {
        return Err(Failure::new(
            Code::InvalidParams,
            format!("`{name}` must be positive"),
        ));
    }
    Ok(usize::try_from(value.min(most)).unwrap_or(0))
}

/// An empty name stands for "not given", as the old server has it.
fn given(name: Option<String>) -> Option<String> {
    name.filter(|name| !name.is_empty())
}
