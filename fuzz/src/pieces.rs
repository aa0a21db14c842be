//! Pieces of a distributed checkpoint, compared with cells of a grid.

use arbitrary::Arbitrary;
use serde_json::{Map, Value, json};
use weightmap::fuzzing::{Gathered, gather};
use weightmap::{Header, ShardName};

/// The headers of a checkpoint.
#[derive(Debug, Arbitrary)]
pub struct Case {
    shards: Vec<Shard>,
}

#[derive(Debug, Arbitrary)]
struct Shard {
    tensors: Vec<Tensor>,
    /// Text in place of what the offsets of the tensors would be.
    text: Option<String>,
}

#[derive(Debug, Arbitrary)]
struct Tensor {
    name: u8,
    wide: bool,
    shape: Vec<u8>,
    offsets: Option<Vec<u8>>,
    /// Added to an offset.
    far: Option<u64>,
}

/// What a shard has of a tensor: its number, whether it is of the wide type, its shape and offsets.
struct Found {
    shard: u32,
    wide: bool,
    shape: Vec<u64>,
    offsets: Option<Vec<u64>>,
}

impl Tensor {
    fn found(&self, shard: u32) -> Found {
        let shape: Vec<u64> = self.shape.iter().take(3).map(|len| u64::from(len % 5)).collect();
        let mut offsets: Option<Vec<u64>> = self.offsets.as_ref().map(|offsets| {
            (0..shape.len()).map(|dim| offsets.get(dim).map_or(0, |at| u64::from(at % 6))).collect()
        });
        if let (Some(far), Some(first)) = (self.far, offsets.iter_mut().flatten().next()) {
            *first = first.saturating_add(far);
        }
        Found { shard, wide: self.wide, shape, offsets }
    }
}

/// Puts the tensors of all shards together.
pub fn run(case: &Case) {
    let mut found: Vec<(String, Vec<Found>)> = Vec::new();
    let mut members = Vec::new();
    let mut has_text = false;
    for (number, shard) in (0..).zip(case.shards.iter().take(6)) {
        let mut own: Vec<(String, Found)> = Vec::new();
        for tensor in shard.tensors.iter().take(4) {
            let name = char::from(b'a' + tensor.name % 4).to_string();
            if own.iter().all(|(other, _)| *other != name) {
                own.push((name, tensor.found(number)));
            }
        }
        // As they stand in the header.
        own.sort_by(|(one, _), (other, _)| one.cmp(other));
        has_text |= shard.text.is_some();
        members.push((ShardName::parse("x.safetensors").unwrap(), header(&own, shard.text.as_deref())));
        for (name, piece) in own {
            match found.iter_mut().find(|(other, _)| *other == name) {
                Some((_, pieces)) => pieces.push(piece),
                None => found.push((name, vec![piece])),
            }
        }
    }
    let gathered = gather(&members);
    if let Err(error) = &gathered {
        assert!(!error.faults.is_empty() && error.count >= error.faults.len());
        assert!(!error.to_string().is_empty());
    }
    if has_text {
        return;
    }
    let expected: Option<Vec<Gathered>> =
        found.into_iter().map(|(name, pieces)| whole(name, &pieces)).collect();
    match (gathered, expected) {
        (Ok(gathered), Some(expected)) => assert_eq!(gathered, expected),
        (Err(_), None) => {}
        (gathered, expected) => panic!("expected {expected:?}, found {gathered:?}"),
    }
}

/// The header of a shard.
fn header(tensors: &[(String, Found)], text: Option<&str>) -> Header {
    let (mut entries, mut info, mut end) = (Map::new(), Map::new(), 0);
    for (name, found) in tensors {
        let start = end;
        end += found.shape.iter().product::<u64>() * if found.wide { 2 } else { 1 };
        let dtype = if found.wide { "F16" } else { "U8" };
        let entry = json!({"dtype": dtype, "shape": found.shape, "data_offsets": [start, end]});
        entries.insert(name.clone(), entry);
        if let Some(offsets) = &found.offsets {
            info.insert(name.clone(), json!({"saved_offsets": offsets}));
        }
    }
    let info = text.map_or_else(|| Value::from(info).to_string(), str::to_owned);
    entries.insert("__metadata__".to_owned(), json!({"DCP_SHARDING_INFO": info}));
    let json = Value::from(entries).to_string();
    Header::parse(json.as_bytes(), 8 + json.len() as u64 + end).unwrap()
}

/// A whole tensor of its pieces; `None` where these do not make one.
fn whole(name: String, found: &[Found]) -> Option<Gathered> {
    let first = &found[0];
    if found.len() == 1 && first.offsets.is_none() {
        return Some((name, first.shard, None));
    }
    let mut pieces = Vec::new();
    for piece in found {
        let is_alike = piece.wide == first.wide && piece.shape.len() == first.shape.len();
        pieces.push((piece, is_alike.then_some(piece.offsets.as_ref()?)?));
    }
    let mut shape = vec![0; first.shape.len()];
    for (piece, offsets) in &pieces {
        for (reach, (offset, len)) in shape.iter_mut().zip(offsets.iter().zip(&piece.shape)) {
            *reach = (*reach).max(offset.checked_add(*len)?);
        }
    }
    let cells = |shape: &[u64]| shape.iter().try_fold(1_u64, |cells, len| cells.checked_mul(*len));
    let all = if shape.contains(&0) { 0 } else { cells(&shape)? };
    // Six pieces of at most 64 cells do not fill more.
    (all <= 6 * 64).then_some(())?;
    let mut times = vec![0_u32; usize::try_from(all).unwrap()];
    for (piece, offsets) in pieces.iter().filter(|(piece, _)| !piece.shape.contains(&0)) {
        let mut own = vec![0_u64];
        for ((len, offset), reach) in piece.shape.iter().zip(*offsets).zip(&shape) {
            own =
                own.iter().flat_map(|row| (*offset..offset + len).map(move |at| row * reach + at)).collect();
        }
        own.into_iter().for_each(|cell| times[usize::try_from(cell).unwrap()] += 1);
    }
    times.iter().all(|&times| times == 1).then_some(())?;
    let mut filled: Vec<_> = pieces.iter().filter(|(piece, _)| !piece.shape.contains(&0)).collect();
    filled.sort_by_key(|(_, offsets)| *offsets);
    match filled[..] {
        [only] => return Some((name, only.0.shard, None)),
        [] => {
            let entire = pieces.iter().find(|(piece, _)| piece.shape == shape);
            if let Some((piece, _)) = entire {
                return Some((name, piece.shard, None));
            }
        }
        _ => {}
    }
    let shard = filled.first().map_or(first.shard, |(piece, _)| piece.shard);
    let of = filled.iter().map(|(piece, offsets)| (piece.shard, (*offsets).clone(), piece.shape.clone()));
    Some((name, shard, Some((shape, all * if first.wide { 2 } else { 1 }, of.collect()))))
}
