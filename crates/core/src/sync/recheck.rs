//! The script by which a host says how files look that it has just packed.
//!
//! It is asked where the packing program itself does not tell whether a file changed while it was read. A file that still
//! has the size and the time of the scan is the one that was scanned.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::entry::Stamp;
use super::path::RelPath;
use super::scan::{assignment, time};
use super::within;
use crate::ids::RunToken;

/// Files that are looked at once more.
#[derive(Debug, Clone, Copy)]
pub struct Recheck<'a> {
    /// The root: absolute, or from the home directory with `./` in front.
    pub root: &'a [u8],
    /// Whether links stand for what they lead to.
    pub follow_links: bool,
    /// What tells its words from other text.
    pub mark: &'a RunToken,
}

/// Passes on the names whose directories are where they should be.
const IN_PLACE: &str = r#"last= good=
for f; do
d=${f%/*}
[ "$d" = "$last" ] || { last=$d good=; within "$d" && good=1; }
[ -z "$good" ] || printf '%s\0' "$f"
done
"#;

impl Recheck<'_> {
    /// The script for `sh -c`; it takes the list of a packing script on its standard input.
    pub fn script(&self) -> String {
        let mut script = String::from("LC_ALL=C; export LC_ALL; unset CDPATH\n");
        script.push_str(&assignment("root", self.root));
        let (mark, follow) = (self.mark, if self.follow_links { "-L " } else { "" });
        // What lies behind a link that is in the place of a directory is not what was asked for.
        let filter = match self.follow_links {
            true => String::new(),
            false => {
                let filter = within::functions(0) + IN_PLACE;
                format!("xargs -0 sh -c {} sh | ", crate::shell::quote(&filter))
            }
        };
        let begin = within::begin(&[]);
        let _ = write!(
            script,
            "cd -P -- \"$root\" || exit 3\n{begin}\
             if find . -maxdepth 0 -printf '' >/dev/null 2>&1; then\n\
             look='find {follow}\"$@\" -maxdepth 0 -printf \"%s %T@ %p//$0\\n\"'\n\
             elif stat -c %s . >/dev/null 2>&1; then look='stat {follow}-c \"%s %Y %n//$0\" \"$@\"'\n\
             elif stat -f %z . >/dev/null 2>&1; then look='stat {follow}-f \"%z %Fm %N//$0\" \"$@\"'\n\
             else exit 4\n\
             fi\n\
             xargs -0 sh -c : </dev/null >/dev/null 2>&1 || exit 4\n\
             {filter}xargs -0 sh -c \"$look\" {mark} 2>/dev/null\n\
             printf 'RSMCP:%s:end\\n' {mark}\n\
             exit 0\n"
        );
        script
    }

    /// How the files look now; one that is gone is not among them. None when it did not come to its end, or when the host has
    /// no program to look with.
    pub fn parse(&self, output: &[u8]) -> Option<BTreeMap<RelPath, Stamp>> {
        let end = format!("RSMCP:{}:end\n", self.mark);
        let output = output.strip_suffix(end.as_bytes())?;
        let close = format!("//{}\n", self.mark).into_bytes();
        let mut found = BTreeMap::new();
        let mut rest = output;
        while let Some(at) = rest.windows(close.len()).position(|part| part == close) {
            if let Some((path, stamp)) = rest.get(..at).and_then(record) {
                found.insert(path, stamp);
            }
            rest = rest.get(at + close.len()..).unwrap_or_default();
        }
        Some(found)
    }
}

/// Reads `SIZE TIME ./PATH`.
fn record(bytes: &[u8]) -> Option<(RelPath, Stamp)> {
    let mut parts = bytes.splitn(3, |byte| *byte == b' ');
    let size = std::str::from_utf8(parts.next()?).ok()?;
    let mtime = std::str::from_utf8(parts.next()?).ok()?;
    let path = parts.next()?.strip_prefix(b"./")?;
    let stamp = Stamp {
        size_bytes: size.parse().ok()?,
        mtime: time(mtime)?,
    };
    Some((RelPath::parse(path).ok()?, stamp))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::MetadataExt as _;
    use std::process::Command;

    use rstest::rstest;

    use super::*;
    use crate::sync::Mtime;

    const MARK: &str = "0123456789abcdef0123456789abcdef";

    fn run(script: &str, path: &str, names: &[&str]) -> Vec<u8> {
        let list: String = names.iter().map(|name| format!("./{name}\0")).collect();
        let folder = tempfile::tempdir().unwrap();
        let input = folder.path().join("list");
        std::fs::write(&input, list).unwrap();
        let output = Command::new("/bin/sh")
            .args(["-c", script])
            .env("PATH", path)
            .stdin(std::fs::File::open(input).unwrap())
            .output();
        output.unwrap().stdout
    }

    #[rstest]
    #[case::find("/usr/local/bin:/usr/bin:/bin")]
    #[case::busybox("")]
    fn files_are_told_as_they_look_and_missing_ones_are_not(#[case] path: &str) {
        let programs = tempfile::tempdir().unwrap();
        if path.is_empty() {
            for name in ["find", "stat", "xargs", "sh", "printf"] {
                let made = std::os::unix::fs::symlink("/bin/busybox", programs.path().join(name));
                made.unwrap();
            }
            if !std::path::Path::new("/bin/busybox").exists() {
                return;
            }
        }
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir(tree.path().join("d")).unwrap();
        let names = ["a", "d/new\nline", "d/with space"];
        for name in names {
            std::fs::write(tree.path().join(name), name).unwrap();
        }
        let mark = RunToken::parse(MARK).unwrap();
        let recheck = Recheck {
            root: tree.path().as_os_str().as_bytes(),
            follow_links: false,
            mark: &mark,
        };
        let path = match path {
            "" => programs.path().to_str().unwrap(),
            path => path,
        };
        let said = run(
            &recheck.script(),
            path,
            &["a", "gone", "d/new\nline", "d/with space"],
        );
        let found = recheck.parse(&said).unwrap();
        assert_eq!(found.len(), 3, "{}", String::from_utf8_lossy(&said));
        for name in names {
            let about = std::fs::metadata(tree.path().join(name)).unwrap();
            let exact = Mtime::exact(about.mtime(), about.mtime_nsec() as u32).unwrap();
            let stamp = found[&RelPath::parse(name.as_bytes()).unwrap()];
            assert_eq!(stamp.size_bytes, about.size());
            assert!(stamp.mtime.agrees(exact), "{name:?}");
        }
        assert_eq!(recheck.parse(&said[..said.len() - 1]), None);
    }
}
