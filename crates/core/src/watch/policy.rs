//! What a caller may have done on this machine when something happens.
//!
//! `event_command` and `webhook_url` are arguments that an agent can set, and an agent may have read them somewhere.
//! By themselves they may name only what the user has listed.

use std::fmt;
use std::net::SocketAddr;

use super::address::{
    AddressKind, HostPort, WebAddress, WebAddressError, judge_address, usable_addresses,
};
use crate::job::WatchOrder;
use crate::output::clean_line;

/// Longest piece of a caller's text in a refusal, in characters.
const LONGEST_SHOWN: usize = 200;

/// Which commands and addresses a caller may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AllowEvents {
    /// Those that the configuration lists.
    #[default]
    ConfigOnly,
    /// Any.
    Any,
}

impl AllowEvents {
    /// Reads the spelling used in the configuration.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "config-only" => Some(AllowEvents::ConfigOnly),
            "any" => Some(AllowEvents::Any),
            _ => None,
        }
    }
}

/// Why an argument is refused, with what the user could change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyRefusal {
    /// A command that is not listed.
    #[error("`{field}` names a command that the configuration does not list")]
    Command {
        /// The argument.
        field: &'static str,
        /// The command, short enough to be shown.
        shown: String,
    },
    /// A host that is not listed.
    #[error("`webhook_url` names the host `{host}`, which the configuration does not list")]
    Host {
        /// The host.
        host: String,
    },
    /// This machine, which is posted to only where it is listed.
    #[error(
        "`webhook_url` names the host `{host}`, which is this machine and is not listed in the configuration"
    )]
    Here {
        /// The host.
        host: String,
    },
    /// A name that means only addresses which are never posted to.
    #[error("`webhook_url` names the host `{host}`, which is at a {} address; that is never posted to", .kind.words())]
    Name {
        /// The host.
        host: String,
        /// What its address is.
        kind: AddressKind,
    },
    /// A text that is no address.
    #[error("`webhook_url` cannot be posted to: {0}")]
    Address(#[source] WebAddressError),
    /// An address that is never posted to.
    #[error("`webhook_url` names a {} address, which is never posted to", .0.words())]
    Kind(AddressKind),
}

impl PolicyRefusal {
    /// What to add where.
    pub fn hint(&self) -> String {
        match self {
            PolicyRefusal::Command { shown, .. } => format!(
                "nothing was started; the user can allow it in the table [watchdog] of the configuration file: event_commands = [{}], or allow_event_command = \"any\"; then restart the server",
                quoted(shown)
            ),
            PolicyRefusal::Host { host } => format!(
                "nothing was started; the user can allow it in the table [watchdog] of the configuration file: webhook_hosts = [{}], or allow_event_command = \"any\"; then restart the server",
                quoted(host)
            ),
            // Whoever may name any host may still not name this machine.
            PolicyRefusal::Here { host } => format!(
                "nothing was started; the user can allow it in the table [watchdog] of the configuration file: webhook_hosts = [{}]; then restart the server",
                quoted(host)
            ),
            PolicyRefusal::Address(_) | PolicyRefusal::Kind(_) | PolicyRefusal::Name { .. } => {
                "nothing was started; give another address, or none".to_owned()
            }
        }
    }
}

/// Whether a name means this machine wherever it is looked up.
fn is_local_name(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    host == "localhost" || host.ends_with(".localhost")
}

/// A text as TOML writes it.
fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// What the user allows callers.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct EventPolicy {
    /// Whether only what is listed.
    pub allow: AllowEvents,
    /// The commands that are listed.
    pub commands: Vec<String>,
    /// The hosts that are listed.
    pub webhook_hosts: Vec<HostPort>,
}

impl fmt::Debug for EventPolicy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A command line may hold a token.
        formatter
            .debug_struct("EventPolicy")
            .field("allow", &self.allow)
            .field("commands", &self.commands.len())
            .field("webhook_hosts", &self.webhook_hosts)
            .finish()
    }
}

impl EventPolicy {
    /// Whether everything that a caller wants is allowed. That an agent is woken by its usual command always is.
    pub fn check(&self, order: &WatchOrder) -> Result<(), PolicyRefusal> {
        let commands = [
            ("event_command", &order.event_command),
            ("codex_command", &order.codex_command),
            ("claude_command", &order.claude_command),
        ];
        for (field, command) in commands {
            if let Some(command) = command {
                self.check_command(field, command)?;
            }
        }
        match &order.webhook_url {
            Some(url) => self.check_webhook(url).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Whether a caller may have this command run; `field` is the argument that names it.
    pub fn check_command(&self, field: &'static str, command: &str) -> Result<(), PolicyRefusal> {
        let is_listed = || {
            let mut listed = self.commands.iter();
            listed.any(|listed| listed.trim() == command.trim())
        };
        if self.allow == AllowEvents::Any || is_listed() {
            return Ok(());
        }
        Err(PolicyRefusal::Command {
            field,
            shown: clean_line(command, LONGEST_SHOWN),
        })
    }

    /// Whether a caller may have events posted there, and the address as it is read.
    pub fn check_webhook(&self, url: &str) -> Result<WebAddress, PolicyRefusal> {
        let address = WebAddress::parse(url).map_err(PolicyRefusal::Address)?;
        // First what no list changes: the hint must not be in vain.
        let is_here = match address.ip().map(judge_address) {
            None => is_local_name(address.host()),
            Some(AddressKind::Usual) => false,
            Some(AddressKind::Loopback) => true,
            Some(kind) => return Err(PolicyRefusal::Kind(kind)),
        };
        if self.lists(&address) || (self.allow == AllowEvents::Any && !is_here) {
            return Ok(address);
        }
        let host = address.host().to_owned();
        Err(match is_here {
            true => PolicyRefusal::Here { host },
            false => PolicyRefusal::Host { host },
        })
    }

    /// Whether one of the addresses that the name of a host means may be posted to. Where none was found, that is not
    /// known.
    pub fn check_found(
        &self,
        address: &WebAddress,
        found: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<(), PolicyRefusal> {
        let mut found = found.into_iter().peekable();
        if found.peek().is_none() {
            return Ok(());
        }
        let host = address.host().to_owned();
        match usable_addresses(found, self.lists(address)) {
            Ok(_) => Ok(()),
            Err(AddressKind::Loopback) => Err(PolicyRefusal::Here { host }),
            Err(kind) => Err(PolicyRefusal::Name { host, kind }),
        }
    }

    /// Whether the host of an address is listed, which also allows it to be this machine.
    pub fn lists(&self, address: &WebAddress) -> bool {
        self.webhook_hosts.iter().any(|listed| listed.fits(address))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::testing::order;
    use super::*;

    fn listed() -> EventPolicy {
        EventPolicy {
            allow: AllowEvents::ConfigOnly,
            commands: vec!["notify.sh".to_owned()],
            webhook_hosts: vec![HostPort::parse("hooks.example").unwrap()],
        }
    }

    fn any() -> EventPolicy {
        EventPolicy {
            allow: AllowEvents::Any,
            ..listed()
        }
    }

    #[test]
    fn waking_agents_is_allowed_and_their_own_commands_are_not() {
        let mut order = order();
        (order.codex_wakeup, order.claude_wakeup) = (true, true);
        assert_eq!(EventPolicy::default().check(&order), Ok(()));
        order.claude_command = Some("evil".to_owned());
        let refusal = EventPolicy::default().check(&order).unwrap_err();
        assert!(refusal.to_string().contains("claude_command"), "{refusal}");
        order.claude_command = None;
        order.codex_command = Some("notify.sh ".to_owned());
        assert_eq!(listed().check(&order), Ok(()));
    }

    #[rstest]
    #[case("notify.sh", true)]
    #[case("notify.sh; evil", false)]
    #[case("notify.sh --x", false)]
    fn only_a_listed_command_is_allowed(#[case] command: &str, #[case] is_allowed: bool) {
        let mut order = order();
        order.event_command = Some(command.to_owned());
        assert_eq!(listed().check(&order).is_ok(), is_allowed);
        assert_eq!(any().check(&order), Ok(()));
    }

    #[rstest]
    #[case("https://hooks.example/x", true, true)]
    #[case("https://HOOKS.example:8443/x", true, true)]
    #[case("https://hooks.example.evil.org/x", false, true)]
    #[case("https://other.example/x", false, true)]
    #[case("http://169.254.169.254/latest", false, false)]
    #[case("http://[::ffff:169.254.169.254]/latest", false, false)]
    #[case("http://127.0.0.1:1/", false, false)]
    #[case("http://localhost:9/x", false, false)]
    #[case("http://LOCALHOST.:9/x", false, false)]
    #[case("http://a.localhost/x", false, false)]
    #[case("http://hooks.example@evil.org/", false, false)]
    fn only_a_listed_host_is_allowed(
        #[case] url: &str,
        #[case] is_listed: bool,
        #[case] is_any: bool,
    ) {
        assert_eq!(listed().check_webhook(url).is_ok(), is_listed);
        assert_eq!(any().check_webhook(url).is_ok(), is_any);
    }

    #[test]
    fn link_local_address_is_refused_even_when_it_is_listed() {
        let mut policy = listed();
        policy.webhook_hosts = vec![
            HostPort::parse("169.254.169.254").unwrap(),
            HostPort::parse("127.0.0.1").unwrap(),
        ];
        let refusal = policy.check_webhook("http://169.254.169.254/").unwrap_err();
        assert_eq!(refusal, PolicyRefusal::Kind(AddressKind::LinkLocal));
        assert!(policy.check_webhook("http://127.0.0.1:9/").is_ok());
    }

    #[test]
    fn hint_for_a_link_local_address_does_not_suggest_to_list_it() {
        for policy in [EventPolicy::default(), listed(), any()] {
            let refusal = policy.check_webhook("http://169.254.169.254/").unwrap_err();
            assert_eq!(refusal, PolicyRefusal::Kind(AddressKind::LinkLocal));
            let hint = refusal.hint();
            assert!(!hint.contains("webhook_hosts"), "{hint}");
        }
    }

    #[rstest]
    #[case("http://127.0.0.1:9/x", "127.0.0.1")]
    #[case("http://localhost:9/x", "localhost")]
    fn this_machine_must_be_listed_and_the_hint_says_only_that(
        #[case] url: &str,
        #[case] host: &str,
    ) {
        for policy in [EventPolicy::default(), any()] {
            let hint = policy.check_webhook(url).unwrap_err().hint();
            let wanted = format!("webhook_hosts = [\"{host}\"]");
            assert!(hint.contains(&wanted) && !hint.contains("any"), "{hint}");
        }
        let mut policy = any();
        policy.webhook_hosts = vec![HostPort::parse(host).unwrap()];
        assert!(policy.check_webhook(url).is_ok());
    }

    #[rstest]
    #[case(&[], true, true)]
    #[case(&["127.0.0.1:1"], false, true)]
    #[case(&["127.0.0.1:1", "[::1]:1"], false, true)]
    #[case(&["169.254.169.254:1"], false, false)]
    #[case(&["169.254.169.254:1", "203.0.113.9:1"], true, true)]
    fn name_whose_addresses_are_all_refused_is_refused(
        #[case] found: &[&str],
        #[case] is_allowed: bool,
        #[case] is_allowed_when_listed: bool,
    ) {
        let found: Vec<SocketAddr> = found.iter().map(|one| one.parse().unwrap()).collect();
        let address = WebAddress::parse("http://hooks.example/").unwrap();
        let unlisted = EventPolicy::default();
        let checked = unlisted.check_found(&address, found.clone());
        assert_eq!(checked.is_ok(), is_allowed, "{checked:?}");
        let checked = listed().check_found(&address, found);
        assert_eq!(checked.is_ok(), is_allowed_when_listed, "{checked:?}");
    }

    #[test]
    fn refusal_says_what_to_add_where_and_it_is_toml() {
        let command = "echo \"a\\b\" 'c'";
        let refusal = listed()
            .check_command("event_command", command)
            .unwrap_err();
        let hint = refusal.hint();
        assert!(hint.contains("[watchdog]"), "{hint}");
        let (_, rest) = hint.split_once("event_commands = ").unwrap();
        let (list, _) = rest.split_once(", or allow").unwrap();
        let table: toml::Table = toml::from_str(&format!("x = {list}")).unwrap();
        assert_eq!(table["x"][0].as_str(), Some(command));
    }

    #[test]
    fn token_of_an_address_is_not_repeated() {
        let refusal = listed().check_webhook("https://h.example/hook/t0ken-t0ken");
        let refusal = refusal.unwrap_err();
        let said = format!("{refusal} {} {refusal:?}", refusal.hint());
        assert!(
            said.contains("h.example") && !said.contains("t0ken"),
            "{said}"
        );
    }
}
