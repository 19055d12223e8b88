//! Takes over the watches that the Python package left behind, once, and without changing a file of its.

use std::collections::BTreeMap;
use std::time::Duration;

use remote_sandbox_core::config::SandboxEntry;
use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::job::{OrderError, WatchOrder, WatchWish};
use remote_sandbox_core::watch::PolicyRefusal;
use serde_json::{Map, Value};

use super::Engine;
use crate::call::Principal;
use crate::clock;
use crate::fsio;
use crate::store::{
    ForeignWatch, NewWatch, OldWatch, PackageError, PackageStore, TakenWatch, read_package_store,
};

/// A watchdog of the package that has not shown itself for so long does not run.
const STALE_AFTER: Duration = Duration::from_secs(180);

/// The file in which the package keeps its sandboxes, and how large it may be.
const SANDBOXES: &str = "config.json";
const LARGEST: u64 = 1 << 20;

/// How the package has a Codex woken for some events; its program stands between the two.
const WAKE_BEGINS: &str = r#"case "$RSMCP_EVENT_TYPE" in "#;
const WAKE_ENDS: &str = r#" exec "$RSMCP_SUGGESTED_PROMPT" ;; esac"#;

/// The same as the package's document shows it.
const WAKES_CODEX: &str = r#"codex exec "$RSMCP_SUGGESTED_PROMPT""#;

/// What came of looking for watches of the package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeOver {
    /// There is nothing of the package.
    Nothing,
    /// Its own watchdog works, so they stay with it.
    InUse,
    /// So many were taken over now.
    Taken(usize),
}

impl Engine {
    /// Takes over the watches of the Python package that go on, each once, unless its own watchdog works.
    pub async fn take_over_package(&self) -> Result<TakeOver, Failure> {
        let folder = self.state.clone();
        let reading = tokio::task::spawn_blocking(move || read_package_store(&folder)).await;
        let package = match reading {
            Ok(Ok(Some(package))) => package,
            Ok(Ok(None)) => return Ok(TakeOver::Nothing),
            Ok(Err(PackageError::InUse(_))) => return Ok(TakeOver::InUse),
            Ok(Err(error)) => {
                return Err(Failure::new(Code::StoreUnavailable, Failure::chain(&error)));
            }
            Err(error) => return Err(Failure::new(Code::Internal, error.to_string())),
        };
        if is_alive(&package, clock::wall()) {
            return Ok(TakeOver::InUse);
        }
        let taken = self.store().taken_over().await?;
        let is_new = |watch: &&OldWatch| !taken.contains(&mark(watch));
        let new: Vec<&OldWatch> = package.watches.iter().filter(is_new).collect();
        if new.is_empty() {
            return Ok(TakeOver::Taken(0));
        }
        let sandboxes = self.package_sandboxes();
        let mut keys = BTreeMap::new();
        let mut watches = Vec::with_capacity(new.len());
        for old in new {
            match order_of(old) {
                Ok(order) => {
                    let order = self.allowed(old, order);
                    if !keys.contains_key(&old.sandbox) {
                        let key = self.key_for(&old.sandbox, &sandboxes).await;
                        keys.insert(old.sandbox.clone(), key);
                    }
                    let entry = keys.get(&old.sandbox).cloned().flatten();
                    watches.push(self.taken(old, order, entry));
                }
                Err(error) => {
                    let why = Failure::chain(&error);
                    tracing::warn!(
                        watch = old.id,
                        "a watch of the Python package cannot be taken over: {why}"
                    );
                }
            }
        }
        Ok(TakeOver::Taken(self.store().take_over(watches).await?))
    }

    /// What of a watch the user allows now; the package asked nobody.
    fn allowed(&self, old: &OldWatch, mut order: WatchOrder) -> WatchOrder {
        let left_out = |what: &str, refusal: &PolicyRefusal| {
            let hint = refusal.hint();
            tracing::warn!(watch = old.id, "its {what} is left out: {refusal}; {hint}");
        };
        if let Some(command) = &order.event_command
            && let Err(refusal) = self.events.check_command("event_command", command)
        {
            // What the package itself writes is what wakes a Codex here, and that is allowed.
            order.codex_wakeup = wakes_codex(command);
            if !order.codex_wakeup {
                left_out("event_command", &refusal);
            }
            order.event_command = None;
        }
        if let Some(address) = &order.webhook_url
            && let Err(refusal) = self.events.check_webhook(address)
        {
            left_out("webhook_url", &refusal);
            order.webhook_url = None;
        }
        order
    }

    fn taken(&self, old: &OldWatch, order: WatchOrder, entry: Option<String>) -> TakenWatch {
        let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        TakenWatch {
            number: old.id,
            mark: mark(old),
            resumes: count(old.resume_attempts),
            watch: ForeignWatch {
                principal: Principal::local().as_str().to_owned(),
                sandbox: old.sandbox.clone(),
                session: old.session.clone(),
                log_file: old.log_file.clone(),
                cwd: given(&old.cwd),
                launch_command: self.mask.mask_text(&old.launch_command).into_owned(),
                run_id: given(&old.run_id),
                name: given(&old.name),
                metadata: given(&old.metadata_json).filter(|text| text != "{}"),
                watch: NewWatch { order, entry },
            },
        }
    }

    /// The key under which the entry of a sandbox is kept: that of our own configuration, else of the package's.
    async fn key_for(
        &self,
        name: &str,
        sandboxes: &BTreeMap<String, Map<String, Value>>,
    ) -> Option<String> {
        let is_ours = |entry: &SandboxEntry| entry.name() == name;
        let kept = if self.entries.iter().any(is_ours) {
            self.persist_sandbox(name).await
        } else {
            let config = self.config_of(sandboxes.get(name)?.clone())?;
            self.persist_config(&config).await.map(Some)
        };
        match kept {
            Ok(key) => key,
            Err(failure) => {
                tracing::warn!(sandbox = name, "its entry is not kept: {}", failure.message);
                None
            }
        }
    }

    /// The sandboxes that the package has written down, by name.
    fn package_sandboxes(&self) -> BTreeMap<String, Map<String, Value>> {
        let path = self.state.join(SANDBOXES);
        let content = match fsio::read_bounded(&path, LARGEST) {
            Ok(Some(content)) => content,
            Ok(None) => return BTreeMap::new(),
            Err(error) => {
                tracing::warn!("{}", Failure::chain(&error));
                return BTreeMap::new();
            }
        };
        serde_json::from_slice(&content).map_or_else(|_| BTreeMap::new(), named_entries)
    }
}

/// Whether a command only wakes a Codex. The case names types of events, which have no closing bracket.
fn wakes_codex(command: &str) -> bool {
    let command = command.trim();
    let middle = command.strip_prefix(WAKE_BEGINS);
    let middle = middle.and_then(|rest| rest.strip_suffix(WAKE_ENDS));
    let program = middle.and_then(|middle| middle.split_once(") "));
    let is_word = |letter: char| letter.is_alphanumeric() || "/._+-".contains(letter);
    command == WAKES_CODEX
        || program.is_some_and(|(_, program)| {
            let name = program.rsplit('/').next();
            program.chars().all(is_word) && name == Some("codex")
        })
}

/// What tells a watch of the package from all others, also when its file was begun anew.
fn mark(old: &OldWatch) -> String {
    format!("{}:{}", old.id, old.created)
}

fn is_alive(package: &PackageStore, now: Duration) -> bool {
    // One that is ahead of our clock is as good as one that is behind.
    package
        .heartbeat
        .is_some_and(|at| at.abs_diff(now) <= STALE_AFTER)
}

fn count(number: Option<i64>) -> u32 {
    u32::try_from(number.unwrap_or(0)).unwrap_or(0)
}

/// A list of entries, or an object that has one, or one that has them by their names.
fn named_entries(text: Value) -> BTreeMap<String, Map<String, Value>> {
    let text = match text {
        Value::Object(mut members) => match members.remove("sandboxes") {
            Some(sandboxes) => sandboxes,
            None => Value::Object(members),
        },
        text => text,
    };
    let entries: Vec<(Option<String>, Value)> = match text {
        Value::Array(entries) => entries.into_iter().map(|entry| (None, entry)).collect(),
        Value::Object(entries) => entries.into_iter().map(|(k, v)| (Some(k), v)).collect(),
        _ => Vec::new(),
    };
    let mut named = BTreeMap::new();
    for (name, entry) in entries {
        let Value::Object(mut entry) = entry else {
            continue;
        };
        let own = entry.get("name").or_else(|| entry.get("host"));
        let own = own.and_then(Value::as_str).map(str::to_owned);
        if let Some(name) = name.or(own) {
            entry.insert("name".to_owned(), Value::from(name.clone()));
            named.insert(name, entry);
        }
    }
    named
}

/// What was wanted of a watch. The package has written down more than it can do: what it would never have done is left
/// out.
fn order_of(old: &OldWatch) -> Result<WatchOrder, OrderError> {
    let usual = WatchWish::default();
    let is_set = |number: Option<i64>, usual: bool| number.map_or(usual, |number| number != 0);
    let plan = match old.resume_plan_json.trim() {
        "" | "{}" | "null" => String::new(),
        plan => plan.to_owned(),
    };
    let mut wish = WatchWish {
        ensure_watchdog: false,
        resume_command: old.resume_command.clone(),
        resume_plan_json: plan,
        checkpoint_path: old.checkpoint_path.clone(),
        checkpoint_format: match old.checkpoint_format.as_str() {
            "json" => "json".to_owned(),
            _ => "text".to_owned(),
        },
        checkpoint_command: old.checkpoint_command.clone(),
        interval_s: old.interval_s.unwrap_or(usual.interval_s).max(1),
        max_log_lines: old.max_log_lines.unwrap_or(usual.max_log_lines).max(1),
        webhook_url: old.webhook_url.clone(),
        event_command: old.event_command.clone(),
        auto_resume: is_set(old.auto_resume, false),
        max_resume_attempts: old
            .max_resume_attempts
            .unwrap_or(usual.max_resume_attempts)
            .max(0),
        notify_local: is_set(old.notify_local, true),
        alert_after_failures: old
            .alert_after_failures
            .unwrap_or(usual.alert_after_failures)
            .max(1),
        resume_delay_s: old.resume_delay_s.unwrap_or(usual.resume_delay_s).max(0),
        ..usual
    };
    for _ in 0..3 {
        match wish.clone().check() {
            Err(OrderError::NothingToResume) => wish.auto_resume = false,
            Err(OrderError::Webhook { .. }) => wish.webhook_url.clear(),
            Err(error) if !wish.resume_plan_json.is_empty() => {
                let why = Failure::chain(&error);
                tracing::warn!(watch = old.id, "its resume_plan_json is left out: {why}");
                wish.resume_plan_json.clear();
            }
            checked => return checked,
        }
    }
    wish.check()
}

#[cfg(test)]
#[path = "takeover_tests.rs"]
mod tests;
