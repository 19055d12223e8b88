//! Looks at all sandboxes at once; a dead one delays nobody.

use futures::StreamExt;
use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::output::clean_line;
use remote_sandbox_core::probe::{Candidate, Chosen, Resources, Wanted, choose};
use remote_sandbox_core::secret::Mask;

use super::{Engine, Line};
use crate::questions;
use crate::sandbox::{Description, Sandbox};

/// The name that stands for the idlest sandbox.
const AUTO: &str = "auto";

/// Most sandboxes for which it is said why they were not chosen.
const MOST_REASONS: usize = 24;

/// Longest reason, in characters.
const LONGEST_REASON: usize = 160;

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

impl Listed {
    fn name(&self) -> &str {
        match self {
            Listed::Ready(probed) => probed.description.name.as_str(),
            Listed::Disabled { name, .. } => name,
        }
    }

    /// What it has, or why it cannot be chosen.
    fn resources(&self) -> Result<&Resources, String> {
        match self {
            Listed::Ready(probed) => match (&probed.alive, &probed.resources) {
                (Err(failure), _) => Err(failure.message.clone()),
                (Ok(()), Some(Ok(resources))) => Ok(resources),
                (Ok(()), Some(Err(failure))) => Err(failure.message.clone()),
                (Ok(()), None) => Err("its load was not measured".to_owned()),
            },
            Listed::Disabled { reason, .. } => Err(format!("disabled: {reason}")),
        }
    }
}

/// What became of a wish for a sandbox.
#[derive(Debug)]
pub enum Selected {
    /// The one of this name.
    Named {
        /// Its name.
        name: String,
        /// Whether it is called like the word that stands for the idlest one.
        is_called_auto: bool,
    },
    /// The idlest one.
    Idlest {
        /// Which, and what speaks for it.
        chosen: Chosen,
        /// Why the others were not chosen, a bounded number of them.
        others: Vec<String>,
    },
}

impl Engine {
    /// Makes the named sandbox the active one, or the idlest that fits when the name is `auto`.
    pub async fn select_wanted(&self, name: &str, wanted: &Wanted) -> Result<Selected, Failure> {
        let is_called_auto = self.lines().iter().any(|line| line.name() == AUTO);
        if name == AUTO && !is_called_auto {
            return self.select_idlest(wanted).await;
        }
        if !wanted.is_nothing() {
            let text = if name == AUTO {
                "a sandbox is named `auto`, so it is taken and nothing is compared"
            } else {
                "min_free_gpus, min_gpu_free_mb and tag go with sandbox_name \"auto\" only"
            };
            return Err(Failure::new(Code::InvalidParams, text)
                .hint("leave them out, or pass \"auto\" where no sandbox has that name"));
        }
        self.select(name)?;
        Ok(Selected::Named {
            name: name.to_owned(),
            is_called_auto: name == AUTO,
        })
    }

    async fn select_idlest(&self, wanted: &Wanted) -> Result<Selected, Failure> {
        if self.names().is_empty() {
            return Err(self.nothing_configured());
        }
        let refuses = |tags: &[String]| wanted.refuses_tags(tags);
        let listed = self.look_at_all(self.lines(), true, refuses).await;
        let candidates: Vec<Candidate<'_>> = listed
            .iter()
            .map(|line| Candidate {
                name: line.name(),
                resources: line.resources(),
            })
            .collect();
        let choice = choose(wanted, &candidates);
        let mut others: Vec<String> = choice
            .others
            .iter()
            .map(|line| clean_line(line, LONGEST_REASON))
            .collect();
        if others.len() > MOST_REASONS {
            let more = others.len() - MOST_REASONS;
            others.truncate(MOST_REASONS);
            others.push(format!("and {more} more"));
        }
        let Some(chosen) = choice.chosen else {
            let text = format!("no sandbox fits: {}", others.join("; "));
            return Err(Failure::new(Code::NotFound, text)
                .hint("ask for less, or wait; the active sandbox has not changed")
                .retry());
        };
        self.select(&chosen.name)?;
        Ok(Selected::Idlest { chosen, others })
    }

    /// All sandboxes, in the order of the configuration.
    pub async fn list(&self, with_resources: bool) -> Vec<Listed> {
        self.look_at_all(self.lines(), with_resources, |_| None)
            .await
    }

    /// The named sandboxes, in the order of the configuration; all of them when none is named.
    pub async fn list_named(
        &self,
        names: &[String],
        with_resources: bool,
    ) -> Result<Vec<Listed>, Failure> {
        for name in names {
            self.sandbox(Some(name))?;
        }
        let mut lines = self.lines();
        lines.retain(|line| names.is_empty() || names.iter().any(|name| name == line.name()));
        Ok(self.look_at_all(lines, with_resources, |_| None).await)
    }

    /// Asks all whose tags are not refused; the others are listed with the reason, without being asked.
    async fn look_at_all(
        &self,
        lines: Vec<Line>,
        with_resources: bool,
        refuses: impl Fn(&[String]) -> Option<String>,
    ) -> Vec<Listed> {
        let refuses = &refuses;
        let looks = lines.into_iter().map(|line| async move {
            match line {
                Line::Disabled { name, reason } => Listed::Disabled { name, reason },
                Line::Ready(sandbox) => {
                    let probed = match refuses(&sandbox.description().tags) {
                        Some(reason) => pass_over(sandbox.as_ref(), reason),
                        None => look_at(sandbox.as_ref(), with_resources).await,
                    };
                    Listed::Ready(probed.masked(&self.mask))
                }
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

fn pass_over(sandbox: &dyn Sandbox, reason: String) -> Probed {
    Probed {
        description: sandbox.description().clone(),
        alive: Err(Failure::new(Code::NotFound, reason)),
        resources: None,
    }
}

async fn look_at(sandbox: &dyn Sandbox, with_resources: bool) -> Probed {
    let (alive, resources) = ask(sandbox, with_resources).await;
    Probed {
        // Asking may have found out more about it.
        description: sandbox.description().clone(),
        alive,
        resources,
    }
}

async fn ask(
    sandbox: &dyn Sandbox,
    with_resources: bool,
) -> (Result<(), Failure>, Option<Result<Resources, Failure>>) {
    if !with_resources {
        return (sandbox.check().await, None);
    }
    // A probe is a sign of life too: one round trip instead of two.
    match questions::resources(sandbox).await {
        Ok(resources) => (Ok(()), Some(Ok(resources))),
        // A host that answers but cannot be probed lives; one that was not reached is not asked
        // a second time, for that would double its delay.
        Err(failure) if failure.is_about_the_probe() => {
            let alive = sandbox.check().await;
            let resources = alive.is_ok().then_some(Err(failure));
            (alive, resources)
        }
        Err(failure) => (Err(failure), None),
    }
}
