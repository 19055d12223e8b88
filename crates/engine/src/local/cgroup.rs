//! Bounds all processes of a sandbox together, where the system lets this user have control groups.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use remote_sandbox_core::local::{Limits, LocalName, mark_of};

use crate::fsio;

/// Where the one hierarchy of control groups is.
const MOUNT: &str = "/sys/fs/cgroup";

/// How many levels above our own group are looked at.
const MOST_LEVELS: usize = 32;

/// The time in which a share of the processors is counted, in microseconds.
const PERIOD: u64 = 100_000;

/// A group in which new ones may be made, with the controllers that are needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Delegated(PathBuf);

/// What goes into which file of a group.
fn settings(limits: &Limits) -> Vec<(&'static str, &'static str, String)> {
    let mut settings = Vec::new();
    if let Some(most) = limits.memory_mb {
        let bytes = most.saturating_mul(1 << 20);
        settings.push(("memory", "memory.max", bytes.to_string()));
    }
    if let Some(most) = limits.processes {
        settings.push(("pids", "pids.max", most.to_string()));
    }
    if let Some(percent) = limits.cpu_percent {
        let quota = percent.saturating_mul(PERIOD / 100);
        settings.push(("cpu", "cpu.max", format!("{quota} {PERIOD}")));
    }
    settings
}

impl Delegated {
    /// Finds the nearest group above ours that can hold one for each sandbox.
    pub(super) fn find(limits: &Limits) -> Option<Self> {
        let own = fsio::read_bounded(Path::new("/proc/self/cgroup"), 64 * 1024);
        let own = own.ok()??;
        let own = String::from_utf8(own).ok()?;
        let found = Delegated::find_in(Path::new(MOUNT), &own, limits);
        found.filter(|found| found.works(limits))
    }

    fn find_in(mount: &Path, own: &str, limits: &Limits) -> Option<Self> {
        let needed = settings(limits);
        if needed.is_empty() {
            return None;
        }
        let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let own = mount.join(own);
        // Our own group holds us, and a group with processes in it can have no bounded ones below.
        let above = own.ancestors().skip(1).take(MOST_LEVELS);
        let mut above = above.take_while(|group| group.starts_with(mount));
        let found = above.find(|group| {
            let enabled = read(&group.join("cgroup.subtree_control"));
            let has = |name: &str| enabled.split_ascii_whitespace().any(|word| word == name);
            let may_write =
                |path: &Path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
            needed.iter().all(|(controller, ..)| has(controller))
                && may_write(group)
                && may_write(&group.join("cgroup.procs"))
        });
        found.map(|group| Delegated(group.to_owned()))
    }

    /// Whether bounds can really be set there, by setting them for a moment.
    fn works(&self, limits: &Limits) -> bool {
        let Ok(name) = LocalName::parse("trial") else {
            return false;
        };
        let place = format!("{}", std::process::id());
        let made = self.make(&name, Path::new(&place), limits).is_ok();
        self.remove(&name, Path::new(&place));
        made
    }

    fn group(&self, name: &LocalName, folder: &Path) -> PathBuf {
        // Sandboxes of different state folders may have one name.
        let mark = mark_of(folder.as_os_str().as_encoded_bytes());
        self.0.join(format!("remote-sandbox-{name}-{mark:016x}"))
    }

    /// Makes the group of a sandbox; whoever writes to what this gives belongs to it.
    pub(super) fn make(
        &self,
        name: &LocalName,
        folder: &Path,
        limits: &Limits,
    ) -> Result<OwnedFd, fsio::FileError> {
        let group = self.group(name, folder);
        fsio::private_directory(&group)?;
        for (_, file, value) in settings(limits) {
            fsio::write_setting(&group.join(file), &value)?;
        }
        fsio::open_setting(&group.join("cgroup.procs"))
    }

    /// Ends everything in the group of a sandbox, where the kernel can.
    pub(super) fn kill(&self, name: &LocalName, folder: &Path) {
        let file = self.group(name, folder).join("cgroup.kill");
        if file.exists()
            && let Err(error) = fsio::write_setting(&file, "1")
        {
            tracing::debug!(%error, "a control group could not be ended");
        }
    }

    /// Removes the group of a sandbox in which nothing runs any more.
    pub(super) fn remove(&self, name: &LocalName, folder: &Path) {
        if let Err(error) = fsio::remove_empty_directory(&self.group(name, folder)) {
            tracing::debug!(%error, "a control group stays");
        }
    }
}

fn read(path: &Path) -> String {
    let text = fsio::read_bounded(path, 4096).ok().flatten();
    String::from_utf8(text.unwrap_or_default()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        memory_mb: Some(64),
        processes: Some(100),
        cpu_percent: Some(150),
    };

    /// A tree like the kernel's; the real one of this machine may not be ours to change.
    fn tree(enabled: &[(&str, &str)]) -> tempfile::TempDir {
        let mount = tempfile::tempdir().unwrap();
        for (group, controllers) in enabled {
            let group = mount.path().join(group);
            std::fs::create_dir_all(&group).unwrap();
            std::fs::write(group.join("cgroup.subtree_control"), controllers).unwrap();
            std::fs::write(group.join("cgroup.procs"), "").unwrap();
        }
        mount
    }

    #[test]
    fn nearest_group_with_all_controllers_is_taken_and_never_our_own() {
        let mount = tree(&[
            ("user", "cpu memory pids"),
            ("user/app", "memory pids cpu io"),
            ("user/app/slice", "memory"),
            ("user/app/slice/us", "memory pids cpu"),
        ]);
        let find = |own: &str, limits| Delegated::find_in(mount.path(), own, limits);
        let found = find("1:name=x:/z\n0::/user/app/slice/us\n", &LIMITS);
        assert_eq!(found, Some(Delegated(mount.path().join("user/app"))));
        let memory = Limits {
            memory_mb: Some(1),
            ..Limits::default()
        };
        let found = find("0::/user/app/slice/us\n", &memory);
        assert_eq!(found, Some(Delegated(mount.path().join("user/app/slice"))));
        assert_eq!(find("0::/user\n", &LIMITS), None);
        assert_eq!(find("3:memory:/user/app/slice\n", &LIMITS), None);
        assert_eq!(find("0::/user/app\n", &Limits::default()), None);
    }

    #[test]
    fn group_of_a_sandbox_gets_its_bounds() {
        let mount = tree(&[("user", "cpu memory pids"), ("user/us", "")]);
        let base = Delegated::find_in(mount.path(), "0::/user/us\n", &LIMITS).unwrap();
        let name = LocalName::parse("one").unwrap();
        let group = base.group(&name, Path::new("/state/one"));
        assert_ne!(group, base.group(&name, Path::new("/other/one")));
        std::fs::create_dir(&group).unwrap();
        for file in ["memory.max", "pids.max", "cpu.max", "cgroup.procs"] {
            std::fs::write(group.join(file), "").unwrap();
        }
        base.make(&name, Path::new("/state/one"), &LIMITS).unwrap();
        let said = |file: &str| std::fs::read_to_string(group.join(file)).unwrap();
        assert_eq!(said("memory.max"), "67108864");
        assert_eq!(said("pids.max"), "100");
        assert_eq!(said("cpu.max"), "150000 100000");
    }
}
