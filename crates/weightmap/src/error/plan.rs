//! Plans that cannot be carried out.

use std::fmt;

use super::quote::quote;

/// How many faults a message shows; all of them are in the error.
const MOST_SHOWN: usize = 20;

/// Why a plan cannot be read, or cannot be carried out on a model: all that is wrong with it, at once. A plan that is
/// refused is refused for every rank.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanError {
    /// The faults: those of the plan itself, or, where it has none, those of the tensors in the order of the model.
    pub faults: Vec<PlanFault>,
}

/// One thing that is wrong with a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlanFault {
    /// The kind of fault, a name listed in `docs/errors.md`: `PlanUneven`, `PlanAxis`.
    pub kind: &'static str,
    /// The rule that it is about, counted from 0; `None` where it is about none.
    pub rule: Option<usize>,
    /// The first tensor that it is about; `None` where it is about none.
    pub tensor: Option<String>,
    /// How many more tensors have the same fault by the same rule.
    pub more: u64,
    /// What was expected and what was found, and what to do.
    pub message: String,
}

impl PlanFault {
    pub(crate) fn new(kind: &'static str, message: impl Into<String>) -> Self {
        Self { kind, rule: None, tensor: None, more: 0, message: message.into() }
    }

    pub(crate) fn rule(mut self, rule: usize) -> Self {
        self.rule = Some(rule);
        self
    }

    pub(crate) fn tensor(mut self, tensor: &str) -> Self {
        self.tensor = Some(tensor.to_owned());
        self
    }
}

impl PlanError {
    /// The kind of its first fault.
    pub fn kind(&self) -> &'static str {
        self.faults.first().map_or("PlanSyntax", |fault| fault.kind)
    }
}

impl fmt::Display for PlanFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] ", self.kind)?;
        if let Some(rule) = self.rule {
            write!(f, "rule {rule}: ")?;
        }
        if let Some(tensor) = &self.tensor {
            write!(f, "tensor {}", quote(tensor))?;
            match self.more {
                0 => f.write_str(": ")?,
                more => write!(f, " and {more} more: ")?,
            }
        }
        f.write_str(&self.message)
    }
}

impl fmt::Display for PlanError {
    /// One fault in the same line, several in a line each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.faults.as_slice() {
            [one] => write!(f, "the plan cannot be carried out: {one}"),
            faults => {
                write!(f, "the plan has {} faults:", faults.len())?;
                for fault in faults.iter().take(MOST_SHOWN) {
                    write!(f, "\n  {fault}")?;
                }
                match faults.len().saturating_sub(MOST_SHOWN) {
                    0 => Ok(()),
                    more => write!(f, "\n  and {more} more"),
                }
            }
        }
    }
}

impl std::error::Error for PlanError {}
