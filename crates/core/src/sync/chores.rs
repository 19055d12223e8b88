//! Short scripts for the rest of the work on a host: deleting, permissions, times, digests, free space.
//!
//! Lists of paths go in on standard input, each with `./` in front and the mark and a NUL behind it, so that no name
//! is ever part of a command. The mark is there because `xargs` takes what a cut link leaves of the last name for a name
//! of its own. What could not be done is told by its path.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::entry::Mtime;
use super::path::RelPath;
use super::revision::ContentDigest;
use super::scan::{HostPath, assignment};
use crate::ids::RunToken;

/// What is to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// Files and links.
    Files,
    /// Empty directories, the deepest first.
    Directories,
}

/// The paths as scripts read them that change something.
pub fn sealed_list<'a>(mark: &RunToken, paths: impl Iterator<Item = &'a RelPath>) -> Vec<u8> {
    let mut list = Vec::new();
    for path in paths {
        list.extend_from_slice(b"./");
        list.extend_from_slice(path.as_bytes());
        list.extend_from_slice(mark.as_str().as_bytes());
        list.push(0);
    }
    list
}

/// The beginning of a script for `xargs` that keeps what is sealed, without the seal.
const UNSEAL: &str = r#"n=$#; for f; do case $f in *"$0") set -- "$@" "${f%"$0"}";; esac; done; shift $n; [ $# != 0 ] || exit 0; "#;

/// The paths as scripts read them that only look.
pub fn path_list<'a>(paths: impl Iterator<Item = &'a RelPath>) -> Vec<u8> {
    let mut list = Vec::new();
    for path in paths {
        list.extend_from_slice(b"./");
        list.extend_from_slice(path.as_bytes());
        list.push(0);
    }
    list
}

/// The script for `sh -c` that removes what is on the list and says what is still there.
pub fn remove_script(root: &HostPath, removal: Removal, mark: &RunToken) -> String {
    let program = match removal {
        Removal::Files => "rm -f",
        Removal::Directories => "rmdir",
    };
    let mut script = enter(root, mark);
    let _ = writeln!(
        script,
        "xargs -0 sh -c '{UNSEAL}{program} \"$@\" 2>/dev/null; for f; do if [ -e \"$f\" ] || [ -h \"$f\" ]; then printf \"RSMCP:%s\\0\" \"$f\"; fi; done; exit 0' {mark}"
    );
    // Without `xargs` nothing was done, and nothing is said to be.
    script.push_str("[ $? = 0 ] && say end\nexit 0\n");
    script
}

/// The script for `sh -c` that gives everything on the list these permissions.
pub fn mode_script(root: &HostPath, mode: u16, mark: &RunToken) -> String {
    let mut script = enter(root, mark);
    let _ = writeln!(
        script,
        "xargs -0 sh -c '{UNSEAL}chmod {:04o} \"$@\"' {mark}",
        mode & 0o7777
    );
    script.push_str("[ $? = 0 ] || say failed\nsay end\nexit 0\n");
    script
}

/// The question that sets times below the second, which the file protocol cannot.
pub fn times_script(root: &HostPath, times: &[(RelPath, Mtime)], mark: &RunToken) -> String {
    let mut script = format!("{{\n{}", enter(root, mark));
    for (path, mtime) in times {
        script.push_str(&assignment("f", &[b"./", path.as_bytes()].concat()));
        let nanoseconds = mtime.nanoseconds().unwrap_or_default();
        let seconds = mtime.seconds;
        let _ = writeln!(
            script,
            "touch -c -h -m -d '@{seconds}.{nanoseconds:09}' \"$f\" 2>/dev/null"
        );
    }
    script.push_str("say end\nexit 0\n}\n");
    script
}

/// The script for `sh -c` that tells the SHA-256 of everything on the list.
pub fn digest_script(root: &HostPath, mark: &RunToken) -> String {
    let mut script = enter(root, mark);
    script.push_str(
        "for p in sha256sum 'shasum -a 256' 'sha256 -r'; do\ncommand -v ${p%% *} >/dev/null 2>&1 && break\np=\ndone\n[ -n \"$p\" ] && command -v xargs >/dev/null 2>&1 || exit 0\nsay digests\nxargs -0 $p 2>/dev/null\nsay end\nexit 0\n",
    );
    script
}

/// The question how much room there is where the root lies or will lie.
pub fn space_script(root: &HostPath, mark: &RunToken) -> String {
    let mut script = String::from("{\nLC_ALL=C; export LC_ALL\n");
    let _ = writeln!(script, "say() {{ printf 'RSMCP:%s:%s\\n' {mark} \"$1\"; }}");
    script.push_str(&assignment("way", root.as_bytes()));
    script.push_str(SPACE);
    script
}

const SPACE: &str = r#"cd 2>/dev/null
until [ -d "$way" ] || [ "$way" = . ]; do way=${way%/*}; [ -n "$way" ] || way=/; done
free=
# The name of a device may have blanks in it, so the columns are known by the one with the percentage.
for field in $(df -Pk "$way" 2>/dev/null | tail -n 1); do
case $field in *[0-9]%) say "free:$free"; break ;; esac
free=$field
done
exit 0
}
"#;

/// The beginning of every script here: it knows `say` and is in the root.
pub fn enter(root: &HostPath, mark: &RunToken) -> String {
    let mut script = String::from("LC_ALL=C; export LC_ALL; unset CDPATH\n");
    let _ = writeln!(script, "say() {{ printf 'RSMCP:%s:%s\\n' {mark} \"$1\"; }}");
    script.push_str(&assignment("root", root.as_bytes()));
    script.push_str("cd 2>/dev/null\ncd -P -- \"$root\" || exit 3\n");
    script
}

/// What a removal left; none when it did not come to its end.
pub fn parse_removed(mark: &RunToken, output: &[u8]) -> Option<Vec<RelPath>> {
    let output = until_end(mark, output)?;
    let left = output.split(|byte| *byte == 0);
    let left = left.filter_map(|path| RelPath::parse(path.strip_prefix(b"RSMCP:./")?).ok());
    Some(left.collect())
}

/// Whether permissions could all be set; none when it did not come to its end.
pub fn parse_modes(mark: &RunToken, output: &[u8]) -> Option<bool> {
    let output = until_end(mark, output)?;
    let failed = format!("RSMCP:{mark}:failed");
    Some(!holds(output, failed.as_bytes()))
}

/// Digests by path; what is not among them could not be read. None when it did not come to its end.
pub fn parse_digests(mark: &RunToken, output: &[u8]) -> Option<BTreeMap<RelPath, ContentDigest>> {
    let output = until_end(mark, output)?;
    let begin = format!("RSMCP:{mark}:digests\n");
    let at = output
        .windows(begin.len())
        .position(|window| window == begin.as_bytes())?;
    let lines = output.get(at + begin.len()..)?.split(|byte| *byte == b'\n');
    Some(lines.filter_map(digest_line).collect())
}

/// How many bytes are free, where the host could tell.
pub fn parse_space(mark: &RunToken, output: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(output);
    let begin = format!("RSMCP:{mark}:free:");
    let kilobytes: u64 = text
        .split_once(&begin)?
        .1
        .lines()
        .next()?
        .trim()
        .parse()
        .ok()?;
    kilobytes.checked_mul(1024)
}

/// A digest, two characters, and a name in which `\n` and `\\` are escaped when the line begins with a backslash.
fn digest_line(line: &[u8]) -> Option<(RelPath, ContentDigest)> {
    let (line, is_escaped) = match line.strip_prefix(b"\\") {
        Some(rest) => (rest, true),
        None => (line, false),
    };
    let hexadecimal = std::str::from_utf8(line.get(..64)?).ok()?;
    let mut digest: ContentDigest = [0; 32];
    for (byte, pair) in digest.iter_mut().zip(hexadecimal.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    let name = line.get(64..)?;
    let at = name.windows(2).position(|window| window == b"./")?;
    let name = name.get(at + 2..)?;
    let name = if is_escaped {
        unescape(name)
    } else {
        name.to_vec()
    };
    Some((RelPath::parse(&name).ok()?, digest))
}

fn unescape(name: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(name.len());
    let mut bytes = name.iter();
    while let Some(byte) = bytes.next() {
        let byte = match (byte, byte == &b'\\') {
            (_, true) => match bytes.next() {
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                Some(other) => *other,
                None => b'\\',
            },
            (byte, false) => *byte,
        };
        plain.push(byte);
    }
    plain
}

fn until_end<'a>(mark: &RunToken, output: &'a [u8]) -> Option<&'a [u8]> {
    let end = format!("RSMCP:{mark}:end");
    let at = output
        .windows(end.len())
        .rposition(|window| window == end.as_bytes())?;
    output.get(..at)
}

fn holds(output: &[u8], word: &[u8]) -> bool {
    output.windows(word.len()).any(|window| window == word)
}

#[cfg(test)]
#[path = "chores_tests.rs"]
mod tests;
