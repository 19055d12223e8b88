//! Sandboxes on this machine: their walls, their life, and faults in them.

mod faults;
mod faults_commands;
mod life;
mod life_levels;
mod life_servers;
pub(crate) mod support;
mod walls_files;
mod walls_links;
mod walls_network;
mod walls_processes;
mod walls_rights;
