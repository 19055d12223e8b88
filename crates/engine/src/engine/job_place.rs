//! Finds the sandbox of a job: its name may mean another host in another configuration.

use std::sync::Arc;

use remote_sandbox_core::config::Reach;
use remote_sandbox_core::failure::{Code, Failure};

use super::Engine;
use crate::job::{self, JobOrder};
use crate::sandbox::Sandbox;
use crate::store::{JobRow, WatchRow};

/// How a sandbox on this machine is written down.
pub(super) const HERE: &str = "this machine";

impl Engine {
    /// The host that the name of a sandbox means here, as the configuration has it.
    pub(super) fn place(&self, name: &str) -> Option<String> {
        match self.config_named(name).map(|config| &config.reach) {
            Some(Reach::Host(host)) => Some(format!("{}@{}:{}", host.user, host.host, host.port)),
            Some(Reach::Alias(alias)) => {
                let user = alias.user.as_ref().map(|user| format!("{user}@"));
                let port = alias.port.map(|port| format!(":{port}"));
                let (user, port) = (user.unwrap_or_default(), port.unwrap_or_default());
                Some(format!("{user}{}{port}", alias.alias.as_str()))
            }
            None => {
                let sandbox = self.sandbox(Some(name)).ok()?;
                sandbox.description().local.as_ref()?;
                Some(HERE.to_owned())
            }
        }
    }

    /// The sandbox of a job: the one of our configuration when it is the same host, else the one that was kept for its
    /// watch. What the same name means otherwise is not asked, for it would say that the job is not there.
    pub(super) async fn sandbox_of_job(&self, row: &JobRow) -> Result<Arc<dyn Sandbox>, Failure> {
        let own = self.sandbox(Some(&row.sandbox));
        let place = place_of(row);
        if let Ok(own) = &own
            && place.is_some()
            && place == self.place(&row.sandbox)
        {
            return Ok(own.clone());
        }
        let watch = match row.watch_id {
            Some(watch) => self.store().watch(watch, &row.principal).await?,
            None => None,
        };
        let watch = watch.filter(|watch| watch.entry.is_some());
        let mut unasked = None;
        if let Ok(own) = &own {
            if self.may_be_there(place.as_ref(), row, watch.as_ref()) {
                return Ok(own.clone());
            }
            // A host with another address may have the job all the same, as after a move.
            match job::is_there(own.as_ref(), row).await {
                Ok(true) => return Ok(own.clone()),
                Ok(false) => {}
                Err(failure) => unasked = Some(failure),
            }
        }
        match (watch, own) {
            (Some(watch), _) => self.sandbox_of_watch(&watch).await,
            (None, Err(failure)) => Err(failure),
            // Whether it is another host is not known as long as it cannot be asked.
            (None, Ok(_)) => Err(unasked.unwrap_or_else(|| self.other_host(row))),
        }
    }

    /// Whether nothing speaks against the host that the name of its sandbox means here: it was started before that was
    /// written down, and its watch has no other entry.
    fn may_be_there(&self, place: Option<&String>, row: &JobRow, watch: Option<&WatchRow>) -> bool {
        let entry = watch.and_then(|watch| watch.entry.as_ref());
        place.is_none()
            && entry.is_none_or(|entry| self.kept_key(&row.sandbox).as_ref() == Some(entry))
    }

    fn other_host(&self, row: &JobRow) -> Failure {
        let then = place_of(row).unwrap_or_default();
        let now = self.place(&row.sandbox).unwrap_or_default();
        let text = format!(
            "sandbox `{}` is `{now}` here, but job `{}` was started on `{then}`, which is not configured under that name",
            row.sandbox, row.id
        );
        Failure::new(Code::NotConfigured, text)
            .hint("use a server whose configuration has that host under this name")
    }
}

/// The host that a job was started on, where that is written down.
pub(super) fn place_of(row: &JobRow) -> Option<String> {
    let order: JobOrder = serde_json::from_str(&row.spec).ok()?;
    order.place
}
