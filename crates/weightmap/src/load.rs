//! A selection, loaded at once.

mod budget;
mod gathering;
mod job;
mod long;
mod options;
mod outputs;
mod part;
mod queue;
mod reading;
mod room;

use std::collections::HashMap;
use std::fmt;
use std::sync::OnceLock;

pub(crate) use budget::{Keeps, check_fits};
pub(crate) use job::Job;
pub use options::LoadOptions;
pub(crate) use outputs::{Output, Outputs};

use crate::error::{Error, Result};
use crate::read::Purpose;
use crate::report::LoadReport;
use crate::select::Selection;
use crate::tensor::Tensor;
use crate::tensor_info::TensorInfo;

/// The tensors of a selection, loaded.
pub struct Loaded {
    tensors: Vec<Tensor>,
    by_name: HashMap<Box<str>, usize>,
    report: LoadReport,
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.tensors).finish()
    }
}

impl Loaded {
    pub(crate) fn new(tensors: Vec<Tensor>, report: LoadReport) -> Self {
        let names = tensors.iter().enumerate();
        let by_name = names.map(|(place, tensor)| (tensor.name().into(), place)).collect();
        Self { tensors, by_name, report }
    }

    /// The tensor with this name, if it was selected.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(*self.by_name.get(name)?)
    }

    /// The tensors, in the order in which they were asked for.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The tensors themselves, in the order in which they were asked for.
    pub fn into_tensors(self) -> Vec<Tensor> {
        self.tensors
    }

    /// What loading them cost.
    pub fn report(&self) -> &LoadReport {
        &self.report
    }
}

impl Selection {
    /// Loads the selected tensors in parallel; they come in the order in which they were asked for.
    ///
    /// # Errors
    /// [`Error::EmptySelection`]; those of a shard's first touch; [`Error::TensorNotInShard`];
    /// [`Error::ShardChanged`] when a file is not as it was when it was checked, also when that happens while
    /// it is read; [`Error::Io`].
    pub fn load(&self) -> Result<Loaded> {
        self.load_with(&LoadOptions::default())
    }

    /// As [`Selection::load`], with options.
    ///
    /// # Errors
    /// Those of [`Selection::load`], and [`Error::MemoryLimit`].
    pub fn load_with(&self, options: &LoadOptions) -> Result<Loaded> {
        let job = Job::new(self, options, Purpose::Tensors)?;
        let slots: Vec<_> = (0..self.len()).map(|_| OnceLock::new()).collect();
        let report = job.run(Keeps::All, |item, tensor| {
            // Each place is delivered to once, so there is nothing to be refused.
            let _ = slots[item].set(tensor);
        })?;
        // A load that succeeded has delivered to every place.
        let tensors = slots.into_iter().map(OnceLock::into_inner).collect::<Option<_>>();
        Ok(Loaded::new(tensors.ok_or(Error::Cancelled)?, report))
    }

    /// Loads the selected tensors into memory of the caller's, as pinned memory or that of an array: `buffer`
    /// gives for each of them memory of [`TensorInfo::len_bytes`] bytes, at any address. It is asked in the order
    /// of the selection, after the shards have been opened and before any data is read.
    ///
    /// ```
    /// # let checkpoint = weightmap_testkit::Llama::tiny().checkpoint().temp();
    /// # let model = weightmap::ShardedModel::open(checkpoint.path())?;
    /// let layer = model.select().glob("model.layers.0.*")?;
    /// let mut memory = vec![0; layer.infos()?.iter().map(|info| info.len_bytes() as usize).sum()];
    /// let mut rest = memory.as_mut_slice();
    /// let report = layer.load_into(|info| {
    ///     let (buffer, later) = std::mem::take(&mut rest).split_at_mut(info.len_bytes() as usize);
    ///     rest = later;
    ///     buffer
    /// })?;
    /// assert_eq!(report.requested_bytes, memory.len() as u64);
    /// # Ok::<(), weightmap::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Selection::load`], and [`Error::TargetLength`]. After an error the memory may hold anything.
    pub fn load_into<'a>(&self, buffer: impl FnMut(&TensorInfo) -> &'a mut [u8]) -> Result<LoadReport> {
        self.load_into_with(&LoadOptions::default(), buffer)
    }

    /// As [`Selection::load_into`], with options.
    ///
    /// # Errors
    /// Those of [`Selection::load_into`].
    pub fn load_into_with<'a>(
        &self,
        options: &LoadOptions,
        mut buffer: impl FnMut(&TensorInfo) -> &'a mut [u8],
    ) -> Result<LoadReport> {
        let job = Job::new(self, options, Purpose::Lent)?;
        let prepared = job.prepare()?;
        let buffers = prepared.outputs.iter().map(|output| {
            let info = &output.info;
            let given = buffer(info);
            if given.len() as u64 == info.len_bytes() {
                return Ok(given);
            }
            Err(Error::TargetLength {
                path: info.shard.as_str().into(),
                tensor: info.name.clone(),
                expected: info.len_bytes(),
                found: given.len() as u64,
            })
        });
        let buffers = buffers.collect::<Result<Vec<_>>>()?;
        job.finish(prepared, Keeps::All, Some(buffers), |_, _| ())
    }

    /// Brings what the selected tensors need into the page cache, for whoever loads or maps them next, in
    /// windows of a few megabytes at a time; the process keeps none of it.
    ///
    /// # Errors
    /// Those of [`Selection::load`].
    pub fn prefetch(&self) -> Result<LoadReport> {
        self.prefetch_with(&LoadOptions::default())
    }

    /// As [`Selection::prefetch`], with options. Whatever their mode, it is done by reads by position.
    ///
    /// # Errors
    /// Those of [`Selection::prefetch`].
    pub fn prefetch_with(&self, options: &LoadOptions) -> Result<LoadReport> {
        Job::new(self, options, Purpose::Cache)?.run(Keeps::All, |_, _| ())
    }
}

#[cfg(test)]
mod tests;
