//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

/// What is served, and how.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) source: PathBuf,
    pub(crate) mount_point: PathBuf,
    pub(crate) delay: Duration,
    pub(crate) request_bytes: u32,
    pub(crate) background: u16,
    pub(crate) bytes_per_second: Option<u32>,
}

impl Options {
    pub(crate) fn from_args(mut args: impl Iterator<Item = OsString>) -> Result<Self> {
        let mut options = Self {
            source: args.next().context("a source is needed")?.into(),
            mount_point: args.next().context("a mount point is needed")?.into(),
            delay: Duration::from_millis(2),
            request_bytes: 128 << 10,
            background: 12,
            bytes_per_second: None,
        };
        while let Some(name) = args.next() {
            let value = args.next().and_then(|value| value.into_string().ok());
            let value = value.with_context(|| format!("{name:?} needs a number"))?;
            match name.to_str() {
                Some("--delay-ms") => {
                    options.delay = Duration::try_from_secs_f64(value.parse::<f64>()? / 1e3)?
                }
                Some("--request-bytes") => options.request_bytes = value.parse()?,
                Some("--background") => options.background = value.parse()?,
                Some("--bytes-per-second") => options.bytes_per_second = Some(value.parse()?),
                _ => bail!("no such option: {name:?}"),
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Options> {
        Options::from_args(text.split_whitespace().map(OsString::from))
    }

    #[test]
    fn options_are_set_by_their_names() {
        let options =
            parsed("a b --delay-ms 0.5 --request-bytes 4096 --background 3 --bytes-per-second 7").unwrap();
        assert_eq!((options.source, options.mount_point), ("a".into(), "b".into()));
        assert_eq!((options.delay, options.request_bytes), (Duration::from_micros(500), 4096));
        assert_eq!((options.background, options.bytes_per_second), (3, Some(7)));
    }

    #[test]
    fn what_is_missing_or_no_number_is_an_error() {
        for text in ["", "a", "a b --delay-ms", "a b --delay-ms x", "a b --delay-ms -1", "a b --no-such 1"] {
            assert!(parsed(text).is_err(), "{text:?}");
        }
    }
}
