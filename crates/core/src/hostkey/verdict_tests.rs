use proptest::prelude::*;
use rstest::rstest;

use super::super::samples::{ecdsa, ed25519, hashed, rsa, text};
use super::*;

/// Short names of verdicts, for tables.
#[derive(Debug, PartialEq)]
enum Short {
    Trusted(usize),
    Unknown,
    Changed(Vec<usize>),
    Revoked(usize),
    Broken(usize),
}

fn short(verdict: &Verdict) -> Short {
    match verdict {
        Verdict::Trusted { line, .. } => Short::Trusted(*line),
        Verdict::Unknown => Short::Unknown,
        Verdict::Changed { recorded } => {
            Short::Changed(recorded.iter().map(|entry| entry.line).collect())
        }
        Verdict::Revoked { line, .. } => Short::Revoked(*line),
        Verdict::Broken { line, .. } => Short::Broken(*line),
    }
}

/// Puts real keys into a table row: the offered one, another of its kind, one of another algorithm.
fn file(content: &str) -> KnownHosts {
    let content = content
        .replace("OFFERED", &text(&ed25519(1)))
        .replace("OTHER", &text(&ed25519(2)))
        .replace("ECDSA", &text(&ecdsa(3)))
        .replace("BAD", "ssh-ed25519 AAAA");
    KnownHosts::parse("file", content.as_bytes())
}

#[rstest]
#[case::empty("", Short::Unknown)]
#[case::other_host("other OTHER", Short::Unknown)]
#[case::same_key("# c\nhost OFFERED", Short::Trusted(2))]
#[case::first_of_two("host OFFERED\n* OFFERED", Short::Trusted(1))]
#[case::other_key("\n\nhost OTHER", Short::Changed(vec![3]))]
#[case::other_algorithm("host ECDSA", Short::Changed(vec![1]))]
#[case::all_recorded("host OTHER\nx OTHER\nh* ECDSA", Short::Changed(vec![1, 3]))]
#[case::same_key_after_other("host OTHER\nhost ECDSA\nhost OFFERED", Short::Trusted(3))]
#[case::negated("*,!host OFFERED", Short::Unknown)]
#[case::revoked("host OFFERED\n@revoked * OFFERED", Short::Revoked(2))]
#[case::revoked_tab("host OFFERED\n@revoked\thost OFFERED", Short::Revoked(2))]
#[case::revoked_elsewhere("host OFFERED\n@revoked other OFFERED", Short::Trusted(1))]
#[case::revoked_but_host_negated("host OFFERED\n@revoked *,!host OFFERED", Short::Trusted(1))]
#[case::other_key_revoked("@revoked host OTHER", Short::Unknown)]
#[case::authority_only("@cert-authority * OTHER", Short::Unknown)]
#[case::authority_with_same_key("@cert-authority * OFFERED", Short::Unknown)]
#[case::authority_beside_key("@cert-authority * OTHER\nhost OFFERED", Short::Trusted(2))]
#[case::broken_only("\nhost BAD\nhost ssh-rsa", Short::Broken(2))]
#[case::broken_elsewhere("other BAD", Short::Unknown)]
#[case::broken_elsewhere_beside_key("other BAD\nhost OFFERED", Short::Trusted(2))]
#[case::broken_beside_key("host BAD\nhost OFFERED", Short::Trusted(2))]
#[case::broken_beside_other_key("host BAD\nhost OTHER", Short::Changed(vec![2]))]
#[case::broken_authority("@cert-authority host BAD", Short::Unknown)]
#[case::broken_revocation("host OFFERED\n@revoked * BAD", Short::Broken(2))]
#[case::broken_revocation_elsewhere("host OFFERED\n@revoked other BAD", Short::Trusted(1))]
#[case::broken_revocation_before_real("@revoked * BAD\n@revoked * OFFERED", Short::Revoked(2))]
#[case::unknown_marker("@trusted host OFFERED", Short::Broken(1))]
fn key_is_judged_on_the_default_port(#[case] content: &str, #[case] expected: Short) {
    let address = HostAddress::new("HOST", 22).unwrap();
    let verdict = judge(&address, &ed25519(1), &[file(content)]);
    assert_eq!(short(&verdict), expected);
}

#[rstest]
#[case::own_line("[host]:2222 OFFERED", Short::Trusted(1))]
#[case::own_line_changed("[host]:2222 OTHER", Short::Changed(vec![1]))]
#[case::own_line_changed_beside_plain("[host]:2222 OTHER\nhost OFFERED", Short::Changed(vec![1]))]
#[case::other_port("[host]:2223 OFFERED", Short::Unknown)]
#[case::plain_line_same_key("host OFFERED", Short::Trusted(1))]
#[case::plain_line_other_key("host OTHER", Short::Unknown)]
#[case::plain_line_broken("host BAD", Short::Unknown)]
#[case::own_line_broken("[host]:2222 BAD\nhost OFFERED", Short::Broken(1))]
#[case::plain_line_revoked("@revoked host OFFERED", Short::Revoked(1))]
#[case::plain_line_revoked_beside_own(
    "[host]:2222 OFFERED\n@revoked host OFFERED",
    Short::Revoked(2)
)]
#[case::negated_by_port_only("*,![host]:2222 OFFERED", Short::Trusted(1))]
#[case::negated_both("*,!*host* OFFERED", Short::Unknown)]
fn key_is_judged_on_another_port(#[case] content: &str, #[case] expected: Short) {
    let address = HostAddress::new("host", 2222).unwrap();
    let verdict = judge(&address, &ed25519(1), &[file(content)]);
    assert_eq!(short(&verdict), expected);
}

#[test]
fn changed_names_every_recorded_key() {
    let first = KnownHosts::parse("user", format!("host {}\n", text(&rsa(4))).as_bytes());
    let second = KnownHosts::parse("system", format!("\nhost {}\n", text(&ecdsa(5))).as_bytes());
    let address = HostAddress::new("host", 22).unwrap();
    let entry = |source: &str, line, key: &HostKey| Recorded {
        source: source.to_owned(),
        line,
        algorithm: key.algorithm(),
        fingerprint: key.fingerprint(),
    };
    let recorded = vec![entry("user", 1, &rsa(4)), entry("system", 2, &ecdsa(5))];
    let verdict = judge(&address, &ed25519(1), &[first, second]);
    assert_eq!(verdict, Verdict::Changed { recorded });
}

#[test]
fn revocation_in_a_later_file_beats_trust_in_an_earlier_one() {
    let key = ed25519(1);
    let user = KnownHosts::parse("user", format!("host {}\n", text(&key)).as_bytes());
    let system = KnownHosts::parse("system", format!("@revoked * {}\n", text(&key)).as_bytes());
    let address = HostAddress::new("host", 22).unwrap();
    let source = "system".to_owned();
    assert_eq!(
        judge(&address, &key, &[user, system]),
        Verdict::Revoked { source, line: 1 }
    );
}

#[test]
fn trust_in_a_later_file_beats_another_key_in_an_earlier_one() {
    let user = file("host OTHER");
    let address = HostAddress::new("host", 22).unwrap();
    let system = KnownHosts::parse("system", format!("host {}", text(&ed25519(1))).as_bytes());
    let source = "system".to_owned();
    assert_eq!(
        judge(&address, &ed25519(1), &[user, system]),
        Verdict::Trusted { source, line: 1 }
    );
}

#[test]
fn revoked_key_of_unknown_algorithm_does_not_block_the_host() {
    // The base64 is a blob of algorithm "ssh-future" with an empty field.
    let content = "@revoked * ssh-future AAAACnNzaC1mdXR1cmUAAAAA\nhost OFFERED";
    let address = HostAddress::new("host", 22).unwrap();
    let verdict = judge(&address, &ed25519(1), &[file(content)]);
    assert_eq!(short(&verdict), Short::Trusted(2));
}

#[test]
fn list_of_recorded_keys_is_bounded() {
    let address = HostAddress::new("host", 22).unwrap();
    let verdict = judge(
        &address,
        &ed25519(1),
        &[file(&"host OTHER\n".repeat(MAX_RECORDED + 1))],
    );
    let Verdict::Changed { recorded } = verdict else {
        panic!("{verdict:?}");
    };
    assert_eq!(recorded.len(), MAX_RECORDED);
}

#[rstest]
#[case::none("other OTHER", 22, &[])]
#[case::each_once("host ECDSA\nhost OTHER\nhost OFFERED", 22, &["ecdsa-sha2-nistp256", "ssh-ed25519"])]
#[case::revoked_key_left_out("host ECDSA\nhost OTHER\n@revoked * OTHER", 22, &["ecdsa-sha2-nistp256"])]
#[case::authority_left_out("@cert-authority host ECDSA\nhost OTHER", 22, &["ssh-ed25519"])]
#[case::broken_left_out("host BAD", 22, &[])]
#[case::own_port("host OTHER\n[host]:2222 ECDSA", 2222, &["ecdsa-sha2-nistp256"])]
#[case::plain_host_for_port("host OTHER", 2222, &["ssh-ed25519"])]
fn recorded_algorithms_are_listed(
    #[case] content: &str,
    #[case] port: u16,
    #[case] expected: &[&str],
) {
    let address = HostAddress::new("host", port).unwrap();
    assert_eq!(recorded_algorithms(&address, &[file(content)]), expected);
}

#[rstest]
#[case("host", 22, "host ssh-ed25519 ")]
#[case("::1", 2222, "[::1]:2222 ssh-ed25519 ")]
fn recorded_line_is_trusted_when_read_back(
    #[case] host: &str,
    #[case] port: u16,
    #[case] start: &str,
) {
    let address = HostAddress::new(host, port).unwrap();
    let line = record_line(&address, &ed25519(1));
    assert!(line.starts_with(start) && line.ends_with('\n'), "{line}");
    let read = KnownHosts::parse("file", line.as_bytes());
    assert_eq!(
        short(&judge(&address, &ed25519(1), &[read])),
        Short::Trusted(1)
    );
}

proptest! {
    #[test]
    fn hashed_and_plain_entry_give_the_same_verdict(
        host in "[a-c]{1,2}",
        recorded_host in "[a-c]{1,2}",
        port in prop_oneof![Just(22_u16), Just(2222)],
        recorded_port in prop_oneof![Just(22_u16), Just(2222)],
        marker in prop_oneof![Just(""), Just("@revoked "), Just("@cert-authority ")],
        seed in 1_u8..3,
        salt: [u8; 20],
    ) {
        let address = HostAddress::new(&host, port).unwrap();
        let name = HostAddress::new(&recorded_host, recorded_port).unwrap().known_hosts_name();
        let key = text(&ed25519(seed));
        let plain = format!("{marker}{name} {key}\n");
        let hidden = format!("{marker}{} {key}\n", hashed(&name, salt));
        let verdict = |content: &str| {
            judge(&address, &ed25519(1), &[KnownHosts::parse("file", content.as_bytes())])
        };
        prop_assert_eq!(verdict(&plain), verdict(&hidden));
    }

    #[test]
    fn random_file_never_trusts(bytes: Vec<u8>) {
        let address = HostAddress::new("host", 22).unwrap();
        let read = KnownHosts::parse("file", &bytes);
        let trusted = matches!(
            judge(&address, &ed25519(1), &[read]),
            Verdict::Trusted { .. }
        );
        prop_assert!(!trusted);
    }
}
