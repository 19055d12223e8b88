//! Shell code that works in a directory only where it really lies.
//!
//! Between a scan and what follows it somebody may put a link in the place of a directory, and a path that goes through it
//! leads out of the tree. So a directory is entered first, and then the system is asked where that is: only when it is
//! where the path says, work goes on there, with names that have no directory in front. From then on the working
//! directory is a handle, and what becomes of the path does not matter any more. That takes no program, only what every
//! shell knows by itself.
//!
//! Links that files are meant to go through are followed once, when a script begins; below each of them the same holds.

use std::fmt::Write as _;

use super::path::RelPath;
use super::scan::assignment;

/// Says where the root lies, which the script has just entered with `cd -P`, and defines what [`functions`] does. All of
/// it is exported, so that a shell within the script can define it as well.
pub(super) fn begin(links: &[&RelPath]) -> String {
    let mut script = String::from("w=${PWD%/}; export w\n");
    script.push_str(&functions(links.len()));
    for (number, link) in links.iter().enumerate() {
        let path = [b"./", link.as_bytes()].concat();
        script.push_str(&assignment(&format!("k{number}"), &path));
        // What cannot be entered lies nowhere.
        let _ = writeln!(
            script,
            "if within \"${{k{number}%/*}}\" && cd -P -- \"./${{k{number}##*/}}\" 2>/dev/null; then r{number}=${{PWD%/}}; else r{number}=/dev/null; fi\nexport k{number} r{number}"
        );
    }
    if !links.is_empty() {
        script.push_str(BACK);
    }
    script
}

/// Goes back to the root.
pub(super) const BACK: &str = "cd -P -- \"${w:-/}\" || exit 3\n";

/// Defines `within`, which enters a directory that is given as `./path` or `.`, or fails. So many links are gone through.
pub(super) fn functions(links: usize) -> String {
    let mut script = String::from("place() {\ncase $1/ in\n");
    // Links within links come later in the order of paths, and count first.
    for number in (0..links).rev() {
        let _ = writeln!(
            script,
            "\"$k{number}\"/*) e=$r{number}${{1#\"$k{number}\"}} ;;"
        );
    }
    script.push_str("*) e=$w${1#.} ;;\nesac\ne=${e:-/}\n}\n");
    script.push_str(
        "within() { place \"$1\"; cd -P -- \"$e\" 2>/dev/null && [ \"$PWD\" = \"$e\" ]; }\n",
    );
    script
}

/// The links that paths go through, of these, in the order of paths.
pub fn gone_through<'a>(links: &'a [RelPath], paths: &[RelPath]) -> Vec<&'a RelPath> {
    let is_above = |link: &&RelPath| paths.iter().any(|path| path.is_below(link));
    let mut links: Vec<&RelPath> = links.iter().filter(is_above).collect();
    links.sort();
    links
}
