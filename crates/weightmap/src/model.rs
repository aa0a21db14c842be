//! A sharded checkpoint, opened as one model.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use crate::collective::Collective;
use crate::descriptors::{Access, Descriptors};
use crate::error::{Error, Result};
use crate::file::open_regular;
use crate::forecast::{Forecast, forecast};
use crate::header::Header;
use crate::index::Index;
use crate::layout::{Layout, Origin};
use crate::load::LoadOptions;
use crate::missing::Missing;
use crate::node::{NodeShare, Together, load_together, prefetch_together};
use crate::options::OpenOptions;
use crate::pieces::{Member, Offsets, gather};
use crate::plan::{Partition, Plan};
use crate::pool::Pool;
use crate::recipe::Recipe;
use crate::select::{Selection, unknown_tensors};
use crate::shard::Shard;
use crate::shard_name::ShardName;
use crate::sys;
use crate::tensor::TensorView;
use crate::tensor_info::TensorInfo;
use crate::threads::{available_cores, each, most_workers};
use crate::warning::Warning;

/// A checkpoint of one or many safetensors files, opened as one model.
///
/// Opening reads the index. A shard is opened, checked and mapped when its first tensor is needed, once,
/// however many threads ask. A model is cheap to clone, and its clones share their shards.
///
/// # Files that change
/// Mapped bytes are those of the file: they are what was checked as long as nobody writes to the file or cuts
/// it short while a [`TensorView`] or a mapped [`Tensor`](crate::Tensor) is alive. Replacing a file by
/// renaming another over it does bytes that are mapped no harm; a load that has to open the file again gives
/// [`Error::ShardChanged`]. What the library does about the rest:
/// - its own reads raise no signal: pages are brought in by calls that give an error, and nothing but the caller touches them;
/// - a load ends by showing that no file has changed since it was checked, or fails with [`Error::ShardChanged`];
/// - [`ReadMode::Buffered`](crate::ReadMode::Buffered) gives tensors in memory of their own, which no later change can reach.
///
/// What it cannot do: a writer that puts the old time of modification back is not seen. When a file is cut
/// while a mapped tensor is alive, touching the part that is gone ends the process with a signal (`SIGBUS`), be it through
/// `bytes`, `as_slice`, `to_vec` or `as_bools`. Use `Buffered` where that cannot be ruled out.
#[derive(Clone)]
pub struct ShardedModel {
    pool: Arc<Pool>,
    warnings: Arc<[Warning]>,
}

impl ShardedModel {
    /// Opens a directory, an index file, a single safetensors file or a snapshot of the hub's cache.
    ///
    /// A directory that has an index is listed once, and the index is read, nothing else. Of several
    /// candidates the index wins; `docs/format.md` has the order, and [`warnings`](Self::warnings) tells what
    /// was passed over.
    ///
    /// # Errors
    /// When there is no model, or more than one; when the index breaks a rule, with all its faults at once;
    /// when shards are absent, with all of them at once; when a single file's header breaks a rule; when the
    /// pieces of a distributed checkpoint do not make whole tensors, with all faults at once.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        OpenOptions::default().open(path)
    }

    /// Options to open a model with: `ShardedModel::options().variant("fp16").open(path)`.
    pub fn options() -> OpenOptions {
        OpenOptions::default()
    }

    /// The directory that the shards' names start from.
    pub fn directory(&self) -> &Path {
        &self.pool.directory
    }

    /// The index file, if the model has one.
    pub fn index_path(&self) -> Option<&Path> {
        self.pool.index_path.as_deref()
    }

    /// The tensors and the shards they are in.
    pub fn index(&self) -> &Index {
        &self.pool.index
    }

    /// How many tensors the index lists.
    pub fn len(&self) -> usize {
        self.pool.index.len()
    }

    /// Whether the index lists no tensor.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The names of the tensors, in the order of the index.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.pool.index.names()
    }

    /// The names of the shards, in the order in which the index first names them.
    pub fn shards(&self) -> &[ShardName] {
        self.pool.index.shards()
    }

    /// Whether the index lists a tensor of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.pool.index.find(name).is_some()
    }

    /// What was accepted when the model was opened and somebody should know of: files passed over, a stale
    /// index.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// What the header tells of a tensor; the first touch of its shard.
    ///
    /// # Errors
    /// [`Error::UnknownTensors`], [`Error::TensorNotInShard`], and those of a first touch.
    pub fn tensor(&self, name: &str) -> Result<TensorInfo> {
        let recipe = Recipe::of_tensor(&self.pool, self.find(name)?, None)?;
        recipe.look_up(&self.pool).map(Arc::unwrap_or_clone)
    }

    /// The bytes of a tensor where they lie in the mapped file; nothing is read until they are touched. What
    /// is not in the page cache is then fetched by page faults and read-ahead, which can be slow and fetch
    /// megabytes around it; a [`Selection`] of the one tensor loads it without that.
    ///
    /// # Errors
    /// Those of [`tensor`](Self::tensor), [`Error::Io`] when the file cannot be mapped, and
    /// [`Error::TensorInPieces`] for a tensor that lies in several files.
    pub fn view(&self, name: &str) -> Result<TensorView> {
        let tensor = self.find(name)?;
        self.pool.check_whole(tensor)?;
        let shard = self.pool.shard(self.pool.shard_of(tensor)?)?;
        TensorView::new(self.pool.info_in(&shard, tensor)?, &shard)
    }

    /// An empty selection of this model, to be added to.
    pub fn select(&self) -> Selection {
        Selection::new(Arc::clone(&self.pool))
    }

    /// Divides the model by a plan: what each rank has of it, and in which shape. All shards are opened for their headers;
    /// no data is read.
    ///
    /// # Errors
    /// [`Error::Plan`] with all that is wrong with the plan for this model; [`Error::MissingShards`] as long as shards are
    /// absent, be they [allowed](OpenOptions::allow_missing) to be; those of a first touch.
    pub fn divide(&self, plan: &Plan) -> Result<Partition> {
        self.pool.divide(plan)
    }

    /// Brings the own share of what the ranks of a node want into their page cache, without a word to the others: each of
    /// them makes the same call with the same `ranks`, in any order, and then loads. What several want falls to one of
    /// them, so that all read about the same; what one alone wants falls to it.
    ///
    /// It takes a warm page cache for all only once all have returned; a rank that loads before that reads what it needs
    /// itself, or waits for the page that another is reading, and no byte comes from the device twice.
    ///
    /// # Errors
    /// Those of [`divide`](Self::divide), [`Error::BadRank`] for ranks that the plan does not have or a `rank` that is not
    /// among `ranks`, [`Error::Io`].
    pub fn prefetch_together(&self, plan: &Plan, ranks: &[usize], rank: usize) -> Result<NodeShare> {
        self.prefetch_together_with(&LoadOptions::default(), plan, ranks, rank)
    }

    /// As [`prefetch_together`](Self::prefetch_together), with options. They are those of what the own rank alone wants, as
    /// for [`prefetch_with`](Selection::prefetch_with); what several want is read in windows all the same.
    ///
    /// # Errors
    /// Those of [`prefetch_together`](Self::prefetch_together).
    pub fn prefetch_together_with(
        &self,
        options: &LoadOptions,
        plan: &Plan,
        ranks: &[usize],
        rank: usize,
    ) -> Result<NodeShare> {
        prefetch_together(&self.pool, plan, ranks, rank, options)
    }

    /// What loading each rank's part would cost, in the order of the ranks, without reading data.
    ///
    /// # Errors
    /// [`Error::Plan`] for what was divided of another model; those of a first touch.
    pub fn forecast(&self, partition: &Partition) -> Result<Vec<Forecast>> {
        forecast(&self.pool, partition)
    }

    /// Loads what a plan gives to the own rank, together with the other ranks of the node, all of which make the same call:
    /// what several of them want is read by one of them and sent to the others, so that each byte is read once for a node.
    /// What one rank alone wants it reads by itself meanwhile.
    ///
    /// All have their tensors in memory of their own. The plan's world must be the collective's, and the files the same on
    /// all ranks: other names, types or places are noticed, other bytes in files of the same layout cannot be.
    ///
    /// # Errors
    /// Those of [`divide`](Self::divide) and of [`Selection::load`](crate::Selection::load); [`Error::Peer`] when another rank
    /// of the node has failed: of these all ranks get one, and none is left to wait. [`Error::Collective`] when the engine
    /// has failed, which one rank alone may see. Others may then wait for it for ever, so that the group is to be aborted, as
    /// by MPI's `abort`.
    pub fn load_together(&self, plan: &Plan, collective: &dyn Collective) -> Result<Together> {
        self.load_together_with(&LoadOptions::default(), plan, collective)
    }

    /// As [`load_together`](Self::load_together), with options. The limit of memory counts the tensors, and what is copied to
    /// its places in them; the windows in which bytes are sent, about 16 MiB, are beside it.
    ///
    /// # Errors
    /// Those of [`load_together`](Self::load_together), and [`Error::MemoryLimit`].
    pub fn load_together_with(
        &self,
        options: &LoadOptions,
        plan: &Plan,
        collective: &dyn Collective,
    ) -> Result<Together> {
        load_together(&self.pool, plan, collective, options)
    }

    /// The header of a shard; its first touch.
    ///
    /// # Errors
    /// [`Error::UnknownShard`], and those of a first touch.
    pub fn header(&self, shard: &str) -> Result<Arc<Header>> {
        Ok(Arc::clone(self.pool.shard(self.present(shard)?)?.header()))
    }

    /// Lets go of a shard's mapping and descriptor. The mapping ends when the last tensor that lies in it is
    /// dropped. When the shard is needed again, it is opened again, and must be the same file (device, inode,
    /// size, time of modification).
    ///
    /// # Errors
    /// [`Error::UnknownShard`].
    pub fn release(&self, shard: &str) -> Result<()> {
        self.pool.release(self.pool.find_shard(shard)?);
        Ok(())
    }

    /// Drops all shards from the page cache and verifies that they are out, so that what follows is cold. All
    /// shards are released first, and all that can be dropped are; pages that another process maps, or a
    /// tensor of this one, stay and make it fail.
    ///
    /// # Errors
    /// [`Error::StillCached`] for the first shard of which a page stays; [`Error::Io`] where the system
    /// cannot drop pages or cannot tell.
    pub fn evict(&self) -> Result<()> {
        let present = || (0..).zip(self.shards()).filter(|(number, _)| !self.pool.is_missing(*number));
        present().for_each(|(number, _)| self.pool.release(number));
        // One that stays is no reason to leave the others.
        let evicted = present().map(|(_, shard)| evict(&shard.path_in(&self.pool.directory)));
        evicted.fold(Ok(()), Result::and)
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    fn find(&self, name: &str) -> Result<u32> {
        let tensor = self.pool.index.find(name);
        tensor.ok_or_else(|| unknown_tensors(&self.pool, vec![name.to_owned()]))
    }

    fn present(&self, shard: &str) -> Result<u32> {
        let shard = self.pool.find_shard(shard)?;
        self.pool.check_present(shard)?;
        Ok(shard)
    }
}

impl fmt::Debug for ShardedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardedModel")
            .field("directory", &self.directory())
            .field("tensors", &self.len())
            .field("shards", &self.shards().len())
            .finish_non_exhaustive()
    }
}

impl OpenOptions {
    /// Opens a model as [`ShardedModel::open`] does, with these options.
    ///
    /// # Errors
    /// Those of [`ShardedModel::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<ShardedModel> {
        // Shards are opened later, when the process may have gone to another directory. Links are left as
        // they are.
        let path = path.as_ref();
        let path = &std::path::absolute(path).map_err(|error| Error::io(path, "open", error))?;
        let _span = tracing::debug_span!("open", ?path).entered();
        let start = Instant::now();
        let Layout { dir, origin, warnings } = Layout::resolve(path, self)?;
        let mut pool = match origin {
            Origin::Indexed { path, index, missing } => {
                let descriptors = Descriptors::new();
                let mut pool = Pool::new(dir, index, missing, self.header_rules(), descriptors);
                pool.index_path = Some(path);
                pool
            }
            Origin::Headers(shards) => self.open_without_index(dir, &shards)?,
            Origin::Pieces { shards, incomplete } => {
                let mut pool = self.open_pieces(dir, &shards)?;
                pool.incomplete = incomplete;
                pool
            }
        };
        pool.open_seconds = start.elapsed().as_secs_f64();
        tracing::debug!(tensors = pool.index.len(), shards = pool.index.shards().len(), "opened");
        Ok(ShardedModel { pool: Arc::new(pool), warnings: warnings.into() })
    }

    /// Without an index the headers tell the names, so all shards are touched at once.
    fn open_without_index(&self, directory: PathBuf, names: &[ShardName]) -> Result<Pool> {
        let descriptors = Descriptors::new();
        let opened = self.open_all(&directory, names, &descriptors, |shard| shard)?;
        let tensors = opened.iter().map(|shard| {
            (shard.name.clone(), shard.header().iter().map(|entry| entry.name).collect::<Vec<_>>())
        });
        let index = Index::from_tensors(tensors)
            .map_err(|fault| Error::Index { path: directory.clone(), fault: Box::new(fault) })?;
        let pool = Pool::new(directory, index, Missing::default(), self.header_rules(), descriptors);
        opened.into_iter().for_each(|shard| pool.adopt(shard));
        Ok(pool)
    }

    /// As [`open_without_index`](Self::open_without_index), of shards that have tensors in pieces.
    fn open_pieces(&self, directory: PathBuf, names: &[ShardName]) -> Result<Pool> {
        let descriptors = Descriptors::new();
        let read = |shard: Shard| {
            let offsets = Offsets::read(&shard.name, shard.header());
            (shard, offsets)
        };
        let opened = self.open_all(&directory, names, &descriptors, read)?;
        let members: Vec<Member<'_>> =
            opened.iter().map(|(shard, offsets)| (&shard.name, shard.header().as_ref(), offsets)).collect();
        let gathered = gather(&members)
            .map_err(|fault| Error::Pieces { path: directory.clone(), fault: Box::new(fault) })?;
        let index = Index::placed(names.iter().cloned(), gathered.names, gathered.shard_of)
            .map_err(|fault| Error::Index { path: directory.clone(), fault: Box::new(fault) })?;
        let mut pool = Pool::new(directory, index, Missing::default(), self.header_rules(), descriptors);
        pool.pieces = gathered.pieces;
        opened.into_iter().for_each(|(shard, _)| pool.adopt(shard));
        Ok(pool)
    }

    /// Opens shards for the first time, several at once.
    fn open_all<R: Send>(
        &self,
        directory: &Path,
        names: &[ShardName],
        descriptors: &Descriptors,
        then: impl Fn(Shard) -> R + Sync,
    ) -> Result<Vec<R>> {
        let numbered: Vec<(u32, &ShardName)> = (0..).zip(names).collect();
        each(&numbered, most_workers(available_cores()), |&(number, name)| {
            let path = name.path_in(directory);
            let rules = self.header_rules();
            let (shard, file) =
                descriptors.spare(|| Shard::open(number, name.clone(), path.clone(), rules))?;
            descriptors.keep(number, Access::Cached, file);
            Ok(then(shard))
        })
    }
}

fn evict(path: &Path) -> Result<()> {
    let (file, identity) = open_regular(path)?;
    sys::evict(&file).map_err(|error| Error::io(path, "drop from the page cache", error))?;
    let map = crate::mmap::FileMap::new(&file, identity.bytes).ok();
    let mapped = map.as_ref().and_then(|map| map.get(0..identity.bytes));
    match sys::cached_pages(&file, 0..identity.bytes, mapped) {
        Some(0) => Ok(()),
        Some(pages) => Err(Error::StillCached { path: path.to_owned(), pages }),
        None => {
            let error = std::io::ErrorKind::Unsupported.into();
            Err(Error::io(path, "tell which pages are in the page cache", error))
        }
    }
}
