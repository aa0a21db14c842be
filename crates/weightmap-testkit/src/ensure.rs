//! A checkpoint that is written once and used by many processes.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::{Checkpoint, ShardBuilder, Written};

impl Checkpoint {
    /// Writes the checkpoint into `dir`, over what is there. Each file appears whole, the index last.
    ///
    /// # Errors
    /// When a directory or file cannot be created or written.
    pub fn replace(&self, dir: impl AsRef<Path>) -> io::Result<Written> {
        place(self, dir.as_ref(), |_, _| Ok(false))
    }

    /// Writes of the checkpoint what is not in `dir` already: nothing, if it is there whole.
    ///
    /// A shard counts as there if its size and its header are right; damage to the tensors' bytes is not noticed, nor
    /// is another content below the same header ([`pattern::stamp`](crate::pattern::stamp) tells that). Several processes
    /// may do this at once: each file appears whole, and one that another process has put there meanwhile is kept,
    /// so that its readers see no change.
    ///
    /// # Errors
    /// When a directory or file cannot be created, read or written.
    pub fn ensure(&self, dir: impl AsRef<Path>) -> io::Result<Written> {
        place(self, dir.as_ref(), is_there)
    }
}

/// What a file of the checkpoint should hold.
enum Wanted<'a> {
    Shard(&'a ShardBuilder),
    Bytes(Vec<u8>),
}

impl Wanted<'_> {
    /// What identifies the file: its size, and the bytes that it begins with.
    fn identity(&self) -> (u64, Vec<u8>) {
        match self {
            Self::Shard(shard) => (shard.file_len(), shard.head()),
            Self::Bytes(bytes) => (bytes.len() as u64, bytes.clone()),
        }
    }

    fn write_to(&self, mut file: &File) -> io::Result<()> {
        match self {
            Self::Shard(shard) => shard.write_to(file),
            Self::Bytes(bytes) => io::Write::write_all(&mut file, bytes),
        }
    }
}

fn place(
    checkpoint: &Checkpoint,
    dir: &Path,
    keep: impl Fn(&Path, &Wanted<'_>) -> io::Result<bool>,
) -> io::Result<Written> {
    std::fs::create_dir_all(dir)?;
    let shards = checkpoint.shards().map(|(name, shard)| (name, Wanted::Shard(shard)));
    let others = checkpoint.files().map(|(name, bytes)| (name, Wanted::Bytes(bytes)));
    for (name, wanted) in shards.chain(others) {
        let path = dir.join(name);
        if keep(&path, &wanted)? {
            continue;
        }
        let hidden = tempfile::Builder::new()
            .prefix(".")
            .suffix(".tmp")
            .make_in(dir, |path| File::create_new(path))?;
        wanted.write_to(hidden.as_file())?;
        // Another process may have been faster; whoever has opened its file must not see it replaced.
        if !keep(&path, &wanted)? {
            hidden.persist(&path)?;
        }
    }
    Ok(checkpoint.paths(dir))
}

fn is_there(path: &Path, wanted: &Wanted<'_>) -> io::Result<bool> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    let (len, beginning) = wanted.identity();
    if file.metadata()?.len() != len {
        return Ok(false);
    }
    let mut found = Vec::new();
    file.take(beginning.len() as u64).read_to_end(&mut found)?;
    Ok(found == beginning)
}
