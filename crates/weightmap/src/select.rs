//! Which tensors are wanted: by name, pattern or shard.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;

use crate::assembly::Assembly;
use crate::error::{Error, Result, UnknownName};
use crate::glob::{Glob, search};
use crate::intervals::Intervals;
use crate::nearest::nearest;
use crate::plan::{Partition, Plan};
use crate::pool::Pool;
use crate::rank::Rank;
use crate::recipe::{Recipe, Source};
use crate::tensor_info::TensorInfo;

/// How many nearest names an error tells for each unknown one.
const NEAREST: usize = 3;

/// Some tensors of a model, each once, in the order in which they were asked for.
///
/// Every method adds to what is there: `model.select().glob("*.bias")?.names(["lm_head.weight"])?`; only
/// [`except`](Self::except) takes away. Names and patterns are looked up in the index alone; no shard is opened.
#[derive(Clone)]
#[must_use = "a selection does nothing until it is loaded"]
pub struct Selection {
    pub(crate) pool: Arc<Pool>,
    wanted: Vec<Wanted>,
    /// By tensor of the index: whether it is among what is wanted.
    chosen: Vec<bool>,
    /// Those of the tensors of which only a part is wanted.
    slices: BTreeMap<u32, Arc<[Intervals]>>,
    /// Whether something that is put together is wanted, whose name can be that of a tensor.
    has_outputs: bool,
    /// Whether other processes of the machine may want the same pages.
    pub(crate) is_shared: bool,
    allow_empty: bool,
}

/// Something that is wanted.
#[derive(Debug, Clone)]
enum Wanted {
    /// A tensor of the index.
    Tensor(u32),
    /// Something that is put together.
    Assembled(Arc<Assembly>),
    /// What is read of one shard for something that is put together elsewhere.
    Source(Source),
}

impl fmt::Debug for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.selected()).finish()
    }
}

impl Selection {
    pub(crate) fn new(pool: Arc<Pool>) -> Self {
        let chosen = vec![false; pool.index.len()];
        let (wanted, slices) = (Vec::new(), BTreeMap::new());
        Self { pool, wanted, chosen, slices, has_outputs: false, is_shared: false, allow_empty: false }
    }

    /// Lets patterns match nothing and the selection be loaded while it is empty; otherwise both are errors.
    /// It holds for the calls that follow.
    pub fn allow_empty(mut self) -> Self {
        self.allow_empty = true;
        self
    }

    /// Adds all tensors of the index, in its order; not those of shards that [`OpenOptions::allow_missing`]
    /// let be absent.
    ///
    /// [`OpenOptions::allow_missing`]: crate::OpenOptions::allow_missing
    pub fn all(self) -> Self {
        self.matching(|_| true).0
    }

    /// Adds the tensors of these names, in their order.
    ///
    /// # Errors
    /// [`Error::UnknownTensors`] with all names that the index does not list, and the nearest names that it
    /// does; [`Error::MissingShards`] for a tensor of a shard that is absent.
    pub fn names<N: AsRef<str>>(mut self, names: impl IntoIterator<Item = N>) -> Result<Self> {
        let pool = Arc::clone(&self.pool);
        let mut unknown = Vec::new();
        for name in names {
            let name = name.as_ref();
            match pool.index.find(name) {
                Some(tensor) => {
                    pool.shard_of(tensor)?;
                    self.add(tensor);
                }
                None => unknown.push(name.to_owned()),
            }
        }
        self.keep_last_of_each_name();
        if unknown.is_empty() { Ok(self) } else { Err(unknown_tensors(&pool, unknown)) }
    }

    /// Adds the tensors whose whole name matches a glob, in the order of the index.
    ///
    /// `*` stands for any characters, dots and slashes too, or none; `?` for one character; `[a-z]` for one
    /// of a class, `[!a-z]` for one outside it; `{a,b}` for one of several patterns; `{0..15}` for a number
    /// from 0 to 15, `{00..15}` for the same in two digits; `\` takes the next character literally.
    ///
    /// # Errors
    /// [`Error::BadPattern`]; [`Error::NothingMatches`], or [`Error::MissingShards`] if all that matches is
    /// absent, unless [`Selection::allow_empty`] came before.
    pub fn glob(self, pattern: &str) -> Result<Self> {
        let glob = Glob::parse(pattern)?;
        self.matching_or_error(pattern, |name| glob.is_match(name))
    }

    /// Adds the tensors in whose name a regular expression is found, anywhere unless it has anchors (`^`,
    /// `$`), in the order of the index. The syntax is that of the crate `regex`.
    ///
    /// # Errors
    /// [`Error::BadRegex`]; [`Error::NothingMatches`], or [`Error::MissingShards`] if all that matches is
    /// absent, unless [`Selection::allow_empty`] came before.
    pub fn regex(self, pattern: &str) -> Result<Self> {
        let regex = search(pattern)?;
        self.matching_or_error(pattern, |name| regex.is_match(name))
    }

    /// Adds the tensors that the index places in a shard, in the order of the index.
    ///
    /// # Errors
    /// [`Error::UnknownShard`] for a shard that the index does not name; [`Error::MissingShards`] for one
    /// that is absent.
    pub fn shard(mut self, name: &str) -> Result<Self> {
        let pool = Arc::clone(&self.pool);
        let shard = pool.find_shard(name)?;
        pool.check_present(shard)?;
        for tensor in pool.index.tensors_of(shard) {
            self.add(tensor);
        }
        self.keep_last_of_each_name();
        Ok(self)
    }

    /// Adds a part of a tensor: for each dimension, outermost first, the indices that are wanted; dimensions
    /// that are not told are whole. A tensor that is selected already, as a whole or by another part, is
    /// narrowed to this one: a second slice of the same tensor replaces the first, and does not add to it.
    ///
    /// Its elements keep their order, so that `[0..4]` of a matrix is its first four rows, which lie together
    /// in the file and are all that is read. Of inner dimensions, rows are read apart or with what lies between
    /// them, whichever the storage makes cheaper, and gathered.
    ///
    /// ```
    /// # let checkpoint = weightmap_testkit::Llama::tiny().checkpoint().temp();
    /// # let model = weightmap::ShardedModel::open(checkpoint.path())?;
    /// use weightmap::Intervals;
    ///
    /// // The first two rows; and of all rows, the columns 0 to 3 and 8 to 11.
    /// let part = model
    ///     .select()
    ///     .slice("model.embed_tokens.weight", [0..2])?
    ///     .slice("model.layers.0.mlp.down_proj.weight", [Intervals::from(..), [0..4, 8..12].into()])?;
    /// let loaded = part.load()?;
    /// assert_eq!(loaded.tensors()[1].shape()[1], 8);
    /// # Ok::<(), weightmap::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::UnknownTensors`], [`Error::MissingShards`]. Whether the part lies in the tensor is seen when its
    /// shard is opened: then it is [`Error::Slice`].
    pub fn slice<D: Into<Intervals>>(
        mut self,
        name: &str,
        dims: impl IntoIterator<Item = D>,
    ) -> Result<Self> {
        let tensor = self.find(name)?;
        self.add(tensor);
        self.slices.insert(tensor, dims.into_iter().map(Into::into).collect());
        self.keep_last_of_each_name();
        Ok(self)
    }

    /// Adds what a plan gives to a rank: its tensors, its parts of tensors, and what it puts together of them. All shards
    /// are opened for their headers; no data is read.
    ///
    /// It adds to what is selected, and of several of one name the last stays. A rank that the plan gives nothing to has an empty
    /// selection, which can be loaded. `rank` is a number, or a [`Rank`] that also says how many ranks there are, which must then be as many as the plan has.
    /// The ranks of a machine share the page cache, so [`ReadMode::Auto`](crate::ReadMode::Auto) does not pass it by.
    ///
    /// ```
    /// # let checkpoint = weightmap_testkit::Llama::tiny().checkpoint().temp();
    /// # let model = weightmap::ShardedModel::open(checkpoint.path())?;
    /// use weightmap::{Plan, Rank};
    ///
    /// let plan = Plan::fsdp(4)?;
    /// let loaded = model.select().plan(&plan, Rank::new(1, 4)?)?.load()?;
    /// let norm = loaded.get("model.norm.weight").map(|tensor| tensor.shape()[0]);
    /// assert_eq!(norm, Some(model.tensor("model.norm.weight")?.shape[0] / 4));
    /// # Ok::<(), weightmap::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Plan`] with all that is wrong with the plan for this model, whatever the rank; [`Error::BadRank`] for a
    /// rank that the plan does not have; [`Error::MissingShards`] as long as a shard is absent; those of a first touch.
    pub fn plan(self, plan: &Plan, rank: impl Into<Rank>) -> Result<Self> {
        let rank = rank.into();
        if let Some(world) = rank.world() {
            plan.check_world(world).map_err(|fault| Error::plan(Some(&self.pool.directory), fault))?;
        }
        let partition = self.pool.divide(plan)?;
        self.part(&partition, rank.rank())
    }

    /// As [`plan`](Self::plan), of a model that was divided already by [`ShardedModel::divide`](crate::ShardedModel::divide).
    ///
    /// # Errors
    /// [`Error::BadRank`]; [`Error::Plan`] for what was divided of another model.
    pub fn part(mut self, partition: &Partition, rank: usize) -> Result<Self> {
        partition
            .check_model(&self.pool.token)
            .map_err(|fault| Error::plan(Some(&self.pool.directory), fault))?;
        Rank::new(rank, partition.world())?;
        self.is_shared |= partition.world() > 1;
        for assembly in partition.assemblies(rank) {
            let slice = match assembly.as_slice() {
                Some((part, slice)) if self.pool.is_as_it_is(part, &assembly.name)? => {
                    Some((part.tensor, slice))
                }
                _ => None,
            };
            match slice {
                Some((tensor, slice)) => {
                    self.add(tensor);
                    self.slices.remove(&tensor);
                    let slice = slice.map(|dims| (tensor, dims.into_iter().map(Intervals::from).collect()));
                    self.slices.extend(slice);
                }
                None => {
                    self.has_outputs = true;
                    self.wanted.push(Wanted::Assembled(Arc::new(assembly)));
                }
            }
        }
        self.keep_last_of_each_name();
        // A plan may give nothing to a rank, which is no mistake of who selects it.
        self.allow_empty |= self.is_empty();
        Ok(self)
    }

    /// All of this selection that is not, by its name, in another one: the rest. A tensor of which the other has but a
    /// slice is taken out whole.
    ///
    /// ```
    /// # let checkpoint = weightmap_testkit::Llama::tiny().checkpoint().temp();
    /// # let model = weightmap::ShardedModel::open(checkpoint.path())?;
    /// let layers = model.select().glob("model.layers.*")?;
    /// let rest = model.select().all().except(&layers);
    /// assert_eq!(rest.len(), model.len() - layers.len());
    /// # Ok::<(), weightmap::Error>(())
    /// ```
    pub fn except(mut self, other: &Self) -> Self {
        let others: HashSet<&str> = other.selected().collect();
        self.retain(|name| !others.contains(name));
        self
    }

    /// All of this selection whose names do not match a [glob](Self::glob); of what a plan puts together, by the names that
    /// it gives.
    ///
    /// # Errors
    /// [`Error::BadPattern`]; [`Error::NothingMatches`] for a glob that matches neither what is selected nor any tensor of the
    /// model, unless [`Selection::allow_empty`] came before.
    pub fn except_glob(mut self, pattern: &str) -> Result<Self> {
        let glob = Glob::parse(pattern)?;
        let before = self.len();
        self.retain(|name| !glob.is_match(name));
        let is_known = self.len() < before
            || self.allow_empty
            || self.pool.index.names().any(|name| glob.is_match(name));
        if is_known { Ok(self) } else { Err(nothing_matches(&self.pool, pattern)) }
    }

    /// Takes out what a predicate of its name does not hold for.
    fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        let kept: Vec<_> = self.wanted.iter().map(|wanted| is_kept(wanted.name(&self.pool))).collect();
        self.keep(&kept);
    }

    /// Takes out what is not to be kept, by place.
    fn keep(&mut self, kept: &[bool]) {
        let Self { wanted, chosen, slices, .. } = self;
        let mut kept = kept.iter();
        wanted.retain(|wanted| {
            let is_kept = kept.next().copied().unwrap_or(true);
            if let (Wanted::Tensor(tensor), false) = (wanted, is_kept) {
                slices.remove(tensor);
                if let Some(chosen) = chosen.get_mut(*tensor as usize) {
                    *chosen = false;
                }
            }
            is_kept
        });
    }

    /// Of several of one name, which a plan can give, the last one stays, as it does of slices.
    fn keep_last_of_each_name(&mut self) {
        // A tensor of the index is never there twice.
        if !self.has_outputs {
            return;
        }
        let mut seen = HashSet::new();
        let last = self.wanted.iter().rev().map(|wanted| seen.insert(wanted.name(&self.pool)));
        let mut kept: Vec<_> = last.collect();
        kept.reverse();
        self.keep(&kept);
    }

    /// How many tensors are selected.
    pub fn len(&self) -> usize {
        self.wanted.len()
    }

    /// Whether no tensor is selected.
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// The names, in the order in which they were asked for.
    pub fn selected(&self) -> impl ExactSizeIterator<Item = &str> {
        self.wanted.iter().map(|wanted| wanted.name(&self.pool))
    }

    /// What the headers tell of the selected tensors and slices; opens the shards concerned and reads their
    /// headers, no data.
    ///
    /// # Errors
    /// Those of a shard's first touch, [`Error::TensorNotInShard`], and [`Error::Slice`].
    pub fn infos(&self) -> Result<Vec<TensorInfo>> {
        let info = |recipe: Result<Recipe>| recipe?.look_up(&self.pool).map(Arc::unwrap_or_clone);
        self.recipes().map(info).collect()
    }

    /// Adds what is read of single shards.
    pub(crate) fn sources(mut self, sources: impl IntoIterator<Item = Source>) -> Self {
        self.is_shared = true;
        self.wanted.extend(sources.into_iter().map(Wanted::Source));
        self
    }

    /// Adds something that is put together.
    #[cfg(test)]
    pub(crate) fn assembled(mut self, assembly: Assembly) -> Self {
        self.wanted.push(Wanted::Assembled(Arc::new(assembly)));
        self
    }

    /// What has to be read for each that is wanted, in order.
    pub(crate) fn recipes(&self) -> impl Iterator<Item = Result<Recipe>> {
        self.wanted.iter().map(|wanted| match wanted {
            Wanted::Tensor(tensor) => Recipe::of_tensor(&self.pool, *tensor, self.slices.get(tensor)),
            Wanted::Assembled(assembly) => Recipe::of_assembly(&self.pool, assembly),
            Wanted::Source(source) => Ok(Recipe::of_source(source.clone())),
        })
    }

    /// The number of a tensor that can be had.
    fn find(&self, name: &str) -> Result<u32> {
        let found = self.pool.index.find(name);
        let tensor = found.ok_or_else(|| unknown_tensors(&self.pool, vec![name.to_owned()]))?;
        self.pool.shard_of(tensor)?;
        Ok(tensor)
    }

    /// Fails if nothing is selected and that was not allowed.
    pub(crate) fn check_not_empty(&self) -> Result<()> {
        if self.is_empty() && !self.allow_empty {
            return Err(Error::EmptySelection { path: self.pool.directory.clone() });
        }
        Ok(())
    }

    fn add(&mut self, tensor: u32) -> bool {
        let Some(chosen) = self.chosen.get_mut(tensor as usize) else { return false };
        if !std::mem::replace(chosen, true) {
            self.wanted.push(Wanted::Tensor(tensor));
        }
        true
    }

    /// Adds what a predicate holds for; tells what it held for.
    fn matching(mut self, predicate: impl Fn(&str) -> bool) -> (Self, Matched) {
        let pool = Arc::clone(&self.pool);
        let mut matched = Matched::default();
        for (tensor, name) in (0..).zip(pool.index.names()) {
            let Some(shard) = pool.index.shard_of(tensor) else { continue };
            let is_missing = pool.is_missing(shard);
            if is_missing && matched.absent.is_some() || !predicate(name) {
                continue;
            }
            if is_missing {
                matched.absent = Some(shard);
            } else {
                matched.any |= self.add(tensor);
            }
        }
        self.keep_last_of_each_name();
        (self, matched)
    }

    fn matching_or_error(self, pattern: &str, predicate: impl Fn(&str) -> bool) -> Result<Self> {
        let allowed = self.allow_empty;
        let (selection, Matched { any, absent }) = self.matching(predicate);
        if any || allowed {
            return Ok(selection);
        }
        let pool = &selection.pool;
        absent.map_or(Ok(()), |shard| pool.check_present(shard))?;
        Err(nothing_matches(pool, pattern))
    }
}

fn nothing_matches(pool: &Pool, pattern: &str) -> Error {
    Error::NothingMatches {
        path: pool.directory.clone(),
        pattern: pattern.to_owned(),
        nearest: nearest_to_pattern(pattern, pool),
    }
}

impl Wanted {
    fn name<'a>(&'a self, pool: &'a Pool) -> &'a str {
        match self {
            Self::Tensor(tensor) => pool.index.name(*tensor).unwrap_or_default(),
            Self::Assembled(assembly) => &assembly.name,
            Self::Source(source) => pool.index.name(source.tensor).unwrap_or_default(),
        }
    }
}

/// What a pattern matched.
#[derive(Default)]
struct Matched {
    /// Whether it matched a tensor that can be had.
    any: bool,
    /// The first shard that is absent and has a tensor that it matched.
    absent: Option<u32>,
}

/// Names that begin most like the pattern, up to its first character that is not literal.
fn nearest_to_pattern(pattern: &str, pool: &Pool) -> Vec<String> {
    let literal = pattern.trim_start_matches('^').chars().take_while(|c| !"*?[{(\\+|".contains(*c));
    let literal: String = literal.collect();
    let length = literal.chars().count();
    let mut seen = HashSet::new();
    let heads = pool.index.names().map(|name| match name.char_indices().nth(length) {
        Some((end, _)) => name.get(..end).unwrap_or(name),
        None => name,
    });
    let heads: Vec<_> = heads.zip(pool.index.names()).filter(|(head, _)| seen.insert(*head)).collect();
    let near = nearest(&literal, heads.iter().map(|(head, _)| *head), NEAREST);
    near.iter()
        .filter_map(|near| heads.iter().find(|(head, _)| head == near))
        .map(|(_, name)| (*name).to_owned())
        .collect()
}

/// The error that names the nearest of the index's names for each unknown one.
pub(crate) fn unknown_tensors(pool: &Pool, unknown: Vec<String>) -> Error {
    /// Looking for nearest names reads all names once for each unknown one.
    const MOST_LOOKED_UP: usize = 10;
    let unknown = unknown.into_iter().enumerate().map(|(position, name)| {
        let nearest =
            if position < MOST_LOOKED_UP { nearest(&name, pool.index.names(), NEAREST) } else { Vec::new() };
        UnknownName { name, nearest }
    });
    Error::UnknownTensors { path: pool.directory.clone(), unknown: unknown.collect() }
}
