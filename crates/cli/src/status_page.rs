//! How a page of `status` looks.

use std::fmt::Write as _;

use remote_sandbox_core::output::clean_line;
use remote_sandbox_core::probe::{Gpu, Resources};
use remote_sandbox_engine::engine::{Listed, Probed};

use crate::list::gib;

/// The narrowest and the widest bar that is of use.
const BARS: std::ops::RangeInclusive<usize> = 8..=60;

/// Columns for the name of a figure, and for its value behind the bar.
const LABEL: usize = 8;
const VALUE: usize = 26;

/// How a page is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// One line of words per sandbox and GPU.
    Plain,
    /// Bars for a terminal.
    Bars {
        /// Columns of the terminal.
        width: usize,
        /// Whether colours are wanted.
        colour: bool,
    },
}

impl Look {
    /// Whether somebody looks at it on a terminal.
    pub(crate) fn is_terminal(self) -> bool {
        self != Look::Plain
    }
}

/// One figure of a host: its name, its share of the whole from 0 to 1, and its value in words.
struct Figure {
    label: String,
    share: Option<f64>,
    value: String,
}

/// Draws a page.
pub(crate) fn page(listed: &[Listed], look: Look) -> String {
    let mut text = String::new();
    for (number, sandbox) in listed.iter().enumerate() {
        match look {
            Look::Plain => plain(&mut text, sandbox),
            Look::Bars { width, colour } => {
                if number > 0 {
                    text.push('\n');
                }
                bars(&mut text, sandbox, width, colour);
            }
        }
    }
    text
}

/// Name, state in one word, and what is to say about it.
fn summary(listed: &Listed) -> (String, &'static str, String, Option<&Resources>) {
    match listed {
        Listed::Disabled { name, reason } => (
            clean_line(name, 64),
            "disabled",
            clean_line(reason, 200),
            None,
        ),
        Listed::Ready(Probed {
            description,
            alive,
            resources,
        }) => {
            let name = clean_line(description.name.as_str(), 64);
            match (alive, resources) {
                (Err(failure), _) => (
                    name,
                    failure.code.name(),
                    clean_line(&failure.message, 200),
                    None,
                ),
                (Ok(()), Some(Err(failure))) => {
                    (name, "alive", clean_line(&failure.message, 200), None)
                }
                (Ok(()), Some(Ok(resources))) => {
                    let remark = resources.gpu_error.as_deref().unwrap_or_default();
                    (name, "alive", clean_line(remark, 200), Some(resources))
                }
                (Ok(()), None) => (name, "alive", String::new(), None),
            }
        }
    }
}

fn figures(resources: &Resources) -> Vec<Figure> {
    let mut figures = vec![cpu(resources), memory(resources)];
    figures.extend(resources.gpu.iter().flat_map(gpu));
    figures
}

fn cpu(resources: &Resources) -> Figure {
    let cpu = &resources.cpu;
    let load = cpu.load_1m.map(|load| format!("load {load:.2}"));
    let count = cpu.count.map(|count| format!("of {count}"));
    let by_load = cpu.load_1m.zip(cpu.count);
    let by_load = by_load.map(|(load, count)| load / f64::from(count.max(1)));
    let share = cpu.util_pct.map(|used| used / 100.0).or(by_load);
    let used = cpu.util_pct.map(|used| format!("{used:.0}%"));
    Figure {
        label: "cpu".to_owned(),
        share,
        value: words([used, load, count]),
    }
}

fn memory(resources: &Resources) -> Figure {
    let memory = &resources.memory;
    Figure {
        label: "memory".to_owned(),
        share: share(memory.used_mb, memory.total_mb),
        value: words([amount(memory.used_mb, memory.total_mb), None, None]),
    }
}

fn gpu(gpu: &Gpu) -> [Figure; 2] {
    let used = gpu.util_pct.map(|used| format!("{used:.0}%"));
    let name = gpu.name.as_deref().map(|name| clean_line(name, 18));
    [
        Figure {
            label: format!("gpu {}", gpu.index),
            share: gpu.util_pct.map(|used| used / 100.0),
            value: words([used, name, None]),
        },
        Figure {
            label: "  memory".to_owned(),
            share: share(gpu.mem_used_mb, gpu.mem_total_mb),
            value: words([amount(gpu.mem_used_mb, gpu.mem_total_mb), None, None]),
        },
    ]
}

fn share(used: Option<u64>, total: Option<u64>) -> Option<f64> {
    let (used, total) = (used?, total.filter(|&total| total > 0)?);
    Some(used as f64 / total as f64)
}

fn amount(used: Option<u64>, total: Option<u64>) -> Option<String> {
    Some(format!("{}/{} GiB", gib(used?), gib(total?)))
}

fn words(parts: [Option<String>; 3]) -> String {
    let known: Vec<String> = parts.into_iter().flatten().collect();
    if known.is_empty() {
        "unknown".to_owned()
    } else {
        known.join(" ")
    }
}

fn plain(text: &mut String, listed: &Listed) {
    let (name, state, remark, resources) = summary(listed);
    let mut parts = vec![name, state.to_owned()];
    if let Some(resources) = resources {
        let shown = figures(resources).into_iter();
        parts.extend(shown.map(|figure| format!("{} {}", figure.label.trim(), figure.value)));
        parts.extend(
            resources
                .idle_score
                .map(|score| format!("score {score:.2}")),
        );
    }
    parts.extend((!remark.is_empty()).then_some(remark));
    let _ = writeln!(text, "{}", parts.join("; "));
}

fn bars(text: &mut String, listed: &Listed, width: usize, colour: bool) {
    let (name, state, remark, resources) = summary(listed);
    let score = resources.and_then(|resources| resources.idle_score);
    let score = score.map_or_else(String::new, |score| format!("  score {score:.2}"));
    let title = fit(&format!("{name}  {state}{score}"), width);
    if colour {
        let _ = writeln!(text, "\x1b[1m{title}\x1b[0m");
    } else {
        let _ = writeln!(text, "{title}");
    }
    if !remark.is_empty() {
        let _ = writeln!(text, "{}", fit(&format!("  {remark}"), width));
    }
    let length = width.saturating_sub(LABEL + VALUE + 6);
    let length = length.clamp(*BARS.start(), *BARS.end());
    for figure in resources.map(figures).unwrap_or_default() {
        let before = format!("  {:LABEL$} ", figure.label);
        let room = width.saturating_sub(before.chars().count() + length + 3);
        let value = fit(&figure.value, room);
        let bar = bar(figure.share, length);
        let bar = match (colour, figure.share) {
            (true, Some(share)) => format!("\x1b[{}m{bar}\x1b[0m", hue(share)),
            _ => bar,
        };
        let _ = writeln!(text, "{}", format!("{before}▕{bar}▏ {value}").trim_end());
    }
}

/// Green, yellow, red.
fn hue(share: f64) -> u8 {
    match share {
        share if share < 0.5 => 32,
        share if share < 0.85 => 33,
        _ => 31,
    }
}

/// A bar of eighths of blocks; dots where nothing is known, for an empty bar would read as idle.
fn bar(share: Option<f64>, length: usize) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let Some(share) = share else {
        return "·".repeat(length);
    };
    let eighths = (share.clamp(0.0, 1.0) * length as f64 * 8.0).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.extend(EIGHTHS.get(eighths % 8));
    }
    let filled = bar.chars().count();
    bar.push_str(&" ".repeat(length.saturating_sub(filled)));
    bar
}

/// Cuts a line to the width of the terminal.
fn fit(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    let cut: String = line.chars().take(width.saturating_sub(1)).collect();
    format!("{cut}…")
}

#[cfg(test)]
#[path = "status_page_tests.rs"]
mod tests;
