//! `remote-sandbox-mcp`: remote machines as sandboxes for coding agents.

mod arguments;
mod log;
mod serve;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = arguments::Arguments::parse();
    log::start(arguments.verbose);
    match serve::run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            log::complain(&failure);
            ExitCode::FAILURE
        }
    }
}
