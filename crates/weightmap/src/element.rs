//! Typed access to a tensor's bytes.

use std::path::PathBuf;

use bytemuck::AnyBitPattern;

use crate::dtype::Dtype;
use crate::error::{Error, Result};
use crate::tensor_info::TensorInfo;

mod sealed {
    pub trait Sealed {}
}

/// A Rust type whose values have the same bits as the elements of one [`Dtype`].
///
/// Implemented for the integers and floats of Rust, for `[f32; 2]` as [`Dtype::C64`], and with the feature
/// `half` (on by default) for `half::f16` and `half::bf16`. `bool` is not among them, since not every byte is
/// one: see [`Tensor::as_bools`](crate::Tensor::as_bools). Of the 4-, 6- and 8-bit floats the bytes can be
/// had.
#[diagnostic::on_unimplemented(
    message = "no dtype has elements of the type `{Self}`",
    note = "integers, floats and `[f32; 2]` are elements; for `bool` see `as_bools`",
    note = "`half::f16` and `half::bf16` of version 2 need the feature `half` of `weightmap`, which is on by default"
)]
pub trait Element: AnyBitPattern + sealed::Sealed {
    /// The type of a tensor that can be seen as a slice of these.
    const DTYPE: Dtype;

    /// The value whose bytes were read from the file, which are little-endian.
    #[doc(hidden)]
    #[must_use]
    fn to_native(self) -> Self;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident, $value:ident => $swapped:expr;)+) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DTYPE: Dtype = Dtype::$dtype;
            fn to_native(self) -> Self {
                let $value = self;
                $swapped
            }
        }
    )+};
}

elements! {
    u8 => U8, value => value;
    i8 => I8, value => value;
    u16 => U16, value => Self::from_le(value);
    i16 => I16, value => Self::from_le(value);
    u32 => U32, value => Self::from_le(value);
    i32 => I32, value => Self::from_le(value);
    u64 => U64, value => Self::from_le(value);
    i64 => I64, value => Self::from_le(value);
    f32 => F32, value => Self::from_bits(u32::from_le(value.to_bits()));
    f64 => F64, value => Self::from_bits(u64::from_le(value.to_bits()));
    [f32; 2] => C64, value => value.map(Element::to_native);
}

#[cfg(feature = "half")]
elements! {
    half::f16 => F16, value => Self::from_bits(u16::from_le(value.to_bits()));
    half::bf16 => Bf16, value => Self::from_bits(u16::from_le(value.to_bits()));
}

/// The bytes of a tensor as a slice of `T`, without a copy.
pub(crate) fn as_slice<'a, T: Element>(info: &TensorInfo, bytes: &'a [u8]) -> Result<&'a [T]> {
    check_dtype(info, &T::DTYPE)?;
    if bytes.is_empty() {
        // No elements need no alignment.
        return Ok(&[]);
    }
    if cfg!(target_endian = "big") && size_of::<T>() > 1 {
        let (path, tensor) = place(info);
        return Err(Error::BigEndian { path, tensor, dtype: info.dtype.clone() });
    }
    // The size is right, or the header would not have been accepted; so it can only be the alignment.
    bytemuck::try_cast_slice(bytes).map_err(|_| {
        let (path, tensor) = place(info);
        Error::Misaligned { path, tensor, dtype: info.dtype.clone(), alignment: align_of::<T>() }
    })
}

/// The elements of a tensor, copied; wherever the bytes lie and whatever the machine's byte order.
pub(crate) fn to_vec<T: Element>(info: &TensorInfo, bytes: &[u8]) -> Result<Vec<T>> {
    check_dtype(info, &T::DTYPE)?;
    let values = bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned::<T>);
    Ok(values.map(T::to_native).collect())
}

/// The bytes of a [`Dtype::Bool`] tensor, each of which has been found to be 0 or 1.
pub(crate) fn as_bools<'a>(info: &TensorInfo, bytes: &'a [u8]) -> Result<&'a [bool]> {
    check_dtype(info, &Dtype::Bool)?;
    bytemuck::checked::try_cast_slice(bytes).map_err(|_| {
        let wrong = bytes.iter().enumerate().find(|(_, byte)| **byte > 1);
        let (element, value) = wrong.map_or((0, 0), |(element, &value)| (element, value));
        let (path, tensor) = place(info);
        Error::NotBool { path, tensor, element, value }
    })
}

fn check_dtype(info: &TensorInfo, expected: &Dtype) -> Result<()> {
    if info.dtype == *expected {
        return Ok(());
    }
    let (path, tensor) = place(info);
    Err(Error::DtypeMismatch { path, tensor, expected: expected.clone(), found: info.dtype.clone() })
}

fn place(info: &TensorInfo) -> (PathBuf, String) {
    (info.shard.as_str().into(), info.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard_name::ShardName;

    fn info(name: &str, dtype: Dtype) -> TensorInfo {
        let shard = ShardName::parse("x.safetensors").unwrap();
        TensorInfo::new(name.to_owned(), dtype, vec![1], shard, 0..1)
    }

    #[repr(align(8))]
    struct Aligned([u8; 9]);

    #[test]
    fn aligned_bytes_of_the_right_type_are_seen_as_a_slice() {
        let bytes = Aligned([0, 0, 128, 63, 0, 0, 0, 64, 0]);
        if cfg!(target_endian = "little") {
            assert_eq!(as_slice::<f32>(&info("t", Dtype::F32), &bytes.0[..8]).unwrap(), [1.0, 2.0]);
        }
        assert_eq!(to_vec::<f32>(&info("t", Dtype::F32), &bytes.0[..8]).unwrap(), [1.0, 2.0]);
    }

    #[test]
    fn bytes_at_an_odd_address_are_refused_as_a_slice_and_copied_into_a_vec() {
        let bytes = Aligned([0, 0, 0, 128, 63, 0, 0, 0, 64]);
        if cfg!(target_endian = "little") {
            let error = as_slice::<f32>(&info("odd", Dtype::F32), &bytes.0[1..]).unwrap_err();
            assert!(matches!(error, Error::Misaligned { ref tensor, .. } if tensor == "odd"), "{error}");
            assert!(as_slice::<f32>(&info("empty", Dtype::F32), &bytes.0[1..1]).unwrap().is_empty());
        }
        assert_eq!(to_vec::<f32>(&info("odd", Dtype::F32), &bytes.0[1..]).unwrap(), [1.0, 2.0]);
    }

    #[test]
    fn another_type_of_the_same_width_is_refused() {
        for dtype in [Dtype::I32, Dtype::U32, Dtype::Unknown("F32 ".into())] {
            let error = to_vec::<f32>(&info("t", dtype.clone()), &[0; 4]).unwrap_err();
            assert!(matches!(error, Error::DtypeMismatch { ref found, .. } if *found == dtype), "{error}");
        }
    }

    #[test]
    fn bytes_other_than_0_and_1_are_never_handed_out_as_bool() {
        assert_eq!(as_bools(&info("t", Dtype::Bool), &[0, 1, 1]).unwrap(), [false, true, true]);
        let error = as_bools(&info("t", Dtype::Bool), &[0, 1, 2, 255]).unwrap_err();
        assert!(matches!(error, Error::NotBool { element: 2, value: 2, .. }), "{error}");
        assert!(matches!(as_bools(&info("t", Dtype::U8), &[0]), Err(Error::DtypeMismatch { .. })));
    }

    #[test]
    fn values_are_little_endian_on_every_machine() {
        assert_eq!(to_vec::<u16>(&info("t", Dtype::U16), &[1, 2]).unwrap(), [0x0201]);
        assert_eq!(
            to_vec::<[f32; 2]>(&info("t", Dtype::C64), &[0, 0, 128, 63, 0, 0, 0, 64]).unwrap(),
            [[1.0, 2.0]]
        );
        #[cfg(feature = "half")]
        assert_eq!(to_vec::<half::bf16>(&info("t", Dtype::Bf16), &[128, 63]).unwrap(), [half::bf16::ONE]);
    }
}
