//! A file of the hub's cache, whose name is the digest of its content.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::string_slice))]

#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::file::{open_regular, read_exact_at, verify_unchanged};
use crate::threads::{crew, most_workers};

/// How much is read and hashed at once. Each worker has memory for it.
const PIECE_BYTES: usize = 8 << 20;

/// As many links as Linux follows: what has more cannot be opened.
const MOST_LINKS: usize = 40;

/// A file in the `blobs` of a repository in the Hugging Face hub's cache. Its name is what the server said of its content.
///
/// A name of 64 hexadecimal digits is the SHA-256 of the content, as of all files in LFS or Xet storage; one of 40 is the
/// SHA-1 that git knows a small file by, of `blob`, a space, the length in decimal digits, a zero byte, and the content.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Blob {
    path: PathBuf,
    file: PathBuf,
    name: String,
    hash: Hash,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Hash {
    Sha256,
    GitSha1,
}

impl Blob {
    /// The blob that a path is, or leads to by links, be they of several steps; `None` for any other file.
    ///
    /// Only names and links are looked at: that the blob is there is for [`verify`](Self::verify) to find.
    ///
    /// # Errors
    /// [`Error::Io`] when nothing is at `path`, or a link cannot be read.
    pub fn of(path: impl AsRef<Path>) -> Result<Option<Self>> {
        let path = path.as_ref();
        let mut file = path.to_owned();
        for _ in 0..=MOST_LINKS {
            if let Some((name, hash)) = name_of(&file) {
                return Ok(Some(Self { path: path.to_owned(), file, name, hash }));
            }
            let metadata = fs::symlink_metadata(&file).map_err(|error| Error::io(path, "stat", error))?;
            if !metadata.is_symlink() {
                break;
            }
            let target = fs::read_link(&file).map_err(|error| Error::io(path, "read the link", error))?;
            // A relative one is meant from where the link is; an absolute one replaces all.
            file = file.parent().unwrap_or(Path::new("")).join(target);
        }
        Ok(None)
    }

    /// The path that led to it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file itself.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// The name: the digest that its content should have, in hexadecimal digits.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which digest that is: `SHA-256` or `git SHA-1`.
    pub fn hash(&self) -> &'static str {
        match self.hash {
            Hash::Sha256 => "SHA-256",
            Hash::GitSha1 => "git SHA-1",
        }
    }

    /// Reads the whole file and compares the digest of what is in it with the name. `progress` is told how many bytes
    /// more were read.
    ///
    /// # Errors
    /// [`Error::BlobDiffers`] when the content is another; [`Error::ShardChanged`] when somebody writes to the file
    /// meanwhile; [`Error::NotRegularFile`] and [`Error::Io`] when it cannot be read.
    pub fn verify(&self, progress: impl Fn(u64)) -> Result<()> {
        let (file, identity) = open_regular(&self.file)?;
        let found = match self.hash {
            Hash::Sha256 => self.digest(Sha256::new(), &file, identity.bytes, progress)?,
            Hash::GitSha1 => {
                let start = format!("blob {}\0", identity.bytes);
                self.digest(Sha1::new_with_prefix(start), &file, identity.bytes, progress)?
            }
        };
        verify_unchanged(&self.path, &identity, &file)?;
        if found == self.name {
            return Ok(());
        }
        Err(Error::BlobDiffers {
            path: self.path.clone(),
            blob: self.file.clone(),
            hash: self.hash(),
            expected: self.name.clone(),
            found,
        })
    }

    /// Verifies many, several at once by at most so many workers, and gives the errors in the order of the blobs: none
    /// where all are right. `progress` is told the bytes read so far, and those of all files; calls of several workers
    /// can overlap, and then come in any order.
    pub fn verify_all(blobs: &[Self], workers: usize, progress: impl Fn(u64, u64) + Sync) -> Vec<Error> {
        let lengths = blobs.iter().map(|blob| fs::metadata(&blob.file).map_or(0, |metadata| metadata.len()));
        let all = lengths.fold(0, u64::saturating_add);
        let (done, next) = (AtomicU64::new(0), AtomicUsize::new(0));
        let told = |bytes| progress(done.fetch_add(bytes, Relaxed).saturating_add(bytes), all);
        let work = |_| {
            let mut errors = Vec::new();
            loop {
                let place = next.fetch_add(1, Relaxed);
                let Some(blob) = blobs.get(place) else { return errors };
                errors.extend(blob.verify(told).err().map(|error| (place, error)));
            }
        };
        let mut errors: Vec<_> =
            crew(most_workers(workers.min(blobs.len())), work).into_iter().flatten().collect();
        errors.sort_unstable_by_key(|(place, _)| *place);
        errors.into_iter().map(|(_, error)| error).collect()
    }

    /// The digest of the first `bytes` of a file, in hexadecimal digits.
    fn digest(
        &self,
        mut hasher: impl Digest,
        file: &File,
        bytes: u64,
        progress: impl Fn(u64),
    ) -> Result<String> {
        let fault = |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Error::ShardChanged {
                path: self.path.clone(),
                differences: vec!["it was cut while it was read".to_owned()],
            },
            _ => Error::io(&self.file, "read", error),
        };
        let mut memory = Vec::new();
        let most = usize::try_from(bytes).unwrap_or(usize::MAX).min(PIECE_BYTES);
        memory.try_reserve_exact(most).map_err(|_| fault(io::ErrorKind::OutOfMemory.into()))?;
        memory.resize(most, 0);
        let mut offset = 0;
        while offset < bytes {
            let left = usize::try_from(bytes - offset).unwrap_or(usize::MAX);
            memory.truncate(left);
            read_exact_at(file, &mut memory, offset).map_err(fault)?;
            hasher.update(&memory);
            let read = memory.len() as u64;
            offset += read;
            progress(read);
        }
        Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// The name of a blob and the digest that it is, if the path is one by its own name and that of its directory.
fn name_of(path: &Path) -> Option<(String, Hash)> {
    let name = path.file_name()?.to_str()?;
    let hash = match name.len() {
        64 => Hash::Sha256,
        40 => Hash::GitSha1,
        _ => return None,
    };
    let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (name.bytes().all(is_digit) && is_blobs(path.parent()?)).then(|| (name.to_owned(), hash))
}

/// Whether a directory is the `blobs` of a repository, by the name that is given or its own one.
fn is_blobs(directory: &Path) -> bool {
    let is_named_so = |directory: &Path| directory.file_name().is_some_and(|name| name == "blobs");
    let given = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    is_named_so(given) || given.canonicalize().is_ok_and(|own| is_named_so(&own))
}
