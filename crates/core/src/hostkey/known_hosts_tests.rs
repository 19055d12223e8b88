use proptest::prelude::*;
use rstest::rstest;

use super::super::samples::{blob, ed25519, rsa, text};
use super::*;

fn only_line(content: &str) -> Line {
    let file = KnownHosts::parse("file", content.as_bytes());
    assert_eq!(file.lines.len(), 1, "{:?}", file.lines);
    file.lines.into_iter().next().unwrap()
}

#[rstest]
#[case::spaces("host KEY", 1)]
#[case::tabs("\t host \t KEY", 1)]
#[case::comment_after_key("host KEY root@box # more", 1)]
#[case::carriage_return("host KEY\r\n", 1)]
#[case::carriage_return_after_comment("host KEY root@box\r\n", 1)]
#[case::after_comments_and_blanks("# one\n\n   \n\t# four\nhost KEY\n", 5)]
#[case::after_carriage_return_blanks("# one\r\n\r\nhost KEY\r\n", 3)]
#[case::byte_order_mark("\u{feff}host KEY\n", 1)]
#[case::no_final_line_end("# one\nhost KEY", 2)]
fn line_gives_its_key_and_number(#[case] content: &str, #[case] number: usize) {
    let key = ed25519(3);
    let line = only_line(&content.replace("KEY", &text(&key)));
    assert!(line.hosts.matches("host"));
    assert_eq!((line.number, line.key), (number, Ok(key)));
}

#[rstest]
#[case::plain("host KEY", Marker::Plain)]
#[case::revoked("@revoked host KEY", Marker::Revoked)]
#[case::revoked_tab("@revoked\thost KEY", Marker::Revoked)]
#[case::authority(" @cert-authority   host KEY", Marker::CertAuthority)]
fn marker_is_read(#[case] content: &str, #[case] marker: Marker) {
    let line = only_line(&content.replace("KEY", &text(&ed25519(3))));
    assert_eq!(line.marker, marker);
    assert!(line.key.is_ok());
}

#[test]
fn rsa_key_may_be_named_by_its_signature_algorithm() {
    let key = rsa(5);
    let line = only_line(&text(&key).replace("ssh-rsa", "host rsa-sha2-512"));
    assert_eq!(line.key, Ok(key));
}

#[rstest]
#[case::host_only("host", LineFault::MissingKey)]
#[case::type_only("host ssh-ed25519", LineFault::MissingKey)]
#[case::comment_for_key("host # KEY", LineFault::MissingKey)]
#[case::unprintable_type("host ssh\x1b AAAA", LineFault::BadKeyType)]
#[case::unknown_marker("@trusted host KEY", LineFault::BadMarker)]
#[case::two_markers("@cert-authority @revoked host KEY", LineFault::BadMarker)]
#[case::same_marker_twice("@revoked @revoked host KEY", LineFault::BadMarker)]
#[case::short_blob("host ssh-ed25519 AAAA", LineFault::BadKey(KeyError::NoAlgorithm))]
#[case::other_type(
    "host ssh-rsa BLOB",
    LineFault::WrongKeyType { named: "ssh-rsa".into(), actual: "ssh-ed25519" }
)]
fn broken_line_is_kept_with_its_fault(#[case] content: &str, #[case] fault: LineFault) {
    let key = ed25519(3);
    let content = content
        .replace("KEY", &text(&key))
        .replace("BLOB", &key.to_base64());
    let line = only_line(&content);
    assert!(line.hosts.matches("host"));
    assert_eq!(line.key, Err(fault));
}

#[rstest]
#[case::revoked_first("@revoked @cert-authority host KEY")]
#[case::revoked_last("@cert-authority @revoked host KEY")]
fn line_with_a_revocation_among_markers_stays_a_revocation(#[case] content: &str) {
    let line = only_line(&content.replace("KEY", &text(&ed25519(3))));
    assert_eq!(line.marker, Marker::Revoked);
    assert_eq!(line.key, Err(LineFault::BadMarker));
}

#[test]
fn bad_base64_keeps_its_cause() {
    let line = only_line("host ssh-ed25519 AA!A");
    let fault = line.key.unwrap_err();
    assert!(std::error::Error::source(&fault).is_some());
    assert!(matches!(fault, LineFault::NotBase64(_)));
}

#[test]
fn unknown_algorithm_is_a_fault() {
    let encoded = STANDARD.encode(blob(&[b"ssh-future", &[1; 32]]));
    let line = only_line(&format!("host ssh-future {encoded}"));
    let algorithm = "ssh-future".to_owned();
    assert_eq!(
        line.key,
        Err(LineFault::BadKey(KeyError::UnknownAlgorithm { algorithm }))
    );
}

#[test]
fn overlong_line_is_a_fault_of_its_hosts() {
    let key = text(&ed25519(3));
    let fitting = format!("host {key} ");
    let comment = "c".repeat(MAX_LINE_BYTES - fitting.len());
    assert!(only_line(&format!("{fitting}{comment}")).key.is_ok());
    let line = only_line(&format!("{fitting}{comment}c"));
    assert!(line.hosts.matches("host"));
    assert_eq!(line.key, Err(LineFault::TooLong));
}

#[rstest]
#[case::empty("")]
#[case::blanks(" \t\r\n\n")]
#[case::comment("# host KEY")]
#[case::marker_alone("@revoked")]
#[case::broken_hash("|1|AAAA|BBBB KEY")]
fn line_about_no_host_is_dropped(#[case] content: &str) {
    let content = content.replace("KEY", &text(&ed25519(3)));
    assert!(
        KnownHosts::parse("file", content.as_bytes())
            .lines
            .is_empty()
    );
}

proptest! {
    #[test]
    fn random_bytes_do_not_panic(bytes: Vec<u8>) {
        let file = KnownHosts::parse("file", &bytes);
        prop_assert!(file.lines.len() <= bytes.len());
    }

    #[test]
    fn random_words_do_not_panic(content in r"([@|!*?,#\[\]: \t\r\na1=]|@revoked|ssh-ed25519|AAAA){0,40}") {
        let file = KnownHosts::parse("file", content.as_bytes());
        prop_assert!(file.lines_matching("a").count() <= file.lines.len());
    }
}
