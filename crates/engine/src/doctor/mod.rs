//! What `doctor` looks at: the configuration here, and hosts by way of their sandboxes.

mod around;
mod configuration;
mod log;

pub(crate) use around::{SCRIPT_LIMIT, look_around};
pub use configuration::{ConfigurationReport, examine_configuration};
pub use log::StepLog;
