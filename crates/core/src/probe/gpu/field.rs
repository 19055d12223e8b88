//! Single values as vendors' tools print them; whatever is not a number is unknown.

use super::super::text::{clean, one_decimal};

/// A size that is printed in MiB, with or without the unit.
pub(super) fn mebibytes(field: &str) -> Option<u64> {
    let field = field.trim();
    let digits = field.strip_suffix("MiB").unwrap_or(field).trim_end();
    digits.parse().ok()
}

/// A share between 0 and 100, with or without the sign.
pub(super) fn share(field: &str) -> Option<f64> {
    let field = field.trim();
    let number = field.strip_suffix('%').unwrap_or(field).trim_end();
    percent_or_unknown(number.parse().ok()?)
}

/// A number that can be a share.
pub(super) fn percent_or_unknown(share: f64) -> Option<f64> {
    (0.0..=100.0)
        .contains(&share)
        .then(|| one_decimal(share.abs()))
}

/// A number that can be a temperature of a working device in degrees Celsius.
pub(super) fn celsius_or_unknown(degrees: f64) -> Option<f64> {
    (1.0..=200.0)
        .contains(&degrees)
        .then(|| one_decimal(degrees))
}

/// A name, unless it is one of the words that stand for none.
pub(super) fn name(field: &str) -> Option<String> {
    let name = clean(field);
    let is_placeholder = name.starts_with('[') && name.ends_with(']');
    let is_known = !is_placeholder && !["", "-", "NA", "N/A", "ERR!"].contains(&name.as_str());
    is_known.then_some(name)
}
