//! The command line that builds a sandbox with bubblewrap.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{Hidden, Network, SystemPath, View};

/// Where the supervisor's program is found inside.
const SUPERVISOR: &str = "/run/remote-sandbox-mcp/supervisor";

/// Where commands have short-lived files of their own.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];

/// Parts of /sys that programs look at to know their machine.
const SYSTEM_FACTS: [&str; 6] = ["block", "bus", "class", "dev", "devices", "module"];

struct Line(Vec<OsString>);

impl Line {
    fn add(&mut self, words: &[&str]) {
        self.0.extend(words.iter().map(OsString::from));
    }

    fn path(&mut self, option: &str, path: &Path) {
        self.0.push(option.into());
        self.0.push(path.into());
    }

    fn paths(&mut self, option: &str, from: &Path, to: &Path) {
        self.path(option, from);
        self.0.push(to.into());
    }
}

/// All arguments up to the program inside. `program` is the supervisor's program outside, `no_nesting`
/// whether this bubblewrap can forbid further namespaces.
pub fn bubblewrap_arguments(view: &View, program: &Path, no_nesting: bool) -> Vec<OsString> {
    let mut line = Line(Vec::new());
    line.add(&[
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
        // Else a process of bubblewrap's own would keep the socket open when the supervisor is gone and
        // something still runs; as the first process it takes everything along.
        "--as-pid-1",
        "--hostname",
        "sandbox",
        "--cap-drop",
        "ALL",
    ]);
    if no_nesting {
        line.add(&["--disable-userns"]);
    }
    if view.network == Network::Off {
        line.add(&["--unshare-net"]);
    }
    add_system(&mut line, view);
    for path in &view.readable {
        line.paths("--ro-bind-try", path, path);
    }
    hide(&mut line, view);
    for place in TEMPORARY {
        line.paths("--bind", &view.temporary, Path::new(place));
    }
    if let Some(cover) = cover_of(&view.home) {
        line.path("--tmpfs", &cover);
    }
    // Last, for it may lie below anything else.
    line.paths("--bind", &view.home, &view.home);
    let hidden = view
        .hidden
        .iter()
        .filter(|hidden| is_above_home(hidden, view));
    for cover in hidden
        .map(|hidden| hidden.path.clone())
        .chain(cover_of(&view.home))
    {
        line.path("--remount-ro", &cover);
    }
    line.paths("--ro-bind", program, Path::new(SUPERVISOR));
    line.add(&["--remount-ro", "/", "--remount-ro", "/run", "--chdir"]);
    line.0.push(view.home.clone().into());
    line.0.push("--".into());
    line.0.push(SUPERVISOR.into());
    line.0
}

/// The folder within /tmp that leads to the home, where there is one. Commands may have put a link there
/// that leads out, and bubblewrap would make folders behind it; under a cover it makes them in memory.
fn cover_of(home: &Path) -> Option<PathBuf> {
    TEMPORARY.iter().find_map(|place| {
        let within = home.strip_prefix(place).ok()?;
        let first = within.components().next()?;
        Some(Path::new(place).join(first))
    })
}

/// A folder that hides others of our folders, among them the home, cannot be closed before that is there.
fn is_above_home(hidden: &Hidden, view: &View) -> bool {
    hidden.is_folder && view.home.starts_with(&hidden.path)
}

fn hide(line: &mut Line, view: &View) {
    for hidden in &view.hidden {
        if !hidden.is_folder {
            line.paths("--ro-bind", Path::new("/dev/null"), &hidden.path);
            continue;
        }
        line.path("--tmpfs", &hidden.path);
        if !is_above_home(hidden, view) {
            line.path("--remount-ro", &hidden.path);
        }
    }
}

fn add_system(line: &mut Line, view: &View) {
    line.add(&["--proc", "/proc"]);
    // The kernel asks there for no right but that of root's own number, which root has inside too: it
    // could name a program that the kernel starts outside.
    line.add(&["--ro-bind", "/proc/sys", "/proc/sys"]);
    // Before the system, of which a part may lie there: the file that says who knows names of hosts.
    line.add(&["--dev", "/dev", "--tmpfs", "/run"]);
    for entry in &view.system {
        match entry {
            SystemPath::Real(path) => line.paths("--ro-bind", path, path),
            SystemPath::Link { path, target } => line.paths("--symlink", target, path),
        }
    }
    for part in SYSTEM_FACTS {
        let path = Path::new("/sys").join(part);
        line.paths("--ro-bind-try", &path, &path);
    }
    for device in &view.devices {
        line.paths("--dev-bind-try", device, device);
    }
}
