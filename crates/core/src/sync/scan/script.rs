//! The scripts that list a tree, one for each way a host may offer.

use std::fmt::Write as _;

use super::host_path::{HostPath, assignment};
use crate::ids::RunToken;
use crate::shell::quote;
use crate::sync::ignore::Prune;
use crate::sync::temporary::TEMPORARY_PREFIX;

const PYTHON_CALL: &str = "python3 -S -c";
const PERL_CALL: &str = "perl -e";
const PYTHON: &str = include_str!("walk.py");
const PERL: &str = include_str!("walk.pl");

/// What a host lists its files with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scanner {
    /// GNU `find`, which writes all fields itself.
    Find,
    /// Python 3.
    Python,
    /// Perl 5.
    Perl,
    /// Any `find`, and `stat -c`, as busybox has them.
    FindStat,
    /// No program at all: the script only says what and where the root is, and the tree is listed over the file protocol.
    Files,
}

/// Who brings the records into their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SortedBy {
    /// The one who reads them.
    #[default]
    Reader,
    /// The host, with `sort -z`.
    Host,
}

/// How much of a tree is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ScanDepth {
    /// Everything in it, at every depth.
    #[default]
    Tree,
    /// What lies in the root itself; nothing below is looked at.
    Level,
}

/// What becomes of a root that is no directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LoneFile {
    /// Nothing is listed.
    #[default]
    Unlisted,
    /// It is listed as an entry of its own name.
    AsItIs,
    /// The same, but a link as what it leads to; one that leads nowhere is a link still.
    Followed,
}

/// What is to be listed, and how.
#[derive(Debug, Clone)]
pub struct ScanRequest<'a> {
    /// The directory.
    pub root: &'a HostPath,
    /// What the host lists with.
    pub scanner: Scanner,
    /// Directories it need not look into.
    pub prunes: &'a [Prune],
    /// Whether links in the tree are listed as what they lead to.
    pub follow_links: bool,
    /// Who sorts; Python and Perl always do it themselves.
    pub sorted_by: SortedBy,
    /// How much is listed.
    pub depth: ScanDepth,
    /// What becomes of a root that is no directory.
    pub lone_file: LoneFile,
}

impl ScanRequest<'_> {
    /// The same for a root that is no directory; none when it is not listed.
    pub fn for_lone_file(&self) -> Option<Self> {
        let follow_links = match self.lone_file {
            LoneFile::Unlisted => return None,
            LoneFile::AsItIs => false,
            LoneFile::Followed => true,
        };
        Some(ScanRequest {
            follow_links,
            ..self.clone()
        })
    }
}

/// Where a scanner begins, and how far it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    Tree,
    Level,
    /// The one entry `$name` of the directory that the script is in.
    Lone,
}

impl Scanner {
    /// Whether the records come in the order of their paths.
    pub fn comes_sorted(self, sorted_by: SortedBy) -> bool {
        match self {
            Scanner::Python | Scanner::Perl => true,
            Scanner::Find => sorted_by == SortedBy::Host,
            Scanner::FindStat | Scanner::Files => false,
        }
    }
}

/// Builds the script; `mark` tells its words from other text.
pub fn scan_script(request: &ScanRequest<'_>, mark: &RunToken) -> String {
    let mut script = String::from("{\nLC_ALL=C; export LC_ALL; unset CDPATH\n");
    let _ = writeln!(script, "m={mark}");
    let end = match request.scanner {
        // The mark is part of a format, but it is made of hexadecimal digits.
        Scanner::FindStat => format!("//{mark}\\n"),
        Scanner::Find | Scanner::Python | Scanner::Perl | Scanner::Files => "\\0".to_owned(),
    };
    let _ = writeln!(script, "say() {{ printf '//%s %s{end}' \"$1\" \"$2\"; }}");
    script.push_str(&assignment("root", request.root.as_bytes()));
    script.push_str(ENTER);
    let extent = match request.depth {
        ScanDepth::Tree => Extent::Tree,
        ScanDepth::Level => Extent::Level,
    };
    script.push_str("if [ \"$kind\" = d ]; then\n");
    script.push_str(&listing(request, mark, extent));
    if let Some(lone) = request.for_lone_file() {
        script.push_str(ENTER_ABOVE);
        script.push_str(&listing(&lone, mark, Extent::Lone));
    }
    script.push_str("fi\nsay end 0\nexit 0\n}\n");
    script
}

fn listing(request: &ScanRequest<'_>, mark: &RunToken, extent: Extent) -> String {
    match request.scanner {
        Scanner::Find if request.follow_links && extent == Extent::Tree => {
            // `find` tells of links in a circle in words of its own; these name each by its path, in the same records.
            format!(
                "if [ \"$(python3 -S -c 'print(3)' 2>/dev/null)\" = 3 ]; then\n{}elif [ \"$(perl -e 'print 5' 2>/dev/null)\" = 5 ]; then\n{}else\n{}fi\n",
                walker(PYTHON_CALL, PYTHON, request, extent),
                walker(PERL_CALL, PERL, request, extent),
                find(request, extent)
            )
        }
        Scanner::Find => find(request, extent),
        Scanner::Python => walker(PYTHON_CALL, PYTHON, request, extent),
        Scanner::Perl => walker(PERL_CALL, PERL, request, extent),
        Scanner::FindStat => find_stat(request, mark, extent),
        Scanner::Files => ":\n".to_owned(),
    }
}

/// Goes to the root and says what and where it is. What cannot be seen because a directory on the way is shut
/// is not missing. Of a root that is no directory, the nearest directory above it says where it lies, or would lie:
/// links above it are resolved, the rest is as it was written.
const ENTER: &str = r#"cd 2>/dev/null
printf 'RSMCP:%s:scan\n' "$m"
here() { w=$(pwd -P; printf x); w=${w%x}; w=${w%?}; }
here; say home "$w"
kind=m
if [ -d "$root" ]; then
kind=d
cd -P -- "$root" 2>/dev/null && [ -r . ] || kind=u
elif [ -e "$root" ] || [ -h "$root" ]; then
kind=f; way=${root%/*}; way=${way:-/}
else
way=$root
until [ -d "$way" ] || [ "$way" = . ]; do way=${way%/*}; [ -n "$way" ] || way=/; done
[ -x "$way" ] || kind=u
fi
say root "$kind"
if [ "$kind" = d ]; then
here; say where "$w"
[ ! -r /proc/self/mountinfo ] || while read -r a b c d f g; do
case $f in "${w%/}"/*) say mount "${f#"${w%/}"/}";; esac
done </proc/self/mountinfo
elif [ "$kind" != u ]; then
w=$(cd -P -- "$way" 2>/dev/null && pwd -P; printf x); w=${w%x}; w=${w%?}
[ -z "$w" ] || say where "$w/${root#"$way"}"
fi
"#;

/// Goes to the directory of a root that is none. It has a slash in it, and none at its end.
const ENTER_ABOVE: &str = r#"elif [ "$kind" = f ]; then
name=${root##*/}; above=${root%/*}
cd -P -- "${above:-/}" 2>/dev/null
"#;

/// Says on which device the root lies, and its permissions.
const DEVICE: &str = r"-printf '//device %D\0//mode %m\0'";

const FIELDS: &str = r"//%y %Y %m %s %T@ %n %i %D//%l\0";

/// GNU `find` leaves out a link that leads in a circle, and names it among its errors, as `printf` would write it. They are told
/// after the records, which they would otherwise tear apart; where there were no others, all was seen.
const WALK_WITH_CIRCLES: &str = r#"scan() {
{ said=$({ walk; echo "status $?" >&2; } 2>&1 >&3 3>&- |
sed -e "s/^find: File system loop detected; '\(.*\)' is part of the same .*/loop \1/" -e "s/^find: '\(.*\)': Too many levels of symbolic links\$/loop \1/" -e '/^status /b' -e '/^loop /!s/.*/other/' -e "s/\\\\'/'/g" -e 's/%/%%/g'); } 3>&1
printf '%s\n' "$said" | {
seen=
while IFS= read -r word; do
case $word in
'loop '*) say loop "$(printf "${word#loop }")"; seen=${seen:-0};;
'status 1') say status "${seen:-1}";;
'status '*) say status "${word#status }";;
*) seen=1;;
esac
done
}
}
"#;

fn find(request: &ScanRequest<'_>, extent: Extent) -> String {
    let mut text = String::new();
    let test = prune_test(request, &mut text);
    let link = if request.follow_links { "-L " } else { "" };
    text.push_str("walk() {\n");
    let _ = match extent {
        Extent::Tree => writeln!(
            text,
            "find {link}. \\( -path . {DEVICE} \\) -o \\( {test} -prune -printf '%P{FIELDS}' \\) -o \\\n  \\( -type d \\( ! -readable -o ! -executable \\) -printf '%P{FIELDS}//unreadable %P\\0' \\) -o -printf '%P{FIELDS}'"
        ),
        Extent::Level => writeln!(
            text,
            "find {link}. -maxdepth 1 \\( -path . {DEVICE} \\) -o -printf '%P{FIELDS}'"
        ),
        Extent::Lone => writeln!(
            text,
            "find {link}\"./$name\" -maxdepth 0 -printf '%f{FIELDS}'"
        ),
    };
    text.push_str("}\n");
    text.push_str(match request.follow_links && extent == Extent::Tree {
        true => WALK_WITH_CIRCLES,
        false => "scan() { walk; say status $?; }\n",
    });
    match request.sorted_by {
        SortedBy::Reader => text.push_str("scan\n"),
        // With `/` as the lowest byte but NUL, the order of bytes is the order of paths.
        SortedBy::Host => text.push_str(
            "scan | tr '/\\001' '\\001/' | { sort -z || printf '\\001\\001status 1\\0'; } | tr '/\\001' '\\001/'\n",
        ),
    }
    text
}

fn find_stat(request: &ScanRequest<'_>, mark: &RunToken, extent: Extent) -> String {
    let mut text = String::new();
    let test = prune_test(request, &mut text);
    let (link, stat) = if request.follow_links {
        ("-L ", "stat -L")
    } else {
        ("", "stat")
    };
    if extent != Extent::Lone {
        text.push_str("say device \"$(stat -c %d .)\"; say mode \"$(stat -c %a .)\"\n");
    }
    // `! -name .` passes over the root, and holds for everything else. Not every `find` knows `-maxdepth`.
    let walk = match extent {
        Extent::Tree => format!("find {link}. ! -name . \\( {test} -prune -o ! -name . \\)"),
        Extent::Level => format!("find {link}. ! -name . -prune"),
        Extent::Lone => format!("find {link}\"./$name\" -prune"),
    };
    let _ = writeln!(
        text,
        "{walk} ! -type l -exec {stat} -c '%n//x%f - - %s %Y %h %i %d////{mark}' {{}} +\nsay status $?"
    );
    let _ = writeln!(
        text,
        "{walk} -type l -exec sh -c 'for f; do e=N; [ ! -e \"$f\" ] || e=f; [ ! -d \"$f\" ] || e=d; printf \"%s//l $e 777 0 - - - -//\" \"$f\"; readlink -n \"$f\"; printf \"//$0\\n\"; done' \"$m\" {{}} +\nsay status $?"
    );
    if extent == Extent::Tree {
        let _ = writeln!(
            text,
            "{walk} -type d -exec sh -c 'for f; do [ -r \"$f\" ] && [ -x \"$f\" ] || printf \"//unreadable %s//$0\\n\" \"$f\"; done' \"$m\" {{}} + 2>/dev/null"
        );
    }
    text
}

/// The test for directories that are listed but not looked into; what it needs is put before it.
fn prune_test(request: &ScanRequest<'_>, script: &mut String) -> String {
    let staging = format!("{TEMPORARY_PREFIX}{}-[0-9]*", "[0-9a-f]".repeat(32));
    let mut tests = format!("-name {}", quote(&staging));
    for (number, prune) in request.prunes.iter().enumerate() {
        let (option, pattern) = match prune {
            Prune::Name(name) => ("-name", literal_pattern(name)),
            Prune::Path(path) => (
                "-path",
                [b"./".as_slice(), &literal_pattern(path.as_bytes())].concat(),
            ),
        };
        script.push_str(&assignment(&format!("p{number}"), &pattern));
        let _ = write!(tests, " -o {option} \"$p{number}\"");
    }
    format!("-type d \\( {tests} \\)")
}

/// A pattern of `find` that stands for exactly these bytes.
fn literal_pattern(bytes: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(bytes.len());
    for byte in bytes {
        if matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\') {
            pattern.push(b'\\');
        }
        pattern.push(*byte);
    }
    pattern
}

fn walker(command: &str, program: &str, request: &ScanRequest<'_>, extent: Extent) -> String {
    let mut text = String::new();
    let mut words = String::new();
    for (number, prune) in request.prunes.iter().enumerate() {
        let (letter, bytes) = match prune {
            Prune::Name(name) => (b'n', &**name),
            Prune::Path(path) => (b'p', path.as_bytes()),
        };
        let word = [&[letter], bytes].concat();
        text.push_str(&assignment(&format!("p{number}"), &word));
        let _ = write!(words, " \"$p{number}\"");
    }
    let follow = if request.follow_links {
        "follow"
    } else {
        "keep"
    };
    let extent = match extent {
        Extent::Tree => "tree",
        Extent::Level => "level",
        Extent::Lone => "lone \"$name\"",
    };
    let _ = writeln!(
        text,
        "{command} {} {follow} {extent}{words}\nsay status $?",
        quote(program)
    );
    text
}
