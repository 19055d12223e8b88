//! What `doctor` looks at: the configuration here, and hosts by way of their sandboxes.

mod configuration;
mod log;

pub use configuration::{ConfigurationReport, examine_configuration};
pub use log::StepLog;
