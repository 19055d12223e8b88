//! The programs of service managers: found on the user's PATH, given little time and no secret.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use remote_sandbox_core::config::Platform;
use remote_sandbox_core::output::clean_line;
use tokio::io::AsyncReadExt as _;

use super::{Service, ServiceError};
use crate::proc::{CommandError, Companion};

/// How long one of them may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Most that is read of what one says.
const LONGEST: u64 = 64 * 1024;

/// Longest complaint that is told.
const LONGEST_COMPLAINT: usize = 300;

/// Variables that they need to find the user's manager.
const HANDED_ON: [&str; 6] = [
    "HOME",
    "PATH",
    "USER",
    "LOGNAME",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
];

const RUNTIME_FOLDER: &str = "XDG_RUNTIME_DIR";

/// What one said.
#[derive(Debug)]
pub(super) struct Said {
    command: String,
    success: bool,
    pub(super) output: String,
    complaint: Option<String>,
}

impl Said {
    /// An error when it failed.
    pub(super) fn or_refused(self) -> Result<Self, ServiceError> {
        if self.success {
            return Ok(self);
        }
        let last = self.output.lines().rfind(|line| !line.trim().is_empty());
        let said = self.complaint.as_deref().or(last);
        let said = said.unwrap_or("it said nothing");
        Err(ServiceError::Refused {
            command: self.command,
            said: clean_line(said, LONGEST_COMPLAINT),
        })
    }

    /// What it said when it did not fail.
    pub(super) fn output_of_success(&self) -> Option<&str> {
        self.success.then_some(self.output.as_str())
    }
}

impl Service {
    /// Where a program is.
    pub(super) fn find(&self, name: &str) -> Option<PathBuf> {
        let path = self.environment.get("PATH")?;
        std::env::split_paths(path)
            .filter(|folder| folder.is_absolute())
            .map(|folder| folder.join(name))
            .find(|file| is_program(file))
    }

    /// Asks a program of a service manager something; that it fails is an answer, too.
    pub(super) async fn ask(
        &self,
        name: &'static str,
        arguments: &[&str],
    ) -> Result<Said, ServiceError> {
        let program = self.find(name).ok_or(ServiceError::Absent(name))?;
        let command = format!("{name} {}", arguments.join(" "));
        let words: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let variables = self.handed_on();
        let answer = tokio::time::timeout(LIMIT, answer(&program, &words, &variables));
        match answer.await.unwrap_or(Err(CommandError::TooSlow(LIMIT))) {
            Ok((success, output, complaint)) => Ok(Said {
                command,
                success,
                output,
                complaint,
            }),
            Err(source) => Err(ServiceError::NoAnswer { command, source }),
        }
    }

    fn handed_on(&self) -> Vec<(String, String)> {
        let value = |name: &str| self.environment.get(name).cloned();
        let variables = HANDED_ON.into_iter();
        let variables = variables.filter_map(|name| Some((name.to_owned(), value(name)?)));
        let folder = self.runtime_folder();
        let folder = folder.map(|folder| (RUNTIME_FOLDER.to_owned(), folder));
        // Words that are read by a program should be in the language it knows.
        let language = ("LC_ALL".to_owned(), "C".to_owned());
        let variables = variables.chain(folder);
        variables.chain(std::iter::once(language)).collect()
    }

    /// Where the user's manager is found, when the client did not hand that on: many hand on very little.
    pub(super) fn runtime_folder(&self) -> Option<String> {
        if self.platform != Platform::Linux || self.environment.contains_key(RUNTIME_FOLDER) {
            return None;
        }
        let folder = format!("/run/user/{}", rustix::process::getuid().as_raw());
        Path::new(&folder).is_dir().then_some(folder)
    }
}

fn is_program(file: &Path) -> bool {
    rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file()
}

async fn answer(
    program: &Path,
    arguments: &[OsString],
    variables: &[(String, String)],
) -> Result<(bool, String, Option<String>), CommandError> {
    let asked = Companion::start(program, arguments, variables)?;
    drop(asked.input);
    let mut output = Vec::new();
    let mut said = asked.output.take(LONGEST);
    said.read_to_end(&mut output)
        .await
        .map_err(CommandError::Read)?;
    drop(said);
    let words = asked.process.words();
    let status = asked.process.end_within(LIMIT).await?;
    let output = String::from_utf8_lossy(&output).into_owned();
    Ok((status.success(), output, words.line()))
}
