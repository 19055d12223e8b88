//! What the demo does, step by step.

use std::time::Duration;

use remote_sandbox_engine::clock;
use serde_json::json;

use super::error::DemoError;
use super::page::spoken;
use super::project::{self, FILES};
use super::resume::resume;
use super::server::Answer;
use super::stage::{SANDBOX, Stage};
use crate::report::Failed;

/// How long a call waits for the long command before it is handed back; between two of its lines.
const SHORT_WAIT_S: f64 = 0.5;

/// How long a call waits for news of it.
const NEWS_WAIT_S: u64 = 10;

/// Most calls that ask for news.
const MOST_CALLS: u32 = 30;

/// How many names of tools fit into a line.
const TOOLS_IN_A_LINE: usize = 3;

/// One step. What comes later is a line in `ALL`, a title and what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Start,
    Create,
    PutIn,
    Test,
    Follow,
    ReadBack,
    Resume,
    Delete,
    End,
}

impl Step {
    /// All of them, in their order.
    pub(super) const ALL: [Step; 9] = [
        Step::Start,
        Step::Create,
        Step::PutIn,
        Step::Test,
        Step::Follow,
        Step::ReadBack,
        Step::Resume,
        Step::Delete,
        Step::End,
    ];

    /// What it is about.
    pub(super) fn title(self) -> &'static str {
        match self {
            Step::Start => "Start the server, as an agent's client does",
            Step::Create => "Make a sandbox on this machine",
            Step::PutIn => "Sync a small project into it",
            Step::Test => "Run the project's tests there",
            Step::Follow => "Start something long and follow it without blocking a call",
            Step::ReadBack => "Bring the result back",
            Step::Resume => "Interrupt a job and see it resumed from its checkpoint",
            Step::Delete => "Delete the sandbox with all that is in it",
            Step::End => "End the server",
        }
    }

    /// Does it, and says in a few words what came of it.
    pub(super) async fn play(self, stage: &mut Stage) -> Result<String, Failed> {
        match self {
            Step::Start => start(stage).await,
            Step::Create => create(stage).await,
            Step::PutIn => put_in(stage).await,
            Step::Test => test(stage).await,
            Step::Follow => follow(stage).await,
            Step::ReadBack => read_back(stage).await,
            Step::Resume => resume(stage).await,
            Step::Delete => delete(stage).await,
            Step::End => end(stage).await,
        }
    }
}

async fn start(stage: &mut Stage) -> Result<String, Failed> {
    let server = stage.start_server().await?;
    let (name, tools) = (server.name(), server.tools().await?);
    let lines: Vec<String> = tools
        .chunks(TOOLS_IN_A_LINE)
        .map(|some| some.join(", "))
        .collect();
    stage.say(&stage.page.output(&lines.join("\n")))?;
    Ok(format!(
        "{name} shakes hands and offers {} tools",
        tools.len()
    ))
}

async fn create(stage: &mut Stage) -> Result<String, Failed> {
    stage.say(&stage.page.call("create_sandbox", SANDBOX))?;
    let made = match stage.make_sandbox().await {
        Err(error) if stage.may_go_without_wall() && error.no_wall().is_some() => {
            let why = error.no_wall().unwrap_or_default();
            stage.say(&stage.page.loud(&without_wall(why)))?;
            stage.go_without_wall().await?;
            stage.make_sandbox().await?
        }
        made => made?,
    };
    if made.text("status") != "running" || made.text("sandbox_id") != SANDBOX {
        return Err(made.unexpected("a running sandbox").into());
    }
    stage.workspace = Some(made.text("workspace").into());
    let open = made.list("not_walled_off");
    stage.say(&stage.page.output(&format!(
        "isolation: {}; network: {}\nnot walled off: {open}",
        made.text("isolation"),
        made.text("network"),
    )))?;
    if made.text("isolation") == "landlock" {
        let note = "bubblewrap would be a better wall; install it and the server takes it";
        stage.say(&stage.page.note(note))?;
    }
    Ok(match made.text("isolation") {
        "none" => "it runs, without a wall".to_owned(),
        wall => format!("it runs, walled off by {wall}"),
    })
}

/// The one line for a machine without any wall.
fn without_wall(why: &str) -> String {
    format!(
        "NO WALL: {why}. The demo goes on without one, for its own throw-away project only; the \
         server itself refuses until you install bubblewrap or write isolation = \"none\""
    )
}

async fn put_in(stage: &mut Stage) -> Result<String, Failed> {
    let project = stage.write_project()?;
    let about = format!("{} -> {SANDBOX}", project.display());
    stage.say(&stage.page.call("sync_local_to_remote", &about))?;
    let order = json!({"sandbox_name": SANDBOX, "local_path": project, "remote_path": "."});
    let synced = stage.call("sync_local_to_remote", order).await?;
    let bytes: usize = FILES.iter().map(|file| file.text.len()).sum();
    let is_whole = synced.number("uploaded_files") == Some(FILES.len() as u64)
        && synced.number("bytes") == Some(bytes as u64)
        && synced.number("problem_count") == Some(0);
    if !is_whole {
        let expected = format!("{} files with {bytes} bytes", FILES.len());
        return Err(synced.unexpected(&expected).into());
    }
    let counted = run(stage, "cat * | wc -c", None).await?;
    if counted.text("stdout").trim() != bytes.to_string() {
        let expected = format!("{bytes} bytes in all files");
        return Err(counted.unexpected(&expected).into());
    }
    let note = format!("revision {}", synced.text("revision"));
    stage.say(&stage.page.note(&note))?;
    Ok(format!("{} files, {bytes} bytes", FILES.len()))
}

async fn test(stage: &mut Stage) -> Result<String, Failed> {
    show_run(stage, project::SHELL_TESTS).await?;
    match run(stage, project::HAS_PYTHON, None).await {
        Ok(_) => {
            show_run(stage, project::PYTHON_TESTS).await?;
            Ok("all tests passed, those in Python too".to_owned())
        }
        Err(DemoError::Unexpected { .. }) => {
            let note = "no python3 in the sandbox, so its Python tests are left out";
            stage.say(&stage.page.note(note))?;
            Ok("all tests passed".to_owned())
        }
        Err(error) => Err(error.into()),
    }
}

async fn follow(stage: &mut Stage) -> Result<String, Failed> {
    let begun = clock::instant();
    let about = format!("{}   (wait_s: {SHORT_WAIT_S})", project::LONG);
    stage.say(&stage.page.call("exec_bash", &about))?;
    let order = json!({
        "sandbox_name": SANDBOX, "command": project::LONG, "wait_s": SHORT_WAIT_S, "timeout_s": 60,
    });
    let mut answer = stage.call("exec_bash", order).await?;
    let task = answer.text("task_id").to_owned();
    if answer.text("status") != "running" || task.is_empty() {
        return Err(answer.unexpected("a running task with its id").into());
    }
    let mut heard = answer.text("stdout").to_owned();
    tell_news(
        stage,
        answer.text("stdout"),
        begun.elapsed(),
        &format!("it goes on as {task}"),
    )?;
    let mut calls = 0;
    while answer.text("status") == "running" && calls < MOST_CALLS {
        calls += 1;
        let since = answer.number("next_byte");
        let about = format!("since_byte: {}, wait_s: {NEWS_WAIT_S}", since.unwrap_or(0));
        stage.say(&stage.page.call("check_background_task", &about))?;
        let order = json!({"task_id": task, "since_byte": since, "wait_s": NEWS_WAIT_S});
        answer = stage.call("check_background_task", order).await?;
        heard.push_str(answer.text("log_tail"));
        let state = match answer.text("status") {
            "running" => "it goes on",
            "exited" => "it has ended",
            other => other,
        };
        tell_news(stage, answer.text("log_tail"), begun.elapsed(), state)?;
    }
    if answer.text("status") != "exited" || answer.number("exit_code") != Some(0) {
        return Err(answer
            .unexpected("the end of the command with exit code 0")
            .into());
    }
    if heard != project::LONG_OUTPUT {
        return Err(answer.unexpected("every line of the output once").into());
    }
    Ok("it ended with exit code 0, and no line was lost or came twice".to_owned())
}

fn tell_news(stage: &Stage, news: &str, at: Duration, state: &str) -> Result<(), Failed> {
    stage.say(&stage.page.output(news))?;
    let note = format!("after {}: {state}", spoken(at));
    stage.say(&stage.page.note(&note))
}

async fn read_back(stage: &mut Stage) -> Result<String, Failed> {
    let about = format!("{SANDBOX}:{RESULT}", RESULT = project::RESULT);
    stage.say(&stage.page.call("sync_remote_to_local", &about))?;
    let folder = format!("{}/", stage.results().display());
    let order = json!({
        "sandbox_name": SANDBOX, "remote_path": project::RESULT, "local_path": folder,
    });
    let synced = stage.call("sync_remote_to_local", order).await?;
    let content = stage.read_result()?;
    stage.say(&stage.page.output(&content))?;
    match content == project::RESULT_OUTPUT {
        true => Ok("it is what it should be".to_owned()),
        false => Err(synced.unexpected(project::RESULT_OUTPUT.trim()).into()),
    }
}

async fn delete(stage: &mut Stage) -> Result<String, Failed> {
    stage.say(&stage.page.call("delete_sandbox", SANDBOX))?;
    let answer = stage.delete_sandbox().await?;
    if answer.text("status") != "deleted" {
        return Err(answer.unexpected("a deleted sandbox").into());
    }
    match &stage.workspace {
        Some(workspace) if workspace.exists() => {
            Err(DemoError::NotGone(workspace.display().to_string()).into())
        }
        _ => Ok("its processes are ended and its files are gone".to_owned()),
    }
}

async fn end(stage: &mut Stage) -> Result<String, Failed> {
    stage.end_server().await?;
    stage.remove_files()?;
    Ok("it ended by itself; the folder is removed".to_owned())
}

/// Runs a command that should end with 0.
pub(super) async fn run(
    stage: &Stage,
    command: &str,
    stdin: Option<&str>,
) -> Result<Answer, DemoError> {
    let order = json!({"sandbox_name": SANDBOX, "command": command, "stdin": stdin});
    let answer = stage.call("exec_bash", order).await?;
    match answer.number("exit_code") {
        Some(0) => Ok(answer),
        _ => Err(answer.unexpected("exit code 0")),
    }
}

/// The same with the command and its output shown.
async fn show_run(stage: &Stage, command: &str) -> Result<Answer, Failed> {
    stage.say(&stage.page.call("exec_bash", command))?;
    let answer = run(stage, command, None).await?;
    let printed = format!("{}{}", answer.text("stdout"), answer.text("stderr"));
    stage.say(&stage.page.output(&printed))?;
    Ok(answer)
}
