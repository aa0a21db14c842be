//! The arguments that say what is compared with what is loaded.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use weightmap::{Digests, LoadOptions, ShardedModel};

/// Whether what is loaded is compared with digests, and with which.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct VerifyArgs {
    /// Compare all that is read with the digests that lie beside the checkpoint, as `weightmap digest` writes them, and
    /// fail where it differs
    #[arg(long)]
    pub verify: bool,
    /// Compare it with the digests in this file instead
    #[arg(long, value_name = "FILE")]
    pub digests: Option<PathBuf>,
}

impl VerifyArgs {
    /// Adds the comparison, if there is to be one, to how a model is loaded.
    ///
    /// # Errors
    /// When there are no digests, or they cannot be read.
    pub fn apply(&self, model: &ShardedModel, options: LoadOptions) -> Result<LoadOptions> {
        let digests = match &self.digests {
            Some(file) => Digests::read(file)?,
            None if self.verify => model.digests()?.with_context(|| {
                format!(
                    "--verify: there are no digests beside the checkpoint, at {}; make them by `weightmap digest` if it \
                     is known to be right, or point to some by --digests",
                    model.digests_path().display()
                )
            })?,
            None => return Ok(options),
        };
        Ok(options.verify(digests))
    }
}
