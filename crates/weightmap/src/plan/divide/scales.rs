//! Tensors that hold the scales of others.

use super::{DimKey, Divider};
use crate::error::quote;
use crate::plan::dim_cut::DimCut;
use crate::plan::flaw::Flaw;
use crate::plan::matching::Hit;
use crate::plan::outputs::{FAULTY, NONE};
use crate::plan::partition::{Cut, Tensor};
use crate::plan::rules::{Piece, Rule, Treatment};

impl Divider<'_> {
    /// Finds the classes of tensors that hold scales, from those of their weights.
    pub(super) fn divide_scales<'t>(
        &mut self,
        tensors: impl Iterator<Item = Tensor<'t>>,
        scales: Vec<(u32, Hit)>,
    ) {
        let mut tensors = (0..).zip(tensors);
        let plan = self.plan;
        for (number, hit) in scales {
            let Some((_, tensor)) = tensors.find(|&(other, _)| other == number) else { break };
            let Some(rule) = plan.rules.get(hit.rule) else { continue };
            let class = self.scale_class(rule, &hit, number, &tensor).unwrap_or_else(|(place, flaw)| {
                self.faults.add(Some(hit.rule), place, (number, tensor.name), &flaw);
                FAULTY
            });
            if let Some(of_tensor) = self.tensors.get_mut(number as usize) {
                *of_tensor = class;
            }
        }
    }

    /// The class of a tensor that holds scales; [`NONE`] where its weight is dropped.
    fn scale_class(
        &mut self,
        rule: &Rule,
        hit: &Hit,
        number: u32,
        tensor: &Tensor<'_>,
    ) -> Result<u32, (usize, Flaw)> {
        let flaw = |message: String| (0, Flaw::new("PlanScale", message));
        let Treatment::Scale { weight, block } = &rule.treatment else { return Ok(NONE) };
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Slot(slot) => hit.text(*slot, tensor.name).unwrap_or_default().to_owned(),
        };
        let weight: String = weight.iter().map(piece).collect();
        let shown = quote(&weight);
        let of = self
            .names
            .find(&weight)
            .ok_or_else(|| flaw(format!("expected the weight {shown}, found no such tensor")))?;
        let weights = self.rules.get(of as usize).and_then(|&rule| self.plan.rules.get(rule as usize));
        match weights.map(|rule| &rule.treatment) {
            Some(Treatment::Drop) => return Ok(NONE),
            Some(Treatment::Scale { .. }) => {
                return Err(flaw(format!(
                    "expected {shown} to be a weight, found that `scale_of` matches it too"
                )));
            }
            _ => {}
        }
        // A weight without a class has a fault of its own.
        let class =
            self.tensors.get(of as usize).and_then(|&class| self.classes.all.get(class as usize)).copied();
        let Some(class) = class else { return Ok(FAULTY) };
        let Some(Cut::Dims(dims)) = self.cuts.get(class.cut as usize).cloned() else {
            return Err(flaw(format!("expected a weight that is not cut flat, found that {shown} is")));
        };
        let of_weight = self.shapes.all.get(class.shape as usize).map_or(&[][..], Vec::as_slice);
        if block.len() != of_weight.len() {
            let message = format!(
                "expected a `block` of {} lengths, as {shown} has dimensions, found {}",
                of_weight.len(),
                block.len()
            );
            return Err(flaw(message));
        }
        let expected: Vec<_> =
            of_weight.iter().zip(block).map(|(len, block)| len.div_ceil((*block).max(1))).collect();
        if expected != tensor.shape {
            let message = format!(
                "expected the shape {expected:?} for blocks of {block:?} in {shown}, found {:?}",
                tensor.shape
            );
            return Err(flaw(message));
        }
        let shape = self.shapes.of(tensor.shape);
        let cut = self.cut((hit.rule, shape, class.cut), |divider| {
            let scaled = |(&dim, &block): (&u32, &u64)| {
                divider.dim(DimKey::Scaled { dim, block }, |divider| {
                    let Some(of_weight) = divider.dims.get(dim as usize) else { return Ok(DimCut::whole(0)) };
                    of_weight.scaled(block.max(1), &mut divider.budget).map_err(|flaw| (0, flaw))
                })
            };
            dims.iter().zip(block).map(scaled).collect::<Result<_, _>>().map(Cut::Dims)
        })?;
        let owner = match rule.own.is_empty() {
            true => class.owner,
            false => {
                let own = self.owners.of(rule, hit, number, tensor.name, &mut self.budget);
                own.map_err(|(place, flaw)| (usize::MAX / 2 + place, flaw))?
            }
        };
        self.number(tensor, shape, cut, owner)
    }
}
