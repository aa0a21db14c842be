//! Loads from the page cache beside what a user would otherwise do; see README.md.

use std::fs;
use std::path::Path;

use anyhow::Result;
use weightmap::{LoadOptions, ReadMode, ShardedModel};
use weightmap_benches::interleave::{Competitor, Program};
use weightmap_benches::{limits, models, peers};

const TARGET: &str = env!("CARGO_TARGET_TMPDIR");

/// A run that finds all in the page cache reads nothing but, perhaps, a page of the program.
const WARM_DEVICE_BYTES: Option<u64> = Some(1 << 20);

fn main() -> Result<()> {
    let program = Program::from_args()?;
    if program.prepares() {
        models::write_llama(TARGET)?;
        models::write_moe(TARGET)?;
    }
    let llama = &models::llama_dir(TARGET);
    first_tensor(&program, &models::moe_dir(TARGET))?;
    for (what, glob) in [("whole model", "*"), ("one layer", "model.layers.3.*")] {
        mapped(&program, llama, what, glob)?;
        buffered(&program, llama, what, glob)?;
    }
    Ok(())
}

/// Opening an index of 92,000 tensors and a view of one of them, beside parsing the index.
fn first_tensor(program: &Program, dir: &Path) -> Result<()> {
    const NAME: &str = "model.layers.30.mlp.experts.100.up_proj.weight";
    let bytes = fs::metadata(dir.join(peers::INDEX))?.len();
    let index = || fs::read(dir.join(peers::INDEX));
    program.contest(
        "open a large index, first tensor",
        WARM_DEVICE_BYTES,
        &[
            Competitor::new("weightmap: open + view", || {
                let model = ShardedModel::open(dir)?;
                let view = model.view(NAME)?;
                Ok((bytes, (model, view)))
            }),
            Competitor::new("weightmap: open", || Ok((bytes, ShardedModel::open(dir)?))),
            Competitor::new("serde_json -> Value", || {
                Ok((bytes, serde_json::from_slice::<serde_json::Value>(&index()?)?))
            }),
            Competitor::new("serde_json -> HashMap<String, String>", || Ok((bytes, peers::read_index(dir)?))),
            Competitor::new("serde_json -> HashMap, safetensors + memmap2", || {
                Ok((bytes, peers::found(dir, &|name| name == NAME)?.1))
            }),
        ],
    )
}

fn mapped(program: &Program, dir: &Path, what: &str, glob: &str) -> Result<()> {
    let wanted = &wanted(glob);
    program.contest(
        &format!("warm, mapped, {what}"),
        WARM_DEVICE_BYTES,
        &[
            Competitor::new("weightmap", || load(dir, glob, ReadMode::Mapped)),
            Competitor::new("safetensors + memmap2, touched", || peers::touched(dir, wanted)),
            Competitor::new("safetensors + memmap2, touched by rayon", || {
                peers::touched_in_parallel(dir, wanted)
            }),
            #[cfg(target_os = "linux")]
            Competitor::new("limit: populated by all cores", || limits::populated(dir, wanted)),
        ],
    )
}

fn buffered(program: &Program, dir: &Path, what: &str, glob: &str) -> Result<()> {
    let wanted = &wanted(glob);
    program.contest(
        &format!("warm, buffered, {what}"),
        WARM_DEVICE_BYTES,
        &[
            Competitor::new("weightmap", || load(dir, glob, ReadMode::Buffered)),
            Competitor::new("weightmap, huge malloc", || load(dir, glob, ReadMode::Buffered))
                .with_huge_malloc(),
            Competitor::new("safetensors -> Vec", || peers::copied(dir, wanted)),
            Competitor::new("safetensors -> Vec, huge malloc", || peers::copied(dir, wanted))
                .with_huge_malloc(),
            Competitor::new("safetensors -> Vec by rayon", || peers::copied_in_parallel(dir, wanted)),
            Competitor::new("safetensors -> Vec by rayon, huge malloc", || {
                peers::copied_in_parallel(dir, wanted)
            })
            .with_huge_malloc(),
            #[cfg(target_os = "linux")]
            Competitor::new("limit: populated, copied to huge pages", || limits::copied(dir, wanted)),
        ],
    )
}

/// From the path to the bytes: opening the model is in it, as reading the index is for the peers.
fn load(dir: &Path, glob: &str, mode: ReadMode) -> Result<(u64, weightmap::Loaded)> {
    let selection = ShardedModel::open(dir)?.select().glob(glob)?;
    let loaded = selection.load_with(&LoadOptions::default().mode(mode))?;
    Ok((loaded.tensors().iter().map(|tensor| tensor.bytes().len() as u64).sum(), loaded))
}

/// What matches the globs of this file, for who has none: a beginning, and then anything.
fn wanted(glob: &str) -> impl Fn(&str) -> bool {
    let start = glob.trim_end_matches('*').to_owned();
    move |name| name.starts_with(&start)
}
