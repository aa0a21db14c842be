//! What is odd about the values of a tensor: that they are no numbers, not finite, or nothing but zeros.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

#[cfg(test)]
mod tests;

use std::ops::{AddAssign, BitAnd, BitOrAssign, RangeInclusive};

use crate::dtype::Dtype;

/// What bytes of a tensor hold: how many values are NaN or infinite, and whether there is anything but zeros.
///
/// A tensor can be looked at in any parts, in any order and by any threads; the sum (`+=`) says what is in all of them.
///
/// ```
/// use weightmap::{Dtype, Scan};
///
/// let mut scan = Scan::of(&Dtype::F32, &f32::NAN.to_le_bytes());
/// scan += Scan::of(&Dtype::F32, &1.0_f32.to_le_bytes());
/// assert_eq!((scan.numbers, scan.nan, scan.infinite, scan.is_zero()), (2, 1, 0, false));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scan {
    /// The bytes that were looked at.
    pub bytes: u64,
    /// The floating-point numbers among them, a complex number being two; 0 for types that have neither NaN nor
    /// infinity: integers, `BOOL`, floats of 4 and 6 bits, and those that are not known.
    pub numbers: u64,
    /// How many of the numbers are NaN.
    pub nan: u64,
    /// How many of the numbers are infinite, of either sign.
    pub infinite: u64,
    /// Whether something is not zero.
    nonzero: bool,
}

impl Scan {
    /// Looks at bytes of a tensor, which must be whole elements of it: a part of one counts as no number. Elements of
    /// 4 and 6 bits may be cut anywhere.
    pub fn of(dtype: &Dtype, bytes: &[u8]) -> Self {
        use Dtype::{
            Bf16, Bool, C64, F4, F6E2M3, F6E3M2, F8E4M3, F8E4M3Fnuz, F8E5M2, F8E5M2Fnuz, F8E8M0, F16, F32,
            F64, I8, I16, I32, I64, U8, U16, U32, U64, Unknown,
        };
        match dtype {
            F64 => numbers(bytes, &ieee(0x7fff_ffff_ffff_ffff_u64, 0x7ff0_0000_0000_0000)),
            F32 | C64 => numbers(bytes, &ieee(0x7fff_ffff_u32, 0x7f80_0000)),
            F16 => numbers(bytes, &ieee(0x7fff_u16, 0x7c00)),
            Bf16 => numbers(bytes, &ieee(0x7fff_u16, 0x7f80)),
            F8E5M2 => numbers(bytes, &ieee(0x7f_u8, 0x7c)),
            // It has no infinity, and one NaN of each sign.
            F8E4M3 => numbers(bytes, &Rule { magnitude: 0x7f_u8, infinity: None, nan: 0x7f..=0x7f }),
            // No sign, no infinity, and no zero either: its least number is zero bytes, as of a file nobody wrote to.
            F8E8M0 => numbers(bytes, &Rule { magnitude: 0xff_u8, infinity: None, nan: 0xff..=0xff }),
            // What would be negative zero is the only NaN.
            F8E4M3Fnuz | F8E5M2Fnuz => {
                numbers(bytes, &Rule { magnitude: 0xff_u8, infinity: None, nan: 0x80..=0x80 })
            }
            // The signs of two numbers are left out.
            F4 => zeros(bytes, 0x77),
            F6E2M3 | F6E3M2 | Bool | U8 | I8 | U16 | I16 | U32 | I32 | U64 | I64 | Unknown(_) => {
                zeros(bytes, 0xff)
            }
        }
    }

    /// Whether there are bytes and all elements are zero, of either sign.
    ///
    /// Of elements of 6 bits, which share bytes, and of types that are not known it is said that all bytes are zero;
    /// so it is of `F8_E8M0`, which has no zero.
    pub fn is_zero(&self) -> bool {
        self.bytes > 0 && !self.nonzero
    }
}

impl AddAssign for Scan {
    fn add_assign(&mut self, other: Self) {
        // Each byte is counted once, and no tensor has more of them than 64 bits can count.
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.numbers = self.numbers.saturating_add(other.numbers);
        self.nan = self.nan.saturating_add(other.nan);
        self.infinite = self.infinite.saturating_add(other.infinite);
        self.nonzero = self.nonzero || other.nonzero;
    }
}

/// Which bits of a floating-point type mean what.
///
/// `F8_E5M2` and `F8_E4M3` are those of the OCP 8-bit Floating Point Specification (OFP8), revision 1.0, `F8_E8M0` is
/// that of the OCP Microscaling Formats (MX) Specification, version 1.0, section 5.4.1; the two FNUZ types are defined in
/// <https://arxiv.org/abs/2206.02915>, and so by LLVM's `APFloat` and by `ml_dtypes`.
struct Rule<T> {
    /// All bits but that of a sign, where zero has two.
    magnitude: T,
    /// Of these bits, those of infinity.
    infinity: Option<T>,
    /// And those of NaN.
    nan: RangeInclusive<T>,
}

/// The rule of IEEE 754: the greatest exponent is infinity, and with any other bit set NaN.
fn ieee<T: Copy + AddAssign + From<bool>>(magnitude: T, infinity: T) -> Rule<T> {
    let mut least_nan = infinity;
    least_nan += T::from(true);
    Rule { magnitude, infinity: Some(infinity), nan: least_nan..=magnitude }
}

/// An unsigned integer with the bits of a number of so many bytes.
trait Bits<const BYTES: usize>:
    Copy + Default + Ord + BitAnd<Output = Self> + BitOrAssign + AddAssign + From<bool> + Into<u64>
{
    fn of(bytes: [u8; BYTES]) -> Self;
}

macro_rules! bits {
    ($($unsigned:ty),*) => {
        $(impl Bits<{ size_of::<$unsigned>() }> for $unsigned {
            fn of(bytes: [u8; size_of::<$unsigned>()]) -> Self {
                Self::from_le_bytes(bytes)
            }
        })*
    };
}
bits!(u8, u16, u32, u64);

/// So many numbers are counted in integers as wide as they are, which the compiler does for many of them at once. It
/// must be less than 256.
const BLOCK: usize = 128;

/// Counts by a rule. It is inlined for the sake of the constants in the rule.
#[inline(always)]
fn numbers<T: Bits<BYTES>, const BYTES: usize>(bytes: &[u8], rule: &Rule<T>) -> Scan {
    let (numbers, rest) = bytes.as_chunks::<BYTES>();
    let mut scan = zeros(rest, 0xff);
    scan.bytes = bytes.len() as u64;
    scan.numbers = numbers.len() as u64;
    for block in numbers.chunks(BLOCK) {
        let (mut nan, mut infinite, mut all) = (T::default(), T::default(), T::default());
        for &number in block {
            let value = T::of(number) & rule.magnitude;
            nan += T::from(rule.nan.contains(&value));
            infinite += T::from(rule.infinity == Some(value));
            all |= value;
        }
        scan.nan += nan.into();
        scan.infinite += infinite.into();
        scan.nonzero |= all != T::default();
    }
    scan
}

/// Looks only whether one of these bits of a byte is set anywhere.
fn zeros(bytes: &[u8], mask: u8) -> Scan {
    let nonzero = |block: &[u8]| block.iter().fold(0, |all, byte| all | byte) & mask != 0;
    let nonzero = bytes.chunks(BLOCK).any(nonzero);
    Scan { bytes: bytes.len() as u64, nonzero, ..Scan::default() }
}
