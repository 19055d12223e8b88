//! Cleaning of names and messages that the host wrote, and rounding of figures.

/// Longest text taken over from a host, in characters.
const MOST_CHARACTERS: usize = 120;

/// The text without control and invisible formatting characters, cut to a bound.
pub(super) fn clean(text: &str) -> String {
    let kept: String = text
        .trim()
        .chars()
        .filter(|character| !character.is_control() && !is_invisible(*character))
        .take(MOST_CHARACTERS)
        .collect();
    kept.trim().to_owned()
}

// Characters that hide text from a person or turn its direction: a host could use them to slip words to an agent.
fn is_invisible(character: char) -> bool {
    matches!(
        u32::from(character),
        0x00ad | 0x061c | 0x180e | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f
            | 0xfe00..=0xfe0f | 0xfeff | 0xfff9..=0xfffb | 0xe0000..=0xe0fff
    )
}

/// One decimal, as percents are shown.
pub(super) fn one_decimal(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// Part of a whole between 0 and 1; `None` when the whole is nothing.
pub(super) fn fraction(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| (part as f64 / whole as f64).min(1.0))
}

/// Part of a whole in percent with one decimal.
pub(super) fn percent(part: u64, whole: u64) -> Option<f64> {
    fraction(part, whole).map(|share| one_decimal(share * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clean_drops_control_and_invisible_characters() {
        assert_eq!(
            clean("  \u{1b}[31mTesla\u{7}\u{202e} T4\u{e0041}\r\n"),
            "[31mTesla T4"
        );
    }

    #[test]
    fn clean_cuts_by_characters_when_text_is_long() {
        let cut = clean(&"é".repeat(500));
        assert_eq!(cut.chars().count(), MOST_CHARACTERS);
    }

    #[test]
    fn percent_is_unknown_when_whole_is_zero() {
        assert_eq!(percent(0, 0), None);
    }

    #[test]
    fn percent_never_passes_hundred() {
        assert_eq!(percent(12, 10), Some(100.0));
        assert_eq!(percent(1, 3), Some(33.3));
    }
}
