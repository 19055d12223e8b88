//! A directory of programs that are all busybox, for hosts without the GNU ones.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::keys::set_mode;
use crate::wait::skip;

/// A directory with one link per busybox applet, and nothing else; removed when dropped.
#[derive(Debug)]
pub struct Busybox {
    dir: TempDir,
}

impl Busybox {
    /// Makes the links; `None` (and a printed reason) where busybox is not installed.
    #[must_use]
    pub fn install() -> Option<Self> {
        let candidates = ["/bin/busybox", "/usr/bin/busybox"];
        let found = candidates.iter().map(Path::new).find(|path| path.exists());
        let Some(program) = found else {
            skip("busybox is not installed");
            return None;
        };
        let listed = Command::new(program)
            .arg("--list")
            .output()
            .expect("busybox starts");
        let dir = TempDir::with_prefix("testkit-busybox-").expect("a temporary directory");
        set_mode(dir.path(), 0o755);
        for applet in String::from_utf8_lossy(&listed.stdout).split_whitespace() {
            symlink(program, dir.path().join(applet)).expect("the link is made");
        }
        assert!(
            dir.path().join("sh").exists(),
            "this busybox has no shell: {listed:?}"
        );
        Some(Self { dir })
    }

    /// The directory, for a `PATH` that has nothing else.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}
