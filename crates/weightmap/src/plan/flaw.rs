//! What is wrong with a part of a plan, before it is known which tensors it is about.

use std::collections::HashMap;

use crate::dtype::Dtype;
use crate::error::{PlanError, PlanFault};

/// A fault without the rule and the tensor that it is about.
#[derive(Debug, Clone)]
pub(super) struct Flaw {
    pub(super) kind: &'static str,
    pub(super) message: String,
}

impl Flaw {
    pub(super) fn new(kind: &'static str, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

/// Faults as they are found, each sort of them once.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Each with the number of its first tensor.
    found: Vec<(u32, PlanFault)>,
    /// By kind, rule and place in the rule.
    sorts: HashMap<(&'static str, Option<usize>, usize), usize>,
}

impl Faults {
    /// Adds a fault of a tensor: of those that the same place of a rule has in the same way, the first is told and the
    /// others are counted.
    pub(super) fn add(&mut self, rule: Option<usize>, place: usize, tensor: (u32, &str), flaw: &Flaw) {
        let sort = (flaw.kind, rule, place);
        if let Some((_, fault)) = self.sorts.get(&sort).and_then(|&at| self.found.get_mut(at)) {
            fault.more += 1;
            return;
        }
        self.sorts.insert(sort, self.found.len());
        let mut fault = PlanFault::new(flaw.kind, flaw.message.as_str()).tensor(tensor.1);
        fault.rule = rule;
        self.found.push((tensor.0, fault));
    }

    /// An error with all faults in the order of the model, if there are any.
    pub(super) fn into_result(mut self) -> Result<(), PlanError> {
        self.found.sort_by_key(|&(tensor, _)| tensor);
        match self.found.is_empty() {
            true => Ok(()),
            false => Err(PlanError { faults: self.found.into_iter().map(|(_, fault)| fault).collect() }),
        }
    }
}

/// How much work a plan may still cause: pieces that cuts consist of, ranks that are looked at.
#[derive(Debug)]
pub(super) struct Budget {
    left: u64,
}

impl Budget {
    pub(super) fn new(work: u64) -> Self {
        Self { left: work }
    }

    pub(super) fn spend(&mut self, work: u64) -> Result<(), Flaw> {
        match self.left.checked_sub(work) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(Flaw::new(
                "PlanTooLarge",
                "expected parts of few pieces, found more than can be kept; cut into larger units, or over fewer ranks",
            )),
        }
    }
}

/// That the bytes of a shape can be counted with a bit to spare, as those of memory can.
pub(super) fn countable(shape: impl Iterator<Item = u64>, dtype: &Dtype) -> Result<(), Flaw> {
    let elements = shape.fold(1_u128, |product, len| product.saturating_mul(u128::from(len)));
    let bits = elements.saturating_mul(u128::from(dtype.bits().unwrap_or(8)));
    if bits / 8 <= u128::from(u64::MAX >> 1) { Ok(()) } else { Err(too_many_elements()) }
}

pub(super) fn too_many_elements() -> Flaw {
    Flaw::new("PlanTooLarge", "expected as many elements as 64 bits can count, found more")
}
