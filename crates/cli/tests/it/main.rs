//! The true binary, driven over MCP against real servers.
#![cfg(test)]
#![allow(clippy::disallowed_methods, reason = "tests stand outside the doors")]

mod architecture;
mod choosing;
mod commands;
mod compatibility;
mod demo;
mod doctor;
mod exec;
mod faults;
mod files;
mod following;
mod identities;
mod interop;
mod jobs;
mod listing;
mod local;
mod openssh;
mod overview_commands;
mod protocol;
mod reference;
mod sandboxes;
mod secret_command;
mod ssh_config;
mod support;
mod surroundings;
mod sync;
mod tasks;
mod transfers;
mod warm;
mod watchdog;
mod watchdog_service;
