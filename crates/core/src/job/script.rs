//! What all scripts about jobs are made of.

use crate::shell::quote;

/// What they share: identities of processes, and the gate that an attempt passes once.
pub(super) const COMMON: &str = include_str!("common.sh");

/// Asking tmux within bounds.
pub(super) const TMUX: &str = include_str!("tmux.sh");

/// Telling of an attempt that has begun.
pub(super) const TELL: &str = include_str!("tell.sh");

/// A script without its comments and margins; many shells read it byte by byte. No line of ours that lies
/// within quotes may begin with a blank.
pub(super) fn bare(text: &str) -> String {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .flat_map(|line| [line, "\n"])
        .collect()
}

/// A path as somebody wrote it, for the right side of an assignment: `~` is the home, and no dash leads.
pub(super) fn path_word(path: &str) -> String {
    match path.strip_prefix('~') {
        Some("") => "\"${HOME-}\"".to_owned(),
        Some(rest) if rest.starts_with('/') => format!("\"${{HOME-}}\"{}", quote(rest)),
        _ if path.starts_with('-') => quote(&format!("./{path}")),
        _ => quote(path),
    }
}

/// The lines of ours in an answer, without their mark, each with what follows it up to the next one.
pub(super) fn marked<'a>(mark: &str, answer: &'a [u8]) -> Vec<(&'a str, &'a [u8])> {
    let begin = format!("RSMCP:{mark}:");
    let begin = begin.as_bytes();
    let mut places = Vec::new();
    let mut from = 0;
    while let Some(found) = answer
        .get(from..)
        .and_then(|rest| rest.windows(begin.len()).position(|window| window == begin))
    {
        places.push(from + found);
        from += found + begin.len();
    }
    let ends = places.iter().skip(1).copied().chain([answer.len()]);
    places
        .iter()
        .zip(ends)
        .filter_map(|(at, end)| {
            let whole = answer.get(at + begin.len()..end)?;
            let length = whole.iter().position(|byte| *byte == b'\n')?;
            let line = std::str::from_utf8(whole.get(..length)?).ok()?;
            let rest = whole.get(length + 1..)?;
            // The line break before our next line is ours.
            Some((line, rest.strip_suffix(b"\n").unwrap_or(rest)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn marked_lines_come_with_what_follows_them() {
        let answer = b"motd RSMCP:x:fake\nhello RSMCP:m1:1:log\nab\n\nRSMCP:m1:end\n";
        let lines = marked("m1", answer);
        assert_eq!(lines, [("1:log", &b"ab\n"[..]), ("end", &b""[..])]);
    }

    #[test]
    fn line_without_its_end_does_not_count() {
        assert!(marked("m", b"RSMCP:m:verdict:star").is_empty());
    }

    proptest! {
        #[test]
        fn marked_survives_anything(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = marked("m", &bytes);
        }
    }
}
