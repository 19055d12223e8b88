//! Faults, attacks and load; each case carries its number.

mod configuration;
mod credentials;
mod host_keys;
mod injection;
mod key_files;
mod protocol;
mod secrets;
