//! What each wall keeps apart, and what it does not: one table for replies, `doctor` and the docs.

use super::{Level, Limits};

/// Landlock that keeps signals and abstract sockets in.
const SCOPES: u32 = 6;

/// Landlock that can tell which sockets in files may be reached.
const TELLS_SOCKETS: u32 = 9;

/// Something that a wall may keep apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WallName {
    /// Reading the user's files.
    Reading,
    /// Writing outside the sandbox's own folders.
    Writing,
    /// Changing modes, owners and dates of the user's files.
    Attributes,
    /// The user's environment variables.
    Environment,
    /// Seeing what else runs.
    Processes,
    /// Signals to what else runs.
    Signals,
    /// Looking into or steering what else runs.
    Tracing,
    /// Becoming somebody else through setuid programs.
    Privileges,
    /// Sockets in files, such as those of docker, the SSH agent and the desktop.
    FileSockets,
    /// Sockets in the kernel's own namespace.
    AbstractSockets,
    /// The terminals of the user.
    Terminals,
    /// The network when it is off: TCP and UDP.
    Network,
    /// Filling the disk.
    Disk,
}

impl WallName {
    /// What it is called.
    pub fn words(self) -> &'static str {
        match self {
            WallName::Reading => "reading your files",
            WallName::Writing => "writing outside",
            WallName::Attributes => "modes and dates of your files",
            WallName::Environment => "your environment variables",
            WallName::Processes => "seeing other processes",
            WallName::Signals => "signals to other processes",
            WallName::Tracing => "tracing other processes",
            WallName::Privileges => "setuid programs",
            WallName::FileSockets => "sockets in files (docker, agents, desktop)",
            WallName::AbstractSockets => "abstract sockets",
            WallName::Terminals => "your terminals",
            WallName::Network => "TCP and UDP when the network is off",
            WallName::Disk => "filling the disk",
        }
    }
}

/// Whether something is kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wall {
    /// What.
    pub name: WallName,
    /// Whether it is.
    pub holds: bool,
    /// What has to be said about it.
    pub note: &'static str,
}

fn wall(name: WallName, holds: bool, note: &'static str) -> Wall {
    Wall { name, holds, note }
}

/// What a wall keeps apart, all names in their order.
pub fn walls(level: Level) -> Vec<Wall> {
    let mut walls = match level {
        Level::Bubblewrap { landlock } => of_bubblewrap(landlock >= SCOPES),
        Level::Landlock { landlock } => of_landlock(landlock >= SCOPES, landlock >= TELLS_SOCKETS),
        Level::Seatbelt => of_seatbelt(),
        Level::None => of_nothing(),
    };
    let note = "no bound: a quota of the file system helps";
    walls.push(wall(WallName::Disk, false, note));
    walls
}

fn of_bubblewrap(scopes: bool) -> Vec<Wall> {
    use WallName::*;
    vec![
        wall(Reading, true, "not there at all"),
        wall(Writing, true, "the system is mounted read-only"),
        wall(Attributes, true, "not there at all"),
        wall(Environment, true, "begins empty"),
        wall(Processes, true, "a process namespace of its own"),
        wall(Signals, true, "a process namespace of its own"),
        wall(Tracing, true, "a process namespace of its own"),
        wall(Privileges, true, "they run without their rights"),
        wall(FileSockets, true, "not there at all"),
        if scopes {
            wall(
                AbstractSockets,
                true,
                "Landlock; with the network off also a namespace",
            )
        } else {
            wall(
                AbstractSockets,
                false,
                "only with the network off; Linux 6.12 would help",
            )
        },
        wall(Terminals, true, "not there at all"),
        wall(Network, true, "a network namespace with nothing but itself"),
    ]
}

fn of_landlock(scopes: bool, sockets: bool) -> Vec<Wall> {
    use WallName::*;
    vec![
        wall(Reading, true, "refused; names, sizes and dates show"),
        wall(Writing, true, "refused, /tmp and /dev/shm too"),
        wall(Attributes, false, "Landlock does not guard them"),
        wall(Environment, true, "begins empty"),
        wall(Processes, false, "`ps` shows them and their command lines"),
        if scopes {
            wall(Signals, true, "refused")
        } else {
            wall(
                Signals,
                false,
                "your other processes can be ended; Linux 6.12 would help",
            )
        },
        wall(Tracing, true, "refused, their environment too"),
        wall(Privileges, true, "they run without their rights"),
        if sockets {
            wall(FileSockets, true, "refused outside its own folders")
        } else {
            wall(FileSockets, true, "no sockets in files at all, so no tmux")
        },
        wall(AbstractSockets, true, "no sockets of this kind at all"),
        wall(Terminals, true, "no terminals at all"),
        wall(
            Network,
            true,
            "no sockets, not even between its own processes",
        ),
    ]
}

fn of_seatbelt() -> Vec<Wall> {
    use WallName::*;
    vec![
        wall(Reading, true, "refused; sizes and dates show"),
        wall(Writing, true, "refused"),
        wall(Attributes, true, "refused"),
        wall(Environment, true, "begins empty"),
        wall(Processes, false, "`ps` shows them"),
        wall(Signals, true, "refused"),
        wall(Tracing, true, "refused"),
        wall(Privileges, true, "refused"),
        wall(FileSockets, true, "refused outside its own folders"),
        wall(AbstractSockets, true, "macOS has none"),
        wall(Terminals, true, "refused but for new ones"),
        wall(Network, true, "refused"),
    ]
}

fn of_nothing() -> Vec<Wall> {
    use WallName::*;
    let open = [
        Processes,
        Signals,
        Tracing,
        Privileges,
        FileSockets,
        AbstractSockets,
        Terminals,
        Network,
    ];
    let mut walls = vec![
        wall(Reading, false, "no wall"),
        wall(Writing, false, "no wall"),
        wall(Attributes, false, "no wall"),
        wall(Environment, true, "begins empty"),
    ];
    walls.extend(open.into_iter().map(|name| wall(name, false, "no wall")));
    walls
}

/// What bounds the use of one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// Of what: `memory`, `processes` or `cpu`.
    pub name: &'static str,
    /// How far, in words.
    pub text: String,
}

/// What a sandbox may use up. `groups` says whether the kernel counts all processes together,
/// `own_users` whether it counts those of the sandbox apart from the user's others.
pub fn bounds(limits: &Limits, groups: bool, own_users: bool) -> Vec<Bound> {
    let unbounded = || "not bounded".to_owned();
    let memory = match limits.memory_mb {
        Some(most) if groups => format!("{most} MB together"),
        Some(most) => format!("{most} MB each process"),
        None => unbounded(),
    };
    let processes = match limits.processes {
        Some(most) if groups || own_users => format!("{most} together"),
        Some(_) => "not bounded: no delegated cgroup".to_owned(),
        None => unbounded(),
    };
    let cpu = match limits.cpu_percent {
        Some(most) if groups => format!("{most} % of one processor"),
        Some(_) => "not bounded: no delegated cgroup".to_owned(),
        None => unbounded(),
    };
    [("memory", memory), ("processes", processes), ("cpu", cpu)]
        .into_iter()
        .map(|(name, text)| Bound { name, text })
        .collect()
}
