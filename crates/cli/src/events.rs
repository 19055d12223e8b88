//! `events`: what happened to watched tasks.

use std::sync::Arc;
use std::time::Duration;

use remote_sandbox_core::output::clean_line;
use remote_sandbox_engine::call::{CallContext, Principal};
use remote_sandbox_engine::clock;
use remote_sandbox_engine::engine::{Engine, EventQuery};
use remote_sandbox_engine::store::{DeadLetter, EventRow};
use remote_sandbox_server::mcp::{dead_letter_json, event_json, event_list};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::arguments::Common;
use crate::engine::with_engine;
use crate::report::{Failed, notice, print, table};

/// Most events of one list.
const MOST: usize = 100;

/// How long one look waits for an event when it follows.
const WAIT: Duration = Duration::from_secs(60);

/// Show what happened to watched tasks, the newest first
#[derive(Debug, clap::Args)]
pub(crate) struct Events {
    /// Only those of this watch
    #[arg(long, value_name = "ID")]
    watch: Option<u64>,

    /// Those after this event, the oldest first
    #[arg(long, value_name = "ID")]
    after: Option<u64>,

    /// Those that could not be told, why, and by which way
    #[arg(long, conflicts_with_all = ["watch", "after", "follow"])]
    dead: bool,

    /// Go on and print each new event, until it is interrupted
    #[arg(short, long)]
    follow: bool,

    /// Print what the tool list_background_watch_events returns; when it follows, one event on each line
    #[arg(long)]
    pub(crate) json: bool,
}

impl Events {
    /// Prints them.
    pub(crate) fn run(&self, common: &Common) -> Result<(), Failed> {
        with_engine(common, |engine, stop| self.show(engine, stop))
    }

    async fn show(&self, engine: Arc<Engine>, stop: CancellationToken) -> Result<(), Failed> {
        let context = CallContext::new(Principal::local(), stop.clone());
        if self.dead {
            return self.show_dead(&engine, &context).await;
        }
        let mut query = EventQuery {
            watch: self.watch,
            after: self.after,
            most: MOST,
            wait: Duration::ZERO,
        };
        let report = engine.watch_events(&context, query).await?;
        if !self.follow {
            return print(&match self.json {
                true => format!("{:#}\n", event_list(&report, false)),
                false => page(&report.events),
            });
        }
        let mut events = report.events;
        if self.after.is_none() {
            events.reverse();
        }
        if !report.is_watchdog_alive {
            notice("no watchdog runs, so nothing new is noticed");
        }
        query.after = Some(report.last);
        query.wait = WAIT;
        loop {
            for event in &events {
                print(&self.line(event))?;
            }
            let report = match engine.watch_events(&context, query).await {
                Err(_) if stop.is_cancelled() => return Ok(()),
                report => report?,
            };
            query.after = Some(report.last);
            events = report.events;
        }
    }

    async fn show_dead(&self, engine: &Engine, context: &CallContext) -> Result<(), Failed> {
        let letters = engine.dead_letters(context, MOST).await?;
        print(&match self.json {
            true => {
                let letters: Vec<Value> = letters.iter().map(dead_letter_json).collect();
                format!("{:#}\n", json!({ "dead_letters": letters }))
            }
            false => dead_page(&letters),
        })
    }

    fn line(&self, event: &EventRow) -> String {
        match self.json {
            true => format!("{}\n", event_json(event)),
            false => format!("{}\n", cells(event).join("  ")),
        }
    }
}

fn page(events: &[EventRow]) -> String {
    let heading = ["ID", "TIME", "WATCH", "EVENT", "SANDBOX", "SUMMARY"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(events.iter().map(cells));
    table(&rows)
}

fn dead_page(letters: &[DeadLetter]) -> String {
    let heading = ["ID", "TIME", "WATCH", "EVENT", "WAY", "TRIES", "ERROR"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(letters.iter().map(|letter| {
        vec![
            letter.event.id.to_string(),
            clock::format_timestamp(letter.event.created),
            letter.event.watch.number().to_string(),
            letter.event.event_type.clone(),
            clean_line(&letter.channel, 64),
            letter.tries.to_string(),
            clean_line(letter.error.as_deref().unwrap_or("-"), 200),
        ]
    }));
    table(&rows)
}

fn cells(event: &EventRow) -> Vec<String> {
    vec![
        event.id.to_string(),
        clock::format_timestamp(event.created),
        event.watch.number().to_string(),
        event.event_type.clone(),
        clean_line(&event.sandbox, 64),
        clean_line(&event.summary, 200),
    ]
}
