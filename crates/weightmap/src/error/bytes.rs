//! Counts of bytes, as people read them.

use std::fmt;

/// A count of bytes in binary units, as people read it: `1.50 GiB`.
pub(crate) struct Bytes(pub(crate) u64);

impl fmt::Display for Bytes {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.0 as f64;
        let mut units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].into_iter();
        let mut unit = units.next().unwrap_or_default();
        for next in units {
            // What would be shown in four digits is shown in the next unit.
            if value < 999.5 {
                break;
            }
            value /= 1024.0;
            unit = next;
        }
        if unit == "B" { write!(f, "{value:.0} B") } else { three_digits(f, value, unit) }
    }
}

/// A figure in three digits, and its unit.
pub(crate) fn three_digits(f: &mut fmt::Formatter<'_>, value: f64, unit: &str) -> fmt::Result {
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    write!(f, "{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_three_digits_and_binary_units() {
        let shown = [0, 999, 1000, 1536, 10_235, 100 << 10, 1023 << 20, u64::MAX]
            .map(|bytes| Bytes(bytes).to_string());
        assert_eq!(
            shown,
            ["0 B", "999 B", "0.98 KiB", "1.50 KiB", "10.0 KiB", "100 KiB", "1.00 GiB", "16384 PiB"]
        );
    }
}
