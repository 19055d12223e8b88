//! Whose processes are on the GPUs: the listings of `/proc` that follow the vendors' own lists.

use std::collections::BTreeMap;

use super::super::report::Report;
use super::super::text::clean;
use super::device::GpuProcess;

/// The lists of processes that owners are looked up for.
const LISTS: [&str; 6] = ["nvidia", "instances", "amd", "rocm", "kfd", "ascend"];

/// Most processes whose owners are taken.
const MOST_OWNERS: usize = 1024;

#[derive(Debug, Default)]
struct Owner {
    user_id: Option<u32>,
    name: Option<String>,
}

/// The owners of processes, and who is asking.
#[derive(Debug, Default)]
pub(in crate::probe) struct Owners {
    own_id: Option<u32>,
    by_pid: BTreeMap<u32, Owner>,
}

impl Owners {
    /// Reads all listings of a report.
    pub(in crate::probe) fn read(report: &Report<'_>) -> Self {
        let mut owners = Owners::default();
        for list in LISTS {
            if let Some(section) = report.section(&format!("{list}_owners")) {
                let own_id = section.value("self").and_then(|id| id.parse().ok());
                owners.own_id = owners.own_id.or(own_id);
                for (pid, word) in section.lines().filter_map(listed) {
                    if let Some(owner) = owners.owner(pid) {
                        owner.user_id = word.parse().ok();
                    }
                }
            }
            if let Some(section) = report.section(&format!("{list}_names")) {
                for (pid, word) in section.lines().filter_map(listed) {
                    if let Some(owner) = owners.owner(pid) {
                        owner.name = Some(clean(word)).filter(|name| !name.is_empty());
                    }
                }
            }
        }
        owners
    }

    fn owner(&mut self, pid: u32) -> Option<&mut Owner> {
        let has_room = self.by_pid.len() < MOST_OWNERS || self.by_pid.contains_key(&pid);
        has_room.then(|| self.by_pid.entry(pid).or_default())
    }

    /// Whether a process is the login user's own.
    pub(super) fn is_ours(&self, pid: u32) -> bool {
        let user_id = self.by_pid.get(&pid).and_then(|owner| owner.user_id);
        user_id.is_some() && user_id == self.own_id
    }

    /// A process with its owner filled in.
    pub(super) fn process(
        &self,
        pid: Option<u32>,
        name: Option<String>,
        mem_used_mb: Option<u64>,
    ) -> GpuProcess {
        let owner = pid.and_then(|pid| self.by_pid.get(&pid));
        GpuProcess {
            pid,
            name,
            mem_used_mb,
            user: owner.and_then(|owner| {
                let number = || owner.user_id.map(|id| id.to_string());
                owner.name.clone().or_else(number)
            }),
            ours: pid.is_some_and(|pid| self.is_ours(pid)),
        }
    }
}

// "dr-xr-xr-x 9 ann staff 0 Jan 1 00:00 /proc/123": the third word is the owner.
fn listed(line: &str) -> Option<(u32, &str)> {
    let (_, pid) = line.rsplit_once("/proc/")?;
    let owner = line.split_whitespace().nth(2)?;
    Some((pid.trim().parse().ok()?, owner))
}

#[cfg(test)]
mod tests {
    use super::super::super::samples::read;
    use super::*;

    const NUMBERS: &str = "self 1000\n\
        dr-xr-xr-x 9 1000 1000 0 Oct  1 10:00 /proc/41\n\
        dr-xr-xr-x 9 1001 1001 0 Oct  1 10:00 /proc/42";
    const NAMES: &str = "dr-xr-xr-x 9 ann users 0 Oct  1 10:00 /proc/41\n\
        ls: cannot access '/proc/43': No such file or directory";

    fn owners(numbers: &str, names: &str) -> Owners {
        let sections = [
            ("nvidia_owners", "0", numbers),
            ("nvidia_names", "2", names),
        ];
        read(&sections, Owners::read)
    }

    #[test]
    fn process_of_the_login_user_is_ours() {
        let process = owners(NUMBERS, NAMES).process(Some(41), None, None);
        assert_eq!(process.user.as_deref(), Some("ann"));
        assert!(process.ours);
    }

    #[test]
    fn process_of_another_user_is_foreign_and_shown_by_number_when_it_has_no_name() {
        let process = owners(NUMBERS, NAMES).process(Some(42), None, None);
        assert_eq!(process.user.as_deref(), Some("1001"));
        assert!(!process.ours);
    }

    #[test]
    fn process_without_an_owner_is_foreign() {
        let owners = owners(NUMBERS, NAMES);
        assert!(!owners.process(Some(43), None, None).ours);
        assert!(!owners.process(None, None, None).ours);
    }

    #[test]
    fn process_is_foreign_when_nobody_knows_who_asks() {
        let numbers = NUMBERS.strip_prefix("self 1000\n").unwrap();
        assert!(!owners(numbers, NAMES).process(Some(41), None, None).ours);
    }

    #[test]
    fn owners_are_bounded() {
        let line = |pid: usize| format!("d 9 1 1 0 x /proc/{pid}\n");
        let numbers: String = (0..MOST_OWNERS * 2).map(line).collect();
        assert_eq!(owners(&numbers, "").by_pid.len(), MOST_OWNERS);
    }
}
