//! The server of the demo: this program as a child, spoken with as any MCP client does.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use remote_sandbox_core::config::Environment;
use remote_sandbox_engine::proc::{Companion, CompanionProcess};
use rmcp::model::{CallToolRequestParams, ClientCapabilities, ClientConfig, Implementation};
use rmcp::service::{RoleClient, RunningService, ServiceExt};
use serde_json::Value;

use super::error::DemoError;

/// How long the server may take to shake hands.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(20);

/// How long any call may take; none of them waits this long by itself.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// How long the server may take to end once its input is closed.
const END_LIMIT: Duration = Duration::from_secs(10);

/// Variables that the server gets besides those that the demo sets.
const PASSED_ON: [&str; 8] = [
    "PATH", "USER", "LOGNAME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ",
];

/// What is needed to start a server.
#[derive(Debug, Clone)]
pub(super) struct Start {
    /// This program.
    pub(super) program: PathBuf,
    /// The folder that is its home and holds its state.
    pub(super) folder: PathBuf,
    /// Its configuration, when it gets one.
    pub(super) config: Option<PathBuf>,
    /// Variables of the user that it gets.
    pub(super) variables: Vec<(String, String)>,
}

impl Start {
    /// A server in a folder of its own that knows nothing of the user's configuration.
    pub(super) fn new(
        program: PathBuf,
        folder: &Path,
        config: Option<&Path>,
        environment: &Environment,
    ) -> Self {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let given = PASSED_ON.into_iter().filter_map(|name| {
            let value = environment.get(name)?;
            Some((name.to_owned(), value.clone()))
        });
        let mut variables: Vec<_> = given.collect();
        variables.push(("HOME".to_owned(), text(folder)));
        let state = text(&folder.join("state"));
        variables.push(("REMOTE_SANDBOX_MCP_HOME".to_owned(), state));
        Start {
            program,
            folder: folder.to_owned(),
            config: config.map(Path::to_owned),
            variables,
        }
    }

    fn arguments(&self) -> Vec<OsString> {
        let config = self.config.iter();
        config
            .flat_map(|path| ["--config".into(), path.into()])
            .collect()
    }

    /// Starts this program with these words and without the user's configuration file.
    pub(super) fn run_beside(&self, words: &[&str]) -> Result<CompanionProcess, DemoError> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let companion = Companion::start(&self.program, &words, &self.variables);
        Ok(companion.map_err(DemoError::Start)?.process)
    }

    /// Starts the server and shakes hands.
    pub(super) async fn run(&self) -> Result<Server, DemoError> {
        let companion = Companion::start(&self.program, &self.arguments(), &self.variables)
            .map_err(DemoError::Start)?;
        let Companion {
            input,
            output,
            process,
        } = companion;
        let me = Implementation::new("remote-sandbox-mcp demo", env!("CARGO_PKG_VERSION"));
        let me = ClientConfig::new(ClientCapabilities::default(), me);
        let shaking = tokio::time::timeout(HANDSHAKE_LIMIT, me.serve((output, input)));
        let error = match shaking.await {
            Ok(Ok(client)) => return Ok(Server { client, process }),
            Ok(Err(error)) => Some(Box::new(error)),
            Err(_) => None,
        };
        // One that has given up has said why, a moment before.
        let words = process.words();
        let _ = process.end_within(Duration::from_secs(1)).await;
        Err(DemoError::handshake(&words.text(), error))
    }
}

/// A server that runs.
#[derive(Debug)]
pub(super) struct Server {
    client: RunningService<RoleClient, ClientConfig>,
    process: CompanionProcess,
}

impl Server {
    /// Who it says it is, with its version.
    pub(super) fn name(&self) -> String {
        let said = self.client.peer_info();
        let server = said.as_ref().and_then(|said| said.server_info.as_ref());
        server.map_or_else(
            || "a server without a name".to_owned(),
            |server| format!("{} {}", server.name, server.version),
        )
    }

    /// The names of its tools.
    pub(super) async fn tools(&self) -> Result<Vec<String>, DemoError> {
        let listing = tokio::time::timeout(CALL_LIMIT, self.client.list_all_tools());
        let listed = listing.await.map_err(|_| DemoError::Slow("tools/list"))?;
        let listed = listed.map_err(|source| DemoError::call("tools/list", source))?;
        Ok(listed
            .into_iter()
            .map(|tool| tool.name.into_owned())
            .collect())
    }

    /// Calls a tool and gives its answer; a failure of the tool is an error.
    pub(super) async fn call(
        &self,
        tool: &'static str,
        arguments: Value,
    ) -> Result<Answer, DemoError> {
        let mut request = CallToolRequestParams::new(tool);
        if let Value::Object(arguments) = arguments {
            request = request.with_arguments(arguments);
        }
        let calling = tokio::time::timeout(CALL_LIMIT, self.client.call_tool(request));
        let result = calling.await.map_err(|_| DemoError::Slow(tool))?;
        let result = result.map_err(|source| DemoError::call(tool, source))?;
        let is_error = result.is_error == Some(true);
        let item = result.content.first().and_then(|item| item.as_text());
        let object = item.and_then(|item| serde_json::from_str(&item.text).ok());
        let answer = Answer {
            tool,
            object: object.ok_or(DemoError::NoAnswer(tool))?,
        };
        match is_error {
            true => Err(DemoError::refused(&answer)),
            false => Ok(answer),
        }
    }

    /// Closes its input and waits for its end, as a client does that goes away.
    pub(super) async fn end(mut self) -> Result<(), DemoError> {
        // What the service task says about its end is of no use: the process is what counts.
        let _ = self.client.close_with_timeout(END_LIMIT).await;
        let ended = self.process.end_within(END_LIMIT).await;
        match ended.map_err(DemoError::End)? {
            status if status.success() => Ok(()),
            status => Err(DemoError::Status(status)),
        }
    }
}

/// What a tool answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) tool: &'static str,
    pub(super) object: Value,
}

impl Answer {
    /// A field that is text; empty where there is none.
    pub(super) fn text(&self, field: &str) -> &str {
        let value = self.object.get(field).and_then(Value::as_str);
        value.unwrap_or_default()
    }

    /// A field that is a whole number.
    pub(super) fn number(&self, field: &str) -> Option<u64> {
        self.object.get(field).and_then(Value::as_u64)
    }

    /// A field that is a list of texts, joined.
    pub(super) fn list(&self, field: &str) -> String {
        let list = self.object.get(field).and_then(Value::as_array);
        let texts: Vec<&str> = list
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        texts.join(", ")
    }

    /// An error for a field that is not what it should be.
    pub(super) fn unexpected(&self, expected: &str) -> DemoError {
        DemoError::Unexpected {
            tool: self.tool,
            expected: expected.to_owned(),
            answer: self.object.to_string(),
        }
    }
}
