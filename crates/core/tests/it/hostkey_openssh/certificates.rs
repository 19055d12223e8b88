//! Host certificates, judged by the real `ssh` and by the core.

use std::fs;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use remote_sandbox_core::hostkey::{
    CertificateVerdict, HostAddress, HostCertificate, KnownHosts, judge_certificate,
};

use super::rows::Answer;
use super::{Bench, answer_of, generate, key_of, program};

/// How the certificate is made, and what is different about it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Made {
    Fitting,
    EveryName,
    Pattern,
    OtherName,
    OtherCase,
    Expired,
    Early,
    Critical,
    Weak,
    OtherAuthority,
}

impl Made {
    fn arguments(self) -> &'static [&'static str] {
        match self {
            Made::Fitting | Made::OtherAuthority => &["-n", "x,box"],
            Made::EveryName => &[],
            Made::Pattern => &["-n", "b?*"],
            Made::OtherName => &["-n", "other"],
            Made::OtherCase => &["-n", "Box"],
            Made::Expired => &["-n", "box", "-V", "-2d:-1d"],
            Made::Early => &["-n", "box", "-V", "+1d:+2d"],
            Made::Critical => &["-n", "box", "-O", "critical:odd@example=1"],
            Made::Weak => &["-n", "box", "-t", "ssh-rsa"],
        }
    }

    /// The same as the core sees it.
    fn seen(self, key: &str, authority: &str, now: u64) -> HostCertificate {
        const DAY: u64 = 86_400;
        let names: &[&str] = match self {
            Made::EveryName => &[],
            Made::Pattern => &["b?*"],
            Made::OtherName => &["other"],
            Made::OtherCase => &["Box"],
            _ => &["x", "box"],
        };
        let (valid_after, valid_before) = match self {
            Made::Expired => (now - 2 * DAY, now - DAY),
            Made::Early => (now + DAY, now + 2 * DAY),
            _ => (0, u64::MAX),
        };
        let options: &[&str] = match self {
            Made::Critical => &["odd@example"],
            _ => &[],
        };
        HostCertificate {
            key: key_of(key),
            authority: key_of(authority),
            signature_algorithm: match self {
                Made::Weak => "ssh-rsa".into(),
                _ => "rsa-sha2-512".into(),
            },
            for_hosts: true,
            principals: names.iter().map(|name| (*name).to_owned()).collect(),
            valid_after,
            valid_before,
            critical_options: options.iter().map(|name| (*name).to_owned()).collect(),
        }
    }
}

const ROWS: [(Made, &str, Answer); 24] = [
    (Made::Fitting, "", Answer::Unknown),
    (Made::Fitting, "@cert-authority box CA", Answer::Trusted),
    (Made::Fitting, "@cert-authority b* CA", Answer::Trusted),
    (Made::Fitting, "@cert-authority other CA", Answer::Unknown),
    (Made::Fitting, "@cert-authority *,!box CA", Answer::Unknown),
    (Made::Fitting, "@cert-authority * OTHER", Answer::Unknown),
    (
        Made::Fitting,
        "@cert-authority * OTHER\n@cert-authority * CA",
        Answer::Trusted,
    ),
    (
        Made::Fitting,
        "@cert-authority * CA\nbox OTHER",
        Answer::Trusted,
    ),
    (
        Made::Fitting,
        "@cert-authority * OTHER\nbox OFFERED",
        Answer::Trusted,
    ),
    (
        Made::Fitting,
        "@cert-authority * OTHER\nbox OTHER",
        Answer::Changed,
    ),
    (Made::Fitting, "box CA", Answer::Changed),
    (
        Made::Fitting,
        "@cert-authority * CA\n@revoked * CA",
        Answer::Revoked,
    ),
    (
        Made::Fitting,
        "@cert-authority * CA\n@revoked * OFFERED",
        Answer::Revoked,
    ),
    (
        Made::Fitting,
        "@cert-authority * CA\n@revoked * OTHER",
        Answer::Trusted,
    ),
    (Made::EveryName, "@cert-authority * CA", Answer::Trusted),
    (Made::Pattern, "@cert-authority * CA", Answer::Unknown),
    (Made::OtherName, "@cert-authority * CA", Answer::Unknown),
    (
        Made::OtherName,
        "@cert-authority * CA\nbox OFFERED",
        Answer::Trusted,
    ),
    (Made::OtherCase, "@cert-authority * CA", Answer::Unknown),
    (Made::Expired, "@cert-authority * CA", Answer::Unknown),
    (Made::Early, "@cert-authority * CA", Answer::Unknown),
    (Made::Critical, "@cert-authority * CA", Answer::Unknown),
    (Made::Weak, "@cert-authority * CA", Answer::Unknown),
    (
        Made::OtherAuthority,
        "@cert-authority * CA",
        Answer::Unknown,
    ),
];

#[test]
fn certificate_verdict_is_that_of_ssh() {
    let (Some(bench), Some(ssh_keygen)) = (Bench::new(), program("ssh-keygen")) else {
        return;
    };
    let folder = bench.directory.path();
    let (path, authority) = generate(&ssh_keygen, folder, "authority", "rsa");
    let (other_path, other_authority) = generate(&ssh_keygen, folder, "other_authority", "rsa");
    let configuration = folder.join("certified_config");
    let mut text = fs::read_to_string(&bench.configuration).unwrap();
    text.push_str(&format!(
        "HostCertificate {}/first-cert.pub\n",
        folder.display()
    ));
    fs::write(&configuration, text).unwrap();
    let proxy = format!(
        "ProxyCommand={} -i -f {}",
        bench.sshd.display(),
        configuration.display()
    );
    let algorithms = "HostKeyAlgorithms=ssh-ed25519-cert-v01@openssh.com";
    let options = ["-o", &proxy, "-o", algorithms].map(str::to_owned);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    for (made, known_hosts, wanted) in ROWS {
        let (signer, signed_by) = match made {
            Made::OtherAuthority => (&other_path, &other_authority),
            _ => (&path, &authority),
        };
        let done = Command::new(&ssh_keygen)
            .args(["-q", "-h", "-I", "test", "-s"])
            .arg(signer)
            .args(made.arguments())
            .arg(folder.join("first.pub"))
            .status();
        assert!(done.unwrap().success(), "{made:?}");
        let content = bench
            .fill(&known_hosts.replace("CA", "AUTHORITY"))
            .replace("AUTHORITY", &authority);
        let (answer, _) = bench.ask_ssh("box", [&content, ""], &options);
        assert_eq!(answer, wanted, "ssh on {made:?} {known_hosts}");
        let files = [KnownHosts::parse("user", content.as_bytes())];
        let address = HostAddress::new("box", 22).unwrap();
        let seen = made.seen(&bench.offered, signed_by, now);
        let ours = match judge_certificate(&address, &seen, now, &files) {
            CertificateVerdict::Vouched { .. } => Answer::Trusted,
            CertificateVerdict::Plain { verdict, .. } => answer_of(&verdict),
        };
        assert_eq!(ours, wanted, "ours on {made:?} {known_hosts}");
    }
}
