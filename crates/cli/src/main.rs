//! `remote-sandbox-mcp`: remote machines as sandboxes for coding agents.

mod arguments;
mod cat;
mod clean;
mod copy;
mod demo;
mod doctor;
mod engine;
mod events;
mod exec;
mod job;
mod jobs;
mod list;
mod log;
mod ls;
mod remote;
mod report;
mod secret;
mod secret_input;
mod serve;
mod status;
mod status_page;
mod supervisor;
mod transfer_worker;
mod transfers;
mod watch;
mod watch_options;
mod watchdog;
mod watchdog_service;
mod wording;

use std::process::ExitCode;

use arguments::{Arguments, Command};
use clap::Parser;

fn main() -> ExitCode {
    remote_sandbox_engine::memory::give_back_early();
    let arguments = Arguments::parse();
    log::start(arguments.common.verbose);
    let common = &arguments.common;
    let form = arguments.form();
    let done = match &arguments.command {
        None => serve::run(&arguments),
        Some(Command::Demo(demo)) => demo.run(common),
        Some(Command::Exec(exec)) => return report::end_of_exec(exec.run(common), form),
        Some(Command::Ls(ls)) => return report::end_of_exec(ls.run(common), form),
        Some(Command::Cat(cat)) => return report::end_of_exec(cat.run(common), form),
        Some(Command::Push(push)) => return report::end_of_exec(push.run(common), form),
        Some(Command::Pull(pull)) => return report::end_of_exec(pull.run(common), form),
        Some(Command::List(list)) => list.run(common),
        Some(Command::Status(status)) => status.run(common),
        Some(Command::Clean(clean)) => clean.run(common),
        Some(Command::Doctor(doctor)) => doctor.run(common),
        Some(Command::Secret(secrets)) => secrets.run(),
        Some(Command::Jobs(jobs)) => jobs.run(common),
        Some(Command::Job(job)) => job.run(common),
        Some(Command::Transfers(transfers)) => transfers.run(common),
        Some(Command::Events(events)) => events.run(common),
        Some(Command::Watch(watch)) => watch.run(common),
        Some(Command::Watchdog(watchdog)) => watchdog.run(common),
        Some(Command::Daemon(run)) => run.run(common),
        Some(Command::TransferWorker(worker)) => worker.run(),
        Some(Command::SandboxSupervisor(supervisor)) => supervisor.run(),
    };
    report::end(done, form)
}
