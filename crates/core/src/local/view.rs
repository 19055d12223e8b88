//! What the commands of a sandbox see of this machine.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Network;

/// A part of the system that commands may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SystemPath {
    /// A folder or file at its own place.
    Real(PathBuf),
    /// A link, such as `/bin` where it leads to `usr/bin`.
    Link {
        /// Where it is.
        path: PathBuf,
        /// What it says.
        target: PathBuf,
    },
}

/// Something within the system that commands must not read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hidden {
    /// Where it is.
    pub path: PathBuf,
    /// Whether it is a folder.
    pub is_folder: bool,
}

/// All that commands see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// The system, only to be read.
    pub system: Vec<SystemPath>,
    /// What nobody else may read within that, hidden.
    pub hidden: Vec<Hidden>,
    /// Devices for computing.
    pub devices: Vec<PathBuf>,
    /// More that may be read, by the user's own wish.
    pub readable: Vec<PathBuf>,
    /// The sandbox's own home.
    pub home: PathBuf,
    /// The sandbox's own folder for short-lived files.
    pub temporary: PathBuf,
    /// Whether commands reach the network.
    pub network: Network,
}

/// What commands may do below a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grant {
    /// Read and run.
    Read(PathBuf),
    /// List folders, without reading what is in them.
    List(PathBuf),
    /// Everything.
    Write(PathBuf),
    /// Read and write a device.
    Device(PathBuf),
}

/// Leave to read a tree but for what is hidden in it. A rule holds for everything below its path, so
/// a folder with something hidden gets its other entries one by one; `entries` lists a folder.
pub fn readable_grants(
    root: &Path,
    hidden: &BTreeSet<PathBuf>,
    entries: &mut dyn FnMut(&Path) -> Vec<PathBuf>,
) -> Vec<Grant> {
    if hidden.contains(root) {
        return Vec::new();
    }
    let after = hidden.range(root.to_path_buf()..).next();
    if !after.is_some_and(|first| first.starts_with(root)) {
        return vec![Grant::Read(root.to_path_buf())];
    }
    let mut grants = vec![Grant::List(root.to_path_buf())];
    for entry in entries(root) {
        grants.extend(readable_grants(&entry, hidden, entries));
    }
    grants
}
