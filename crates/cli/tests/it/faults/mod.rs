//! Faults, attacks and load; each case carries its number.

mod certificates;
mod configuration;
mod credentials;
mod cuts;
mod dial;
pub(crate) mod ending;
mod host_keys;
mod injection;
mod key_files;
mod key_forms;
mod link;
pub(crate) mod namespace;
mod openssh_login;
pub(crate) mod output;
mod protocol;
pub(crate) mod scarcity;
mod secrets;
mod sessions;
mod shells;
mod silence;
mod stalled;
mod ways;
