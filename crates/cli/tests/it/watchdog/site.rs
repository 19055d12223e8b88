//! Where jobs of tests run: hosts with and without tmux, and this machine.

use std::fs;
use std::os::unix::fs::symlink;

use remote_sandbox_testkit::sshd::Sshd;
use tempfile::TempDir;

use crate::jobs::Host;

/// Of which kind the place of jobs is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A host with a tmux of its own.
    Tmux,
    /// A host with every program but tmux.
    Bare,
    /// A sandbox on this machine.
    Local,
}

/// A place of many jobs.
pub(super) enum Site {
    /// With a tmux of its own.
    Tmux(Host),
    /// With every program but tmux.
    Bare {
        sshd: Sshd,
        #[expect(dead_code, reason = "it lives as long as the host")]
        programs: TempDir,
    },
    /// On this machine, in a sandbox of each server.
    Local,
}

impl Site {
    pub(super) fn start(kind: Kind) -> Self {
        match kind {
            Kind::Tmux => Site::Tmux(Host::start()),
            Kind::Bare => Site::bare(),
            Kind::Local => Site::Local,
        }
    }

    fn bare() -> Self {
        let programs = TempDir::with_prefix("programs-").unwrap();
        for folder in ["/usr/bin", "/bin"] {
            for file in fs::read_dir(folder).into_iter().flatten().flatten() {
                let link = programs.path().join(file.file_name());
                if file.file_name() != "tmux" && !link.exists() {
                    let _ = symlink(file.path(), link);
                }
            }
        }
        let path = programs.path().to_str().unwrap();
        let sshd = Sshd::builder().session_environment("PATH", path).start();
        Site::Bare { sshd, programs }
    }

    /// The host, where there is one.
    pub(super) fn sshd(&self) -> Option<&Sshd> {
        match self {
            Site::Tmux(host) => Some(&host.sshd),
            Site::Bare { sshd, .. } => Some(sshd),
            Site::Local => None,
        }
    }
}
