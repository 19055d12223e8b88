//! Looks at all sandboxes at once; a dead one delays nobody.

use futures::StreamExt;
use remote_sandbox_core::config::SandboxEntry;
use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::probe::Resources;
use remote_sandbox_core::secret::Mask;

use super::Engine;
use crate::sandbox::{Description, Sandbox};

/// Hosts that are asked at the same time.
const AT_ONCE: usize = 64;

/// What was found out about a sandbox that can be used.
#[derive(Debug)]
pub struct Probed {
    /// What the configuration says.
    pub description: Description,
    /// Whether it answered.
    pub alive: Result<(), Failure>,
    /// Its load, when that was asked for.
    pub resources: Option<Result<Resources, Failure>>,
}

impl Probed {
    /// The words of a host go into errors too, and a host may repeat a secret.
    fn masked(mut self, mask: &Mask) -> Self {
        self.alive = self.alive.map_err(|failure| failure.masked(mask));
        let hide = |resources: Result<Resources, Failure>| {
            resources.map_err(|failure| failure.masked(mask))
        };
        self.resources = self.resources.map(hide);
        self
    }
}

/// One line of the list.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "the list is short and made once per call"
)]
pub enum Listed {
    /// A sandbox that can be used.
    Ready(Probed),
    /// A sandbox whose entry is broken.
    Disabled {
        /// Its name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Engine {
    /// All sandboxes, in the order of the configuration.
    pub async fn list(&self, with_resources: bool) -> Vec<Listed> {
        let looks = self.entries.iter().map(|entry| async move {
            match entry {
                SandboxEntry::Disabled { name, problem } => Listed::Disabled {
                    name: name.clone(),
                    reason: problem.to_string(),
                },
                SandboxEntry::Ready(config) => match self.sandboxes.get(config.name.as_str()) {
                    Some(sandbox) => {
                        let probed = look_at(sandbox.as_ref(), with_resources).await;
                        Listed::Ready(probed.masked(&self.mask))
                    }
                    None => Listed::Disabled {
                        name: config.name.to_string(),
                        reason: "it was not set up".to_owned(),
                    },
                },
            }
        });
        let looks: Vec<_> = looks.collect();
        futures::stream::iter(looks)
            .buffered(AT_ONCE)
            .collect()
            .await
    }

    /// The named or active sandbox, asked for a sign of life.
    pub async fn look(&self, name: Option<&str>) -> Result<Probed, Failure> {
        Ok(look_at(self.sandbox(name)?.as_ref(), false)
            .await
            .masked(&self.mask))
    }
}

async fn look_at(sandbox: &dyn Sandbox, with_resources: bool) -> Probed {
    let description = sandbox.description().clone();
    if !with_resources {
        return Probed {
            description,
            alive: sandbox.check().await,
            resources: None,
        };
    }
    // A probe is a sign of life too: one round trip instead of two.
    match sandbox.probe().await {
        Ok(resources) => Probed {
            description,
            alive: Ok(()),
            resources: Some(Ok(resources)),
        },
        // A host that answers but cannot be probed lives; one that was not reached is not asked
        // a second time, for that would double its delay.
        Err(failure) if failure.is_about_the_probe() => {
            let alive = sandbox.check().await;
            let resources = alive.is_ok().then_some(Err(failure));
            Probed {
                description,
                alive,
                resources,
            }
        }
        Err(failure) => Probed {
            description,
            alive: Err(failure),
            resources: None,
        },
    }
}
