//! The reference pages say what the program says.

use std::collections::BTreeSet;
use std::path::Path;

use remote_sandbox_server::mcp::tools_markdown;

#[test]
fn reference_of_tools_is_made_from_the_code() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/tools.md");
    let wanted = tools_markdown();
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&page, &wanted).expect("the page can be written");
    }
    let found = std::fs::read_to_string(&page).unwrap_or_default();
    assert_eq!(
        found, wanted,
        "write it anew: UPDATE_REFERENCE=1 cargo test reference"
    );
}

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of all tools.
fn tools() -> BTreeSet<String> {
    let reference = tools_markdown();
    let headings = reference
        .lines()
        .filter_map(|line| line.strip_prefix("## `"));
    headings
        .map(|name| name.trim_end_matches('`').to_owned())
        .collect()
}

#[test]
fn readmes_begin_with_the_demo_and_have_a_row_for_every_tool() {
    for name in ["README.md", "README.zh-CN.md"] {
        let page = page(name);
        for tool in tools() {
            assert!(page.contains(&format!("\n| `{tool}` |")), "{name}: {tool}");
        }
        let commands: Vec<&str> = page.split("\n```\n").skip(1).step_by(2).take(2).collect();
        assert_eq!(
            commands,
            ["cargo run --release -- demo", "scripts/test"],
            "{name}"
        );
    }
}

#[test]
fn skill_names_only_tools_that_exist() {
    let (page, tools) = (page("skills/remote-sandbox/SKILL.md"), tools());
    assert!(page.starts_with("---\nname: remote-sandbox\ndescription: "));
    let description = page.lines().nth(2).unwrap();
    assert!(description.chars().count() < 1024, "agents cut it there");
    let called: BTreeSet<&str> = page
        .match_indices('(')
        .filter_map(|(at, _)| page[..at].rsplit(|next: char| !is_of_a_name(next)).next())
        .filter(|word| word.contains('_'))
        .collect();
    assert!(called.len() >= 6, "{called:?}");
    for word in called {
        assert!(tools.contains(word), "{word} is no tool");
    }
}

fn is_of_a_name(next: char) -> bool {
    next.is_ascii_lowercase() || next == '_'
}
