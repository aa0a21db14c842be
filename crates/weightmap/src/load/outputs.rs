//! What a load makes of the items that it reads.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::budget::Keeps;
use crate::assembly::Gather;
use crate::error::Result;
use crate::extent::Portion;
use crate::memory::memory_len;
use crate::pool::Pool;
use crate::recipe::{Making, Recipe};
use crate::report::total;
use crate::tensor_info::TensorInfo;

/// The outputs of a load, by place in the selection, and where each item goes.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    all: Vec<Output>,
    vessels: Vec<Vessel>,
    /// By item.
    places: Vec<Place>,
}

/// The caller's memory, by item and, for outputs that are copied, by output.
pub(crate) type Lent<'a> = (Vec<Option<&'a mut [u8]>>, HashMap<usize, &'a mut [u8]>);

/// A tensor that is handed over, made of neighbouring items.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) info: Arc<TensorInfo>,
    pub(super) items: Range<usize>,
    pub(super) making: Making,
    /// The number of its first vessel.
    vessel: usize,
}

/// Memory, or a range of a mapping, that items fill: an output's, or that of an item which is copied on.
#[derive(Debug)]
pub(super) struct Vessel {
    pub(super) output: usize,
    /// How long it is.
    pub(super) bytes: u64,
    /// How many of its bytes are read.
    pub(super) read_bytes: u64,
    is_shared: bool,
}

/// Where an item goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) vessel: usize,
    /// The bytes of the vessel before it.
    pub(super) offset: u64,
}

impl Outputs {
    /// Of recipes and the infos of their items, in the order of the selection.
    pub(crate) fn new(recipes: Vec<Recipe>, infos: &[Arc<TensorInfo>], pool: &Pool) -> Result<Self> {
        let mut outputs = Self::default();
        let mut first = 0;
        for recipe in recipes {
            let items = first..first + recipe.sources.len();
            let sources = infos.get(items.clone()).unwrap_or_default();
            first = items.end;
            outputs.add(recipe.info(pool, sources)?, recipe.making, items, sources);
        }
        Ok(outputs)
    }

    fn add(
        &mut self,
        info: Arc<TensorInfo>,
        making: Making,
        items: Range<usize>,
        sources: &[Arc<TensorInfo>],
    ) {
        let output = self.all.len();
        let read_bytes = || total(sources.iter().map(|source| source.len_bytes()));
        let vessel = self.vessels.len();
        let mut place = |vessel, offset| self.places.push(Place { vessel, offset });
        match &making {
            Making::Alone => {
                place(vessel, 0);
                self.vessels.push(Vessel {
                    output,
                    bytes: info.len_bytes(),
                    read_bytes: read_bytes(),
                    is_shared: false,
                });
            }
            Making::Joined(offsets) => {
                offsets.iter().for_each(|&offset| place(vessel, offset));
                self.vessels.push(Vessel {
                    output,
                    bytes: info.len_bytes(),
                    read_bytes: read_bytes(),
                    is_shared: true,
                });
            }
            Making::Gathered(_) => {
                for (number, source) in sources.iter().enumerate() {
                    place(vessel + number, 0);
                    let bytes = source.len_bytes();
                    self.vessels.push(Vessel { output, bytes, read_bytes: bytes, is_shared: false });
                }
            }
        }
        self.all.push(Output { info, items, making, vessel });
    }

    /// Hands the caller's memory, which comes by output, to items, each the part of it that it fills, and to those outputs
    /// that are copied. What no item fills is zeroed.
    pub(crate) fn lend<'a>(&self, buffers: Vec<&'a mut [u8]>, infos: &[Arc<TensorInfo>]) -> Lent<'a> {
        let mut by_item: Vec<_> = self.places.iter().map(|_| None).collect();
        let mut by_output = HashMap::new();
        for ((number, output), buffer) in self.all.iter().enumerate().zip(buffers) {
            if output.gathers().is_some() {
                by_output.insert(number, buffer);
                continue;
            }
            let mut items: Vec<_> =
                output.items.clone().map(|item| (self.places[item].offset, item)).collect();
            items.sort_unstable();
            let (mut rest, mut at) = (buffer, 0_u64);
            for (offset, item) in items {
                rest = skip(rest, offset.saturating_sub(at));
                let bytes = infos.get(item).map_or(0, |info| info.len_bytes());
                let own_bytes = memory_len(bytes).min(rest.len());
                let (own, later) = rest.split_at_mut(own_bytes);
                (rest, at) = (later, offset.saturating_add(bytes));
                if let Some(place) = by_item.get_mut(item) {
                    *place = Some(own);
                }
            }
            rest.fill(0);
        }
        (by_item, by_output)
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Output> + Clone {
        self.all.iter()
    }

    pub(super) fn get(&self, output: usize) -> Option<&Output> {
        self.all.get(output)
    }

    /// By the number of the vessel.
    pub(super) fn vessels(&self) -> &[Vessel] {
        &self.vessels
    }

    pub(super) fn place(&self, item: usize) -> Place {
        self.places[item]
    }

    pub(super) fn vessel(&self, item: usize) -> &Vessel {
        &self.vessels[self.place(item).vessel]
    }

    /// The number of a vessel among those of its output, and the output.
    pub(super) fn owner(&self, vessel: usize) -> (usize, usize, &Output) {
        let output = self.vessels[vessel].output;
        (vessel - self.all[output].vessel, output, &self.all[output])
    }

    /// The output that an item is a part of.
    pub(super) fn output(&self, item: usize) -> &Output {
        &self.all[self.vessel(item).output]
    }

    /// Whether an item is read apart from those of other outputs, so that its output need not be held for longer than
    /// its own items take.
    pub(super) fn is_apart(&self, item: usize, keeps: Keeps) -> bool {
        match self.output(item).making {
            Making::Alone => false,
            Making::Joined(_) => keeps == Keeps::Untaken,
            Making::Gathered(_) => true,
        }
    }

    /// Whether an item is copied to its place.
    pub(crate) fn is_copied(&self, item: usize) -> bool {
        self.output(item).gathers().is_some()
    }

    /// Whether an item goes to a vessel that others fill too, or that is longer than it.
    pub(super) fn is_shared(&self, item: usize) -> bool {
        self.vessel(item).is_shared
    }
}

/// What is behind some bytes, which are zeroed.
fn skip(buffer: &mut [u8], bytes: u64) -> &mut [u8] {
    let (skipped, rest) = buffer.split_at_mut(memory_len(bytes).min(buffer.len()));
    skipped.fill(0);
    rest
}

impl Place {
    /// The range of the vessel that a portion of the item fills.
    pub(super) fn range(self, portion: &Portion) -> Range<u64> {
        let Range { start, end } = portion.dest;
        self.offset.saturating_add(start)..self.offset.saturating_add(end)
    }
}

impl Output {
    /// The items that it is made of.
    pub(crate) fn items(&self) -> Range<usize> {
        self.items.clone()
    }

    /// Whether it is one item as it lies in its file.
    pub(super) fn is_alone(&self) -> bool {
        matches!(self.making, Making::Alone)
    }

    /// How its items get to their places, if they are copied there.
    pub(crate) fn gathers(&self) -> Option<&[Gather]> {
        match &self.making {
            Making::Gathered(gathers) => Some(gathers),
            Making::Alone | Making::Joined(_) => None,
        }
    }

    /// The memory that it needs: its own, and that of items which are copied.
    pub(crate) fn needed_bytes(&self, infos: &[Arc<TensorInfo>]) -> u64 {
        self.info.len_bytes().saturating_add(self.copied_bytes(infos))
    }

    /// The memory of items which are copied.
    pub(super) fn copied_bytes(&self, infos: &[Arc<TensorInfo>]) -> u64 {
        let items = infos.get(self.items.clone()).filter(|_| self.gathers().is_some()).unwrap_or_default();
        total(items.iter().map(|info| info.len_bytes()))
    }
}
