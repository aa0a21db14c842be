//! The element types of the format.

use std::fmt;
use std::sync::Arc;

/// The type of a tensor's elements, under the name that the format gives it.
///
/// Names and widths are those of the safetensors format, version 0.8 of the reference implementation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Dtype {
    /// 4-bit float (E2M1), two to a byte.
    F4,
    /// 6-bit float, 2 exponent and 3 mantissa bits, four to three bytes.
    F6E2M3,
    /// 6-bit float, 3 exponent and 2 mantissa bits, four to three bytes.
    F6E3M2,
    /// A byte that is 0 or 1.
    Bool,
    /// 8-bit unsigned integer.
    U8,
    /// 8-bit signed integer.
    I8,
    /// 8-bit float, 5 exponent and 2 mantissa bits.
    F8E5M2,
    /// 8-bit float, 4 exponent and 3 mantissa bits.
    F8E4M3,
    /// 8-bit exponent, the scale of microscaling formats.
    F8E8M0,
    /// 8-bit float E4M3 without negative zero.
    F8E4M3Fnuz,
    /// 8-bit float E5M2 without negative zero.
    F8E5M2Fnuz,
    /// 16-bit signed integer.
    I16,
    /// 16-bit unsigned integer.
    U16,
    /// 16-bit float of IEEE 754.
    F16,
    /// 16-bit brain float: the upper half of a 32-bit one.
    Bf16,
    /// 32-bit signed integer.
    I32,
    /// 32-bit unsigned integer.
    U32,
    /// 32-bit float.
    F32,
    /// Complex number of two 32-bit floats.
    C64,
    /// 64-bit float.
    F64,
    /// 64-bit signed integer.
    I64,
    /// 64-bit unsigned integer.
    U64,
    /// A type that this version does not know, kept by its name: the bytes can be had, typed access cannot.
    Unknown(Arc<str>),
}

use Dtype::{
    Bf16, Bool, C64, F4, F6E2M3, F6E3M2, F8E4M3, F8E4M3Fnuz, F8E5M2, F8E5M2Fnuz, F8E8M0, F16, F32, F64, I8,
    I16, I32, I64, U8, U16, U32, U64, Unknown,
};

/// Each known type with its name in the format and the bits of one element.
const TABLE: [(Dtype, &str, u32); 22] = [
    (F4, "F4", 4),
    (F6E2M3, "F6_E2M3", 6),
    (F6E3M2, "F6_E3M2", 6),
    (Bool, "BOOL", 8),
    (U8, "U8", 8),
    (I8, "I8", 8),
    (F8E5M2, "F8_E5M2", 8),
    (F8E4M3, "F8_E4M3", 8),
    (F8E8M0, "F8_E8M0", 8),
    (F8E4M3Fnuz, "F8_E4M3FNUZ", 8),
    (F8E5M2Fnuz, "F8_E5M2FNUZ", 8),
    (I16, "I16", 16),
    (U16, "U16", 16),
    (F16, "F16", 16),
    (Bf16, "BF16", 16),
    (I32, "I32", 32),
    (U32, "U32", 32),
    (F32, "F32", 32),
    (C64, "C64", 64),
    (F64, "F64", 64),
    (I64, "I64", 64),
    (U64, "U64", 64),
];

impl Dtype {
    /// The types of the format, narrow ones first.
    pub fn known() -> impl Iterator<Item = Self> {
        TABLE.into_iter().map(|(dtype, _, _)| dtype)
    }

    /// The type with this name; names are exact (`f32` is not `F32`) and any other is [`Dtype::Unknown`].
    pub fn from_name(name: &str) -> Self {
        TABLE
            .iter()
            .find(|(_, known, _)| *known == name)
            .map_or_else(|| Unknown(name.into()), |(dtype, _, _)| dtype.clone())
    }

    /// The name in the format: `BF16`, `F8_E4M3`.
    pub fn name(&self) -> &str {
        match self {
            Unknown(name) => name,
            known => TABLE.iter().find(|(dtype, _, _)| dtype == known).map_or("", |(_, name, _)| name),
        }
    }

    /// The bits of one element, of which there can be fewer than 8; `None` for a type that is not known.
    pub fn bits(&self) -> Option<u32> {
        TABLE.iter().find(|(dtype, _, _)| dtype == self).map(|&(_, _, bits)| bits)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl serde::Serialize for Dtype {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_type_is_found_by_its_own_name() {
        for dtype in Dtype::known() {
            assert_eq!(Dtype::from_name(dtype.name()), dtype);
            assert!(dtype.bits().is_some());
        }
    }

    #[test]
    fn other_names_are_kept() {
        for name in ["f32", "C128", "", "Q8_0"] {
            let dtype = Dtype::from_name(name);
            assert_eq!((dtype.name(), dtype.bits()), (name, None));
        }
    }
}
