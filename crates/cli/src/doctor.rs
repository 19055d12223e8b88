//! `doctor`: the configuration, then every host step by step, with the fix for what does not work.

use std::sync::Arc;

use remote_sandbox_core::doctor::{Status, Step};
use remote_sandbox_engine::doctor::{ConfigurationReport, examine_configuration};
use remote_sandbox_engine::engine::{Engine, Examined};
use remote_sandbox_engine::environment;
use serde_json::json;

use crate::arguments::Common;
use crate::engine::with;
use crate::report::{Failed, is_colourful, print};

/// Look at the configuration and at every host step by step, and say how to mend what does not work
///
/// Each host is connected to as a command would do it, so that a host never seen before is recorded;
/// nothing else is changed there. Ends with 1 when something does not work, else with 0.
#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// Names of sandboxes (default: all)
    names: Vec<String>,

    /// Print one JSON object instead of lines
    #[arg(long)]
    pub(crate) json: bool,
}

impl Doctor {
    /// Looks and tells.
    pub(crate) fn run(&self, common: &Common) -> Result<(), Failed> {
        let environment = environment::capture();
        let (report, config) = examine_configuration(common.config.as_deref(), &environment);
        let page = Page {
            colour: is_colourful(&environment),
        };
        if !self.json {
            print(&page.section("configuration", &report.steps))?;
        }
        let hosts = match config {
            Some(config) => {
                let engine = Arc::new(Engine::new(&config, &environment)?);
                self.examine(engine, page)?
            }
            None => Vec::new(),
        };
        if self.json {
            print(&format!(
                "{:#}\n",
                json!({"configuration": report, "hosts": hosts})
            ))?;
        } else {
            print(&summary(&report, &hosts))?;
        }
        let steps = all_steps(&report, &hosts);
        match steps.into_iter().any(|step| step.status == Status::Failed) {
            true => Err(Failed::Unwell),
            false => Ok(()),
        }
    }

    fn examine(&self, engine: Arc<Engine>, page: Page) -> Result<Vec<Examined>, Failed> {
        with(engine, |engine, stop| async move {
            if self.names.is_empty() && engine.names().is_empty() {
                return Ok(Vec::new());
            }
            let mut printed = Ok(());
            let told = |host: &Examined| {
                if !self.json && printed.is_ok() {
                    printed = print(&page.section(&host.name, &host.steps));
                }
            };
            let hosts = tokio::select! {
                hosts = engine.examine(&self.names, told) => hosts?,
                () = stop.cancelled() => Vec::new(),
            };
            printed.map(|()| hosts)
        })
    }
}

fn all_steps<'a>(report: &'a ConfigurationReport, hosts: &'a [Examined]) -> Vec<&'a Step> {
    let of_hosts = hosts.iter().flat_map(|host| &host.steps);
    report.steps.iter().chain(of_hosts).collect()
}

fn summary(report: &ConfigurationReport, hosts: &[Examined]) -> String {
    let steps = all_steps(report, hosts);
    let count = |status| steps.iter().filter(|step| step.status == status).count();
    match (count(Status::Failed), count(Status::Warning)) {
        (0, 0) => "all is well\n".to_owned(),
        (0, warnings) => format!("all works; warnings: {warnings}\n"),
        (failed, warnings) => format!("failed: {failed}; warnings: {warnings}\n"),
    }
}

/// One line for many steps that were left out for the same reason.
fn line_of_skipped(steps: &[Step]) -> String {
    let names: Vec<&str> = steps.iter().map(|step| step.step.name()).collect();
    let why = steps.first().map_or("", |step| step.detail.as_str());
    format!("  -  {}: {why}\n", names.join(", "))
}

/// How lines are drawn.
#[derive(Debug, Clone, Copy)]
struct Page {
    colour: bool,
}

impl Page {
    fn section(self, heading: &str, steps: &[Step]) -> String {
        let mut text = format!("{}\n", self.painted(heading, "1"));
        let alike = |one: &Step, other: &Step| {
            let skipped = |step: &Step| step.status == Status::Skipped;
            skipped(one) && skipped(other) && one.detail == other.detail
        };
        for group in steps.chunk_by(alike) {
            match group {
                [step] => text.push_str(&self.line(step)),
                skipped => text.push_str(&line_of_skipped(skipped)),
            }
        }
        text.push('\n');
        text
    }

    fn line(self, step: &Step) -> String {
        // Padded before it is painted, for colours count as characters.
        let mark = match step.status {
            Status::Ok => self.painted("ok", "32"),
            Status::Warning => self.painted("! ", "33"),
            Status::Failed => self.painted("x ", "31"),
            Status::Skipped => "- ".to_owned(),
        };
        let name = step.step.name();
        let time = step.ms.map_or_else(String::new, |ms| format!(" ({ms} ms)"));
        let mut text = format!("  {mark} {name:12} {}{time}", step.detail);
        text.truncate(text.trim_end().len());
        text.push('\n');
        if let Some(fix) = &step.fix {
            text.push_str(&format!("     {:12} fix: {fix}\n", ""));
        }
        text
    }

    fn painted(self, text: &str, code: &str) -> String {
        match self.colour {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use remote_sandbox_core::doctor::StepName;

    use super::*;

    fn steps() -> Vec<Step> {
        vec![
            Step::ok(StepName::Dns, "127.0.0.1").took(Duration::from_millis(3)),
            Step::failed(StepName::Tcp, "refused", "start it"),
            Step::skipped(StepName::Banner, "not come to, see tcp"),
            Step::skipped(StepName::Auth, "not come to, see tcp"),
        ]
    }

    #[test]
    fn section_has_a_line_per_step_and_the_fix_below() {
        let text = Page { colour: false }.section("box", &steps());
        let expected = "box\n  ok dns          127.0.0.1 (3 ms)\n  x  tcp          refused\n                  fix: start it\n  -  banner, auth: not come to, see tcp\n\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn section_is_painted_only_when_colours_are_welcome() {
        let text = Page { colour: true }.section("box", &steps());
        assert!(text.contains("\x1b[31mx \x1b[0m tcp"), "{text:?}");
        assert!(
            !Page { colour: false }
                .section("box", &steps())
                .contains('\x1b')
        );
    }
}
