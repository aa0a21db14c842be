//! The widths of the format's element types, written down a second time on purpose.

/// The bytes of a tensor of this type and shape: none if a dim is zero, whatever the others.
///
/// # Panics
/// For a type that the format does not have, a product beyond `u64`, or elements that do not fill whole
/// bytes.
pub fn byte_len(dtype: &str, shape: &[u64]) -> u64 {
    if shape.contains(&0) {
        return 0;
    }
    let bits = shape.iter().try_fold(bits(dtype), |product, &dim| product.checked_mul(dim));
    let bits = bits.unwrap_or_else(|| panic!("{dtype} {shape:?} has more than 2^64 bits"));
    assert!(bits % 8 == 0, "{dtype} {shape:?} does not fill whole bytes");
    bits / 8
}

/// The bits of one element.
pub(crate) fn bits(dtype: &str) -> u64 {
    match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" | "F8_E4M3FNUZ" | "F8_E5M2FNUZ" => 8,
        "I16" | "U16" | "F16" | "BF16" => 16,
        "I32" | "U32" | "F32" => 32,
        "C64" | "F64" | "I64" | "U64" => 64,
        _ => panic!("{dtype:?} is no type of the format; give the bytes with `tensor`"),
    }
}

#[cfg(test)]
mod tests {
    use super::byte_len;

    #[test]
    fn narrow_and_wide_types_are_counted_in_bytes() {
        assert_eq!(byte_len("F4", &[3, 2]), 3);
        assert_eq!(byte_len("F6_E2M3", &[4]), 3);
        assert_eq!(byte_len("C64", &[]), 8);
        assert_eq!(byte_len("BF16", &[1 << 63, 1 << 63, 0]), 0);
    }
}
