//! The command line.

use std::path::PathBuf;

use clap::{ArgAction, Parser, Subcommand, ValueEnum};

use crate::report::Form;
use crate::{
    cat, clean, copy, demo, doctor, events, exec, job, jobs, list, ls, secret, status, supervisor,
    transfer_worker, transfers, watch, watchdog,
};

/// MCP server that gives coding agents remote machines as sandboxes.
///
/// Without arguments it serves MCP on standard input and output. Sandboxes come from the environment
/// (REMOTE_SANDBOX_LIST, or REMOTE_HOST and its siblings) and from a configuration file.
#[derive(Debug, Parser)]
#[command(name = "remote-sandbox-mcp", version)]
pub(crate) struct Arguments {
    /// How clients connect
    #[arg(long, value_enum, default_value_t = Mode::Stdio)]
    pub(crate) mode: Mode,

    #[command(flatten)]
    pub(crate) common: Common,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// What holds for every command.
#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    /// Configuration file, .toml or .json (default: REMOTE_SANDBOX_CONFIG, else the user's config folder)
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) config: Option<PathBuf>,

    /// More log on standard error; twice for every detail
    #[arg(short, long, action = ArgAction::Count, global = true)]
    pub(crate) verbose: u8,
}

/// What else the program can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(demo::Demo),
    Exec(exec::Exec),
    Ls(ls::Ls),
    Cat(cat::Cat),
    Push(copy::Push),
    Pull(copy::Pull),
    List(list::List),
    Status(status::Status),
    Jobs(jobs::Jobs),
    Job(job::Job),
    Transfers(transfers::Transfers),
    Events(events::Events),
    Watch(watch::Watch),
    Watchdog(watchdog::Watchdog),
    #[command(hide = true)]
    Daemon(watchdog::Run),
    Clean(clean::Clean),
    Doctor(doctor::Doctor),
    Secret(secret::Secrets),
    #[command(hide = true)]
    SandboxSupervisor(supervisor::Supervisor),
    #[command(hide = true)]
    TransferWorker(transfer_worker::TransferWorker),
}

impl Arguments {
    /// How what does not work is told: as JSON where the result would be.
    pub(crate) fn form(&self) -> Form {
        let is_json = match &self.command {
            Some(Command::Ls(ls)) => ls.json,
            Some(Command::Cat(cat)) => cat.json,
            Some(Command::Push(push)) => push.wants_json(),
            Some(Command::Pull(pull)) => pull.wants_json(),
            Some(Command::List(list)) => list.json,
            Some(Command::Jobs(jobs)) => jobs.json,
            Some(Command::Job(job)) => job.wants_json(),
            Some(Command::Transfers(transfers)) => transfers.json,
            Some(Command::Events(events)) => events.json,
            Some(Command::Watch(watch)) => watch.wants_json(),
            Some(Command::Watchdog(watchdog)) => watchdog.wants_json(),
            Some(Command::Doctor(doctor)) => doctor.json,
            _ => false,
        };
        match is_json {
            true => Form::Json,
            false => Form::Lines,
        }
    }
}

/// A way for clients to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Standard input and output
    Stdio,
}
