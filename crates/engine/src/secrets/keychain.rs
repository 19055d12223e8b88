//! The keychain of the system: asked in a thread of its own, so that one that hangs hangs nobody.

use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use keyring_core::api::CredentialStoreApi;
use keyring_core::{Entry, Error};
use remote_sandbox_core::secret::{Secret, SecretName};
use zeroize::Zeroize as _;

/// How long the keychain may take for one thing.
const LIMIT: Duration = Duration::from_secs(2);

/// Most threads that may wait for a keychain that does not answer.
const MOST_WAITING: usize = 4;

/// Under which our secrets stand in the keychain.
const SERVICE: &str = "remote-sandbox-mcp";

static WAITING: Mutex<usize> = Mutex::new(0);
static FREED: Condvar = Condvar::new();

/// Why the keychain could not be used. It never holds what the keychain gave.
#[derive(Debug, thiserror::Error)]
pub enum KeychainError {
    /// It did not answer.
    #[error("the keychain did not answer within {} s", LIMIT.as_secs())]
    Silent,
    /// It was asked before and still has not answered.
    #[error("the keychain hangs: {MOST_WAITING} earlier questions to it are not answered yet")]
    Hangs,
    /// No thread could be started to ask it.
    #[error("no thread can be started for the keychain")]
    Thread(#[source] std::io::Error),
    /// It refused, or there is none.
    #[error("the keychain refused")]
    Refused(#[source] Error),
    /// It gave something else than it was given.
    #[error("the keychain does not give back what it was given")]
    Forgetful,
}

impl From<Error> for KeychainError {
    fn from(error: Error) -> Self {
        match error {
            // These two carry the bytes of a secret.
            Error::BadEncoding(mut bytes) | Error::BadDataFormat(mut bytes, _) => {
                bytes.zeroize();
                KeychainError::Forgetful
            }
            error => KeychainError::Refused(error),
        }
    }
}

/// The keychain of this user; every use opens it anew.
#[derive(Debug)]
pub(super) struct Keychain;

impl Keychain {
    /// Finds out whether it works, by writing, reading and deleting something.
    pub(super) fn try_out(&self) -> Result<(), KeychainError> {
        // No secret can have this name.
        let name = format!(".trial.{}", uuid::Uuid::now_v7().simple());
        within(move || {
            let entry = entry(&name)?;
            entry.set_secret(name.as_bytes())?;
            let read = entry.get_secret();
            entry.delete_credential()?;
            if read? == name.as_bytes() {
                Ok(())
            } else {
                Err(KeychainError::Forgetful)
            }
        })
    }

    pub(super) fn set(
        &self,
        name: &SecretName,
        value: &Secret<String>,
    ) -> Result<(), KeychainError> {
        let (name, value) = (name.clone(), value.clone());
        within(move || Ok(entry(name.as_str())?.set_secret(value.expose().as_bytes())?))
    }

    /// What is kept under a name; `None` when nothing is.
    pub(super) fn get(&self, name: &SecretName) -> Result<Option<Vec<u8>>, KeychainError> {
        let name = name.clone();
        within(move || match entry(name.as_str())?.get_secret() {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Error::NoEntry) => Ok(None),
            Err(error) => Err(error.into()),
        })
    }

    pub(super) fn remove(&self, name: &SecretName) -> Result<(), KeychainError> {
        let name = name.clone();
        within(move || match entry(name.as_str())?.delete_credential() {
            Ok(()) | Err(Error::NoEntry) => Ok(()),
            Err(error) => Err(error.into()),
        })
    }
}

#[cfg(target_os = "macos")]
fn open() -> Result<Arc<impl CredentialStoreApi>, Error> {
    apple_native_keyring_store::keychain::Store::new()
}

#[cfg(not(target_os = "macos"))]
fn open() -> Result<Arc<impl CredentialStoreApi>, Error> {
    zbus_secret_service_keyring_store::Store::new()
}

fn entry(name: &str) -> Result<Entry, KeychainError> {
    Ok(open()?.build(SERVICE, name, None)?)
}

/// Does something in a thread of its own and waits for it, but not longer than the limit.
fn within<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, KeychainError> + Send + 'static,
) -> Result<T, KeychainError> {
    let waiting = Waiting::take()?;
    let (tell, told) = mpsc::sync_channel(1);
    std::thread::Builder::new()
        .name("keychain".to_owned())
        .spawn(move || {
            let result = work();
            drop(waiting);
            let _ = tell.send(result);
        })
        .map_err(KeychainError::Thread)?;
    told.recv_timeout(LIMIT)
        .unwrap_or(Err(KeychainError::Silent))
}

/// Counts one thread, also when it breaks.
struct Waiting;

impl Waiting {
    /// Waits for its turn; where none comes in time, those before it hang.
    fn take() -> Result<Self, KeychainError> {
        let count = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
        let full = |count: &mut usize| *count >= MOST_WAITING;
        let (mut count, late) = FREED
            .wait_timeout_while(count, LIMIT, full)
            .unwrap_or_else(PoisonError::into_inner);
        if late.timed_out() {
            return Err(KeychainError::Hangs);
        }
        *count += 1;
        Ok(Waiting)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        *WAITING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        FREED.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hanging_keychain_costs_two_seconds_and_few_threads() {
        let begun = std::time::Instant::now();
        let (let_go, held) = mpsc::channel::<()>();
        let held = Arc::new(std::sync::Mutex::new(held));
        let hang = || {
            let held = held.clone();
            within(move || {
                let _ = held.lock().map(|held| held.recv());
                Ok(())
            })
        };
        let all: Vec<_> = std::thread::scope(|scope| {
            let asked: Vec<_> = (0..MOST_WAITING).map(|_| scope.spawn(hang)).collect();
            asked
                .into_iter()
                .map(|asked| asked.join().unwrap())
                .collect()
        });
        assert!(
            all.iter()
                .all(|answer| matches!(answer, Err(KeychainError::Silent)))
        );
        assert!(
            begun.elapsed() < Duration::from_secs(4),
            "{:?}",
            begun.elapsed()
        );
        assert!(matches!(hang(), Err(KeychainError::Hangs)));
        drop(let_go);
        while *WAITING.lock().unwrap() > 0 {
            std::thread::yield_now();
        }
        assert!(within(|| Ok(())).is_ok());
    }

    #[test]
    fn error_does_not_carry_the_bytes_of_a_secret() {
        for error in [
            Error::BadEncoding(b"hunter22".to_vec()),
            Error::BadDataFormat(b"hunter22".to_vec(), "reason".into()),
        ] {
            let error = KeychainError::from(error);
            assert!(matches!(error, KeychainError::Forgetful), "{error:?}");
        }
    }
}
