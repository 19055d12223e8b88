//! What is wanted of a watch, as `job start` and `watch add` take it.

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::job::{WatchOrder, WatchWish};

use crate::report::Failed;

/// The arguments of the tools about watching, one to one; what is not given is what the tools take then.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What the watchdog does about it")]
pub(crate) struct WatchOptions {
    /// Command that takes up the work again
    #[arg(long, value_name = "COMMAND")]
    resume_command: Option<String>,
    /// The same and more as a JSON object
    #[arg(long, value_name = "JSON")]
    resume_plan_json: Option<String>,
    /// Run the resume command by itself when the task is gone
    #[arg(long)]
    auto_resume: bool,
    /// How often at most
    #[arg(long, value_name = "N", default_value_t = WatchWish::default().max_resume_attempts)]
    max_resume_attempts: i64,
    /// How long after the task was found gone
    #[arg(long, value_name = "SECONDS", default_value_t = WatchWish::default().resume_delay_s)]
    resume_delay: i64,
    /// File in which the task tells how far it is
    #[arg(long, visible_alias = "checkpoint", value_name = "FILE")]
    checkpoint_path: Option<String>,
    /// Command that tells it instead
    #[arg(long, value_name = "COMMAND")]
    checkpoint_command: Option<String>,
    /// The checkpoint is JSON
    #[arg(long)]
    checkpoint_json: bool,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value_t = WatchWish::default().interval_s)]
    interval: i64,
    /// Tell when the log has not grown for so long; 0 for never
    #[arg(long, value_name = "SECONDS", default_value_t = WatchWish::default().stall_after_s)]
    stall_after: i64,
    /// Looks in a row that must fail before that is told
    #[arg(long, value_name = "N", default_value_t = WatchWish::default().alert_after_failures)]
    alert_after_failures: i64,
    /// Lines of log in an event
    #[arg(long, value_name = "N", default_value_t = WatchWish::default().max_log_lines)]
    max_log_lines: i64,
    /// Post events there; its host must be listed in the configuration
    #[arg(long, value_name = "URL")]
    webhook_url: Option<String>,
    /// Run this here at an event; it must be listed in the configuration
    #[arg(long, value_name = "COMMAND")]
    event_command: Option<String>,
    /// Wake a Codex of this machine at an event
    #[arg(long)]
    codex_wakeup: bool,
    /// Command for that instead of the usual one
    #[arg(long, value_name = "COMMAND")]
    codex_command: Option<String>,
    /// Wake a Claude Code of this machine at an event
    #[arg(long)]
    claude_wakeup: bool,
    /// Command for that instead of the usual one
    #[arg(long, value_name = "COMMAND")]
    claude_command: Option<String>,
    /// Show no notification on this machine
    #[arg(long)]
    no_notify_local: bool,
    /// Do not start the watchdog where it does not run
    #[arg(long)]
    no_watchdog: bool,
}

impl WatchOptions {
    /// What is wanted, checked as the tools check it.
    pub(crate) fn order(&self) -> Result<WatchOrder, Failed> {
        let text = |given: &Option<String>| given.clone().unwrap_or_default();
        let format = if self.checkpoint_json { "json" } else { "text" };
        let wish = WatchWish {
            ensure_watchdog: !self.no_watchdog,
            resume_command: text(&self.resume_command),
            resume_plan_json: text(&self.resume_plan_json),
            checkpoint_path: text(&self.checkpoint_path),
            checkpoint_format: format.to_owned(),
            checkpoint_command: text(&self.checkpoint_command),
            interval_s: self.interval,
            max_log_lines: self.max_log_lines,
            webhook_url: text(&self.webhook_url),
            event_command: text(&self.event_command),
            auto_resume: self.auto_resume,
            max_resume_attempts: self.max_resume_attempts,
            notify_local: !self.no_notify_local,
            alert_after_failures: self.alert_after_failures,
            resume_delay_s: self.resume_delay,
            codex_wakeup: self.codex_wakeup,
            codex_command: text(&self.codex_command),
            claude_wakeup: self.claude_wakeup,
            claude_command: text(&self.claude_command),
            stall_after_s: self.stall_after,
        };
        let wrong = |error| Failure::new(Code::InvalidParams, Failure::chain(&error));
        Ok(wish.check().map_err(wrong)?)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: WatchOptions,
    }

    fn order(words: &[&str]) -> Result<WatchOrder, Failed> {
        let words = ["x"].iter().chain(words);
        Line::try_parse_from(words).unwrap().options.order()
    }

    #[test]
    fn watch_of_the_command_line_is_that_of_the_tools_when_nothing_is_said() {
        let usual = WatchWish::default().check().unwrap();
        assert_eq!(order(&[]).unwrap(), usual);
    }

    #[test]
    fn every_option_reaches_the_watch() {
        let all = [
            "--resume-command=a",
            "--resume-plan-json={\"b\":1}",
            "--auto-resume",
            "--max-resume-attempts=2",
            "--resume-delay=3",
            "--checkpoint=c",
            "--checkpoint-command=d",
            "--checkpoint-json",
            "--interval=4",
            "--stall-after=5",
            "--alert-after-failures=6",
            "--max-log-lines=7",
            "--webhook-url=https://h.example/",
            "--event-command=e",
            "--codex-wakeup",
            "--codex-command=f",
            "--claude-wakeup",
            "--claude-command=g",
            "--no-notify-local",
            "--no-watchdog",
        ];
        let usual = serde_json::to_value(order(&[]).unwrap()).unwrap();
        let found = serde_json::to_value(order(&all).unwrap()).unwrap();
        for (name, value) in usual.as_object().unwrap() {
            assert_ne!(found[name], *value, "{name}");
        }
        for (name, value) in usual["policy"].as_object().unwrap() {
            assert_ne!(found["policy"][name], *value, "{name}");
        }
        for one in all.iter().filter(|one| **one != "--auto-resume") {
            let single = serde_json::to_value(order(&[one]).unwrap()).unwrap();
            assert_ne!(single, usual, "{one}");
        }
    }

    #[test]
    fn resume_without_a_command_is_refused() {
        let failed = order(&["--auto-resume"]).unwrap_err();
        assert!(failed.to_string().contains("resume_command"), "{failed}");
    }
}
