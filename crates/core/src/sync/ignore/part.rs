//! One name of an exclude pattern, between two slashes.

/// What one name of a pattern can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    /// Exactly this name.
    Literal(Box<[u8]>),
    /// Every name that ends so; `*.log`.
    Suffix(Box<[u8]>),
    /// A name with wildcards.
    Glob(Vec<Token>),
    /// Any number of names; `**`.
    AnyDepth,
}

/// A piece of a name with wildcards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Byte(u8),
    OneCharacter,
    AnyText,
    Class {
        negated: bool,
        ranges: Vec<(u32, u32)>,
    },
}

/// What is wrong with a name of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartFault {
    OpenClass,
    LoneBackslash,
}

impl Part {
    /// Reads one name; `**` is the caller's business, here it is a plain `*`.
    pub(super) fn parse(text: &[u8]) -> Result<Part, PartFault> {
        let mut tokens = Vec::new();
        let mut rest = text;
        while let Some((first, after)) = rest.split_first() {
            rest = after;
            match first {
                b'*' => {
                    if tokens.last() != Some(&Token::AnyText) {
                        tokens.push(Token::AnyText);
                    }
                }
                b'?' => tokens.push(Token::OneCharacter),
                b'[' => {
                    let (class, after) = class(rest).ok_or(PartFault::OpenClass)?;
                    tokens.push(class);
                    rest = after;
                }
                b'\\' => {
                    let (escaped, after) = rest.split_first().ok_or(PartFault::LoneBackslash)?;
                    tokens.push(Token::Byte(*escaped));
                    rest = after;
                }
                byte => tokens.push(Token::Byte(*byte)),
            }
        }
        Ok(Part::from_tokens(tokens))
    }

    fn from_tokens(tokens: Vec<Token>) -> Part {
        let bytes = |tokens: &[Token]| -> Option<Box<[u8]>> {
            tokens
                .iter()
                .map(|token| match token {
                    Token::Byte(byte) => Some(*byte),
                    _ => None,
                })
                .collect()
        };
        if let Some(literal) = bytes(&tokens) {
            return Part::Literal(literal);
        }
        if let Some((Token::AnyText, rest)) = tokens.split_first()
            && let Some(suffix) = bytes(rest)
        {
            return Part::Suffix(suffix);
        }
        Part::Glob(tokens)
    }

    /// Whether the part describes this one name.
    pub(super) fn matches(&self, name: &[u8]) -> bool {
        match self {
            Part::Literal(literal) => **literal == *name,
            Part::Suffix(suffix) => name.ends_with(suffix),
            Part::Glob(tokens) => glob_matches(tokens, name),
            Part::AnyDepth => true,
        }
    }
}

/// Going back only to the last `*` keeps the work within pattern length times name length.
fn glob_matches(tokens: &[Token], name: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    while let Some(text) = name.get(read..).filter(|text| !text.is_empty()) {
        let taken = match tokens.get(at) {
            Some(Token::AnyText) => {
                last_star = Some((at, read));
                at += 1;
                continue;
            }
            Some(token) => token.takes(text),
            None => None,
        };
        match (taken, last_star) {
            (Some(length), _) => {
                at += 1;
                read += length;
            }
            (None, Some((star, from))) => {
                last_star = Some((star, from + 1));
                at = star + 1;
                read = from + 1;
            }
            (None, None) => return false,
        }
    }
    tokens
        .get(at..)
        .is_some_and(|rest| rest.iter().all(|token| *token == Token::AnyText))
}

impl Token {
    /// How many bytes at the beginning of the text the token stands for.
    fn takes(&self, text: &[u8]) -> Option<usize> {
        match self {
            Token::Byte(byte) => (text.first() == Some(byte)).then_some(1),
            Token::OneCharacter => Some(first_unit(text).1),
            Token::Class { negated, ranges } => {
                let (unit, length) = first_unit(text);
                let is_in = ranges
                    .iter()
                    .any(|(from, to)| (*from..=*to).contains(&unit));
                (is_in != *negated).then_some(length)
            }
            Token::AnyText => None,
        }
    }
}

/// The first character of a text; a byte that belongs to none has a number beyond all characters.
fn first_unit(text: &[u8]) -> (u32, usize) {
    for length in 1..=4.min(text.len()) {
        let character = text
            .get(..length)
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
            .and_then(|text| text.chars().next());
        if let Some(character) = character {
            return (u32::from(character), length);
        }
    }
    let byte = text.first().copied().unwrap_or_default();
    (0x11_0000 + u32::from(byte), 1)
}

/// Reads a class after its `[`, and what follows it.
fn class(text: &[u8]) -> Option<(Token, &[u8])> {
    let (negated, mut rest) = match text.split_first() {
        Some((b'!' | b'^', after)) => (true, after),
        _ => (false, text),
    };
    let mut ranges = Vec::new();
    let mut is_first = true;
    loop {
        let (first, after) = rest.split_first()?;
        if *first == b']' && !is_first {
            return Some((Token::Class { negated, ranges }, after));
        }
        is_first = false;
        if let Some((named, after)) = named_class(rest) {
            ranges.extend_from_slice(named);
            rest = after;
            continue;
        }
        let (from, after) = class_unit(rest)?;
        rest = after;
        let mut to = from;
        if let Some((b'-', after)) = rest.split_first()
            && after.first().is_some_and(|next| *next != b']')
        {
            (to, rest) = class_unit(after)?;
        }
        ranges.push((from, to));
    }
}

fn class_unit(text: &[u8]) -> Option<(u32, &[u8])> {
    let text = match text.split_first()? {
        (b'\\', escaped) => escaped,
        _ => text,
    };
    text.first()?;
    let (unit, length) = first_unit(text);
    Some((unit, text.get(length..)?))
}

type Ranges = &'static [(u32, u32)];

const fn range(from: u8, to: u8) -> (u32, u32) {
    (from as u32, to as u32)
}

const NAMED: [(&[u8], Ranges); 12] = [
    (b"[:alpha:]", &[range(b'a', b'z'), range(b'A', b'Z')]),
    (b"[:digit:]", &[range(b'0', b'9')]),
    (
        b"[:alnum:]",
        &[range(b'a', b'z'), range(b'A', b'Z'), range(b'0', b'9')],
    ),
    (b"[:lower:]", &[range(b'a', b'z')]),
    (b"[:upper:]", &[range(b'A', b'Z')]),
    (
        b"[:xdigit:]",
        &[range(b'a', b'f'), range(b'A', b'F'), range(b'0', b'9')],
    ),
    (b"[:space:]", &[range(b'\t', b'\r'), range(b' ', b' ')]),
    (b"[:blank:]", &[range(b'\t', b'\t'), range(b' ', b' ')]),
    (b"[:cntrl:]", &[range(0, 31), range(127, 127)]),
    (b"[:graph:]", &[range(b'!', b'~')]),
    (b"[:print:]", &[range(b' ', b'~')]),
    (
        b"[:punct:]",
        &[
            range(b'!', b'/'),
            range(b':', b'@'),
            range(b'[', b'`'),
            range(b'{', b'~'),
        ],
    ),
];

fn named_class(text: &[u8]) -> Option<(Ranges, &[u8])> {
    NAMED
        .iter()
        .find_map(|(name, ranges)| Some((*ranges, text.strip_prefix(*name)?)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn matches(pattern: &str, name: &[u8]) -> bool {
        Part::parse(pattern.as_bytes()).unwrap().matches(name)
    }

    #[rstest]
    #[case("a.log", "a.log", true)]
    #[case("*.log", ".log", true)]
    #[case("*.log", "a.logs", false)]
    #[case("a*b*c", "a-b-b-c", true)]
    #[case("a*b*c", "a-c-b", false)]
    #[case("?", "é", true)]
    #[case("??", "é", false)]
    #[case("[é-ü]x", "öx", true)]
    #[case("[!a-c]", "d", true)]
    #[case("[^a-c]", "b", false)]
    #[case("[]-]", "-", true)]
    #[case("[]]", "]", true)]
    #[case("[a-]", "-", true)]
    #[case("[z-a]", "m", false)]
    #[case(r"[\]a]", "]", true)]
    #[case(r"\*", "*", true)]
    #[case(r"\*", "x", false)]
    #[case(r"a\[b", "a[b", true)]
    #[case("[[:digit:]x]?", "7é", true)]
    #[case("[[:upper:]]", "a", false)]
    #[case("**", "anything", true)]
    fn part_matches_as_documented(
        #[case] pattern: &str,
        #[case] name: &str,
        #[case] expected: bool,
    ) {
        assert_eq!(matches(pattern, name.as_bytes()), expected);
    }

    #[test]
    fn byte_outside_any_character_counts_as_one_character() {
        assert!(matches("a?b", b"a\xffb"));
        assert!(matches("[!a]", b"\xff") && !matches("[a-z]", b"\xff"));
    }

    #[rstest]
    #[case("[ab", PartFault::OpenClass)]
    #[case("[", PartFault::OpenClass)]
    #[case("[]", PartFault::OpenClass)]
    #[case("a\\", PartFault::LoneBackslash)]
    fn part_is_refused_when_it_is_not_complete(#[case] pattern: &str, #[case] fault: PartFault) {
        assert_eq!(Part::parse(pattern.as_bytes()), Err(fault));
    }

    /// Tries every way to split the name.
    fn naive(tokens: &[Token], name: &[u8]) -> bool {
        match tokens.split_first() {
            None => name.is_empty(),
            Some((Token::AnyText, rest)) => (0..=name.len()).any(|at| naive(rest, &name[at..])),
            Some((token, rest)) => {
                !name.is_empty()
                    && token
                        .takes(name)
                        .is_some_and(|length| naive(rest, &name[length..]))
            }
        }
    }

    proptest! {
        #[test]
        fn part_agrees_with_trying_every_split(pattern in "[ab*?é\\[\\]!-]{0,7}", name in "[abé!-]{0,7}") {
            if let Ok(part) = Part::parse(pattern.as_bytes()) {
                let tokens: Vec<Token> = match &part {
                    Part::Literal(bytes) => bytes.iter().map(|byte| Token::Byte(*byte)).collect(),
                    Part::Suffix(bytes) => std::iter::once(Token::AnyText)
                        .chain(bytes.iter().map(|byte| Token::Byte(*byte)))
                        .collect(),
                    Part::Glob(tokens) => tokens.clone(),
                    Part::AnyDepth => unreachable!(),
                };
                prop_assert_eq!(part.matches(name.as_bytes()), naive(&tokens, name.as_bytes()));
            }
        }
    }
}
