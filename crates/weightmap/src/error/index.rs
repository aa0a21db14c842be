//! Faults of an index file, and of the shard names in it.

use super::quote::{clauses, quote, quote_all};

/// Why an index could not be read as one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The file is longer than the limit.
    #[error(
        "the index has {bytes} bytes and the limit is {limit}; \
         if it is to be trusted, raise the limit with `OpenOptions::max_index_bytes` (`--max-index-bytes`)"
    )]
    TooLarge {
        /// The size of the file in bytes.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The file starts with a byte order mark, which JSON forbids.
    #[error("the index starts with a {encoding} byte order mark (BOM); save it as UTF-8 without one")]
    Bom {
        /// `UTF-8` or `UTF-16`.
        encoding: &'static str,
    },
    /// The file is not text.
    #[error(
        "the index is not UTF-8 from its byte {offset} on; it is damaged, or text in another encoding: fetch it again"
    )]
    NotUtf8 {
        /// Where the first bad byte is.
        offset: usize,
    },
    /// The file is the stand-in that Git leaves for a large file which was not fetched.
    #[error("this is a Git LFS pointer, not the index itself; fetch it with `git lfs pull`")]
    LfsPointer,
    /// The file holds both sides of a merge that nobody resolved.
    #[error("line {line} is a mark of an unresolved merge conflict; restore one side of it")]
    MergeConflict {
        /// The line of the first mark, counted from 1.
        line: usize,
    },
    /// The file has a comment, which JSON does not know.
    #[error("there is a comment in line {line}, and JSON has none; remove it")]
    Comment {
        /// The line, counted from 1.
        line: usize,
    },
    /// The file is a web page: often a log-in page or an error that was saved by a download.
    #[error("this looks like HTML or XML, not JSON; was an error page downloaded? Fetch the index again")]
    Html,
    /// The file is of another kind.
    #[error(
        "this is not an index, it looks like {looks_like}; fetch the index, or unpack it if it is in there"
    )]
    OtherFile {
        /// What begins with such bytes, with its article.
        looks_like: &'static str,
    },
    /// The file is not JSON.
    #[error("the index is not JSON: {message}; it is cut, damaged or badly edited: fetch it again")]
    Json {
        /// The line of the fault, counted from 1.
        line: usize,
        /// The column of the fault in bytes, counted from 1; 0 at the end of a line.
        column: usize,
        /// What was expected, and the position.
        message: String,
    },
    /// The file is JSON, and it or its `weight_map` is not an object.
    #[error("not an index: {message}; is it another file under this name?")]
    Shape {
        /// The line of the fault, counted from 1.
        line: usize,
        /// The column of the fault in bytes, counted from 1; 0 at the end of a line.
        column: usize,
        /// What was found, what was expected, and the position.
        message: String,
    },
    /// There is no `weight_map`.
    #[error("not an index: there is no `weight_map`; the keys are: {}", quote_all(found))]
    NoWeightMap {
        /// The first keys that are there.
        found: Vec<String>,
    },
    /// The `weight_map` lists no tensor.
    #[error(
        "the `weight_map` is empty: the index is a placeholder, or its writer failed; fetch it again, or open the weights by their path"
    )]
    EmptyWeightMap,
    /// The index is JSON of the right shape, with faults in names and values.
    #[error("{}", faults_of(faults, *count as u64))]
    Faults {
        /// The first thousand faults.
        faults: Vec<IndexFault>,
        /// How many there are.
        count: usize,
    },
}

/// One fault among several of an index that is JSON of the right shape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexFault {
    /// A key at the top, `weight_map` or `metadata`, is there twice.
    #[error("`{key}` is there twice")]
    DuplicateKey {
        /// The key.
        key: &'static str,
    },
    /// A tensor is listed twice, be it in the same shard.
    #[error(
        "tensor {} is listed twice, and readers differ in which entry they take; leave the right one",
        quote(tensor)
    )]
    DuplicateTensor {
        /// The name, its escapes resolved.
        tensor: String,
    },
    /// Without an index, a tensor lies in two shards, and nothing says which one counts.
    #[error(
        "tensor {} is in both {} and {}, and without an index nothing says which counts",
        quote(tensor),
        quote(first),
        quote(second)
    )]
    TensorInTwoShards {
        /// The name of the tensor.
        tensor: String,
        /// The shard that was looked at first.
        first: String,
        /// The shard that was looked at later.
        second: String,
    },
    /// The value of a tensor is no string.
    #[error("tensor {}: expected the name of a shard, found {found}", quote(tensor))]
    NotAName {
        /// The tensor.
        tensor: String,
        /// What is there, with its article: `a list`.
        found: &'static str,
    },
    /// The value of a tensor cannot be the name of a shard; each such name is reported once.
    #[error("tensor {}: {fault}", quote(tensor))]
    ShardName {
        /// The first tensor with this shard.
        tensor: String,
        /// What is wrong with the name.
        fault: ShardNameError,
    },
}

/// Why a name is not accepted as that of a shard.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShardNameError {
    /// On some operating system, the name could lead out of the model's directory.
    #[error("unsafe shard name {}: {reason}", quote(name))]
    Unsafe {
        /// The name as it was given.
        name: String,
        /// What makes it unsafe, as a clause: `it contains a backslash`.
        reason: &'static str,
    },
    /// The name stays in the directory and cannot be that of a safetensors file.
    #[error("bad shard name {}: {reason}", quote(name))]
    Bad {
        /// The name as it was given.
        name: String,
        /// What is wrong with it, as a clause.
        reason: &'static str,
    },
}

fn faults_of(faults: &[IndexFault], count: u64) -> String {
    match faults {
        [one] if count == 1 => one.to_string(),
        _ => format!("{}: {}", super::quote::count(count, "fault"), clauses(faults, count)),
    }
}

impl IndexError {
    /// The kind of fault, a name listed in `docs/errors.md`; of several faults that of the first.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "IndexTooLarge",
            Self::Bom { .. } => "ByteOrderMark",
            Self::NotUtf8 { .. } => "NotUtf8",
            Self::LfsPointer => "LfsPointer",
            Self::MergeConflict { .. } => "MergeConflict",
            Self::Comment { .. } => "Comment",
            Self::Html => "Html",
            Self::OtherFile { .. } => "NotAnIndex",
            Self::Json { .. } => "Json",
            Self::Shape { .. } => "IndexShape",
            Self::NoWeightMap { .. } => "NoWeightMap",
            Self::EmptyWeightMap => "EmptyWeightMap",
            Self::Faults { faults, .. } => faults.first().map_or("IndexShape", IndexFault::kind),
        }
    }

    /// The tensor that the fault is about, if it is one fault and about one.
    pub fn tensor(&self) -> Option<&str> {
        match self {
            Self::Faults { faults, .. } => match faults.as_slice() {
                [fault] => fault.tensor(),
                _ => None,
            },
            _ => None,
        }
    }

    pub(super) fn count(&self) -> usize {
        match self {
            Self::Faults { count, .. } => *count,
            _ => 1,
        }
    }

    pub(super) fn into_each(self) -> Vec<Self> {
        match self {
            Self::Faults { faults, .. } => {
                faults.into_iter().map(|fault| Self::Faults { faults: vec![fault], count: 1 }).collect()
            }
            error => vec![error],
        }
    }
}

impl IndexFault {
    /// The kind of fault, a name listed in `docs/errors.md`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::DuplicateKey { .. } => "DuplicateKey",
            Self::DuplicateTensor { .. } => "DuplicateTensor",
            Self::TensorInTwoShards { .. } => "TensorInTwoShards",
            Self::NotAName { .. } => "NotAName",
            Self::ShardName { fault: ShardNameError::Unsafe { .. }, .. } => "UnsafeShardName",
            Self::ShardName { fault: ShardNameError::Bad { .. }, .. } => "BadShardName",
        }
    }

    /// The tensor that the fault is about, where it is about one.
    pub fn tensor(&self) -> Option<&str> {
        match self {
            Self::DuplicateKey { .. } => None,
            Self::DuplicateTensor { tensor }
            | Self::TensorInTwoShards { tensor, .. }
            | Self::NotAName { tensor, .. }
            | Self::ShardName { tensor, .. } => Some(tensor),
        }
    }
}
