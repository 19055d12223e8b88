//! Which process on which boot of which host: what tells a process from a later one with the same number.

use serde::{Deserialize, Serialize};

/// A word that a host says about itself, such as the id of its boot; compared, never interpreted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HostWord(String);

impl HostWord {
    /// Takes 1 to 64 plain characters; anything else is no word of ours.
    pub fn parse(text: &str) -> Option<Self> {
        let is_plain = text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        (is_plain && (1..=64).contains(&text.len())).then(|| Self(text.to_owned()))
    }

    /// The word itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// One process and no other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Its number on the host.
    pub pid: u32,
    /// When it began, in the host's own count.
    pub start_time: HostWord,
    /// The boot of the host it belongs to.
    pub boot_id: HostWord,
    /// The session or group it leads; 0 when it leads none.
    pub session: u32,
    /// The name of the host among those that share a home, where that was written down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<HostWord>,
}

impl ProcessIdentity {
    /// Reads number, start time, boot, session and node, as a host writes them; older ones write no node.
    pub(super) fn read(
        pid: &str,
        start: &str,
        boot: &str,
        session: &str,
        node: &str,
    ) -> Option<Self> {
        Some(Self {
            pid: pid.parse().ok().filter(|pid| *pid > 1)?,
            start_time: HostWord::parse(start)?,
            boot_id: HostWord::parse(boot)?,
            session: session.parse().ok()?,
            node: HostWord::parse(node),
        })
    }
}

/// What a host says instead of a start time when the process may live in another container, which it does not see into.
const ELSEWHERE: &str = "elsewhere";

/// What became of a process that was written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Liveness {
    /// None was written down.
    NotRecorded,
    /// What was written down cannot be read.
    Unreadable,
    /// It was made certain that it never begins.
    Void,
    /// It lives.
    Alive(ProcessIdentity),
    /// No process has its number.
    Gone(ProcessIdentity),
    /// Another process has its number.
    Reused(ProcessIdentity),
    /// The host was booted again since.
    OtherBoot(ProcessIdentity),
    /// The host that was asked is another one, which shares its home with that of the process.
    OtherNode {
        /// What was written down.
        written: ProcessIdentity,
        /// Where it runs, or ran.
        node: HostWord,
        /// Which host was asked.
        here: HostWord,
    },
}

impl Liveness {
    /// Compares what was written down with what the host says now. A host that was given another name without being
    /// booted is still the same, unless it says that it does not see where the process was.
    pub(super) fn judge(
        written: ProcessIdentity,
        boot: &HostWord,
        here: Option<&HostWord>,
        start_now: &str,
    ) -> Self {
        let is_same_boot = written.boot_id == *boot;
        let others = written.node.clone().zip(here.cloned());
        if let Some((node, here)) = others.filter(|(node, here)| node != here)
            && (!is_same_boot || start_now == ELSEWHERE)
        {
            Liveness::OtherNode {
                written,
                node,
                here,
            }
        } else if !is_same_boot {
            Liveness::OtherBoot(written)
        } else if start_now.is_empty() {
            Liveness::Gone(written)
        } else if start_now == written.start_time.as_str() {
            Liveness::Alive(written)
        } else {
            Liveness::Reused(written)
        }
    }

    /// Whether it lives.
    pub fn is_alive(&self) -> bool {
        matches!(self, Liveness::Alive(_))
    }

    /// The process, when one was written down.
    pub fn identity(&self) -> Option<&ProcessIdentity> {
        match self {
            Liveness::NotRecorded | Liveness::Unreadable | Liveness::Void => None,
            Liveness::Alive(process)
            | Liveness::Gone(process)
            | Liveness::Reused(process)
            | Liveness::OtherBoot(process)
            | Liveness::OtherNode {
                written: process, ..
            } => Some(process),
        }
    }
}
