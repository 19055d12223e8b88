use proptest::prelude::*;
use rstest::rstest;

use super::*;

#[rstest]
#[case("gpu1")]
#[case("10.0.0.1")]
#[case("fe80::1%eth0")]
#[case("user@host")]
#[case("my box")]
#[case("机器")]
fn sandbox_name_is_taken_when_it_is_plain(#[case] text: &str) {
    assert_eq!(SandboxName::parse(text).unwrap().as_str(), text);
}

#[test]
fn sandbox_name_is_measured_in_characters() {
    assert!(SandboxName::parse(&"é".repeat(64)).is_ok());
    assert_eq!(
        SandboxName::parse(&"é".repeat(65)),
        Err(IdError::LongName { chars: 65 })
    );
}

#[rstest]
#[case("", "a sandbox name must not be empty")]
#[case(
    "a\nb",
    "a sandbox name must not hold control characters, this one has `\\n` at character 2"
)]
#[case(
    "\u{1b}[31m",
    "a sandbox name must not hold control characters, this one has `\\u{1b}` at character 1"
)]
#[case(
    "a\u{2028}b",
    "a sandbox name must not hold control characters, this one has `\\u{2028}` at character 2"
)]
#[case(" a", "a sandbox name must not begin or end with a blank: \" a\"")]
#[case("a ", "a sandbox name must not begin or end with a blank: \"a \"")]
fn sandbox_name_is_refused_when_a_rule_is_broken(#[case] text: &str, #[case] message: &str) {
    assert_eq!(SandboxName::parse(text).unwrap_err().to_string(), message);
}

#[test]
fn sandbox_name_is_checked_when_deserialized() {
    assert!(serde_json::from_str::<SandboxName>("\"gpu1\"").is_ok());
    assert!(serde_json::from_str::<SandboxName>("\"a\\nb\"").is_err());
    let name = SandboxName::parse("gpu1").unwrap();
    assert_eq!(serde_json::to_string(&name).unwrap(), "\"gpu1\"");
}

#[test]
fn run_id_and_token_are_the_hex_of_the_bytes() {
    let mut bytes = [0u8; 16];
    bytes[0] = 0x01;
    bytes[15] = 0xff;
    let hex = "010000000000000000000000000000ff";
    assert_eq!(
        RunId::from_uuid_bytes(bytes).to_string(),
        format!("run_{hex}")
    );
    assert_eq!(RunToken::from_uuid_bytes(bytes).as_str(), hex);
}

#[rstest]
#[case("")]
#[case("run_")]
#[case("job_010000000000000000000000000000ff")]
#[case("run_010000000000000000000000000000fF")]
#[case("run_010000000000000000000000000000f")]
#[case("run_010000000000000000000000000000fff")]
#[case("run_010000000000000000000000000000f\n")]
fn run_id_is_refused_when_its_form_differs(#[case] text: &str) {
    let error = RunId::parse(text).unwrap_err();
    assert!(!error.to_string().contains('\n'), "{error}");
}

#[test]
fn run_token_is_refused_when_it_is_not_hex() {
    assert_eq!(RunToken::parse("xyz"), Err(IdError::NotARunToken));
}

proptest! {
    #[test]
    fn run_ids_survive_text_and_back(bytes: [u8; 16]) {
        let id = RunId::from_uuid_bytes(bytes);
        prop_assert_eq!(RunId::parse(id.as_str()).unwrap(), id);
        let token = RunToken::from_uuid_bytes(bytes);
        prop_assert_eq!(RunToken::parse(token.as_str()).unwrap(), token);
    }

    #[test]
    fn sandbox_name_errors_never_hold_control_characters(text in "(?s).{0,80}") {
        if let Err(error) = SandboxName::parse(&text) {
            prop_assert!(!error.to_string().chars().any(char::is_control));
        }
    }
}
