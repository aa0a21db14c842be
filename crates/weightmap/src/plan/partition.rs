//! What each rank has of a model.

use std::ops::Range;
use std::sync::Arc;

use super::dim_cut::DimCut;
use super::laid::Laid;
use super::local::Local;
use super::mesh::Axis;
use super::outputs::{Group, NONE, Output};
use super::owners::Owner;
use super::totals::{Counts, RankTotal};
use crate::assembly::Assembly;
use crate::dtype::Dtype;
use crate::error::{PlanError, PlanFault};
use crate::names::NameTable;
use crate::warning::Warning;

/// What is known of a tensor that is to be divided.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tensor<'a> {
    pub(crate) name: &'a str,
    pub(crate) dtype: &'a Dtype,
    pub(crate) shape: &'a [u64],
    pub(crate) bytes: u64,
    /// The number of its shard.
    pub(crate) shard: u32,
}

/// What each rank has of a model, by a plan.
#[derive(Debug, Clone)]
pub struct Partition {
    pub(super) world: u32,
    pub(super) warnings: Vec<Warning>,
    /// Of all tensors.
    pub(super) bytes: u64,
    /// Of those that no rank has.
    pub(super) dropped_bytes: u64,
    pub(super) tables: Arc<Tables>,
    /// Of the model that it was made for.
    pub(super) token: Arc<()>,
}

/// What a partition consists of. Tensors of one class are divided in the same way, so that it takes little more for a
/// million ranks than for one.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) names: NameTable,
    /// By tensor, its class; [`NONE`] where no rank has it.
    pub(super) tensors: Vec<u32>,
    pub(super) classes: Vec<Class>,
    pub(super) owners: Vec<Owner>,
    pub(super) cuts: Vec<Cut>,
    pub(super) dims: Vec<DimCut>,
    pub(super) shapes: Vec<Vec<u64>>,
    pub(super) dtypes: Vec<Dtype>,
    pub(super) outputs: Vec<Output>,
    pub(super) groups: Vec<Group>,
    /// By tensor, the group that takes it; [`NONE`] where none does. Empty where there are no groups.
    pub(super) taken: Vec<u32>,
}

/// Tensors of which each rank has the same part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Class {
    pub(super) owner: u32,
    pub(super) cut: u32,
    pub(super) shape: u32,
    pub(super) dtype: u32,
    /// Of a whole tensor.
    pub(super) bytes: u64,
}

/// How a tensor is cut.
#[derive(Debug, Clone)]
pub(super) enum Cut {
    /// Each dimension by itself.
    Dims(Vec<u32>),
    /// As if there were one of `elements`, of which each coordinate has `chunk`.
    Flat { axis: Axis, elements: u64, chunk: u64, pad: bool },
}

/// What one rank has of a tensor, or puts together of several.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlannedTensor {
    /// The name of the tensor, or of the output that is put together.
    pub name: String,
    /// The type of the elements.
    pub dtype: Dtype,
    /// The length of each dimension, outermost first, with what is padded.
    pub local_shape: Vec<u64>,
    /// By dimension, how many elements at its end are padding.
    pub pad: Vec<u64>,
    /// The bytes of it that are in the checkpoint: without padding.
    pub bytes: u64,
    /// What it consists of, in the order in which it lies in it: a tensor that is put together with others group by
    /// group comes once for each group.
    pub parts: Vec<PlannedPart>,
}

/// What of a tensor a rank has.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlannedPart {
    /// The tensor.
    pub tensor: String,
    /// By dimension, the indices, in the order in which they lie in the local tensor, adjacent ones joined; of a flat
    /// part, one dimension of elements.
    pub intervals: Vec<Vec<Range<u64>>>,
    /// Whether the tensor is cut as if it had one dimension.
    pub is_flat: bool,
}

impl Partition {
    /// How many ranks there are.
    pub fn world(&self) -> usize {
        self.world as usize
    }

    /// What is no fault and somebody should know of: rules that match nothing.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The bytes of all tensors of the model.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes of the tensors of which no rank has anything.
    pub fn dropped_bytes(&self) -> u64 {
        self.dropped_bytes
    }

    /// The same, known to be made for the model that has this token.
    pub(crate) fn of_model(self, token: &Arc<()>) -> Self {
        Self { token: Arc::clone(token), ..self }
    }

    /// Fails unless it was made for the model that has this token.
    pub(crate) fn check_model(&self, token: &Arc<()>) -> Result<(), PlanError> {
        if Arc::ptr_eq(&self.token, token) {
            return Ok(());
        }
        let fault = PlanFault::new("PlanModel", "the partition is of another model; divide this one");
        Err(PlanError { faults: vec![fault] })
    }

    /// What a rank has, in the order of the model; outputs stand where the first of their parts does. Nothing for a
    /// rank that is not below [`world`](Self::world).
    pub fn rank(&self, rank: usize) -> impl Iterator<Item = PlannedTensor> + '_ {
        let tables = &self.tables;
        self.laid(rank).map(move |laid| tables.planned(&laid))
    }

    /// The same, for loading it.
    pub(crate) fn assemblies(&self, rank: usize) -> impl Iterator<Item = Assembly> + '_ {
        self.laid(rank).map(|laid| self.tables.assembly(&laid))
    }

    /// How many tensors and outputs a rank has, and how many bytes of the checkpoint these are. A table of all ranks is
    /// best made by asking for all of them in one iteration.
    pub fn totals(&self) -> impl ExactSizeIterator<Item = RankTotal> + '_ {
        let counts = Counts::new(&self.tables);
        (0..self.world).map(move |rank| counts.of(&self.tables, rank))
    }

    /// The parts of a rank, by the numbers of their tensors and in the order of the model, whatever is put together of
    /// them.
    pub(crate) fn parts(&self, rank: usize) -> impl Iterator<Item = (u32, Local<'_>)> + '_ {
        let tables = &*self.tables;
        let owned = self.owned(rank);
        let rank = u32::try_from(rank).unwrap_or(NONE);
        (0..).zip(&tables.tensors).filter_map(move |(tensor, &class)| {
            owned.get(class as usize)?.then(|| Some((tensor, tables.local(class, rank)?))).flatten()
        })
    }

    /// By class, whether a rank has something of its tensors.
    fn owned(&self, rank: usize) -> Vec<bool> {
        let rank = u32::try_from(rank).ok().filter(|&rank| rank < self.world);
        let by_owner: Vec<_> =
            self.tables.owners.iter().map(|owner| rank.is_some_and(|rank| owner.owns(rank))).collect();
        let of_class = |class: &Class| by_owner.get(class.owner as usize).copied().unwrap_or(false);
        self.tables.classes.iter().map(of_class).collect()
    }

    /// What a rank has, with the places of all parts.
    fn laid(&self, rank: usize) -> impl Iterator<Item = Laid<'_>> + '_ {
        let tables = &*self.tables;
        let owned = self.owned(rank);
        let mut is_made = vec![false; tables.groups.len()];
        let rank = u32::try_from(rank).unwrap_or(NONE);
        (0..).zip(&tables.tensors).filter_map(move |(tensor, &class)| {
            if !*owned.get(class as usize)? {
                return None;
            }
            match tables.taken.get(tensor as usize) {
                Some(&group) if group != NONE => {
                    let made = is_made.get_mut(group as usize)?;
                    if std::mem::replace(made, true) {
                        return None;
                    }
                    // What cannot be put together has been refused as a fault of the plan.
                    tables.lay(group, rank).ok().flatten()
                }
                _ => Some(Laid::alone(tensor, tables.local(class, rank)?)),
            }
        })
    }
}
