//! What a caller is told when something did not work: one code, one sentence, one next step.

use serde::Serialize;

use crate::secret::Mask;

/// The documented reason of a failure; the wire carries its snake-case name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// An argument is missing, of the wrong type, unknown or out of range.
    InvalidParams,
    /// The named sandbox, run, file or directory does not exist.
    NotFound,
    /// The account on the host may not read this file or directory.
    PermissionDenied,
    /// No sandbox is configured, so there is nothing to work on.
    NotConfigured,
    /// The sandbox is configured, but its entry is broken.
    SandboxDisabled,
    /// The host could not be reached: name, route, port, banner or key exchange.
    Unreachable,
    /// The host refused every credential the entry has, or a credential could not be used.
    AuthFailed,
    /// The user's own shared connection is needed and is not there.
    LoginNeeded,
    /// The host's key is not recorded and the policy does not allow recording it.
    HostKeyUnknown,
    /// The host offered another key than the recorded one.
    HostKeyChanged,
    /// The host offered a key that is marked as revoked.
    HostKeyRevoked,
    /// A file of host keys could not be read or a line for this host is broken.
    HostKeysUnreadable,
    /// The deadline passed before the work could start.
    TimedOut,
    /// The connection broke while the command may have been running.
    LinkLost,
    /// The host or this server has no room for another command now.
    Busy,
    /// The host accepted the login but would not start a shell or the command.
    RemoteRefused,
    /// The text that the sandbox runs before each command failed.
    InitFailed,
    /// The record that must be written first could not be written.
    StoreUnavailable,
    /// A path lies outside the places it may lie in, or leads out of them.
    PathRefused,
    /// More would be deleted than was agreed to.
    DeleteRefused,
    /// A disk or a quota is full.
    NoSpace,
    /// This is not allowed, however it is asked for.
    PolicyDenied,
    /// The sandbox cannot do this.
    Unsupported,
    /// The caller withdrew the call.
    Cancelled,
    /// A fault of this program.
    Internal,
}

impl Code {
    /// Every code, in the order of the reference page.
    pub const ALL: [Code; 25] = [
        Code::InvalidParams,
        Code::NotFound,
        Code::PermissionDenied,
        Code::NotConfigured,
        Code::SandboxDisabled,
        Code::Unreachable,
        Code::AuthFailed,
        Code::LoginNeeded,
        Code::HostKeyUnknown,
        Code::HostKeyChanged,
        Code::HostKeyRevoked,
        Code::HostKeysUnreadable,
        Code::TimedOut,
        Code::LinkLost,
        Code::Busy,
        Code::RemoteRefused,
        Code::InitFailed,
        Code::StoreUnavailable,
        Code::PathRefused,
        Code::DeleteRefused,
        Code::NoSpace,
        Code::PolicyDenied,
        Code::Unsupported,
        Code::Cancelled,
        Code::Internal,
    ];

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Code::InvalidParams => "invalid_params",
            Code::NotFound => "not_found",
            Code::PermissionDenied => "permission_denied",
            Code::NotConfigured => "not_configured",
            Code::SandboxDisabled => "sandbox_disabled",
            Code::Unreachable => "unreachable",
            Code::AuthFailed => "auth_failed",
            Code::LoginNeeded => "login_needed",
            Code::HostKeyUnknown => "host_key_unknown",
            Code::HostKeyChanged => "host_key_changed",
            Code::HostKeyRevoked => "host_key_revoked",
            Code::HostKeysUnreadable => "host_keys_unreadable",
            Code::TimedOut => "timed_out",
            Code::LinkLost => "link_lost",
            Code::Busy => "busy",
            Code::RemoteRefused => "remote_refused",
            Code::InitFailed => "init_failed",
            Code::StoreUnavailable => "store_unavailable",
            Code::PathRefused => "path_refused",
            Code::DeleteRefused => "delete_refused",
            Code::NoSpace => "no_space",
            Code::PolicyDenied => "policy_denied",
            Code::Unsupported => "unsupported",
            Code::Cancelled => "cancelled",
            Code::Internal => "internal",
        }
    }

    /// One sentence for the reference page.
    pub fn meaning(self) -> &'static str {
        match self {
            Code::InvalidParams => {
                "An argument is missing, of the wrong type, unknown or out of range."
            }
            Code::NotFound => "The named sandbox, run, file or directory does not exist.",
            Code::PermissionDenied => {
                "The account on the host may not read this file or directory."
            }
            Code::NotConfigured => "No sandbox is configured.",
            Code::SandboxDisabled => {
                "The sandbox's configuration entry is broken; the text says where."
            }
            Code::Unreachable => {
                "The host could not be reached; the text names the step (name, TCP, banner, key exchange)."
            }
            Code::AuthFailed => {
                "The host refused the entry's credentials, or a credential could not be used. Never retried by itself."
            }
            Code::LoginNeeded => {
                "The sandbox uses the user's own shared connection of `ssh`, and there is none. No login was made."
            }
            Code::HostKeyUnknown => {
                "The host's key is not recorded and the policy is `strict`. Nothing was sent."
            }
            Code::HostKeyChanged => {
                "The host offered another key than the recorded one. Nothing was sent."
            }
            Code::HostKeyRevoked => "The host offered a key marked `@revoked`. Nothing was sent.",
            Code::HostKeysUnreadable => {
                "A host key file could not be read, or the line for this host is broken. Nothing was sent."
            }
            Code::TimedOut => "The deadline passed before the command could start; it did not run.",
            Code::LinkLost => {
                "The connection broke: a command may still be running and was not started again; a sync goes on where it stopped when it is called again."
            }
            Code::Busy => "The host has no free session, or the target of a sync is in use.",
            Code::RemoteRefused => {
                "The login worked, but the host would not start a shell or the command; its own words follow."
            }
            Code::InitFailed => {
                "The sandbox's `init` failed, and its output is shown; the command did not run."
            }
            Code::StoreUnavailable => {
                "The audit log or state folder cannot be written, so nothing was done."
            }
            Code::PathRefused => {
                "The path lies outside the folders that a sync may use, or leads out of them; nothing was read or written."
            }
            Code::DeleteRefused => {
                "More would be deleted than is safe without being asked; the text says how to agree. Nothing was deleted."
            }
            Code::NoSpace => {
                "A disk or a quota is full; under its own name every file is still the complete old or the complete new one."
            }
            Code::PolicyDenied => "This is not allowed, however it is asked for.",
            Code::Unsupported => "The sandbox cannot do this.",
            Code::Cancelled => "The call was cancelled.",
            Code::Internal => "A fault of this program; its log on standard error has more.",
        }
    }
}

impl Serialize for Code {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// A failure as it leaves the program: it names the object, the reason and the next step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// What was attempted, on what, and why it did not work.
    #[serde(rename = "error")]
    pub message: String,
    /// The documented reason.
    pub code: Code,
    /// What to do next.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hint: String,
    /// Whether the same call may work later without any change.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub retry: bool,
    /// Whether an accident looks the same: it is worth another attempt, but not many.
    #[serde(skip)]
    pub is_doubtful: bool,
    /// Valid choices, when a name was not one of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub available: Vec<String>,
}

impl Failure {
    /// A failure that will not go away by itself.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Failure {
            message: message.into(),
            code,
            hint: String::new(),
            retry: false,
            is_doubtful: false,
            available: Vec::new(),
        }
    }

    /// Adds the next step.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Says that the same call may work later.
    #[must_use]
    pub fn retry(mut self) -> Self {
        self.retry = true;
        self
    }

    /// Says that an accident looks the same.
    #[must_use]
    pub fn doubtful(mut self) -> Self {
        self.is_doubtful = true;
        self
    }

    /// Adds the valid choices.
    #[must_use]
    pub fn available(mut self, names: Vec<String>) -> Self {
        self.available = names;
        self
    }

    /// The same without any known secret in its words.
    #[must_use]
    pub fn masked(mut self, mask: &Mask) -> Self {
        self.message = mask.mask_text(&self.message).into_owned();
        self
    }

    /// Whether the sandbox was reached, and only the question to it went wrong.
    pub fn is_about_the_probe(&self) -> bool {
        matches!(
            self.code,
            Code::RemoteRefused | Code::TimedOut | Code::LinkLost | Code::Busy | Code::Internal
        )
    }

    /// The message of an error with all its causes, joined by colons.
    pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            // Some libraries repeat the cause in their own message; saying it twice helps nobody.
            if !text.ends_with(&cause_text) {
                text.push_str(": ");
                text.push_str(&cause_text);
            }
            source = cause.source();
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_serialises_without_empty_parts() {
        let failure = Failure::new(Code::NotFound, "no sandbox named `x`");
        let json = serde_json::to_value(&failure).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"error": "no sandbox named `x`", "code": "not_found"})
        );
    }

    #[test]
    fn code_names_are_unique() {
        let mut names: Vec<_> = Code::ALL.iter().map(|code| code.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Code::ALL.len());
    }

    #[test]
    fn chain_names_every_cause_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot open `f`")]
        struct Outer(#[source] std::io::Error);
        let outer = Outer(std::io::Error::other("disk on fire"));
        assert_eq!(Failure::chain(&outer), "cannot open `f`: disk on fire");
    }
}
