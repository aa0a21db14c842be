use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// A tensor whose elements, two bytes each, are their numbers.
fn numbered(shape: &[u64]) -> Vec<u8> {
    let elements = u16::try_from(shape.iter().product::<u64>()).unwrap();
    (0..elements).flat_map(u16::to_le_bytes).collect()
}

/// What lies at an index of a part's tensor, two bytes.
fn element(bytes: &[u8], shape: &[u64], index: &[u64]) -> [u8; 2] {
    let number = index.iter().zip(shape).fold(0, |sum, (index, len)| sum * len + index);
    let at = usize::try_from(number).unwrap() * 2;
    [bytes[at], bytes[at + 1]]
}

/// All indices of a box.
fn indices(shape: &[u64]) -> Vec<Vec<u64>> {
    shape.iter().fold(vec![Vec::new()], |before, &len| {
        before.iter().flat_map(|index| (0..len).map(|last| [index.clone(), vec![last]].concat())).collect()
    })
}

/// The assembly, element by element.
fn by_hand(assembly: &Assembly) -> Vec<u8> {
    let mut whole = vec![0; usize::try_from(assembly.len_bytes().unwrap()).unwrap()];
    for part in &assembly.parts {
        let bytes = numbered(&part.shape);
        let pairs = |stretches: &Vec<Stretch>| -> Vec<(u64, u64)> {
            stretches
                .iter()
                .flat_map(|one| (0..one.len).map(|step| (one.from + step, one.at + step)))
                .collect()
        };
        let dims: Vec<_> = part.dims.iter().map(pairs).collect();
        let counts: Vec<_> = dims.iter().map(|pairs| pairs.len() as u64).collect();
        for index in indices(&counts) {
            let pair = |(dim, &place): (&Vec<(u64, u64)>, &u64)| dim[usize::try_from(place).unwrap()];
            let (from, at): (Vec<_>, Vec<_>) = dims.iter().zip(&index).map(pair).unzip();
            let number = at.iter().zip(&assembly.shape).fold(0, |sum, (at, len)| sum * len + at);
            let place = usize::try_from(number).unwrap() * 2;
            whole[place..place + 2].copy_from_slice(&element(&bytes, &part.shape, &from));
        }
    }
    whole
}

/// The local bytes of a fragment.
fn read(assembly: &Assembly, fragment: &Fragment) -> Vec<u8> {
    let shape = &assembly.parts[fragment.part].shape;
    let bytes = numbered(shape);
    let wanted = |index: &Vec<u64>| {
        index
            .iter()
            .zip(&fragment.dims)
            .all(|(index, ranges)| ranges.iter().any(|range| range.contains(index)))
    };
    indices(shape)
        .iter()
        .filter(|index| wanted(index))
        .flat_map(|index| element(&bytes, shape, index))
        .collect()
}

/// The assembly, as its form says.
fn by_form(assembly: &Assembly) -> Vec<u8> {
    let mut whole = vec![0; usize::try_from(assembly.len_bytes().unwrap()).unwrap()];
    match assembly.form().unwrap() {
        Form::Alone(fragment) => whole = read(assembly, &fragment),
        Form::Joined(fragments) => {
            for (fragment, at) in fragments {
                let (bytes, at) = (read(assembly, &fragment), usize::try_from(at).unwrap());
                whole[at..at + bytes.len()].copy_from_slice(&bytes);
            }
        }
        Form::Gathered(fragments) => {
            for (fragment, gather) in fragments {
                let bytes = read(assembly, &fragment);
                assert_eq!(gather.copy(&bytes, &mut whole), bytes.len() as u64);
            }
        }
    }
    whole
}

fn of(shape: &[u64], pad: &[u64], parts: Vec<Part>) -> Assembly {
    Assembly { name: "a".to_owned(), dtype: Dtype::Bf16, shape: shape.to_vec(), pad: pad.to_vec(), parts }
}

/// All of a tensor, in its place.
fn all_of(shape: &[u64]) -> Part {
    Part::of(7, shape, &shape.iter().map(|&len| vec![0..len]).collect::<Vec<_>>())
}

fn stretch(from: u64, len: u64, at: u64) -> Stretch {
    Stretch { from, len, at }
}

#[test]
fn a_whole_tensor_and_a_slice_in_rising_order_are_alone() {
    let whole = of(&[4, 3], &[0, 0], vec![all_of(&[4, 3])]);
    assert!(matches!(whole.form().unwrap(), Form::Alone(_)));
    let dims = [vec![0..1, 2..4], vec![1..3]];
    let slice = of(&[3, 2], &[0, 0], vec![Part::of(7, &[4, 3], &dims)]);
    assert_eq!(slice.form().unwrap(), Form::Alone(Fragment { part: 0, dims: dims.to_vec() }));
    let scalar = of(&[], &[], vec![all_of(&[])]);
    assert!(matches!(scalar.form().unwrap(), Form::Alone(_)));
}

#[test]
fn parts_along_the_first_dimension_and_of_a_stack_are_joined_where_they_belong() {
    let part = |tensor, at| Part {
        tensor,
        shape: vec![2, 3],
        dims: vec![vec![stretch(0, 2, at)], vec![stretch(0, 3, 0)]],
    };
    let concat = of(&[5, 3], &[1, 0], vec![part(0, 0), part(1, 2)]);
    let Form::Joined(fragments) = concat.form().unwrap() else { panic!() };
    assert_eq!(fragments.iter().map(|(_, at)| *at).collect::<Vec<_>>(), [0, 12]);
    // Two experts, each with a gate and an up projection of two rows.
    let part = |tensor, expert, row| Part {
        tensor,
        shape: vec![1, 2, 3],
        dims: vec![vec![stretch(0, 1, expert)], vec![stretch(0, 2, row)], vec![stretch(0, 3, 0)]],
    };
    let stack = of(&[2, 4, 3], &[0, 0, 0], vec![part(0, 0, 0), part(1, 0, 2), part(2, 1, 0), part(3, 1, 2)]);
    let Form::Joined(fragments) = stack.form().unwrap() else { panic!() };
    assert_eq!(fragments.iter().map(|(_, at)| *at).collect::<Vec<_>>(), [0, 12, 24, 36]);
    assert_eq!(by_form(&stack), by_hand(&stack));
}

#[test]
fn parts_along_an_inner_dimension_and_padded_rows_are_gathered() {
    let part = |tensor, at| Part {
        tensor,
        shape: vec![2, 3],
        dims: vec![vec![stretch(0, 2, 0)], vec![stretch(0, 3, at)]],
    };
    let concat = of(&[2, 6], &[0, 0], vec![part(0, 0), part(1, 3)]);
    assert!(matches!(concat.form().unwrap(), Form::Gathered(_)));
    assert_eq!(by_form(&concat), by_hand(&concat));
    let padded = of(&[2, 4], &[0, 1], vec![part(0, 0)]);
    assert!(matches!(padded.form().unwrap(), Form::Gathered(_)));
    assert_eq!(by_form(&padded), by_hand(&padded));
}

#[test]
fn a_rank_without_a_part_has_nothing_but_padding() {
    let none = of(
        &[2, 3],
        &[2, 0],
        vec![Part { tensor: 0, shape: vec![4, 3], dims: vec![vec![], vec![stretch(0, 3, 0)]] }],
    );
    assert_eq!(none.form().unwrap(), Form::Joined(Vec::new()));
}

#[test]
fn packed_elements_are_joined_at_bytes_only() {
    let part = |tensor, len, at| Part { tensor, shape: vec![len], dims: vec![vec![stretch(0, len, at)]] };
    let packed = |parts| Assembly { dtype: Dtype::F4, ..of(&[6], &[0], parts) };
    assert!(matches!(packed(vec![part(0, 2, 0), part(1, 4, 2)]).form(), Ok(Form::Joined(_))));
    let error = packed(vec![part(0, 3, 0), part(1, 3, 3)]).form().unwrap_err();
    assert_eq!(error.kind(), "SliceNotWholeBytes");
}

#[test]
fn rows_of_packed_elements_are_gathered_where_they_are_of_whole_bytes() {
    let part = |len, at| Part {
        tensor: 0,
        shape: vec![2, len],
        dims: vec![vec![stretch(0, 2, 0)], vec![stretch(0, len, at)]],
    };
    let packed = |len, parts| Assembly { dtype: Dtype::F4, ..of(&[2, len], &[0, 0], parts) };
    let Form::Gathered(fragments) = packed(6, vec![part(2, 0), part(4, 2)]).form().unwrap() else { panic!() };
    let mut whole = [0; 6];
    fragments[0].1.copy(&[1, 2], &mut whole);
    fragments[1].1.copy(&[3, 4, 5, 6], &mut whole);
    assert_eq!(whole, [1, 3, 4, 2, 5, 6]);
    assert!(packed(6, vec![part(3, 0), part(3, 3)]).form().is_err());
}

/// Some disjoint ranges of a dimension in any order, by numbers that say where it is cut and how the pieces are mixed.
fn stretches(len: u64, cuts: &[u64], order: &[usize], keep: &[bool]) -> Vec<Range<u64>> {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (len + 1)).chain([0, len]).collect();
    cuts.sort_unstable();
    cuts.dedup();
    let pieces = cuts.windows(2).map(|pair| pair[0]..pair[1]);
    let mut pieces: Vec<_> = pieces.zip(keep).filter(|(_, keep)| **keep).map(|(piece, _)| piece).collect();
    for (place, &other) in order.iter().enumerate() {
        if place < pieces.len() {
            let other = other % pieces.len();
            pieces.swap(place, other);
        }
    }
    pieces
}

proptest! {
    #[test]
    fn every_form_puts_every_element_where_it_belongs(
        shape in vec(1_u64..6, 1..4),
        cuts in vec(vec(0_u64..9, 0..3), 4),
        order in vec(vec(0_usize..9, 0..3), 4),
        keep in vec(vec(any::<bool>(), 4), 4),
        parts in 1_u64..4,
        along in 0_usize..4,
        pad in 0_u64..3,
    ) {
        let along = along % shape.len();
        let dims: Vec<Vec<Stretch>> = shape.iter().enumerate().map(|(dim, &len)| {
            Stretch::one_after_another(&stretches(len, &cuts[dim], &order[dim], &keep[dim]))
        }).collect();
        let lens: Vec<u64> = dims.iter().map(|dim| dim.iter().map(|one| one.len).sum()).collect();
        let part = |number: u64| {
            let mut dims = dims.clone();
            dims[along].iter_mut().for_each(|one| one.at += number * lens[along]);
            Part { tensor: 0, shape: shape.clone(), dims }
        };
        let mut whole = lens.clone();
        whole[along] = whole[along] * parts + pad;
        let mut padding = vec![0; shape.len()];
        padding[along] = pad;
        let assembly = of(&whole, &padding, (0..parts).map(part).collect());
        prop_assert_eq!(by_form(&assembly), by_hand(&assembly));
    }

    #[test]
    fn the_parts_within_the_boxes_of_a_grid_are_the_part(
        rows in 1_u64..7, columns in 1_u64..7, row in 0_u64..7, column in 0_u64..7,
        dims in (0_u64..7, 0_u64..7, 0_u64..7, 0_u64..7),
    ) {
        let range = |one: u64, other: u64, len: u64| {
            let (one, other) = (one.min(len), other.min(len));
            vec![one.min(other)..one.max(other)]
        };
        let wanted = [range(dims.0, dims.1, rows), range(dims.2, dims.3, columns)];
        let part = Part::of(0, &[rows, columns], &wanted);
        let (row, column) = (row.min(rows), column.min(columns));
        let mut found = 0;
        for (top, height) in [(0, row), (row, rows - row)] {
            for (left, width) in [(0, column), (column, columns - column)] {
                let Some(inside) = part.within(&[top, left], &[height, width]) else { continue };
                for (dim, offset) in [(0, top), (1, left)] {
                    for stretch in &inside.dims[dim] {
                        prop_assert_eq!(stretch.from + offset - wanted[dim][0].start, stretch.at);
                    }
                }
                let count = |dim: &Vec<Stretch>| dim.iter().map(|one| one.len).sum::<u64>();
                found += inside.dims.iter().map(count).product::<u64>();
            }
        }
        let count = |ranges: &Vec<Range<u64>>| ranges[0].end - ranges[0].start;
        prop_assert_eq!(found, wanted.iter().map(count).product::<u64>());
    }
}
