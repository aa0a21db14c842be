//! The members of a node's group, and what they tell one another.

use std::io;
use std::sync::Arc;

use crate::collective::Collective;
use crate::error::{Error, Result};

/// The ranks of a node, as one of them sees them.
pub(super) struct Peers<'a> {
    collective: &'a dyn Collective,
    /// The own place in the group.
    member: usize,
}

/// The longest message of a failure that is sent.
const MOST_MESSAGE_BYTES: usize = 16 << 10;

impl<'a> Peers<'a> {
    /// # Errors
    /// [`Error::Collective`] for a group that is not in rising order, has ranks beyond the world, or lacks the own one.
    pub(super) fn new(collective: &'a dyn Collective) -> Result<Self> {
        let (rank, size, group) = (collective.rank(), collective.size(), collective.local_group());
        let is_right =
            group.is_sorted_by(|one, next| one < next) && group.last().is_some_and(|&last| last < size);
        match group.binary_search(&rank) {
            Ok(member) if is_right => Ok(Self { collective, member }),
            _ => {
                let what =
                    format!("the group {group:?} of rank {rank} of {size}, which must be rising and have it");
                Err(failed("use", io::Error::new(io::ErrorKind::InvalidInput, what)))
            }
        }
    }

    pub(super) fn member(&self) -> usize {
        self.member
    }

    pub(super) fn count(&self) -> usize {
        self.collective.local_group().len()
    }

    /// The rank of a member.
    pub(super) fn rank(&self, member: usize) -> usize {
        self.collective.local_group().get(member).copied().unwrap_or(usize::MAX)
    }

    pub(super) fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<()> {
        self.collective.broadcast(self.rank(root), bytes).map_err(|error| failed("broadcast", error))
    }

    pub(super) fn scatterv(&self, root: usize, parts: &[&[u8]], own: &mut [u8]) -> Result<()> {
        self.collective.scatterv(self.rank(root), parts, own).map_err(|error| failed("scatter", error))
    }

    /// Gives numbers of each member to all; those of the own one are `own`.
    pub(super) fn exchange<const N: usize>(&self, own: [u64; N]) -> Result<Vec<[u64; N]>> {
        let one = |member: usize| {
            let mut bytes: Vec<u8> = own.iter().flat_map(|number| number.to_le_bytes()).collect();
            self.broadcast(member, &mut bytes)?;
            let (numbers, _) = bytes.as_chunks::<8>();
            let mut numbers = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes));
            Ok(std::array::from_fn(|_| numbers.next().unwrap_or(0)))
        };
        (0..self.count()).map(one).collect()
    }

    /// Gives back what came of something, if it went well for all members.
    ///
    /// # Errors
    /// The own failure, or [`Error::Peer`] with that of another; all members get an error then.
    pub(super) fn agree<T>(&self, own: Result<T>) -> Result<T> {
        // When the group is of no more use, nobody waits for anybody.
        if let Err(error @ Error::Collective { .. }) = own {
            return Err(error);
        }
        let mut message = own.as_ref().err().map(Error::to_string).unwrap_or_default().into_bytes();
        message.truncate(MOST_MESSAGE_BYTES);
        let flag = u64::from(own.is_err());
        let told = self.exchange([flag, message.len() as u64])?;
        let mut failure = None;
        for (member, [failed, length]) in told.into_iter().enumerate() {
            if failed == 0 {
                continue;
            }
            let mut bytes = vec![0; usize::try_from(length).unwrap_or(0).min(MOST_MESSAGE_BYTES)];
            if member == self.member {
                bytes.copy_from_slice(&message);
            }
            self.broadcast(member, &mut bytes)?;
            let message = String::from_utf8_lossy(&bytes).into_owned();
            failure.get_or_insert_with(|| Error::Peer { rank: self.rank(member), message });
        }
        match (own, failure) {
            (Err(error), _) | (Ok(_), Some(error)) => Err(error),
            (Ok(own), None) => Ok(own),
        }
    }

    /// Fails, for all members, if they do not have the same number.
    pub(super) fn check_same(&self, own: u64) -> Result<()> {
        let numbers = self.exchange([own])?;
        let other = numbers.iter().position(|[number]| *number != own);
        let differs = other.map(|member| Error::Peer {
            rank: self.rank(member),
            message:
                "it has planned something else; do all ranks have the same plan, and see the same files?"
                    .to_owned(),
        });
        differs.map_or(Ok(()), Err)
    }
}

fn failed(action: &'static str, error: io::Error) -> Error {
    Error::Collective { action, error: Arc::new(error) }
}
