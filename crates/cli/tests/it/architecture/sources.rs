//! Reads sources: which files make a crate, and which paths they name.

use std::path::{Path, PathBuf};

/// A file of a crate.
#[derive(Debug)]
pub(super) struct Module {
    /// Where it is.
    pub(super) file: PathBuf,
    /// Its path inside the crate; empty for the root.
    pub(super) path: Vec<String>,
    /// Whether it exists in tests only.
    pub(super) is_test: bool,
    /// What it holds.
    pub(super) text: String,
}

/// All files that a crate is made of, from its root on.
pub(super) fn module_tree(root: &Path) -> Vec<Module> {
    let mut found = Vec::new();
    let mut waiting = vec![(root.to_owned(), Vec::new(), false)];
    while let Some((file, path, is_test)) = waiting.pop() {
        let text = std::fs::read_to_string(&file)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let is_folder_root = ["mod.rs", "lib.rs", "main.rs"]
            .iter()
            .any(|name| file.ends_with(name));
        let folder = file.parent().expect("a file is in a folder");
        let children = if is_folder_root {
            folder.to_owned()
        } else {
            file.with_extension("")
        };
        for child in declared_modules(&text) {
            let own_file = children.join(format!("{}.rs", child.name));
            let place = match &child.file {
                Some(relative) => folder.join(relative),
                None if own_file.exists() => own_file,
                None => children.join(&child.name).join("mod.rs"),
            };
            let path = path.iter().cloned().chain([child.name]).collect();
            waiting.push((place, path, is_test || child.is_test));
        }
        found.push(Module {
            file,
            path,
            is_test,
            text,
        });
    }
    found
}

/// Every Rust file below a folder.
pub(super) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}

struct Declared {
    name: String,
    file: Option<String>,
    is_test: bool,
}

/// The `mod name;` lines of a file with what stands before them.
fn declared_modules(text: &str) -> Vec<Declared> {
    let (mut file, mut is_test) = (None, false);
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(path) = line.strip_prefix("#[path = \"") {
            file = path.split('"').next().map(str::to_owned);
        } else if line.starts_with("#[cfg(test)]") {
            is_test = true;
        } else if !line.starts_with("#[") && !line.starts_with("//") {
            let words = line
                .trim_start_matches("pub(crate) ")
                .trim_start_matches("pub ");
            let name = words
                .strip_prefix("mod ")
                .and_then(|rest| rest.strip_suffix(';'));
            if let Some(name) = name {
                let (name, file) = (name.to_owned(), file.take());
                found.push(Declared {
                    name,
                    file,
                    is_test,
                });
            }
            (file, is_test) = (None, false);
        }
    }
    found
}

/// The paths that a source names outside its tests, `crate`, `self` and `super` worked out.
pub(super) fn named_paths(text: &str, module: &[String]) -> Vec<String> {
    let words = words_of(&without_tests(&without_text(text)));
    let mut paths = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let begins = is_name(&words[at]) && words.get(at + 1).is_some_and(|word| word == "::");
        let goes_on = at > 0 && words[at - 1] == "::";
        if begins && !goes_on {
            at = read_path(&words, at, &[], &mut paths);
        } else {
            at += 1;
        }
    }
    paths.iter().map(|path| absolute(path, module)).collect()
}

/// Reads one path, or a tree of them in braces; gives the position behind it.
fn read_path(
    words: &[String],
    mut at: usize,
    start: &[String],
    paths: &mut Vec<Vec<String>>,
) -> usize {
    let mut path = start.to_vec();
    loop {
        match words.get(at).map(String::as_str) {
            Some("{") => {
                at += 1;
                while words.get(at).is_some_and(|word| word != "}") {
                    let before = at;
                    at = read_path(words, at, &path, paths);
                    // Something that belongs to no path, such as a comma.
                    at += usize::from(at == before);
                }
                return at + 1;
            }
            Some(word) if is_name(word) || word == "*" => {
                path.push(word.to_owned());
                at += 1;
            }
            _ => {
                // What follows is no name: the `<` of `new::<u8>`, or nothing at all.
                if path.len() > start.len() {
                    paths.push(path);
                }
                return at;
            }
        }
        if words.get(at).is_some_and(|word| word == "::") {
            at += 1;
        } else {
            paths.push(path);
            return at;
        }
    }
}

fn absolute(path: &[String], module: &[String]) -> String {
    let mut base: Vec<&str> = Vec::new();
    let mut rest = path.iter().map(String::as_str).peekable();
    if rest
        .peek()
        .is_some_and(|word| ["self", "super"].contains(word))
    {
        base.push("crate");
        base.extend(module.iter().map(String::as_str));
        while let Some(word) = rest.next_if(|word| ["self", "super"].contains(word)) {
            if word == "super" {
                base.pop();
            }
        }
    }
    base.extend(rest);
    base.join("::")
}

fn is_name(word: &str) -> bool {
    word.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Names, `::`, braces, and everything else as single characters.
fn words_of(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut joined = false;
    for character in text.chars() {
        if character.is_alphanumeric() || character == '_' {
            match words.last_mut() {
                Some(last) if joined => last.push(character),
                _ => words.push(character.to_string()),
            }
            joined = true;
            continue;
        }
        joined = false;
        match words.last_mut() {
            Some(last) if character == ':' && last == ":" => last.push(':'),
            _ if character.is_whitespace() => {}
            _ => words.push(character.to_string()),
        }
    }
    words
}

/// Leaves out comments and the content of literals.
fn without_text(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let raw = rest.trim_start_matches(['b', 'r']).trim_start_matches('#');
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with(['r', 'b']) && raw.starts_with('"') && rest.contains("r") {
            raw_literal(rest).unwrap_or_else(|| literal(rest))
        } else if first == '"' {
            literal(rest)
        } else if first == '\'' {
            character_literal(rest)
        } else {
            0
        };
        if skipped == 0 {
            kept.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            kept.push(' ');
            rest = &rest[skipped..];
        }
    }
    kept
}

/// How long a literal such as `r#"..."#` at the start of a text is.
fn raw_literal(text: &str) -> Option<usize> {
    let body = text.strip_prefix("br").or_else(|| text.strip_prefix('r'))?;
    let marks = body.len() - body.trim_start_matches('#').len();
    let end = format!("\"{}", "#".repeat(marks));
    let start = text.len() - body.len() + marks + 1;
    Some(start + text.get(start..)?.find(&end)? + end.len())
}

/// How long a literal such as `"..."` or `b"..."` at the start of a text is.
fn literal(text: &str) -> usize {
    let start = text.find('"').unwrap_or(0) + 1;
    let mut escaped = false;
    for (at, character) in text[start..].char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return start + at + 1,
            _ => {}
        }
    }
    text.len()
}

/// How long a literal such as `'x'` at the start of a text is; zero for a lifetime.
fn character_literal(text: &str) -> usize {
    let mut characters = text.char_indices().skip(1);
    match (characters.next(), characters.next()) {
        (Some((_, '\\')), _) => text[2..]
            .char_indices()
            .skip(1)
            .find(|(_, character)| *character == '\'')
            .map_or(0, |(at, _)| at + 3),
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 0,
    }
}

/// Leaves out `#[cfg(test)] mod name { ... }`.
fn without_tests(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(found) = rest.find("#[cfg(test)]") {
        let (before, after) = rest.split_at(found);
        kept.push_str(before);
        let end = after.find(['{', ';']).unwrap_or(after.len());
        let mut depth = 0;
        let length = after
            .get(end..)
            .unwrap_or_default()
            .char_indices()
            .find_map(|(at, character)| {
                match character {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    _ => {}
                }
                (depth == 0).then_some(at + 1)
            });
        rest = &after[(end + length.unwrap_or(0)).min(after.len())..];
    }
    kept.push_str(rest);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        let module = ["ssh".to_owned(), "dial".to_owned()];
        named_paths(text, &module)
    }

    #[test]
    fn every_way_of_naming_a_path_is_seen() {
        assert_eq!(
            paths("use crate::run::{Live, spool::{self, Spool}};"),
            [
                "crate::run::Live",
                "crate::run::spool::self",
                "crate::run::spool::Spool"
            ]
        );
        assert_eq!(paths("use super::super::run as other;"), ["crate::run"]);
        assert_eq!(
            paths("fn f() { self::x::y(); crate::engine::Engine::new::<u8>() }"),
            ["crate::ssh::dial::x::y", "crate::engine::Engine::new"]
        );
        assert_eq!(paths("pub use tokio::*;"), ["tokio::*"]);
        assert_eq!(paths("use a::\n    b;"), ["a::b"]);
    }

    #[test]
    fn comments_literals_and_tests_name_nothing() {
        let text = "// use crate::a;\n/* crate::b */ const C: &str = \"crate::c \\\" crate::d\"; const D: &str = r#\"crate::e \" \"#; let x = '\"'; /// crate::f\nuse std::fmt;\n#[cfg(test)]\nmod tests { use crate::g; fn f() { crate::h() } }\nuse std::io;";
        assert_eq!(paths(text), ["std::fmt", "std::io"]);
    }

    #[test]
    fn declared_modules_keep_their_attributes() {
        let text = "pub mod a;\nmod b;\n#[cfg(test)]\n#[path = \"c_tests.rs\"]\nmod c;\npub(crate) mod d;\nmod inline { }\n";
        let found: Vec<_> = declared_modules(text)
            .into_iter()
            .map(|found| (found.name, found.file, found.is_test))
            .collect();
        let expected = [
            ("a", None, false),
            ("b", None, false),
            ("c", Some("c_tests.rs"), true),
            ("d", None, false),
        ];
        assert_eq!(
            found,
            expected.map(|(name, file, test)| (name.to_owned(), file.map(str::to_owned), test))
        );
    }
}
