use std::collections::BTreeSet;
use std::path::Path;

use super::*;
use crate::config::resolve;
use crate::config::testing::{from_toml, sources, summary};

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the test itself keeps the page in the repository up to date"
)]
fn reference_page_is_what_the_code_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/configuration.md");
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&path, reference_markdown()).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(
        page == reference_markdown(),
        "{} is out of date: run this test with UPDATE_REFERENCE=1",
        path.display()
    );
}

#[test]
fn reference_declares_everything_once() {
    let mut seen = BTreeSet::new();
    for variable in VARIABLES {
        assert!(seen.insert(variable.name.to_owned()), "{}", variable.name);
    }
    for key in KEYS {
        assert!(
            seen.insert(format!("{:?} {}", key.place, key.name)),
            "{}",
            key.name
        );
    }
}

#[test]
fn reference_sentences_fit_a_table() {
    let variables = VARIABLES.iter().map(|variable| variable.meaning);
    for meaning in variables.chain(KEYS.iter().map(|key| key.meaning)) {
        assert!(
            meaning.ends_with('.') && !meaning.contains(['|', '\n']),
            "{meaning}"
        );
    }
}

/// A variable the code reads but the table does not declare would be missing from the page.
#[test]
fn reference_declares_every_variable_the_code_names() {
    let sources = [
        include_str!("import.rs"),
        include_str!("local.rs"),
        include_str!("paths.rs"),
        include_str!("resolve.rs"),
        include_str!("settings.rs"),
        include_str!("toolset.rs"),
        include_str!("watchdog.rs"),
    ];
    let declared: BTreeSet<_> = VARIABLES.iter().map(|variable| variable.name).collect();
    let mut named = 0;
    for text in sources.iter().flat_map(|source| source.split('"')) {
        let is_variable = ["REMOTE_", "XDG_"]
            .iter()
            .any(|start| text.starts_with(start))
            && text.chars().all(|c| c.is_ascii_uppercase() || c == '_')
            && !text.ends_with('_');
        if is_variable {
            named += 1;
            assert!(declared.contains(text), "{text}");
        }
    }
    assert!(named >= 10, "the search found only {named} names");
}

/// The example is what people copy first.
#[test]
fn reference_examples_are_taken_without_a_problem() {
    let page = reference_markdown();
    let example = |language: &str| {
        let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
        rest.split_once("```").unwrap().0.to_owned()
    };
    let toml = from_toml(&example("toml"));
    assert_eq!(summary(&toml), ["gpu1", "build", "gpu2"]);
    assert!(toml.problems.is_empty());
    let json = resolve(&sources(
        &[("GPU1_PASSWORD", "p")],
        Some(("/c.json", &example("json"))),
    ));
    assert_eq!(summary(&json), ["gpu1"]);
}

#[test]
fn reference_example_of_local_is_taken_without_a_problem() {
    let page = reference_markdown();
    let (_, rest) = page.split_once("```toml\n[local]").unwrap();
    let example = rest.split_once("```").unwrap().0;
    let config = from_toml(&format!("[local]{example}"));
    assert!(config.problems.is_empty());
    assert_eq!(config.local.readable.len(), 2);
    assert!(config.local.is_given);
}

#[test]
fn reference_example_of_watchdog_is_taken_without_a_problem() {
    let page = reference_markdown();
    let (_, rest) = page.split_once("```toml\n[watchdog]").unwrap();
    let example = rest.split_once("```").unwrap().0;
    let config = from_toml(&format!("[watchdog]{example}"));
    assert!(config.problems.is_empty(), "{:?}", config.problems);
    assert_eq!(config.watchdog.notifiers.len(), 1);
}
