//! The scripts by which a host packs files that were asked for into one archive.
//!
//! Names come on the standard input, each ended by a NUL, with `./` in front so that none is taken for an option. GNU tar
//! and bsdtar read them so. For other programs, such as that of busybox, `xargs` makes them arguments; where they are too many
//! for one call, archives follow each other, so whoever reads has to read on behind the end of one.
//!
//! A file that is written while it is packed comes as a mixture. GNU tar looks at each file once more when it has read it,
//! and its exit status tells. So it is called for a thousand files at a time, and behind each archive stands a remark: all of
//! it is as it was before, or that is not known. Where no remark comes, it is not known either. Where whoever asks wants
//! files as soon as they are named, it is called once, and one remark stands at the end.
//!
//! The same remark tells whether every directory was a directory of the tree before and after: `tar` would follow a link that
//! somebody has put in the place of one (see `within`).
//!
//! Archives and remarks may be packed with gzip on their way, as one stream, where the host has that; whoever reads sees by
//! its first bytes whether it is, for no archive begins like a packed one.

use std::fmt::Write as _;

use super::path::RelPath;
use super::scan::assignment;
use super::within;
use crate::archive::BLOCK;
use crate::ids::RunToken;

/// What a packing script ends with where there is no `tar`, or none that can be told what to pack.
pub const NO_TAR: u32 = 96;

/// What it ends with where the root cannot be entered.
pub const NO_ROOT: u32 = 97;

/// How many files are packed before it is said how that went.
const FILES_PER_REMARK: usize = 1000;

/// What a host says of the files that it has packed since it last said something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remark {
    /// None of them changed while it was read.
    Unchanged,
    /// That is not known.
    Unknown,
}

impl Remark {
    /// All of them, in the order of their numbers.
    pub const ALL: [Remark; 2] = [Remark::Unchanged, Remark::Unknown];

    fn word(self) -> &'static str {
        match self {
            Remark::Unchanged => "unchanged",
            Remark::Unknown => "unknown",
        }
    }

    /// How it stands between two archives.
    pub fn block(self, mark: &RunToken) -> [u8; BLOCK] {
        let mut block = [b' '; BLOCK];
        let text = format!("RSMCP:{mark}:{}", self.word());
        for (place, byte) in block.iter_mut().zip(text.bytes()) {
            *place = byte;
        }
        block
    }
}

/// How a host packs files.
#[derive(Debug, Clone, Copy)]
pub struct Packing<'a> {
    /// The root: absolute, or from the home directory with `./` in front.
    pub root: &'a [u8],
    /// Whether links are packed as what they lead to.
    pub follow_links: bool,
    /// What tells its remarks from everything else.
    pub mark: &'a RunToken,
    /// Whether each file is packed as soon as its name comes, where the host can.
    pub as_named: bool,
    /// Whether the archive is packed, where the host can.
    pub gzip: bool,
    /// The directories that files lie in, where they are few enough to be told beforehand. They are needed when files are
    /// packed as they are named; without them nothing is said to be unchanged then.
    pub directories: Option<&'a [RelPath]>,
}

/// How everything begins that gzip has packed.
pub const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Whether the directories of these names are where they should be.
const IN_PLACE: &str = r#"in_place() {
last=.
for f; do
d=${f%/*}
[ "$d" = "$last" ] || { last=$d; within "$d" || { cd -P -- "${w:-/}"; return 1; }; }
done
cd -P -- "${w:-/}"
}
"#;

/// Becomes a program.
const PLAIN: &str = "give() { exec \"$@\"; }\n";

/// Runs a program with its output packed; ends as that does, not as `gzip`.
const PACKED: &str = r#"give() {
command -v gzip >/dev/null 2>&1 || exec "$@"
exec 3>&1
s=$({ { "$@" 3>&- 4>&-; echo $? >&4; } | gzip -1 -c >&3 4>&-; } 4>&1)
exit "${s:-1}"
}
"#;

impl Packing<'_> {
    /// The script for `sh -c` that packs the files of a list on its standard input.
    pub fn script(&self) -> String {
        let mut script = self.begin();
        let links = self.links();
        let (mark, unchanged) = (self.mark, Remark::Unchanged.word());
        let unknown = Remark::Unknown.word();
        let told = self.told(&mut script);
        let can_wait = match self.as_named {
            true => "false",
            false => "xargs -0 true </dev/null >/dev/null 2>&1",
        };
        // A format without surprises: no maps of holes, no records that hold for all that follow.
        let _ = write!(
            script,
            "case $(tar --version 2>/dev/null </dev/null) in\n\
             *GNU*)\n\
             pack='tar -cf - {links}--format=gnu --no-unquote --no-recursion'\n\
             say='; s=$?; in_place \"$@\" || good=1; v={unknown}; [ $s$good != 00 ] || v={unchanged}; printf \"%-{BLOCK}s\" \"RSMCP:$0:$v\"; exit $s'\n\
             {can_wait} || give sh -c \"$look$pack --null -T -$say\" {mark}{told}\n\
             give xargs -0 -n {FILES_PER_REMARK} sh -c \"$look$pack \\\"\\$@\\\"$say\" {mark} ;;\n\
             *bsdtar*|*libarchive*) give tar -cf - {links}--format=gnutar -n --null -T - ;;\n\
             esac\n\
             xargs -0 true </dev/null >/dev/null 2>&1 || exit {NO_TAR}\n\
             give xargs -0 tar -cf - {links}\n"
        );
        script
    }

    fn begin(&self) -> String {
        // What somebody has set for his own use of tar must not change what comes.
        let mut script = String::from(
            "LC_ALL=C COPYFILE_DISABLE=1\nexport LC_ALL COPYFILE_DISABLE\nunset TAR_OPTIONS\n",
        );
        script.push_str(&assignment("root", self.root));
        let _ = write!(
            script,
            "unset CDPATH\ncd -P -- \"$root\" || exit {NO_ROOT}\ncommand -v tar >/dev/null 2>&1 || exit {NO_TAR}\n"
        );
        script.push_str(if self.gzip { PACKED } else { PLAIN });
        script
    }

    /// Lets `$look` say whether directories are where they should be, before anything is packed; gives the words that name
    /// them where files are packed as they are named.
    fn told(&self, script: &mut String) -> String {
        script.push_str(&within::begin(&[]));
        let check = match (self.follow_links, self.as_named, self.directories) {
            // What links lead to is wanted.
            (true, ..) => "in_place() { :; }\n".to_owned(),
            (false, true, None) => "in_place() { false; }\n".to_owned(),
            (false, ..) => within::functions(0) + IN_PLACE,
        };
        let check = check + "good=0; in_place \"$@\" || good=1\n";
        script.push_str(&assignment("look", check.as_bytes()));
        let mut words = String::new();
        let directories = self
            .directories
            .filter(|_| self.as_named && !self.follow_links);
        for (number, directory) in directories.unwrap_or_default().iter().enumerate() {
            let path = [b"./", directory.as_bytes(), b"/."].concat();
            script.push_str(&assignment(&format!("d{number}"), &path));
            let _ = write!(words, " \"$d{number}\"");
        }
        words
    }

    fn links(&self) -> &'static str {
        if self.follow_links { "-h " } else { "" }
    }
}

/// A name as it stands in the list, without the NUL that ends it.
pub fn listed(name: &RelPath) -> Vec<u8> {
    [b"./", name.as_bytes()].concat()
}

#[cfg(test)]
#[path = "packing_tests.rs"]
mod tests;
