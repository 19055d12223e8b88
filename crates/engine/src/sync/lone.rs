//! Syncs of a single file.

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::sync::path::{self, shown};
use remote_sandbox_core::sync::roots::CleanPath;
use remote_sandbox_core::sync::scan::{
    HostPath, LoneFile, RootKind, ScanDepth, ScanRequest, SortedBy,
};
use remote_sandbox_core::sync::{Entry, EntryList, Kind, RelPath, WrittenPath};

use super::far_scan::{FarTree, scan};
use super::refusals::{leads_nowhere, local_failure, missing_here, missing_there};
use super::request::{SyncRequest, USUAL_MIRROR, Way};
use super::roots::Resolved;
use super::rules;
use super::sides::{SPOOL, Setting, Sides, none};
use crate::beneath::Tree;
use crate::listing::Listing;

/// The names of a single file.
#[derive(Debug, Clone)]
pub(super) struct Lone {
    pub(super) here: RelPath,
    pub(super) there: RelPath,
}

impl Lone {
    /// The name that it has in the plan: that of the target.
    pub(super) fn called(&self, way: Way) -> &RelPath {
        match way {
            Way::Up => &self.there,
            Way::Down => &self.here,
        }
    }
}

impl Sides {
    /// One file of this machine, and what is in its place there.
    pub(super) async fn look_at_file_here(
        setting: &Setting<'_>,
        request: &SyncRequest,
        local: &Resolved,
        remote: &HostPath,
    ) -> Result<Sides, Failure> {
        rules::no_deletes_for_a_file(request)?;
        // They concern nothing here, but what is wrong with them is told all the same.
        rules::filter(request, setting.paths)?;
        let (folder, here) = split_here(&local.path)?;
        // A link gives what it leads to, under its own name.
        let called = local.name.clone().unwrap_or_else(|| here.clone());
        let tree = Tree::open(&folder).map_err(|error| local_failure(&error))?;
        let source = tree.look(&here).map_err(|error| local_failure(&error))?;
        let source = source.ok_or_else(|| missing_here(local))?;
        let inside = HostPath::parse(&path::inside(remote.as_bytes(), called.as_bytes()));
        let inside = inside.unwrap_or_else(|_| remote.clone());
        let scanned = if remote.wants_directory() {
            &inside
        } else {
            remote
        };
        let scan_request = ScanRequest {
            root: scanned,
            scanner: setting.scanner,
            prunes: &[],
            follow_links: false,
            sorted_by: SortedBy::Reader,
            depth: ScanDepth::Level,
            lone_file: LoneFile::AsItIs,
        };
        let spool = setting.state.join(SPOOL);
        let there = scan(setting.sandbox.as_ref(), &scan_request, &spool).await?;
        let is_in_directory = there.summary.root == RootKind::Directory;
        if is_in_directory && remote.wants_directory() {
            let text = format!(
                "`{}` is a directory in the sandbox",
                shown(inside.as_bytes()).text
            );
            return Err(Failure::new(Code::RemoteRefused, text)
                .hint("choose another name or folder, or remove it there"));
        }
        let place = there.place(scanned);
        let (far_root, name) = match (is_in_directory, split_there(&place)) {
            (false, Some((above, name))) => (above, name),
            _ => (place, called),
        };
        let mut sides = Sides::new(setting, request, folder, far_root);
        let found = there
            .entries
            .iter()
            .find(|entry| !is_in_directory || entry.path == name);
        sides.take_far(&there);
        sides.far_exists = is_in_directory || there.summary.root == RootKind::File;
        sides.filter = rules::everything();
        sides.tree = Some(tree);
        sides.local = one(source, &name);
        sides.far = found.map_or_else(none, |entry| one(entry, &name));
        sides.lone = Some(Lone { here, there: name });
        Ok(sides)
    }

    /// One file of the sandbox, and what is in its place here.
    pub(super) fn of_file_there(
        setting: &Setting<'_>,
        request: &SyncRequest,
        local: &Resolved,
        remote: &HostPath,
        there: FarTree,
    ) -> Result<Sides, Failure> {
        rules::no_deletes_for_a_file(request)?;
        let source = there.entries.iter().next();
        let source = source.ok_or_else(|| missing_there(setting.sandbox.as_ref(), request))?;
        if let Kind::Link { .. } = source.kind {
            return Err(leads_nowhere(setting.sandbox.as_ref(), request));
        }
        let Some((far_root, name)) = split_there(&there.place(remote)) else {
            return Err(missing_there(setting.sandbox.as_ref(), request));
        };
        let is_directory = local.kind == RootKind::Directory
            || local.is_written_as_directory
            || request.local_path == WrittenPath::from(USUAL_MIRROR);
        let (folder, here) = match is_directory {
            true => (local.path.clone(), name.clone()),
            false => split_here(&local.path)?,
        };
        let tree = match folder.as_path().is_dir() {
            true => Some(Tree::open(&folder).map_err(|error| local_failure(&error))?),
            false => None,
        };
        let found = match &tree {
            Some(tree) => tree.look(&here).map_err(|error| local_failure(&error))?,
            None => None,
        };
        let mut sides = Sides::new(setting, request, folder, far_root);
        sides.take_far(&there);
        sides.avoid.clone_from(&local.allowed.avoid);
        sides.far_exists = true;
        // It was listed as what it leads to, if it is a link, and comes as that.
        sides.request.follow_links = true;
        sides.filter = rules::everything();
        sides.tree = tree;
        sides.far = one(source, &here);
        sides.local = found.map_or_else(none, |entry| one(entry, &here));
        sides.lone = Some(Lone { here, there: name });
        Ok(sides)
    }
}

/// A path there as its directory and its name.
fn split_there(path: &HostPath) -> Option<(HostPath, RelPath)> {
    let bytes = path.as_bytes();
    let bytes = bytes.strip_suffix(b"/").unwrap_or(bytes);
    let slash = bytes.iter().rposition(|byte| *byte == b'/')?;
    let name = RelPath::parse(bytes.get(slash + 1..)?).ok()?;
    let above = bytes.get(..slash.max(1))?;
    Some((HostPath::parse(above).ok()?, name))
}

/// A path here as its directory and its name.
fn split_here(path: &CleanPath) -> Result<(CleanPath, RelPath), Failure> {
    let parts = path.as_path().parent().zip(path.as_path().file_name());
    let parts = parts.and_then(|(above, name)| {
        let above = CleanPath::parse(above).ok()?;
        Some((above, RelPath::parse(name.as_encoded_bytes()).ok()?))
    });
    parts.ok_or_else(|| {
        let text = format!("`{}` is no path of a file", path.as_path().display());
        Failure::new(Code::InvalidParams, text)
    })
}

/// A list of one entry, under the name that it has in the plan.
fn one(mut entry: Entry, name: &RelPath) -> Listing {
    entry.path = name.clone();
    let mut list = EntryList::new(1);
    // There is room for one.
    let _ = list.push(entry);
    list.sorted().into()
}
