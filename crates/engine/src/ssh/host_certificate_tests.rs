use super::*;

/// A host with a certificate, and the lines for its authority, another authority and its key.
struct Certified {
    sshd: Sshd,
    folder: TempDir,
}

impl Certified {
    fn start(kind: KeyType, options: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let made = |name: &str, kind| {
            ClientKey::generate(folder.path(), name, kind, KeyFormat::OpenSsh, None).unwrap()
        };
        let (host, authority) = (made("host", kind), made("authority", KeyType::Rsa));
        made("other", KeyType::Ed25519);
        let mut arguments = vec![
            "-s",
            authority.private_path().to_str().unwrap(),
            "-I",
            "host",
        ];
        arguments.extend(options);
        let public = host.public_path();
        arguments.push(public.to_str().unwrap());
        keygen(&arguments);
        let sshd = Sshd::builder()
            .extra_config(&format!("HostKey {}", host.private_path().display()))
            .extra_config(&format!(
                "HostCertificate {}",
                certificate_of(&host).display()
            ))
            .start();
        Certified { sshd, folder }
    }

    fn place(&self, known_hosts: &str) -> Place {
        let mut place = Place::new(&self.sshd);
        let key = |name: &str| {
            let line = fs::read_to_string(self.folder.path().join(name)).unwrap();
            line.split(' ').take(2).collect::<Vec<_>>().join(" ")
        };
        let text = known_hosts
            .replace("NAME", &format!("[127.0.0.1]:{}", self.sshd.port()))
            .replace("AUTHORITY", &key("authority.pub"))
            .replace("OTHER", &key("other.pub"))
            .replace("HOST", &key("host.pub"));
        fs::write(place.path("known_hosts"), text).unwrap();
        place.settings.key_file = Some(self.sshd.client_key_path().to_owned());
        place
    }
}

const FITTING: &[&str] = &["-h", "-n", "127.0.0.1", "-V", "-1m:+10m"];

#[rstest]
#[tokio::test]
async fn f19_host_certificate_of_a_recorded_authority_is_trusted(
    #[values(KeyType::Ecdsa, KeyType::Rsa)] kind: KeyType,
    #[values(
        "@cert-authority NAME AUTHORITY",
        "@cert-authority 127.0.0.* AUTHORITY",
        "@cert-authority * OTHER\n@cert-authority * AUTHORITY"
    )]
    known_hosts: &str,
) {
    let certified = Certified::start(kind, FITTING);
    assert_eq!(certified.place(known_hosts).login().await, Ok(()));
}

#[rstest]
#[case::other_name(&["-h", "-n", "elsewhere"], "@cert-authority * AUTHORITY", "it is for elsewhere, not for 127.0.0.1")]
#[case::expired(&["-h", "-V", "-2d:-1d"], "@cert-authority * AUTHORITY", "it has expired")]
#[case::early(&["-h", "-V", "+1d:+2d"], "@cert-authority * AUTHORITY", "it is not valid yet")]
#[case::critical(&["-h", "-O", "critical:odd@example=1"], "@cert-authority * AUTHORITY", "critical option `odd@example`")]
#[case::weak(&["-h", "-t", "ssh-rsa"], "@cert-authority * AUTHORITY", "signed with ssh-rsa")]
#[case::other_authority(FITTING, "@cert-authority * OTHER", "is not recorded")]
#[case::revoked_authority(
    FITTING,
    "@cert-authority * AUTHORITY\n@revoked * AUTHORITY",
    "is revoked"
)]
#[case::revoked_key(FITTING, "@cert-authority * AUTHORITY\n@revoked * HOST", "is revoked")]
#[case::changed(FITTING, "@cert-authority * OTHER\nNAME OTHER", "has changed")]
#[tokio::test]
async fn f19_host_certificate_that_does_not_fit_is_refused_before_the_login(
    #[case] options: &[&str],
    #[case] known_hosts: &str,
    #[case] said: &str,
    #[values(HostKeyPolicy::Strict, HostKeyPolicy::AcceptNew)] policy: HostKeyPolicy,
) {
    let certified = Certified::start(KeyType::Ecdsa, options);
    let mut place = certified.place(known_hosts);
    place.settings.host_keys.policy = policy;
    let result = place.login().await;
    if said == "is not recorded" && policy == HostKeyPolicy::AcceptNew {
        // No authority has a say, so the host is new like any other.
        assert_eq!(result, Ok(()));
        return;
    }
    let refused = result.unwrap_err();
    assert!(refused.contains(said), "{refused}");
    let sshd = &certified.sshd;
    assert_eq!(sshd.failed_auth_count() + sshd.accepted_auth_count(), 0);
}

#[rstest]
#[case::no_authority("NAME HOST")]
#[case::other_authority("@cert-authority * OTHER\nNAME HOST")]
#[tokio::test]
async fn f19_certified_key_counts_like_a_plain_one(#[case] known_hosts: &str) {
    let certified = Certified::start(KeyType::Ecdsa, FITTING);
    assert_eq!(certified.place(known_hosts).login().await, Ok(()));
}

#[rstest]
#[case("alias HOST", Some("alias"), true)]
#[case("NAME HOST", Some("alias"), false)]
#[case("alias HOST", None, false)]
#[tokio::test]
async fn f19_host_key_is_looked_up_under_its_own_name(
    #[case] known_hosts: &str,
    #[case] name: Option<&str>,
    #[case] trusted: bool,
) {
    let certified = Certified::start(KeyType::Ecdsa, FITTING);
    let mut place = certified.place(known_hosts);
    place.settings.host_keys.name = name.map(str::to_owned);
    assert_eq!(place.login().await.is_ok(), trusted);
}
