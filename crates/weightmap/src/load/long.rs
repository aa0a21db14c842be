//! Tensors that several requests fill.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::extent::Portion;
use crate::memory::{Cut, Memory, Piece};

/// By place in the selection, the tensors that several requests fill.
#[derive(Default)]
pub(super) struct Longs(HashMap<usize, Long>);

/// One of them.
#[derive(Default)]
struct Long {
    /// Of each portion, in rising order: where it begins in the tensor, and how long it is.
    portions: Vec<(u64, usize)>,
    state: Mutex<State>,
}

#[derive(Default)]
enum State {
    /// Nobody has begun to read it.
    #[default]
    Waiting,
    /// Pieces that are being filled or are yet to be.
    Begun { cut: Cut, pieces: Vec<Option<Piece>> },
    /// It has been given out.
    Done,
}

impl Longs {
    /// Takes note of the portions that are not whole tensors, which come in file order.
    pub(super) fn new<'p>(portions: impl Iterator<Item = (&'p Portion, u64)>) -> Self {
        let mut longs = HashMap::<usize, Long>::new();
        for (portion, tensor_bytes) in portions {
            let bytes = portion.dest.end - portion.dest.start;
            if bytes < tensor_bytes {
                let long = longs.entry(portion.item).or_default();
                long.portions.push((portion.dest.start, usize::try_from(bytes).unwrap_or(usize::MAX)));
            }
        }
        Self(longs)
    }

    /// The memory for a portion, if it is of one of these tensors. Whoever is first provides for the whole
    /// tensor, while others wait.
    pub(super) fn piece<E>(
        &self,
        portion: &Portion,
        provide: impl FnOnce() -> Result<Memory, E>,
    ) -> Option<Result<Piece, E>> {
        let long = self.0.get(&portion.item)?;
        let place = long.portions.binary_search_by_key(&portion.dest.start, |(start, _)| *start).ok()?;
        let mut state = long.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Waiting = *state {
            let memory = match provide() {
                Ok(memory) => memory,
                Err(error) => return Some(Err(error)),
            };
            let (cut, pieces) = Cut::new(memory, long.portions.iter().map(|(_, bytes)| *bytes));
            *state = State::Begun { cut, pieces: pieces.into_iter().map(Some).collect() };
        }
        match &mut *state {
            State::Begun { pieces, .. } => pieces.get_mut(place)?.take().map(Ok),
            _ => None,
        }
    }

    /// The memory of a tensor all of whose pieces have been filled and dropped.
    pub(super) fn join(&self, item: usize) -> Option<Memory> {
        let mut state = self.0.get(&item)?.state.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, State::Done) {
            State::Begun { cut, .. } => cut.join(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    /// A portion of tensor 7.
    fn portion(dest: std::ops::Range<u64>) -> Portion {
        Portion { item: 7, source: 50 + dest.start..50 + dest.end, dest, is_dense: true }
    }

    fn portions() -> [Portion; 3] {
        [0..10, 10..14, 14..20].map(portion)
    }

    fn longs() -> Longs {
        Longs::new(portions().iter().map(|portion| (portion, 20)))
    }

    fn provide() -> Result<Memory, &'static str> {
        Memory::zeroed(20).map_err(|_| "no memory")
    }

    #[test]
    fn pieces_that_are_filled_in_any_order_are_the_tensor() {
        let longs = longs();
        for place in [1, 2, 0] {
            let portion = &portions()[place];
            let mut piece = longs.piece(portion, provide).unwrap().unwrap();
            assert_eq!(piece.as_mut_slice().len() as u64, portion.dest.end - portion.dest.start);
            piece.as_mut_slice().fill(1 + u8::try_from(place).unwrap());
        }
        let memory = longs.join(7).unwrap();
        assert_eq!(memory.as_slice()[..20], [[1; 10].as_slice(), &[2; 4], &[3; 6]].concat());
        assert!(longs.join(7).is_none(), "it is given out once");
    }

    #[test]
    fn a_tensor_is_not_given_out_while_a_piece_is_being_filled() {
        let longs = longs();
        let piece = longs.piece(&portions()[0], provide).unwrap().unwrap();
        assert!(longs.join(7).is_none());
        drop(piece);
    }

    #[test]
    fn a_piece_is_had_once_and_a_whole_tensor_not_at_all() {
        let longs = longs();
        assert!(longs.piece(&portions()[0], provide).is_some());
        assert!(longs.piece(&portions()[0], provide).is_none());
        let whole = Longs::new([(&portion(0..10), 10)].into_iter());
        assert!(whole.piece(&portion(0..10), provide).is_none());
    }

    #[test]
    fn memory_is_provided_once_and_again_after_a_failure() {
        let longs = longs();
        let failed = longs.piece(&portions()[2], || Err::<Memory, _>("no memory"));
        assert_eq!(failed.unwrap().err(), Some("no memory"));
        let (provided, start) = (AtomicUsize::new(0), Barrier::new(3));
        std::thread::scope(|scope| {
            for portion in portions() {
                let (longs, provided, start) = (&longs, &provided, &start);
                scope.spawn(move || {
                    start.wait();
                    let counted = || {
                        provided.fetch_add(1, Relaxed);
                        provide()
                    };
                    assert!(longs.piece(&portion, counted).unwrap().is_ok());
                });
            }
        });
        assert_eq!(provided.load(Relaxed), 1);
        assert!(longs.join(7).is_some());
    }
}
