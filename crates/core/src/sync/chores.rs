//! Short scripts for the rest of the work on a host: deleting, permissions, times, digests, free space.
//!
//! Lists of paths go in on standard input, each with `./` in front and the mark and a NUL behind it, so that no name
//! is ever part of a command. The mark is there because `xargs` takes what a cut link leaves of the last name for a name
//! of its own. What could not be done is told by its path. What changes something works from within each directory, so
//! that no link that somebody puts in the place of one leads out of the tree (see `within`).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::entry::Mtime;
use super::path::RelPath;
use super::revision::ContentDigest;
use super::scan::{HostPath, assignment};
use super::within;
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

/// Passes on what is sealed, without the seal; a last word says that this went wrong.
const UNSEAL: &str = r#"{ xargs -0 sh -c 'for f; do case $f in *"$0") printf "%s\0" "${f%"$0"}";; esac; done' MARK || printf '!\0'; } | xargs -0 -n 1000 sh -c SCRIPT"#;

/// Goes through a list, directory after directory. The names of one are collected in `a`, as words that `eval` reads, for
/// to add to the arguments themselves takes quadratic time in some shells. What lies where nobody may work is told.
const EACH: &str = r#"tell() { printf 'RSMCP:%s\0' "$1"; }
left() { for n; do if [ -e "$n" ] || [ -h "$n" ]; then tell "$last/${n#./}"; fi; done; }
i=0 a= last= good= failed=0
for f in "$@" ''; do
[ "$f" != '!' ] || exit 255
i=$((i+1)); d=${f%/*}
if [ "$d" != "$last" ]; then
DIRECTORY_DONE
last=$d good=
if [ -n "$f" ] && within "$d"; then good=1; fi
fi
[ -n "$f" ] || continue
if [ -z "$good" ]; then tell "$f"; else
ADD
fi
done
"#;

/// What is done with each entry of a list, with what was collected of a directory, and at the end.
struct Work<'a> {
    add: &'a str,
    directory_done: &'a str,
    end: &'a str,
}

/// The name of an entry, for a program that works in its directory.
const ADD_NAME: &str = r#"a="$a \"./\${$i##*/}\"""#;

/// A script that does work on what is on its list, which goes through these links.
fn work_script(root: &HostPath, work: &Work<'_>, links: &[&RelPath], mark: &RunToken) -> String {
    let mut inner = within::functions(links.len());
    let each = EACH.replace("DIRECTORY_DONE", work.directory_done);
    inner.push_str(&each.replace("ADD", work.add));
    inner.push_str(work.end);
    let mut script = enter(root, mark);
    script.push_str(&within::begin(links));
    let unseal = UNSEAL.replace("MARK", mark.as_str());
    // The first word is the name of the shell itself.
    let _ = writeln!(
        script,
        "{} sh",
        unseal.replace("SCRIPT", &crate::shell::quote(&inner))
    );
    script
}

/// The script for `sh -c` that removes what is on the list, by way of these links at most, and says what is still there.
///
/// Files go directory after directory, each from within. A directory goes only when it is empty, so for them it has to do
/// that the way to each is looked at just before.
pub fn remove_script(
    root: &HostPath,
    removal: Removal,
    links: &[&RelPath],
    mark: &RunToken,
) -> String {
    let work = match removal {
        Removal::Files => Work {
            add: ADD_NAME,
            directory_done: r#"[ -z "$a" ] || { eval "rm -f -- $a" 2>/dev/null; eval "left $a"; a=; }"#,
            end: "exit 0\n",
        },
        Removal::Directories => Work {
            add: r#"a="$a \"\${$i}\"""#,
            directory_done: ":",
            end: "cd -P -- \"${w:-/}\" || exit 255\nlast=.\n[ -z \"$a\" ] || { eval \"rmdir -- $a\" 2>/dev/null; eval \"left $a\"; }\nexit 0\n",
        },
    };
    let mut script = work_script(root, &work, links, mark);
    // Without `xargs` nothing was done, and nothing is said to be.
    script.push_str("[ $? = 0 ] && say end\nexit 0\n");
    script
}

/// The script for `sh -c` that gives everything on the list these permissions, by way of these links at most. `chmod`
/// follows a link that has the name, so such a name is left.
pub fn mode_script(root: &HostPath, mode: u16, links: &[&RelPath], mark: &RunToken) -> String {
    let directory_done = format!(
        "[ -z \"$a\" ] || {{ eval \"chmod {:04o} -- $a\" || failed=1; a=; }}",
        mode & 0o7777
    );
    let work = Work {
        add: &format!("if [ -h \"./${{f##*/}}\" ]; then tell \"$f\"; else {ADD_NAME}; fi"),
        directory_done: &directory_done,
        end: "exit $failed\n",
    };
    let mut script = work_script(root, &work, links, mark);
    script.push_str("[ $? = 0 ] || say failed\nsay end\nexit 0\n");
    script
}

/// Sets times from within the directories; one program for all of them.
const SET_TIMES: &str = include_str!("times.py");

/// The question that sets times below the second, which the file protocol cannot. Where there is no `python3`, it takes
/// one program for each time.
pub fn times_script(
    root: &HostPath,
    times: &[(RelPath, Mtime)],
    links: &[&RelPath],
    mark: &RunToken,
) -> String {
    let mut script = format!("{{\n{}{}", enter(root, mark), within::begin(links));
    let (mut list, mut touches) = (String::new(), String::new());
    let mut together: BTreeMap<(Option<RelPath>, i64, u32), Vec<&RelPath>> = BTreeMap::new();
    for (path, mtime) in times {
        let nanoseconds = mtime.nanoseconds().unwrap_or_default();
        let _ = write!(list, "{} {nanoseconds} ", mtime.seconds);
        for byte in [b"./", path.as_bytes()].concat() {
            let _ = write!(list, "{byte:02x}");
        }
        list.push('\n');
        let same = together.entry((path.parent(), mtime.seconds, nanoseconds));
        same.or_default().push(path);
    }
    for ((parent, seconds, nanoseconds), paths) in together {
        let directory = parent.map_or(b".".to_vec(), |parent| [b"./", parent.as_bytes()].concat());
        touches.push_str(&assignment("d", &directory));
        let mut names = String::new();
        for (number, path) in paths.into_iter().enumerate() {
            touches.push_str(&assignment(
                &format!("n{number}"),
                &[b"./", path.name()].concat(),
            ));
            let _ = write!(names, " \"$n{number}\"");
        }
        let _ = writeln!(
            touches,
            "if within \"$d\"; then touch -c -h -m -d '@{seconds}.{nanoseconds:09}'{names} 2>/dev/null; fi"
        );
    }
    let _ = writeln!(
        script,
        "if command -v python3 >/dev/null 2>&1 && python3 -S -c {} {} 2>/dev/null <<'RSMCP'\n{list}RSMCP\nthen :; else\n{touches}fi",
        crate::shell::quote(SET_TIMES),
        links.len()
    );
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

/// The script that says what time it is there.
pub fn clock_script(mark: &RunToken) -> String {
    format!("printf 'RSMCP:%s:now:%s\\n' {mark} \"$(date +%s)\"\nexit 0\n")
}

/// Seconds since 1970 by the clock there; none where the host did not say.
pub fn parse_clock(mark: &RunToken, output: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(output).ok()?;
    let begin = format!("RSMCP:{mark}:now:");
    let line = text.lines().find_map(|line| line.strip_prefix(&begin))?;
    line.parse().ok()
}

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

/// Whether permissions could all be set, and what was left because its way is not what it was; none when it did not come
/// to its end.
pub fn parse_modes(mark: &RunToken, output: &[u8]) -> Option<(bool, Vec<RelPath>)> {
    let left = parse_removed(mark, output)?;
    let failed = format!("RSMCP:{mark}:failed");
    Some((!holds(output, failed.as_bytes()), left))
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
