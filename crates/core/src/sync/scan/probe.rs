//! Which of the scanners a host has, asked once.

use std::fmt::Write as _;

use super::script::Scanner;
use crate::ids::RunToken;

/// What a host can list its files with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scanners {
    /// The best one; none when there is only SFTP to ask.
    pub scanner: Option<Scanner>,
    /// Whether the host can sort records that end in NUL.
    pub sorts: bool,
}

const PROBE: &str = r#"say() { printf 'RSMCP:%s:%s\n' "$m" "$1"; }
if [ "$(find / -maxdepth 0 -readable -printf '%P%y' 2>/dev/null)" = d ]; then say scanner:find
elif [ "$(python3 -S -c 'print(3)' 2>/dev/null)" = 3 ]; then say scanner:python3
elif [ "$(perl -e 'print 5' 2>/dev/null)" = 5 ]; then say scanner:perl
elif [ "$(find / -prune -exec stat -c %n {} + 2>/dev/null)" = / ]; then say scanner:stat
else say scanner:none; fi
if [ "$(printf 'b\0a\0' | sort -z 2>/dev/null | tr '\0' ' ')" = 'a b ' ]; then say sort:yes; else say sort:no; fi
exit 0
}
"#;

/// Builds the script that asks; `mark` tells its report from other text.
pub fn scanners_script(mark: &RunToken) -> String {
    let mut script = String::from("{\nLC_ALL=C; export LC_ALL\n");
    let _ = writeln!(script, "m={mark}");
    script.push_str(PROBE);
    script
}

/// Reads the report; none when it did not come whole.
pub fn parse_scanners(mark: &RunToken, output: &[u8]) -> Option<Scanners> {
    let prefix = format!("RSMCP:{mark}:");
    let text = String::from_utf8_lossy(output);
    let value = |key: &str| {
        text.lines()
            .find_map(|line| line.split_once(&prefix)?.1.strip_prefix(key))
    };
    let scanner = match value("scanner:")? {
        "find" => Some(Scanner::Find),
        "python3" => Some(Scanner::Python),
        "perl" => Some(Scanner::Perl),
        "stat" => Some(Scanner::FindStat),
        _ => None,
    };
    Some(Scanners {
        scanner,
        sorts: value("sort:")? == "yes",
    })
}
