//! Memory for what one request brings.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::extent::Portion;
use crate::memory::{ALIGNMENT, Memory, Piece};

/// Where the bytes of a request go.
pub(super) enum Room<'a> {
    /// Tensors lie in the mapping.
    Mapped,
    /// The caller's memory, by portion.
    Lent(Vec<&'a mut [u8]>),
    /// Pieces of the memory of vessels that several requests fill, by portion.
    Pieces(Vec<Piece>),
    /// Whole tensors.
    Whole(Whole),
}

/// Memory for whole tensors: long ones have their own, which ends with them; short ones share the first.
pub(super) struct Whole {
    memories: Vec<Memory>,
    /// Of each tensor: in which memory it lies, and where.
    places: Vec<(usize, Range<usize>)>,
}

/// A tensor of this length has memory of its own. What is shorter would be of small pages and cost a mapping each;
/// kept alone, it keeps its neighbours' memory, which is of at most one request.
const OWN_BYTES: usize = 1 << 20;

impl Whole {
    pub(super) fn new(portions: &[Portion]) -> io::Result<Self> {
        let lengths = portions.iter().map(|portion| usize::try_from(portion.dest.end - portion.dest.start));
        let lengths: Vec<_> = lengths.collect::<Result<_, _>>().map_err(|_| io::ErrorKind::OutOfMemory)?;
        let (mut memories, mut shared_bytes) = (vec![Memory::default()], 0_usize);
        let mut places = Vec::with_capacity(lengths.len());
        for bytes in lengths {
            if bytes >= OWN_BYTES {
                places.push((memories.len(), 0..bytes));
                memories.push(Memory::zeroed(bytes as u64)?);
            } else {
                // A request has so few bytes that the sum fits.
                places.push((0, shared_bytes..shared_bytes + bytes));
                shared_bytes = (shared_bytes + bytes).next_multiple_of(ALIGNMENT);
            }
        }
        if let Some(shared) = memories.first_mut() {
            *shared = Memory::zeroed(shared_bytes as u64)?;
        }
        Ok(Self { memories, places })
    }

    /// The memory of each tensor.
    fn targets(&mut self) -> Vec<&mut [u8]> {
        let mut rests: Vec<_> = self.memories.iter_mut().map(|memory| (memory.as_mut_slice(), 0)).collect();
        let targets = self.places.iter().map(|(memory, place)| {
            let Some((rest, at)) = rests.get_mut(*memory) else { return Default::default() };
            let (_, from) = std::mem::take(rest).split_at_mut_checked(place.start - *at).unwrap_or_default();
            let (target, later) = from.split_at_mut_checked(place.len()).unwrap_or_default();
            (*rest, *at) = (later, place.end);
            target
        });
        targets.collect()
    }

    /// Where each tensor lies, for good.
    pub(super) fn into_places(self) -> impl Iterator<Item = (Arc<Memory>, Range<usize>)> {
        let memories: Vec<_> = self.memories.into_iter().map(Arc::new).collect();
        let memory = move |number: usize| memories.get(number).map(Arc::clone).unwrap_or_default();
        self.places.into_iter().map(move |(number, place)| (memory(number), place))
    }
}

impl Room<'_> {
    /// The memory of each portion; none where tensors lie in the mapping.
    pub(super) fn targets(&mut self) -> Vec<&mut [u8]> {
        match self {
            Self::Mapped => Vec::new(),
            Self::Lent(targets) => targets.iter_mut().map(|target| &mut **target).collect(),
            Self::Pieces(pieces) => pieces.iter_mut().map(Piece::as_mut_slice).collect(),
            Self::Whole(whole) => whole.targets(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn portions(lengths: &[u64]) -> Vec<Portion> {
        let mut at = 5;
        let portion = |(item, &bytes): (usize, &u64)| {
            at += bytes;
            Portion { item, source: at - bytes..at, dest: 0..bytes, is_dense: true }
        };
        lengths.iter().enumerate().map(portion).collect()
    }

    proptest! {
        #[test]
        fn each_tensor_has_aligned_memory_of_its_length_that_no_other_has(
            lengths in prop::collection::vec(prop_oneof![1_u64..300, (1_u64 << 20) - 2..(1 << 20) + 2], 0..20),
        ) {
            let mut whole = Whole::new(&portions(&lengths)).unwrap();
            for (fill, target) in (1..).zip(whole.targets()) {
                target.fill(fill);
            }
            let places: Vec<_> = whole.into_places().collect();
            prop_assert_eq!(places.len(), lengths.len());
            for ((fill, (memory, place)), &length) in (1..).zip(&places).zip(&lengths) {
                let bytes = &memory.as_slice()[place.clone()];
                prop_assert_eq!(bytes.len() as u64, length);
                prop_assert_eq!(bytes.as_ptr().addr() % ALIGNMENT, 0);
                prop_assert!(bytes.iter().all(|&byte| byte == fill));
            }
        }
    }

    #[test]
    fn short_tensors_share_memory_and_a_long_one_has_its_own() {
        let whole = Whole::new(&portions(&[10, OWN_BYTES as u64, 100, OWN_BYTES as u64 - 1])).unwrap();
        let memories: Vec<_> = whole.into_places().map(|(memory, _)| memory).collect();
        assert!(Arc::ptr_eq(&memories[0], &memories[2]) && Arc::ptr_eq(&memories[0], &memories[3]));
        assert_eq!(Arc::strong_count(&memories[1]), 1, "it ends with its tensor");
    }

    #[test]
    fn memory_that_cannot_be_had_is_an_error() {
        assert_eq!(Whole::new(&portions(&[u64::MAX / 2])).err().unwrap().kind(), io::ErrorKind::OutOfMemory);
    }
}
