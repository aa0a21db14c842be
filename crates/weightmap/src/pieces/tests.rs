//! Tests of `pieces`, in a file of their own for their length.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// Builds the header of a shard: entries of name, dtype, shape, and what stands in `DCP_SHARDING_INFO`.
fn header(tensors: &[(&str, &str, &[u64])], info: Option<&str>) -> Header {
    let mut members: Vec<String> = Vec::new();
    if let Some(info) = info {
        let info = serde_json::to_string(info).unwrap();
        members.push(format!(r#""__metadata__":{{"DCP_SHARDING_INFO":{info}}}"#));
    }
    let mut end = 0;
    for (name, dtype, shape) in tensors {
        let bits = u64::from(Dtype::from_name(dtype).bits().unwrap_or(8));
        let bytes = if shape.contains(&0) { 0 } else { shape.iter().product::<u64>() * bits / 8 };
        members.push(format!(
            r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{end},{}]}}"#,
            end + bytes
        ));
        end += bytes;
    }
    let json = format!("{{{}}}", members.join(","));
    Header::parse(json.as_bytes(), 8 + json.len() as u64 + end).unwrap()
}

fn info(offsets: &[(&str, &[u64])]) -> String {
    let entry = |(name, offsets): &(&str, &[u64])| format!(r#""{name}":{{"saved_offsets":{offsets:?}}}"#);
    format!("{{{}}}", offsets.iter().map(entry).collect::<Vec<_>>().join(","))
}

/// Puts shards together that are named `0`, `1`, and so on.
fn put_together(headers: &[Header]) -> Result<Gathered, PiecesError> {
    let names: Vec<_> = (0..headers.len()).map(|number| ShardName::of_file(&number.to_string())).collect();
    let offsets: Vec<_> =
        names.iter().zip(headers).map(|(name, header)| Offsets::read(name, header)).collect();
    let members: Vec<Member<'_>> = names
        .iter()
        .zip(headers)
        .zip(&offsets)
        .map(|((name, header), offsets)| (name, header, offsets))
        .collect();
    gather(&members)
}

/// One tensor `a` of bytes, each piece of it, offsets and shape, in a shard of its own.
fn one_tensor(pieces: &[(Vec<u64>, Vec<u64>)]) -> Result<(u32, Option<Pieces>), PieceFault> {
    let shard = |(offsets, shape): &(Vec<u64>, Vec<u64>)| {
        header(&[("a", "U8", shape)], Some(&info(&[("a", offsets)])))
    };
    let gathered = put_together(&pieces.iter().map(shard).collect::<Vec<_>>());
    gathered
        .map(|mut gathered| (gathered.shard_of[0], gathered.pieces.remove(0)))
        .map_err(|error| error.faults[0].clone())
}

fn the_fault(headers: &[Header]) -> (&'static str, String) {
    let error = put_together(headers).unwrap_err();
    assert_eq!(error.count, 1, "{error}");
    (error.kind(), error.to_string())
}

#[test]
fn pieces_make_a_whole_whose_first_piece_gives_the_shard() {
    let (shard, whole) = one_tensor(&[(vec![2, 0], vec![1, 4]), (vec![0, 0], vec![2, 4])]).unwrap();
    let whole = whole.unwrap();
    assert_eq!((shard, whole.shape, whole.len_bytes), (1, vec![3, 4], 12));
    let shards: Vec<_> = whole.pieces.iter().map(|piece| (piece.shard, piece.place())).collect();
    assert_eq!(shards, [(1, "[0:2, 0:4]".to_owned()), (0, "[2:3, 0:4]".to_owned())]);
}

#[test]
fn what_lies_in_one_shard_is_no_piece() {
    assert_eq!(one_tensor(&[(vec![0], vec![4])]), Ok((0, None)));
    assert_eq!(one_tensor(&[(vec![], vec![])]), Ok((0, None)));
    assert_eq!(one_tensor(&[(vec![0, 0], vec![0, 4])]), Ok((0, None)));
    // A header without offsets, as in a file of whole tensors.
    let whole = put_together(&[header(&[("a", "U8", &[4])], None)]).unwrap();
    assert_eq!((whole.shard_of, whole.pieces), (vec![0], vec![None]));
}

#[test]
fn empty_pieces_are_left_out_and_count_for_the_shape() {
    let rows = |offset, rows| (vec![offset, 0], vec![rows, 3]);
    let (_, whole) = one_tensor(&[rows(0, 1), rows(1, 1), rows(2, 0), rows(2, 0)]).unwrap();
    assert_eq!(whole.unwrap().pieces.len(), 2);
    assert_eq!(one_tensor(&[rows(2, 0), rows(0, 2)]), Ok((1, None)));
    let fault = one_tensor(&[rows(0, 1), rows(2, 0)]).unwrap_err();
    assert!(matches!(fault, PieceFault::Hole { expected: 6, found: 3, .. }), "{fault}");
}

#[test]
fn a_tensor_without_elements_can_lie_in_pieces_too() {
    assert_eq!(one_tensor(&[(vec![0, 0], vec![0, 2]), (vec![0, 0], vec![0, 4])]), Ok((1, None)));
    let (shard, whole) = one_tensor(&[(vec![0, 0], vec![0, 2]), (vec![0, 2], vec![0, 2])]).unwrap();
    let whole = whole.unwrap();
    assert_eq!((shard, whole.shape, whole.len_bytes, whole.pieces), (0, vec![0, 4], 0, vec![]));
}

#[test]
fn a_hole_is_told_with_the_shape_that_the_pieces_reach() {
    let fault = one_tensor(&[(vec![0, 0], vec![1, 4]), (vec![2, 0], vec![1, 4])]).unwrap_err();
    let says = r#"tensor "a": 2 pieces have 8 of the 12 elements of its shape [3, 4]"#;
    assert!(fault.kind() == "PieceHole" && fault.to_string().starts_with(says), "{fault}");
    assert_eq!(one_tensor(&[(vec![1], vec![2])]).unwrap_err().kind(), "PieceHole");
}

#[test]
fn pieces_that_overlap_are_named_with_their_places() {
    let fault = one_tensor(&[(vec![0, 0], vec![2, 2]), (vec![1, 1], vec![2, 2])]).unwrap_err();
    let says = r#"tensor "a": its pieces [0:2, 0:2] in "0" and [1:3, 1:3] in "1" overlap"#;
    assert!(fault.kind() == "PieceOverlap" && fault.to_string().starts_with(says), "{fault}");
    for twice in [(vec![0, 0], vec![2, 2]), (vec![], vec![])] {
        assert_eq!(one_tensor(&[twice.clone(), twice]).unwrap_err().kind(), "PieceOverlap");
    }
}

#[test]
fn offsets_beyond_what_can_be_counted_are_an_error() {
    for offsets in [[u64::MAX, 0], [1 << 40, 1 << 40]] {
        let fault = one_tensor(&[(vec![0, 0], vec![1, 1]), (offsets.to_vec(), vec![1, 1])]).unwrap_err();
        assert_eq!(
            (fault.kind(), fault.to_string().contains("in \"1\"")),
            ("PieceOverflow", true),
            "{fault}"
        );
    }
}

#[test]
fn pieces_are_of_one_dtype_and_number_of_dimensions() {
    let shard = |dtype, shape: &[u64], offsets: &[u64]| {
        header(&[("a", dtype, shape)], Some(&info(&[("a", offsets)])))
    };
    let (kind, says) = the_fault(&[shard("U8", &[2], &[0]), shard("I8", &[2], &[2])]);
    assert!(kind == "PieceDtype" && says.contains(r#"in "0" is U8 and that in "1" is I8"#), "{says}");
    let (kind, says) = the_fault(&[shard("U8", &[2], &[0]), shard("U8", &[2, 1], &[2, 0])]);
    assert!(kind == "PieceDims" && says.contains("1 dimension and that in \"1\" has 2"), "{says}");
}

#[test]
fn without_offsets_a_name_in_two_shards_is_an_error() {
    let bare = header(&[("a", "U8", &[2])], None);
    let placed = header(&[("a", "U8", &[2])], Some(&info(&[("a", &[2])])));
    for shards in [[placed.clone(), bare.clone()], [bare.clone(), placed], [bare.clone(), bare]] {
        assert_eq!(the_fault(&shards).0, "PieceWithoutOffsets");
    }
}

#[test]
fn offsets_that_are_none_are_told_with_shard_and_tensor() {
    for value in [
        r#"{"saved_offsets": [-1]}"#,
        r#"{"saved_offsets": [1.0]}"#,
        r#"{"saved_offsets": [18446744073709551616]}"#,
        r#"{"saved_offsets": "0"}"#,
        r#"{"saved_offsets": [[0]]}"#,
        r#"{"saved_offsets": [0], "saved_offsets": [0]}"#,
        r#"{"offsets": [0]}"#,
        "[[0]]",
        "null",
        r#"{"saved_offsets": [0, 0]}"#,
        r#"{"saved_offsets": []}"#,
    ] {
        let text = format!(r#"{{"a": {value}}}"#);
        let (kind, says) = the_fault(&[header(&[("a", "U8", &[2])], Some(&text))]);
        assert!(kind == "PieceOffsets" && says.starts_with(r#""0": tensor "a": "#), "{value}: {says}");
    }
    let twice = r#"{"a": {"saved_offsets": [0]}, "\u0061": {"saved_offsets": [0]}}"#;
    let (kind, says) = the_fault(&[header(&[("a", "U8", &[2])], Some(twice))]);
    assert!(kind == "PieceOffsets" && says.contains("twice"), "{says}");
}

#[test]
fn a_sharding_info_that_is_no_object_is_an_error() {
    for text in ["", "null", "[]", "{", "{} {}", r#"{"a": }"#, r#""{}""#, "7"] {
        let (kind, says) = the_fault(&[header(&[("a", "U8", &[2])], Some(text))]);
        assert!(
            kind == "ShardingInfo" && says.starts_with(r#""0": `DCP_SHARDING_INFO`"#),
            "{text:?}: {says}"
        );
    }
}

#[test]
fn a_sharding_info_of_other_tensors_is_an_error() {
    let (kind, says) = the_fault(&[header(&[("a", "U8", &[2])], Some(&info(&[("a", &[0]), ("b", &[0])])))]);
    assert!(
        kind == "PieceNotInShard" && says.contains(r#""0": `DCP_SHARDING_INFO` has tensor "b""#),
        "{says}"
    );
}

#[test]
fn other_fields_beside_the_offsets_are_passed_over() {
    let text = r#"{"a": {"x": [{}], "saved_offsets": [0], "logical_fqn": "b"}}"#;
    assert!(put_together(&[header(&[("a", "U8", &[2])], Some(text))]).is_ok());
}

#[test]
fn all_faults_come_at_once_and_the_first_thousand_are_kept() {
    let names: Vec<String> = (0..1500).map(|number| format!("t{number}")).collect();
    let tensors: Vec<_> = names.iter().map(|name| (name.as_str(), "U8", &[2_u64][..])).collect();
    let offsets: Vec<_> = names.iter().map(|name| (name.as_str(), &[1_u64][..])).collect();
    let error = put_together(&[header(&tensors, Some(&info(&offsets)))]).unwrap_err();
    assert_eq!((error.faults.len(), error.count), (1000, 1500));
    assert!(error.to_string().starts_with("1500 faults: tensor \"t0\"") && error.tensor().is_none());
}

#[test]
fn many_pieces_of_a_grid_are_compared_with_their_row_only() {
    // Each with each would be 10^10 comparisons.
    let side = 320_u64;
    let piece = |number: u64| Piece {
        shard: 0,
        offsets: vec![0, number / side, number % side * 2],
        shape: vec![5, 1, 2],
    };
    let pieces: Vec<_> = (0..side * side).map(piece).collect();
    assert_eq!(tiling::overlap(&pieces), None);
    assert_eq!(tiling::hull(&pieces), Ok(vec![5, side, side * 2]));
}

/// What is true of boxes, cell by cell: how often the most covered cell of their hull is, and the least.
fn coverage(pieces: &[(Vec<u64>, Vec<u64>)]) -> (usize, usize) {
    let dims = pieces[0].0.len();
    let cells = |from: Vec<u64>, len: &[u64]| {
        let step = |cells: Vec<Vec<u64>>, (from, len): (u64, &u64)| {
            let extend = |cell: &Vec<u64>| {
                (from..from + len).map(|index| [&cell[..], &[index]].concat()).collect::<Vec<_>>()
            };
            cells.iter().flat_map(extend).collect()
        };
        from.into_iter().zip(len).fold(vec![vec![]], step)
    };
    let mut times: HashMap<Vec<u64>, usize> = HashMap::new();
    for (offsets, shape) in pieces {
        cells(offsets.clone(), shape).into_iter().for_each(|cell| *times.entry(cell).or_default() += 1);
    }
    let reach = |dim: usize| pieces.iter().map(|(offsets, shape)| offsets[dim] + shape[dim]).max().unwrap();
    let hull: Vec<u64> = (0..dims).map(reach).collect();
    let all = cells(vec![0; dims], &hull);
    let counts = all.iter().map(|cell| times.get(cell).copied().unwrap_or(0));
    (counts.clone().max().unwrap_or(1), counts.min().unwrap_or(1))
}

type Boxes = Vec<(Vec<u64>, Vec<u64>)>;

/// Boxes that fill a box, cut again and again at any place, then perhaps one of them moved, resized or gone.
fn boxes() -> impl Strategy<Value = Boxes> {
    let cuts =
        prop::collection::vec((any::<prop::sample::Index>(), 0..3_usize, any::<prop::sample::Index>()), 0..7);
    let change =
        prop::option::of((any::<prop::sample::Index>(), 0..3_usize, -1..=1_i64, -1..=1_i64, any::<bool>()));
    (prop::collection::vec(0..5_u64, 0..=3), cuts, change).prop_map(|(shape, cuts, change)| {
        let mut boxes: Boxes = vec![(vec![0; shape.len()], shape)];
        for (which, dim, place) in cuts {
            let which = which.index(boxes.len());
            let (mut offsets, mut shape) = boxes[which].clone();
            if dim < shape.len() {
                let at = place.index(60) as u64 % (shape[dim] + 1);
                boxes[which].1[dim] = at;
                offsets[dim] += at;
                shape[dim] -= at;
                boxes.push((offsets, shape));
            }
        }
        if let Some((which, dim, moved, grown, gone)) = change {
            let which = which.index(boxes.len());
            if gone && boxes.len() > 1 {
                boxes.remove(which);
            } else if dim < boxes[which].0.len() {
                boxes[which].0[dim] = boxes[which].0[dim].saturating_add_signed(moved);
                boxes[which].1[dim] = boxes[which].1[dim].saturating_add_signed(grown);
            }
        }
        boxes
    })
}

proptest! {
    #[test]
    fn what_is_accepted_has_each_element_once(boxes in boxes()) {
        match (one_tensor(&boxes), coverage(&boxes)) {
            (Ok((shard, whole)), times) => {
                prop_assert_eq!(times, (1, 1));
                prop_assert!((shard as usize) < boxes.len());
                if let Some(whole) = whole {
                    prop_assert_eq!(whole.len_bytes, tiling::elements(&whole.shape).unwrap());
                    prop_assert!(whole.pieces.is_sorted_by(|one, other| one.offsets < other.offsets));
                    prop_assert!(whole.pieces.iter().all(|piece| !piece.shape.contains(&0)));
                }
            }
            (Err(PieceFault::Overlap { .. }), (most, _)) => prop_assert!(most > 1),
            (Err(PieceFault::Hole { .. }), (most, least)) => prop_assert!(most <= 1 && least == 0),
            (Err(fault), _) => prop_assert!(false, "{}", fault),
        }
    }

    #[test]
    fn no_sharding_info_makes_the_reader_panic(text in r#"[{}\[\]":,a0-9\\ .e-]{0,40}|\PC{0,20}"#) {
        let _ = put_together(&[header(&[("a", "U8", &[2])], Some(&text))]);
    }
}
