//! Which of several hosts a job should go to, and why not to the others.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::Serialize;

use super::{Gpu, Resources, visible_devices_variables};

/// What a host must have to be chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// At least so many free GPUs or parts of divided ones.
    pub min_free_gpus: Option<u32>,
    /// At least so much free memory on each of them, in MiB; alone it asks for one GPU.
    pub min_gpu_free_mb: Option<u64>,
    /// A tag it carries.
    pub tag: Option<String>,
}

impl Wanted {
    /// Whether nothing is asked for.
    pub fn is_nothing(&self) -> bool {
        *self == Wanted::default()
    }

    /// Why a sandbox with these tags is out of the question, when it is.
    pub fn refuses_tags(&self, tags: &[String]) -> Option<String> {
        let tag = self.tag.as_ref()?;
        (!tags.contains(tag)).then(|| format!("has no tag `{tag}`"))
    }

    fn free_gpus(&self) -> usize {
        let implied = u32::from(self.min_gpu_free_mb.is_some());
        self.min_free_gpus.unwrap_or(implied) as usize
    }
}

/// A sandbox that was looked at.
#[derive(Debug)]
pub struct Candidate<'host> {
    /// Its name.
    pub name: &'host str,
    /// What it has, or why that is not known.
    pub resources: Result<&'host Resources, String>,
}

/// The best host and what speaks for it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Chosen {
    /// Its name.
    #[serde(skip)]
    pub name: String,
    /// Its idle score.
    pub idle_score: f64,
    /// How many GPUs, or parts of divided ones, a job can have there.
    pub free_gpus: usize,
    /// The variables by which a job takes them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub free_gpus_env: BTreeMap<&'static str, String>,
}

/// The outcome of a choice.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The best host, when one fits.
    pub chosen: Option<Chosen>,
    /// One line for each of the others: name and reason.
    pub others: Vec<String>,
}

/// Takes the idlest host that has what is wanted; of equally idle ones the one with more free GPUs, then the first.
pub fn choose(wanted: &Wanted, candidates: &[Candidate<'_>]) -> Choice {
    let judged: Vec<_> = candidates
        .iter()
        .map(|candidate| (candidate.name, judge(wanted, candidate)))
        .collect();
    let fitting = judged
        .iter()
        .filter_map(|(_, verdict)| verdict.as_ref().ok());
    // `max_by` takes the last of equals, hence the reversal.
    let chosen = fitting.rev().max_by(|one, two| compare(one, two)).cloned();
    let others = judged.into_iter().filter_map(|(name, verdict)| {
        let reason = match verdict {
            Err(reason) => reason,
            Ok(fit) if chosen.as_ref().is_some_and(|best| best.name == fit.name) => return None,
            Ok(fit) => format!(
                "fits, idle_score {} with {} free GPUs",
                fit.idle_score, fit.free_gpus
            ),
        };
        Some(format!("{name}: {reason}"))
    });
    Choice {
        others: others.collect(),
        chosen,
    }
}

fn compare(one: &Chosen, two: &Chosen) -> Ordering {
    one.idle_score
        .total_cmp(&two.idle_score)
        .then(one.free_gpus.cmp(&two.free_gpus))
}

fn judge(wanted: &Wanted, candidate: &Candidate<'_>) -> Result<Chosen, String> {
    let resources = candidate.resources.as_ref().map_err(String::clone)?;
    let free_mb = wanted.min_gpu_free_mb;
    let free_gpus: usize = resources
        .gpu
        .iter()
        .map(|gpu| gpu.free_devices(free_mb))
        .sum();
    if free_gpus < wanted.free_gpus() {
        return Err(shortage(wanted, resources, free_gpus));
    }
    let idle_score = resources.idle_score.ok_or("its load is not known")?;
    Ok(Chosen {
        name: candidate.name.to_owned(),
        idle_score,
        free_gpus,
        free_gpus_env: environment(&resources.gpu, free_mb),
    })
}

fn shortage(wanted: &Wanted, resources: &Resources, free_gpus: usize) -> String {
    let size = wanted
        .min_gpu_free_mb
        .map_or_else(String::new, |size| format!(" with {size} MB free"));
    let mut text = format!(
        "{free_gpus} of {} GPUs free{size}, {} wanted",
        resources.gpu.len(),
        wanted.free_gpus()
    );
    if let Some(error) = &resources.gpu_error {
        text.push_str("; ");
        text.push_str(error);
    }
    text
}

/// The variables by which a job takes all free GPUs of a host.
fn environment(gpus: &[Gpu], min_free_mb: Option<u64>) -> BTreeMap<&'static str, String> {
    let mut variables: BTreeMap<&'static str, String> = BTreeMap::new();
    for gpu in gpus.iter().filter(|gpu| gpu.is_free(min_free_mb)) {
        let Some(variable) = visible_devices_variables(gpu.vendor).first() else {
            continue;
        };
        let list = variables.entry(variable).or_default();
        if !list.is_empty() {
            list.push(',');
        }
        list.push_str(&gpu.index.to_string());
    }
    // A process can use one part of a divided GPU, and not together with whole ones.
    let parts = gpus.iter().flat_map(|gpu| &gpu.instances);
    let first_part = parts.into_iter().find(|part| part.is_free(min_free_mb));
    match variables.contains_key("CUDA_VISIBLE_DEVICES") {
        true => {
            // Without it CUDA counts the fastest GPU first, and nvidia-smi does not.
            variables.insert("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned());
        }
        false => {
            if let Some(part) = first_part {
                variables.insert("CUDA_VISIBLE_DEVICES", part.uuid.clone());
            }
        }
    }
    variables
}

#[cfg(test)]
#[path = "choose_tests.rs"]
mod tests;
