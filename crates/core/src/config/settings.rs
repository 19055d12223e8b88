//! Reads what holds for all sandboxes: from the file first, then from the environment, which wins.

use super::entry;
use super::fields::Fields;
use super::paths::variable;
use super::toolset::{self, WANTED_TOOLSETS};
use super::{Environment, Fault, Origin, Place, Problem, ResultStyle, Settings};

const WANTED_WHOLE: &str = "a whole number";
const WANTED_STYLE: &str = "\"json\" or \"text\"";
const WANTED_SWITCH: &str = "one of 1, true, yes, on, 0, false, no, off";

/// Takes the settings of the file; a setting that is wrong keeps its default.
pub(super) fn read_file(fields: &Fields<'_>, settings: &mut Settings, problems: &mut Vec<Problem>) {
    keep(
        fields.flag("advanced_tools"),
        &mut settings.advanced_tools,
        problems,
    );
    keep(
        bound(fields, "inline_sync_max_files"),
        &mut settings.inline_sync_max_files,
        problems,
    );
    keep(
        bound(fields, "inline_sync_max_bytes"),
        &mut settings.inline_sync_max_bytes,
        problems,
    );
    keep(result_style(fields), &mut settings.result_style, problems);
    keep(
        entry::policy(fields),
        &mut settings.host_key_policy,
        problems,
    );
    keep(
        toolset::read(fields).map(|read| read.map(Some)),
        &mut settings.toolsets,
        problems,
    );
}

/// Takes the settings of the environment; one that is not understood leaves what was there.
pub(super) fn read_environment(
    environment: &Environment,
    settings: &mut Settings,
    problems: &mut Vec<Problem>,
) {
    let mut take = |name: &'static str, wanted, apply: &mut dyn FnMut(&str) -> bool| {
        if let Some(text) = variable(environment, name)
            && !apply(text.trim())
        {
            problems.push(Problem {
                place: Box::new(Place::whole(Origin::Variable(name))),
                fault: Fault::Ignored { wanted },
            });
        }
    };
    take(
        "REMOTE_SANDBOX_EXPOSE_ADVANCED_TOOLS",
        WANTED_SWITCH,
        &mut |text| store(switch(text), &mut settings.advanced_tools),
    );
    take(
        "REMOTE_SANDBOX_INLINE_SYNC_MAX_FILES",
        WANTED_WHOLE,
        &mut |text| store(bound_text(text), &mut settings.inline_sync_max_files),
    );
    take(
        "REMOTE_SANDBOX_INLINE_SYNC_MAX_BYTES",
        WANTED_WHOLE,
        &mut |text| store(bound_text(text), &mut settings.inline_sync_max_bytes),
    );
    take("REMOTE_SANDBOX_RESULT_STYLE", WANTED_STYLE, &mut |text| {
        store(style(text), &mut settings.result_style)
    });
    take("REMOTE_SANDBOX_WATCHDOG", WANTED_SWITCH, &mut |text| {
        store(switch(text), &mut settings.watchdog)
    });
    take("REMOTE_SANDBOX_TOOLSETS", WANTED_TOOLSETS, &mut |text| {
        store(toolset::from_text(text).map(Some), &mut settings.toolsets)
    });
}

fn keep<T>(read: Result<Option<T>, Problem>, setting: &mut T, problems: &mut Vec<Problem>) {
    match read {
        Ok(Some(value)) => *setting = value,
        Ok(None) => {}
        Err(problem) => problems.push(problem),
    }
}

fn store<T>(read: Option<T>, setting: &mut T) -> bool {
    match read {
        Some(value) => {
            *setting = value;
            true
        }
        None => false,
    }
}

fn bound(fields: &Fields<'_>, key: &str) -> Result<Option<u64>, Problem> {
    let number = fields.whole(key, WANTED_WHOLE)?;
    Ok(number.map(|number| u64::try_from(number).unwrap_or(0)))
}

fn result_style(fields: &Fields<'_>) -> Result<Option<ResultStyle>, Problem> {
    let key = "result_style";
    match fields.text(key)? {
        None => Ok(None),
        Some(text) => match style(text) {
            Some(style) => Ok(Some(style)),
            None => Err(fields.problem(key, Fault::Wanted(WANTED_STYLE))),
        },
    }
}

/// A negative bound means the same as zero: everything goes to the background.
fn bound_text(text: &str) -> Option<u64> {
    let number: i128 = text.parse().ok()?;
    u64::try_from(number.max(0)).ok()
}

fn style(text: &str) -> Option<ResultStyle> {
    match text.to_ascii_lowercase().as_str() {
        "json" => Some(ResultStyle::Json),
        "text" => Some(ResultStyle::Text),
        _ => None,
    }
}

fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
