//! Parts of large matrices, as a rank needs them; see README.md.

use std::path::Path;

use anyhow::Result;
use weightmap_benches::competitor::Competitor;
use weightmap_benches::interleave::Program;
use weightmap_benches::storage::Storage;
use weightmap_benches::wanted::{Names, Wanted};
use weightmap_benches::{baseline, limits, models, ours};

const TARGET: &str = env!("CARGO_TARGET_TMPDIR");

const ROUNDS: usize = 11;

fn main() -> Result<()> {
    let program = Program::from_args(ROUNDS)?;
    if program.prepares() {
        models::write_large(TARGET)?;
    }
    let large = &models::large_dir(TARGET);
    // Of this matrix a row has 16 KiB, and a quarter of it is a page.
    let rows = || Names::Ending(".mlp.down_proj.weight".to_owned());
    for (what, wanted) in [
        ("quarter of dim 0, whole model", Wanted::quarter(Names::All, 0)),
        ("quarter of dim 1, 16 KiB rows", Wanted::quarter(rows(), 1)),
    ] {
        warm(&program, large, what, &wanted)?;
        cold(&program, large, what, &wanted)?;
    }
    Ok(())
}

fn warm(program: &Program, dir: &Path, what: &str, wanted: &Wanted) -> Result<()> {
    let mut competitors = ours::competitors(dir, wanted, &["buffered", "direct", "mapped", "auto"]);
    competitors.extend(peers(dir, wanted));
    #[cfg(target_os = "linux")]
    competitors.push(Competitor::new("limit: copied to huge pages by hand", || limits::copied(dir, wanted)));
    program.contest(&format!("slices, warm, {what}"), &Storage::Warm(&[dir]), &competitors)
}

fn cold(program: &Program, dir: &Path, what: &str, wanted: &Wanted) -> Result<()> {
    let mut competitors = ours::competitors(dir, wanted, ours::ALL_MODES);
    competitors.extend(peers(dir, wanted));
    #[cfg(target_os = "linux")]
    competitors.extend(limits::PLAIN.map(|(name, reads)| {
        Competitor::prepared(name, || wanted.ranges(dir), move |files| reads.run(&files))
    }));
    program.contest(&format!("slices, cold, {what}"), &Storage::Cold(&[dir]), &competitors)
}

/// The iterator over a slice that safetensors has.
fn peers<'a>(dir: &'a Path, wanted: &'a Wanted) -> [Competitor<'a>; 3] {
    [
        Competitor::new("safetensors slice -> Vec", || baseline::copied(dir, wanted)),
        Competitor::new("the same by rayon", || baseline::copied_in_parallel(dir, wanted)),
        Competitor::new("the same by rayon, huge malloc", || baseline::copied_in_parallel(dir, wanted))
            .with_huge_malloc(),
    ]
}
