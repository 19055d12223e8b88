//! The scripts by which a host packs files that were asked for into one archive.
//!
//! Names come on the standard input, each ended by a NUL, with `./` in front so that none is taken for an option. GNU tar
//! and bsdtar read them so. For other programs, such as that of busybox, `xargs` makes them arguments; where they are too many
//! for one call, archives follow each other, so whoever reads has to read on behind the end of one.

use std::fmt::Write as _;

use super::path::RelPath;
use super::scan::assignment;

/// What a packing script ends with where there is no `tar`, or none that can be told what to pack.
pub const NO_TAR: u32 = 96;

/// What it ends with where the root cannot be entered.
pub const NO_ROOT: u32 = 97;

/// How a host packs files.
#[derive(Debug, Clone, Copy)]
pub struct Packing<'a> {
    /// The root: absolute, or from the home directory with `./` in front.
    pub root: &'a [u8],
    /// Whether links are packed as what they lead to.
    pub follow_links: bool,
}

impl Packing<'_> {
    /// The script for `sh -c` that packs the files of a list on its standard input.
    pub fn script(&self) -> String {
        let mut script = self.begin();
        let links = self.links();
        // A format without surprises: no maps of holes, no records that hold for all that follow.
        let _ = write!(
            script,
            "case $(tar --version 2>/dev/null </dev/null) in\n\
             *GNU*) exec tar -cf - {links}--format=gnu --no-unquote --no-recursion --null -T - ;;\n\
             *bsdtar*|*libarchive*) exec tar -cf - {links}--format=gnutar -n --null -T - ;;\n\
             esac\n\
             xargs -0 true </dev/null >/dev/null 2>&1 || exit {NO_TAR}\n\
             exec xargs -0 tar -cf - {links}\n"
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
            "cd \"$root\" || exit {NO_ROOT}\ncommand -v tar >/dev/null 2>&1 || exit {NO_TAR}\n"
        );
        script
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
