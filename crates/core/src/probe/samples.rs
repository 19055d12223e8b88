//! Reports for the tests of this module.

use super::Nonce;
use super::report::Report;

pub(super) fn nonce() -> Nonce {
    Nonce::parse("n0nce5a3").unwrap()
}

/// A report of these sections: name, verdict, body.
pub(super) fn report_text(sections: &[(&str, &str, &str)]) -> String {
    sections
        .iter()
        .map(|(name, verdict, body)| {
            format!("\n@@n0nce5a3 begin {name}\n{body}\n@@n0nce5a3 end {verdict}\n")
        })
        .collect()
}

/// Hands the report of these sections to the reader under test.
pub(super) fn read<T>(sections: &[(&str, &str, &str)], reader: impl Fn(&Report<'_>) -> T) -> T {
    let text = report_text(sections);
    reader(&Report::split(&nonce(), &text).unwrap())
}
