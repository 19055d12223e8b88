//! launchd: an agent of the user that macOS keeps running.

use std::path::PathBuf;
use std::time::Duration;

use remote_sandbox_core::service::{
    LAUNCHD_LABEL, LaunchdState, ServiceDescription, ServiceKind, ServiceStatus, plist,
};

use super::{Begun, Service, ServiceError, Start, files};
use crate::{clock, fsio};

const PROGRAM: &str = "launchctl";

/// launchd refuses an agent for a moment after the one of the same name was taken away.
const MOST_ATTEMPTS: usize = 6;

/// The pause between two attempts, and between two looks.
const PAUSE: Duration = Duration::from_millis(300);

/// How long an agent that is taken away may take to end: launchd itself kills it after 20 s.
const END_LIMIT: Duration = Duration::from_secs(25);

impl Service {
    pub(super) fn plist_path(&self) -> PathBuf {
        let file = format!("Library/LaunchAgents/{LAUNCHD_LABEL}.plist");
        self.home.join(file)
    }

    fn domain(&self) -> String {
        format!("gui/{}", rustix::process::getuid().as_raw())
    }

    fn target(&self) -> String {
        format!("{}/{LAUNCHD_LABEL}", self.domain())
    }

    /// What launchd knows of the agent; none when it does not know it.
    async fn launchd_state(&self) -> Result<Option<LaunchdState>, ServiceError> {
        let said = self.ask(PROGRAM, &["print", &self.target()]).await?;
        if let Some(output) = said.output_of_success() {
            return Ok(Some(LaunchdState::from_print(output)));
        }
        // Loaded from a session without a desktop, or on a system that does not know `print`.
        let said = self.ask(PROGRAM, &["list", LAUNCHD_LABEL]).await?;
        Ok(said.output_of_success().map(LaunchdState::from_list))
    }

    /// Sets the agent up, and starts it where that is to be.
    pub(super) async fn install_agent(
        &self,
        service: &ServiceDescription,
        start: Start,
    ) -> Result<Begun, ServiceError> {
        // launchd would make it for everybody to read.
        files::open_log(&self.state)?;
        let is_new = files::write_definition(&self.plist_path(), &plist(service))?;
        let target = self.target();
        if start == Start::Later {
            // One that was disabled once would not begin with the next login either; where nobody can be told, it was not.
            let _ = self.ask(PROGRAM, &["enable", &target]).await;
            return Ok(Begun::nothing(false));
        }
        let mut ran_before = false;
        if let Some(state) = self.launchd_state().await? {
            ran_before = state.is_running();
            if !is_new && ran_before && start == Start::IfNeeded {
                return Ok(Begun::nothing(true));
            }
            if !is_new {
                let again = self.ask(PROGRAM, &["kickstart", "-k", &target]).await?;
                if again.output_of_success().is_some() {
                    return Ok(Begun::now(ran_before));
                }
            }
            self.unload_agent().await?;
        }
        // An agent that was disabled once would be refused for ever.
        self.ask(PROGRAM, &["enable", &target]).await?;
        self.load_agent().await?;
        Ok(Begun::now(ran_before))
    }

    async fn load_agent(&self) -> Result<(), ServiceError> {
        let (domain, path) = (self.domain(), self.plist_path());
        let path = path.to_string_lossy();
        for attempt in 1..=MOST_ATTEMPTS {
            let said = self.ask(PROGRAM, &["bootstrap", &domain, &path]).await?;
            if said.output_of_success().is_some() {
                return Ok(());
            }
            if attempt < MOST_ATTEMPTS {
                tokio::time::sleep(PAUSE).await;
            }
        }
        let said = self.ask(PROGRAM, &["load", "-w", &path]).await?;
        said.or_refused()?;
        // `load` ends well also when it has loaded nothing.
        match self.launchd_state().await? {
            Some(_) => Ok(()),
            None => Err(ServiceError::Refused {
                command: format!("{PROGRAM} load"),
                said: "the agent is not known afterwards".to_owned(),
            }),
        }
    }

    /// Has launchd forget the agent, and waits until it has: before that it takes no other of the same name.
    async fn unload_agent(&self) -> Result<(), ServiceError> {
        let said = self.ask(PROGRAM, &["bootout", &self.target()]).await?;
        // It may say that it failed because the agent is still ending.
        let limit = match said.output_of_success() {
            Some(_) => END_LIMIT,
            None => PAUSE,
        };
        if self.is_forgotten_within(limit).await? {
            return Ok(());
        }
        let path = self.plist_path();
        let path = path.to_string_lossy();
        let said = self.ask(PROGRAM, &["unload", &path]).await?;
        match self.is_forgotten_within(END_LIMIT).await? {
            true => Ok(()),
            false => {
                said.or_refused()?;
                Err(ServiceError::Refused {
                    command: format!("{PROGRAM} unload"),
                    said: "the agent is still known afterwards".to_owned(),
                })
            }
        }
    }

    async fn is_forgotten_within(&self, limit: Duration) -> Result<bool, ServiceError> {
        let begun = clock::instant();
        loop {
            if self.launchd_state().await?.is_none() {
                return Ok(true);
            }
            if begun.elapsed() >= limit {
                return Ok(false);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Takes the agent away; says whether there was one.
    pub(super) async fn uninstall_agent(&self) -> Result<bool, ServiceError> {
        let path = self.plist_path();
        if fsio::is_link(&path) {
            return Ok(false);
        }
        if self.is_foreign(&path) {
            return Ok(false);
        }
        let was_there = path.exists();
        if self.find(PROGRAM).is_some() && self.launchd_state().await?.is_some() {
            self.unload_agent().await?;
        }
        fsio::remove_file(&path)?;
        Ok(was_there)
    }

    /// How the agent is.
    pub(super) async fn agent_status(&self) -> Result<ServiceStatus, ServiceError> {
        let mut status = ServiceStatus::absent(self.platform, ServiceKind::Launchd);
        status.installed = self.plist_path().exists();
        let state = self.launchd_state().await?;
        status.loaded = state.is_some();
        status.detail = match (&state, status.installed) {
            (Some(state), _) => {
                let word = state.state.as_deref().unwrap_or("not running");
                format!("launchd has it loaded: {word}")
            }
            (None, true) => "the agent is installed, but launchd has not loaded it".to_owned(),
            (None, false) => status.detail,
        };
        let state = state.unwrap_or_default();
        (status.running, status.pid) = (state.is_running(), state.pid);
        if status.installed && !status.running {
            status.hint = Some("start it: remote-sandbox-mcp watchdog install".to_owned());
        }
        Ok(status)
    }
}
