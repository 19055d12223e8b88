use proptest::prelude::*;
use rstest::rstest;

use super::super::samples::hashed;
use super::*;

fn matches(field: &str, name: &str) -> bool {
    HostPatterns::parse(field.as_bytes()).is_some_and(|hosts| hosts.matches(name))
}

#[rstest]
#[case::same("host", "host", true)]
#[case::prefix("hos", "host", false)]
#[case::longer("hosts", "host", false)]
#[case::case("HoSt", "host", true)]
#[case::second_of_list("other,host", "host", true)]
#[case::no_member("other,third", "host", false)]
#[case::star("*", "host", true)]
#[case::star_empty("host*", "host", true)]
#[case::star_front("*.example.com", "a.example.com", true)]
#[case::star_needs_dot("*.example.com", "example.com", false)]
#[case::star_goes_back("*ab", "aabab", true)]
#[case::two_stars("a*b*c", "axxbyybzzc", true)]
#[case::two_stars_no_end("a*b*c", "axxbyybzz", false)]
#[case::question("h?st", "host", true)]
#[case::question_needs_one("host?", "host", false)]
#[case::negated_after("*,!host", "host", false)]
#[case::negated_before("!host,*", "host", false)]
#[case::negated_glob("!h*,host", "host", false)]
#[case::negated_other("*,!other", "host", true)]
#[case::negated_alone("!other", "host", false)]
#[case::negated_twice("!!host,*", "host", true)]
#[case::port("[host]:2222", "[host]:2222", true)]
#[case::port_is_no_plain_host("[host]:2222", "host", false)]
#[case::plain_host_is_no_port("host", "[host]:2222", false)]
#[case::port_glob("[*.example.com]:2222", "[a.example.com]:2222", true)]
#[case::any_port("[host]:*", "[host]:2222", true)]
#[case::bracket_is_no_set("[abc]", "a", false)]
#[case::stray_commas(",host,,", "host", true)]
fn list_matches_as_openssh_does(#[case] field: &str, #[case] name: &str, #[case] expected: bool) {
    assert_eq!(matches(field, name), expected);
}

#[test]
fn list_with_an_overlong_pattern_matches_nothing() {
    let short = format!("host,{}", "a".repeat(PATTERN_LIMIT_BYTES - 1));
    let long = format!("host,{}", "a".repeat(PATTERN_LIMIT_BYTES));
    assert!(matches(&short, "host"));
    assert!(!matches(&long, "host"));
}

#[test]
fn hashed_name_matches_only_its_name() {
    let field = hashed("[host]:2222", [7; 20]);
    assert!(matches(&field, "[host]:2222"));
    assert!(!matches(&field, "host"));
}

#[rstest]
#[case::no_hash("|1|AAAA")]
#[case::short_salt("|1|AAAA|AAAAAAAAAAAAAAAAAAAAAAAAAAA=")]
#[case::other_version("|2|AAAAAAAAAAAAAAAAAAAAAAAAAAA=|AAAAAAAAAAAAAAAAAAAAAAAAAAA=")]
#[case::not_base64("|1|!AAAAAAAAAAAAAAAAAAAAAAAAAA=|AAAAAAAAAAAAAAAAAAAAAAAAAAA=")]
#[case::further_pattern("|1|AAAAAAAAAAAAAAAAAAAAAAAAAAA=|AAAAAAAAAAAAAAAAAAAAAAAAAAA=,*")]
fn broken_hash_is_about_no_host(#[case] field: &str) {
    assert!(HostPatterns::parse(field.as_bytes()).is_none());
}

/// The definition of a glob, without care for its cost.
fn glob_by_definition(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => {
            (0..=name.len()).any(|skip| glob_by_definition(rest, &name[skip..]))
        }
        (Some((wanted, rest)), Some((byte, tail))) => {
            (*wanted == b'?' || wanted == byte) && glob_by_definition(rest, tail)
        }
        _ => false,
    }
}

proptest! {
    #[test]
    fn glob_agrees_with_its_definition(pattern in "[ab*?]{0,8}", name in "[ab]{0,8}") {
        prop_assert_eq!(
            glob_matches(pattern.as_bytes(), name.as_bytes()),
            glob_by_definition(pattern.as_bytes(), name.as_bytes())
        );
    }
}
