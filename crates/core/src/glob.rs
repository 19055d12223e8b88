//! Patterns with `*` for any text and `?` for one unit, a byte or a character as the caller counts.

/// Whether a pattern describes a text, where `same` says which units are alike.
///
/// Going back only to the last `*` keeps the work within pattern length times text length.
pub(crate) fn matches<T: Copy + PartialEq + From<u8>>(
    pattern: &[T],
    text: &[T],
    same: impl Fn(T, T) -> bool,
) -> bool {
    let (any_text, any_unit) = (T::from(b'*'), T::from(b'?'));
    let (mut at, mut read) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    while let Some(&unit) = text.get(read) {
        match pattern.get(at) {
            Some(&wanted) if wanted == any_text => {
                last_star = Some((at, read));
                at += 1;
            }
            Some(&wanted) if wanted == any_unit || same(wanted, unit) => {
                at += 1;
                read += 1;
            }
            _ => {
                let Some((star, taken)) = last_star else {
                    return false;
                };
                last_star = Some((star, taken + 1));
                at = star + 1;
                read = taken + 1;
            }
        }
    }
    pattern
        .get(at..)
        .is_some_and(|rest| rest.iter().all(|&unit| unit == any_text))
}
