//! The kept secrets that the configuration names, known before a command is written down.

use std::sync::Arc;

use remote_sandbox_core::secret::{Mask, SecretName};
use tokio::sync::OnceCell;

use super::SecretStore;

/// Secrets that have to be masked although nobody has logged in with them yet.
pub struct KeptSecrets {
    names: Vec<SecretName>,
    store: Arc<SecretStore>,
    mask: Mask,
    known: OnceCell<()>,
}

impl KeptSecrets {
    /// Those of these names; nothing is looked up yet.
    pub fn new(names: Vec<SecretName>, store: Arc<SecretStore>, mask: Mask) -> Self {
        KeptSecrets {
            names,
            store,
            mask,
            known: OnceCell::new(),
        }
    }

    /// Looks them up, once when all can be had. One that cannot is told by the login that needs it.
    pub async fn learn(&self) {
        if self.names.is_empty() {
            return;
        }
        let look_up = async {
            let (store, names) = (self.store.clone(), self.names.clone());
            // A keychain may be slow, and all calls share few threads.
            let looking = move || {
                let look = |name| store.get(name).map_err(|_| ());
                names.iter().map(look).collect::<Vec<_>>()
            };
            let found = tokio::task::spawn_blocking(looking).await.map_err(|_| ())?;
            for secret in found.iter().flatten() {
                self.mask.learn(secret.expose());
            }
            if found.iter().all(Result::is_ok) {
                Ok(())
            } else {
                Err(())
            }
        };
        let _ = self.known.get_or_try_init(|| look_up).await;
    }
}
