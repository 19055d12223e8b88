//! What a failed connection means for the caller: the code, the next step, and whether time helps.

use remote_sandbox_core::failure::Code;

use super::auth::AuthError;
use super::dial_error::DialError;
use super::hostkeys::HostKeyError;
use super::openssh::{OpenSshError, Trouble};
use super::route_error::RouteError;

/// The code, the next step, and whether time alone may help.
pub(super) fn judge_dial(error: &DialError) -> (Code, &'static str, bool) {
    match error {
        DialError::Resolve { .. } | DialError::ResolveSlow { .. } => (
            Code::Unreachable,
            "check `host` in the configuration, and the network",
            true,
        ),
        DialError::Tcp { .. } | DialError::TcpSlow { .. } => (
            Code::Unreachable,
            "check that the host is up, that `port` is right, and that VPN or firewall let you through",
            true,
        ),
        DialError::Banner { .. } | DialError::BannerSlow { .. } => (
            Code::Unreachable,
            "something answers there, but not an SSH server in time: check `port`, or wait if the host is overloaded",
            true,
        ),
        DialError::KeyExchange { .. } | DialError::KeyExchangeSlow { .. } => (
            Code::Unreachable,
            "the server may be too old, too busy, or not an SSH server",
            true,
        ),
        DialError::OpenSsh(error) => judge_openssh(error),
        DialError::Route(_)
        | DialError::Forward { .. }
        | DialError::Hop { .. }
        | DialError::Program { .. }
        | DialError::Complaint { .. } => judge_way(error),
        DialError::Broken { .. } => (
            Code::Internal,
            "this is a fault of the server; its standard error has more",
            true,
        ),
        DialError::HostKey(error) => {
            let (code, hint) = judge_host_key(error);
            (code, hint, false)
        }
        DialError::Auth(AuthError::Closed { .. }) | DialError::AuthSlow { .. } => (
            Code::Unreachable,
            "the host broke off the login; it may be overloaded",
            true,
        ),
        DialError::Auth(_) => (
            Code::AuthFailed,
            "check `user`, `key_file` and `password` of this entry; the login is not repeated by itself",
            false,
        ),
    }
}

/// The same for what lies between here and the host.
fn judge_way(error: &DialError) -> (Code, &'static str, bool) {
    match error {
        DialError::Route(error) => judge_route(error),
        DialError::Forward { .. } => (
            Code::Unreachable,
            "the jump host works; check that it may and can connect to the host behind it",
            true,
        ),
        DialError::Hop { source, .. } => {
            let (code, hint, retry) = judge_dial(source);
            match code {
                Code::AuthFailed => (
                    code,
                    "log in to the jump host with `ssh` once; it uses the keys of the SSH configuration",
                    retry,
                ),
                _ => (code, hint, retry),
            }
        }
        _ => (
            Code::Unreachable,
            "try the `ProxyCommand` of the SSH configuration by hand",
            true,
        ),
    }
}

fn judge_host_key(error: &HostKeyError) -> (Code, &'static str) {
    match error {
        HostKeyError::Changed { .. } => (
            Code::HostKeyChanged,
            "if the host was reinstalled, remove the named line and connect again; if not, somebody may be in between",
        ),
        HostKeyError::Revoked { .. } => (
            Code::HostKeyRevoked,
            "this key must not be trusted; give the host a new one",
        ),
        HostKeyError::Unknown { .. } => (
            Code::HostKeyUnknown,
            "compare the fingerprint with the host's own, then record it (ssh-keyscan) or set host_key_policy to accept-new",
        ),
        HostKeyError::Unreadable(_) | HostKeyError::Broken { .. } => (
            Code::HostKeysUnreadable,
            "repair or remove the named file or line; until then this host is not trusted",
        ),
        HostKeyError::Interrupted { .. } => (
            Code::Internal,
            "this is a fault of the server; its standard error has more",
        ),
        HostKeyError::Certificate { .. } => (
            Code::HostKeyUnknown,
            "ask whoever runs the host for a new certificate, or record its key itself after comparing the fingerprint",
        ),
        HostKeyError::Malformed { .. } => (
            Code::Unreachable,
            "the server offers a kind of key that is not supported",
        ),
    }
}

fn judge_route(error: &RouteError) -> (Code, &'static str, bool) {
    match error {
        RouteError::Slow { .. } => (
            Code::Unreachable,
            "look at `Match exec` and at name lookups in the SSH configuration",
            true,
        ),
        _ => (
            Code::NotConfigured,
            "correct the SSH configuration; `ssh -G` with this name shows what it says",
            false,
        ),
    }
}

/// The same for connections that the system's `ssh` makes.
fn judge_openssh(error: &OpenSshError) -> (Code, &'static str, bool) {
    match error {
        OpenSshError::Route(error) => judge_route(error),
        OpenSshError::NoMaster { .. } => (
            Code::LoginNeeded,
            "ask the user to log in once in a terminal, with a ControlPath in the SSH configuration; then call again",
            false,
        ),
        OpenSshError::Name { .. } => (
            Code::NotConfigured,
            "correct `host` in the configuration",
            false,
        ),
        OpenSshError::Start(_) => (
            Code::NotConfigured,
            "install the OpenSSH client, or take `transport` out of this entry",
            false,
        ),
        OpenSshError::Folder(_) | OpenSshError::TooLong(_) => (
            Code::StoreUnavailable,
            "set REMOTE_SANDBOX_MCP_HOME or XDG_RUNTIME_DIR to a short path that can be written",
            false,
        ),
        OpenSshError::Login { trouble, .. } => match trouble {
            Trouble::KeyChanged => (
                Code::HostKeyChanged,
                "if the host was reinstalled, remove its line from known_hosts; if not, somebody may be in between",
                false,
            ),
            Trouble::KeyRevoked => (
                Code::HostKeyRevoked,
                "this key must not be trusted; give the host a new one",
                false,
            ),
            Trouble::KeyUnknown => (
                Code::HostKeyUnknown,
                "log in once in a terminal and compare the fingerprint with the host's own",
                false,
            ),
            Trouble::Refused => (
                Code::AuthFailed,
                "`ssh` cannot ask questions here: log in once in a terminal with ControlMaster, and it is used from then on",
                false,
            ),
            Trouble::Unreachable => (
                Code::Unreachable,
                "try `ssh` with this name in a terminal",
                true,
            ),
        },
        OpenSshError::Slow { .. } => (
            Code::Unreachable,
            "try `ssh` with this name in a terminal; it may be waiting for an answer",
            true,
        ),
        OpenSshError::OneOnly { .. } => (Code::Busy, "the one connection there is must do", true),
    }
}
