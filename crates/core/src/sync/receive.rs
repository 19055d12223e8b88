//! The scripts by which a host takes in what is sent to it, and what they say.
//!
//! **Taking in.** One program on the host unpacks an archive into folders that nobody looks into, and, when the last
//! entry of the archive says that all of it is right, gives everything its name with `mv` and removes the folders.
//! That is one round trip for a whole batch. An archive that breaks off has no last entry at all: nobody waits for what
//! came of it any more, so the program removes it, also when nobody can ask it to.
//!
//! **Renames.** `mv` into a directory is one `rename` for each entry: what is there is replaced in one step, a link
//! is replaced and not followed, and a directory that holds something is not replaced at all. It is done from within the
//! directory (see `within`), so that a link in its place leads nowhere. What could not be renamed is told by its place.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::entry::Entry;
use super::path::RelPath;
use super::scan::{HostPath, assignment};
use super::staging::{Batch, Rename};
use super::within::{self, BACK};
use crate::ids::RunToken;

/// The name of the last entry of an archive whose content may be published.
pub const SEAL: &[u8] = b"sealed";

/// The name of the last entry of an archive that holds something which must not be published.
pub const UNSEALED: &[u8] = b"unsealed";

/// A script that is an argument of a program is at most this long; systems take twice that.
const LONGEST_SCRIPT: usize = 64 * 1024;

/// How an archive is packed on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// As it is.
    Plain,
    /// With gzip.
    Gzip,
}

/// What a host said about a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The exit status of the unpacking program; none when the folders could not even be made.
    pub unpacked: Option<u32>,
    /// Whether the renames were tried.
    pub published: bool,
    /// What could not be renamed, by its place in the folders.
    pub left: Vec<RelPath>,
    /// Whether times arrive to the nanosecond; some programs keep whole seconds.
    pub keeps_fractions: bool,
    /// Whether the archive was not even looked at, for want of a program that unpacks it.
    pub has_no_gzip: bool,
}

/// Where renames are done with the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Publishing {
    /// By the script that unpacks, as its last step.
    AtOnce,
    /// By somebody else, later.
    Later,
}

/// The script for `sh -c` that takes in the archive of a batch on its standard input. A root that has to be made gets these
/// permissions.
pub fn receive_script(
    (root, mode): (&HostPath, Option<u32>),
    batch: &Batch,
    packing: Packing,
    publishing: Publishing,
    mark: &RunToken,
) -> String {
    let mut script = begin(root, mode, mark);
    script.push_str("umask 077\n");
    for (number, folder) in batch.folders.iter().enumerate() {
        script.push_str(&relative(&format!("f{number}"), Some(folder)));
        let _ = writeln!(
            script,
            "rm -rf \"$f{number}\"; mkdir -p \"$f{number}\" || exit 4"
        );
    }
    if packing == Packing::Gzip {
        script.push_str("command -v gzip >/dev/null 2>&1 || { say nogzip; exit 0; }\n");
    }
    // One file that may not grow as large as it is must not end what unpacks the others.
    script.push_str("trap '' XFSZ 2>/dev/null\n");
    script.push_str(match packing {
        Packing::Plain => "tar -xpof -\n",
        Packing::Gzip => "gzip -dc | tar -xpof -\n",
    });
    script.push_str("status=$?\n");
    let _ = writeln!(
        script,
        "[ -e \"$f0/{}\" ] || [ -e \"$f0/{}\" ] || {}",
        String::from_utf8_lossy(SEAL),
        String::from_utf8_lossy(UNSEALED),
        remove_folders(batch).trim_end()
    );
    script.push_str("say tar:$status\n");
    script.push_str("case $(tar --version 2>/dev/null) in *GNU*|*bsdtar*) say fractions;; esac\n");
    if publishing == Publishing::AtOnce {
        // On a full disk the seal, which is empty, may still have found its place.
        let _ = writeln!(
            script,
            "if [ $status = 0 ] && [ -e \"$f0/{}\" ]; then",
            String::from_utf8_lossy(SEAL)
        );
        script.push_str(&publish(batch, &steps(batch).concat()));
        script.push_str(&remove_folders(batch));
        script.push_str("fi\n");
    }
    script.push_str("exit 0\n");
    script
}

/// Whether the renames of a batch fit into the script that takes it in.
pub fn fits_into_script(batch: &Batch) -> bool {
    steps(batch).iter().map(String::len).sum::<usize>() <= LONGEST_SCRIPT
}

/// The scripts that give what lies in the folders of a batch its names, one after the other, each as a question; the
/// last one removes the folders.
pub fn publish_scripts(root: &HostPath, batch: &Batch, mark: &RunToken) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for step in steps(batch) {
        match pieces.last_mut() {
            Some(last) if last.is_empty() || last.len() + step.len() <= LONGEST_SCRIPT => {
                last.push_str(&step);
            }
            _ => pieces.push(step),
        }
    }
    let last = pieces.len() - 1;
    let script = |(number, piece): (usize, String)| {
        let mut script = String::from("{\n");
        script.push_str(&begin(root, None, mark));
        for (number, folder) in batch.folders.iter().enumerate() {
            script.push_str(&relative(&format!("f{number}"), Some(folder)));
        }
        script.push_str(&publish(batch, &piece));
        if number == last {
            script.push_str(&remove_folders(batch));
        }
        script.push_str("exit 0\n}\n");
        script
    };
    pieces.into_iter().enumerate().map(script).collect()
}

/// The script that makes the root, with these permissions; one that is there stays as it is.
pub fn make_root_script(root: &HostPath, mode: Option<u32>, mark: &RunToken) -> String {
    let mut script = String::from("{\n");
    script.push_str(&begin(root, mode, mark));
    script.push_str("say end\nexit 0\n}\n");
    script
}

/// The permissions of a root that is made for one with these: its owner can do everything with it, and not everybody can
/// write into it, whose sticky bit is not kept.
pub fn new_root_mode(mode: u32) -> u32 {
    mode & 0o775 | 0o700
}

/// The script that removes the folders of a batch with what is in them.
pub fn discard_script(root: &HostPath, folders: &[RelPath], mark: &RunToken) -> String {
    let mut script = String::from("{\n");
    script.push_str(&begin(root, None, mark));
    for folder in folders {
        script.push_str(&relative("f", Some(folder)));
        // What was sent before is still being unpacked for a moment, and a folder that is removed meanwhile comes back.
        script.push_str(
            "for n in 1 2 3 4 5; do\n\
             rm -rf \"$f\" 2>/dev/null\n\
             sleep 0.1 2>/dev/null || sleep 1\n\
             [ -e \"$f\" ] || break\n\
             done\n",
        );
    }
    script.push_str("say end\nexit 0\n}\n");
    script
}

fn begin(root: &HostPath, mode: Option<u32>, mark: &RunToken) -> String {
    let mut script = String::from("LC_ALL=C; export LC_ALL; unset CDPATH\n");
    let _ = writeln!(script, "say() {{ printf 'RSMCP:%s:%s\\n' {mark} \"$1\"; }}");
    script.push_str(&assignment("root", root.as_bytes()));
    let mode = mode.map_or_else(String::new, |mode| format!("-m {mode:o} "));
    let _ = writeln!(
        script,
        "cd 2>/dev/null\nmkdir -p {mode}-- \"$root\" && cd -P -- \"$root\" || exit 3"
    );
    script
}

/// Gives a variable a path that begins with `./`, so that nothing takes it for an option.
fn relative(variable: &str, path: Option<&RelPath>) -> String {
    let bytes = path.map_or(b".".to_vec(), |path| [b"./", path.as_bytes()].concat());
    assignment(variable, &bytes)
}

/// What has to be done for the names: directories, then `mv` once for each folder.
fn steps(batch: &Batch) -> Vec<String> {
    let mut folders: BTreeMap<RelPath, Option<RelPath>> = BTreeMap::new();
    for Rename { from, to } in &batch.renames {
        if let Some(folder) = from.parent() {
            folders.entry(folder).or_insert_with(|| to.parent());
        }
    }
    let make = |directory: &Entry| {
        let to = relative("to", Some(&directory.path));
        format!("{to}within \"${{to%/*}}\" && mkdir -p \"./${{to##*/}}\"\n{BACK}")
    };
    let rename = |(folder, directory): (&RelPath, &Option<RelPath>)| {
        let (from, to) = (
            relative("from", Some(folder)),
            relative("to", directory.as_ref()),
        );
        format!("{from}{to}publish\n")
    };
    let made = batch.directories.iter().map(make);
    made.chain(folders.iter().map(rename)).collect()
}

/// Takes these steps; what is left in the folders afterwards could not be renamed.
fn publish(batch: &Batch, steps: &str) -> String {
    let links: Vec<&RelPath> = batch.links.iter().collect();
    let mut script = within::begin(&links);
    let put = within::functions(links.len()) + PUT;
    script.push_str(&assignment("put", put.as_bytes()));
    let _ = writeln!(script, "{PUBLISH}{steps}say left:end");
    script
}

fn remove_folders(batch: &Batch) -> String {
    let mut folders = String::from("rm -rf");
    for number in 0..batch.folders.len() {
        let _ = write!(folders, " \"$f{number}\"");
    }
    folders.push_str(" 2>/dev/null\n");
    folders
}

/// Gives names in a directory, from within it.
const PUT: &str = r#"within "$0" || { echo "$0 is not where it was" >&2; exit 1; }
exec mv -f "$@" ./
"#;

const PUBLISH: &str = r#"publish() {
find "$w/$from/." ! -name . -prune -exec sh -c "$put" "$to" {} +
find "$from/." ! -name . -prune -exec printf 'RSMCP:%s\0' {} +
}
say left
"#;

/// Reads what [`receive_script`] or one of [`publish_scripts`] said; none when it did not come to its end.
pub fn parse_received(mark: &RunToken, output: &[u8], publishing: Publishing) -> Option<Received> {
    let line = |word: &str| format!("RSMCP:{mark}:{word}").into_bytes();
    let unpacked = find(output, &line("tar:"))
        .and_then(|at| output.get(at..))
        .and_then(|rest| {
            let end = rest.iter().position(|byte| *byte == b'\n')?;
            std::str::from_utf8(rest.get(..end)?).ok()?.parse().ok()
        });
    if find(output, &line("nogzip\n")).is_some() {
        return Some(Received {
            unpacked: None,
            published: false,
            left: Vec::new(),
            has_no_gzip: true,
            keeps_fractions: false,
        });
    }
    let keeps_fractions = find(output, &line("fractions\n")).is_some();
    let begin = find(output, &line("left\n"));
    let (Some(begin), Publishing::AtOnce) = (begin, publishing) else {
        return unpacked.map(|status| Received {
            unpacked: Some(status),
            published: false,
            left: Vec::new(),
            has_no_gzip: false,
            keeps_fractions,
        });
    };
    let rest = output.get(begin..)?;
    let length = find(rest, &line("left:end"))?.checked_sub(line("left:end").len())?;
    let left = rest.get(..length)?.split(|byte| *byte == 0);
    let left = left.filter_map(|place| {
        let place = place.strip_prefix(b"RSMCP:./")?;
        let at = place.windows(3).rposition(|window| window == b"/./")?;
        let folder = RelPath::parse(place.get(..at)?).ok()?;
        folder.join(place.get(at + 3..)?).ok()
    });
    Some(Received {
        unpacked,
        published: true,
        left: left.collect(),
        has_no_gzip: false,
        keeps_fractions,
    })
}

/// The place behind a word.
fn find(bytes: &[u8], word: &[u8]) -> Option<usize> {
    let at = bytes
        .windows(word.len())
        .position(|window| window == word)?;
    Some(at + word.len())
}

#[cfg(test)]
#[path = "receive_tests.rs"]
mod tests;
