//! Digests as a file.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde_json::{Map, Value as Json, json};

use super::{CHUNK_BYTES, Digests, FORMAT, HEADER_KEY, Parts, hex, join, key};
use crate::error::{Error, Result};

/// The content of the file.
pub(super) fn bytes(parts: &Parts) -> Vec<u8> {
    let (header, data) = content(parts);
    let mut text = header.to_string();
    // Whoever maps the file finds the values at a multiple of their length.
    let padding = (8 + text.len()).next_multiple_of(32) - (8 + text.len());
    text.extend(std::iter::repeat_n(' ', padding));
    [(text.len() as u64).to_le_bytes().as_slice(), text.as_bytes(), &data].concat()
}

fn content(parts: &Parts) -> (Json, Vec<u8>) {
    let mut metadata = Map::new();
    metadata.insert("format".to_owned(), FORMAT.into());
    metadata.insert("hash".to_owned(), "BLAKE3".into());
    metadata.insert("chunk_bytes".to_owned(), CHUNK_BYTES.to_string().into());
    for (shard, value) in &parts.headers {
        metadata.insert(format!("{HEADER_KEY}{shard}"), hex(value).into());
    }
    let mut entries = Map::new();
    entries.insert("__metadata__".to_owned(), metadata.into());
    let mut data = Vec::new();
    for (shard, tensor, len, values) in &parts.tensors {
        let start = data.len();
        data.extend(join(values, *len));
        if values.len() > 1 {
            data.extend(values.as_flattened());
        }
        let rows = (data.len() - start) / 32;
        let entry = json!({"dtype": "U8", "shape": [rows, 32], "data_offsets": [start, data.len()]});
        entries.insert(key(shard, tensor), entry);
    }
    (entries.into(), data)
}

/// Writes a file under a name of its own, and gives it its name once all of it is on the disk.
pub(super) fn file(path: &Path, bytes: &[u8], replaces: bool) -> Result<()> {
    check_name(path, replaces)?;
    let (temporary, mut file) = create_beside(path)?;
    let failed = |action: &'static str| move |error| Error::io(path, action, error);
    let written = file.write_all(bytes).and_then(|()| file.sync_all()).map_err(failed("write"));
    let named = written.and_then(|()| name(&temporary, path, replaces));
    // It is gone if it was renamed.
    let _ = fs::remove_file(&temporary);
    named
}

/// Gives a finished file its name.
fn name(temporary: &Path, path: &Path, replaces: bool) -> Result<()> {
    let action = "give the finished file its name";
    if !replaces {
        // A second name is never put in the place of another one, as a new one would be.
        match fs::hard_link(temporary, path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(there_is_one(path)),
            // A file system without second names.
            Err(_) => {}
        }
    }
    fs::rename(temporary, path).map_err(|error| Error::io(path, action, error))
}

/// Fails where [`file`] would before it has written anything.
pub(super) fn check(path: &Path, replaces: bool) -> Result<()> {
    check_name(path, replaces)?;
    let (temporary, _) = create_beside(path)?;
    fs::remove_file(&temporary).map_err(|error| Error::io(&temporary, "remove", error))
}

/// Fails if there is something that is not to be replaced, or cannot be.
fn check_name(path: &Path, replaces: bool) -> Result<()> {
    match path.symlink_metadata() {
        Ok(found) if found.is_dir() => Err(Error::io(path, "write", io::ErrorKind::IsADirectory.into())),
        Ok(_) if !replaces => Err(there_is_one(path)),
        // A link is replaced, and not what it leads to.
        Ok(found) if !found.is_symlink() && Digests::read(path).is_err() => {
            let action = "replace what is no file of digests (remove it first, if it is to go)";
            Err(Error::io(path, action, io::ErrorKind::AlreadyExists.into()))
        }
        _ => Ok(()),
    }
}

fn there_is_one(path: &Path) -> Error {
    let action = "write (there is a file of this name; remove it, or say that it is to be replaced)";
    Error::io(path, action, io::ErrorKind::AlreadyExists.into())
}

/// A new file in the same directory, whose name nobody takes for that of a model or of digests, and is short enough
/// for any file system.
fn create_beside(path: &Path) -> Result<(PathBuf, File)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NUMBER.fetch_add(1, Relaxed);
        let temporary = path.with_file_name(format!(".digests.{}-{number}.tmp", std::process::id()));
        match File::create_new(&temporary) {
            // Left behind by a process of the same number that was killed, perhaps on another machine.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            result => {
                return result
                    .map(|file| (temporary, file))
                    .map_err(|error| Error::io(path, "create a file beside it", error));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<_> = fs::read_dir(directory).unwrap().map(name).collect();
        names.sort_unstable();
        names
    }

    /// The content of a file of digests of no tensor.
    fn digests() -> Vec<u8> {
        super::bytes(&Parts::default())
    }

    #[test]
    fn a_file_gets_its_name_with_all_its_bytes_and_nothing_else_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.digests");
        check(&path, false).unwrap();
        assert!(names(directory.path()).is_empty());
        file(&path, &digests(), false).unwrap();
        file(&path, b"two", true).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(names(directory.path()), ["x.digests"]);
    }

    #[test]
    fn what_is_there_stays_unless_it_is_to_be_replaced_and_a_file_of_digests() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.digests");
        fs::write(&path, digests()).unwrap();
        for refused in [check(&path, false), file(&path, b"new", false)] {
            let error = refused.unwrap_err();
            assert!(error.to_string().contains("there is a file of this name"), "{error}");
        }
        check(&path, true).unwrap();
        assert_eq!(fs::read(&path).unwrap(), digests());
        fs::write(&path, "mine").unwrap();
        for refused in [check(&path, true), file(&path, b"new", true)] {
            let error = refused.unwrap_err();
            assert!(error.to_string().contains("what is no file of digests"), "{error}");
        }
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        assert_eq!(names(directory.path()), ["x.digests"]);
    }

    #[test]
    fn a_directory_is_never_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.digests");
        fs::create_dir(&path).unwrap();
        for refused in [check(&path, true), file(&path, b"new", true), file(&path, b"new", false)] {
            assert!(refused.unwrap_err().to_string().contains("is a directory"));
        }
        assert_eq!(names(directory.path()), ["x.digests"]);
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gone/x.digests");
        for refused in [check(&path, false), file(&path, b"new", false)] {
            assert!(matches!(refused.unwrap_err(), Error::Io { path: named, .. } if named == path));
        }
    }

    #[test]
    fn what_other_processes_have_left_behind_is_in_nobodys_way_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.digests");
        // The numbers that this process may use next; other tests use some of them meanwhile.
        let (next, _) = create_beside(&path).unwrap();
        let number = next.to_str().unwrap().rsplit(['-', '.']).nth(1).unwrap().parse::<u64>().unwrap();
        for number in number..number + 50 {
            let left = format!(".digests.{}-{number}.tmp", std::process::id());
            fs::write(directory.path().join(left), "left").unwrap();
        }
        file(&path, b"new", false).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names(directory.path()).len(), 51);
    }

    #[cfg(unix)]
    #[test]
    fn the_mode_is_that_of_any_new_file() {
        use std::os::unix::fs::MetadataExt as _;

        let directory = tempfile::tempdir().unwrap();
        let [path, usual] = ["x.digests", "usual"].map(|name| directory.path().join(name));
        file(&path, b"new", false).unwrap();
        fs::write(&usual, "").unwrap();
        assert_eq!(path.metadata().unwrap().mode(), usual.metadata().unwrap().mode());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_replaced_and_not_what_it_leads_to() {
        let directory = tempfile::tempdir().unwrap();
        let [path, target] = ["x.digests", "target"].map(|name| directory.path().join(name));
        for is_dangling in [true, false] {
            if !is_dangling {
                fs::write(&target, "other").unwrap();
            }
            std::os::unix::fs::symlink(&target, &path).unwrap();
            assert!(check(&path, false).is_err() && file(&path, b"new", false).is_err());
            file(&path, b"new", true).unwrap();
            assert_eq!((fs::read(&path).unwrap(), path.is_symlink()), (b"new".to_vec(), false));
            assert_eq!(target.exists(), !is_dangling);
            fs::remove_file(&path).unwrap();
        }
        assert_eq!(fs::read(&target).unwrap(), b"other");
    }

    #[cfg(unix)]
    #[test]
    fn a_name_as_long_as_the_file_system_has_them_can_be_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x".repeat(255));
        file(&path, b"new", false).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_disk_that_gets_full_is_an_error_that_leaves_nothing_behind_and_the_old_file_as_it_was() {
        use std::process::Command;

        /// A file system of 64 KiB, unmounted in the end.
        struct Small(tempfile::TempDir);
        impl Drop for Small {
            fn drop(&mut self) {
                let _ = Command::new("umount").arg(self.0.path()).status();
            }
        }
        let small = Small(tempfile::tempdir().unwrap());
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64k", "none"])
            .arg(small.0.path())
            .output();
        if !mount.is_ok_and(|mount| mount.status.success()) {
            println!("skipped: nothing can be mounted here");
            return;
        }
        let path = small.0.path().join("x.digests");
        fs::write(&path, digests()).unwrap();
        let error = file(&path, &[7; 100 << 10], true).unwrap_err();
        assert!(
            matches!(&error, Error::Io { error, .. } if error.kind() == io::ErrorKind::StorageFull),
            "{error}"
        );
        assert_eq!(fs::read(&path).unwrap(), digests());
        assert_eq!(names(small.0.path()), ["x.digests"]);
    }
}
