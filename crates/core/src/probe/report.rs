//! Splitting of a report into its sections.

use std::borrow::Cow;

use serde_json::Value;

use super::Nonce;

/// Most bytes of a report that are looked at; the script prints far less.
const MOST_BYTES: usize = 1 << 20;

/// Most sections taken; the script prints about a dozen, and thirty on a host with everything.
const MOST_SECTIONS: usize = 48;

/// Most places of a section at which a JSON value is looked for.
const MOST_ATTEMPTS: usize = 8;

/// How the work behind a section ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The tool ended by itself with this status.
    Exited(u32),
    /// The tool was stopped because it did not answer in time.
    Hung,
    /// The tool printed more than is read.
    Cut,
    /// The report breaks off inside the section.
    Lost,
}

impl Verdict {
    fn parse(word: &str) -> Self {
        match word {
            "hung" => Self::Hung,
            "cut" => Self::Cut,
            number => number.parse().map_or(Self::Lost, Self::Exited),
        }
    }
}

/// One section: its lines and how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Section<'text> {
    name: &'text str,
    body: &'text str,
    /// How the work behind it ended.
    pub(super) verdict: Verdict,
}

impl<'text> Section<'text> {
    /// The lines that hold something, trimmed.
    pub(super) fn lines(&self) -> impl Iterator<Item = &'text str> + use<'text> {
        self.body
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
    }

    /// The first JSON value that begins a line; remarks may stand before and after it.
    pub(super) fn json(&self) -> Option<Value> {
        let mut offset = 0;
        let starts = self.body.split_inclusive('\n').filter_map(|line| {
            let start = offset;
            offset += line.len();
            line.trim_start().starts_with(['[', '{']).then_some(start)
        });
        // A remark such as "[WARN] ..." begins like a value. Few attempts, because each may read all the rest.
        starts.take(MOST_ATTEMPTS).find_map(|start| {
            let rest = self.body.get(start..)?;
            let mut values = serde_json::Deserializer::from_str(rest).into_iter();
            values.next()?.ok()
        })
    }

    /// What follows the key on the first line that begins with it.
    pub(super) fn value(&self, key: &str) -> Option<&'text str> {
        self.lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))
            .map(str::trim)
    }
}

/// The sections of one report, in the order they came.
#[derive(Debug)]
pub(super) struct Report<'text> {
    sections: Vec<Section<'text>>,
}

/// The part of the bytes that is looked at, as text.
pub(super) fn readable_text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes.get(..MOST_BYTES).unwrap_or(bytes))
}

impl<'text> Report<'text> {
    /// Finds the sections that carry the nonce; `None` when there is none.
    pub(super) fn split(nonce: &Nonce, text: &'text str) -> Option<Self> {
        let marker = format!("@@{nonce} ");
        let mut sections: Vec<Section<'text>> = Vec::new();
        let mut open: Option<(&'text str, usize)> = None;
        let mut offset = 0;
        for line in text.split_inclusive('\n') {
            let start = offset;
            offset += line.len();
            let Some(mark) = line.strip_prefix(marker.as_str()) else {
                continue;
            };
            let (word, rest) = mark.trim_end().split_once(' ').unwrap_or((mark, ""));
            let verdict = match word {
                "end" => Verdict::parse(rest),
                "begin" => Verdict::Lost,
                _ => continue,
            };
            close(&mut sections, open.take(), text, start, verdict);
            if word == "begin" {
                open = Some((rest, offset));
            }
        }
        close(&mut sections, open, text, text.len(), Verdict::Lost);
        (!sections.is_empty()).then_some(Self { sections })
    }

    /// The first section of that name.
    pub(super) fn section(&self, name: &str) -> Option<Section<'text>> {
        self.sections
            .iter()
            .find(|section| section.name == name)
            .copied()
    }
}

fn close<'text>(
    sections: &mut Vec<Section<'text>>,
    open: Option<(&'text str, usize)>,
    text: &'text str,
    end: usize,
    verdict: Verdict,
) {
    let Some((name, start)) = open else { return };
    if sections.len() < MOST_SECTIONS {
        sections.push(Section {
            name,
            body: text.get(start..end).unwrap_or_default(),
            verdict,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nonce() -> Nonce {
        Nonce::parse("abcdefgh").unwrap()
    }

    #[test]
    fn report_ignores_marks_of_another_nonce() {
        let text = "@@abcdefgh begin gpus\n@@zzzzzzzz end 0\n0, a\n@@abcdefgh end 3\n";
        let report = Report::split(&nonce(), text).unwrap();
        let section = report.section("gpus").unwrap();
        assert_eq!(section.verdict, Verdict::Exited(3));
        assert_eq!(section.lines().count(), 2);
    }

    #[test]
    fn report_ignores_a_mark_that_does_not_begin_its_line() {
        let text = "@@abcdefgh begin gpus\nx @@abcdefgh end 0\ny\n@@abcdefgh end 1\n";
        let report = Report::split(&nonce(), text).unwrap();
        assert_eq!(report.section("gpus").unwrap().verdict, Verdict::Exited(1));
    }

    #[test]
    fn report_takes_a_section_as_lost_when_text_breaks_off() {
        let report = Report::split(&nonce(), "@@abcdefgh begin load\n0.1 0.2").unwrap();
        let section = report.section("load").unwrap();
        assert_eq!(section.verdict, Verdict::Lost);
        assert_eq!(section.lines().collect::<Vec<_>>(), ["0.1 0.2"]);
    }

    #[test]
    fn report_keeps_the_first_section_when_a_name_comes_twice() {
        let text = "@@abcdefgh begin load\n1\n@@abcdefgh end 0\n@@abcdefgh begin load\n2\n";
        let report = Report::split(&nonce(), text).unwrap();
        assert_eq!(report.section("load").unwrap().lines().next(), Some("1"));
    }

    #[test]
    fn report_takes_carriage_returns() {
        let text = "@@abcdefgh begin load\r\n1\r\n@@abcdefgh end hung\r\n";
        let report = Report::split(&nonce(), text).unwrap();
        assert_eq!(report.section("load").unwrap().verdict, Verdict::Hung);
    }

    #[test]
    fn report_bounds_its_sections() {
        let text = "@@abcdefgh begin x\n@@abcdefgh end 0\n".repeat(MOST_SECTIONS * 2);
        let report = Report::split(&nonce(), &text).unwrap();
        assert_eq!(report.sections.len(), MOST_SECTIONS);
    }

    #[test]
    fn json_is_found_between_remarks() {
        let text = "@@abcdefgh begin x\n[WARN] no group\nWARNING\n  [\n{\"gpu\": 0}\n]\nbye\n";
        let report = Report::split(&nonce(), text).unwrap();
        let value = report.section("x").unwrap().json().unwrap();
        assert_eq!(value, serde_json::json!([{"gpu": 0}]));
    }

    #[test]
    fn json_is_looked_for_a_few_times_only() {
        let text = format!(
            "@@abcdefgh begin x\n{}{{}}\n",
            "[ no\n".repeat(MOST_ATTEMPTS)
        );
        let report = Report::split(&nonce(), &text).unwrap();
        assert_eq!(report.section("x").unwrap().json(), None);
    }

    #[test]
    fn report_is_absent_when_nothing_carries_the_nonce() {
        assert!(Report::split(&nonce(), "Welcome to host\n").is_none());
    }
}
