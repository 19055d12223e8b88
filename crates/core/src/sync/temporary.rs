//! Names of files that are still being written, so that every scan leaves them out and a later one can remove them.

use crate::ids::RunToken;

/// How every name of a file or directory that is still being written begins.
pub const TEMPORARY_PREFIX: &str = ".rsmcp-sync-";

/// The name under which one of many things of a transfer is written before it gets its own.
pub fn temporary_name(transfer: &RunToken, number: u64) -> String {
    format!("{TEMPORARY_PREFIX}{transfer}-{number}")
}

/// The transfer that a temporary name belongs to; none when it is nobody's or not one of ours.
pub fn temporary_owner(name: &[u8]) -> Option<RunToken> {
    let rest = name.strip_prefix(TEMPORARY_PREFIX.as_bytes())?;
    let (token, number) = std::str::from_utf8(rest).ok()?.split_once('-')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| RunToken::parse(token).ok()).flatten()
}

/// Whether a name is one of ours, so that no scan speaks of it.
pub fn is_temporary(name: &[u8]) -> bool {
    temporary_owner(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_name_is_recognised_and_tells_its_owner() {
        let token = RunToken::from_uuid_bytes([7; 16]);
        let name = temporary_name(&token, 12);
        assert_eq!(temporary_owner(name.as_bytes()), Some(token));
        assert!(name.len() <= super::super::path::LONGEST_NAME);
    }

    #[test]
    fn name_of_a_user_is_not_taken_for_ours() {
        let token = "07070707070707070707070707070707";
        for name in [
            ".rsmcp-sync-notes".to_owned(),
            ".rsmcp-sync-".to_owned(),
            format!(".rsmcp-sync-{token}"),
            format!(".rsmcp-sync-{token}-"),
            format!(".rsmcp-sync-{token}-x"),
            format!("a.rsmcp-sync-{token}-1"),
        ] {
            assert!(!is_temporary(name.as_bytes()), "{name}");
        }
    }
}
