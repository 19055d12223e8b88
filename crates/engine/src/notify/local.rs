//! Tells the person at this machine, where there is a way to do so.

use std::ffi::OsString;

use remote_sandbox_core::config::Platform;
use remote_sandbox_core::watch::{EventRecord, Notice, Weight, text_for_people};

use super::command::Run;
use super::{DeliveryError, NotifySettings};

/// Shows its two arguments; they are never part of the script.
const SCRIPT: [&str; 3] = [
    "on run argv",
    "display notification (item 2 of argv) with title (item 1 of argv)",
    "end run",
];

pub(super) async fn deliver(
    event: &EventRecord,
    settings: &NotifySettings,
) -> Result<(), DeliveryError> {
    let shown = show(event, settings).await;
    // Nobody is helped by a notice that comes hours later, and nobody can mend a missing desktop by waiting.
    shown.map_err(|error| DeliveryError::NotShown(Box::new(error)))
}

async fn show(event: &EventRecord, settings: &NotifySettings) -> Result<(), DeliveryError> {
    let notice = text_for_people(event);
    let (name, arguments) = match settings.platform {
        Platform::MacOs => ("osascript", for_osascript(notice)),
        Platform::Linux => ("notify-send", for_notify_send(notice)),
    };
    let is_seen = settings.platform == Platform::MacOs || settings.surroundings.has_session_bus();
    if !is_seen {
        return Err(DeliveryError::NoDesktop);
    }
    let program = settings.surroundings.find(name);
    let program = program.ok_or(DeliveryError::NoProgram(name))?;
    let run = Run {
        what: name,
        program: &program,
        arguments,
        variables: settings.surroundings.of_command(Vec::new()),
        limit: settings.limits.local,
    };
    run.carry_out(settings).await
}

fn for_osascript(notice: Notice) -> Vec<OsString> {
    let lines = SCRIPT.iter().flat_map(|line| ["-e".into(), (*line).into()]);
    // The title begins with the type of the event, never with a dash, and what follows it is no option either.
    let texts = [notice.title, notice.text].map(OsString::from);
    lines.chain(texts).collect()
}

fn for_notify_send(notice: Notice) -> Vec<OsString> {
    let urgency = match notice.weight {
        Weight::Low => "--urgency=low",
        Weight::Usual => "--urgency=normal",
        Weight::High => "--urgency=critical",
    };
    // The text may hold marks of its own, the title may not.
    let text = notice.text.replace('&', "&amp;");
    let text = text.replace('<', "&lt;").replace('>', "&gt;");
    let words = [
        "--app-name=remote-sandbox-mcp",
        urgency,
        "--",
        &notice.title,
        &text,
    ];
    words.into_iter().map(OsString::from).collect()
}
