//! Looks at the configuration: what is read, what is wrong in it, and who else can read it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use remote_sandbox_core::config::{
    Config, ConfigText, Environment, FileChoice, Platform, SOURCE_MAX_BYTES, SandboxEntry, Sources,
    VARIABLES, config_file_location, resolve, state_dir,
};
use remote_sandbox_core::doctor::{Status, Step, StepName};
use remote_sandbox_core::failure::Failure;
use serde::Serialize;

use crate::engine::{load_config, needs_local};
use crate::secrets::SecretStore;
use crate::{clock, fsio, store};

/// A keychain that hangs must not hang this too.
const SECRETS_LIMIT: Duration = Duration::from_secs(10);

/// What was found out about the configuration.
#[derive(Debug, Default, Serialize)]
pub struct ConfigurationReport {
    /// The configuration file that is read, if there is one.
    pub file: Option<PathBuf>,
    /// The names of the variables that are set and read.
    pub variables: Vec<String>,
    /// Where this program keeps what it must remember.
    pub state: Option<PathBuf>,
    /// The steps in their order.
    pub steps: Vec<Step>,
}

/// Looks at the configuration as the server reads it; the configuration itself comes with it where it
/// can be used.
pub fn examine_configuration(
    flag: Option<&Path>,
    environment: &Environment,
) -> (ConfigurationReport, Option<Config>) {
    let mut report = ConfigurationReport::default();
    report.look_at_sources(flag, environment);
    let config = match load_config(flag, environment.clone()) {
        Ok(config) => Some(config),
        Err(error) => {
            let fix = "correct the path after --config or in REMOTE_SANDBOX_CONFIG, or make the file readable";
            report.add(Step::failed(StepName::File, &Failure::chain(&error), fix));
            None
        }
    };
    report.look_at_state(environment);
    if let Some(config) = &config {
        report.look_at_entries(config);
        report.look_at_secrets(config, environment);
    }
    let usable = config.filter(|_| report.state.is_some());
    (report, usable)
}

impl ConfigurationReport {
    fn add(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// Whether anything is wrong.
    pub fn has_failed(&self) -> bool {
        self.steps.iter().any(|step| step.status == Status::Failed)
    }

    fn look_at_sources(&mut self, flag: Option<&Path>, environment: &Environment) {
        let file = match config_file_location(flag, environment, Platform::current()) {
            FileChoice::None => None,
            FileChoice::Required(path) => Some(path),
            FileChoice::Optional(paths) => {
                let exists = |path: &PathBuf| fsio::mode_and_ownership(path).is_ok();
                paths.into_iter().find(exists)
            }
        };
        match &file {
            Some(path) if fsio::mode_and_ownership(path).is_ok() => {
                self.add(Step::ok(StepName::File, &path.display().to_string()));
                self.look_at_permissions(path, environment);
            }
            // What is asked for and missing is told by the reading itself.
            Some(_) => {}
            None => self.add(Step::ok(StepName::File, "none")),
        }
        self.file = file;
        let set = |name: &&str| environment.get(*name).is_some_and(|text| !text.is_empty());
        self.variables = VARIABLES
            .iter()
            .map(|variable| variable.name)
            .filter(set)
            .map(str::to_owned)
            .collect();
        let shown = match self.variables.is_empty() {
            true => "none".to_owned(),
            false => self.variables.join(", "),
        };
        self.add(Step::ok(StepName::Variables, &shown));
    }

    /// A file with a secret in it should be its owner's alone.
    fn look_at_permissions(&mut self, path: &Path, environment: &Environment) {
        let Ok(access) = fsio::mode_and_ownership(path) else {
            return;
        };
        if access.mode & 0o077 == 0 || !holds_secret(path, environment) {
            return;
        }
        let shown = path.display();
        let mode = access.mode & 0o777;
        self.add(Step::warning(
            StepName::Permissions,
            &format!(
                "{shown} holds a secret in clear text, and others may use it (mode {mode:03o})"
            ),
            &format!("chmod 600 {shown}, or keep the secret with `remote-sandbox-mcp secret set`"),
        ));
    }

    fn look_at_state(&mut self, environment: &Environment) {
        let fix = "correct its access rights, or set REMOTE_SANDBOX_MCP_HOME to another folder";
        let folder = match state_dir(environment, Platform::current()) {
            Ok(folder) => folder,
            Err(error) => return self.add(Step::failed(StepName::State, &error.to_string(), fix)),
        };
        let trial = folder.join(format!("trial-{}", uuid::Uuid::now_v7().simple()));
        let tried = fsio::private_directory(&folder)
            .and_then(|()| fsio::write_atomically(&trial, b"written by doctor\n"))
            .and_then(|()| fsio::remove_file(&trial))
            .and_then(|()| fsio::mode_and_ownership(&folder));
        let shown = folder.display();
        self.add(match tried {
            Err(error) => Step::failed(StepName::State, &Failure::chain(&error), fix),
            Ok(access) if access.mode & 0o077 != 0 => Step::warning(
                StepName::State,
                &format!(
                    "{shown} can be used by others (mode {:03o})",
                    access.mode & 0o777
                ),
                &format!("chmod 700 {shown}"),
            ),
            Ok(_) => Step::ok(StepName::State, &format!("{shown}, private and writable")),
        });
        for file in store::damaged_files(&folder) {
            let shown = file.display();
            self.add(Step::warning(
                StepName::State,
                &format!(
                    "{shown} is a store that was damaged and set aside; what it held is forgotten"
                ),
                "look at the disk it lies on, then remove this file",
            ));
        }
        self.state = Some(folder);
    }

    fn look_at_entries(&mut self, config: &Config) {
        for problem in &config.problems {
            let fix = "correct it; the rest of the configuration is used meanwhile";
            self.add(Step::failed(StepName::Problem, &problem.to_string(), fix));
        }
        let mut ready = 0;
        for entry in &config.sandboxes {
            match entry {
                SandboxEntry::Disabled { name, problem } => self.add(Step::failed(
                    StepName::Entry,
                    &format!("`{name}` is disabled: {problem}"),
                    "correct this entry; the others work",
                )),
                SandboxEntry::Ready(sandbox) => {
                    ready += 1;
                    for note in &sandbox.notes {
                        let detail = format!("`{}`: {note}", sandbox.name);
                        let fix = "change the entry, or leave it if it is meant";
                        self.add(Step::warning(StepName::Note, &detail, fix));
                    }
                }
            }
        }
        self.add(match (ready, config.sandboxes.len()) {
            (0, 0) if needs_local(config) => {
                Step::ok(StepName::Sandboxes, "none configured; `local` on this machine is there")
            }
            (0, 0) => Step::failed(
                StepName::Sandboxes,
                "no sandbox is configured",
                "set REMOTE_SANDBOX_LIST, or REMOTE_HOST with REMOTE_USER and REMOTE_PASSWORD or REMOTE_KEY_FILE, or write a config file",
            ),
            (0, _) => Step::failed(
                StepName::Sandboxes,
                "every configured sandbox is disabled",
                "correct the entries named above",
            ),
            (ready, all) => Step::ok(StepName::Sandboxes, &format!("{ready} of {all} can be used")),
        });
    }

    fn look_at_secrets(&mut self, config: &Config, environment: &Environment) {
        // Without a state folder there is no store, which has been told already.
        let Ok(store) = SecretStore::of(environment) else {
            return;
        };
        let started = clock::instant();
        for name in config.stored_secret_names() {
            if started.elapsed() > SECRETS_LIMIT {
                let why = format!("`{name}`: the keychain is too slow");
                self.add(Step::skipped(StepName::Secret, &why));
                continue;
            }
            self.add(match store.get(name) {
                Ok(_) => Step::ok(StepName::Secret, &format!("`{name}` is kept")),
                Err(error) => Step::failed(
                    StepName::Secret,
                    &Failure::chain(&error),
                    &format!("remote-sandbox-mcp secret set {name}"),
                ),
            });
        }
    }
}

/// Whether a secret stands in the file itself: one that is found without any variable.
fn holds_secret(path: &Path, environment: &Environment) -> bool {
    let Ok(Some(text)) = fsio::read_bounded(path, SOURCE_MAX_BYTES as u64) else {
        return false;
    };
    let Ok(file) = ConfigText::new(path.to_owned(), text) else {
        return false;
    };
    let home = environment.get_key_value("HOME");
    let sources = Sources {
        environment: home
            .into_iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        file: Some(file),
    };
    resolve(&sources).secrets().next().is_some()
}

#[cfg(test)]
#[path = "configuration_tests.rs"]
mod tests;
