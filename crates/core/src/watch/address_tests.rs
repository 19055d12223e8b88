use proptest::prelude::*;
use rstest::rstest;

use super::*;

#[rstest]
#[case("http://h", "h", 80, "/")]
#[case("HTTPS://Example.ORG./a?b=c#d", "example.org", 443, "/a?b=c")]
#[case("http://h:8080?x", "h", 8080, "/?x")]
#[case("http://127.0.0.1:1/", "127.0.0.1", 1, "/")]
#[case("https://[::1]:8443/x", "::1", 8443, "/x")]
#[case("https://[0:0:0:0:0:0:0:1]/x", "::1", 443, "/x")]
fn address_is_read(
    #[case] text: &str,
    #[case] host: &str,
    #[case] port: u16,
    #[case] target: &str,
) {
    let address = WebAddress::parse(text).unwrap();
    assert_eq!(
        (address.host(), address.port(), address.target()),
        (host, port, target)
    );
}

#[rstest]
#[case("ftp://h", WebAddressError::Scheme)]
#[case("h/x", WebAddressError::Scheme)]
#[case("http://", WebAddressError::Host)]
#[case("http:///x", WebAddressError::Host)]
#[case("http://a..b", WebAddressError::Host)]
#[case("http://user@h", WebAddressError::UserInfo)]
#[case("http://good.org:x@evil.org", WebAddressError::UserInfo)]
#[case("http://good.org\\@evil.org", WebAddressError::Character)]
#[case("http://good.org\n.evil.org", WebAddressError::Character)]
#[case("http://h/a b", WebAddressError::Character)]
#[case("http://bücher.example", WebAddressError::Character)]
#[case("http://h:0", WebAddressError::Port)]
#[case("http://h:99999", WebAddressError::Port)]
#[case("http://h:", WebAddressError::Port)]
#[case("http://h:+80", WebAddressError::Port)]
#[case("http://[::1]x", WebAddressError::Port)]
#[case("http://[fe80::1%25eth0]", WebAddressError::Host)]
#[case("http://127.1", WebAddressError::Host)]
#[case("http://2130706433", WebAddressError::Host)]
#[case("http://0x7f000001", WebAddressError::Host)]
#[case("http://0177.0.0.1", WebAddressError::Host)]
#[case("http://%31%32%37.0.0.1", WebAddressError::Host)]
fn address_that_others_may_read_differently_is_refused(
    #[case] text: &str,
    #[case] error: WebAddressError,
) {
    assert_eq!(WebAddress::parse(text), Err(error));
}

#[test]
fn address_shows_nothing_but_its_host() {
    let address = WebAddress::parse("https://h.example:444/hook/token?key=token").unwrap();
    assert_eq!(
        format!("{address} {address:?}"),
        "https://h.example:444 WebAddress(https://h.example:444)"
    );
}

#[rstest]
#[case("https://hooks.slack.com/services/T0/B0/token", &["token", ""])]
#[case("https://h/robot/send?access_token=token&x=1", &["send", "token", "1"])]
#[case("https://h/?token", &["", "token"])]
fn tokens_are_the_last_word_of_the_path_and_the_values_of_the_query(
    #[case] text: &str,
    #[case] expected: &[&str],
) {
    let address = WebAddress::parse(text).unwrap();
    assert_eq!(address.tokens().collect::<Vec<_>>(), expected);
}

#[test]
fn query_is_added_to_what_is_there() {
    let plain = WebAddress::parse("https://h/a").unwrap();
    assert_eq!(plain.with_query("x=1").target(), "/a?x=1");
    let more = WebAddress::parse("https://h/a?k=2").unwrap();
    assert_eq!(more.with_query("x=1").target(), "/a?k=2&x=1");
}

#[rstest]
#[case("h", "http://h:8080", true)]
#[case("H", "http://h", true)]
#[case("h:8080", "http://h:8080", true)]
#[case("h:8080", "http://h", false)]
#[case("h", "http://h.evil.org", false)]
#[case("h", "http://xh", false)]
#[case("[::1]", "http://[::1]:9/", true)]
fn listed_host_fits_itself_alone(#[case] listed: &str, #[case] address: &str, #[case] fits: bool) {
    let address = WebAddress::parse(address).unwrap();
    assert_eq!(HostPort::parse(listed).unwrap().fits(&address), fits);
}

#[rstest]
#[case("169.254.169.254", AddressKind::LinkLocal)]
#[case("169.254.0.1", AddressKind::LinkLocal)]
#[case("::ffff:169.254.169.254", AddressKind::LinkLocal)]
#[case("::169.254.169.254", AddressKind::LinkLocal)]
#[case("64:ff9b::a9fe:a9fe", AddressKind::LinkLocal)]
#[case("2002:a9fe:a9fe::1", AddressKind::LinkLocal)]
#[case("::ffff:0:169.254.169.254", AddressKind::LinkLocal)]
#[case("64:ff9b:1::169.254.169.254", AddressKind::LinkLocal)]
#[case("64:ff9b:1:a9fe:a9:fe00:808:808", AddressKind::LinkLocal)]
#[case("64:ff9b:1:12a9:fe:a9fe:808:808", AddressKind::LinkLocal)]
#[case("64:ff9b:1:12:a9:fea9:fe08:808", AddressKind::LinkLocal)]
#[case("64:ff9b:1::8.8.8.8", AddressKind::Usual)]
#[case("64:ff9b:1:808:8:800::", AddressKind::Usual)]
#[case("2001:0:808:808::5601:5601", AddressKind::LinkLocal)]
#[case("2001:0:a9fe:a9fe::f7f7:f7f7", AddressKind::LinkLocal)]
#[case("2001:0:808:808::f7f7:f7f7", AddressKind::Usual)]
#[case("2001:db8::5efe:169.254.169.254", AddressKind::LinkLocal)]
#[case("2001:db8::200:5efe:127.0.0.1", AddressKind::Loopback)]
#[case("fe80::5efe:8.8.8.8", AddressKind::LinkLocal)]
#[case("fe80::1", AddressKind::LinkLocal)]
#[case("febf::1", AddressKind::LinkLocal)]
#[case("fec0::1", AddressKind::Usual)]
#[case("fd00:ec2::254", AddressKind::Metadata)]
#[case("100.100.100.200", AddressKind::Metadata)]
#[case("0.0.0.0", AddressKind::Unspecified)]
#[case("0.1.2.3", AddressKind::Unspecified)]
#[case("::", AddressKind::Unspecified)]
#[case("::ffff:0.0.0.0", AddressKind::Unspecified)]
#[case("224.0.0.1", AddressKind::Multicast)]
#[case("255.255.255.255", AddressKind::Multicast)]
#[case("ff02::1", AddressKind::Multicast)]
#[case("127.8.8.8", AddressKind::Loopback)]
#[case("::1", AddressKind::Loopback)]
#[case("::ffff:127.0.0.1", AddressKind::Loopback)]
#[case("10.0.0.1", AddressKind::Usual)]
#[case("192.168.1.1", AddressKind::Usual)]
#[case("2001:db8::1", AddressKind::Usual)]
fn address_is_judged_also_within_another(#[case] text: &str, #[case] kind: AddressKind) {
    assert_eq!(judge_address(text.parse().unwrap()), kind);
}

#[rstest]
#[case::of_a_name_that_lies("169.254.169.254:80", true, Err(AddressKind::LinkLocal))]
#[case::mapped("[::ffff:169.254.169.254]:80", true, Err(AddressKind::LinkLocal))]
#[case::with_a_scope("[fe80::1%3]:80", true, Err(AddressKind::LinkLocal))]
#[case::here("127.0.0.1:80", false, Err(AddressKind::Loopback))]
#[case::here_mapped("[::ffff:127.0.0.1]:80", false, Err(AddressKind::Loopback))]
#[case::here_and_listed("127.0.0.1:80", true, Ok(1))]
#[case::one_of_two("169.254.169.254:80 10.0.0.1:80", false, Ok(1))]
#[case::nothing("", true, Err(AddressKind::Unspecified))]
fn addresses_that_a_name_means_are_judged_one_by_one(
    #[case] found: &str,
    #[case] may_be_here: bool,
    #[case] expected: Result<usize, AddressKind>,
) {
    let found = found.split_whitespace().map(|text| text.parse().unwrap());
    let usable = usable_addresses(found, may_be_here);
    if let Ok(usable) = &usable {
        let is_refused =
            |address: &SocketAddr| judge_address(address.ip()) == AddressKind::LinkLocal;
        assert!(!usable.iter().any(is_refused));
    }
    assert_eq!(usable.map(|usable| usable.len()), expected);
}

proptest! {
    #[test]
    fn reading_survives_anything_and_never_lets_a_host_out_of_its_letters(text in "(http://)?[ -~é]{0,40}") {
        if let Ok(address) = WebAddress::parse(&text) {
            prop_assert!(address.host().bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte)));
            prop_assert!(address.target().starts_with('/'));
        }
    }

    #[test]
    fn every_link_local_address_is_known_in_each_of_its_forms(a in any::<u8>(), b in any::<u8>()) {
        let inner = Ipv4Addr::new(169, 254, a, b);
        let forms = [IpAddr::V4(inner), IpAddr::V6(inner.to_ipv6_mapped()), IpAddr::V6(inner.to_ipv6_compatible())];
        for form in forms {
            prop_assert_eq!(judge_address(form), AddressKind::LinkLocal);
        }
    }
}
