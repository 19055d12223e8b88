use std::collections::BTreeSet;
use std::path::Path;

use super::*;

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
        include_str!("paths.rs"),
        include_str!("resolve.rs"),
        include_str!("settings.rs"),
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
