//! The options of a host where no `ssh` can be asked: the first value counts, as in OpenSSH.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::expand::{Known, Local, Tokens};
use super::pattern::matches_list;
use super::words::{Line, line, words};
use super::{Asked, Hop, OptionsError, TEXT_MAX_BYTES};

/// How deep files may include each other; OpenSSH allows the same.
const DEEPEST: usize = 16;

/// Files that are read for one host.
const MOST_FILES: usize = 256;

/// Values of one keyword that are kept.
const MOST_VALUES: usize = 64;

/// Keywords of which every value counts.
const REPEATED: [&str; 2] = ["identityfile", "certificatefile"];

/// Keys that are tried when none is named.
const USUAL_KEYS: [&str; 4] = [
    "~/.ssh/id_rsa",
    "~/.ssh/id_ecdsa",
    "~/.ssh/id_ed25519",
    "~/.ssh/id_dsa",
];

/// Whose configuration a file belongs to, which decides where its relative names begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigPlace {
    /// The user's.
    User,
    /// The machine's.
    System,
}

/// The text of a configuration file.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    /// Whose it is.
    pub place: ConfigPlace,
    /// What it holds.
    pub text: Vec<u8>,
}

/// Works out the options of a host as `ssh -G` prints them; `include` reads the files a pattern names.
pub fn effective_options(
    files: &[ConfigFile],
    asked: &Asked,
    local: &Local,
    include: &mut dyn FnMut(ConfigPlace, &str) -> Vec<ConfigFile>,
) -> Result<String, OptionsError> {
    let mut reader = Reader {
        values: BTreeMap::new(),
        asked,
        local,
        include,
        files: 0,
    };
    if let Some(user) = &asked.user {
        reader.put("user", user);
    }
    if let Some(port) = asked.port {
        reader.put("port", &port.to_string());
    }
    if !asked.hops.is_empty() {
        reader.put("proxyjump", &Hop::list(&asked.hops));
    }
    for file in files {
        reader.file(file, true, 0)?;
    }
    reader.finish()
}

struct Reader<'a> {
    values: BTreeMap<String, Vec<String>>,
    asked: &'a Asked,
    local: &'a Local,
    include: &'a mut dyn FnMut(ConfigPlace, &str) -> Vec<ConfigFile>,
    files: usize,
}

impl Reader<'_> {
    fn first(&self, keyword: &str) -> Option<&str> {
        let first = self.values.get(keyword)?.first()?;
        Some(first)
    }

    fn put(&mut self, keyword: &str, value: &str) {
        let rival = match keyword {
            "proxyjump" => "proxycommand",
            "proxycommand" => "proxyjump",
            _ => keyword,
        };
        let repeated = REPEATED.contains(&keyword);
        if !repeated && (self.first(keyword).is_some() || self.first(rival).is_some()) {
            return;
        }
        let values = self.values.entry(keyword.to_owned()).or_default();
        if values.len() < MOST_VALUES && !values.iter().any(|known| known == value) {
            values.push(value.to_owned());
        }
    }

    fn file(&mut self, file: &ConfigFile, outside: bool, depth: usize) -> Result<(), OptionsError> {
        self.files += 1;
        if depth > DEEPEST || self.files > MOST_FILES {
            return Err(OptionsError::Depth);
        }
        if file.text.len() > TEXT_MAX_BYTES {
            return Err(OptionsError::TooLarge);
        }
        let text = String::from_utf8_lossy(&file.text).into_owned();
        let mut applies = outside;
        for (number, text) in text.lines().enumerate() {
            let Some(Line { keyword, rest }) = line(text) else {
                continue;
            };
            let wrong = OptionsError::Line(number + 1);
            let values = match keyword.as_str() {
                // The shell reads the line, quotes and all.
                "proxycommand" => vec![rest.to_owned()],
                _ => words(rest).ok_or(wrong.clone())?,
            };
            if values.is_empty() {
                return Err(wrong);
            }
            match keyword.as_str() {
                "host" => {
                    let patterns = values.iter().map(String::as_str);
                    applies = outside && matches_list(patterns, self.asked.alias.as_str());
                }
                "match" => applies = outside && self.condition(&values)?,
                "include" if applies => {
                    for pattern in &values {
                        for included in (self.include)(file.place, pattern) {
                            self.file(&included, true, depth + 1)?;
                        }
                    }
                }
                "userknownhostsfile" | "globalknownhostsfile" if applies => {
                    self.put(&keyword, &values.join(" "));
                }
                _ if applies => self.put(&keyword, values.first().map_or("", String::as_str)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Judges the criteria of a `Match` line; one that cannot be judged matters only if the others hold.
    fn condition(&self, criteria: &[String]) -> Result<bool, OptionsError> {
        let mut unknown = None;
        let mut words = criteria.iter().map(String::as_str);
        while let Some(word) = words.next() {
            let (negated, name) = match word.strip_prefix('!') {
                Some(name) => (true, name),
                None => (false, word),
            };
            let name = name.to_ascii_lowercase();
            let subject = match name.as_str() {
                "all" => continue,
                "host" => Some(self.host()?),
                "originalhost" => Some(self.asked.alias.as_str().to_owned()),
                "user" => self
                    .first("user")
                    .map(str::to_owned)
                    .or(self.local.user.clone()),
                "localuser" => self.local.user.clone(),
                "canonical" | "final" => {
                    unknown.get_or_insert(name);
                    continue;
                }
                _ => {
                    words.next();
                    unknown.get_or_insert(name);
                    continue;
                }
            };
            let (Some(list), Some(subject)) = (words.next(), subject) else {
                return Ok(false);
            };
            if matches_list(list.split(','), &subject) == negated {
                return Ok(false);
            }
        }
        match unknown {
            Some(name) => Err(OptionsError::Condition(
                name.chars().take(40).flat_map(char::escape_debug).collect(),
            )),
            None => Ok(true),
        }
    }

    fn host(&self) -> Result<String, OptionsError> {
        let alias = self.asked.alias.as_str();
        let Some(written) = self.first("hostname") else {
            return Ok(alias.to_owned());
        };
        let tokens = Tokens {
            local: self.local,
            asked: alias,
            host: alias,
            port: 22,
            user: "",
            host_key_alias: None,
        };
        tokens.fill("hostname", written, Known::Remote)
    }

    fn finish(mut self) -> Result<String, OptionsError> {
        let host = self.host()?;
        self.values.insert("hostname".to_owned(), vec![host]);
        if let Some(user) = &self.local.user {
            self.put("user", user);
        }
        self.put("port", "22");
        self.put(
            "userknownhostsfile",
            "~/.ssh/known_hosts ~/.ssh/known_hosts2",
        );
        self.put(
            "globalknownhostsfile",
            "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2",
        );
        if self.first("identityfile").is_none() {
            for key in USUAL_KEYS {
                self.put("identityfile", key);
            }
        }
        let mut text = String::new();
        for (keyword, values) in &self.values {
            for value in values {
                let _ = writeln!(text, "{keyword} {value}");
            }
        }
        Ok(text)
    }
}

#[cfg(test)]
#[path = "effective_tests.rs"]
mod tests;
