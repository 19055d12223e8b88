//! Makes replies: short facts first, long text last.

use remote_sandbox_core::config::ResultStyle;
use remote_sandbox_core::failure::Failure;
use rmcp::model::{CallToolResult, ContentBlock};
use serde::Serialize;
use serde_json::{Map, Value};

/// What a tool answers.
#[derive(Debug)]
pub(super) struct Reply {
    facts: Map<String, Value>,
    verdict: String,
    body: Option<String>,
    is_error: bool,
}

impl Reply {
    /// A reply with these facts, in this order.
    pub(super) fn new(facts: impl Serialize, verdict: impl Into<String>) -> Self {
        let facts = match serde_json::to_value(facts) {
            Ok(Value::Object(facts)) => facts,
            _ => Map::new(),
        };
        Reply {
            facts,
            verdict: verdict.into(),
            body: None,
            is_error: false,
        }
    }

    /// The plain text that a person would want to read under the verdict.
    pub(super) fn body(mut self, body: impl Into<String>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Marks the call as failed.
    pub(super) fn failed(mut self) -> Self {
        self.is_error = true;
        self
    }

    /// The result on the wire.
    pub(super) fn into_result(self, style: ResultStyle) -> CallToolResult {
        let text = match style {
            ResultStyle::Json => Value::Object(self.facts).to_string(),
            ResultStyle::Text => {
                let body = self.body.unwrap_or_else(|| {
                    serde_json::to_string_pretty(&self.facts).unwrap_or_default()
                });
                format!("{}\n{body}", self.verdict)
            }
        };
        let content = vec![ContentBlock::text(text)];
        if self.is_error {
            CallToolResult::error(content)
        } else {
            CallToolResult::success(content)
        }
    }
}

impl From<Failure> for Reply {
    fn from(failure: Failure) -> Self {
        let verdict = format!("{}: {}", failure.code.name(), failure.message);
        let body = failure.hint.clone();
        Reply::new(failure, verdict).body(body).failed()
    }
}

/// Seconds with milliseconds, as replies show them.
pub(super) fn seconds(duration: std::time::Duration) -> f64 {
    (duration.as_secs_f64() * 1000.0).round() / 1000.0
}
