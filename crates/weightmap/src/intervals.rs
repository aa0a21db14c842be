//! Which indices of one dimension are wanted.

use std::fmt;
use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};
use std::str::FromStr;

use crate::error::SliceError;

/// The indices of one dimension that are wanted: all, or those of one or several intervals.
///
/// Made from ranges, and from text as the command line takes it:
///
/// | written | in Rust | wanted |
/// |---|---|---|
/// | `:` | `..` | all |
/// | `0:16` | `0..16` | the first 16 |
/// | `16:` | `16..` | all but the first 16 |
/// | `:8` | `..8` | the first 8 |
/// | `5` | `5..6` | the one; the dimension stays, with length 1 |
/// | `0:4+8:12` | `[0..4, 8..12]` | those of both intervals |
///
/// Spaces around numbers and signs do not matter. Intervals must be in rising order and must not overlap, and may touch and be empty. This, and that they
/// lie within the dimension, is checked once the tensor is known.
///
/// ```
/// use weightmap::Intervals;
///
/// let halves = Intervals::from([0..4, 8..12]);
/// assert_eq!(halves, "0:4+8:12".parse()?);
/// assert_eq!(Intervals::from(16..).to_string(), "16:");
/// # Ok::<(), weightmap::SliceError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Intervals(Vec<Interval>);

/// One interval, half open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Interval {
    start: u64,
    /// `None` for the end of the dimension.
    end: Option<u64>,
}

impl Intervals {
    /// The intervals as ranges of a dimension that is `len` long, in rising order; `dim` is for errors.
    pub(crate) fn resolve(&self, dim: usize, len: u64) -> Result<Vec<Range<u64>>, SliceError> {
        for pair in self.0.windows(2) {
            if let [first, second] = pair
                && second.start < first.end.unwrap_or(len)
            {
                return Err(SliceError::NotRising {
                    dim,
                    first: first.to_string(),
                    second: second.to_string(),
                });
            }
        }
        self.0.iter().map(|interval| interval.resolve(dim, len)).collect()
    }
}

impl Interval {
    /// No dimension has an index of `u64::MAX`: that one is out of the range of any.
    fn from_inclusive(start: u64, last: u64) -> Self {
        Self { start, end: Some(last.saturating_add(1)) }
    }

    fn resolve(&self, dim: usize, len: u64) -> Result<Range<u64>, SliceError> {
        let Self { start, end } = *self;
        if end.is_some_and(|end| end < start) {
            return Err(SliceError::Reversed { dim, interval: self.to_string() });
        }
        let end = end.unwrap_or(len);
        if end.max(start) > len {
            return Err(SliceError::OutOfRange { dim, interval: self.to_string(), len });
        }
        Ok(start..end)
    }
}

impl FromStr for Interval {
    type Err = SliceError;

    fn from_str(text: &str) -> Result<Self, SliceError> {
        let text = text.trim();
        let syntax = || SliceError::Syntax { text: text.to_owned() };
        let index = |digits: &str| digits.parse::<u64>().map_err(|_| syntax());
        let Some((start, end)) = text.split_once(':') else {
            let start = index(text)?;
            return Ok(Self::from_inclusive(start, start));
        };
        let (start, end) = (start.trim_end(), end.trim_start());
        let start = if start.is_empty() { 0 } else { index(start)? };
        let end = if end.is_empty() { None } else { Some(index(end)?) };
        Ok(Self { start, end })
    }
}

impl FromStr for Intervals {
    type Err = SliceError;

    fn from_str(text: &str) -> Result<Self, SliceError> {
        text.split('+').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { start: 0, end: None } => f.write_str(":"),
            Self { start, end: None } => write!(f, "{start}:"),
            Self { start, end: Some(end) } => write!(f, "{start}:{end}"),
        }
    }
}

/// As the command line takes it.
impl fmt::Display for Intervals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, interval) in self.0.iter().enumerate() {
            write!(f, "{}{interval}", if number == 0 { "" } else { "+" })?;
        }
        Ok(())
    }
}

impl From<Range<u64>> for Intervals {
    fn from(range: Range<u64>) -> Self {
        Self(vec![Interval { start: range.start, end: Some(range.end) }])
    }
}

impl From<RangeFrom<u64>> for Intervals {
    fn from(range: RangeFrom<u64>) -> Self {
        Self(vec![Interval { start: range.start, end: None }])
    }
}

impl From<RangeTo<u64>> for Intervals {
    fn from(range: RangeTo<u64>) -> Self {
        Self::from(0..range.end)
    }
}

impl From<RangeFull> for Intervals {
    fn from(_: RangeFull) -> Self {
        Self::from(0..)
    }
}

impl From<RangeInclusive<u64>> for Intervals {
    fn from(range: RangeInclusive<u64>) -> Self {
        let (start, last) = range.into_inner();
        Self(vec![Interval::from_inclusive(start, last)])
    }
}

impl From<RangeToInclusive<u64>> for Intervals {
    fn from(range: RangeToInclusive<u64>) -> Self {
        Self::from(0..=range.end)
    }
}

impl From<&[Range<u64>]> for Intervals {
    fn from(ranges: &[Range<u64>]) -> Self {
        if ranges.is_empty() {
            return Self::from(0..0);
        }
        Self(ranges.iter().map(|range| Interval { start: range.start, end: Some(range.end) }).collect())
    }
}

impl From<Vec<Range<u64>>> for Intervals {
    fn from(ranges: Vec<Range<u64>>) -> Self {
        Self::from(ranges.as_slice())
    }
}

impl<const N: usize> From<[Range<u64>; N]> for Intervals {
    fn from(ranges: [Range<u64>; N]) -> Self {
        Self::from(ranges.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> Intervals {
        text.parse().unwrap()
    }

    fn kind(intervals: impl Into<Intervals>, len: u64) -> &'static str {
        intervals.into().resolve(0, len).unwrap_err().kind()
    }

    #[test]
    fn text_and_ranges_mean_the_same() {
        assert_eq!(parsed(":"), Intervals::from(..));
        assert_eq!(parsed("0:"), Intervals::from(..));
        assert_eq!(parsed("0:16"), Intervals::from(0..16));
        assert_eq!(parsed("0:16"), Intervals::from(0..=15));
        assert_eq!(parsed("16:"), Intervals::from(16..));
        assert_eq!(parsed(":8"), Intervals::from(..8));
        assert_eq!(parsed(":8"), Intervals::from(..=7));
        assert_eq!(parsed("5"), Intervals::from(5..6));
        assert_eq!(parsed("0:4+8:12"), Intervals::from([0..4, 8..12]));
        assert_eq!(parsed("0:0"), Intervals::from(Vec::new()));
        assert_eq!(parsed(" 0 : 4 + 8: "), parsed("0:4+8:"));
    }

    #[test]
    fn other_text_is_an_error_that_shows_the_part() {
        for (text, part) in [
            ("", ""),
            ("0:4+ ", ""),
            ("0:4 8", "0:4 8"),
            ("-1:", "-1:"),
            ("0:8:2", "0:8:2"),
            ("0:4+x", "x"),
            ("0:4,8:12", "0:4,8:12"),
            ("18446744073709551616", "18446744073709551616"),
        ] {
            assert_eq!(text.parse::<Intervals>(), Err(SliceError::Syntax { text: part.into() }), "{text}");
        }
    }

    #[test]
    fn open_ends_take_the_length_of_the_dimension() {
        assert_eq!(Intervals::from(..).resolve(0, 8).unwrap(), [0..8; 1]);
        assert_eq!(Intervals::from(8..).resolve(0, 8).unwrap(), [8..8; 1]);
        assert_eq!(parsed("2+4:").resolve(0, 8).unwrap(), [2..3, 4..8]);
        assert_eq!(Intervals::from([0..2, 2..2, 2..8]).resolve(0, 8).unwrap(), [0..2, 2..2, 2..8]);
    }

    #[test]
    #[expect(clippy::reversed_empty_ranges, reason = "a range that ends before it begins is what is tested")]
    fn what_does_not_fit_the_dimension_is_an_error() {
        assert_eq!(kind(0..9, 8), "SliceOutOfRange");
        assert_eq!(kind(9.., 8), "SliceOutOfRange");
        assert_eq!(kind(u64::MAX..=u64::MAX, 8), "SliceOutOfRange");
        assert_eq!(kind(parsed("18446744073709551615"), 8), "SliceOutOfRange");
        assert_eq!(kind(4..2, 8), "SliceReversed");
        assert_eq!(kind([4..8, 0..4], 8), "SliceNotRising");
        assert_eq!(kind([0..5, 4..8], 8), "SliceNotRising");
        assert_eq!(kind(parsed("2:+4:8"), 8), "SliceNotRising");
    }

    #[test]
    fn errors_say_where_and_what() {
        let error = parsed("0:4+6:9").resolve(1, 8).unwrap_err();
        assert_eq!(
            error.to_string(),
            "dimension 1 has length 8, and 6:9 is beyond it; end it at 8 or before"
        );
        let error = parsed("0:5+4:8").resolve(0, 8).unwrap_err();
        assert_eq!(
            error.to_string(),
            "dimension 0: 4:8 begins before 0:5 ends; give intervals in rising order that do not overlap"
        );
    }

    proptest! {
        #[test]
        fn what_is_shown_can_be_read_again(ranges in vec(any::<Range<u64>>(), 0..4), open in any::<Option<u64>>()) {
            let ends = ranges.iter().map(|range| Interval { start: range.start, end: Some(range.end) });
            let open = open.map(|start| Interval { start, end: None });
            let intervals: Vec<_> = ends.chain(open).collect();
            prop_assume!(!intervals.is_empty());
            let intervals = Intervals(intervals);
            prop_assert_eq!(parsed(&intervals.to_string()), intervals);
        }
    }
}
