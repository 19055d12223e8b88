//! `secret`: passwords and passphrases that are kept for the configuration to name.

use remote_sandbox_core::failure::Failure;
use remote_sandbox_core::secret::SecretName;
use remote_sandbox_engine::engine::SetupError;
use remote_sandbox_engine::environment;
use remote_sandbox_engine::secrets::{Keeping, SecretStore};

use crate::report::{Failed, notice, print, table};
use crate::secret_input;

/// Keep passwords and passphrases in the keychain, for the configuration to name
#[derive(Debug, clap::Args)]
pub(crate) struct Secrets {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Keep a secret; it is asked for on a terminal, or read from standard input
    ///
    /// It goes into the keychain of the system when a trial shows that this works, and else into a
    /// file that only you can read.
    Set {
        /// Name of the secret: letters, digits, `.`, `_` and `-`
        name: String,
        /// Keep it in a file even where there is a keychain
        #[arg(long)]
        file: bool,
    },
    /// List names and where each is kept; never what is kept
    List,
    /// Forget a secret
    Remove {
        /// Name of the secret
        name: String,
    },
}

impl Secrets {
    /// Does it.
    pub(crate) fn run(&self) -> Result<(), Failed> {
        let store = SecretStore::of(&environment::capture()).map_err(SetupError::from)?;
        match &self.action {
            Action::Set { name, file } => {
                let store = if *file { store.in_files() } else { store };
                set(&store, &SecretName::parse(name)?)
            }
            Action::List => list(&store),
            Action::Remove { name } => {
                let name = SecretName::parse(name)?;
                let place = store.remove(&name)?;
                print(&format!("removed `{name}` from {place}\n"))
            }
        }
    }
}

fn set(store: &SecretStore, name: &SecretName) -> Result<(), Failed> {
    let value = secret_input::read(name)?;
    let kept = store.set(name, &value)?;
    if let Some(why) = &kept.no_keychain {
        notice(&format!(
            "no keychain can be used here: {}",
            Failure::chain(why)
        ));
    }
    print(&match kept.place {
        Keeping::Keychain => format!("kept `{name}` in the keychain\n"),
        Keeping::File => {
            let folder = store.folder().display();
            format!("kept `{name}` in a file that only you can read, in {folder}\n")
        }
    })
}

fn list(store: &SecretStore) -> Result<(), Failed> {
    let listed = store.list()?;
    if listed.is_empty() {
        notice("no secret is kept; `remote-sandbox-mcp secret set NAME` keeps one");
        return Ok(());
    }
    let mut rows = vec![vec!["NAME".to_owned(), "KEPT IN".to_owned()]];
    let row = |(name, place): &(SecretName, Keeping)| vec![name.to_string(), place.to_string()];
    rows.extend(listed.iter().map(row));
    print(&table(&rows))
}
