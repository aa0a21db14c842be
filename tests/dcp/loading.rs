//! Tensors in pieces, loaded: whole, in slices, and by plans.

use std::ops::Range;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use weightmap::{Error, ReadMode, ShardedModel};
use weightmap_testkit::{Checkpoint, Distributed, Llama, Mesh, Oracle, damage};

use super::{data, name};
use crate::support::plan_cases::{FLAT, Layout, plan_named, plans};
use crate::support::planned::{
    Wanted, Whole, assert_loads, assert_plan, patterned, select as planned, whole,
};
use crate::support::{assert_says, in_mode, open, within_a_minute};

/// The ranges of each dimension that are wanted.
type Dims = Vec<Vec<Range<u64>>>;

/// Asserts that all tensors are as they should be, whole and in every way.
fn assert_whole(model: &ShardedModel, whole: &Whole, case: &str) {
    let wanted: Vec<_> = model.names().map(|name| Wanted::slice(name, &whole[name], &[])).collect();
    assert_eq!(wanted.len(), whole.len(), "{case}");
    for &mode in ReadMode::ALL {
        assert_loads(&model.select().all(), &wanted, mode, case);
    }
}

/// Asserts that slices are as they should be, in every way.
fn assert_slices(model: &ShardedModel, whole: &Whole, slices: &[(&str, Dims)], case: &str) {
    let add = |selection: weightmap::Selection, (name, dims): &(&str, Dims)| {
        selection.slice(name, dims.iter().map(Vec::as_slice)).unwrap()
    };
    let wanted: Vec<_> = slices.iter().map(|(name, dims)| Wanted::slice(name, &whole[*name], dims)).collect();
    for &mode in ReadMode::ALL {
        assert_loads(&slices.iter().fold(model.select(), add), &wanted, mode, case);
    }
}

#[test]
fn whole_tensors_are_put_together_of_their_pieces() {
    within_a_minute(|| {
        for layout in [Layout::Rows, Layout::Grid] {
            let (files, whole) = layout.files();
            assert_whole(&open(&files), &whole, &format!("{layout:?}"));
        }
    });
}

#[test]
fn a_model_that_ranks_have_saved_loads_as_whole_tensors() {
    within_a_minute(|| {
        let llama = Llama::tiny();
        let whole: Whole = llama
            .tensors()
            .into_iter()
            .map(|(name, shape)| (name.clone(), patterned(&name, "BF16", &shape)))
            .collect();
        let meshes: [Mesh<'_>; 4] = [&[(0, 5)], &[(1, 7)], &[(0, 2), (1, 3)], &[(0, 2), (0, 3)]];
        for mesh in meshes {
            let files = Distributed::of_llama(&llama, mesh).checkpoint().temp();
            assert_whole(&open(&files), &whole, &format!("{mesh:?}"));
        }
    });
}

#[test]
fn what_pytorch_has_saved_loads_as_it_saved_it() {
    within_a_minute(|| {
        let whole = whole(&Oracle::open(data("whole.safetensors")));
        for folder in ["one", "three"] {
            let model = open(data(folder));
            assert_whole(&model, &whole, folder);
            let slices = [
                ("rows.weight", vec![vec![1..7], vec![2..4]]),
                ("uneven.weight", vec![vec![0..1, 2..5]]),
                ("cols.weight", vec![vec![1..3], vec![0..1, 2..7, 9..10]]),
                ("grid.weight", vec![vec![2..4], vec![3..5]]),
                ("same_dim.weight", vec![vec![4..8]]),
                ("few.weight", vec![vec![1..2]]),
            ];
            assert_slices(&model, &whole, &slices, folder);
        }
    });
}

#[test]
fn slices_across_the_borders_of_pieces_are_put_together() {
    within_a_minute(|| {
        let slices = [
            ("embed", vec![vec![2..4, 8..11], vec![1..5]]),
            ("l.0.down", vec![vec![3..5], vec![0..1, 5..7, 11..12]]),
            ("l.1.fused", vec![vec![0..16], vec![2..3]]),
            ("l.0.e.3.w1", vec![vec![1..3]]),
            ("cube", vec![vec![0..4], vec![1..2], vec![0..1, 3..4]]),
            ("norm", vec![vec![1..6]]),
            ("nibbles", vec![vec![1..7], vec![4..8]]),
            ("head", vec![vec![5..5], vec![0..6]]),
            ("scalar", vec![]),
        ];
        for layout in [Layout::Rows, Layout::Grid] {
            let (files, whole) = layout.files();
            assert_slices(&open(&files), &whole, &slices, &format!("{layout:?}"));
        }
    });
}

#[test]
fn each_rank_loads_what_its_plan_says_of_pieces_that_were_saved_otherwise() {
    within_a_minute(|| {
        for layout in [Layout::Rows, Layout::Grid] {
            let (files, whole) = layout.files();
            for (name, plan) in plans() {
                if layout == Layout::Rows || !FLAT.contains(&name) {
                    assert_plan(&open(&files), &plan, &whole, &format!("{name}, {layout:?}"));
                }
            }
        }
    });
}

#[test]
fn a_flat_part_of_pieces_that_cut_rows_is_an_error_of_its_kind() {
    let (files, _) = Layout::Grid.files();
    for name in FLAT {
        let selection = planned(&open(&files), &plan_named(name), 1);
        for error in [
            selection.infos().unwrap_err(),
            selection.load().unwrap_err(),
            selection.prefetch().unwrap_err(),
            selection.stream().unwrap().find_map(Result::err).unwrap(),
        ] {
            assert_eq!((error.kind(), error.path()), ("SliceFlatInPieces", Some(files.path())), "{error}");
            assert!(error.tensor().is_some(), "{error}");
            assert_says(&error, &["by a dimension"]);
        }
    }
}

#[test]
fn packed_pieces_that_meet_within_a_byte_are_an_error_of_their_kind() {
    let files = Distributed::new(2).sharded("a", "F4", &[4, 6], &[(1, 2)]).checkpoint().temp();
    let model = open(&files);
    let whole = model.select().all();
    let slice = model.select().slice("a", [0..2, 0..4]).unwrap();
    for selection in [whole, slice] {
        for &mode in ReadMode::ALL {
            let error = selection.load_with(&in_mode(mode)).unwrap_err();
            assert!(["SliceNotWholeBytes", "SliceNotOnByte"].contains(&error.kind()), "{error}");
            assert_eq!(error.tensor(), Some("a"));
        }
    }
}

#[test]
fn a_piece_that_is_cut_before_it_is_read_is_an_error_about_its_file() {
    for &mode in ReadMode::ALL {
        let files = Distributed::new(3).sharded("a", "F32", &[300, 1000], &[(0, 3)]).checkpoint().temp();
        let model = open(&files);
        model.select().all().infos().unwrap();
        damage::truncate(files.file(&name(2)), 1000);
        let streamed = model.select().all().stream_with(&in_mode(mode)).unwrap().find_map(Result::err);
        for error in [model.select().all().load_with(&in_mode(mode)).unwrap_err(), streamed.unwrap()] {
            assert_eq!(
                (error.kind(), error.path()),
                ("ShardChanged", Some(&*files.file(&name(2)))),
                "{mode}: {error}"
            );
        }
    }
}

#[test]
fn a_piece_that_is_cut_while_others_are_read_is_an_error_and_the_stream_ends() {
    within_a_minute(|| {
        let add =
            |all: Distributed, number: u64| all.sharded(&format!("t{number}"), "U8", &[3 << 20], &[(0, 3)]);
        for &mode in ReadMode::ALL {
            let files = (0..8).fold(Distributed::new(3), add).checkpoint().temp();
            let options = in_mode(mode).workers(1).memory_limit(40 << 20);
            let mut stream = open(&files).select().all().stream_with(&options).unwrap();
            stream.next().unwrap().unwrap();
            damage::truncate(files.file(&name(3)), 1000);
            // Whether it was noticed depends on how far it has been read.
            let last = stream.by_ref().last();
            if let Some(Err(error)) = last {
                assert_eq!(error.kind(), "ShardChanged", "{mode}: {error}");
            }
            assert!(stream.next().is_none());
        }
    });
}

/// The indices whose bits are set, as ranges.
fn ranges(bits: u8, len: u64) -> Vec<Range<u64>> {
    let indices: Vec<_> = (0..len).filter(|index| bits >> index & 1 == 1).collect();
    indices.chunk_by(|one, next| one + 1 == *next).map(|run| run[0]..run[run.len() - 1] + 1).collect()
}

/// A tensor that is cut before the indices whose bits are set, each piece in the file of another rank.
fn in_pieces(shape: &[u64], cuts: &[u8], shift: usize) -> Checkpoint {
    let mut pieces: Vec<Vec<Range<u64>>> = vec![Vec::new()];
    for (&len, cuts) in shape.iter().zip(cuts) {
        let mut borders: Vec<_> = (1..len).filter(|index| cuts >> index & 1 == 1).collect();
        borders.insert(0, 0);
        borders.push(len);
        let parts: Vec<_> = borders.windows(2).map(|pair| pair[0]..pair[1]).collect();
        let with = |piece: &Vec<_>, part: &Range<u64>| piece.iter().chain([part]).cloned().collect();
        pieces = pieces.iter().flat_map(|piece| parts.iter().map(move |part| with(piece, part))).collect();
    }
    let count = pieces.len();
    let files = pieces.iter().enumerate().fold(Distributed::new(count as u64), |files, (number, place)| {
        files.piece(((number + shift) % count) as u64 + 1, "a", "F32", shape, place)
    });
    files.checkpoint()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_slice_of_any_pieces_is_that_of_the_whole(
        shape in vec(1_u64..7, 1..4),
        cuts in any::<[u8; 3]>(),
        wanted in any::<[u8; 3]>(),
        shift in 0_usize..64,
        mode in select(ReadMode::ALL),
    ) {
        let files = in_pieces(&shape, &cuts, shift).temp();
        let model = open(&files);
        let whole = patterned("a", "F32", &shape);
        let dims: Dims = shape.iter().zip(wanted).map(|(&len, wanted)| ranges(wanted, len)).collect();
        let slice = model.select().slice("a", dims.iter().map(Vec::as_slice)).unwrap();
        assert_loads(&slice, &[Wanted::slice("a", &whole, &dims)], mode, "a slice");
        assert_loads(&model.select().all(), &[Wanted::slice("a", &whole, &[])], mode, "the whole");
    }
}

#[test]
fn errors_of_a_tensor_in_pieces_have_the_whole_tensors_shape() {
    let files = Distributed::new(2).sharded("a", "F32", &[4, 6], &[(1, 2)]).checkpoint().temp();
    let error = open(&files).select().slice("a", [0..4, 0..7]).unwrap().load().unwrap_err();
    let Error::Slice { shape, .. } = &error else { panic!("{error}") };
    assert_eq!((shape.as_slice(), error.kind()), ([4, 6].as_slice(), "SliceOutOfRange"));
}
