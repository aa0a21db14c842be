//! In how many ways the ranks of a job divide a model.

use crate::error::PlanFault;

/// In how many ways the ranks of a job divide a model; 1 of each unless told. For
/// [`Plan::for_model`](crate::Plan::for_model).
///
/// There are `pp × dp × tp` ranks. They are numbered pipeline stage by stage, and within a stage replica by replica,
/// so that neighbouring ranks share a replica's layers. Experts see the ranks of a stage in another way, see
/// [`ep`](Self::ep).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Parallel {
    tp: u64,
    pp: u64,
    ep: u64,
    dp: u64,
}

impl Default for Parallel {
    fn default() -> Self {
        Self { tp: 1, pp: 1, ep: 1, dp: 1 }
    }
}

impl Parallel {
    /// Over how many ranks each layer is cut (tensor parallel).
    pub fn tp(mut self, tp: u64) -> Self {
        self.tp = tp;
        self
    }

    /// Over how many stages the layers are divided (pipeline parallel).
    pub fn pp(mut self, pp: u64) -> Self {
        self.pp = pp;
        self
    }

    /// How many replicas of the model there are (data parallel). What is not an expert's, all of them have alike.
    pub fn dp(mut self, dp: u64) -> Self {
        self.dp = dp;
        self
    }

    /// Over how many ranks the experts of a layer are divided (expert parallel), each whole. It must divide the
    /// `dp × tp` ranks of a stage: each `ep` neighbouring ones have all experts once. With 1, experts are cut over
    /// `tp` as the rest of the layer is.
    pub fn ep(mut self, ep: u64) -> Self {
        self.ep = ep;
        self
    }

    /// How many ranks there are; `None` if there is no such number.
    pub fn world(&self) -> Option<u64> {
        self.stage()?.checked_mul(self.pp)
    }

    /// How many ranks a stage has.
    fn stage(&self) -> Option<u64> {
        self.dp.checked_mul(self.tp)
    }

    pub(super) fn tensor(&self) -> u64 {
        self.tp
    }

    pub(super) fn stages(&self) -> u64 {
        self.pp
    }

    pub(super) fn experts(&self) -> u64 {
        self.ep
    }

    /// The views of the world: `dense` for all tensors, and `expert` where experts are divided. The stages are the
    /// same in both.
    pub(super) fn meshes(&self) -> Result<Vec<Mesh>, PlanFault> {
        let sizes = [("tp", self.tp), ("pp", self.pp), ("ep", self.ep), ("dp", self.dp)];
        if let Some((axis, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(PlanFault::new(
                "PlanWorld",
                format!("{axis} is 0; it is 1 where nothing is divided by it"),
            ));
        }
        let (Some(stage), Some(_)) = (self.stage(), self.world()) else {
            let Self { tp, pp, dp, .. } = self;
            let message = format!("pp {pp} × dp {dp} × tp {tp} are more ranks than can be counted");
            return Err(PlanFault::new("PlanWorld", message));
        };
        let mut meshes = vec![mesh("dense", [("pp", self.pp), ("dp", self.dp), ("tp", self.tp)])];
        if self.ep > 1 {
            let Some(replicas) = stage.checked_div(self.ep).filter(|replicas| replicas * self.ep == stage)
            else {
                return Err(PlanFault::new("PlanWorld", self.misfit(stage)));
            };
            meshes.push(mesh("expert", [("pp", self.pp), ("edp", replicas), ("ep", self.ep)]));
        }
        Ok(meshes)
    }

    fn misfit(&self, stage: u64) -> String {
        let Self { tp, ep, dp, .. } = self;
        format!(
            "ep {ep} does not divide the {stage} ranks of a pipeline stage (dp {dp} × tp {tp}), which are the ranks \
             that experts are divided over; choose an ep that does, or a multiple of it for dp × tp"
        )
    }
}

/// A view of the world: its name, and axes with their sizes.
pub(super) type Mesh = (String, Vec<(String, u64)>);

fn mesh(name: &str, axes: [(&str, u64); 3]) -> Mesh {
    (name.to_owned(), axes.map(|(axis, size)| (axis.to_owned(), size)).to_vec())
}
