//! Vessels that several requests fill.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::outputs::Place;
use crate::extent::Portion;
use crate::memory::{Cut, Memory, Piece, memory_len};

/// By number, the vessels that several requests fill.
#[derive(Default)]
pub(super) struct Longs(HashMap<usize, Long>);

/// One of them.
#[derive(Default)]
struct Long {
    /// The range of each portion, in rising order.
    portions: Vec<Range<u64>>,
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
    /// Takes note of the portions that are not whole vessels, each with its place and the length of its vessel.
    pub(super) fn new<'p>(portions: impl Iterator<Item = (&'p Portion, Place, u64)>) -> Self {
        let mut longs = HashMap::<usize, Long>::new();
        for (portion, place, vessel_bytes) in portions {
            let range = place.range(portion);
            if range.end - range.start < vessel_bytes {
                longs.entry(place.vessel).or_default().portions.push(range);
            }
        }
        longs.values_mut().for_each(|long| long.portions.sort_unstable_by_key(|range| range.start));
        Self(longs)
    }

    /// The memory for a portion, if it is of one of these vessels. Whoever is first provides for the whole
    /// vessel, while others wait.
    pub(super) fn piece<E>(
        &self,
        portion: &Portion,
        place: Place,
        provide: impl FnOnce() -> Result<Memory, E>,
    ) -> Option<Result<Piece, E>> {
        let long = self.0.get(&place.vessel)?;
        let start = place.range(portion).start;
        let number = long.portions.binary_search_by_key(&start, |range| range.start).ok()?;
        let mut state = long.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Waiting = *state {
            let memory = match provide() {
                Ok(memory) => memory,
                Err(error) => return Some(Err(error)),
            };
            let ranges = long.portions.iter().map(|range| memory_len(range.start)..memory_len(range.end));
            let (cut, pieces) = Cut::new(memory, ranges);
            *state = State::Begun { cut, pieces: pieces.into_iter().map(Some).collect() };
        }
        match &mut *state {
            State::Begun { pieces, .. } => pieces.get_mut(number)?.take().map(Ok),
            _ => None,
        }
    }

    /// The memory of a vessel all of whose pieces have been filled and dropped.
    pub(super) fn join(&self, vessel: usize) -> Option<Memory> {
        let mut state = self.0.get(&vessel)?.state.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Vessel 7 has one item.
    const PLACE: Place = Place { vessel: 7, offset: 0 };

    fn portion(dest: Range<u64>) -> Portion {
        Portion { item: 3, source: 50 + dest.start..50 + dest.end, dest, is_dense: true }
    }

    fn portions() -> [Portion; 3] {
        [0..10, 10..14, 14..20].map(portion)
    }

    fn longs() -> Longs {
        Longs::new(portions().iter().map(|portion| (portion, PLACE, 20)))
    }

    fn provide() -> Result<Memory, &'static str> {
        Memory::zeroed(20).map_err(|_| "no memory")
    }

    #[test]
    fn pieces_that_are_filled_in_any_order_are_the_tensor() {
        let longs = longs();
        for place in [1, 2, 0] {
            let portion = &portions()[place];
            let mut piece = longs.piece(portion, PLACE, provide).unwrap().unwrap();
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
        let piece = longs.piece(&portions()[0], PLACE, provide).unwrap().unwrap();
        assert!(longs.join(7).is_none());
        drop(piece);
    }

    #[test]
    fn a_piece_is_had_once_and_a_whole_tensor_not_at_all() {
        let longs = longs();
        assert!(longs.piece(&portions()[0], PLACE, provide).is_some());
        assert!(longs.piece(&portions()[0], PLACE, provide).is_none());
        let whole = Longs::new([(&portion(0..10), PLACE, 10)].into_iter());
        assert!(whole.piece(&portion(0..10), PLACE, provide).is_none());
    }

    #[test]
    fn items_that_share_a_vessel_fill_it_where_they_belong() {
        let second = Place { offset: 12, ..PLACE };
        let longs = Longs::new([(&portion(0..8), second, 24), (&portion(0..10), PLACE, 24)].into_iter());
        let provide = || Memory::zeroed(24).map_err(|_| "no memory");
        longs.piece(&portion(0..8), second, provide).unwrap().unwrap().as_mut_slice().fill(2);
        longs.piece(&portion(0..10), PLACE, provide).unwrap().unwrap().as_mut_slice().fill(1);
        let memory = longs.join(7).unwrap();
        assert_eq!(memory.as_slice()[..24], [[1; 10].as_slice(), &[0; 2], &[2; 8], &[0; 4]].concat());
    }

    #[test]
    fn memory_is_provided_once_and_again_after_a_failure() {
        let longs = longs();
        let failed = longs.piece(&portions()[2], PLACE, || Err::<Memory, _>("no memory"));
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
                    assert!(longs.piece(&portion, PLACE, counted).unwrap().is_ok());
                });
            }
        });
        assert_eq!(provided.load(Relaxed), 1);
        assert!(longs.join(7).is_some());
    }
}
