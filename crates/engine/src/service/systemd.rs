//! systemd: a service of the user that Linux keeps running.

use std::path::PathBuf;

use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::service::{
    SYSTEMD_UNIT, ServiceDescription, ServiceKind, ServiceStatus, SystemdState, linger_is_off, unit,
};

use super::{Begun, Service, ServiceError, Start, files};
use crate::fsio;

const PROGRAM: &str = "systemctl";

/// What is told where the user's systemd ends with the user's last session.
pub(super) const ENDS_WITH_SESSION: &str =
    "the watchdog ends when you log out everywhere; `loginctl enable-linger` keeps it running";

impl Service {
    fn unit_folder(&self) -> PathBuf {
        self.home.join(".config/systemd/user")
    }

    pub(super) fn unit_path(&self) -> PathBuf {
        self.unit_folder().join(SYSTEMD_UNIT)
    }

    async fn systemctl(&self, words: &[&str]) -> Result<super::manager::Said, ServiceError> {
        let mut arguments = vec!["--user"];
        arguments.extend(words);
        self.ask(PROGRAM, &arguments).await
    }

    /// Why the user's manager cannot be used; nothing when it answers.
    pub(super) async fn no_systemd(&self) -> Option<String> {
        let asked = self.systemctl(&["show", "--property=Version"]).await;
        match asked.and_then(super::manager::Said::or_refused) {
            Ok(said) if said.output.contains("Version=") => None,
            Ok(_) => Some("`systemctl --user` does not know its manager".to_owned()),
            Err(error) => Some(Failure::chain(&error)),
        }
    }

    async fn systemd_state(&self) -> Result<SystemdState, ServiceError> {
        let properties = format!("--property={}", SystemdState::PROPERTIES);
        let said = self.systemctl(&["show", SYSTEMD_UNIT, &properties]).await?;
        Ok(SystemdState::from_show(&said.or_refused()?.output))
    }

    /// Sets the unit up, and starts it where that is to be.
    pub(super) async fn install_unit(
        &self,
        service: &ServiceDescription,
        start: Start,
    ) -> Result<Begun, ServiceError> {
        let is_new = files::write_definition(&self.unit_path(), &unit(service))?;
        if is_new {
            self.systemctl(&["daemon-reload"]).await?.or_refused()?;
        }
        let state = self.systemd_state().await?;
        let is_enabled = state.file == "enabled";
        let is_running = state.is_running();
        if start == Start::Later {
            if !is_enabled {
                let enabled = self.systemctl(&["enable", SYSTEMD_UNIT]).await?;
                enabled.or_refused()?;
            }
            return Ok(Begun::nothing(is_running));
        }
        if is_running && is_enabled && !is_new && start == Start::IfNeeded {
            return Ok(Begun::nothing(true));
        }
        let begun = self.systemctl(&["enable", "--now", SYSTEMD_UNIT]).await?;
        begun.or_refused()?;
        if is_running && (is_new || start == Start::Afresh) {
            let again = self.systemctl(&["restart", SYSTEMD_UNIT]).await?;
            again.or_refused()?;
        }
        Ok(Begun::now(is_running))
    }

    /// Takes the unit away; says whether there was one.
    pub(super) async fn uninstall_unit(&self) -> Result<bool, ServiceError> {
        let path = self.unit_path();
        if fsio::is_link(&path) {
            // Somebody has masked it; that is not ours to undo.
            return Ok(false);
        }
        if self.is_foreign(&path) {
            return Ok(false);
        }
        if !path.exists() {
            self.remove_unit()?;
            return Ok(false);
        }
        if let Some(said) = self.no_systemd().await {
            // What runs would go on, and nobody would know of it any more.
            return Err(ServiceError::Refused {
                command: format!("systemctl --user disable --now {SYSTEMD_UNIT}"),
                said,
            });
        }
        let ended = self.systemctl(&["disable", "--now", SYSTEMD_UNIT]).await?;
        self.remove_unit()?;
        self.systemctl(&["daemon-reload"]).await?.or_refused()?;
        // One that failed before would still be listed; one that did not is none to be reset.
        self.systemctl(&["reset-failed", SYSTEMD_UNIT]).await?;
        ended.or_refused()?;
        Ok(true)
    }

    /// Removes the unit, and what makes it begin with the session.
    pub(super) fn remove_unit(&self) -> Result<(), ServiceError> {
        fsio::remove_file(&self.unit_path())?;
        let wanted = self.unit_folder().join("default.target.wants");
        fsio::remove_file(&wanted.join(SYSTEMD_UNIT))?;
        // Others may have put theirs there.
        let _ = fsio::remove_empty_directory(&wanted);
        Ok(())
    }

    /// How the unit is.
    pub(super) async fn unit_status(&self) -> Result<ServiceStatus, ServiceError> {
        let mut status = ServiceStatus::absent(self.platform, ServiceKind::Systemd);
        status.installed = self.unit_path().exists();
        if !status.installed {
            return Ok(status);
        }
        let state = self.systemd_state().await?;
        status.loaded = true;
        (status.running, status.pid) = (state.is_running(), state.pid);
        let words = [&state.active, &state.sub, &state.file].map(String::as_str);
        status.detail = format!("systemd says: {}", words.join(", "));
        status.hint = if !status.running {
            Some("start it: remote-sandbox-mcp watchdog install; its log: journalctl --user -u remote-sandbox-watchdog".to_owned())
        } else if self.lingers_not().await {
            Some(ENDS_WITH_SESSION.to_owned())
        } else {
            None
        };
        Ok(status)
    }

    /// Whether it is known that the user's systemd ends with the user's last session.
    pub(super) async fn lingers_not(&self) -> bool {
        let user = rustix::process::getuid().as_raw().to_string();
        let words = ["show-user", &user, "--property=Linger"];
        let said = self.ask("loginctl", &words).await.ok();
        said.is_some_and(|said| said.output_of_success().is_some_and(linger_is_off))
    }
}
