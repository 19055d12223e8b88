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

    /// Looks them up once. One that cannot be had is told by the login that needs it.
    pub async fn learn(&self) {
        let look_up = async {
            let looks = self.names.iter().map(|name| {
                let (store, name) = (self.store.clone(), name.clone());
                // A keychain may be slow, and all calls share few threads.
                tokio::task::spawn_blocking(move || store.get(&name).ok())
            });
            for secret in futures::future::join_all(looks).await {
                if let Ok(Some(secret)) = secret {
                    self.mask.learn(secret.expose());
                }
            }
        };
        if !self.names.is_empty() {
            self.known.get_or_init(|| look_up).await;
        }
    }
}
