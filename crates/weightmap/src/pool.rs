//! The shards of a model, opened on demand and released on demand.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use dashmap::DashMap;

use crate::assembly::Part;
use crate::descriptors::{Access, Descriptors};
use crate::error::{Error, Result};
use crate::header::{HeaderEntry, HeaderRules};
use crate::identity::FileIdentity;
use crate::index::Index;
use crate::missing::Missing;
use crate::nearest::nearest;
use crate::pieces::Pieces;
use crate::plan::{self, Partition, Plan};
use crate::process::PerProcess;
use crate::shard::{Checked, Shard, open_same, open_same_direct};
use crate::shard_name::ShardName;
use crate::tensor_info::TensorInfo;
use crate::threads::{available_cores, each, most_workers};

/// What a first touch came to; all who wait for it get the same.
type Touch = Arc<OnceLock<Result<Arc<Shard>>>>;

/// The index of a checkpoint and those of its shards that have been touched.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) directory: PathBuf,
    /// The file that the index was read from, if it was.
    pub(crate) index_path: Option<PathBuf>,
    pub(crate) index: Index,
    /// The shards that are absent, which was allowed.
    missing: Missing,
    /// By tensor, in a distributed checkpoint: how it lies in pieces; empty otherwise.
    pub(crate) pieces: Vec<Option<Pieces>>,
    /// The error for shards that are absent by the names of the others, which was allowed.
    pub(crate) incomplete: Option<Error>,
    rules: HeaderRules,
    /// How long finding the files and reading the index took.
    pub(crate) open_seconds: f64,
    /// The sizes of all shards' files together, once somebody has asked.
    file_bytes: OnceLock<u64>,
    opening: PerProcess<Opening>,
    /// Times that a shard's file was opened.
    opened: AtomicU64,
    /// By which what was planned for this model is known again.
    pub(crate) token: Arc<()>,
}

/// The shards that this process has opened.
#[derive(Debug)]
struct Opening {
    touched: DashMap<u32, Touch>,
    /// By shard: what its first touch learnt; kept when the shard is released.
    checked: Vec<OnceLock<Checked>>,
    descriptors: Descriptors,
}

impl Opening {
    /// For a process that was forked: what is known of the files is kept, and each is opened again at its next touch.
    fn in_child(&self) -> Self {
        Self {
            touched: DashMap::new(),
            checked: self
                .checked
                .iter()
                .map(|checked| checked.get().cloned().map_or_else(OnceLock::new, OnceLock::from))
                .collect(),
            descriptors: Descriptors::new(),
        }
    }
}

impl Pool {
    pub(crate) fn new(
        directory: PathBuf,
        index: Index,
        missing: Missing,
        rules: HeaderRules,
        descriptors: Descriptors,
    ) -> Self {
        let checked = index.shards().iter().map(|_| OnceLock::new()).collect();
        Self {
            directory,
            index_path: None,
            index,
            missing,
            pieces: Vec::new(),
            incomplete: None,
            rules,
            open_seconds: 0.0,
            file_bytes: OnceLock::new(),
            opening: PerProcess::new(Opening { touched: DashMap::new(), checked, descriptors }),
            opened: AtomicU64::new(0),
            token: Arc::default(),
        }
    }

    fn here(&self) -> &Opening {
        self.opening.get(Opening::in_child)
    }

    /// Whether a shard was found absent when the model was opened.
    pub(crate) fn is_missing(&self, number: u32) -> bool {
        self.missing.has(number)
    }

    /// Takes over a shard that was opened before there was an index, which was made from its header.
    pub(crate) fn adopt(&self, shard: Shard) {
        let number = shard.number;
        self.count_first_touch(&shard);
        self.here().touched.insert(number, Arc::new(OnceLock::from(Ok(Arc::new(shard)))));
    }

    /// The number of the shard with this name.
    pub(crate) fn find_shard(&self, name: &str) -> Result<u32> {
        let shards = &self.index.shards();
        self.index.find_shard(name).ok_or_else(|| Error::UnknownShard {
            path: self.directory.clone(),
            shard: name.to_owned(),
            nearest: nearest(name, shards.iter().map(ShardName::as_str), 3),
        })
    }

    /// Fails for a shard that was found absent when the model was opened.
    pub(crate) fn check_present(&self, number: u32) -> Result<()> {
        self.missing.error(number, &self.index).map_or(Ok(()), Err)
    }

    /// The pieces of a tensor; `None` for one that lies whole in its shard.
    pub(crate) fn pieces(&self, tensor: u32) -> Option<&Pieces> {
        self.pieces.get(tensor as usize)?.as_ref()
    }

    /// Fails for a tensor that lies in pieces.
    pub(crate) fn check_whole(&self, tensor: u32) -> Result<()> {
        self.pieces(tensor).map_or(Ok(()), |pieces| {
            Err(Error::TensorInPieces {
                path: self.directory.clone(),
                tensor: self.index.name(tensor).unwrap_or_default().to_owned(),
                pieces: pieces.pieces.len(),
            })
        })
    }

    /// The shard that the index gives for a tensor.
    ///
    /// # Errors
    /// [`Error::MissingShards`] when it was found absent.
    pub(crate) fn shard_of(&self, tensor: u32) -> Result<u32> {
        let shard = self.index.shard_of(tensor).unwrap_or(u32::MAX);
        self.check_present(shard)?;
        Ok(shard)
    }

    /// Divides the model's tensors by a plan. Touches all shards.
    pub(crate) fn divide(&self, plan: &Plan) -> Result<Partition> {
        let numbers: Vec<_> = (0..).zip(self.index.shards()).map(|(number, _)| number).collect();
        let workers = most_workers(available_cores());
        let shards =
            each(&numbers, workers, |&number| self.check_present(number).and_then(|()| self.shard(number)))?;
        let whole = |(tensor, name): (u32, _)| {
            let number = self.index.shard_of(tensor).unwrap_or(u32::MAX);
            let shard = shards.get(number as usize);
            let absent =
                || Error::TensorNotInShard { path: self.directory.clone(), tensor: str::to_owned(name) };
            let entry = entry(shard.ok_or_else(absent)?, name)?;
            let bytes = entry.range.end - entry.range.start;
            Ok(match self.pieces(tensor) {
                None => plan::Tensor { name, dtype: entry.dtype, shape: entry.shape, bytes, shard: number },
                Some(Pieces { dtype, shape, len_bytes, .. }) => {
                    plan::Tensor { name, dtype, shape, bytes: *len_bytes, shard: number }
                }
            })
        };
        let tensors = (0..).zip(self.index.names()).map(whole).collect::<Result<Vec<_>>>()?;
        let partition = plan
            .divide(tensors.iter().copied())
            .map_err(|fault| Error::plan(Some(&self.directory), fault))?;
        Ok(partition.of_model(&self.token))
    }

    /// Whether a part is cut of its tensor in the tensor's own shape, and is known under its name.
    pub(crate) fn is_as_it_is(&self, part: &Part, name: &str) -> Result<bool> {
        if self.index.name(part.tensor) != Some(name) {
            return Ok(false);
        }
        match self.pieces(part.tensor) {
            Some(pieces) => Ok(part.shape == pieces.shape),
            None => Ok(part.shape == entry(&*self.shard(self.shard_of(part.tensor)?)?, name)?.shape),
        }
    }

    /// The error of a tensor for which the system gives no memory of so many bytes.
    pub(crate) fn no_memory(&self, info: &TensorInfo, bytes: u64, error: io::Error) -> Error {
        let path = self.directory.join(info.shard.as_str());
        Error::io(&path, format!("allocate {bytes} bytes"), error).about(&info.name)
    }

    /// The name of the shard with this number.
    pub(crate) fn shard_name(&self, number: u32) -> Result<&ShardName> {
        self.index.shards().get(number as usize).ok_or_else(|| Error::UnknownShard {
            path: self.directory.clone(),
            shard: format!("number {number}"),
            nearest: Vec::new(),
        })
    }

    /// What the header of this shard tells of a tensor that it has, or has a piece of.
    pub(crate) fn info_in(&self, shard: &Shard, tensor: u32) -> Result<TensorInfo> {
        let name = self.index.name(tensor).unwrap_or_default();
        let entry = entry(shard, name)?;
        let (dtype, shape) = (entry.dtype.clone(), entry.shape.to_vec());
        Ok(TensorInfo::new(name.to_owned(), dtype, shape, shard.name.clone(), entry.range))
    }

    /// How many bytes of a tensor this shard has; `None` if it has not the tensor.
    pub(crate) fn bytes_in(&self, shard: &Shard, tensor: u32) -> Option<u64> {
        let range = shard.header().get(self.index.name(tensor)?)?.range;
        Some(range.end - range.start)
    }

    /// The error for a tensor that the index places in a shard which has it not.
    pub(crate) fn not_in(&self, shard: &Shard, tensor: u32) -> Error {
        let tensor = self.index.name(tensor).unwrap_or_default().to_owned();
        Error::TensorNotInShard { path: shard.path.clone(), tensor }
    }

    /// The bytes of all shards' files that are there; `None` if the size of one cannot be had.
    ///
    /// Those that have not been touched are asked for their size, without opening them, once in the life of a
    /// model.
    pub(crate) fn file_bytes(&self) -> Option<u64> {
        if let Some(&bytes) = self.file_bytes.get() {
            return Some(bytes);
        }
        let size = |(number, name): (u32, &ShardName)| match self.checked(number) {
            Some(checked) => Some(checked.identity.bytes),
            None if self.is_missing(number) => Some(0),
            None => Some(std::fs::metadata(name.path_in(&self.directory)).ok()?.len()),
        };
        let mut sizes = (0..).zip(self.index.shards()).map(size);
        let bytes = sizes.try_fold(0, |sum, bytes| u64::checked_add(sum, bytes?))?;
        Some(*self.file_bytes.get_or_init(|| bytes))
    }

    /// The shard with this number: opened, checked and mapped if this is the first touch.
    ///
    /// However many threads ask at once, one of them opens the file and all get what came of it. A failure is
    /// not kept: the next call tries again.
    pub(crate) fn shard(&self, number: u32) -> Result<Arc<Shard>> {
        Ok(self.touch(number)?.0)
    }

    /// As [`Pool::shard`], and whether it was this very call that read and checked the header.
    pub(crate) fn touch(&self, number: u32) -> Result<(Arc<Shard>, bool)> {
        // The guards of the map are dropped with these statements: no lock is held over the file operations.
        let touched = &self.here().touched;
        let touch = touched.get(&number).map(|touch| Arc::clone(&touch));
        let touch = touch.unwrap_or_else(|| Arc::clone(&touched.entry(number).or_default()));
        let mut is_first = false;
        let result = touch.get_or_init(|| {
            is_first = self.checked(number).is_none();
            self.open(number).map(Arc::new)
        });
        match result {
            Ok(shard) => Ok((Arc::clone(shard), is_first)),
            Err(error) => {
                touched.remove_if(&number, |_, kept| Arc::ptr_eq(kept, &touch));
                Err(error.clone())
            }
        }
    }

    /// Lets go of a shard's mapping and descriptor; the mapping ends when the last tensor that lies in it is
    /// dropped. A first touch that is under way is left alone, so that the file is not opened twice.
    pub(crate) fn release(&self, number: u32) {
        let Opening { touched, descriptors, .. } = self.here();
        touched.remove_if(&number, |_, touch| touch.get().is_some());
        descriptors.remove(number);
    }

    /// What the first touch of a shard learnt, if it has been touched.
    pub(crate) fn checked(&self, number: u32) -> Option<&Checked> {
        self.here().checked.get(number as usize)?.get()
    }

    /// A descriptor of a shard: one that is still open, or the file opened again and shown to be the same.
    pub(crate) fn file(&self, shard: &Shard) -> Result<Arc<File>> {
        self.descriptor(shard, Access::Cached, open_same)
    }

    /// As [`Pool::file`], for reads past the page cache.
    pub(crate) fn direct_file(&self, shard: &Shard) -> Result<Arc<File>> {
        self.descriptor(shard, Access::Direct, open_same_direct)
    }

    fn descriptor(
        &self,
        shard: &Shard,
        access: Access,
        open: fn(&Path, &FileIdentity) -> Result<File>,
    ) -> Result<Arc<File>> {
        let descriptors = &self.here().descriptors;
        if let Some(file) = descriptors.get(shard.number, access) {
            return Ok(file);
        }
        let file = descriptors.spare(|| open(&shard.path, &shard.checked.identity))?;
        self.opened.fetch_add(1, Relaxed);
        Ok(descriptors.keep(shard.number, access, file))
    }

    /// A descriptor of a shard that was shown, just now, to be still the file that was checked.
    pub(crate) fn verified_file(&self, shard: &Shard) -> Result<Arc<File>> {
        self.verified(shard, None)
    }

    /// As [`Pool::verified_file`], by the descriptor that is at hand, if one is.
    pub(crate) fn verified(&self, shard: &Shard, at_hand: Option<&Arc<File>>) -> Result<Arc<File>> {
        let file = at_hand.map_or_else(|| self.file(shard), |file| Ok(Arc::clone(file)))?;
        shard.verify_unchanged(&file)?;
        Ok(file)
    }

    /// How often a shard's file was opened since the model was.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.load(Relaxed)
    }

    fn open(&self, number: u32) -> Result<Shard> {
        let name = self.shard_name(number)?.clone();
        let _span = tracing::debug_span!("first_touch", shard = name.as_str()).entered();
        let path = name.path_in(&self.directory);
        let before = self.checked(number);
        let descriptors = &self.here().descriptors;
        let (shard, file) = descriptors.spare(|| match before {
            Some(checked) => Shard::reopen(number, name.clone(), path.clone(), checked.clone()),
            None => Shard::open(number, name.clone(), path.clone(), self.rules),
        })?;
        match before {
            Some(_) => drop(self.opened.fetch_add(1, Relaxed)),
            None => self.count_first_touch(&shard),
        }
        descriptors.keep(number, Access::Cached, file);
        Ok(shard)
    }

    fn count_first_touch(&self, shard: &Shard) {
        self.opened.fetch_add(1, Relaxed);
        if let Some(slot) = self.here().checked.get(shard.number as usize) {
            slot.get_or_init(|| shard.checked.clone());
        }
        if self.rules.is_lenient {
            shard.warnings().for_each(|warning| tracing::warn!("{warning}"));
        }
        tracing::debug!(tensors = shard.header().len(), bytes = shard.checked.identity.bytes, "checked");
    }
}

/// What the header of a shard tells of a tensor that the index places in it.
fn entry<'a>(shard: &'a Shard, name: &str) -> Result<HeaderEntry<'a>> {
    let absent = || Error::TensorNotInShard { path: shard.path.clone(), tensor: name.to_owned() };
    shard.header().get(name).ok_or_else(absent)
}
