//! What it costs to verify what is loaded, and to make digests; see README.md.

use std::path::Path;

use anyhow::Result;
use rayon::prelude::*;
use weightmap::{LoadOptions, ShardedModel};
use weightmap_benches::competitor::Competitor;
use weightmap_benches::interleave::Program;
use weightmap_benches::storage::Storage;
use weightmap_benches::wanted::{Names, Wanted};
use weightmap_benches::{models, ours};

const TARGET: &str = env!("CARGO_TARGET_TMPDIR");

const ROUNDS: usize = 9;

fn main() -> Result<()> {
    let program = Program::from_args(ROUNDS)?;
    let dir = &models::large_dir(TARGET);
    if program.prepares() {
        models::write_large(TARGET)?;
        let model = ShardedModel::open(dir)?;
        model.digest(&LoadOptions::default())?.write(model.digests_path(), true)?;
    }
    let all = &Wanted::all();
    for mode in ["buffered", "mapped"] {
        let mut competitors = ours::competitors(dir, all, &[mode]);
        competitors.extend(ours::verified(dir, all, &[mode]));
        competitors.push(Competitor::new("limit: BLAKE3 by all cores", || hashed(dir)));
        program.contest(
            &format!("verified, warm, {mode}, whole model"),
            &Storage::Warm(&[dir]),
            &competitors,
        )?;
    }
    let quarters = [0, 1].map(|dim| (format!("a quarter of dim {dim}"), Wanted::quarter(Names::All, dim)));
    for (what, wanted) in [("whole model".to_owned(), Wanted::all())].iter().chain(&quarters) {
        let mut competitors = ours::competitors(dir, wanted, &["auto"]);
        competitors.extend(ours::verified(dir, wanted, &["auto", "direct"]));
        program.contest(&format!("verified, cold, {what}"), &Storage::Cold(&[dir]), &competitors)?;
    }
    program.contest(
        "digests made, warm, whole model",
        &Storage::Warm(&[dir]),
        &[
            Competitor::new("weightmap: digest", || {
                let model = ShardedModel::open(dir)?;
                let digests = model.digest(&LoadOptions::default())?;
                Ok((tensor_bytes(&model)?, digests))
            }),
            Competitor::new("limit: BLAKE3 by all cores", || hashed(dir)),
        ],
    )
}

fn tensor_bytes(model: &ShardedModel) -> Result<u64> {
    Ok(model.select().all().infos()?.iter().map(weightmap::TensorInfo::len_bytes).sum())
}

/// The BLAKE3 digest of each MiB of the tensors, where they lie in the page cache.
fn hashed(dir: &Path) -> Result<(u64, Vec<blake3::Hash>)> {
    let model = ShardedModel::open(dir)?;
    let views = model.names().map(|name| model.view(name)).collect::<weightmap::Result<Vec<_>>>()?;
    let hashes =
        views.par_iter().flat_map(|view| view.bytes().par_chunks(1 << 20)).map(blake3::hash).collect();
    Ok((views.iter().map(|view| view.bytes().len() as u64).sum(), hashes))
}
