//! Groups of tools that are offered together.

use std::collections::BTreeSet;

use super::fields::Fields;
use super::{Fault, Problem};

const KEY: &str = "toolsets";
pub(super) const WANTED_TOOLSETS: &str = "a list of these words: containers, advanced";

/// A group of tools that are offered together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Toolset {
    /// Making and ending sandboxes: `create_sandbox` and `delete_sandbox`.
    Containers,
    /// Tools that are rarely needed; also shown where `REMOTE_SANDBOX_EXPOSE_ADVANCED_TOOLS` is set.
    Advanced,
}

impl Toolset {
    /// All of them with the word that stands for each.
    pub const WORDS: [(&'static str, Toolset); 2] = [
        ("containers", Toolset::Containers),
        ("advanced", Toolset::Advanced),
    ];

    /// The one that a word stands for.
    pub fn parse(word: &str) -> Option<Self> {
        let found = Self::WORDS.iter().find(|(known, _)| *known == word);
        found.map(|(_, toolset)| *toolset)
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Containers => "containers",
            Self::Advanced => "advanced",
        }
    }
}

/// The groups that the file names, when it names any.
pub(super) fn read(fields: &Fields<'_>) -> Result<Option<BTreeSet<Toolset>>, Problem> {
    let Some(words) = fields.texts(KEY, WANTED_TOOLSETS)? else {
        return Ok(None);
    };
    match words.into_iter().map(Toolset::parse).collect() {
        Some(toolsets) => Ok(Some(toolsets)),
        None => Err(fields.problem(KEY, Fault::Wanted(WANTED_TOOLSETS))),
    }
}

/// The groups that a variable names, separated by commas; none when a word is not known.
pub(super) fn from_text(text: &str) -> Option<BTreeSet<Toolset>> {
    text.split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .map(Toolset::parse)
        .collect()
}
