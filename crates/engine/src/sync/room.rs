//! Whether there is room for what comes.

use std::collections::BTreeMap;

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::sync::plan::Action;
use remote_sandbox_core::sync::roots::CleanPath;
use remote_sandbox_core::sync::{Entry, RelPath};

use super::decide::Decision;
use super::fetch::resumable_name;
use super::large::unfinished_name;
use super::request::Way;
use super::sides::Sides;
use super::up::LARGE_FILE;
use crate::beneath::Tree;

/// From this size on it is asked first whether there is room.
const ASK_FOR_ROOM: u64 = 64 * 1024 * 1024;

/// Whether the sandbox has room for what is sent; what it does not tell is not asked for.
pub(super) async fn check_room_there(sides: &Sides, decision: &Decision) -> Result<(), Failure> {
    let sent = decision.sent_bytes();
    if sent < ASK_FOR_ROOM {
        return Ok(());
    }
    let needed = sent.saturating_sub(continued_bytes(sides, sides.far_leftovers.iter().cloned()));
    let far = sides.far_side();
    match far.free_bytes().await? {
        Some(free) if free < needed => {
            let text = format!("{needed} bytes are needed there and {free} are free");
            Err(far
                .failure(Code::NoSpace, &text)
                .hint("make room there, or exclude something; nothing was sent"))
        }
        _ => Ok(()),
    }
}

/// Whether this machine has room for what is brought.
pub(super) fn check_room_here(sides: &Sides, decision: &Decision) -> Result<(), Failure> {
    let brought = decision.sent_bytes();
    if brought < ASK_FOR_ROOM {
        return Ok(());
    }
    let left = match &sides.tree {
        None => 0,
        Some(tree) => {
            let left = sides.local_leftovers.iter();
            let left = left.filter_map(|path| tree.look(path).ok().flatten());
            continued_bytes(sides, left)
        }
    };
    let needed = brought.saturating_sub(left);
    let free = match &sides.tree {
        Some(tree) => tree.free_bytes(),
        None => free_bytes_above(&sides.local_root),
    };
    match free {
        Some(free) if free < needed => {
            let text = format!("{needed} bytes are needed on this machine and {free} are free");
            Err(Failure::new(Code::NoSpace, text)
                .hint("make room, or exclude something; nothing was written"))
        }
        _ => Ok(()),
    }
}

/// The room where a directory will be made.
fn free_bytes_above(root: &CleanPath) -> Option<u64> {
    let mut above = root.as_path().ancestors().skip(1);
    let tree = above.find_map(|path| Tree::open(&CleanPath::parse(path).ok()?).ok())?;
    tree.free_bytes()
}

/// How much of what goes was left unfinished by an earlier sync and is continued where it lies. Whatever else was left there
/// takes room and gives none.
fn continued_bytes(sides: &Sides, left: impl Iterator<Item = Entry>) -> u64 {
    let left: BTreeMap<RelPath, u64> = left.map(|entry| (entry.path, entry.size_bytes)).collect();
    let (false, Ok(owner)) = (left.is_empty(), sides.owner()) else {
        return 0;
    };
    let continued = sides.plan().map_while(Result::ok).filter_map(|action| {
        let Action::SendFile { entry, .. } = action else {
            return None;
        };
        let name = match sides.request.way {
            _ if entry.size_bytes < LARGE_FILE => return None,
            Way::Up => unfinished_name(sides.far_root.as_bytes(), &entry.path, &entry, &owner),
            Way::Down => resumable_name(&sides.far_location(), &entry, &owner),
        };
        let path = match entry.path.parent() {
            Some(parent) => parent.join(name.as_bytes()),
            None => RelPath::parse(name.as_bytes()),
        };
        let bytes = left.get(&path.ok()?)?;
        Some((*bytes).min(entry.size_bytes))
    });
    continued.sum()
}
