//! The name of a shard, which cannot lead out of the model's directory.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::string_slice))]

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::ShardNameError;

/// The most bytes of a name: those of a path on Linux. Nothing is gained by taking a longer one apart.
const LONGEST: usize = 4096;

/// The path of a shard relative to the directory of its index, its parts separated by `/`.
///
/// A name that exists is safe: on no operating system does it lead out of that directory. It is judged as
/// text, by the rules of POSIX and of Windows alike, before any file is touched; the target of a symlink is
/// not judged, since caches consist of them. Equal names are equal files: `./x` and `a//b` are brought into
/// one form.
///
/// ```
/// use weightmap::ShardName;
///
/// assert_eq!(ShardName::parse("./a//x.safetensors")?.as_str(), "a/x.safetensors");
/// assert!(ShardName::parse("../x.safetensors").is_err());
/// # Ok::<(), weightmap::ShardNameError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardName(Arc<str>);

impl ShardName {
    /// Reads a name that comes from an index.
    ///
    /// # Errors
    /// [`ShardNameError::Unsafe`] for a name that could lead out of the directory, and
    /// [`ShardNameError::Bad`] for one that is not that of a safetensors file.
    pub fn parse(name: &str) -> Result<Self, ShardNameError> {
        // Windows strips trailing dots and spaces, so that `.. ` is `..` there, and `a.` is `a`. `.` and the
        // empty part stay put.
        let moves = |part: &str| !matches!(part, "" | ".") && part.ends_with(['.', ' ']);
        if name.len() > LONGEST {
            return Err(ShardNameError::Bad {
                name: name.to_owned(),
                reason: "it is longer than a path can be",
            });
        }
        let faults = [
            (name.contains('\0'), "it contains a NUL"),
            (name.contains('\\'), "it contains a backslash, which separates folders on Windows"),
            (name.contains(':'), "it contains a colon: a URL, or a drive or stream of Windows"),
            (name.starts_with('/'), "it is an absolute path"),
            (
                name.split('/').any(moves),
                "a part of it is `..`, or ends in a dot or space, which Windows strips",
            ),
            (name.split('/').any(is_device), "a part of it is a device on Windows"),
        ];
        if let Some((_, reason)) = faults.into_iter().find(|(found, _)| *found) {
            return Err(ShardNameError::Unsafe { name: name.to_owned(), reason });
        }
        let parts: Vec<&str> = name.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        let faults = [
            (name.is_empty(), "it is empty"),
            (name.contains(char::is_control), "it contains a control character, which Windows forbids"),
            (parts.is_empty() || name.ends_with('/') || name.ends_with("/."), "it is that of a directory"),
            (!name.ends_with(".safetensors"), "it does not end in `.safetensors`"),
        ];
        match faults.into_iter().find(|(found, _)| *found) {
            Some((_, reason)) => Err(ShardNameError::Bad { name: name.to_owned(), reason }),
            None => Ok(Self(parts.join("/").into())),
        }
    }

    /// The name of a file that a user pointed at or that a listing of the directory gave, taken as it is: a
    /// blob of the hub's cache has no suffix.
    pub(crate) fn of_file(name: &str) -> Self {
        Self(name.into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path of the shard of a model in `directory`.
    pub fn path_in(&self, directory: &Path) -> PathBuf {
        let mut path = directory.to_owned();
        path.extend(self.0.split('/'));
        path
    }
}

/// Whether a name is one part of a path, and no more, on every operating system.
pub(crate) fn is_one_part(name: &str) -> bool {
    !name.contains(['/', '\\', ':', '\0']) && !is_dots_and_spaces(name)
}

/// Whether Windows takes a part of a path for a device: `CON`, `COM1`, whatever follows a dot.
fn is_device(part: &str) -> bool {
    let stem = part.split('.').next().unwrap_or_default().trim_end().to_ascii_uppercase();
    let is_port = |port: &str| {
        let number = stem.strip_prefix(port).unwrap_or_default();
        matches!(number.chars().collect::<Vec<_>>()[..], ['0'..='9' | '¹' | '²' | '³'])
    };
    matches!(&*stem, "CON" | "PRN" | "AUX" | "NUL" | "CONIN$" | "CONOUT$") || is_port("COM") || is_port("LPT")
}

fn is_dots_and_spaces(part: &str) -> bool {
    part.chars().all(|c| matches!(c, '.' | ' '))
}

impl fmt::Display for ShardName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl serde::Serialize for ShardName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Component;

    use proptest::prelude::*;

    use super::*;

    fn is_unsafe(name: &str) -> bool {
        matches!(ShardName::parse(name), Err(ShardNameError::Unsafe { .. }))
    }

    fn is_bad(name: &str) -> bool {
        matches!(ShardName::parse(name), Err(ShardNameError::Bad { .. }))
    }

    #[test]
    fn names_of_the_wild_are_accepted_as_they_are() {
        for name in [
            "model-00001-of-00002.safetensors",
            "model_00001-of-00072.safetensors",
            "mtp.safetensors",
            "a/b/x y.safetensors",
            "..x.safetensors",
            "x..y/z.safetensors",
            "modèle.safetensors",
        ] {
            assert_eq!(ShardName::parse(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn spellings_of_one_path_are_one_name() {
        for name in ["a/x.safetensors", "./a/x.safetensors", "a//x.safetensors", "a/./x.safetensors"] {
            assert_eq!(ShardName::parse(name).unwrap().as_str(), "a/x.safetensors");
        }
    }

    #[test]
    fn a_part_that_goes_up_is_unsafe() {
        for name in ["../x.safetensors", "a/../x.safetensors", "a/../../x.safetensors", "..", "a/.."] {
            assert!(is_unsafe(name), "{name:?}");
        }
    }

    #[test]
    fn a_part_that_windows_takes_for_going_up_is_unsafe() {
        for name in [".. /x.safetensors", "a/. ./x.safetensors", ".../x.safetensors", " /x.safetensors"] {
            assert!(is_unsafe(name), "{name:?}");
        }
    }

    #[test]
    fn an_absolute_path_is_unsafe() {
        for name in ["/x.safetensors", "//host/share/x.safetensors", "/"] {
            assert!(is_unsafe(name), "{name:?}");
        }
    }

    #[test]
    fn a_backslash_is_unsafe() {
        for name in [r"..\x.safetensors", r"a\x.safetensors", r"\\host\share\x.safetensors", r"\\?\C:\x"] {
            assert!(is_unsafe(name), "{name:?}");
        }
    }

    #[test]
    fn a_drive_a_stream_and_a_url_are_unsafe() {
        for name in ["C:x.safetensors", "C:/x.safetensors", "x:y.safetensors", "https://h/x.safetensors"] {
            assert!(is_unsafe(name), "{name:?}");
        }
    }

    #[test]
    fn a_nul_is_unsafe() {
        assert!(is_unsafe("x\0.safetensors"));
    }

    #[test]
    fn a_device_of_windows_is_unsafe() {
        for name in [
            "aux.safetensors",
            "a/COM1.safetensors",
            "nul .x.safetensors",
            "lpt¹.safetensors",
            "con/x.safetensors",
        ] {
            assert!(is_unsafe(name), "{name:?}");
        }
        for name in ["auxiliary.safetensors", "com.safetensors", "com10.safetensors", "console.safetensors"] {
            assert!(ShardName::parse(name).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn a_part_that_ends_in_a_dot_or_space_is_unsafe() {
        for name in ["x.safetensors ", "a./x.safetensors", "a /x.safetensors", "... /x.safetensors"] {
            assert!(is_unsafe(name), "{name:?}");
        }
    }

    #[test]
    fn a_name_of_no_safetensors_file_is_bad() {
        for name in ["x.bin", "model.safetensors.index.json", "x.SAFETENSORS", "x"] {
            assert!(is_bad(name), "{name:?}");
        }
    }

    #[test]
    fn a_name_with_a_control_character_is_bad() {
        for name in ["a\u{1b}[2J.safetensors", "a\n.safetensors", "a\u{85}.safetensors"] {
            assert!(is_bad(name), "{name:?}");
        }
    }

    #[test]
    fn a_name_of_a_directory_is_bad() {
        for name in ["", ".", "./", "a/", "x.safetensors/", "x.safetensors/."] {
            assert!(is_bad(name), "{name:?}");
        }
    }

    #[test]
    fn a_message_escapes_the_name() {
        let error = ShardName::parse("..\\\u{1b}[2J").unwrap_err().to_string();
        assert!(
            error.starts_with(r#"unsafe shard name "..\\\u{1b}[2J": it contains a backslash"#),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn no_name_leads_out_of_the_directory(
            name in prop_oneof![r"[./\\ a:]{0,12}(\.safetensors)?", any::<String>(), r"([a. ]{1,3}/){0,3}x\.safetensors"]
        ) {
            let Ok(shard) = ShardName::parse(&name) else { return Ok(()) };
            let path = shard.path_in(Path::new("m"));
            let inside = path.strip_prefix("m").unwrap();
            prop_assert!(inside.components().all(|part| matches!(part, Component::Normal(_))));
            for part in shard.as_str().split(['/', '\\']) {
                prop_assert!(!part.trim_end_matches(['.', ' ']).is_empty() && !part.contains([':', '\0']));
            }
            prop_assert_eq!(ShardName::parse(shard.as_str()), Ok(shard));
        }
    }
}
