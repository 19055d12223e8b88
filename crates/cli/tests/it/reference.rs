//! The reference pages say what the program says.

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
