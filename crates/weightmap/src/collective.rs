//! What the ranks of a node need of the launcher's engine to share what they read.

mod thread_rank;

pub use thread_rank::ThreadRank;

use std::io;

/// The processes of one node that load parts of the same model together, and the calls by which bytes go from one to the
/// others. The launcher's engine carries it out: MPI, `torch.distributed`, or threads of a test.
///
/// All members of a group make the same calls in the same order, each from one thread; a call returns when the own part of
/// it is done. Bytes have no type. An error means that the group is of no more use.
pub trait Collective {
    /// The own rank in the world that the plan divides the model over.
    fn rank(&self) -> usize;

    /// How many ranks the world has.
    fn size(&self) -> usize;

    /// The ranks that run on this node, in rising order, the own one among them. The calls below are made by all of these
    /// and no others; `root` is one of them.
    fn local_group(&self) -> &[usize];

    /// Returns when all of the group have called it.
    ///
    /// # Errors
    /// When the engine fails.
    fn barrier(&self) -> io::Result<()>;

    /// Gives the bytes of `root` to all others of the group; they have memory of the same length.
    ///
    /// # Errors
    /// When the engine fails, or the lengths differ.
    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> io::Result<()>;

    /// Gives each of the group its own bytes. `root` has them all in `parts`, one for each of the group in its order, and
    /// the others nothing; `own` receives them, `root`'s too, and has their length.
    ///
    /// # Errors
    /// When the engine fails, or the lengths differ.
    fn scatterv(&self, root: usize, parts: &[&[u8]], own: &mut [u8]) -> io::Result<()>;
}
