//! Which wall stands around a sandbox on this machine.

use serde::{Deserialize, Serialize};

/// What the configuration asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// The best wall that this machine has; none is not one of them.
    #[default]
    Auto,
    /// Bubblewrap and nothing else.
    Bubblewrap,
    /// Landlock and nothing else.
    Landlock,
    /// The sandbox of macOS and nothing else.
    Seatbelt,
    /// No wall, by the user's own decision.
    None,
}

impl Isolation {
    /// All of them with the word that stands for each.
    pub const WORDS: [(&'static str, Isolation); 5] = [
        ("auto", Isolation::Auto),
        ("bubblewrap", Isolation::Bubblewrap),
        ("landlock", Isolation::Landlock),
        ("seatbelt", Isolation::Seatbelt),
        ("none", Isolation::None),
    ];

    /// The one that a word stands for.
    pub fn parse(word: &str) -> Option<Self> {
        let found = Self::WORDS.iter().find(|(known, _)| *known == word);
        found.map(|(_, isolation)| *isolation)
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        let found = Self::WORDS.iter().find(|(_, known)| *known == self);
        found.map_or("auto", |(word, _)| word)
    }
}

/// Whether commands reach the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Network {
    /// They do.
    #[default]
    On,
    /// They do not.
    Off,
}

impl Network {
    /// The one that a word stands for.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "on" => Some(Network::On),
            "off" => Some(Network::Off),
            _ => None,
        }
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Network::On => "on",
            Network::Off => "off",
        }
    }
}

/// The wall that stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "level")]
pub enum Level {
    /// Namespaces of its own, made by bubblewrap.
    Bubblewrap {
        /// What the kernel's Landlock can do on top, 0 for nothing.
        landlock: u32,
    },
    /// Landlock and a filter of system calls.
    Landlock {
        /// What the kernel's Landlock can do.
        landlock: u32,
    },
    /// The sandbox of macOS.
    Seatbelt,
    /// No wall.
    None,
}

impl Level {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Level::Bubblewrap { .. } => "bubblewrap",
            Level::Landlock { .. } => "landlock",
            Level::Seatbelt => "seatbelt",
            Level::None => "none",
        }
    }
}

/// What was found when each wall was tried: that it stands, or why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reachable {
    /// Bubblewrap.
    pub bubblewrap: Result<(), String>,
    /// Landlock, with its version.
    pub landlock: Result<u32, String>,
    /// The sandbox of macOS.
    pub seatbelt: Result<(), String>,
}

/// No wall stands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no wall can be put around a local sandbox ({reasons})")]
pub struct NoLevel {
    /// Why not, for each that was tried.
    pub reasons: String,
}

/// The oldest Landlock that is a wall: before it, a file could be cut short.
const OLDEST_LANDLOCK: u32 = 3;

/// Takes the best wall that stands and is allowed.
pub fn choose_level(wanted: Isolation, reachable: &Reachable) -> Result<Level, NoLevel> {
    let version = reachable.landlock.clone().unwrap_or(0);
    let bubblewrap = || {
        let stands = reachable.bubblewrap.clone();
        stands.map(|()| Level::Bubblewrap { landlock: version })
    };
    let landlock = || match &reachable.landlock {
        Ok(version) if *version < OLDEST_LANDLOCK => Err(format!(
            "the kernel's Landlock has version {version}, {OLDEST_LANDLOCK} is needed"
        )),
        Ok(version) => Ok(Level::Landlock { landlock: *version }),
        Err(reason) => Err(reason.clone()),
    };
    let seatbelt = || reachable.seatbelt.clone().map(|()| Level::Seatbelt);
    type Try<'a> = (&'a str, &'a dyn Fn() -> Result<Level, String>);
    let all: [Try<'_>; 3] = [
        ("bubblewrap", &bubblewrap),
        ("landlock", &landlock),
        ("seatbelt", &seatbelt),
    ];
    let tried: &[Try<'_>] = match wanted {
        Isolation::None => return Ok(Level::None),
        Isolation::Auto => &all,
        Isolation::Bubblewrap => &all[..1],
        Isolation::Landlock => &all[1..2],
        Isolation::Seatbelt => &all[2..],
    };
    let mut reasons = Vec::new();
    for (name, look) in tried {
        match look() {
            Ok(level) => return Ok(level),
            Err(reason) => reasons.push(format!("{name}: {reason}")),
        }
    }
    Err(NoLevel {
        reasons: reasons.join("; "),
    })
}
