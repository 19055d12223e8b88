//! Sandboxes that are made and deleted on request.

use remote_sandbox_core::failure::{Code, Failure};
use remote_sandbox_core::local::{LocalName, Network};
use remote_sandbox_core::shell::EnvironmentName;

use super::Engine;
use crate::audit::BeginRow;
use crate::call::CallContext;
use crate::sandbox::{Description, Sandbox as _};

/// Most variables that a new sandbox takes.
const MOST_VARIABLES: usize = 256;

/// Longest value of one.
const LONGEST_VALUE: usize = 64 * 1024;

/// A sandbox to be made.
#[derive(Debug)]
pub struct NewSandbox {
    /// Its name.
    pub name: String,
    /// Variables that every command in it finds.
    pub variables: Vec<(EnvironmentName, String)>,
    /// Whether commands reach the network; as configured when not said.
    pub network: Option<Network>,
}

/// A sandbox that was made.
#[derive(Debug)]
pub struct Created {
    /// What is known about it.
    pub description: Description,
}

impl Engine {
    /// Makes a sandbox on this machine and starts it.
    pub async fn create_sandbox(
        &self,
        context: &CallContext,
        new: NewSandbox,
    ) -> Result<Created, Failure> {
        let invalid = |text: String| Failure::new(Code::InvalidParams, text);
        let name = LocalName::parse(&new.name).map_err(|error| {
            invalid(error.to_string()).hint("nothing was made; choose another name")
        })?;
        if new.variables.len() > MOST_VARIABLES
            || new
                .variables
                .iter()
                .any(|(_, value)| value.len() > LONGEST_VALUE || value.contains('\0'))
        {
            return Err(invalid(format!(
                "`env` takes at most {MOST_VARIABLES} variables of at most {LONGEST_VALUE} bytes without NUL"
            )));
        }
        if self
            .entries
            .iter()
            .any(|entry| entry.name() == name.as_str())
        {
            return Err(
                invalid(format!("the configuration has a sandbox named `{name}`"))
                    .hint("nothing was made; choose another name"),
            );
        }
        self.begin(context, "create_sandbox", name.as_str())?;
        let made = self.locals.create(name, new.network, new.variables).await;
        let sandbox = made.map_err(|failure| failure.masked(&self.mask))?;
        Ok(Created {
            description: sandbox.description().clone(),
        })
    }

    /// Ends everything in a sandbox that was made here and removes its files.
    pub async fn delete_sandbox(&self, context: &CallContext, name: &str) -> Result<(), Failure> {
        if self.sandboxes.contains_key(name) {
            let text =
                format!("sandbox `{name}` comes from the configuration and is not ours to delete");
            return Err(Failure::new(Code::PolicyDenied, text)
                .hint("take it out of the configuration; nothing on the host was touched"));
        }
        // Says which names there are when this is none.
        self.sandbox(Some(name))?;
        self.begin(context, "delete_sandbox", name)?;
        self.locals
            .delete(name)
            .await
            .map_err(|failure| failure.masked(&self.mask))?;
        self.note_jobs_deleted(name, context.principal.as_str())
            .await;
        let mut active = self
            .active
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if active.as_deref() == Some(name) {
            // The one that is always there is still named: it begins anew.
            *active = self.names().into_iter().next();
        }
        Ok(())
    }

    fn begin(
        &self,
        context: &CallContext,
        tool: &'static str,
        sandbox: &str,
    ) -> Result<(), Failure> {
        self.record(&BeginRow {
            principal: context.principal.as_str(),
            call: &context.call,
            tool,
            sandbox,
            run: "",
            command: "",
            cwd: None,
        })
    }
}
