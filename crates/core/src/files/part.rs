//! Which part of a file is wanted.

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// From this byte on.
    From(u64),
    /// This many lines at the end.
    LastLines(u64),
    /// Lines, counted from 1.
    Lines {
        /// The first one.
        first: u64,
        /// The last one; the end of the file when not said.
        last: Option<u64>,
    },
}

/// Why numbers name no part of a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PartError {
    /// Two ways to say it at once.
    #[error(
        "`offset`, `tail_lines` and `start_line` with `end_line` exclude each other; give one of them"
    )]
    Several,
    /// A position before the beginning.
    #[error("`offset` must not be negative")]
    Offset,
    /// No lines at all.
    #[error("`{field}` must be positive")]
    NotPositive {
        /// The argument at fault.
        field: &'static str,
    },
    /// The lines end before they begin.
    #[error("`end_line` {last} comes before `start_line` {first}")]
    Backwards {
        /// The first line.
        first: u64,
        /// The last line.
        last: u64,
    },
}

impl Part {
    /// Checks what a caller wrote; the whole file when nothing was.
    pub fn parse(
        offset: Option<i64>,
        tail_lines: Option<i64>,
        start_line: Option<i64>,
        end_line: Option<i64>,
    ) -> Result<Self, PartError> {
        let positive = |field, number: i64| {
            let positive = u64::try_from(number).ok().filter(|number| *number > 0);
            positive.ok_or(PartError::NotPositive { field })
        };
        match (offset, tail_lines, start_line, end_line) {
            (offset, None, None, None) => {
                let offset = u64::try_from(offset.unwrap_or(0));
                offset.map(Part::From).map_err(|_| PartError::Offset)
            }
            (None, Some(lines), None, None) => positive("tail_lines", lines).map(Part::LastLines),
            (None, None, first, last) => {
                let first = positive("start_line", first.unwrap_or(1))?;
                let last = last.map(|last| positive("end_line", last)).transpose()?;
                match last {
                    Some(last) if last < first => Err(PartError::Backwards { first, last }),
                    last => Ok(Part::Lines { first, last }),
                }
            }
            _ => Err(PartError::Several),
        }
    }

    /// The commands that take it from standard input, at most this many bytes of it.
    pub(super) fn commands(self, most: u64) -> String {
        match self {
            Part::From(0) => format!("head -c {most}"),
            Part::From(offset) => {
                format!("tail -c +{} | head -c {most}", offset.saturating_add(1))
            }
            // The end first: lines are looked for in no more than can be sent.
            Part::LastLines(lines) => format!("tail -c {most} | tail -n {lines}"),
            Part::Lines { first, last } => {
                let some = last.map(|last| format!("head -n {} | ", last - first + 1));
                let some = some.unwrap_or_default();
                format!("tail -n +{first} | {some}head -c {most}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(None, None, None, None, Part::From(0))]
    #[case(Some(7), None, None, None, Part::From(7))]
    #[case(None, Some(2), None, None, Part::LastLines(2))]
    #[case(None, None, Some(2), None, Part::Lines { first: 2, last: None })]
    #[case(None, None, None, Some(3), Part::Lines { first: 1, last: Some(3) })]
    #[case(None, None, Some(3), Some(3), Part::Lines { first: 3, last: Some(3) })]
    fn numbers_name_a_part(
        #[case] offset: Option<i64>,
        #[case] tail: Option<i64>,
        #[case] start: Option<i64>,
        #[case] end: Option<i64>,
        #[case] part: Part,
    ) {
        assert_eq!(Part::parse(offset, tail, start, end), Ok(part));
    }

    #[rstest]
    #[case(Some(-1), None, None, None)]
    #[case(None, Some(0), None, None)]
    #[case(None, None, Some(0), None)]
    #[case(None, None, Some(4), Some(3))]
    #[case(Some(0), Some(1), None, None)]
    #[case(None, Some(1), Some(1), None)]
    #[case(Some(1), None, None, Some(1))]
    fn numbers_that_name_nothing_are_refused(
        #[case] offset: Option<i64>,
        #[case] tail: Option<i64>,
        #[case] start: Option<i64>,
        #[case] end: Option<i64>,
    ) {
        assert!(Part::parse(offset, tail, start, end).is_err());
    }
}
