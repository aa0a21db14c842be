//! Whether the entries agree with themselves, with each other and with the file.

use std::cmp::Ordering;
use std::ops::Range;

use super::json::{Document, Row};
use crate::error::HeaderError;

/// Checks the length of each tensor's range against its dtype and shape.
pub(super) fn sizes(document: &Document) -> Result<(), HeaderError> {
    document.iter().try_for_each(|(name, row)| size(name, row, document.shape(row)))
}

fn size(name: &str, row: &Row, shape: &[u64]) -> Result<(), HeaderError> {
    let Range { start: begin, end } = row.range;
    let Some(found) = end.checked_sub(begin) else {
        return Err(HeaderError::ReversedOffsets { tensor: name.into(), begin, end });
    };
    let Some(width) = row.dtype.bits() else {
        return Ok(());
    };
    let (tensor, dtype, shape_of) = (|| Box::from(name), || row.dtype.clone(), || Box::from(shape));
    let overflow = || HeaderError::SizeOverflow { tensor: tensor(), dtype: dtype(), shape: shape_of() };
    let bits = bits(width, shape).ok_or_else(overflow)?;
    if bits % 8 != 0 {
        return Err(HeaderError::PartialByte { tensor: tensor(), dtype: dtype(), shape: shape_of(), bits });
    }
    let expected = u64::try_from(bits / 8).map_err(|_| overflow())?;
    if expected != found {
        let range = row.range.clone();
        return Err(HeaderError::SizeMismatch {
            tensor: tensor(),
            dtype: dtype(),
            shape: shape_of(),
            expected,
            range,
        });
    }
    Ok(())
}

/// The bits of a tensor; `None` when there are 2^128 or more. A zero anywhere makes it 0, whatever comes
/// before.
fn bits(width: u32, shape: &[u64]) -> Option<u128> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(u128::from(width), |bits, &dim| bits.checked_mul(dim.into()))
}

/// Checks that the tensors cover the data without a gap, and gives how much of it: all, unless bytes follow the last.
pub(super) fn coverage(document: &Document, data_bytes: u64) -> Result<u64, HeaderError> {
    let mut tensors: Vec<(&str, &Range<u64>)> =
        document.iter().map(|(name, row)| (name, &row.range)).collect();
    // The order of the header is that of the data as a rule, and then sorting is one pass.
    tensors.sort_by_key(|(_, range)| (range.start, range.end));
    let mut last: Option<(&str, &Range<u64>)> = None;
    for &(tensor, range) in &tensors {
        let (other, other_range) = last.unwrap_or(("", &(0..0)));
        match range.start.cmp(&other_range.end) {
            Ordering::Equal => last = Some((tensor, range)),
            Ordering::Greater => {
                return Err(HeaderError::Hole { tensor: tensor.into(), hole: other_range.end..range.start });
            }
            Ordering::Less => {
                return Err(HeaderError::Overlap {
                    tensor: tensor.into(),
                    range: range.clone(),
                    other: other.into(),
                    other_range: other_range.clone(),
                });
            }
        }
    }
    let covered = last.map_or(0, |(_, range)| range.end);
    if let Some((tensor, _)) = tensors.iter().find(|(_, range)| range.end > data_bytes) {
        let tensor = Box::from(*tensor);
        return Err(HeaderError::Truncated { tensor, expected: covered, found: data_bytes });
    }
    Ok(covered)
}

#[cfg(test)]
mod tests {
    use super::super::Header;
    use super::super::tests::{parse, parse_entry};
    use super::*;
    use crate::dtype::Dtype;

    /// Parses a header of byte tensors with these names and ranges.
    fn parse_ranges(tensors: &[(&str, u64, u64)], data_bytes: u64) -> Result<Header, HeaderError> {
        let entries: Vec<String> = tensors
            .iter()
            .map(|(name, begin, end)| {
                format!(
                    r#""{name}":{{"dtype":"U8","shape":[{}],"data_offsets":[{begin},{end}]}}"#,
                    end - begin
                )
            })
            .collect();
        parse(format!("{{{}}}", entries.join(",")), data_bytes)
    }

    #[test]
    fn a_range_of_another_length_than_the_shape_says_is_an_error() {
        let error = parse_entry(r#""F32""#, "[2,2]", "[0,4]", 4).unwrap_err();
        let expected = HeaderError::SizeMismatch {
            tensor: "t".into(),
            dtype: Dtype::F32,
            shape: [2, 2].into(),
            expected: 16,
            range: 0..4,
        };
        assert_eq!(error, expected);
        assert_eq!(
            error.to_string(),
            "tensor \"t\": F32 of shape [2, 2] has 16 bytes, but its range 0..4 has 4; fetch the file again, or save it \
             anew with another writer"
        );
    }

    #[test]
    fn a_scalar_is_one_element() {
        assert!(parse_entry(r#""I32""#, "[]", "[0,4]", 4).is_ok());
        assert_eq!(parse_entry(r#""I32""#, "[]", "[0,0]", 0).unwrap_err().kind(), "SizeMismatch");
    }

    #[test]
    fn a_zero_in_a_shape_means_no_elements_wherever_it_stands() {
        for shape in
            ["[0]", "[2,0]", "[9223372036854775808,9223372036854775808,0]", "[0,18446744073709551615,3]"]
        {
            assert!(parse_entry(r#""F32""#, shape, "[0,0]", 0).is_ok(), "{shape}");
            assert_eq!(parse_entry(r#""F32""#, shape, "[0,4]", 4).unwrap_err().kind(), "SizeMismatch");
        }
    }

    #[test]
    fn sizes_that_64_bits_cannot_count_are_an_error() {
        for (dtype, shape) in [
            ("I32", "[2,18446744073709551614]"),
            ("I32", "[2,9223372036854775807]"),
            ("U8", "[4294967296,4294967296,1]"),
            ("C64", "[18446744073709551615,18446744073709551615,18446744073709551615]"),
        ] {
            let error = parse_entry(&format!("\"{dtype}\""), shape, "[0,16]", 16).unwrap_err();
            assert_eq!((error.kind(), error.tensor()), ("SizeOverflow", Some("t")), "{error}");
        }
    }

    #[test]
    fn narrow_elements_have_to_fill_bytes() {
        for (dtype, shape, bits) in [("F4", "[1,3]", 12), ("F6_E2M3", "[1]", 6), ("F6_E3M2", "[2]", 12)] {
            let error = parse_entry(&format!("\"{dtype}\""), shape, "[0,2]", 2).unwrap_err();
            assert!(
                matches!(error, HeaderError::PartialByte { bits: found, .. } if found == bits),
                "{error}"
            );
        }
        assert!(parse_entry(r#""F4""#, "[1,4]", "[0,2]", 2).is_ok());
        assert!(parse_entry(r#""F6_E2M3""#, "[4]", "[0,3]", 3).is_ok());
    }

    #[test]
    fn offsets_in_reverse_are_an_error_even_of_an_unknown_dtype() {
        for dtype in [r#""F32""#, r#""Q8_0""#] {
            let error = parse_entry(dtype, "[2,2]", "[16,0]", 16).unwrap_err();
            assert_eq!(error, HeaderError::ReversedOffsets { tensor: "t".into(), begin: 16, end: 0 });
        }
    }

    #[test]
    fn a_hole_names_its_bytes_and_what_follows() {
        let before_first = parse_ranges(&[("a", 8, 24)], 24).unwrap_err();
        assert_eq!(before_first, HeaderError::Hole { tensor: "a".into(), hole: 0..8 });
        let between = parse_ranges(&[("b", 8, 12), ("a", 0, 4)], 12).unwrap_err();
        assert_eq!(between, HeaderError::Hole { tensor: "b".into(), hole: 4..8 });
        let empty = parse_ranges(&[("a", 0, 16), ("z", 20, 20)], 16).unwrap_err();
        assert_eq!(empty, HeaderError::Hole { tensor: "z".into(), hole: 16..20 });
    }

    #[test]
    fn an_overlap_names_both_tensors_and_ranges() {
        let overlap = |range, other_range| HeaderError::Overlap {
            tensor: "b".into(),
            range,
            other: "a".into(),
            other_range,
        };
        let in_part = parse_ranges(&[("b", 8, 24), ("a", 0, 16)], 24).unwrap_err();
        assert_eq!(in_part, overlap(8..24, 0..16));
        let alias = parse_ranges(&[("a", 0, 16), ("b", 0, 16)], 16).unwrap_err();
        assert_eq!(alias, overlap(0..16, 0..16));
        let empty_inside = parse_ranges(&[("a", 0, 16), ("b", 8, 8)], 16).unwrap_err();
        assert_eq!(empty_inside, overlap(8..8, 0..16));
    }

    #[test]
    fn a_file_that_ends_too_early_says_what_is_missing() {
        let error = parse_ranges(&[("a", 0, 4), ("b", 4, 12), ("c", 12, 20)], 9).unwrap_err();
        assert_eq!(error, HeaderError::Truncated { tensor: "b".into(), expected: 20, found: 9 });
        assert!(error.to_string().contains("11 are missing"), "{error}");
    }

    #[test]
    fn bytes_after_the_last_tensor_are_an_error() {
        let after = parse_ranges(&[("a", 0, 16)], 38).unwrap_err();
        assert_eq!(after, HeaderError::TrailingBytes { trailing: 16..38 });
        assert_eq!(parse("{}", 1).unwrap_err(), HeaderError::TrailingBytes { trailing: 0..1 });
    }

    #[test]
    fn offsets_at_the_end_of_64_bits_do_not_overflow() {
        // Together with the header they end past 2^64.
        let size = (1 << 61) - 1;
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let tensors: Vec<_> = (0..).zip(names).map(|(n, name)| (name, n * size, (n + 1) * size)).collect();
        let error = parse_ranges(&tensors, 0).unwrap_err();
        assert_eq!(error, HeaderError::Truncated { tensor: "a".into(), expected: 8 * size, found: 0 });
        assert_eq!(parse_ranges(&[("a", 0, u64::MAX)], 1).unwrap_err().kind(), "Truncated");
    }

    #[test]
    fn empty_tensors_may_stand_between_others_in_any_number() {
        assert!(parse_ranges(&[("a", 0, 4), ("x", 0, 0), ("y", 4, 4), ("b", 4, 8), ("z", 8, 8)], 8).is_ok());
        let names: Vec<String> = (0..50_000).map(|number| format!("z{number}")).collect();
        let tensors: Vec<_> = names.iter().map(|name| (&**name, 0, 0)).collect();
        assert_eq!(parse_ranges(&tensors, 0).unwrap().len(), 50_000);
    }

    #[test]
    fn a_hundred_thousand_aliases_are_one_overlap() {
        let names: Vec<String> = (0..100_000).map(|number| format!("weight_{number}")).collect();
        let tensors: Vec<_> = names.iter().map(|name| (&**name, 0, 16)).collect();
        assert_eq!(parse_ranges(&tensors, 16).unwrap_err().tensor(), Some("weight_1"));
    }
}
