//! Ranks that are threads of one process.

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::marker::PhantomData;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::Collective;

/// A rank that is a thread of this process: for tests, and for programs that divide a model over threads.
///
/// All ranks are made at once, and each is given to the thread that acts for it. When one is dropped, be it by a panic,
/// the others of its node get an error of the kind [`BrokenPipe`](ErrorKind::BrokenPipe), and none waits for it. Where
/// the ranks of a node do not make the same call, with the same root and lengths that belong together, all of them get
/// an error of the kind [`InvalidInput`](ErrorKind::InvalidInput), and no byte is written.
///
/// The bytes are copied twice: by the root to memory of the group, and by each receiver from there.
///
/// ```
/// use std::thread;
/// use weightmap::Collective as _;
/// use weightmap::collective::ThreadRank;
///
/// thread::scope(|scope| {
///     for rank in ThreadRank::world(4) {
///         scope.spawn(move || {
///             let mut bytes = [if rank.rank() == 2 { 7 } else { 0 }];
///             rank.broadcast(2, &mut bytes).unwrap();
///             assert_eq!(bytes, [7]);
///         });
///     }
/// });
/// ```
#[derive(Debug)]
pub struct ThreadRank {
    rank: usize,
    size: usize,
    /// The place in the group of the node.
    place: usize,
    node: Arc<Node>,
    /// Two threads that called for one rank at once would be taken for one that calls twice.
    of_one_thread: PhantomData<Cell<()>>,
}

impl ThreadRank {
    /// A world of so many ranks on one node, in the order of the ranks.
    pub fn world(size: usize) -> Vec<Self> {
        Self::on_nodes(&[size])
    }

    /// A world on several nodes, so many ranks on each: the first ones on the first node, and so on.
    pub fn on_nodes(sizes: &[usize]) -> Vec<Self> {
        let size = sizes.iter().fold(0_usize, |size, &of_node| size.saturating_add(of_node));
        let mut ranks = Vec::new();
        for &of_node in sizes {
            let group = ranks.len()..ranks.len().saturating_add(of_node);
            let node = Arc::new(Node::new(group.clone().collect()));
            ranks.extend(group.enumerate().map(|(place, rank)| Self {
                rank,
                size,
                place,
                node: Arc::clone(&node),
                of_one_thread: PhantomData,
            }));
        }
        ranks
    }

    /// Makes a call together with the others of the node: what each of them put into it, in the order of the group.
    fn call(&self, put: Put) -> io::Result<Arc<[Put]>> {
        let puts = self.node.exchange(self.place, put)?;
        judge(&puts, &self.node.group)?;
        Ok(puts)
    }

    /// What `root` gave for the rank at `place` of the group.
    fn given<'a>(&self, puts: &'a [Put], root: usize, place: usize) -> &'a [u8] {
        let root = self.node.group.iter().position(|&rank| rank == root);
        root.and_then(|root| puts.get(root)?.given.get(place)).map_or(&[], |bytes| bytes)
    }
}

impl Collective for ThreadRank {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn local_group(&self) -> &[usize] {
        &self.node.group
    }

    fn barrier(&self) -> io::Result<()> {
        self.call(Put { kind: Kind::Barrier, wanted: 0, given: Vec::new() }).map(drop)
    }

    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> io::Result<()> {
        let is_root = root == self.rank;
        let given = if is_root { vec![bytes.to_vec()] } else { Vec::new() };
        let puts = self.call(Put { kind: Kind::Broadcast { root }, wanted: bytes.len(), given })?;
        if !is_root {
            bytes.copy_from_slice(self.given(&puts, root, 0));
        }
        Ok(())
    }

    fn scatterv(&self, root: usize, parts: &[&[u8]], own: &mut [u8]) -> io::Result<()> {
        let given = parts.iter().map(|part| part.to_vec()).collect();
        let puts = self.call(Put { kind: Kind::Scatterv { root }, wanted: own.len(), given })?;
        own.copy_from_slice(self.given(&puts, root, self.place));
        Ok(())
    }
}

impl Drop for ThreadRank {
    fn drop(&mut self) {
        self.node.state().left.get_or_insert(self.rank);
        self.node.changed.notify_all();
    }
}

/// What the ranks of one node share.
#[derive(Debug)]
struct Node {
    group: Vec<usize>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// How many calls all have made.
    calls: u64,
    /// What was put into the call under way, by place in the group.
    puts: Vec<Option<Put>>,
    /// What was put into the last call that all have made, until everyone has taken it.
    last: Arc<[Put]>,
    /// How many have not taken it.
    takers: usize,
    /// The first rank that makes no more calls: others may leave because of it.
    left: Option<usize>,
}

impl Node {
    fn new(group: Vec<usize>) -> Self {
        let puts = group.iter().map(|_| None).collect();
        let state = State { calls: 0, puts, last: Arc::from([]), takers: 0, left: None };
        Self { group, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// No code that can panic runs under the lock, so what it guards is right even if it is poisoned.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until each of the group has put something, and returns it all. The next call cannot end before everyone has
    /// taken what was put into this one.
    fn exchange(&self, place: usize, put: Put) -> io::Result<Arc<[Put]>> {
        let mut state = self.state();
        let call = state.calls;
        if let Some(own) = state.puts.get_mut(place) {
            *own = Some(put);
        }
        if state.left.is_none() && state.puts.iter().all(Option::is_some) {
            let none = self.group.iter().map(|_| None).collect();
            state.last = mem::replace(&mut state.puts, none).into_iter().flatten().collect();
            state.takers = self.group.len();
            state.calls = call.wrapping_add(1);
            self.changed.notify_all();
        }
        while state.calls == call {
            if let Some(rank) = state.left {
                let why = format!(
                    "rank {rank} of this node has left the group, so that no call of it can be completed"
                );
                return Err(io::Error::new(ErrorKind::BrokenPipe, why));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.takers = state.takers.saturating_sub(1);
        let is_last = state.takers == 0;
        Ok(if is_last { mem::replace(&mut state.last, Arc::from([])) } else { Arc::clone(&state.last) })
    }
}

/// What one rank puts into a call.
#[derive(Debug)]
struct Put {
    kind: Kind,
    /// How many bytes it has room for.
    wanted: usize,
    /// What it has for others.
    given: Vec<Vec<u8>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Barrier,
    Broadcast { root: usize },
    Scatterv { root: usize },
}

/// Whether what was put belongs together. Everyone judges the same, and so comes to the same result.
fn judge(puts: &[Put], group: &[usize]) -> io::Result<()> {
    let Some(first) = puts.first() else { return Ok(()) };
    let other = group.iter().zip(puts).find(|(_, put)| put.kind != first.kind);
    if let Some((rank, put)) = other {
        return invalid(format!("rank {rank} calls {:?} where others call {:?}", put.kind, first.kind));
    }
    match first.kind {
        Kind::Barrier => Ok(()),
        Kind::Broadcast { root } => judge_lengths(puts, group, root, false),
        Kind::Scatterv { root } => judge_lengths(puts, group, root, true),
    }
}

/// Whether `root` gives all the group one thing, or each of it a part, and all have the room for just that.
fn judge_lengths(puts: &[Put], group: &[usize], root: usize, apart: bool) -> io::Result<()> {
    let ranks = || group.iter().copied().zip(puts);
    let Some((_, of_root)) = ranks().find(|&(rank, _)| rank == root) else {
        return invalid(format!("the root, rank {root}, is none of the ranks of this node, {group:?}"));
    };
    if let Some((rank, put)) = ranks().find(|&(rank, put)| rank != root && !put.given.is_empty()) {
        let parts = put.given.len();
        return invalid(format!("rank {rank} gives {parts} parts, but only the root, rank {root}, may"));
    }
    let (found, expected) = (of_root.given.len(), if apart { group.len() } else { 1 });
    if found != expected {
        return invalid(format!("the root, rank {root}, gives {found} parts where {expected} are due"));
    }
    for (place, (rank, put)) in ranks().enumerate() {
        let given = of_root.given.get(if apart { place } else { 0 }).map_or(0, Vec::len);
        let room = put.wanted;
        if room != given {
            return invalid(format!(
                "rank {rank} has room for {room} bytes where rank {root} gives it {given}"
            ));
        }
    }
    Ok(())
}

fn invalid(why: String) -> io::Result<()> {
    Err(io::Error::new(ErrorKind::InvalidInput, why))
}

#[cfg(test)]
mod tests;
