//! The arguments that say which tensors are wanted.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use weightmap::{Selection, ShardedModel};

use crate::slice::Slice;
use crate::text;

/// Which tensors are wanted: the union of all that is given, names first, then globs, then regular
/// expressions, less what is excluded, then slices. All tensors where nothing is given but what is excluded.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct SelectArgs {
    /// Tensors whose whole name matches: * any characters, ? one, [a-z], {a,b}, {0..15}; can be repeated
    #[arg(long = "select", value_name = "GLOB")]
    pub globs: Vec<String>,
    /// Tensors in whose name this regular expression is found; can be repeated
    #[arg(long = "regex", value_name = "RE")]
    pub regexes: Vec<String>,
    /// Tensors named in a file, one a line, blank lines apart; - is the standard input
    #[arg(long, value_name = "FILE")]
    pub names: Option<PathBuf>,
    /// Of what is selected, or of all tensors, leave out those whose whole name matches; can be repeated
    #[arg(long = "exclude", value_name = "GLOB")]
    pub excluded: Vec<String>,
    /// A part of a tensor, such as a.weight[0:16,:,8:12+20:24]: for each dimension, outermost first, the wanted
    /// indices; dimensions left out are whole. A tensor that is selected already is narrowed to it; can be repeated
    #[arg(long = "slice", value_name = "NAME[DIMS]")]
    pub slices: Vec<Slice>,
    /// Accept patterns that match nothing
    #[arg(long)]
    pub allow_empty: bool,
}

impl SelectArgs {
    /// Whether anything narrows the selection.
    pub fn is_given(&self) -> bool {
        self.adds() || !self.excluded.is_empty()
    }

    /// Whether anything says what is wanted, and not only what is not.
    fn adds(&self) -> bool {
        !self.globs.is_empty() || !self.regexes.is_empty() || self.names.is_some() || !self.slices.is_empty()
    }

    /// What is excluded from any selection of a model.
    pub(crate) fn excluded_of(&self, model: &ShardedModel) -> Result<Selection> {
        let none = model.select();
        let mut excluded = if self.allow_empty { none.allow_empty() } else { none };
        for glob in &self.excluded {
            excluded = excluded.glob(glob)?;
        }
        Ok(excluded)
    }

    /// Why nothing can be selected though no pattern failed to match.
    fn why_empty(&self) -> &'static str {
        if self.excluded.is_empty() {
            "the file of --names has no name in it"
        } else {
            "--exclude leaves none"
        }
    }

    /// Reads the file of names: once, since the standard input cannot be read again.
    pub(crate) fn read(&self) -> Result<Wanted<'_>> {
        let names = self.names.as_deref().map(read_names).transpose()?.unwrap_or_default();
        Ok(Wanted { args: self, names })
    }
}

/// What is wanted of any model.
pub(crate) struct Wanted<'a> {
    args: &'a SelectArgs,
    names: Vec<String>,
}

impl Wanted<'_> {
    /// Looks the wanted tensors up in a model.
    pub(crate) fn of(&self, model: &ShardedModel) -> Result<Selection> {
        let Self { args, names } = self;
        if !args.is_given() {
            // A checkpoint without tensors is legal, and all of it can be had.
            return Ok(model.select().allow_empty().all());
        }
        let empty = model.select();
        let mut selection = if args.allow_empty { empty.allow_empty() } else { empty };
        selection = if args.adds() { selection.names(names)? } else { selection.all() };
        for glob in &args.globs {
            selection = selection.glob(glob)?;
        }
        for regex in &args.regexes {
            selection = selection.regex(regex)?;
        }
        selection = selection.except(&args.excluded_of(model)?);
        for Slice { name, dims } in &args.slices {
            selection = selection.slice(name, dims.iter().cloned())?;
        }
        if selection.is_empty() && !args.allow_empty {
            bail!("no tensor is selected: {}; --allow-empty accepts that", args.why_empty());
        }
        Ok(selection)
    }
}

fn read_names(file: &Path) -> Result<Vec<String>> {
    let text = text::named(file).with_context(|| format!("--names: cannot read {}", file.display()))?;
    Ok(text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect())
}
