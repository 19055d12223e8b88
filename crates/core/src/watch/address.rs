//! Addresses that something is posted to: read once and strictly, so that what was checked is what is connected to.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use zeroize::Zeroize as _;

/// Longest address that is taken.
const LONGEST: usize = 4096;

/// Why a text is no address to post to. The text itself is not repeated: it may hold a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WebAddressError {
    /// Another scheme, or none.
    #[error("it must begin with http:// or https://")]
    Scheme,
    /// No name, or one that is not plain.
    #[error("it must name a host by its name in plain letters, or by an IP address")]
    Host,
    /// A user or password in front of the host.
    #[error("it must not hold a user name or password")]
    UserInfo,
    /// A port that is none.
    #[error("its port must be a number from 1 to 65535")]
    Port,
    /// A character that must be written otherwise.
    #[error("it must be plain ASCII without blanks, quotes or backslashes")]
    Character,
    /// Longer than any that makes sense.
    #[error("it is longer than {LONGEST} bytes")]
    TooLong,
}

/// Host and port, as a list of allowed ones names them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    host: String,
    port: Option<u16>,
}

impl HostPort {
    /// Reads `host`, `host:port`, `1.2.3.4` or `[::1]:port`.
    pub fn parse(text: &str) -> Result<Self, WebAddressError> {
        let (host, port) = host_and_port(text)?;
        Ok(HostPort { host, port })
    }

    /// Whether an address is at this host, and at this port where one is named.
    pub fn fits(&self, address: &WebAddress) -> bool {
        self.host == address.host && self.port.is_none_or(|port| port == address.port)
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(formatter, "{}:{port}", bracketed(&self.host)),
            None => formatter.write_str(&bracketed(&self.host)),
        }
    }
}

/// An address to post to. Printing shows the host only: the rest may be a token.
#[derive(Clone, PartialEq, Eq)]
pub struct WebAddress {
    is_https: bool,
    host: String,
    port: u16,
    /// Path and query, beginning with `/`.
    target: String,
}

impl WebAddress {
    /// Reads an address. What another reader might understand differently is refused.
    pub fn parse(text: &str) -> Result<Self, WebAddressError> {
        if text.len() > LONGEST {
            return Err(WebAddressError::TooLong);
        }
        let is_bad = |byte: u8| !byte.is_ascii_graphic() || b"\"'<>\\^`{|}".contains(&byte);
        let (scheme, rest) = text.split_once("://").ok_or(WebAddressError::Scheme)?;
        let is_https = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(WebAddressError::Scheme),
        };
        if rest.bytes().any(is_bad) {
            return Err(WebAddressError::Character);
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        if authority.contains('@') {
            return Err(WebAddressError::UserInfo);
        }
        let (host, port) = host_and_port(authority)?;
        let target = target.split('#').next().unwrap_or_default();
        let slash = if target.starts_with('/') { "" } else { "/" };
        Ok(WebAddress {
            is_https,
            host,
            port: port.unwrap_or(if is_https { 443 } else { 80 }),
            target: format!("{slash}{target}"),
        })
    }

    /// Whether it is spoken to in TLS.
    pub fn is_https(&self) -> bool {
        self.is_https
    }

    /// The host in small letters, an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address of the host, where it is given by number.
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// What the header `Host` says.
    pub fn authority(&self) -> String {
        let usual = if self.is_https { 443 } else { 80 };
        let host = bracketed(&self.host);
        if self.port == usual {
            host
        } else {
            format!("{host}:{}", self.port)
        }
    }

    /// Path and query; they may hold a token.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The parts of it that most services use as a token: the last word of the path and the values of the query.
    pub fn tokens(&self) -> impl Iterator<Item = &str> {
        let (path, query) = self.target.split_once('?').unwrap_or((&self.target, ""));
        let values = query
            .split('&')
            .map(|pair| pair.split_once('=').unwrap_or(("", pair)).1);
        path.rsplit('/').take(1).chain(values)
    }

    /// The same address with more of a query.
    #[must_use]
    pub fn with_query(mut self, query: &str) -> Self {
        let joint = if self.target.contains('?') { '&' } else { '?' };
        self.target.push(joint);
        self.target.push_str(query);
        self
    }

    /// The same host with another path.
    #[must_use]
    pub fn with_target(mut self, target: &str) -> Self {
        self.target.zeroize();
        self.target.push_str(target);
        self
    }
}

impl fmt::Display for WebAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        write!(formatter, "{scheme}://{}", self.authority())
    }
}

impl fmt::Debug for WebAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "WebAddress({self})")
    }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

fn host_and_port(text: &str) -> Result<(String, Option<u16>), WebAddressError> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or(WebAddressError::Host)?;
            let address: Ipv6Addr = host.parse().map_err(|_| WebAddressError::Host)?;
            let port = match rest {
                "" => None,
                rest => Some(rest.strip_prefix(':').ok_or(WebAddressError::Port)?),
            };
            (address.to_string(), port)
        }
        None => {
            let (host, port) = match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            };
            (plain_host(host)?, port)
        }
    };
    let port = match port {
        None => None,
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => Some(
            port.parse()
                .ok()
                .filter(|port| *port > 0)
                .ok_or(WebAddressError::Port)?,
        ),
        Some(_) => return Err(WebAddressError::Port),
    };
    Ok((host, port))
}

/// A name in small letters without a final dot. One whose last part looks like a number must be a whole IPv4 address:
/// resolvers also read `127.1` and `0x7f000001` as one.
fn plain_host(text: &str) -> Result<String, WebAddressError> {
    let host = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    if host.len() > 253 || !host.split('.').all(is_label) {
        return Err(WebAddressError::Host);
    }
    let last = host.rsplit('.').next().unwrap_or_default();
    let looks_like_a_number =
        last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x");
    if looks_like_a_number && host.parse::<Ipv4Addr>().is_err() {
        return Err(WebAddressError::Host);
    }
    Ok(host)
}

/// What an address of a network is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressKind {
    /// It may be spoken to.
    Usual,
    /// This machine: only where its name is listed.
    Loopback,
    /// The network at hand, where machines of a cloud are told their credentials.
    LinkLocal,
    /// A service by which a cloud tells its machines their credentials.
    Metadata,
    /// No machine at all.
    Unspecified,
    /// Many machines at once.
    Multicast,
}

impl AddressKind {
    /// What it is called in a refusal.
    pub fn words(self) -> &'static str {
        match self {
            AddressKind::Usual => "usual",
            AddressKind::Loopback => "loopback",
            AddressKind::LinkLocal => "link-local",
            AddressKind::Metadata => "cloud metadata",
            AddressKind::Unspecified => "unspecified",
            AddressKind::Multicast => "multicast or broadcast",
        }
    }
}

/// Of the addresses that a name means, those that may be spoken to; this machine's only where that is said. When there
/// is none, what the last of them is.
pub fn usable_addresses(
    found: impl IntoIterator<Item = SocketAddr>,
    may_be_here: bool,
) -> Result<Vec<SocketAddr>, AddressKind> {
    let mut refused = AddressKind::Unspecified;
    let mut usable = Vec::new();
    for address in found {
        match judge_address(address.ip()) {
            AddressKind::Usual => usable.push(address),
            AddressKind::Loopback if may_be_here => usable.push(address),
            kind => refused = kind,
        }
    }
    if usable.is_empty() {
        return Err(refused);
    }
    Ok(usable)
}

/// Judges an address, also one of version 4 that stands within one of version 6.
pub fn judge_address(address: IpAddr) -> AddressKind {
    match address {
        IpAddr::V4(address) => judge_v4(address),
        IpAddr::V6(address) => {
            let mut inner = within(address).into_iter().flatten().map(judge_v4);
            let own = judge_v6(address);
            inner
                .find(|kind| *kind != AddressKind::Usual)
                .unwrap_or(own)
        }
    }
}

fn judge_v4(address: Ipv4Addr) -> AddressKind {
    match address.octets() {
        [0, ..] => AddressKind::Unspecified,
        [127, ..] => AddressKind::Loopback,
        // Alibaba Cloud, Oracle Cloud and Azure, each of which has one outside of the link-local range.
        [100, 100, 100, 200] | [192, 0, 0, 192] | [168, 63, 129, 16] => AddressKind::Metadata,
        [169, 254, ..] => AddressKind::LinkLocal,
        [224..=239, ..] | [255, 255, 255, 255] => AddressKind::Multicast,
        _ => AddressKind::Usual,
    }
}

fn judge_v6(address: Ipv6Addr) -> AddressKind {
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => AddressKind::Unspecified,
        [0, 0, 0, 0, 0, 0, 0, 1] => AddressKind::Loopback,
        // Those of Amazon, Oracle and Scaleway, and Google's.
        [0xfd00, 0x0ec2 | 0x00c1 | 0x0042, ..] | [0xfd20, 0x00ce, ..] => AddressKind::Metadata,
        [0xfe80..=0xfebf, ..] => AddressKind::LinkLocal,
        [0xff00..=0xffff, ..] => AddressKind::Multicast,
        _ => AddressKind::Usual,
    }
}

/// The addresses of version 4 that a packet may end at: mapped, compatible, translated (NAT64), or tunnelled (6to4,
/// ISATAP, and Teredo, which names its server openly and its client turned over).
fn within(address: Ipv6Addr) -> [Option<Ipv4Addr>; 4] {
    let pair = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        Some(Ipv4Addr::new(a, b, c, d))
    };
    let none = [None; 4];
    let one = |inner| [inner, None, None, None];
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => none,
        [0, 0, 0, 0, 0, 0xffff | 0, high, low] => one(pair(high, low)),
        [0, 0, 0, 0, 0xffff, 0, high, low] => one(pair(high, low)),
        [0x64, 0xff9b, 0, _, _, _, high, low] => one(pair(high, low)),
        // A network of one's own for NAT64 may hold the address in each of four places, three of them around a byte
        // that means nothing. Zeros stand where it does not.
        [0x64, 0xff9b, 1, a, b, c, high, low] => {
            let joined = |first: u16, second: u16| (first << 8) | (second >> 8);
            let places = [
                pair(high, low),
                pair(a, joined(b, c)),
                pair((a << 8) | (b & 0xff), c),
                pair(joined(b, c), joined(c, high)),
            ];
            places.map(|inner| inner.filter(|inner| inner.octets()[0] != 0))
        }
        [0x2002, high, low, ..] => one(pair(high, low)),
        [0x2001, 0, high, low, _, _, third, fourth] => {
            [pair(high, low), pair(!third, !fourth), None, None]
        }
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => one(pair(high, low)),
        _ => none,
    }
}

#[cfg(test)]
#[path = "address_tests.rs"]
mod tests;
