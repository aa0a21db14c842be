//! Every call between real processes: `cargo test` under `mpirun`, as `cargo xtask mpi` does it.
//!
//! An argument is a number of bytes that is tried beside the usual ones.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::process::ExitCode;
use std::thread;

use mpi::Threading;
use mpi::traits::Communicator as _;
use weightmap::Collective;
use weightmap_mpi::MpiCollective;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let Some(universe) = mpi::initialize() else { return ExitCode::FAILURE };
    let done = sizes().and_then(|sizes| check(MpiCollective::world(&universe), &sizes));
    if let Err(error) = done {
        eprintln!("rank {}: {error}", universe.world().rank());
        // The others may wait for this one, and would for ever.
        universe.world().abort(1);
    }
    ExitCode::SUCCESS
}

/// The bytes of a call: none, few, those of several pages, and more than MPI sends in one piece.
fn sizes() -> Outcome<Vec<usize>> {
    let mut sizes = vec![0, 1, 7, 4096, 100_001, (1 << 20) + 1, (65 << 20) + 3];
    for argument in std::env::args().skip(1).filter(|argument| !argument.starts_with('-')) {
        sizes.push(argument.parse()?);
    }
    Ok(sizes)
}

fn check(collective: MpiCollective<'_>, sizes: &[usize]) -> Outcome {
    knows_its_place(&collective)?;
    for &root in collective.local_group() {
        for &size in sizes {
            broadcasts(&collective, root, size)
                .map_err(|error| format!("broadcast of {size} by {root}: {error}"))?;
            scatters(&collective, root, size)
                .map_err(|error| format!("scatter of {size} by {root}: {error}"))?;
        }
        collective.barrier()?;
    }
    if collective.local_group().len() > 1 {
        tells_what_does_not_fit(&collective)?;
        // After these errors all are still in step.
        broadcasts(&collective, 0, 100)?;
    }
    let (rank, size) = (collective.rank(), collective.size());
    stays_on_its_thread(collective)?;
    if rank == 0 {
        println!("{size} processes: every byte in its place");
    }
    Ok(())
}

fn knows_its_place(collective: &MpiCollective<'_>) -> Outcome {
    let group = collective.local_group();
    ensure(group.contains(&collective.rank()), "the rank is in its group")?;
    ensure(group.is_sorted(), "the group is in rising order")?;
    ensure(group.iter().all(|&rank| rank < collective.size()), "the group is of the world")
}

fn broadcasts(collective: &MpiCollective<'_>, root: usize, size: usize) -> Outcome {
    let mut own = bytes(collective.rank(), size);
    collective.broadcast(root, &mut own)?;
    ensure(is(&own, root, size), "all have the bytes of the root")
}

/// Each gets another length, some nothing.
fn scatters(collective: &MpiCollective<'_>, root: usize, size: usize) -> Outcome {
    let len = |to: usize| match to % 3 {
        0 => size,
        1 => 0,
        _ => size / 2,
    };
    let (rank, group) = (collective.rank(), collective.local_group());
    let parts: Vec<_> = group
        .iter()
        .map(|&to| if rank == root { bytes(root + 100 * to, len(to + root)) } else { Vec::new() })
        .collect();
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let mut own = vec![0; len(rank + root)];
    collective.scatterv(root, if rank == root { &parts } else { &[] }, &mut own)?;
    ensure(is(&own, root + 100 * rank, len(rank + root)), "each has its own part")
}

fn tells_what_does_not_fit(collective: &MpiCollective<'_>) -> Outcome {
    let (rank, group) = (collective.rank(), collective.local_group());
    let (Some(&first), Some(&last)) = (group.first(), group.last()) else { return Ok(()) };
    let is_last = rank == last;
    let mut long = [9; 8];
    let (own, _) = long.split_at_mut(if is_last { 8 } else { 7 });
    let parts = vec![&[1_u8; 7][..]; group.len()];
    let parts: &[&[u8]] = if rank == first { &parts } else { &[] };

    fails(
        collective.broadcast(first, own),
        "has room for 8 bytes where",
        "a broadcast to one with more room",
    )?;
    fails(
        collective.scatterv(first, parts, own),
        "has room for 8 bytes where",
        "a part shorter than the room for it",
    )?;
    fails(collective.scatterv(first, &[], own), "gives 0 parts where", "a scatter of no parts")?;
    fails(
        collective.broadcast(collective.size(), own),
        "is none of the ranks of this node",
        "a root beyond the world",
    )?;
    fails(collective.broadcast(if is_last { last } else { first }, own), "the same call", "two roots")?;
    let other = if is_last { collective.barrier() } else { collective.broadcast(first, own) };
    fails(other, "the same call", "two calls")?;
    ensure(own.iter().all(|&byte| byte == 9), "no byte is written by a call that does not fit")
}

fn stays_on_its_thread(collective: MpiCollective<'_>) -> Outcome {
    let elsewhere = thread::scope(|scope| scope.spawn(move || collective.barrier()).join());
    let elsewhere = elsewhere.map_err(|_| "the thread panicked")?;
    match elsewhere {
        Ok(()) => ensure(
            mpi::environment::threading_support() == Threading::Multiple,
            "calls of another thread are refused",
        ),
        Err(error) => ensure(error.kind() == ErrorKind::Unsupported, &error.to_string()),
    }
}

fn fails(result: io::Result<()>, words: &str, what: &str) -> Outcome {
    let Err(error) = result else { return Err(format!("{what} is an error").into()) };
    let is_told = error.kind() == ErrorKind::InvalidInput && error.to_string().contains(words);
    ensure(is_told, &format!("{what} is told: {error}"))
}

fn ensure(holds: bool, what: &str) -> Outcome {
    if holds { Ok(()) } else { Err(format!("it does not hold that {what}").into()) }
}

/// Bytes that tell which ones they are, as they repeat only every 251 bytes.
fn bytes(seed: usize, len: usize) -> Vec<u8> {
    let period = period(seed);
    let mut bytes = vec![0; len];
    for chunk in bytes.chunks_mut(period.len()) {
        chunk.copy_from_slice(&period[..chunk.len()]);
    }
    bytes
}

fn is(found: &[u8], seed: usize, len: usize) -> bool {
    let period = period(seed);
    found.len() == len && found.chunks(period.len()).all(|chunk| *chunk == period[..chunk.len()])
}

fn period(seed: usize) -> Vec<u8> {
    (0..=250).cycle().skip(seed * 31 % 251).take(251).collect()
}
