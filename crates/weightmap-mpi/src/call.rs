//! What the ranks of a node tell each other of a call before bytes go anywhere.

use std::io::{self, ErrorKind};

/// What one rank says of the call that it makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    /// The rank in the world whose bytes are given.
    pub(crate) root: usize,
    /// How many parts it gives.
    pub(crate) parts: usize,
    /// How many bytes it has room for.
    pub(crate) room: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Barrier,
    Broadcast,
    Scatterv,
}

impl Call {
    /// As numbers, which MPI can send.
    pub(crate) fn numbers(self) -> [u64; 4] {
        [self.kind as u64, self.root as u64, self.parts as u64, self.room as u64]
    }
}

/// Whether all of the group make the same call as `own`, as far as can be told without a look at the parts. Everyone
/// judges the same numbers, and so comes to the same result.
pub(crate) fn judge(own: Call, calls: &[[u64; 4]], group: &[usize]) -> io::Result<()> {
    let ranks = || group.iter().copied().zip(calls);
    let [kind, root, ..] = own.numbers();
    if ranks().any(|(_, &[other, other_root, ..])| (other, other_root) != (kind, root)) {
        return invalid(format!("the ranks {group:?} do not make the same call: here it is {own:?}"));
    }
    if own.kind == Kind::Barrier {
        return Ok(());
    }
    let Some((_, &[.., of_root])) = ranks().find(|&(rank, _)| rank == own.root) else {
        return invalid(format!("the root, rank {}, is none of the ranks of this node, {group:?}", own.root));
    };
    for (rank, &[_, _, parts, room]) in ranks() {
        let due = if own.kind == Kind::Scatterv && rank == own.root { group.len() as u64 } else { 0 };
        if parts != due {
            return invalid(format!(
                "rank {rank} gives {parts} parts where {due} are due, the root being rank {root}"
            ));
        }
        if own.kind == Kind::Broadcast && room != of_root {
            return invalid(format!(
                "rank {rank} has room for {room} bytes where rank {root} gives it {of_root}"
            ));
        }
    }
    Ok(())
}

/// What the root tells the others of its parts: that nothing is wrong, or the first place of the group whose part has
/// not the length that its rank has room for, and both lengths.
pub(crate) fn verdict(parts: &[&[u8]], calls: &[[u64; 4]]) -> [u64; 4] {
    let lengths = parts.iter().zip(calls).map(|(part, &[.., room])| (part.len() as u64, room));
    let wrong = lengths.enumerate().find(|(_, (part, room))| part != room);
    wrong.map_or([0; 4], |(place, (part, room))| [1, place as u64, part, room])
}

/// Whether that verdict is that nothing is wrong.
pub(crate) fn fits([is_wrong, place, part, room]: [u64; 4], root: usize, group: &[usize]) -> io::Result<()> {
    let rank = usize::try_from(place).ok().and_then(|place| group.get(place));
    match rank {
        Some(rank) if is_wrong != 0 => {
            invalid(format!("rank {rank} has room for {room} bytes where rank {root} gives it {part}"))
        }
        _ => Ok(()),
    }
}

pub(crate) fn invalid<T>(why: String) -> io::Result<T> {
    Err(io::Error::new(ErrorKind::InvalidInput, why))
}
