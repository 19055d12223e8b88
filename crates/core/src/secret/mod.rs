//! Values that must not be shown, and the masking of them in text that is shown.

mod mask;
mod name;

pub use mask::{MASKED, Mask, MaskStream, SHORTEST_MASKED_CHARS};
pub use name::{SecretName, SecretNameError};

use std::fmt;

use serde::{Deserialize, Deserializer};
use zeroize::Zeroize;

/// A value that cannot be printed or serialised by accident and is zeroed when dropped.
#[derive(Clone)]
pub struct Secret<T: Zeroize>(T);

impl<T: Zeroize> Secret<T> {
    /// Wraps a value.
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// Gives the value to the one place that needs it.
    pub fn expose(&self) -> &T {
        &self.0
    }
}

impl<T: Zeroize> fmt::Debug for Secret<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[secret]")
    }
}

impl<T: Zeroize> Drop for Secret<T> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl<T: Zeroize> From<T> for Secret<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}

impl<'de, T: Zeroize + Deserialize<'de>> Deserialize<'de> for Secret<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    struct Witness(Arc<AtomicBool>);

    impl Zeroize for Witness {
        fn zeroize(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn secret_is_zeroed_when_dropped() {
        let zeroed = Arc::new(AtomicBool::new(false));
        drop(Secret::new(Witness(Arc::clone(&zeroed))));
        assert!(zeroed.load(Ordering::SeqCst));
    }

    #[test]
    fn secret_is_hidden_when_printed_for_debugging() {
        let secret = Secret::new("hunter22".to_owned());
        assert_eq!(
            format!("{secret:?} {:#?}", Some(&secret))
                .matches("hunter22")
                .count(),
            0
        );
        assert_eq!(format!("{secret:?}"), "[secret]");
        assert_eq!(secret.clone().expose(), "hunter22");
    }

    #[test]
    fn secret_is_read_when_deserialized() {
        let secret: Secret<String> = serde_json::from_str("\"hunter22\"").unwrap();
        assert_eq!(secret.expose(), "hunter22");
    }
}
