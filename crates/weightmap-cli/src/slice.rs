//! A part of a tensor, as the command line takes it.

use std::str::FromStr;

use weightmap::Intervals;

/// The name of a tensor, and the indices of each dimension that are wanted of it: `NAME[0:16,:,8:12+20:24]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// The tensor.
    pub name: String,
    /// Outermost dimension first.
    pub dims: Vec<Intervals>,
}

impl FromStr for Slice {
    type Err = String;

    /// A name may itself have brackets: the last one that opens is meant.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.strip_suffix(']').and_then(|text| text.rsplit_once('['));
        let (name, dims) = parts.filter(|(name, _)| !name.is_empty()).ok_or(
            "expected the name of a tensor and, in brackets, what is wanted of each dimension, such as \
             model.norm.weight[0:16]",
        )?;
        let dims = dims.split(',').map(|dim| dim.trim().parse());
        let dims =
            dims.collect::<Result<_, _>>().map_err(|error: weightmap::SliceError| error.to_string())?;
        Ok(Self { name: name.to_owned(), dims })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_a_name_and_intervals_by_dimension() {
        let slice: Slice = "a.weight[0:16, :,8:12+20:24]".parse().unwrap();
        assert_eq!(slice.name, "a.weight");
        assert_eq!(slice.dims, [Intervals::from(0..16), Intervals::from(..), [8..12, 20..24].into()]);
    }

    #[test]
    fn of_a_name_with_brackets_the_last_ones_are_the_slice() {
        let slice: Slice = "blocks[0].w[3]".parse().unwrap();
        assert_eq!(slice, Slice { name: "blocks[0].w".into(), dims: vec![Intervals::from(3..4)] });
    }

    #[test]
    fn text_without_a_name_or_brackets_says_how_to_write_it() {
        for text in ["a.weight", "a[0:4", "[0:4]", "a 0:4]", ""] {
            let error = text.parse::<Slice>().unwrap_err();
            assert!(error.contains("such as model.norm.weight[0:16]"), "{text}: {error}");
        }
    }

    #[test]
    fn text_that_is_no_interval_is_shown() {
        for (text, part) in [("a[]", "\"\""), ("a[0:4,x]", "\"x\""), ("a[0:8:2]", "\"0:8:2\"")] {
            let error = text.parse::<Slice>().unwrap_err();
            assert!(error.starts_with(&format!("{part} is no interval: write `4:8`")), "{text}: {error}");
        }
    }
}
