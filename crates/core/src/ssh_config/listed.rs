//! The hosts that a configuration file names.

use super::TEXT_MAX_BYTES;
use super::words::{line, words};
use crate::config::SshAlias;

/// Names of one file that are kept.
const MOST_NAMES: usize = 1_000;

/// Files named by one file that are followed.
const MOST_INCLUDES: usize = 64;

/// What a configuration file names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listed {
    /// The hosts that are named without a pattern, in the order of the file, each once.
    pub hosts: Vec<String>,
    /// The files to read as well: patterns, which may begin with `~/` or be relative.
    pub includes: Vec<String>,
}

/// Lists the hosts a file names; what cannot be read in it is passed over.
pub fn listed(text: &[u8]) -> Listed {
    let mut found = Listed::default();
    let text = text.get(..TEXT_MAX_BYTES).unwrap_or(text);
    for text in String::from_utf8_lossy(text).lines() {
        let Some(line) = line(text) else { continue };
        let names = match line.keyword.as_str() {
            "host" | "include" => words(line.rest).unwrap_or_default(),
            _ => continue,
        };
        if line.keyword == "include" {
            let room = MOST_INCLUDES.saturating_sub(found.includes.len());
            found.includes.extend(names.into_iter().take(room));
            continue;
        }
        for name in names {
            let concrete = SshAlias::parse(&name).is_ok();
            if concrete && found.hosts.len() < MOST_NAMES && !found.hosts.contains(&name) {
                found.hosts.push(name);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concrete_hosts_and_includes_are_listed_once() {
        let text = b"Include ~/.ssh/a.d/* \"b c\"\nHost gpu1 gpu* !gpu2 gpu1\n  User me\nHost=cpu\n#Host no\nhost \"x y\" z\n\xff\n";
        let found = listed(text);
        assert_eq!(found.hosts, ["gpu1", "cpu", "z"]);
        assert_eq!(found.includes, ["~/.ssh/a.d/*", "b c"]);
    }

    #[test]
    fn endless_list_is_cut() {
        let mut text = String::new();
        for number in 0..3_000 {
            text.push_str(&format!("Host h{number}\nInclude f{number}\n"));
        }
        let found = listed(text.as_bytes());
        assert_eq!(found.hosts.len(), MOST_NAMES);
        assert_eq!(found.includes.len(), MOST_INCLUDES);
    }
}
