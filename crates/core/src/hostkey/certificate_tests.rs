use rstest::rstest;

use super::super::samples::{ecdsa, ed25519, rsa, text};
use super::*;

const NOW: u64 = 1_000;

fn certificate() -> HostCertificate {
    HostCertificate {
        key: ecdsa(1),
        authority: ed25519(2),
        signature_algorithm: "ssh-ed25519".into(),
        for_hosts: true,
        principals: vec!["host".into()],
        valid_after: 0,
        valid_before: u64::MAX,
        critical_options: Vec::new(),
    }
}

fn judged(content: &str, port: u16, certificate: &HostCertificate) -> String {
    let content = content
        .replace("AUTHORITY", &text(&ed25519(2)))
        .replace("OTHER", &text(&rsa(3)))
        .replace("KEY", &text(&ecdsa(1)))
        .replace("BAD", "ssh-ed25519 AAAA");
    let files = [KnownHosts::parse("file", content.as_bytes())];
    let address = HostAddress::new("host", port).unwrap();
    match judge_certificate(&address, certificate, NOW, &files) {
        CertificateVerdict::Vouched { line, .. } => format!("vouched {line}"),
        CertificateVerdict::Plain { verdict, fault } => {
            let verdict = match verdict {
                Verdict::Trusted { line, .. } => format!("trusted {line}"),
                Verdict::Unknown => "unknown".to_owned(),
                Verdict::Changed { .. } => "changed".to_owned(),
                Verdict::Revoked { line, .. } => format!("revoked {line}"),
                Verdict::Broken { line, .. } => format!("broken {line}"),
            };
            match fault {
                Some(fault) => format!("{verdict}: {fault}"),
                None => verdict,
            }
        }
    }
}

#[rstest]
#[case::no_lines("", "unknown")]
#[case::vouched("@cert-authority host AUTHORITY", "vouched 1")]
#[case::second_authority("@cert-authority * OTHER\n@cert-authority * AUTHORITY", "vouched 2")]
#[case::other_host("@cert-authority other AUTHORITY", "unknown")]
#[case::other_authority("@cert-authority * OTHER", "unknown")]
#[case::plain_line_of_the_authority("host AUTHORITY", "changed")]
#[case::plain_key("host KEY", "trusted 1")]
#[case::plain_key_beside("@cert-authority * OTHER\nhost KEY", "trusted 2")]
#[case::other_plain_key("@cert-authority * AUTHORITY\nhost OTHER", "vouched 1")]
#[case::revoked_authority("@cert-authority * AUTHORITY\n@revoked * AUTHORITY", "revoked 2")]
#[case::revoked_key("@cert-authority * AUTHORITY\n@revoked host KEY", "revoked 2")]
#[case::unreadable_revocation("@cert-authority * AUTHORITY\n@revoked host BAD", "broken 2")]
#[case::broken_authority("@cert-authority * BAD", "unknown")]
fn authority_decides(#[case] content: &str, #[case] wanted: &str) {
    assert_eq!(judged(content, 22, &certificate()), wanted);
}

#[rstest]
#[case::with_port("@cert-authority [host]:2222 AUTHORITY", "vouched 1")]
#[case::without_port("@cert-authority host AUTHORITY", "vouched 1")]
#[case::own_line_first(
    "@cert-authority host AUTHORITY\n@cert-authority [host]:2222 OTHER",
    "unknown"
)]
#[case::revoked_without_port("@cert-authority * AUTHORITY\n@revoked host AUTHORITY", "revoked 2")]
fn port_is_part_of_the_name(#[case] content: &str, #[case] wanted: &str) {
    assert_eq!(judged(content, 2222, &certificate()), wanted);
}

#[rstest]
#[case::sound(|_: &mut HostCertificate| {}, "vouched 1")]
#[case::for_users(|c: &mut HostCertificate| c.for_hosts = false, "unknown: it is a certificate for users, not for hosts")]
#[case::weak(|c: &mut HostCertificate| c.signature_algorithm = "ssh-rsa".into(), "unknown: it is signed with ssh-rsa, which is too weak")]
#[case::strong(|c: &mut HostCertificate| c.signature_algorithm = "rsa-sha2-256".into(), "vouched 1")]
#[case::from_now(|c: &mut HostCertificate| c.valid_after = NOW, "vouched 1")]
#[case::from_later(|c: &mut HostCertificate| c.valid_after = NOW + 1, "unknown: it is not valid yet")]
#[case::until_now(|c: &mut HostCertificate| c.valid_before = NOW, "unknown: it has expired")]
#[case::until_later(|c: &mut HostCertificate| c.valid_before = NOW + 1, "vouched 1")]
#[case::every_name(|c: &mut HostCertificate| c.principals.clear(), "vouched 1")]
#[case::one_of_many(|c: &mut HostCertificate| c.principals = vec!["x".into(), "host".into()], "vouched 1")]
#[case::pattern(|c: &mut HostCertificate| c.principals = vec!["h?s*".into()], "unknown: it is for h?s*, not for host")]
#[case::other_case(|c: &mut HostCertificate| c.principals = vec!["Host".into()], "unknown: it is for Host, not for host")]
#[case::part_of_name(|c: &mut HostCertificate| c.principals = vec!["hos".into(), "\u{1b}[2Jhost".into()], "unknown: it is for hos, \\x1b[2Jhost, not for host")]
#[case::many(|c: &mut HostCertificate| c.principals = vec!["x".into(); 7], "unknown: it is for x, x, x, x and 3 more, not for host")]
#[case::critical(|c: &mut HostCertificate| c.critical_options = vec!["force-command".into()], "unknown: it has the critical option `force-command`, which is not known")]
fn certificate_must_be_for_here_and_now(
    #[case] change: fn(&mut HostCertificate),
    #[case] wanted: &str,
) {
    let mut certificate = certificate();
    change(&mut certificate);
    assert_eq!(
        judged("@cert-authority * AUTHORITY", 22, &certificate),
        wanted
    );
}

#[rstest]
#[case("", 22, false)]
#[case("host AUTHORITY", 22, false)]
#[case("@cert-authority other AUTHORITY", 22, false)]
#[case("@cert-authority host BAD", 22, false)]
#[case("@cert-authority host AUTHORITY", 22, true)]
#[case("@cert-authority host AUTHORITY", 2222, true)]
#[case("@cert-authority [host]:2222 AUTHORITY", 22, false)]
fn certificates_are_worth_asking_for_when_an_authority_is_recorded(
    #[case] content: &str,
    #[case] port: u16,
    #[case] wanted: bool,
) {
    let content = content
        .replace("AUTHORITY", &text(&ed25519(2)))
        .replace("BAD", "ssh-ed25519 AAAA");
    let files = [KnownHosts::parse("file", content.as_bytes())];
    let address = HostAddress::new("host", port).unwrap();
    assert_eq!(has_authority(&address, &files), wanted);
}
