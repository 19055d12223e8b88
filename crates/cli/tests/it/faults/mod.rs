//! Faults, attacks and load; each case carries its number.

mod configuration;
mod credentials;
mod ending;
mod host_keys;
mod injection;
mod key_files;
mod output;
mod protocol;
mod scarcity;
mod secrets;
mod shells;
