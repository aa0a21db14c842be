//! What is mounted where, as `/proc/self/mountinfo` tells.

use std::path::PathBuf;

/// A line of `/proc/self/mountinfo`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mount<'a> {
    /// Major and minor number of the device, as in `8:1`.
    pub(crate) device: &'a str,
    /// The directory of the file system that is seen at `point`; not `/` for a bind mount.
    pub(crate) root: PathBuf,
    pub(crate) point: PathBuf,
    /// The type of the file system, as in `ext4` or `fuse.sshfs`.
    pub(crate) kind: &'a str,
    /// What is set for the file system as a whole, divided by commas.
    pub(crate) options: &'a str,
}

/// The mounts of the text of `/proc/self/mountinfo`. Lines that are not understood are passed over.
pub(crate) fn mounts(text: &str) -> impl Iterator<Item = Mount<'_>> {
    text.lines().filter_map(Mount::of_line)
}

impl<'a> Mount<'a> {
    /// By proc_pid_mountinfo(5): `36 35 98:0 /root /point rw,noatime master:1 - ext3 /dev/sda rw,quota`, with
    /// any number of fields before the dash.
    fn of_line(line: &'a str) -> Option<Self> {
        let (place, file_system) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(2);
        let (device, root, point) = (place.next()?, place.next()?, place.next()?);
        let mut file_system = file_system.split(' ');
        let (kind, _source, options) = (file_system.next()?, file_system.next()?, file_system.next()?);
        Some(Self { device, root: unescaped(root), point: unescaped(point), kind, options })
    }
}

/// A path of which the kernel writes blanks, line ends and backslashes as three octal digits.
fn unescaped(text: &str) -> PathBuf {
    let mut parts = text.split('\\');
    let mut path = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (digits, rest) = part.split_at_checked(3).unwrap_or((part, ""));
        match u8::from_str_radix(digits, 8) {
            Ok(byte) => path.extend([char::from(byte).encode_utf8(&mut [0; 2]), rest]),
            Err(_) => path.extend(["\\", part]),
        }
    }
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_has_any_number_of_fields_before_the_dash() {
        let mount = |fields| {
            let line = format!("36 35 98:0 /models /mnt/a rw,noatime {fields}- ext3 /dev/sda rw,quota");
            let found = mounts(&line).map(|mount| (mount.device.to_owned(), mount.root, mount.point)).next();
            assert_eq!(
                mounts(&line).map(|mount| (mount.kind, mount.options)).next(),
                Some(("ext3", "rw,quota"))
            );
            found.unwrap()
        };
        let expected = ("98:0".to_owned(), "/models".into(), "/mnt/a".into());
        for fields in ["", "master:1 ", "shared:5 master:7 propagate_from:2 unbindable "] {
            assert_eq!(mount(fields), expected);
        }
    }

    #[test]
    fn a_source_can_be_empty() {
        let mount = mounts("36 35 0:9 / /mnt rw - fuse  rw,user_id=0").next().unwrap();
        assert_eq!((mount.kind, mount.options), ("fuse", "rw,user_id=0"));
    }

    #[test]
    fn blanks_and_backslashes_of_paths_are_octal() {
        for (written, meant) in [
            (r"/a\040b\011c", "/a b\tc"),
            (r"/back\134040slash", r"/back\040slash"),
            (r"/\134", r"/\"),
            ("/plain", "/plain"),
            (r"/odd\9", r"/odd\9"),
            (r"/odd\777", r"/odd\777"),
            (r"/odd\04é", r"/odd\04é"),
        ] {
            assert_eq!(unescaped(written), PathBuf::from(meant), "{written}");
        }
    }

    #[test]
    fn lines_that_are_not_understood_are_passed_over() {
        let text =
            "\n1 2\n36 35 0:9 / /mnt rw\n36 35 0:9 / /mnt rw - fuse\n1 2 0:3 / /sys rw - sysfs sysfs rw\n";
        assert_eq!(mounts(text).map(|mount| mount.kind).collect::<Vec<_>>(), ["sysfs"]);
    }
}
