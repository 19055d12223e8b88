//! The name under which a secret is kept.

use std::fmt;

/// Longest name of a kept secret.
const LONGEST: usize = 64;

/// The name of a secret in the keychain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName(String);

/// Why a text is no name for a secret.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "the name of a secret has 1 to {LONGEST} letters, digits, `.`, `_` or `-`, and begins with a letter or digit"
)]
pub struct SecretNameError;

impl SecretName {
    /// Checks the name.
    pub fn parse(text: &str) -> Result<Self, SecretNameError> {
        let plain = |character: char| {
            character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '-')
        };
        let begins_right = text.starts_with(|first: char| first.is_ascii_alphanumeric());
        if begins_right && text.len() <= LONGEST && text.chars().all(plain) {
            Ok(SecretName(text.to_owned()))
        } else {
            Err(SecretNameError)
        }
    }

    /// The name itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::SecretName;

    #[test]
    fn name_is_refused_when_it_could_be_a_path_or_an_option() {
        for bad in ["", "../x", "a/b", "-x", ".x", "a b", "a\n", &"x".repeat(65)] {
            assert!(SecretName::parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(
            SecretName::parse("gpu-1.pw_2").unwrap().as_str(),
            "gpu-1.pw_2"
        );
    }
}
