//! What happens to files on disk: cut, grown, overwritten, replaced.
//!
//! Each function panics where the file operation fails.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

/// Cuts the file, in place, to its first `bytes` bytes.
pub fn truncate(path: impl AsRef<Path>, bytes: u64) {
    writable(path.as_ref()).set_len(bytes).expect("the file can be cut");
}

/// Adds bytes at the end of the file, in place.
pub fn append(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
    write_at(path.as_ref(), SeekFrom::End(0), bytes.as_ref());
}

/// Overwrites bytes of the file, in place, from `offset` on.
pub fn overwrite(path: impl AsRef<Path>, offset: u64, bytes: impl AsRef<[u8]>) {
    write_at(path.as_ref(), SeekFrom::Start(offset), bytes.as_ref());
}

/// Sets the time of the last modification two seconds on, which the coarsest file systems can tell apart.
pub fn touch(path: impl AsRef<Path>) {
    let file = writable(path.as_ref());
    let modified = file.metadata().and_then(|metadata| metadata.modified()).expect("a time of modification");
    file.set_modified(modified + Duration::from_secs(2)).expect("the time can be set");
}

/// Puts another file with this content in its place, by renaming: whoever has the old one open keeps that.
pub fn replace(path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
    let path = path.as_ref();
    let new = path.with_extension("new");
    fs::write(&new, content).expect("a file can be written beside it");
    fs::rename(new, path).expect("the file can be replaced");
}

/// Puts an empty directory in its place.
pub fn replace_by_directory(path: impl AsRef<Path>) {
    fs::create_dir(removed(path.as_ref())).expect("a directory can be made");
}

/// Puts a symbolic link to nowhere in its place.
#[cfg(unix)]
pub fn replace_by_dangling_link(path: impl AsRef<Path>) {
    replace_by_link(path, "../blobs/absent");
}

/// Puts a symbolic link to `target` in its place.
#[cfg(unix)]
pub fn replace_by_link(path: impl AsRef<Path>, target: impl AsRef<Path>) {
    std::os::unix::fs::symlink(target, removed(path.as_ref())).expect("a link can be made");
}

/// Puts a FIFO in its place, which nobody writes to: opening it for reading blocks for ever.
#[cfg(unix)]
pub fn replace_by_fifo(path: impl AsRef<Path>) {
    let made = std::process::Command::new("mkfifo").arg(removed(path.as_ref())).status();
    assert!(made.is_ok_and(|status| status.success()), "mkfifo {:?}", path.as_ref());
}

/// Puts a socket in its place.
#[cfg(unix)]
pub fn replace_by_socket(path: impl AsRef<Path>) {
    std::os::unix::net::UnixListener::bind(removed(path.as_ref())).expect("a socket can be made");
}

fn writable(path: &Path) -> File {
    OpenOptions::new().write(true).open(path).unwrap_or_else(|error| panic!("open {path:?}: {error}"))
}

fn write_at(path: &Path, position: SeekFrom, bytes: &[u8]) {
    let mut file = writable(path);
    file.seek(position).and_then(|_| file.write_all(bytes)).expect("the file can be written");
}

fn removed(path: &Path) -> &Path {
    fs::remove_file(path).unwrap_or_else(|error| panic!("remove {path:?}: {error}"));
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TempModel;

    #[test]
    fn a_file_is_cut_grown_and_overwritten_in_place() {
        let dir = TempModel::empty();
        let path = dir.file("x");
        fs::write(&path, "abcdef").unwrap();
        truncate(&path, 4);
        append(&path, "ghi");
        overwrite(&path, 1, "BC");
        assert_eq!(fs::read(&path).unwrap(), b"aBCdghi");
    }

    #[test]
    fn touching_changes_the_time_and_nothing_else() {
        let dir = TempModel::empty();
        let path = dir.file("x");
        fs::write(&path, "abc").unwrap();
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        touch(&path);
        assert!(fs::metadata(&path).unwrap().modified().unwrap() > before);
        assert_eq!(fs::read(&path).unwrap(), b"abc");
    }

    #[cfg(unix)]
    #[test]
    fn other_things_take_the_place_of_a_file() {
        use std::os::unix::fs::FileTypeExt;
        let dir = TempModel::empty();
        let replaced = |replace: fn(&Path)| {
            let path = dir.file("x");
            fs::write(&path, "abc").unwrap();
            replace(&path);
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            fs::rename(&path, dir.file("aside")).unwrap();
            if kind.is_dir() {
                fs::remove_dir(dir.file("aside")).unwrap();
            }
            kind
        };
        assert!(replaced(|path| replace_by_directory(path)).is_dir());
        assert!(replaced(|path| replace_by_fifo(path)).is_fifo());
        assert!(replaced(|path| replace_by_socket(path)).is_socket());
        assert!(replaced(|path| replace_by_dangling_link(path)).is_symlink());
        assert!(replaced(|path| replace(path, "new")).is_file());
    }
}
