//! The collective that MPI carries out.

use std::io;
use std::marker::PhantomData;

use mpi::Rank;
use mpi::environment::Universe;
use mpi::request;
use mpi::topology::Process;
use mpi::traits::{
    Communicator as _, CommunicatorCollectives as _, Destination as _, Root as _, Source as _,
};
use weightmap::Collective;

use crate::call::{Call, Kind, fits, invalid, judge, verdict};
use crate::node::Node;

/// What is sent at once: MPI counts bytes by a C `int`.
const MOST_AT_ONCE: usize = 1 << 30;

/// The processes of an MPI job; those that can share memory are one node.
///
/// It has a communicator of its own, so that its messages meet no others. The bytes go straight from the memory of one
/// rank to that of the other, and what copies lie between is a matter of MPI. No call is too long for it.
///
/// Before each call the ranks of the node tell each other what they are about to do. Where that does not fit together,
/// all of them get an error of the kind [`InvalidInput`](io::ErrorKind::InvalidInput), and no byte is written. Where MPI
/// itself fails, or a process of the job dies, MPI ends the job: it does so by default, and promises nothing after an
/// error. A rank that goes no further while others wait for it has to call
/// [`abort`](mpi::traits::Communicator::abort): they would wait for ever.
///
/// Unless MPI was initialised with [`Threading::Multiple`](mpi::Threading::Multiple), the calls are made on the thread
/// that made the collective; on all others they are errors of the kind [`Unsupported`](io::ErrorKind::Unsupported).
pub struct MpiCollective<'universe> {
    rank: usize,
    size: usize,
    group: Vec<usize>,
    /// The place of this rank in the group, which is its rank in the communicator of the node.
    place: usize,
    node: Node,
    /// MPI must not be finalised before the communicator is freed.
    universe: PhantomData<&'universe Universe>,
}

impl<'universe> MpiCollective<'universe> {
    /// All processes of the job. All of them call this.
    pub fn world(universe: &'universe Universe) -> Self {
        let world = universe.world();
        let node = world.split_shared(world.rank());
        let mut group = vec![0; count(node.size())];
        node.all_gather_into(&world.rank(), group.as_mut_slice());
        Self {
            rank: count(world.rank()),
            size: count(world.size()),
            group: group.into_iter().map(count).collect(),
            place: count(node.rank()),
            node: Node::new(node),
            universe: PhantomData,
        }
    }

    /// Tells the others of this call and hears of theirs, by place in the group. Returns when all have made one.
    fn agree(&self, call: Call) -> io::Result<Vec<[u64; 4]>> {
        let mut numbers = vec![0; self.group.len().saturating_mul(4)];
        self.node.get()?.all_gather_into(&call.numbers(), numbers.as_mut_slice());
        let (calls, _) = numbers.as_chunks();
        judge(call, calls, &self.group)?;
        Ok(calls.to_vec())
    }

    /// The process of a rank of this node, for calls that all have agreed upon.
    fn process(&self, rank: usize) -> io::Result<Process<'_>> {
        let place = self.group.iter().position(|&other| other == rank);
        let place = place.and_then(|place| Rank::try_from(place).ok());
        let Some(place) = place else { return invalid(format!("rank {rank} is none of this node")) };
        Ok(self.node.get()?.process_at_rank(place))
    }

    /// Sends each of the others its part, all at once.
    fn send(&self, parts: &[&[u8]]) -> io::Result<()> {
        let others = self.group.iter().zip(parts).filter(|&(&rank, _)| rank != self.rank);
        let mut messages = Vec::new();
        for (&rank, part) in others {
            let process = self.process(rank)?;
            messages.extend(part.chunks(MOST_AT_ONCE).map(|message| (process, message)));
        }
        request::multiple_scope(messages.len(), |scope, requests| {
            for &(process, message) in &messages {
                requests.add(process.immediate_send(scope, message));
            }
            requests.wait_all(&mut Vec::new());
        });
        Ok(())
    }
}

impl Collective for MpiCollective<'_> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn local_group(&self) -> &[usize] {
        &self.group
    }

    fn barrier(&self) -> io::Result<()> {
        // Nobody knows of everyone's call before everyone has made it.
        self.agree(Call { kind: Kind::Barrier, root: 0, parts: 0, room: 0 }).map(drop)
    }

    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> io::Result<()> {
        self.agree(Call { kind: Kind::Broadcast, root, parts: 0, room: bytes.len() })?;
        let root = self.process(root)?;
        for message in bytes.chunks_mut(MOST_AT_ONCE) {
            root.broadcast_into(message);
        }
        Ok(())
    }

    fn scatterv(&self, root: usize, parts: &[&[u8]], own: &mut [u8]) -> io::Result<()> {
        let calls = self.agree(Call { kind: Kind::Scatterv, root, parts: parts.len(), room: own.len() })?;
        let process = self.process(root)?;
        // Only the root knows whether its parts fit.
        let mut verdict = verdict(parts, &calls);
        process.broadcast_into(&mut verdict);
        fits(verdict, root, &self.group)?;
        if root == self.rank {
            self.send(parts)?;
            own.copy_from_slice(parts.get(self.place).copied().unwrap_or_default());
        } else {
            for message in own.chunks_mut(MOST_AT_ONCE) {
                process.receive_into(message);
            }
        }
        Ok(())
    }
}

/// MPI counts by a C `int`, and by none that is negative.
fn count(number: Rank) -> usize {
    number.unsigned_abs() as usize
}
