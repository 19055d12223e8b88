//! What is written down about a sandbox on this machine, so that it outlives the server.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{LocalName, Network};
use crate::shell::EnvironmentName;

/// The form that this program writes.
const FORM: u32 = 1;

/// A record that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// It is no record.
    #[error("it cannot be read")]
    Json(#[from] serde_json::Error),
    /// A newer version of this program wrote it.
    #[error("it was written by a newer version (form {0})")]
    Newer(u32),
    /// A variable in it has no valid name.
    #[error("it has a variable without a valid name")]
    Variable,
}

/// A sandbox that was made and not deleted yet.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalRecord {
    form: u32,
    /// Its name.
    pub name: LocalName,
    /// When it was made, as a date in UTC.
    pub created_at: String,
    /// Whether commands in it reach the network, where whoever made it has said so; else the
    /// configuration says.
    #[serde(default)]
    pub network: Option<Network>,
    /// Variables that every command in it finds.
    #[serde(default)]
    variables: BTreeMap<String, String>,
}

impl std::fmt::Debug for LocalRecord {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values of variables are nobody's business.
        formatter
            .debug_struct("LocalRecord")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl LocalRecord {
    /// A new record.
    pub fn new(
        name: LocalName,
        created_at: String,
        network: Option<Network>,
        variables: Vec<(EnvironmentName, String)>,
    ) -> Self {
        let variables = variables
            .into_iter()
            .map(|(name, value)| (name.as_str().to_owned(), value))
            .collect();
        LocalRecord {
            form: FORM,
            name,
            created_at,
            network,
            variables,
        }
    }

    /// Reads what was written.
    pub fn parse(text: &[u8]) -> Result<Self, RecordError> {
        let record: LocalRecord = serde_json::from_slice(text)?;
        if record.form > FORM {
            return Err(RecordError::Newer(record.form));
        }
        record.variables()?;
        Ok(record)
    }

    /// What is written.
    pub fn text(&self) -> Result<Vec<u8>, RecordError> {
        Ok(serde_json::to_vec(self)?)
    }

    /// The variables, their names checked.
    pub fn variables(&self) -> Result<Vec<(EnvironmentName, String)>, RecordError> {
        let checked = self.variables.iter().map(|(name, value)| {
            let name = EnvironmentName::parse(name).map_err(|_| RecordError::Variable)?;
            Ok((name, value.clone()))
        });
        checked.collect()
    }
}
