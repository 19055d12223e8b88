//! Reads the table `[sync]`: which folders of this machine a sync may use.

use std::path::{Component, PathBuf};

use super::fields::Fields;
use super::reference::KeyPlace;
use super::{Fault, Problem};

const TABLE: &str = "sync";
const ROOTS_MAX: usize = 64;
const PATH_MAX_BYTES: usize = 4096;

const WANTED_TABLE: &str = "a table ([sync] in TOML); until then no folder can be synced";
const WANTED_ROOTS: &str = "a path or a list of at most 64 paths, each of at most 4096 bytes, without `..`, and not `/` itself; until then no folder can be synced";

/// What holds for all syncs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SyncSettings {
    /// The only folders that may be used, as absolute paths without `..`; none where nothing was said.
    pub roots: Option<Vec<PathBuf>>,
}

/// Takes the table out of the file's top. A slip of the pen must not open more than was meant, so then
/// nothing is allowed.
pub(super) fn read_file(top: &Fields<'_>, problems: &mut Vec<Problem>) -> SyncSettings {
    let nothing = SyncSettings {
        roots: Some(Vec::new()),
    };
    let fields = match top.table(TABLE, label, WANTED_TABLE) {
        Ok(Some(fields)) => fields,
        Ok(None) => return SyncSettings::default(),
        Err(problem) => {
            problems.push(problem);
            return nothing;
        }
    };
    problems.extend(fields.unknown_keys(KeyPlace::Sync));
    match roots(&fields) {
        Ok(roots) => SyncSettings { roots },
        Err(problem) => {
            problems.push(problem);
            nothing
        }
    }
}

fn label(key: &str) -> String {
    format!("{TABLE}.{key}")
}

fn roots(fields: &Fields<'_>) -> Result<Option<Vec<PathBuf>>, Problem> {
    let key = "roots";
    if fields.value(key).is_none() {
        return Ok(None);
    }
    let roots = fields.paths(key)?;
    let is_wrong = |path: &PathBuf| {
        path.file_name().is_none()
            || path.components().any(|part| part == Component::ParentDir)
            || path.as_os_str().len() > PATH_MAX_BYTES
    };
    if roots.len() > ROOTS_MAX || roots.iter().any(is_wrong) {
        return Err(fields.problem(key, Fault::Wanted(WANTED_ROOTS)));
    }
    Ok(Some(roots))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use rstest::rstest;

    use crate::config::{ConfigText, Sources, resolve};

    fn config(text: &str) -> crate::config::Config {
        let path = PathBuf::from("/etc/x.toml");
        let file = ConfigText::new(path, text.as_bytes().to_vec()).unwrap();
        let home = [("HOME".to_owned(), "/home/ada".to_owned())];
        resolve(&Sources {
            environment: home.into_iter().collect(),
            file: Some(file),
        })
    }

    #[rstest]
    #[case("", None)]
    #[case("[sync]", None)]
    #[case("[sync]\nroots = []", Some(vec![]))]
    #[case("[sync]\nroots = \"/data\"", Some(vec!["/data"]))]
    #[case("[sync]\nroots = [\"~/work\", \"runs\"]", Some(vec!["/home/ada/work", "/home/ada/runs"]))]
    fn roots_are_read(#[case] text: &str, #[case] roots: Option<Vec<&str>>) {
        let config = config(text);
        let roots: Option<Vec<PathBuf>> =
            roots.map(|roots| roots.into_iter().map(PathBuf::from).collect());
        assert_eq!(config.sync.roots, roots);
        assert!(config.problems.is_empty(), "{:?}", config.problems);
    }

    #[rstest]
    #[case("sync = 3")]
    #[case("[sync]\nroots = 3")]
    #[case("[sync]\nroots = [\"/\"]")]
    #[case("[sync]\nroots = [\"/data/../etc\"]")]
    #[case("[sync]\nroots = [\"/data\", \"\"]")]
    fn wrong_roots_allow_nothing_and_are_noted(#[case] text: &str) {
        let config = config(text);
        assert_eq!(config.sync.roots, Some(Vec::new()));
        assert_eq!(config.problems.len(), 1, "{:?}", config.problems);
    }

    #[test]
    fn unknown_key_of_the_table_is_noted() {
        let config = config("[sync]\nroot = \"/data\"");
        assert_eq!(config.sync.roots, None);
        assert!(config.problems[0].to_string().contains("root"));
    }
}
