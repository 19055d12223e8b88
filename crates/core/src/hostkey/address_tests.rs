use rstest::rstest;

use super::*;

#[rstest]
#[case::default_port("example.com", 22, "example.com")]
#[case::other_port("example.com", 2222, "[example.com]:2222")]
#[case::upper_case("Example.COM", 2222, "[example.com]:2222")]
#[case::ipv4("10.0.0.1", 22, "10.0.0.1")]
#[case::ipv6("::1", 22, "::1")]
#[case::ipv6_other_port("::1", 2222, "[::1]:2222")]
#[case::ipv6_in_brackets("[::1]", 2222, "[::1]:2222")]
#[case::ipv6_long("0:0:0:0:0:0:0:1", 22, "::1")]
#[case::ipv6_upper_case("FE80::A", 22, "fe80::a")]
#[case::ipv6_mapped("::ffff:7f00:1", 22, "::ffff:127.0.0.1")]
#[case::ipv6_zone("fe80:0::1%eth0", 22, "fe80::1%eth0")]
#[case::two_parts("127.1", 22, "127.0.0.1")]
#[case::three_parts("10.1.258", 22, "10.1.1.2")]
#[case::one_part("2130706433", 22, "127.0.0.1")]
#[case::hexadecimal("0x7f.1", 22, "127.0.0.1")]
#[case::octal("0177.0.0.1", 22, "127.0.0.1")]
#[case::part_too_large("256.1", 22, "256.1")]
#[case::last_part_too_large("1.16777216", 22, "1.16777216")]
#[case::five_parts("1.2.3.4.5", 22, "1.2.3.4.5")]
#[case::name_like_number("vast.123", 22, "vast.123")]
#[case::number_with_sign("+1", 22, "+1")]
fn name_is_normalised(#[case] host: &str, #[case] port: u16, #[case] name: &str) {
    let address = HostAddress::new(host, port).unwrap();
    assert_eq!(address.known_hosts_name(), name);
}

#[rstest]
#[case::star("*.example.com", '*')]
#[case::question("host?", '?')]
#[case::comma("a,b", ',')]
#[case::blank("a b", ' ')]
#[case::line_break("a\nb", '\n')]
#[case::negation("!a", '!')]
#[case::hash_mark("|1|a", '|')]
#[case::comment("#a", '#')]
#[case::marker("@revoked", '@')]
#[case::half_bracket("[::1", '[')]
#[case::byte_order_mark("\u{feff}a", '\u{feff}')]
fn name_with_meaning_in_the_file_is_refused(#[case] host: &str, #[case] character: char) {
    let error = AddressError::BadCharacter {
        host: host.to_owned(),
        character,
    };
    assert_eq!(HostAddress::new(host, 22), Err(error.clone()));
    assert_eq!(HostAddress::alias(host), Err(error));
}

#[test]
fn empty_long_and_portless_addresses_are_refused() {
    assert_eq!(HostAddress::new("", 22), Err(AddressError::Empty));
    assert_eq!(HostAddress::new("[]", 22), Err(AddressError::Empty));
    let long = "a".repeat(MAX_HOST_BYTES + 1);
    let length = long.len();
    assert_eq!(
        HostAddress::new(&long, 22),
        Err(AddressError::TooLong { length })
    );
    let host = "a".to_owned();
    assert_eq!(
        HostAddress::new("a", 0),
        Err(AddressError::PortZero { host })
    );
}

#[test]
fn alias_is_looked_up_as_written() {
    let alias = HostAddress::alias("Box.127.1").unwrap();
    assert_eq!(alias.known_hosts_name(), "Box.127.1");
    assert_eq!(HostAddress::alias("127.1").unwrap().host(), "127.1");
    assert_eq!(alias.name_without_port(), None);
}
