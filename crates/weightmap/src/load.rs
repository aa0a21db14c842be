//! A selection, loaded at once.

mod job;
mod options;

use std::collections::HashMap;
use std::sync::OnceLock;

pub(crate) use job::Job;
pub use options::LoadOptions;

use crate::error::{Error, Result};
use crate::report::LoadReport;
use crate::select::Selection;
use crate::tensor::Tensor;

/// The tensors of a selection, loaded.
#[derive(Debug)]
pub struct Loaded {
    tensors: Vec<Tensor>,
    by_name: HashMap<Box<str>, usize>,
    report: LoadReport,
}

impl Loaded {
    fn new(tensors: Vec<Tensor>, report: LoadReport) -> Self {
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
    /// Those of [`Selection::load`].
    pub fn load_with(&self, options: &LoadOptions) -> Result<Loaded> {
        let job = Job::new(self, options, u64::MAX)?;
        let slots: Vec<_> = self.tensors.iter().map(|_| OnceLock::new()).collect();
        let report = job.run(|item, tensor| {
            // Each place is delivered to once, so there is nothing to be refused.
            let _ = slots[item].set(tensor);
        })?;
        // A load that succeeded has delivered to every place.
        let tensors = slots.into_iter().map(OnceLock::into_inner).collect::<Option<_>>();
        Ok(Loaded::new(tensors.ok_or(Error::Cancelled)?, report))
    }
}
