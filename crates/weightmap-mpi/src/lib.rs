//! The ranks of an MPI job share what they read of a checkpoint: [`MpiCollective`] is the
//! [`Collective`](weightmap::Collective) of [weightmap] that MPI carries out.
//!
//! ```no_run
//! use weightmap::Collective as _;
//! use weightmap_mpi::MpiCollective;
//!
//! let universe = mpi::initialize().ok_or("MPI was initialised before")?;
//! let collective = MpiCollective::world(&universe);
//! println!("rank {} of {}", collective.rank(), collective.size());
//! println!("with {:?} on this node", collective.local_group());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod call;
mod collective;
mod node;

pub use collective::MpiCollective;
