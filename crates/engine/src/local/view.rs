//! What this machine has that commands in a sandbox may see.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use remote_sandbox_core::local::{Grant, Hidden, Network, SystemPath, View, readable_grants};

/// Where systems keep programs, libraries and their settings.
const SYSTEM: [&str; 11] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/gnu",
];

/// What may hold files that only root may read, and how deep that is looked for: programs come in
/// folders with many files, their settings do not.
const SEARCHED: [(&str, usize); 3] = [("/etc", 32), ("/opt", 2), ("/usr/local/etc", 8)];

/// Most entries that are looked at for such files; what is beyond is hidden as a whole.
const MOST_ENTRIES: usize = 50_000;

/// How the names of devices for computing begin.
const DEVICES: [&str; 7] = [
    "nvidia",
    "kfd",
    "dri",
    "davinci",
    "hisi_hdc",
    "devmm_svm",
    "dxg",
];

/// What every program may use, where no /dev of its own can be made.
const PLAIN_DEVICES: [&str; 5] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
];

/// What commands must not see wherever it lies.
#[derive(Debug, Clone, Default)]
pub(super) struct Private {
    /// The user's home.
    pub(super) home: Option<PathBuf>,
    /// What this program keeps: other sandboxes, records, logs.
    pub(super) state: PathBuf,
}

/// What commands see, for a sandbox with these folders. It looks at many files.
pub(super) fn view_of(
    home: &Path,
    temporary: &Path,
    readable: &[PathBuf],
    private: &Private,
    network: Network,
) -> View {
    let is_shown = |path: &Path, shown: &[&str]| shown.iter().any(|shown| path.starts_with(shown));
    let is_readable = |path: &Path| readable.iter().any(|shown| path.starts_with(shown));
    let mut hidden = hidden(rustix::process::geteuid().is_root());
    let mut hide = |path: &Path| {
        hidden.retain(|other| !other.path.starts_with(path));
        hidden.push(Hidden {
            path: path.to_owned(),
            is_folder: true,
        });
    };
    // Whoever names the home itself as readable wants it to be read; what we keep is never meant.
    if let Some(own) = private.home.as_deref().filter(|own| is_shown(own, &SYSTEM)) {
        hide(own);
    }
    if is_shown(&private.state, &SYSTEM) || is_readable(&private.state) {
        hide(&private.state);
    }
    View {
        system: SYSTEM
            .iter()
            .filter_map(|path| system_path(path))
            .chain(resolver())
            .collect(),
        hidden,
        devices: devices(),
        readable: readable
            .iter()
            .filter(|path| path.exists())
            .cloned()
            .collect(),
        home: home.to_owned(),
        temporary: temporary.to_owned(),
        network,
    }
}

fn system_path(path: &str) -> Option<SystemPath> {
    let path = PathBuf::from(path);
    let found = std::fs::symlink_metadata(&path).ok()?;
    if found.is_symlink() {
        let target = std::fs::read_link(&path).ok()?;
        return Some(SystemPath::Link { path, target });
    }
    Some(SystemPath::Real(path))
}

/// The file that says who knows names of hosts often lies outside of what is shown.
fn resolver() -> Option<SystemPath> {
    let found = std::fs::canonicalize("/etc/resolv.conf").ok()?;
    let is_shown = SYSTEM.iter().any(|path| found.starts_with(path));
    (!is_shown).then_some(SystemPath::Real(found))
}

fn devices() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let named = |name: &str| DEVICES.iter().any(|start| name.starts_with(start));
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(named))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// What not everybody may read. The kernel keeps it from plain users; root in a sandbox owns it.
fn hidden(is_root: bool) -> Vec<Hidden> {
    let mut found = Vec::new();
    if is_root {
        let mut left = MOST_ENTRIES;
        for (root, depth) in SEARCHED {
            search(Path::new(root), depth, &mut left, &mut found);
        }
    }
    found.sort();
    found
}

fn search(folder: &Path, depth: usize, left: &mut usize, found: &mut Vec<Hidden>) {
    for entry in entries(folder) {
        let Ok(about) = std::fs::symlink_metadata(&entry) else {
            continue;
        };
        // Files that lock accounts come and go all the time and hold nothing.
        let is_lock = entry.extension().is_some_and(|end| end == "lock");
        if about.is_symlink() || is_lock {
            continue;
        }
        let needed = if about.is_dir() { 0o005 } else { 0o004 };
        let is_looked_at = *left > 0;
        *left = left.saturating_sub(1);
        if about.mode() & needed != needed || !is_looked_at {
            found.push(Hidden {
                path: entry,
                is_folder: about.is_dir(),
            });
        } else if about.is_dir() && depth > 1 {
            search(&entry, depth - 1, left, found);
        }
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Places inside bubblewrap that are the sandbox's own, or made for it.
const MADE: [&str; 6] = ["/dev", "/proc", "/run", "/sys", "/tmp", "/var"];

/// Leave to read within bubblewrap. A mount that hides a file goes when somebody puts a new file in its
/// place, as every change of a password does; what has no leave stays unreadable. Nothing where nothing
/// is hidden.
pub(super) fn reading_of(view: &View) -> Vec<Grant> {
    if view.hidden.is_empty() {
        return Vec::new();
    }
    let mut grants = system_grants(view);
    grants.extend(MADE.map(|path| Grant::Read(path.into())));
    grants.push(Grant::Write(view.home.clone()));
    grants
}

fn system_grants(view: &View) -> Vec<Grant> {
    let hidden = view.hidden.iter().map(|hidden| hidden.path.clone());
    let hidden: BTreeSet<PathBuf> = hidden.collect();
    let mut grants = Vec::new();
    let system = view.system.iter().filter_map(|path| match path {
        SystemPath::Real(path) => Some(path),
        SystemPath::Link { .. } => None,
    });
    for path in system.chain(&view.readable) {
        grants.extend(readable_grants(path, &hidden, &mut entries));
    }
    grants
}

/// The same view as leave for Landlock, which shows everything where it is.
pub(super) fn grants_of(view: &View) -> Vec<Grant> {
    let mut grants = system_grants(view);
    grants.extend(["/proc", "/sys"].map(|path| Grant::Read(path.into())));
    grants.extend(PLAIN_DEVICES.map(|path| Grant::Device(path.into())));
    grants.extend(view.devices.iter().cloned().map(Grant::Device));
    grants.push(Grant::Write(view.home.clone()));
    grants.push(Grant::Write(view.temporary.clone()));
    grants
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_not_everybody_may_read_is_found_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let make = |name: &str, mode: u32| {
            let path = root.join(name);
            std::fs::write(&path, "x").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        make("open", 0o644);
        let closed = make("closed", 0o640);
        std::fs::create_dir(root.join("sub")).unwrap();
        let deep = make("sub/key", 0o600);
        std::fs::create_dir(root.join("shut")).unwrap();
        let shut = root.join("shut");
        std::fs::set_permissions(&shut, std::fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::symlink("/root", root.join("link")).unwrap();
        let (mut found, mut left) = (Vec::new(), 100);
        search(root, 9, &mut left, &mut found);
        found.sort();
        let hide = |path: PathBuf, is_folder| Hidden { path, is_folder };
        assert_eq!(
            found,
            [hide(closed, false), hide(shut, true), hide(deep, false)]
        );
        let (mut found, mut left) = (Vec::new(), 1);
        search(root, 9, &mut left, &mut found);
        assert_eq!(found.len(), 4, "what was not looked at is hidden");
    }

    #[test]
    fn leave_to_read_within_bubblewrap_spares_what_is_hidden_and_is_needed_only_then() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["open", "shut"] {
            std::fs::write(path(name), "x").unwrap();
        }
        let private = Private::default();
        let mut view = view_of(
            &path("home"),
            &path("tmp"),
            &[path("open")],
            &private,
            Network::On,
        );
        view.system = vec![SystemPath::Real(folder.path().to_owned())];
        view.hidden = Vec::new();
        assert_eq!(reading_of(&view), []);
        view.hidden = vec![Hidden {
            path: path("shut"),
            is_folder: false,
        }];
        let grants = reading_of(&view);
        let has = |grant: Grant| grants.contains(&grant);
        assert!(has(Grant::List(folder.path().to_owned())), "{grants:?}");
        assert!(has(Grant::Read(path("open"))) && has(Grant::Write(path("home"))));
        assert!(!has(Grant::Read(path("shut"))), "{grants:?}");
        assert!(!has(Grant::Read(folder.path().to_owned())), "{grants:?}");
    }

    #[test]
    fn home_and_state_below_what_is_shown_are_hidden() {
        let private = Private {
            home: Some("/opt/worker".into()),
            state: "/srv/own/state".into(),
        };
        let see = |readable: &[PathBuf]| {
            let (home, temporary) = (Path::new("/h"), Path::new("/t"));
            let view = view_of(home, temporary, readable, &private, Network::On);
            view.hidden
                .into_iter()
                .map(|hidden| hidden.path)
                .collect::<Vec<_>>()
        };
        let has = |hidden: &[PathBuf], path: &str| hidden.iter().any(|one| one == Path::new(path));
        let usual = see(&[]);
        assert!(
            has(&usual, "/opt/worker") && !has(&usual, "/srv/own/state"),
            "{usual:?}"
        );
        assert!(has(&see(&["/srv".into()]), "/srv/own/state"));
    }
}
