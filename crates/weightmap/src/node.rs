//! The ranks of one node, which share what they read.

mod exchange;
mod peers;
mod prefetch;
mod report;
mod schedule;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

pub use prefetch::NodeShare;
pub(crate) use prefetch::prefetch_together;
pub use report::NodeReport;

use crate::collective::Collective;
use crate::error::{Error, Result};
use crate::inspect::Inspection;
use crate::load::{LoadOptions, Loaded, Output, Outputs, check_fits};
use crate::memory::{Memory, memory_len};
use crate::plan::{Partition, Plan};
use crate::pool::Pool;
use crate::recipe::{Recipe, Source};
use crate::report::{LoadReport, total};
use crate::select::Selection;
use crate::tensor::Tensor;
use crate::tensor_info::TensorInfo;
use crate::threads::{available_cores, each, most_workers};
use exchange::{Given, exchange};
use peers::Peers;
use schedule::{Schedule, Want};

/// What came of loading together with the other ranks of the node.
#[derive(Debug)]
#[non_exhaustive]
pub struct Together {
    /// The tensors of the own rank. The report is of what this rank alone wants and has read by itself.
    pub loaded: Loaded,
    /// What the ranks of the node have read and sent, the same on all of them.
    pub node: NodeReport,
}

/// What the ranks of a node want of a model, and who reads what of it. It is the same on all of them.
pub(crate) struct Node {
    pool: Arc<Pool>,
    /// By member, what it wants.
    wishes: Vec<Wishes>,
    schedule: Schedule,
    /// Of what is read in windows.
    inspection: Inspection,
}

/// What one rank wants.
struct Wishes {
    recipes: Vec<Recipe>,
    /// Of the items of all recipes, one after the other.
    infos: Vec<Arc<TensorInfo>>,
}

/// Loads what a plan gives to the own rank, together with the other ranks of the node: what several of them want is read
/// by one, and sent.
pub(crate) fn load_together(
    pool: &Arc<Pool>,
    plan: &Plan,
    collective: &dyn Collective,
    options: &LoadOptions,
) -> Result<Together> {
    let start = Instant::now();
    let peers = Peers::new(collective)?;
    // A rank that fails by itself says so to the others, which would wait for it.
    let prepared =
        plan.check_world(collective.size()).map_err(|fault| Error::plan(Some(&pool.directory), fault));
    let prepared = prepared.and_then(|()| {
        let node = Node::new(pool, &pool.divide(plan)?, collective.local_group(), options)?;
        let room = Room::new(&node, peers.member(), options)?;
        Ok((node, room))
    });
    let (node, mut room) = peers.agree(prepared)?;
    peers.check_same(node.fingerprint())?;
    let read = node.read(&peers, &mut room, options);
    let taken = start.elapsed();
    let (report, given) = peers.agree(read)?;
    let node = node.report(&peers, &given, &report, taken)?;
    Ok(Together { loaded: room.into_loaded(report), node })
}

impl Node {
    /// Of these ranks, which are in rising order.
    pub(crate) fn new(
        pool: &Arc<Pool>,
        partition: &Partition,
        ranks: &[usize],
        options: &LoadOptions,
    ) -> Result<Self> {
        let workers = most_workers(available_cores());
        let wishes = each(ranks, workers, |&rank| Wishes::new(pool, partition, rank))?;
        let wants = wishes.iter().enumerate().flat_map(|(member, wishes)| wishes.wants(member));
        let schedule = Schedule::new(ranks.len(), &wants.collect::<Vec<_>>());
        Ok(Self { pool: Arc::clone(pool), wishes, schedule, inspection: options.inspection.clone() })
    }

    /// A number that differs where ranks do not mean the same by what they are about to do.
    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for window in &self.schedule.windows {
            (window.shard, window.range.start, window.range.end, window.reader).hash(&mut hasher);
            for receipt in &window.receipts {
                (receipt.member, receipt.dest.start, receipt.dest.end).hash(&mut hasher);
            }
        }
        self.inspection.verified().for_each(|digests| digests.hash(&mut hasher));
        for name in self.pool.index.shards() {
            name.as_str().hash(&mut hasher);
        }
        // What a rank reads by itself is in no window.
        for info in self.wishes.iter().flat_map(|wishes| &wishes.infos) {
            let slice = info.slice.as_ref().map(|slice| &slice.intervals);
            (&info.name, info.dtype.name(), &info.shape, info.range.start, info.range.end, slice)
                .hash(&mut hasher);
        }
        hasher.finish()
    }

    /// The sources that a member reads by itself, with their items.
    fn own(&self, member: usize) -> impl Iterator<Item = (usize, &Source)> {
        let sources: Vec<_> = self.wishes.get(member).into_iter().flat_map(Wishes::sources).collect();
        let own = self.schedule.own.get(member).into_iter().flatten();
        own.filter_map(move |&item| Some((item, *sources.get(item)?)))
    }

    /// Reads what is the own rank's, and takes part in what is shared, at the same time.
    fn read(&self, peers: &Peers<'_>, room: &mut Room, options: &LoadOptions) -> Result<(LoadReport, Given)> {
        let member = peers.member();
        let mut targets = room.targets();
        let own: Vec<_> = self.own(member).collect();
        let mut buffers: Vec<_> = own
            .iter()
            .map(|(item, _)| targets.get_mut(*item).map(std::mem::take).unwrap_or_default())
            .collect();
        let sources = own.into_iter().map(|(_, source)| source.clone());
        let selection = Selection::new(Arc::clone(&self.pool)).allow_empty().sources(sources);
        let (own, given) = std::thread::scope(|scope| {
            let load = move || {
                let mut buffers = buffers.iter_mut();
                selection.load_into_with(options, |_| buffers.next().map(std::mem::take).unwrap_or_default())
            };
            let own = std::thread::Builder::new().name("weightmap-own".to_owned()).spawn_scoped(scope, load);
            let given = exchange(self, peers, targets);
            let own = match own {
                // The others are told of a failure before the panic of a progress function goes on, as they would wait.
                Ok(thread) => thread.join().unwrap_or_else(|panic| {
                    let _ = given.is_ok().then(|| peers.agree::<()>(Err(Error::Cancelled)));
                    std::panic::resume_unwind(panic)
                }),
                Err(error) => Err(Error::Threads { reason: error.to_string() }),
            };
            (own, given)
        });
        // What the engine fails at is told before what this rank fails at: the others cannot be told of anything.
        let given = given?;
        let report = own?;
        given.failure.map_or(Ok(()), Err)?;
        room.gather();
        Ok((report, Given { failure: None, ..given }))
    }
}

impl Wishes {
    fn new(pool: &Arc<Pool>, partition: &Partition, rank: usize) -> Result<Self> {
        let selection = Selection::new(Arc::clone(pool)).part(partition, rank)?;
        let recipes = selection.recipes().collect::<Result<Vec<_>>>()?;
        let info = |source: &Source| Ok(Arc::new(source.info_in(pool, &*pool.shard(source.shard)?)?));
        let infos = recipes.iter().flat_map(|recipe| &recipe.sources).map(info).collect::<Result<_>>()?;
        Ok(Self { recipes, infos })
    }

    fn sources(&self) -> impl Iterator<Item = &Source> {
        self.recipes.iter().flat_map(|recipe| &recipe.sources)
    }

    fn wants(&self, member: usize) -> impl Iterator<Item = Want> {
        let items = self.sources().zip(&self.infos).enumerate();
        items.map(move |(item, (source, info))| Want {
            member,
            item,
            shard: source.shard,
            info: Arc::clone(info),
        })
    }
}

/// Memory for what the own rank has, all at once.
struct Room {
    outputs: Outputs,
    infos: Vec<Arc<TensorInfo>>,
    /// By output.
    memories: Vec<Memory>,
    /// By item, for those that are copied to their places; the others have none.
    copies: Vec<Memory>,
}

impl Room {
    fn new(node: &Node, member: usize, options: &LoadOptions) -> Result<Self> {
        let none = || (Vec::new(), Vec::new());
        let (recipes, infos) = node
            .wishes
            .get(member)
            .map_or_else(none, |wishes| (wishes.recipes.clone(), wishes.infos.clone()));
        let outputs = Outputs::new(recipes, &infos, &node.pool)?;
        let held = total(outputs.iter().map(|output| output.needed_bytes(&infos)));
        check_fits(held, options, &node.pool.directory)?;
        let memory = |bytes: u64, info: &TensorInfo| {
            Memory::zeroed(bytes).map_err(|error| node.pool.no_memory(info, bytes, error))
        };
        let memories = outputs.iter().map(|output| memory(output.info.len_bytes(), &output.info));
        let memories = memories.collect::<Result<_>>()?;
        let copy = |(item, info): (usize, &Arc<TensorInfo>)| {
            memory(if outputs.is_copied(item) { info.len_bytes() } else { 0 }, info)
        };
        let copies = infos.iter().enumerate().map(copy).collect::<Result<_>>()?;
        Ok(Self { outputs, infos, memories, copies })
    }

    /// The memory of each item.
    fn targets(&mut self) -> Vec<&mut [u8]> {
        let lengths = self.outputs.iter().map(|output| output.info.len_bytes());
        let buffers = self.memories.iter_mut().zip(lengths).map(|(memory, bytes)| first(memory, bytes));
        let (by_item, _) = self.outputs.lend(buffers.collect(), &self.infos);
        let copies = self.copies.iter_mut().zip(&self.infos);
        let targets = by_item.into_iter().zip(copies);
        targets.map(|(lent, (copy, info))| lent.unwrap_or_else(|| first(copy, info.len_bytes()))).collect()
    }

    /// Copies what has to be copied to its place.
    fn gather(&mut self) {
        for (output, memory) in self.outputs.iter().zip(&mut self.memories) {
            let copies = self.copies.get(output.items()).unwrap_or_default();
            for (gather, copy) in output.gathers().unwrap_or_default().iter().zip(copies) {
                gather.copy(copy.as_slice(), memory.as_mut_slice());
            }
        }
    }

    fn into_loaded(self, report: LoadReport) -> Loaded {
        let tensor = |(output, memory): (&Output, Memory)| {
            let bytes = memory_len(output.info.len_bytes());
            Tensor::owned(Arc::clone(&output.info), Arc::new(memory), 0..bytes)
        };
        let tensors = self.outputs.iter().zip(self.memories).map(tensor).collect();
        Loaded::new(tensors, report)
    }
}

fn first(memory: &mut Memory, bytes: u64) -> &mut [u8] {
    memory.as_mut_slice().get_mut(..memory_len(bytes)).unwrap_or_default()
}
