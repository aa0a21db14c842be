//! Numbers of bytes, as people give them.

/// What a unit stands for, as GNU's programs have it: `K` and `KiB` are 1024 bytes, `kB` and `KB` are 1000.
const UNITS: [(&str, u64); 14] = [
    ("", 1),
    ("B", 1),
    ("K", 1 << 10),
    ("KiB", 1 << 10),
    ("M", 1 << 20),
    ("MiB", 1 << 20),
    ("G", 1 << 30),
    ("GiB", 1 << 30),
    ("T", 1 << 40),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// The bytes that a text such as `512MiB` means.
///
/// # Errors
/// A message for people when it is no whole number with a known unit, or more than can be counted.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let known = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim_start()));
    let bytes =
        number.parse::<u64>().ok().zip(known).and_then(|(number, (_, bytes))| number.checked_mul(*bytes));
    bytes.ok_or_else(|| {
        "expected a whole number of bytes, or one with a unit, such as 8G, 512MiB or 500MB".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_those_of_gnu_and_case_does_not_matter() {
        for (text, bytes) in [
            ("0", 0),
            ("1500000", 1_500_000),
            ("7B", 7),
            ("2K", 2048),
            ("2KiB", 2048),
            ("2kB", 2000),
            ("512 MiB", 512 << 20),
            ("512m", 512 << 20),
            ("3MB", 3_000_000),
            ("8G", 8 << 30),
            ("8GB", 8_000_000_000),
            ("1TiB", 1 << 40),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_an_error() {
        for text in ["", "G", "1.5G", "-1", "1X", "1 G B", "18446744073709551616", "99999999999T"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
