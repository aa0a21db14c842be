//! The cache of the Hugging Face hub: `models--org--name/{blobs,refs,snapshots/<revision>}`.

use std::path::PathBuf;

use super::candidate::Candidate;
use super::listing::Listing;
use super::read_start;
use crate::error::{Error, Result};
use crate::shard_name::is_one_part;

/// The directory of the snapshot that is meant by a repository's folder; `None` for any other directory.
///
/// That is the revision of `refs/main`, or else the only one.
pub(super) fn snapshot(repository: &Listing) -> Result<Option<PathBuf>> {
    let is_model = |name: &str| Candidate::parse(name, None).is_some();
    if !repository.has("snapshots") || repository.names().any(is_model) {
        return Ok(None);
    }
    let snapshots = match Listing::read(&repository.directory.join("snapshots")) {
        // A file of that name has nothing to do with the hub.
        Err(Error::Io { error, .. }) if error.kind() == std::io::ErrorKind::NotADirectory => return Ok(None),
        snapshots => snapshots?,
    };
    let revisions: Vec<String> =
        snapshots.names().filter(|name| !name.starts_with('.')).map(str::to_owned).collect();
    if let Some(revision) = main_revision(repository, &revisions)? {
        return Ok(Some(snapshots.directory.join(revision)));
    }
    match revisions.as_slice() {
        [only] => Ok(Some(snapshots.directory.join(only))),
        [] => {
            Err(Error::NoModel { path: snapshots.directory, found: "the cache has no snapshot".to_owned() })
        }
        _ => Err(Error::Ambiguous { path: snapshots.directory, what: "snapshots", candidates: revisions }),
    }
}

/// The revision that `refs/main` names, if there is one.
fn main_revision(repository: &Listing, revisions: &[String]) -> Result<Option<String>> {
    let path = repository.directory.join("refs").join("main");
    let content = match read_start(&path, 1024) {
        Ok(content) => content,
        Err(Error::Io { error, .. }) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let revision = String::from_utf8_lossy(&content).trim().to_owned();
    if is_one_part(&revision) && revisions.contains(&revision) {
        Ok(Some(revision))
    } else {
        Err(Error::NoSuchRevision { path, revision, found: revisions.to_vec() })
    }
}
