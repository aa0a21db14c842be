//! What can go wrong, each fault a variant of its own.
//!
//! A message names the file, the tensor, what was expected and what was found, and says what to do about it.
//! Errors are cheap to clone: all threads that wait for a shard's first touch get the same one. A message
//! tells its cause too, so no error has a `source`: those who print the chain of sources would print the
//! cause twice. It is a field.

mod about;
mod advice;
mod bytes;
mod digests;
mod header;
mod index;
mod kept;
mod lack;
mod missing;
mod phrase;
mod pieces;
mod plan;
mod quote;
mod slice;
mod unknown;

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use digests::DigestsError;
pub use header::HeaderError;
pub use index::{IndexError, IndexFault, ShardNameError};
pub use missing::MissingShard;
pub use pieces::{PieceFault, PiecesError};
pub use plan::{PlanError, PlanFault};
pub use slice::SliceError;
pub use unknown::UnknownName;

pub(crate) use bytes::{Bytes, three_digits};
pub(crate) use kept::Kept;
pub(crate) use quote::{count, list, quote, quote_all, shown};

use crate::dtype::Dtype;
use advice::advice;
use missing::missing_shards;
use phrase::{
    numbers, of_content, of_digested, of_path, of_tensor, of_variable, of_variant, of_which, other_variants,
};
use quote::dtype_name;
use unknown::{did_you_mean, unknown_names};

/// A `Result` whose error is an [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a checkpoint could not be opened, checked, selected from or loaded.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a call on a file.
    #[error("{}: cannot {action}{}: {error}{}", shown(path), of_tensor(tensor.as_deref()), advice(error))]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The tensor whose bytes were wanted, of several neighbours the first; `None` where it was about no
        /// tensor.
        tensor: Option<String>,
        /// What was being done, as a verb phrase: `open`, `list the directory`, `read 4096 bytes at offset
        /// 8`.
        action: String,
        /// The system's answer.
        error: Arc<io::Error>,
    },
    /// A directory, FIFO, socket or device stands where a file was expected.
    #[error("{}: expected a regular file, found {found}; put the file or a link to it there", shown(path))]
    NotRegularFile {
        /// The path that was opened.
        path: PathBuf,
        /// What is there, with its article: `a FIFO`, `a directory`.
        found: &'static str,
    },
    /// A shard's header breaks a rule of the format.
    #[error("{}: {fault}", shown(path))]
    Header {
        /// The shard.
        path: PathBuf,
        /// The rule and where it was broken.
        fault: Box<HeaderError>,
    },
    /// An index breaks a rule of the format.
    #[error("{}: {fault}", shown(path))]
    Index {
        /// The index file.
        path: PathBuf,
        /// All that is wrong with it.
        fault: Box<IndexError>,
    },

    // Which files are the model.
    /// Shards that the index names are not there.
    #[error("{}: {}; is the download complete?{hint}", shown(path), missing_shards(missing, *count, *shards))]
    MissingShards {
        /// The index file.
        path: PathBuf,
        /// The first thousand of the shards that are not there.
        missing: Vec<MissingShard>,
        /// How many are not there.
        count: usize,
        /// How many shards the index names.
        shards: usize,
        /// What is there in their place, if anything is; empty or a sentence after a space.
        hint: String,
    },
    /// Several things could be the model, and nothing says which one is.
    #[error(
        "{}: several {what} could be meant, open one by its path: {}",
        shown(path),
        quote_all(candidates)
    )]
    Ambiguous {
        /// The directory.
        path: PathBuf,
        /// What they are, in the plural: `index files`.
        what: &'static str,
        /// Their names.
        candidates: Vec<String>,
    },
    /// The directory has variants of the model, but not the one that was asked for; or none was, and there
    /// are only variants.
    #[error("{}: no model {} here; {}", shown(path), of_variant(asked.as_deref()), other_variants(found))]
    NoSuchVariant {
        /// The directory.
        path: PathBuf,
        /// The variant that was asked for; `None` for the model without a variant.
        asked: Option<String>,
        /// The files of other variants, with the variant that each belongs to.
        found: Vec<(String, Option<String>)>,
    },
    /// A variant was asked for by something that cannot be part of a file's name.
    #[error(
        "{}: {} is no name of a variant: it must be one part of a file's name, as `fp16` is",
        shown(path),
        quote(variant)
    )]
    BadVariant {
        /// The directory.
        path: PathBuf,
        /// The name that was asked for.
        variant: String,
    },
    /// The directory has some of the shards of a model, and no index.
    #[error(
        "{}: {} belongs to shards that have no index and are not all here; {}; is the download complete?",
        shown(path), quote(example), numbers(what, missing, *missing_count, stray)
    )]
    IncompleteFamily {
        /// The directory.
        path: PathBuf,
        /// The name of the first shard that is here.
        example: String,
        /// What the numbers are of, in the plural: `numbers`, or `ranks` in a distributed checkpoint.
        what: &'static str,
        /// The first numbers that no shard has.
        missing: Vec<u64>,
        /// How many numbers no shard has.
        missing_count: u64,
        /// Numbers of shards that are here and are beyond what the names say there is.
        stray: Vec<u64>,
    },
    /// The pieces in the files of a PyTorch Distributed Checkpoint do not make whole tensors.
    #[error(
        "{}: the pieces of this distributed checkpoint (DCP) make no whole tensors: {fault}",
        shown(path)
    )]
    Pieces {
        /// The directory.
        path: PathBuf,
        /// All that is wrong with them.
        fault: Box<PiecesError>,
    },
    /// A file of digests cannot be used.
    #[error("{}{fault}", of_path(path.as_deref()))]
    Digests {
        /// The file; `None` for digests that were not read from one.
        path: Option<PathBuf>,
        /// What is wrong with it.
        fault: Box<DigestsError>,
    },
    /// Bytes of a shard are not those that its digests are of.
    #[error(
        "{}: {} not what the digests say: bytes {}..{} have the BLAKE3 value {found}, expected {expected}; fetch the file again",
        shown(path), of_content(tensor.as_deref()), range.start, range.end
    )]
    ContentDiffers {
        /// The shard.
        path: PathBuf,
        /// The tensor; `None` for the header.
        tensor: Option<String>,
        /// The bytes of the file that were compared, a chunk of the tensor or all of the header.
        range: Range<u64>,
        /// The value that the digests give, in hexadecimal digits.
        expected: String,
        /// The value that was found.
        found: String,
    },
    /// There are no digests of something that is to be verified.
    #[error(
        "{}: {} cannot be verified: the digests are of a checkpoint without it; make them anew from one that can be trusted",
        shown(path), of_digested(tensor.as_deref())
    )]
    NotDigested {
        /// The shard.
        path: PathBuf,
        /// The tensor; `None` for the header.
        tensor: Option<String>,
    },
    /// There is no safetensors model in the directory.
    #[error("{}: no safetensors model here: {found}", shown(path))]
    NoModel {
        /// The directory.
        path: PathBuf,
        /// What is there instead.
        found: String,
    },
    /// A hub cache says which revision is meant by something that is no revision, or one that it does not
    /// have.
    #[error(
        "{}: {} is no revision in `snapshots`; open one of these by its path: {}",
        shown(path),
        quote(revision),
        quote_all(found)
    )]
    NoSuchRevision {
        /// The file with the name of the revision.
        path: PathBuf,
        /// The start of its content.
        revision: String,
        /// The revisions in the cache.
        found: Vec<String>,
    },

    // Shards and tensors.
    /// A shard is not the file that was checked at its first touch: another one stands there, or it was
    /// written to since. Or it was written to just then, as can happen to the index too.
    #[error("{}: changed since it was checked: {}; open the model again", shown(path), differences.join(", "))]
    ShardChanged {
        /// The shard, or the index.
        path: PathBuf,
        /// What differs between what was checked and what was found.
        differences: Vec<String>,
    },
    /// The content of a file in the hub's cache is not what the file is named by.
    #[error(
        "{}: the content differs from what it was fetched as: expected {hash} {expected}, found {found}; delete {} and fetch it again",
        shown(path),
        shown(blob)
    )]
    BlobDiffers {
        /// The file, by the path that it was reached by.
        path: PathBuf,
        /// The blob that the path leads to, or is.
        blob: PathBuf,
        /// Which digest names the blob: `SHA-256`, or `git SHA-1`.
        hash: &'static str,
        /// The digest in the blob's name, in hexadecimal digits.
        expected: String,
        /// The digest of the content.
        found: String,
    },
    /// The index places a tensor in a shard that does not hold it.
    #[error(
        "{}: the index places tensor {} in this shard, whose header does not list it; is the index of other shards? Fetch both of one revision",
        shown(path),
        quote(tensor)
    )]
    TensorNotInShard {
        /// The shard.
        path: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// A tensor lies in pieces in several shards, and is wanted as it lies in one.
    #[error(
        "{}: tensor {} lies in {pieces} pieces in as many files, so that there is no view of it; load it",
        shown(path),
        quote(tensor)
    )]
    TensorInPieces {
        /// The model's directory.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// How many pieces, none of them empty.
        pieces: usize,
    },
    /// Names that the index does not list.
    #[error("{}: no tensor {}", shown(path), unknown_names(unknown))]
    UnknownTensors {
        /// The model's directory.
        path: PathBuf,
        /// The names, each with the nearest ones that there are.
        unknown: Vec<UnknownName>,
    },
    /// A shard that the index does not name.
    #[error("{}: no shard {}{}", shown(path), quote(shard), did_you_mean(nearest))]
    UnknownShard {
        /// The model's directory.
        path: PathBuf,
        /// The name that was asked for.
        shard: String,
        /// The nearest names that there are.
        nearest: Vec<String>,
    },

    // Typed access.
    /// The elements of a tensor are of another type.
    #[error(
        "{}: tensor {}: expected dtype {}, found {}; ask for the type that it has, or for its bytes",
        shown(path),
        quote(tensor),
        dtype_name(expected),
        dtype_name(found)
    )]
    DtypeMismatch {
        /// The shard, as the index names it.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The type that was asked for.
        expected: Dtype,
        /// The type that the header gives.
        found: Dtype,
    },
    /// A tensor does not lie at an address that its type needs.
    #[error(
        "{}: tensor {}: its {dtype} elements do not lie at a multiple of {alignment} bytes in the file; copy them with `to_vec`, or load with `ReadMode::Buffered`",
        shown(path),
        quote(tensor)
    )]
    Misaligned {
        /// The shard, as the index names it.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The type of its elements.
        dtype: Dtype,
        /// What the address must be a multiple of, in bytes.
        alignment: usize,
    },
    /// A byte of a boolean tensor is neither 0 nor 1.
    #[error(
        "{}: tensor {}: element {element} is {value}, where a BOOL is 0 or 1; take its bytes",
        shown(path),
        quote(tensor)
    )]
    NotBool {
        /// The shard, as the index names it.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The first such element, counted from 0.
        element: usize,
        /// Its value.
        value: u8,
    },
    /// The machine is big-endian, the file little-endian.
    #[error(
        "{}: tensor {}: its {dtype} elements are little-endian and this machine is not; copy them with `to_vec`",
        shown(path),
        quote(tensor)
    )]
    BigEndian {
        /// The shard, as the index names it.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The type of its elements.
        dtype: Dtype,
    },

    // Selecting and loading.
    /// A slice does not lie in its tensor, or cuts where no byte ends.
    #[error("{}: tensor {} of shape {shape:?}: {fault}", shown(path), quote(tensor))]
    Slice {
        /// The shard.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The shape of the tensor.
        shape: Vec<u64>,
        /// What is wrong with the slice.
        fault: Box<SliceError>,
    },
    /// A plan cannot be read, or cannot be carried out on a model.
    #[error("{}{fault}", of_path(path.as_deref()))]
    Plan {
        /// The model's directory, or the file of the plan; `None` for a plan by itself.
        path: Option<PathBuf>,
        /// All that is wrong with it.
        fault: Box<PlanError>,
    },
    /// What is said of which process of a job this is contradicts itself.
    #[error("{by}: {}: expected {expected}; {help}", of_variable(variable, found.as_deref()))]
    BadRank {
        /// Who says it: a launcher or the caller.
        by: &'static str,
        /// The environment variable, or the argument.
        variable: &'static str,
        /// Its value; `None` for a variable that is not set.
        found: Option<String>,
        /// What it should be, and why.
        expected: String,
        /// What can be done.
        help: &'static str,
    },
    /// A load needs more memory at once than it may use.
    #[error(
        "{}: {}{needed_bytes} bytes of memory ({}) are needed at once and {limit_bytes} ({}) are allowed {limit}; {help}",
        shown(path),
        of_which(tensor.as_deref()),
        Bytes(*needed_bytes),
        Bytes(*limit_bytes)
    )]
    MemoryLimit {
        /// The model's directory.
        path: PathBuf,
        /// The tensor that alone exceeds the limit; `None` where it takes all of them together.
        tensor: Option<String>,
        /// The bytes that are needed.
        needed_bytes: u64,
        /// The bytes that are allowed.
        limit_bytes: u64,
        /// Who set the limit.
        limit: &'static str,
        /// What can be done.
        help: &'static str,
    },
    /// The memory that was given for a tensor is not of its length.
    #[error(
        "{}: tensor {}: expected {expected} bytes of memory to load it into, found {found}; `TensorInfo::len_bytes` tells the length",
        shown(path),
        quote(tensor)
    )]
    TargetLength {
        /// The shard, as the index names it.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The length of the tensor, or of the slice of it, in bytes.
        expected: u64,
        /// The length of the memory that was given, in bytes.
        found: u64,
    },
    /// A glob of tensor names breaks the rules of globs.
    #[error("glob {}: {reason} (at byte {position})", quote(pattern))]
    BadPattern {
        /// The whole pattern, as it was given.
        pattern: String,
        /// The byte of the pattern at which the trouble begins.
        position: usize,
        /// What is wrong there and, where it can be said, how to write it.
        reason: &'static str,
    },
    /// A regex of tensor names is none, or needs too much memory.
    #[error("regex {}: {reason}", quote(pattern))]
    BadRegex {
        /// The whole regex, as it was given.
        pattern: String,
        /// What is wrong; for a fault in the grammar, several lines that mark the place.
        reason: String,
    },
    /// A pattern matches no tensor.
    #[error("{}: no tensor matches {}{}", shown(path), quote(pattern), did_you_mean(nearest))]
    NothingMatches {
        /// The model's directory.
        path: PathBuf,
        /// The glob or regular expression.
        pattern: String,
        /// The names that look most like it.
        nearest: Vec<String>,
    },
    /// Nothing is selected.
    #[error(
        "{}: the selection is empty; add `.all()`, names or patterns to it, or allow it with `.allow_empty()`",
        shown(path)
    )]
    EmptySelection {
        /// The model's directory.
        path: PathBuf,
    },
    /// Pages of a file stay in the page cache.
    #[error(
        "{}: {pages} pages stay in the page cache; does a tensor or another process map the file, or is it on tmpfs?",
        shown(path)
    )]
    StillCached {
        /// The shard.
        path: PathBuf,
        /// The pages that stay.
        pages: u64,
    },
    /// A read mode of a name that none has.
    #[error("no read mode {}; there are auto, mapped, buffered and direct", quote(name))]
    UnknownReadMode {
        /// The name that was asked for.
        name: String,
    },
    /// The system gives no thread for a stream.
    #[error("cannot start a thread: {reason}; raise the limit of processes, or use `load`, which needs none")]
    Threads {
        /// What the system says.
        reason: String,
    },
    /// A stream was begun in another process, of which this one is a fork.
    #[error(
        "this stream was begun before the process was forked, and its threads are in the other one; begin one here, or load before the fork"
    )]
    Forked,
    /// The launcher's engine, by which the ranks of a node share what they read, has failed.
    #[error("cannot {action} to the ranks of this node: {error}; does the launcher say more?")]
    Collective {
        /// What was being done, as a verb.
        action: &'static str,
        /// What the engine says.
        error: Arc<io::Error>,
    },
    /// Another rank of the node, with which a model was being loaded together, has failed.
    #[error("rank {rank} of this node failed, and nothing can be loaded together without it: {message}")]
    Peer {
        /// The rank.
        rank: usize,
        /// What it says.
        message: String,
    },
    /// The load was given up before it was done.
    #[error("the load was cancelled")]
    Cancelled,
}

impl Error {
    pub(crate) fn plan(path: Option<&Path>, fault: PlanError) -> Self {
        Self::Plan { path: path.map(Path::to_owned), fault: Box::new(fault) }
    }

    pub(crate) fn io(path: &Path, action: impl Into<String>, error: io::Error) -> Self {
        Self::Io { path: path.to_owned(), tensor: None, action: action.into(), error: Arc::new(error) }
    }

    /// The same error, said to be about a tensor.
    pub(crate) fn about(mut self, name: &str) -> Self {
        if let Self::Io { tensor, .. } = &mut self {
            tensor.get_or_insert_with(|| name.to_owned());
        }
        self
    }
}

impl From<PlanError> for Error {
    fn from(fault: PlanError) -> Self {
        Self::plan(None, fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io(kind: io::ErrorKind) -> Error {
        Error::io(Path::new("x.safetensors"), "read 8 bytes", kind.into())
    }

    #[test]
    fn a_read_that_fails_names_the_tensor_that_it_was_for() {
        let error = io(io::ErrorKind::UnexpectedEof).about("a\u{1b}").about("b");
        assert_eq!(error.tensor(), Some("a\u{1b}"));
        let start = r#"x.safetensors: cannot read 8 bytes for tensor "a\u{1b}": "#;
        assert!(error.to_string().starts_with(start), "{error}");
    }

    #[test]
    fn faults_that_came_together_can_be_taken_apart() {
        let missing = |name: &str| MissingShard { name: name.to_owned(), tensors: 1, similar: None };
        let missing = vec![missing("a.safetensors"), missing("b.safetensors")];
        let error =
            Error::MissingShards { path: "i.json".into(), missing, count: 2, shards: 3, hint: String::new() };
        let each: Vec<_> = error.into_each().iter().map(Error::to_string).collect();
        assert!(each[0].contains("\"a.safetensors\"") && !each[0].contains("\"b.safetensors\""), "{each:?}");
        assert_eq!(each.len(), 2);
    }
}
