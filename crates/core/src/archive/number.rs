//! Numbers in tar headers: octal text, or base 256 where that is too short.

/// Reads a number; none when the field holds anything else.
pub(super) fn parse(field: &[u8]) -> Option<i64> {
    match field.first()? {
        0x80 => binary(field, 0),
        0xff => binary(field, -1),
        _ => octal(field),
    }
}

fn binary(field: &[u8], sign: i64) -> Option<i64> {
    let mut value = i128::from(sign);
    for byte in field.get(1..)? {
        value = value.checked_mul(256)? + i128::from(*byte);
        // More than the field of the largest number that is used; it cannot come back into range.
        if value.unsigned_abs() > u128::from(u64::MAX) {
            return None;
        }
    }
    i64::try_from(value).ok()
}

fn octal(field: &[u8]) -> Option<i64> {
    let text = field.trim_ascii_start();
    let end = text
        .iter()
        .position(|byte| matches!(byte, 0 | b' '))
        .unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end)?;
    if !rest.iter().all(|byte| matches!(byte, 0 | b' ')) {
        return None;
    }
    digits.iter().try_fold(0_i64, |value, byte| {
        let digit = matches!(byte, b'0'..=b'7').then(|| i64::from(byte - b'0'))?;
        value.checked_mul(8)?.checked_add(digit)
    })
}

/// Writes a number into a field: octal with a NUL at the end, or base 256 when it is too large for that.
pub(super) fn write(field: &mut [u8], value: u64) {
    let digits = field.len().saturating_sub(1);
    let fits = u32::try_from(digits * 3).is_ok_and(|bits| bits >= 64 || value >> bits == 0);
    if fits {
        let text = format!("{value:0digits$o}\0");
        for (to, from) in field.iter_mut().zip(text.bytes()) {
            *to = from;
        }
        return;
    }
    let bytes = value.to_be_bytes();
    for (to, from) in field
        .iter_mut()
        .rev()
        .zip(bytes.iter().rev().copied().chain(std::iter::repeat(0)))
    {
        *to = from;
    }
    if let Some(first) = field.first_mut() {
        *first = 0x80;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(b"0000644\0", Some(0o644))]
    #[case(b"   644 \0", Some(0o644))]
    #[case(b"\0\0\0\0", Some(0))]
    #[case(b"        ", Some(0))]
    #[case(b"77777777777", Some(0o77_777_777_777))]
    #[case(b"8", None)]
    #[case(b"12 34", None)]
    #[case(b"-1", None)]
    #[case(b"\x80\0\0\0\0\0\0\0\0\0\x01\0", Some(256))]
    #[case(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfe", Some(-2))]
    #[case(b"\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", None)]
    #[case(b"\xff\0\0\0\0\0\0\0\0\0\0\0", None)]
    #[case(b"", None)]
    fn number_is_read_in_either_form(#[case] field: &[u8], #[case] expected: Option<i64>) {
        assert_eq!(parse(field), expected);
    }

    proptest! {
        #[test]
        fn number_comes_back_as_it_was_written(value in 0..=i64::MAX as u64, small in 0_u64..0o77_777_777_777) {
            for value in [value, small] {
                let mut field = [0; 12];
                write(&mut field, value);
                prop_assert_eq!(parse(&field), i64::try_from(value).ok());
            }
        }
    }
}
