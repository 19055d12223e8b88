//! To whom an event goes, and how often that is tried.

use std::fmt;

use super::EventType;
use crate::config::WatchdogSettings;
use crate::job::WatchOrder;

/// How often a delivery is tried before it is given up.
pub const MOST_TRIES: u32 = 12;

/// The pause after the first try, in milliseconds; it doubles each time.
const FIRST_PAUSE_MS: u64 = 10_000;

/// The longest pause, in milliseconds.
const LONGEST_PAUSE_MS: u64 = 3_600_000;

/// A way by which an event is told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Channel {
    /// Posted to the `webhook_url` of the watch.
    Webhook,
    /// By the `event_command` of the watch.
    Command,
    /// A Codex of this machine is woken.
    Codex,
    /// A Claude Code of this machine is woken.
    Claude,
    /// The user of this machine is told.
    Local,
    /// By a notifier of the configuration, under its name.
    Notifier(String),
}

impl Channel {
    /// Its word, as it is stored.
    pub fn word(&self) -> String {
        self.to_string()
    }

    /// Reads its word.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "webhook" => Channel::Webhook,
            "command" => Channel::Command,
            "codex" => Channel::Codex,
            "claude" => Channel::Claude,
            "local" => Channel::Local,
            word => Channel::Notifier(word.strip_prefix("notifier:")?.to_owned()),
        })
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Channel::Webhook => "webhook",
            Channel::Command => "command",
            Channel::Codex => "codex",
            Channel::Claude => "claude",
            Channel::Local => "local",
            Channel::Notifier(name) => return write!(formatter, "notifier:{name}"),
        })
    }
}

/// When a delivery that has failed so many times is tried again, in milliseconds since 1970; none when it is given up.
pub fn next_try(tries: u32, now_ms: u64) -> Option<u64> {
    if tries >= MOST_TRIES {
        return None;
    }
    let doublings = tries.saturating_sub(1);
    let pause = FIRST_PAUSE_MS.saturating_mul(1_u64.checked_shl(doublings).unwrap_or(u64::MAX));
    Some(now_ms.saturating_add(pause.min(LONGEST_PAUSE_MS)))
}

/// Whether an event is worth the attention of the person at this machine.
pub fn is_for_people(event: EventType) -> bool {
    !matches!(event, EventType::RunningRestored | EventType::ResumeStarted)
}

/// Whether an event wakes an agent.
pub fn wakes(event: EventType) -> bool {
    matches!(
        event,
        EventType::SshUnreachable
            | EventType::Interrupted
            | EventType::ResumeFailed
            | EventType::Completed
            | EventType::ConfigMissing
            | EventType::Exhausted
            | EventType::Stalled
    )
}

/// All ways by which an event of a watch is told.
pub fn channels(order: &WatchOrder, settings: &WatchdogSettings, event: EventType) -> Vec<Channel> {
    let own = [
        (order.webhook_url.is_some(), Channel::Webhook),
        (order.event_command.is_some(), Channel::Command),
        (order.codex_wakeup && wakes(event), Channel::Codex),
        (order.claude_wakeup && wakes(event), Channel::Claude),
        (order.notify_local && is_for_people(event), Channel::Local),
    ];
    let own = own
        .into_iter()
        .filter_map(|(is_wanted, channel)| is_wanted.then_some(channel));
    let notifiers = settings.notifiers.iter();
    let named = notifiers
        .filter(|notifier| notifier.wants(event))
        .map(|notifier| Channel::Notifier(notifier.name.clone()));
    own.chain(named).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::super::testing::order;
    use super::*;

    #[test]
    fn channel_is_read_from_its_word() {
        let all = [
            Channel::Webhook,
            Channel::Command,
            Channel::Codex,
            Channel::Claude,
            Channel::Local,
            Channel::Notifier("phone".to_owned()),
        ];
        for channel in all {
            assert_eq!(Channel::parse(&channel.word()), Some(channel));
        }
        assert_eq!(Channel::parse("pigeon"), None);
    }

    #[test]
    fn pauses_double_to_an_hour_and_end() {
        let pauses: Vec<_> = (1..=12).map(|tries| next_try(tries, 5)).collect();
        assert_eq!(pauses[0], Some(10_005));
        assert_eq!(pauses[1], Some(20_005));
        assert_eq!(pauses[10], Some(3_600_005));
        assert_eq!(pauses[11], None);
    }

    #[rstest]
    #[case(EventType::Completed, &["webhook", "command", "codex", "claude", "local"])]
    #[case(EventType::RunningRestored, &["webhook", "command"])]
    #[case(EventType::Alarm, &["webhook", "command", "local"])]
    fn event_goes_where_it_is_wanted(#[case] event: EventType, #[case] words: &[&str]) {
        let settings = WatchdogSettings::default();
        assert!(channels(&order(), &settings, event).is_empty());
        let mut order = order();
        order.webhook_url = Some("https://h/".to_owned());
        order.event_command = Some("true".to_owned());
        (order.codex_wakeup, order.claude_wakeup) = (true, true);
        order.notify_local = true;
        let found = channels(&order, &settings, event);
        let found: Vec<_> = found.iter().map(Channel::word).collect();
        assert_eq!(found, words);
    }

    proptest! {
        #[test]
        fn next_try_is_never_before_now_nor_further_than_an_hour(tries in any::<u32>(), now in any::<u64>()) {
            match next_try(tries, now) {
                Some(next) => prop_assert!(next >= now && next - now <= LONGEST_PAUSE_MS && tries < MOST_TRIES),
                None => prop_assert!(tries >= MOST_TRIES),
            }
        }
    }
}
