//! How the demo looks: plain lines that fit the terminal, with colours only where they are welcome.

use std::path::Path;
use std::time::Duration;

use remote_sandbox_core::output::clean_line;
use remote_sandbox_core::shell::quote;

/// The width where there is no terminal to ask.
const USUAL_WIDTH: usize = 100;

/// A narrower terminal is not drawn for.
const LEAST_WIDTH: usize = 24;

/// Most lines of output that are shown of one command.
const MOST_LINES: usize = 6;

const INDENT: &str = "   ";

const BOLD: &str = "1";
const DIM: &str = "2";
const GREEN: &str = "32";
const RED: &str = "1;31";

/// How lines are drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Page {
    colour: bool,
    width: usize,
}

impl Page {
    /// A page of a width; of the usual one where none is known.
    pub(super) fn new(colour: bool, width: Option<usize>) -> Self {
        Page {
            colour,
            width: width.unwrap_or(USUAL_WIDTH).max(LEAST_WIDTH),
        }
    }

    /// The line that begins a step.
    pub(super) fn title(self, number: usize, text: &str) -> String {
        let line = self.fitted(&format!("{number}. {text}"), 0);
        format!("\n{}\n", self.painted(&line, BOLD))
    }

    /// The line that says which tool is called with what.
    pub(super) fn call(self, tool: &str, about: &str) -> String {
        let line = self.fitted(&format!("{tool}: {about}"), INDENT.len());
        format!("{INDENT}{}\n", self.painted(&line, DIM))
    }

    /// What a command printed, the end of it where it is long.
    pub(super) fn output(self, text: &str) -> String {
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        let left_out = lines.len().saturating_sub(MOST_LINES);
        let mut shown = String::new();
        if left_out > 0 {
            shown.push_str(&format!("{INDENT}| ({left_out} more lines)\n"));
        }
        for line in lines.iter().skip(left_out) {
            let line = self.fitted(line, INDENT.len() + 2);
            shown.push_str(&format!("{INDENT}| {line}\n"));
        }
        shown
    }

    /// What has to be said about a step while it goes on.
    pub(super) fn note(self, text: &str) -> String {
        let line = self.fitted(text, INDENT.len());
        format!("{INDENT}{line}\n")
    }

    /// The line that ends a step that gave what it should.
    pub(super) fn done(self, text: &str, took: Duration) -> String {
        let time = spoken(took);
        let line = self.fitted(text, INDENT.len() + 6 + time.len());
        format!("{INDENT}{} {line} ({time})\n", self.painted("ok", GREEN))
    }

    /// The line that ends a step that did not.
    pub(super) fn failed(self) -> String {
        format!("{INDENT}{}\n", self.painted("failed", RED))
    }

    /// A line that nobody should miss. It is never cut.
    pub(super) fn loud(self, text: &str) -> String {
        format!("{INDENT}{}\n", self.painted(&format!("!! {text}"), RED))
    }

    /// A line as it is, for people who want to copy it.
    pub(super) fn heading(self, text: &str) -> String {
        format!("{}\n", self.painted(text, BOLD))
    }

    fn fitted(self, text: &str, before: usize) -> String {
        // One character less, for the mark of what was cut.
        clean_line(text, self.width.saturating_sub(before + 1))
    }

    fn painted(self, text: &str, code: &str) -> String {
        match self.colour {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }

    /// How the server is added to clients. These lines are never cut.
    pub(super) fn adding(self, program: &Path) -> String {
        let word = shell_word(&program.display().to_string());
        let text = toml_text(&program.display().to_string());
        format!(
            "{}  claude mcp add remote-sandbox -- {word}\n\n\
             {}  codex mcp add remote-sandbox -- {word}\n\n\
             {}  [mcp_servers.remote-sandbox]\n  command = {text}\n\n\
             {}  Make a sandbox, write a small project with tests there, run them, and delete the sandbox.\n",
            self.heading("Add it to Claude Code:"),
            self.heading("Add it to Codex:"),
            self.heading("or write into ~/.codex/config.toml:"),
            self.heading("Then ask your agent:"),
        )
    }
}

/// A time as people say it.
pub(super) fn spoken(time: Duration) -> String {
    match time.as_millis() {
        short @ 0..1000 => format!("{short} ms"),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

/// A word for a shell, quoted only where it has to be.
fn shell_word(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+@:,=".contains(&byte);
    match !text.is_empty() && text.bytes().all(is_plain) {
        true => text.to_owned(),
        false => quote(text),
    }
}

/// A text of a TOML file, which escapes as JSON does.
fn toml_text(text: &str) -> String {
    serde_json::Value::from(text)
        .to_string()
        .replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Page = Page {
        colour: false,
        width: 40,
    };

    #[test]
    fn page_never_passes_its_width() {
        let long = "x".repeat(300);
        let took = Duration::from_millis(12);
        let drawn = [
            PLAIN.title(3, &long),
            PLAIN.call("exec_bash", &long),
            PLAIN.output(&format!("{long}\n{long}")),
            PLAIN.note(&long),
            PLAIN.done(&long, took),
        ];
        for line in drawn.iter().flat_map(|text| text.lines()) {
            let width = line.chars().count();
            assert!(width <= 40, "{width}: {line}");
            assert!(line.is_empty() || width > 30, "{width}: {line}");
        }
    }

    #[test]
    fn page_is_painted_only_when_colours_are_welcome() {
        let drawn = |page: Page| {
            [
                page.title(1, "a"),
                page.done("b", Duration::ZERO),
                page.loud("c"),
                page.failed(),
                page.adding(Path::new("/p")),
            ]
            .concat()
        };
        assert!(!drawn(PLAIN).contains('\x1b'));
        let coloured = drawn(Page::new(true, None));
        assert_eq!(coloured.matches("\x1b[").count() % 2, 0);
        assert!(coloured.contains("\x1b[32mok\x1b[0m b"), "{coloured:?}");
    }

    #[test]
    fn output_shows_its_end_and_escapes_what_could_harm_a_terminal() {
        let text: String = (1..=9).map(|line| format!("line {line}\n")).collect();
        let shown = PLAIN.output(&format!("{text}\n\x1b[2J"));
        assert!(
            shown.starts_with("   | (4 more lines)\n   | line 5\n"),
            "{shown}"
        );
        assert!(shown.ends_with("   | line 9\n   | \\x1b[2J\n"), "{shown}");
    }

    #[test]
    fn lines_to_copy_are_whole_and_quoted_where_needed() {
        let narrow = Page::new(false, Some(1));
        let plain = narrow.adding(Path::new("/opt/remote-sandbox-mcp"));
        assert!(plain.contains("claude mcp add remote-sandbox -- /opt/remote-sandbox-mcp\n"));
        assert!(plain.contains("codex mcp add remote-sandbox -- /opt/remote-sandbox-mcp\n"));
        assert!(plain.contains("command = \"/opt/remote-sandbox-mcp\"\n"));
        let odd = narrow.adding(Path::new("/my \"tools\"/it's"));
        assert!(odd.contains(r#"-- '/my "tools"/it'\''s'"#), "{odd}");
        assert!(odd.contains(r#"command = "/my \"tools\"/it's""#), "{odd}");
    }

    #[test]
    fn time_is_told_in_the_unit_that_fits() {
        let told = [7, 999, 1000, 3240].map(|ms| spoken(Duration::from_millis(ms)));
        assert_eq!(told, ["7 ms", "999 ms", "1.0 s", "3.2 s"]);
    }
}
