//! The command line that builds a sandbox with bubblewrap.

use std::ffi::OsString;
use std::path::Path;

use super::{Network, SystemPath, View};

/// Where the supervisor's program is found inside.
const SUPERVISOR: &str = "/run/remote-sandbox-mcp/supervisor";

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
    line.paths("--bind", &view.temporary, Path::new("/tmp"));
    line.paths("--bind", &view.temporary, Path::new("/var/tmp"));
    // Last, for it may lie below anything else.
    line.paths("--bind", &view.home, &view.home);
    line.paths("--ro-bind", program, Path::new(SUPERVISOR));
    line.add(&["--remount-ro", "/", "--remount-ro", "/run", "--chdir"]);
    line.0.push(view.home.clone().into());
    line.0.push("--".into());
    line.0.push(SUPERVISOR.into());
    line.0
}

fn add_system(line: &mut Line, view: &View) {
    for entry in &view.system {
        match entry {
            SystemPath::Real(path) => line.paths("--ro-bind", path, path),
            SystemPath::Link { path, target } => line.paths("--symlink", target, path),
        }
    }
    line.add(&["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/run"]);
    for part in SYSTEM_FACTS {
        let path = Path::new("/sys").join(part);
        line.paths("--ro-bind-try", &path, &path);
    }
    for device in &view.devices {
        line.paths("--dev-bind-try", device, device);
    }
    for hidden in &view.hidden {
        if hidden.is_folder {
            line.path("--tmpfs", &hidden.path);
            line.path("--remount-ro", &hidden.path);
        } else {
            line.paths("--ro-bind", Path::new("/dev/null"), &hidden.path);
        }
    }
}
