//! Which walls stand on this machine, by trying.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use remote_sandbox_core::local::{Isolation, Level, NoLevel, Reachable, choose_level};
use remote_sandbox_core::output::clean_line;
use tokio::sync::OnceCell;

use crate::proc::{self, CommandError};

/// How long trying a wall may take.
const TRY_LIMIT: Duration = Duration::from_secs(5);

/// Longest complaint of a tool that is repeated.
const LONGEST_COMPLAINT: usize = 200;

/// A wall that stands, with what is needed to put it up.
#[derive(Debug, Clone)]
pub(super) struct Wall {
    pub(super) level: Level,
    /// The tool that makes it, where one is needed.
    pub(super) tool: Option<PathBuf>,
    /// Whether bubblewrap can forbid further namespaces.
    pub(super) no_nesting: bool,
}

/// Finds out which walls stand; what stands once is not tried again.
#[derive(Debug)]
pub(super) struct Walls {
    wanted: Isolation,
    /// Where programs are looked for.
    path: Option<OsString>,
    found: OnceCell<Wall>,
}

impl Walls {
    pub(super) fn new(wanted: Isolation, path: Option<OsString>) -> Self {
        Walls {
            wanted,
            path,
            found: OnceCell::new(),
        }
    }

    /// The wall for sandboxes of this server.
    pub(super) async fn get(&self) -> Result<&Wall, NoLevel> {
        self.found.get_or_try_init(|| self.find()).await
    }

    async fn find(&self) -> Result<Wall, NoLevel> {
        let bubblewrap = self.program("bwrap");
        let seatbelt = self.program("sandbox-exec");
        let tries_bubblewrap = matches!(self.wanted, Isolation::Auto | Isolation::Bubblewrap);
        let mut no_nesting = true;
        let mut stands = Err("bwrap is not installed".to_owned());
        if let Some(tool) = bubblewrap.as_deref().filter(|_| tries_bubblewrap) {
            stands = try_bubblewrap(tool, true).await?;
            if stands.is_err() {
                no_nesting = false;
                stands = try_bubblewrap(tool, false).await?;
            }
        }
        let reachable = Reachable {
            bubblewrap: stands,
            landlock: landlock(),
            seatbelt: match &seatbelt {
                Some(_) => Ok(()),
                None => Err("sandbox-exec is not there".to_owned()),
            },
        };
        let level = choose_level(self.wanted, &reachable)?;
        let tool = match level {
            Level::Bubblewrap { .. } => bubblewrap,
            Level::Seatbelt => seatbelt,
            Level::Landlock { .. } | Level::None => None,
        };
        Ok(Wall {
            level,
            tool,
            no_nesting,
        })
    }

    fn program(&self, name: &str) -> Option<PathBuf> {
        let path = self.path.as_ref()?;
        std::env::split_paths(path)
            .filter(|folder| folder.is_absolute())
            .map(|folder| folder.join(name))
            .find(|file| is_program(file))
    }
}

fn is_program(file: &Path) -> bool {
    rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file()
}

#[cfg(target_os = "linux")]
fn landlock() -> Result<u32, String> {
    match super::confine::landlock_version() {
        0 => Err("the kernel has no Landlock, or it is switched off".to_owned()),
        version => Ok(version),
    }
}

#[cfg(not(target_os = "linux"))]
fn landlock() -> Result<u32, String> {
    Err("only Linux has it".to_owned())
}

/// Builds a sandbox like the real ones and runs nothing in it. A machine that is too busy to say is no
/// reason for a lesser wall.
async fn try_bubblewrap(tool: &Path, no_nesting: bool) -> Result<Result<(), String>, NoLevel> {
    let mut words = vec![tool.to_string_lossy().into_owned()];
    let options =
        "--unshare-user --unshare-pid --unshare-ipc --unshare-uts --unshare-net --cap-drop ALL";
    words.extend(options.split(' ').map(str::to_owned));
    if no_nesting {
        words.push("--disable-userns".to_owned());
    }
    let rest = "--ro-bind / / --proc /proc --dev /dev -- /bin/sh -c :";
    words.extend(rest.split(' ').map(str::to_owned));
    match proc::capture_both(&words, &[], TRY_LIMIT, 4096).await {
        Ok(said) if said.success => Ok(Ok(())),
        Ok(said) => {
            let words = String::from_utf8_lossy(&said.errors);
            let line = words.lines().last().unwrap_or("it failed without a word");
            Ok(Err(clean_line(line, LONGEST_COMPLAINT)))
        }
        Err(error @ CommandError::TooSlow(_)) => Err(NoLevel {
            reasons: format!("bubblewrap: {error}; try again"),
        }),
        Err(error) => Ok(Err(error.to_string())),
    }
}
