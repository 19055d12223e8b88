use proptest::prelude::*;
use rstest::rstest;

use super::super::LogPart;
use super::*;

fn looks() -> Vec<Look> {
    vec![Look::foreign("x", "/log", LogPart::Last(10)).unwrap()]
}

#[rstest]
#[case("a\nEXIT_CODE=3\n", Some(3))]
#[case("EXIT_CODE=3\nmore\nEXIT_CODE=0", Some(0))]
#[case("no newlineEXIT_CODE=0\n", None)]
#[case("EXIT_CODE=\n", None)]
#[case(" EXIT_CODE=1\n", None)]
fn hearsay_is_a_line_of_its_own(#[case] text: &str, #[case] code: Option<u32>) {
    assert_eq!(hearsay_exit_code(text.as_bytes()), code);
}

#[rstest]
#[case("", ExitFault::Empty)]
#[case("   \n \n", ExitFault::Empty)]
#[case(
    "nonce=00000000000000000000000000000000\ncode=0\n",
    ExitFault::Truncated
)]
#[case("nonce=0\ncode=0\nsignal=0\nended=1\nend=\n", ExitFault::Truncated)]
#[case(
    "nonce=00000000000000000000000000000000\ncode=999\nsignal=0\nended=1\nend=\n",
    ExitFault::Truncated
)]
#[case(
    "nonce=00000000000000000000000000000000\ncode=0\nsignal=0\nended=1\nen",
    ExitFault::Truncated
)]
fn exit_record_is_refused_when_it_is_not_whole(#[case] text: &str, #[case] fault: ExitFault) {
    assert_eq!(exit_reading(text.as_bytes()), ExitReading::Fault(fault));
}

#[test]
fn exit_record_is_read_with_the_room_after_it() {
    let text = format!(
        "nonce={}\ncode=143\nsignal=15\nended=77\nend=\n{}\n",
        "0".repeat(32),
        " ".repeat(440)
    );
    let ExitReading::Record(record) = exit_reading(text.as_bytes()) else {
        panic!()
    };
    assert_eq!(
        (record.ending, record.ended_at),
        (Ending::Signal(15), Some(77))
    );
}

proptest! {
    #[test]
    fn reader_survives_any_answer(lines in prop::collection::vec(
        ("(host|0|1|9)", "(boot|node|now|tmux|sessions|nonce|process|child|exit|exit_text|log|log_text|checkpoint|over|folder)",
         "[ -~]{0,40}"), 0..12))
    {
        let mark = RunToken::from_uuid_bytes([9; 16]);
        let text: String = lines
            .iter()
            .map(|(place, key, value)| format!("RSMCP:{mark}:{place}:{key}:{value}\nraw\n"))
            .collect();
        let _ = parse_check(&looks(), &mark, text.as_bytes());
    }
}
