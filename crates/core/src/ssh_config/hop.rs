//! The hosts a connection jumps over.

use std::fmt;

use super::OptionsError;
use crate::config::SshAlias;

/// The most hosts that may lie before a host.
pub const MOST_HOPS: usize = 8;

/// One host to jump over, as `ProxyJump` names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Hop {
    /// Whom to log in as, when it is said.
    pub user: Option<String>,
    /// The host, itself a name in the SSH configuration.
    pub host: SshAlias,
    /// The port, when it is said.
    pub port: Option<u16>,
}

impl Hop {
    /// Reads a list such as `gate,me@inner:2222`, in the order the connection passes them.
    pub fn parse_list(text: &str) -> Result<Vec<Hop>, OptionsError> {
        let hops = text
            .split(',')
            .map(|hop| Hop::parse(hop.trim()).ok_or(OptionsError::Jump))
            .take(MOST_HOPS + 1)
            .collect::<Result<Vec<_>, _>>()?;
        if hops.len() > MOST_HOPS {
            return Err(OptionsError::TooManyHops);
        }
        Ok(hops)
    }

    fn parse(text: &str) -> Option<Hop> {
        let text = match text.strip_prefix("ssh://") {
            Some(rest) => rest.strip_suffix('/').unwrap_or(rest),
            None => text,
        };
        let (user, place) = match text.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, text),
        };
        let (host, port) = match place.strip_prefix('[') {
            Some(rest) => {
                let (host, after) = rest.split_once(']')?;
                match after.strip_prefix(':') {
                    Some(port) => (host, Some(port)),
                    None if after.is_empty() => (host, None),
                    None => return None,
                }
            }
            None => match place.split_once(':') {
                // Several colons without brackets are an IPv6 address.
                Some((_, port)) if port.contains(':') => (place, None),
                Some((host, port)) => (host, Some(port)),
                None => (place, None),
            },
        };
        let bad = |user: &str| {
            user.is_empty() || user.starts_with('-') || user.chars().any(char::is_control)
        };
        if user.is_some_and(bad) {
            return None;
        }
        let port = match port {
            Some(port) => Some(port.parse().ok().filter(|port| *port > 0)?),
            None => None,
        };
        Some(Hop {
            user: user.map(str::to_owned),
            host: SshAlias::parse(host).ok()?,
            port,
        })
    }

    /// Writes a list as `ProxyJump` takes it.
    pub fn list(hops: &[Hop]) -> String {
        let texts: Vec<String> = hops.iter().map(ToString::to_string).collect();
        texts.join(",")
    }
}

impl fmt::Display for Hop {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(formatter, "{user}@")?;
        }
        if self.host.as_str().contains(':') {
            write!(formatter, "[{}]", self.host)?;
        } else {
            write!(formatter, "{}", self.host)?;
        }
        match self.port {
            Some(port) => write!(formatter, ":{port}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("a", "a")]
    #[case("a,me@b:2222,ssh://u@c:33", "a,me@b:2222,u@c:33")]
    #[case("[::1]:22,u@[fe80::1]", "[::1]:22,u@[fe80::1]")]
    #[case("ssh://a/", "a")]
    #[case("a@b@c", "a@b@c")]
    #[case("fe80::1", "[fe80::1]")]
    fn hops_are_read(#[case] text: &str, #[case] written: &str) {
        assert_eq!(Hop::list(&Hop::parse_list(text).unwrap()), written);
    }

    #[rstest]
    #[case("")]
    #[case("a,")]
    #[case("-oProxyCommand=x")]
    #[case("a:0")]
    #[case("a:x")]
    #[case("@a")]
    #[case("-l@a")]
    #[case("[::1")]
    #[case("[::1]x")]
    #[case("a b")]
    fn senseless_hop_is_refused(#[case] text: &str) {
        assert_eq!(Hop::parse_list(text), Err(OptionsError::Jump));
    }

    #[test]
    fn ninth_hop_is_refused() {
        let eight = ["a"; MOST_HOPS].join(",");
        assert_eq!(Hop::parse_list(&eight).unwrap().len(), MOST_HOPS);
        let nine = format!("{eight},b");
        assert_eq!(Hop::parse_list(&nine), Err(OptionsError::TooManyHops));
    }
}
