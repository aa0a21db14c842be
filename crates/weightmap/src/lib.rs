//! Opens a sharded safetensors checkpoint as one model, loads exactly the tensors that a process needs, in
//! parallel, and reports what that cost.
//!
//! ```
//! # let checkpoint = weightmap_testkit::Llama::tiny().checkpoint().temp();
//! # let path = checkpoint.path();
//! use weightmap::{LoadOptions, ReadMode, ShardedModel};
//!
//! // Reads the index; no shard is opened yet.
//! let model = ShardedModel::open(path)?;
//! println!("{} tensors in {} shards", model.len(), model.shards().len());
//!
//! // Opens and checks the shards concerned, and reads the bytes of these tensors and no others.
//! let layer = model.select().glob("model.layers.{0..1}.mlp.*")?.names(["model.norm.weight"])?;
//! let loaded = layer.load()?;
//! for tensor in loaded.tensors() {
//!     println!("{} {} {:?} {} bytes", tensor.name(), tensor.dtype(), tensor.shape(), tensor.bytes().len());
//! }
//! // What it cost: bytes asked for and bytes read, page faults, pages that were in the cache.
//! println!("{}", loaded.report());
//!
//! // As they are done, into memory of their own, of which there is never more than 1 GiB.
//! for tensor in layer.stream_with(&LoadOptions::default().mode(ReadMode::Buffered).memory_limit(1 << 30))? {
//!     let tensor = tensor?;
//!     assert!(!tensor.is_mapped());
//! }
//!
//! // The part of one rank of two: the first half of the rows, and nothing else is read.
//! let name = "model.layers.0.mlp.gate_proj.weight";
//! let rows = model.tensor(name)?.shape[0];
//! let part = model.select().slice(name, [0..rows / 2])?.load()?;
//! assert_eq!(part.tensors()[0].shape()[0], rows / 2);
//! # Ok::<(), weightmap::Error>(())
//! ```
//!
//! # The tour
//! - [`ShardedModel`] is the model. It tells what there is ([`names`](ShardedModel::names), [`tensor`](ShardedModel::tensor)), gives
//!   bytes without a copy ([`view`](ShardedModel::view)), and starts a [`Selection`] ([`select`](ShardedModel::select)).
//! - [`Selection`] is what is wanted: names, globs, regular expressions, shards, and slices of tensors
//!   ([`slice`](Selection::slice), which takes [`Intervals`]), less what another one has ([`except`](Selection::except)). It is loaded at once ([`load`](Selection::load)), as a
//!   [`TensorStream`] ([`stream`](Selection::stream)), or into memory of the caller's
//!   ([`load_into`](Selection::load_into)); or only brought into the page cache ([`prefetch`](Selection::prefetch)).
//! - [`Rank`] is which process of a job this is, given or from the environment that its launcher has set
//!   ([`from_env`](Rank::from_env)); nothing else in the library reads the environment.
//! - [`Plan`] says what each rank has: written as JSON or in Rust (see [`plan`]), ready for a family of models
//!   ([`for_model`](Plan::for_model)), or for any model ([`fsdp`](Plan::fsdp)). [`Selection::plan`] is the part of one rank;
//!   [`ShardedModel::divide`] gives the [`Partition`], what all of them have, and
//!   [`forecast`](ShardedModel::forecast) a [`Forecast`] of what loading each part costs, both without reading data.
//! - The ranks of one machine read together what several of them need: into its page cache, without a word between them
//!   ([`prefetch_together`](ShardedModel::prefetch_together)), or into memory of their own, by a [`Collective`] that sends what one has
//!   read to the others ([`load_together`](ShardedModel::load_together)).
//! - [`LoadOptions`] say how: by which [`ReadMode`], how many workers, within how much memory.
//! - [`Tensor`] and [`TensorView`] give bytes, and typed slices that are checked for dtype and alignment.
//! - [`LoadReport`] is the account of a load.
//! - [`check`] compares a whole checkpoint with itself, and [`check_content`] its bytes with what is known of them.
//! - [`Digests`] say what the bytes are to be: made of a checkpoint that is right ([`digest`](ShardedModel::digest)), and
//!   compared with what is loaded ([`LoadOptions::verify`]). [`Blob`] is a file in the hub's cache, which is named by its digest.
//! - [`Scan`] counts what is odd about values: NaN, infinities, tensors of nothing but zeros.
//! - [`Index`] and [`Header`] are the parsers, which know no files.
//!
//! # Features
//! - `half` (on by default): typed access to F16 and BF16 tensors as `half::f16` and `half::bf16`.
//! - `uring` (on by default): direct reads by io_uring on Linux, where the process may use it. Leave it out where the
//!   crate `io-uring` does not know the architecture.

mod dtype;
mod scan;
mod identity;
mod error;
mod warning;

mod names;
mod glob;
mod nearest;
mod intervals;
mod region;
mod extent;
mod assembly;
pub mod plan;
pub mod collective;
mod rank;

mod process;
mod file;
mod signature;
mod header;
mod digests;
mod options;
mod shard_name;
mod index;
mod missing;
mod pieces;
mod layout;

mod sys;
mod mmap;
mod memory;
mod mounts;
mod memory_limit;
mod storage;
mod shard;
mod descriptors;
mod threads;
mod blob;

mod tensor_info;
mod element;
mod pool;
mod tensor;
mod recipe;
mod select;

mod mode;
mod report;
mod gate;
mod meter;
mod read;
mod inspect;
mod load;
mod stream;
mod node;
mod forecast;

mod model;
mod content;
mod check;

#[cfg(fuzzing)]
pub mod fuzzing;

pub use blob::Blob;
pub use check::{Check, Content, check, check_content};
pub use collective::Collective;
pub use digests::Digests;
pub use dtype::Dtype;
pub use element::Element;
pub use error::{
    DigestsError, Error, HeaderError, IndexError, IndexFault, MissingShard, PieceFault, PiecesError,
    PlanError, PlanFault, Result, ShardNameError, SliceError, UnknownName,
};
pub use forecast::Forecast;
pub use header::{Header, HeaderEntry};
pub use index::Index;
pub use intervals::Intervals;
pub use load::{LoadOptions, Loaded};
pub use mode::ReadMode;
pub use model::ShardedModel;
pub use node::{NodeReport, NodeShare, Together};
pub use options::OpenOptions;
pub use plan::{Parallel, Partition, Plan, PlannedPart, PlannedTensor, RankTotal};
pub use rank::Rank;
pub use report::{LoadReport, ShardRow, Stages, WorkerRow};
pub use scan::Scan;
pub use select::Selection;
pub use shard_name::ShardName;
pub use stream::TensorStream;
pub use tensor::{Tensor, TensorView};
pub use tensor_info::{TensorInfo, TensorPart, TensorSlice};
pub use warning::Warning;

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/plans.md")]
struct Plans;
