use proptest::prelude::*;

use super::*;

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Nan,
    Infinite,
    Zero,
    Other,
}

use Kind::{Infinite, Nan, Other, Zero};

fn kind_of_value(value: f64) -> Kind {
    match value {
        value if value.is_nan() => Nan,
        value if value.is_infinite() => Infinite,
        0.0 => Zero,
        _ => Other,
    }
}

fn kind_of_one(dtype: &Dtype, bytes: &[u8]) -> Kind {
    let scan = Scan::of(dtype, bytes);
    assert_eq!((scan.bytes, scan.numbers), (bytes.len() as u64, 1), "{dtype} {bytes:x?}");
    match (scan.nan, scan.infinite, scan.is_zero()) {
        (1, 0, false) => Nan,
        (0, 1, false) => Infinite,
        (0, 0, true) => Zero,
        (0, 0, false) => Other,
        odd => panic!("{dtype} {bytes:x?}: {odd:?}"),
    }
}

/// The value of a number by its fields; `special` is what the greatest exponent means with a mantissa.
fn value(
    bits: u32,
    mantissa_bits: u32,
    exponent_bits: u32,
    bias: i32,
    special: fn(u32) -> Option<f64>,
) -> f64 {
    let mantissa = bits % (1 << mantissa_bits);
    let exponent = (bits >> mantissa_bits) % (1 << exponent_bits);
    let sign = if bits >> (mantissa_bits + exponent_bits) == 1 { -1.0 } else { 1.0 };
    if exponent == (1 << exponent_bits) - 1
        && let Some(special) = special(mantissa)
    {
        return sign * special;
    }
    let fraction = f64::from(mantissa) / f64::from(1 << mantissa_bits);
    let exponent = i32::try_from(exponent).unwrap();
    sign * if exponent == 0 {
        fraction * 2_f64.powi(1 - bias)
    } else {
        (1.0 + fraction) * 2_f64.powi(exponent - bias)
    }
}

fn ieee_special(mantissa: u32) -> Option<f64> {
    Some(if mantissa == 0 { f64::INFINITY } else { f64::NAN })
}

/// The values of the types of 8 bits, by the tables of their definitions.
fn value_of_8_bits(dtype: &Dtype, bits: u8) -> f64 {
    let all = u32::from(bits);
    match dtype {
        Dtype::F8E5M2 => value(all, 2, 5, 15, ieee_special),
        Dtype::F8E4M3 => value(all, 3, 4, 7, |mantissa| (mantissa == 7).then_some(f64::NAN)),
        Dtype::F8E5M2Fnuz | Dtype::F8E4M3Fnuz if bits == 0x80 => f64::NAN,
        Dtype::F8E5M2Fnuz => value(all, 2, 5, 16, |_| None),
        Dtype::F8E4M3Fnuz => value(all, 3, 4, 8, |_| None),
        other => panic!("{other}"),
    }
}

#[test]
fn every_number_of_8_bits_is_told_for_what_it_is() {
    for dtype in [Dtype::F8E5M2, Dtype::F8E4M3, Dtype::F8E5M2Fnuz, Dtype::F8E4M3Fnuz] {
        for bits in 0..=u8::MAX {
            let expected = kind_of_value(value_of_8_bits(&dtype, bits));
            assert_eq!(kind_of_one(&dtype, &[bits]), expected, "{dtype} {bits:#x}");
        }
    }
}

#[test]
fn every_number_of_16_bits_is_told_for_what_it_is() {
    for bits in 0..=u16::MAX {
        let half = value(u32::from(bits), 10, 5, 15, ieee_special);
        assert_eq!(kind_of_one(&Dtype::F16, &bits.to_le_bytes()), kind_of_value(half), "F16 {bits:#x}");
        let brain = f32::from_bits(u32::from(bits) << 16);
        assert_eq!(
            kind_of_one(&Dtype::Bf16, &bits.to_le_bytes()),
            kind_of_value(brain.into()),
            "BF16 {bits:#x}"
        );
    }
}

#[test]
fn numbers_of_32_and_64_bits_are_told_at_each_border() {
    let of_32 =
        [0, 1, 0x007f_ffff, 0x0080_0000, 0x7f7f_ffff, 0x7f80_0000, 0x7f80_0001, 0x7fc0_0000, 0x7fff_ffff];
    for bits in of_32.into_iter().flat_map(|bits: u32| [bits, bits | 1 << 31]) {
        let expected = kind_of_value(f32::from_bits(bits).into());
        assert_eq!(kind_of_one(&Dtype::F32, &bits.to_le_bytes()), expected, "{bits:#x}");
    }
    let infinity = f64::INFINITY.to_bits();
    let of_64 =
        [0, 1, u64::from(u32::MAX), 1 << 52, infinity - 1, infinity, infinity + 1, infinity | 1 << 51];
    for bits in of_64.into_iter().flat_map(|bits: u64| [bits, bits | 1 << 63]) {
        let expected = kind_of_value(f64::from_bits(bits));
        assert_eq!(kind_of_one(&Dtype::F64, &bits.to_le_bytes()), expected, "{bits:#x}");
    }
}

#[test]
fn a_scale_is_nan_at_255_and_its_zero_byte_looks_like_a_file_that_nobody_wrote_to() {
    for bits in 0..=u8::MAX {
        let expected = match bits {
            0 => Zero,
            255 => Nan,
            _ => Other,
        };
        assert_eq!(kind_of_one(&Dtype::F8E8M0, &[bits]), expected, "{bits}");
    }
}

#[test]
fn each_part_of_a_complex_number_counts() {
    let parts = [1.0, f32::NAN, f32::INFINITY, f32::NAN].map(f32::to_le_bytes).concat();
    let scan = Scan::of(&Dtype::C64, &parts);
    assert_eq!((scan.numbers, scan.nan, scan.infinite), (4, 2, 1));
    assert!(Scan::of(&Dtype::C64, &[0.0_f32, -0.0].map(f32::to_le_bytes).concat()).is_zero());
}

#[test]
fn what_has_no_nan_is_only_looked_through_for_zeros() {
    use Dtype::{Bool, F4, F6E2M3, F6E3M2, I8, I16, I32, I64, U8, U16, U32, U64};
    let unknown = Dtype::from_name("Q8_0");
    for dtype in [Bool, U8, I8, U16, I16, U32, I32, U64, I64, F4, F6E2M3, F6E3M2, unknown] {
        for place in 0..300 {
            let mut bytes = vec![0; 300];
            assert!(Scan::of(&dtype, &bytes).is_zero(), "{dtype}");
            bytes[place] = 0x10;
            let scan = Scan::of(&dtype, &bytes);
            assert_eq!(
                (scan.numbers, scan.nan, scan.infinite, scan.is_zero()),
                (0, 0, 0, false),
                "{dtype} {place}"
            );
        }
    }
}

#[test]
fn of_two_numbers_in_a_byte_each_may_be_negative_zero() {
    for byte in [0x00, 0x08, 0x80, 0x88] {
        assert!(Scan::of(&Dtype::F4, &[byte]).is_zero(), "{byte:#x}");
    }
    for bit in [0, 1, 2, 4, 5, 6] {
        assert!(!Scan::of(&Dtype::F4, &[0x88 | 1 << bit]).is_zero(), "{bit}");
    }
}

#[test]
fn nothing_is_not_zero() {
    assert!(!Scan::of(&Dtype::F32, &[]).is_zero());
    assert!(!Scan::default().is_zero());
}

#[test]
fn counts_do_not_end_with_the_narrow_integers_that_they_are_made_in() {
    let many = vec![0x7f; 100_000];
    let scan = Scan::of(&Dtype::F8E4M3, &many);
    assert_eq!((scan.numbers, scan.nan, scan.infinite), (100_000, 100_000, 0));
    let many = vec![0x7c; 100_000];
    assert_eq!(Scan::of(&Dtype::F8E5M2, &many).infinite, 100_000);
}

#[test]
fn a_part_of_a_number_is_none_but_no_zero_either() {
    let scan = Scan::of(&Dtype::F32, &[0, 0, 0, 0, 0xff]);
    assert_eq!((scan.bytes, scan.numbers, scan.nan, scan.is_zero()), (5, 1, 0, false));
}

/// Bytes among which NaN, infinities and zeros of all types are frequent.
fn odd_bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => Just(0),
        4 => proptest::sample::select(&[0x7f, 0xff, 0x80, 0x7c, 0xfc, 0xf0, 0xf8, 0xc0][..]),
        1 => any::<u8>(),
    ];
    proptest::collection::vec(byte, 0..200).prop_map(|mut words| {
        words.truncate(words.len() / 8 * 8);
        words
    })
}

fn all_dtypes() -> Vec<Dtype> {
    Dtype::known().chain([Dtype::from_name("Q8_0")]).collect()
}

proptest! {
    #[test]
    fn it_does_not_matter_how_a_tensor_is_cut_nor_in_which_order_its_parts_come(
        bytes in odd_bytes(),
        dtype in proptest::sample::select(all_dtypes()),
        words in 1_usize..20,
        backwards: bool,
    ) {
        let mut parts: Vec<_> = bytes.chunks(words * 8).map(|part| Scan::of(&dtype, part)).collect();
        if backwards {
            parts.reverse();
        }
        let mut sum = Scan::default();
        parts.into_iter().for_each(|part| sum += part);
        prop_assert_eq!(sum, Scan::of(&dtype, &bytes));
    }

    #[test]
    fn many_numbers_are_counted_as_one_by_one(bytes in odd_bytes()) {
        let singles: Vec<_> = bytes.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
        let scan = Scan::of(&Dtype::F32, &bytes);
        prop_assert_eq!(scan.numbers, singles.len() as u64);
        prop_assert_eq!(scan.nan, singles.iter().filter(|number| number.is_nan()).count() as u64);
        prop_assert_eq!(scan.infinite, singles.iter().filter(|number| number.is_infinite()).count() as u64);
        prop_assert_eq!(scan.is_zero(), !singles.is_empty() && singles.iter().all(|number| *number == 0.0));
        for dtype in [Dtype::F8E5M2, Dtype::F8E4M3, Dtype::F8E5M2Fnuz, Dtype::F8E4M3Fnuz] {
            let values: Vec<_> = bytes.iter().map(|&bits| value_of_8_bits(&dtype, bits)).collect();
            let scan = Scan::of(&dtype, &bytes);
            prop_assert_eq!(scan.nan, values.iter().filter(|value| value.is_nan()).count() as u64);
            prop_assert_eq!(scan.infinite, values.iter().filter(|value| value.is_infinite()).count() as u64);
            prop_assert_eq!(scan.is_zero(), !values.is_empty() && values.iter().all(|value| *value == 0.0));
        }
    }
}
