//! Pax records: `LENGTH KEY=VALUE` and a newline.

use crate::sync::entry::{Mtime, NANOSECONDS};

/// Why a list of records cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PaxFault {
    Garbled,
    Sparse,
}

/// What records say about the entry after them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Records {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link_target: Option<Vec<u8>>,
    pub(super) size_bytes: Option<u64>,
    pub(super) mtime: Option<Mtime>,
}

impl Records {
    /// Reads all records of an extension.
    pub(super) fn parse(mut text: &[u8]) -> Result<Records, PaxFault> {
        let mut records = Records::default();
        while !text.is_empty() {
            let (record, rest) = split_record(text).ok_or(PaxFault::Garbled)?;
            let at = record
                .iter()
                .position(|byte| *byte == b'=')
                .ok_or(PaxFault::Garbled)?;
            let (key, value) = record.split_at_checked(at).ok_or(PaxFault::Garbled)?;
            records.take(key, value.get(1..).unwrap_or_default())?;
            text = rest;
        }
        Ok(records)
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), PaxFault> {
        let text = || std::str::from_utf8(value).map_err(|_| PaxFault::Garbled);
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link_target = Some(value.to_vec()),
            b"size" => {
                let is_number = value.iter().all(u8::is_ascii_digit);
                let size = text()?.parse().ok().filter(|_| is_number);
                self.size_bytes = Some(size.ok_or(PaxFault::Garbled)?);
            }
            b"mtime" => self.mtime = Some(parse_time(text()?).ok_or(PaxFault::Garbled)?),
            key if key.starts_with(b"GNU.sparse.") => return Err(PaxFault::Sparse),
            _ => {}
        }
        Ok(())
    }

    /// Whether they say nothing that this program follows.
    pub(super) fn is_empty(&self) -> bool {
        *self == Records::default()
    }
}

/// The first record without its length and newline, and what follows it.
fn split_record(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let blank = text.iter().take(8).position(|byte| *byte == b' ')?;
    let digits = std::str::from_utf8(text.get(..blank)?).ok()?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let length: usize = digits.parse().ok().filter(|_| is_number)?;
    let record = text.get(blank + 1..length)?.strip_suffix(b"\n")?;
    Some((record, text.get(length..)?))
}

/// One record with its length.
pub(super) fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    // The length counts its own digits, which may make it longer once more.
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    [format!("{length} {key}=").as_bytes(), value, b"\n"].concat()
}

/// A time as pax writes it: a decimal fraction, so that -4.75 is five seconds before the epoch and a quarter after that.
pub(super) fn time_text(mtime: Mtime) -> String {
    let nanoseconds = mtime.nanoseconds().unwrap_or_default();
    let text = if mtime.seconds < 0 && nanoseconds > 0 {
        let whole = (mtime.seconds + 1).unsigned_abs();
        format!("-{whole}.{:09}", NANOSECONDS - nanoseconds)
    } else {
        format!("{}.{nanoseconds:09}", mtime.seconds)
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn parse_time(text: &str) -> Option<Mtime> {
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let whole: i64 = whole.parse().ok()?;
    let nine = format!("{fraction:0<9}");
    let nanoseconds: u32 = nine.get(..9)?.parse().ok()?;
    match (is_negative, nanoseconds) {
        (false, _) => Mtime::exact(whole, nanoseconds),
        (true, 0) => Mtime::exact(-whole, 0),
        (true, _) => Mtime::exact(-whole - 1, NANOSECONDS - nanoseconds),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[test]
    fn length_of_a_record_counts_its_own_digits() {
        assert_eq!(record("a", b"b"), b"6 a=b\n");
        for size in 0..1100 {
            let record = record("path", &vec![b'x'; size]);
            let (read, rest) = split_record(&record).unwrap();
            assert_eq!((read.len(), rest), (size + 5, b"".as_slice()));
        }
    }

    #[test]
    fn records_are_read_and_unknown_ones_passed_over() {
        let text = [
            record("comment", b"x=y\n"),
            record("path", b"a\xff=\nb"),
            record("size", b"9999999999"),
            record("mtime", b"-4.75"),
        ]
        .concat();
        let records = Records::parse(&text).unwrap();
        assert_eq!(records.path.as_deref(), Some(b"a\xff=\nb".as_slice()));
        assert_eq!(records.size_bytes, Some(9_999_999_999));
        assert_eq!(records.mtime, Mtime::exact(-5, 250_000_000));
        assert!(
            !records.is_empty() && Records::parse(&record("comment", b"x")).unwrap().is_empty()
        );
    }

    #[rstest]
    #[case(b"9 path=ab", PaxFault::Garbled)]
    #[case(b"7 path=ab\n", PaxFault::Garbled)]
    #[case(b"0 a=b\n", PaxFault::Garbled)]
    #[case(b"+6 a=b\n", PaxFault::Garbled)]
    #[case(b"99999999999999999999 a=b\n", PaxFault::Garbled)]
    #[case(b"5 abc\n", PaxFault::Garbled)]
    #[case(b"12 size=-12\n", PaxFault::Garbled)]
    #[case(b"12 size=+12\n", PaxFault::Garbled)]
    #[case(b"12 mtime=1x\n", PaxFault::Garbled)]
    #[case(b"22 GNU.sparse.major=1\n", PaxFault::Sparse)]
    fn records_are_refused_when_they_are_wrong(#[case] text: &[u8], #[case] fault: PaxFault) {
        assert_eq!(Records::parse(text), Err(fault));
    }

    proptest! {
        #[test]
        fn time_comes_back_as_it_was_written(seconds in -10_000_000_000_i64..10_000_000_000, nanoseconds in 0..NANOSECONDS) {
            let mtime = Mtime::exact(seconds, nanoseconds).unwrap();
            prop_assert_eq!(parse_time(&time_text(mtime)), Some(mtime));
        }
    }
}
