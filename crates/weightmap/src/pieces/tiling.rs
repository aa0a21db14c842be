//! Whether boxes fill a box.

use std::collections::HashSet;
use std::ops::Range;

use super::Piece;

/// The shape that the pieces reach, empty ones too. They have one number of dimensions.
///
/// # Errors
/// The piece with which it has more elements than 64 bits can count.
pub(super) fn hull(pieces: &[Piece]) -> Result<Vec<u64>, &Piece> {
    let mut hull = vec![0; pieces.first().map_or(0, |piece| piece.shape.len())];
    for piece in pieces {
        for (reach, (offset, len)) in hull.iter_mut().zip(piece.offsets.iter().zip(&piece.shape)) {
            *reach = (*reach).max(offset.checked_add(*len).ok_or(piece)?);
        }
        elements(&hull).ok_or(piece)?;
    }
    Ok(hull)
}

/// How many elements a shape has.
pub(super) fn elements(shape: &[u64]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1, |product, &len| u64::checked_mul(product, len))
}

/// Two pieces that have elements in common; none of the pieces is empty.
///
/// A sweep along the dimension that is cut most often: a piece is compared only with those that reach over its
/// start. These are none where one dimension is cut, and the pieces of a row of a grid where more are.
pub(super) fn overlap(pieces: &[Piece]) -> Option<(&Piece, &Piece)> {
    let dims = pieces.first().map_or(0, |piece| piece.shape.len());
    let cuts = |dim: &usize| pieces.iter().map(|piece| piece.range(*dim).start).collect::<HashSet<_>>().len();
    let along = (0..dims).max_by_key(cuts).unwrap_or(0);
    let mut order: Vec<&Piece> = pieces.iter().collect();
    order.sort_by_key(|piece| piece.range(along).start);
    let mut reaching: Vec<&Piece> = Vec::new();
    for piece in order {
        reaching.retain(|other| other.range(along).end > piece.range(along).start);
        if let Some(other) =
            reaching.iter().find(|other| (0..dims).all(|dim| meet(&other.range(dim), &piece.range(dim))))
        {
            return Some((other, piece));
        }
        reaching.push(piece);
    }
    None
}

fn meet(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}
