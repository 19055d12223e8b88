//! What stands for something else in an option: `~`, `%` sequences and variables.

use std::fmt;
use std::path::{Path, PathBuf};

use super::OptionsError;
use crate::config::Environment;

/// What an option may ask of the machine this program runs on.
#[derive(Clone, Default)]
pub struct Local {
    /// The user's home directory.
    pub home: Option<PathBuf>,
    /// The user's name.
    pub user: Option<String>,
    /// The user's number.
    pub user_id: u32,
    /// The machine's name.
    pub host_name: String,
    /// The environment variables.
    pub environment: Environment,
}

impl fmt::Debug for Local {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The variables hold passwords.
        formatter
            .debug_struct("Local")
            .field("home", &self.home)
            .field("user", &self.user)
            .field("variables", &self.environment.len())
            .finish_non_exhaustive()
    }
}

/// The values of one host that `%` sequences stand for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tokens<'a> {
    pub(super) local: &'a Local,
    /// The name the user wrote.
    pub(super) asked: &'a str,
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) user: &'a str,
    pub(super) host_key_alias: Option<&'a str>,
}

/// Which sequences an option knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// Those of the remote side only; a variable is the shell's business.
    Remote,
    /// All of them, and variables.
    All,
}

impl Tokens<'_> {
    /// Fills in everything.
    pub(super) fn fill(
        &self,
        option: &'static str,
        text: &str,
        known: Known,
    ) -> Result<String, OptionsError> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['%', '$']) {
            let (before, found) = rest.split_at_checked(at).unwrap_or((rest, ""));
            filled.push_str(before);
            let after = found.get(1..).unwrap_or_default();
            if found.starts_with('%') {
                let token = after.chars().next();
                let value = token.and_then(|token| self.value(token, known));
                filled.push_str(&value.ok_or_else(|| OptionsError::Token {
                    option,
                    token: token.map_or_else(String::new, |token| token.escape_debug().to_string()),
                })?);
                rest = after.get(1..).unwrap_or_default();
            } else if known == Known::All
                && let Some((name, after)) = after
                    .strip_prefix('{')
                    .and_then(|after| after.split_once('}'))
            {
                let value = self.local.environment.get(name);
                filled.push_str(value.ok_or_else(|| unset(option, name))?);
                rest = after;
            } else {
                filled.push('$');
                rest = after;
            }
        }
        filled.push_str(rest);
        Ok(filled)
    }

    fn value(&self, token: char, known: Known) -> Option<String> {
        let local = self.local;
        let short = || {
            local
                .host_name
                .split('.')
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        match token {
            '%' => Some("%".to_owned()),
            'h' => Some(self.host.to_owned()),
            'p' => Some(self.port.to_string()),
            'n' => Some(self.asked.to_owned()),
            'r' => Some(self.user.to_owned()),
            'k' => Some(self.host_key_alias.unwrap_or(self.asked).to_owned()),
            _ if known == Known::Remote => None,
            'd' => Some(local.home.as_ref()?.to_str()?.to_owned()),
            'u' => local.user.clone(),
            'i' => Some(local.user_id.to_string()),
            'l' => Some(local.host_name.clone()),
            'L' => Some(short()),
            _ => None,
        }
    }

    /// A path with everything filled in; none when it is not absolute then.
    pub(super) fn path(
        &self,
        option: &'static str,
        text: &str,
    ) -> Result<Option<PathBuf>, OptionsError> {
        let text = expand_home(text, self.local.home.as_deref());
        let path = PathBuf::from(self.fill(option, &text, Known::All)?);
        Ok(Some(path).filter(|path| path.is_absolute()))
    }
}

/// Puts the home directory in the place of a leading `~/`.
pub fn expand_home(text: &str, home: Option<&Path>) -> String {
    match (text.strip_prefix("~/"), home.and_then(Path::to_str)) {
        (Some(rest), Some(home)) => format!("{}/{rest}", home.trim_end_matches('/')),
        _ => text.to_owned(),
    }
}

pub(super) fn unset(option: &'static str, name: &str) -> OptionsError {
    OptionsError::Variable {
        option,
        variable: name.chars().take(80).flat_map(char::escape_debug).collect(),
    }
}
