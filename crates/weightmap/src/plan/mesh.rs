//! The world and its views.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::flaw::Flaw;
use crate::error::{list, quote};

/// The most ranks that a plan may have.
const MOST_RANKS: u64 = 1 << 20;

/// An axis of a view: which coordinate a rank has on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Axis {
    /// How many neighbouring ranks have the same coordinate.
    pub(super) stride: u32,
    /// How many coordinates there are; never 0.
    pub(super) size: u32,
}

impl Axis {
    pub(super) fn coordinate(self, rank: u32) -> u32 {
        rank.checked_div(self.stride).and_then(|of| of.checked_rem(self.size)).unwrap_or(0)
    }

    /// Whether some ranks that have one coordinate of this axis are bound to have certain ones of another.
    pub(super) fn binds(self, other: Self) -> bool {
        let end = |axis: Self| u64::from(axis.stride) * u64::from(axis.size);
        self.size > 1
            && other.size > 1
            && u64::from(self.stride.max(other.stride)) < end(self).min(end(other))
    }
}

/// One world of ranks, and the axes that it is seen by.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) size: u32,
    /// By name, and by name after that of its mesh.
    axes: HashMap<String, Named>,
}

/// What the name of an axis means.
#[derive(Debug, Clone)]
enum Named {
    One {
        axis: Axis,
        mesh: String,
    },
    /// Different coordinates in these two meshes.
    Ambiguous([String; 2]),
}

impl World {
    /// The world of some views; with all that is wrong with them.
    pub(super) fn new(meshes: &BTreeMap<String, Vec<(String, u64)>>) -> Result<Self, Vec<Flaw>> {
        let mut flaws = Vec::new();
        let mut sizes = Vec::new();
        let (mut axes, mut full) = (HashMap::new(), HashMap::new());
        for (name, written) in meshes {
            // What follows a dot is an axis of the mesh before it.
            if let Some(dotted) =
                written.iter().map(|(axis, _)| axis).chain([name]).find(|name| name.contains('.'))
            {
                let message =
                    format!("expected names of meshes and axes without dots, found {}", quote(dotted));
                flaws.push(Flaw::new("PlanAxis", message));
            }
            let mut seen = HashSet::new();
            if let Some((axis, _)) = written.iter().find(|(axis, _)| !seen.insert(axis)) {
                let shown = (quote(name), quote(axis));
                let message =
                    format!("mesh {} has axis {} twice; give each a name of its own", shown.0, shown.1);
                flaws.push(Flaw::new("PlanAxis", message));
            }
            match view(written) {
                Ok((view, size)) => {
                    sizes.push((name, size));
                    for (axis, of) in view {
                        full.insert(format!("{name}.{axis}"), Named::One { axis: of, mesh: name.clone() });
                        add(&mut axes, axis, of, name);
                    }
                }
                Err(message) => {
                    flaws.push(Flaw::new("PlanWorld", format!("mesh {}: {message}", quote(name))));
                }
            }
        }
        let size = sizes.first().map(|&(_, size)| size);
        if sizes.iter().any(|&(_, other)| Some(other) != size) {
            let shown = sizes.iter().map(|(name, size)| format!("{} {size}", quote(name)));
            let message = format!(
                "expected meshes of the same number of ranks, found {}; they are views of one world",
                list(shown, sizes.len() as u64)
            );
            flaws.push(Flaw::new("PlanWorld", message));
        }
        if meshes.is_empty() {
            let message = "expected at least one mesh, found none; write the axes of the ranks";
            flaws.push(Flaw::new("PlanWorld", message));
        }
        for (name, axis) in full {
            axes.entry(name).or_insert(axis);
        }
        if flaws.is_empty() { Ok(Self { size: size.unwrap_or(1), axes }) } else { Err(flaws) }
    }

    /// The axis of a name, which may have its mesh before it: `dense.tp`.
    pub(super) fn axis(&self, name: &str) -> Result<Axis, Flaw> {
        match self.axes.get(name) {
            Some(Named::One { axis, .. }) => Ok(*axis),
            Some(Named::Ambiguous([first, second])) => {
                let message = format!(
                    "axis {} is another one in mesh {} than in mesh {}; write `{first}.{name}` or `{second}.{name}`",
                    quote(name),
                    quote(first),
                    quote(second)
                );
                Err(Flaw::new("PlanAxis", message))
            }
            None => {
                let mut known: Vec<_> = self.axes.keys().filter(|known| !known.contains('.')).collect();
                known.sort_unstable();
                let known = list(known.iter().map(|known| quote(known)), known.len() as u64);
                Err(Flaw::new(
                    "PlanAxis",
                    format!("expected an axis of the meshes ({known}), found {}", quote(name)),
                ))
            }
        }
    }
}

/// Adds an axis of a mesh by its name.
fn add(axes: &mut HashMap<String, Named>, name: String, of: Axis, mesh: &str) {
    let named = axes.entry(name).or_insert_with(|| Named::One { axis: of, mesh: mesh.to_owned() });
    if let Named::One { axis, mesh: first } = named
        && *axis != of
    {
        *named = Named::Ambiguous([std::mem::take(first), mesh.to_owned()]);
    }
}

/// The axes of a view with their strides, and the number of its ranks.
fn view(axes: &[(String, u64)]) -> Result<(Vec<(String, Axis)>, u32), String> {
    let mut stride = 1_u64;
    let mut view = Vec::with_capacity(axes.len());
    for (name, size) in axes.iter().rev() {
        if *size == 0 {
            return Err(format!("expected axes of at least 1, found {} of 0", quote(name)));
        }
        let ranks = stride.checked_mul(*size).filter(|&ranks| ranks <= MOST_RANKS);
        let ranks = ranks.ok_or_else(|| format!("expected at most {MOST_RANKS} ranks, found more"))?;
        // A rank has coordinate 0 on an axis of 1, whatever its stride.
        let from = if *size == 1 { 1 } else { stride };
        let narrow = |wide: u64| u32::try_from(wide).unwrap_or(u32::MAX);
        view.push((name.clone(), Axis { stride: narrow(from), size: narrow(*size) }));
        stride = ranks;
    }
    view.reverse();
    Ok((view, u32::try_from(stride).unwrap_or(u32::MAX)))
}

/// What of several axes is the same for some ranks: a coordinate on each.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Grid {
    axes: Vec<Axis>,
}

impl Grid {
    /// Of these axes; each counts once.
    pub(super) fn new(axes: impl IntoIterator<Item = Axis>) -> Self {
        let mut axes: Vec<_> = axes.into_iter().filter(|axis| axis.size > 1).collect();
        axes.sort_unstable();
        axes.dedup();
        Self { axes }
    }

    /// How many combinations of coordinates there are, whether a rank has them or not.
    pub(super) fn cells(&self) -> u64 {
        self.axes.iter().fold(1, |cells: u64, axis| cells.saturating_mul(u64::from(axis.size)))
    }

    /// The number of the combination that a rank has.
    pub(super) fn cell(&self, rank: u32) -> usize {
        self.axes
            .iter()
            .rev()
            .fold(0, |cell, axis| cell * axis.size as usize + axis.coordinate(rank) as usize)
    }

    /// One rank of each combination that any rank has.
    pub(super) fn ranks(&self, world: u32) -> Vec<u32> {
        if self.is_free() {
            let mut ranks = vec![0];
            for axis in &self.axes {
                ranks = (0..axis.size)
                    .flat_map(|at| ranks.iter().map(move |rank| rank + at * axis.stride))
                    .collect();
            }
            return ranks;
        }
        let mut seen = HashSet::new();
        (0..world).filter(|&rank| seen.insert(self.cell(rank))).collect()
    }

    /// Whether each combination is that of some rank, as it is where all axes are of one view.
    pub(super) fn is_free(&self) -> bool {
        self.axes.windows(2).all(|pair| match pair {
            [inner, outer] => {
                let span = inner.stride.checked_mul(inner.size);
                span.and_then(|span| outer.stride.checked_rem(span)) == Some(0)
            }
            _ => true,
        })
    }
}
