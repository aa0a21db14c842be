//! Checkpoints that each rank writes for itself, as PyTorch Distributed Checkpoint does.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::{Map, Value, json};

use crate::{Checkpoint, Llama, OracleTensor, ShardBuilder, byte_len, pattern};

/// A checkpoint of tensors in pieces: each rank has a file of its own, or several, and in its header where its pieces
/// belong. There is no index. Each part can be forged.
#[derive(Debug, Clone)]
pub struct Distributed {
    ranks: u64,
    /// By rank and number, both counted from 1.
    files: BTreeMap<(u64, u64), RankFile>,
    /// The number of the files that tensors go to from now on.
    number: u64,
    /// How many files a rank can have.
    numbers: u64,
}

#[derive(Debug, Clone, Default)]
struct RankFile {
    shard: ShardBuilder,
    offsets: Map<String, Value>,
    info: Info,
}

#[derive(Debug, Clone, Default)]
enum Info {
    #[default]
    FromPieces,
    Raw(String),
    Absent,
}

/// Into how many parts which dimensions of a tensor are cut, the outermost axis of the mesh of ranks first. The
/// numbers of parts multiply to the number of ranks.
pub type Mesh<'a> = &'a [(usize, u64)];

impl Distributed {
    /// A checkpoint of so many ranks, without tensors.
    pub fn new(ranks: u64) -> Self {
        Self { ranks, files: BTreeMap::new(), number: 1, numbers: 1 }
    }

    /// The name of the file that a rank writes, one of so many.
    pub fn file_name(rank: u64, number: u64, of: u64) -> String {
        format!("shard-{rank:05}-model-{number:05}-of-{of:05}.safetensors")
    }

    /// The tensors of a model: those of two dimensions cut by the mesh, the others on one rank each.
    pub fn of_llama(llama: &Llama, mesh: Mesh<'_>) -> Self {
        let ranks: u64 = mesh.iter().map(|(_, parts)| parts).product();
        llama.tensors().iter().zip(0_u64..).fold(Self::new(ranks), |all, ((name, shape), place)| {
            if shape.len() == 2 {
                all.sharded(name, "BF16", shape, mesh)
            } else {
                all.whole(place % ranks + 1, name, "BF16", shape)
            }
        })
    }

    /// Puts the tensors that follow into file `number` of each rank, one of `of`.
    pub fn file(mut self, number: u64, of: u64) -> Self {
        (self.number, self.numbers) = (number, of);
        self
    }

    /// Adds a tensor whose content follows from its name, cut as by `torch.chunk`: all parts but the last ones are
    /// equal, and some may be empty. An empty piece is written once, by the first rank that has it.
    pub fn sharded(self, name: &str, dtype: &str, shape: &[u64], mesh: Mesh<'_>) -> Self {
        let parts: u64 = mesh.iter().map(|(_, parts)| parts).product();
        assert_eq!(parts, self.ranks, "the mesh has as many parts as there are ranks");
        let mut written = Vec::new();
        (1..=self.ranks).fold(self, |all, rank| {
            let place = place(rank - 1, shape, mesh);
            if written.contains(&place) {
                return all;
            }
            written.push(place.clone());
            all.piece(rank, name, dtype, shape, &place)
        })
    }

    /// Adds a tensor that one rank has whole.
    pub fn whole(self, rank: u64, name: &str, dtype: &str, shape: &[u64]) -> Self {
        let place: Vec<_> = shape.iter().map(|&len| 0..len).collect();
        self.piece(rank, name, dtype, shape, &place)
    }

    /// Adds one piece of a tensor of this shape, whose content follows from the tensor's name.
    pub fn piece(self, rank: u64, name: &str, dtype: &str, shape: &[u64], place: &[Range<u64>]) -> Self {
        let bytes = usize::try_from(byte_len(dtype, shape)).expect("a tensor that fits in memory");
        let whole = OracleTensor {
            dtype: dtype.to_owned(),
            shape: shape.to_vec(),
            shard: String::new(),
            range: 0..bytes as u64,
            bytes: pattern::bytes(name, bytes),
        };
        let dims: Vec<_> = place.iter().map(|range| vec![range.clone()]).collect();
        let piece = whole.slice(&dims);
        let offsets: Vec<u64> = place.iter().map(|range| range.start).collect();
        self.tensor(rank, name, dtype, &piece.shape, piece.bytes).offsets(rank, name, json!(offsets))
    }

    /// Adds a tensor to a rank's file, which does not say where it belongs.
    pub fn tensor(mut self, rank: u64, name: &str, dtype: &str, shape: &[u64], bytes: Vec<u8>) -> Self {
        self.change(rank, |file| {
            file.shard = std::mem::take(&mut file.shard).tensor(name, dtype, shape, bytes);
        });
        self
    }

    /// States the `saved_offsets` of a tensor in a rank's file, which need be no offsets, nor the tensor there.
    pub fn offsets(mut self, rank: u64, name: &str, offsets: impl Into<Value>) -> Self {
        let value = json!({ "saved_offsets": offsets.into() });
        self.change(rank, |file| _ = file.offsets.insert(name.to_owned(), value));
        self
    }

    /// Puts this text in place of what a rank's file says of offsets.
    pub fn info(mut self, rank: u64, text: &str) -> Self {
        self.change(rank, |file| file.info = Info::Raw(text.to_owned()));
        self
    }

    /// Leaves out of a rank's file what it says of offsets.
    pub fn without_info(mut self, rank: u64) -> Self {
        self.change(rank, |file| file.info = Info::Absent);
        self
    }

    /// The files, without an index.
    pub fn checkpoint(&self) -> Checkpoint {
        let files = self.files.iter();
        files.fold(Checkpoint::new().without_index(), |checkpoint, (&(rank, number), file)| {
            checkpoint.shard(&Self::file_name(rank, number, self.numbers), file.build())
        })
    }

    fn change(&mut self, rank: u64, change: impl FnOnce(&mut RankFile)) {
        change(self.files.entry((rank, self.number)).or_default());
    }
}

impl RankFile {
    fn build(&self) -> ShardBuilder {
        let shard = self.shard.clone().metadata("DCP_VERSION", "1.0").metadata("format", "pt");
        match &self.info {
            Info::FromPieces => {
                shard.metadata("DCP_SHARDING_INFO", &Value::Object(self.offsets.clone()).to_string())
            }
            Info::Raw(text) => shard.metadata("DCP_SHARDING_INFO", text),
            Info::Absent => shard,
        }
    }
}

/// The indices, by dimension, that a rank, counted from 0, has of a tensor.
fn place(rank: u64, shape: &[u64], mesh: Mesh<'_>) -> Vec<Range<u64>> {
    let mut place: Vec<_> = shape.iter().map(|&len| 0..len).collect();
    let mut below: u64 = mesh.iter().map(|(_, parts)| parts).product();
    for &(dim, parts) in mesh {
        below /= parts;
        let part = rank / below % parts;
        let Range { start, end } = place[dim];
        let chunk = (end - start).div_ceil(parts);
        place[dim] = (start + part * chunk).min(end)..(start + (part + 1) * chunk).min(end);
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Oracle;

    #[test]
    fn parts_are_those_of_chunks_along_each_axis_of_the_mesh() {
        let rows = |rank| place(rank, &[5, 3], &[(0, 4)])[0].clone();
        assert_eq!([rows(0), rows(1), rows(2), rows(3)], [0..2, 2..4, 4..5, 5..5]);
        assert_eq!(place(1, &[6, 7], &[(0, 2), (1, 2)]), [0..3, 4..7]);
        assert_eq!(place(2, &[6, 7], &[(0, 2), (1, 2)]), [3..6, 0..4]);
        assert_eq!(place(2, &[10, 2], &[(0, 2), (0, 2)]), [5..8, 0..2]);
    }

    #[test]
    fn a_rank_writes_its_part_and_where_it_belongs() {
        let model = Distributed::new(2).sharded("a", "U8", &[2, 4], &[(1, 2)]).checkpoint().temp();
        let oracle = Oracle::open(model.file(&Distributed::file_name(2, 1, 1)));
        let whole = pattern::bytes("a", 8);
        assert_eq!(oracle.tensor("a").shape, [2, 2]);
        assert_eq!(oracle.tensor("a").bytes, [&whole[2..4], &whole[6..8]].concat());
        let file = std::fs::read(model.file(&Distributed::file_name(2, 1, 1))).unwrap();
        let text = String::from_utf8_lossy(&file);
        assert!(text.contains(r#"{\"a\":{\"saved_offsets\":[0,2]}}"#), "{text}");
    }

    #[test]
    fn what_is_the_same_on_several_ranks_is_written_once() {
        let model = Distributed::new(4).sharded("few", "U8", &[2, 3], &[(0, 4)]).whole(4, "all", "F32", &[]);
        let tensors: Vec<_> = model.checkpoint().shards().map(|(_, shard)| shard.tensors().count()).collect();
        assert_eq!(tensors, [1, 1, 1, 1]);
    }
}
