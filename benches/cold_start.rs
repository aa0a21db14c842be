//! Loads from storage, nothing of the checkpoint in the page cache; see README.md.

use std::path::Path;

use anyhow::Result;
use weightmap_benches::competitor::Competitor;
use weightmap_benches::interleave::Program;
use weightmap_benches::storage::Storage;
use weightmap_benches::wanted::{Names, Wanted};
use weightmap_benches::{baseline, limits, models, ours};

const TARGET: &str = env!("CARGO_TARGET_TMPDIR");

/// Fewer than of warm runs, which are shorter.
const ROUNDS: usize = 7;

fn main() -> Result<()> {
    let program = Program::from_args(ROUNDS)?;
    if program.prepares() {
        models::write_large(TARGET)?;
        models::write_small(TARGET)?;
    }
    let large = &models::large_dir(TARGET);
    for (what, wanted) in [
        ("whole model", Wanted::all()),
        ("one layer", Wanted::layers(&[4])),
        ("three layers", Wanted::layers(&[1, 4, 6])),
        ("a rank of four, dim 0", Wanted::quarter(Names::All, 0)),
    ] {
        cold(&program, large, what, &wanted)?;
    }
    let [many, single] = &models::small_dirs(TARGET);
    small_tensors(&program, many, single)
}

fn cold(program: &Program, dir: &Path, what: &str, wanted: &Wanted) -> Result<()> {
    let mut competitors = ours::competitors(dir, wanted, ours::ALL_MODES);
    competitors.extend(others(dir, wanted));
    program.contest(&format!("cold, {what}"), &Storage::Cold(&[dir]), &competitors)
}

/// Many tensors beside one tensor of the same bytes.
fn small_tensors(program: &Program, many: &Path, single: &Path) -> Result<()> {
    let wanted = &Wanted::all();
    let mut competitors = ours::competitors(many, wanted, ours::ALL_MODES);
    let ours = ours::competitors(single, wanted, ours::ALL_MODES);
    competitors.extend(ours.into_iter().map(|competitor| competitor.of("one tensor")));
    competitors.extend(others(many, wanted));
    program.contest("cold, 20,000 small tensors", &Storage::Cold(&[many, single]), &competitors)
}

fn others<'a>(dir: &'a Path, wanted: &'a Wanted) -> Vec<Competitor<'a>> {
    let mut competitors = vec![
        Competitor::new("safetensors + memmap2, touched", || baseline::touched(dir, wanted)),
        Competitor::new("safetensors -> Vec, rayon", || baseline::copied_in_parallel(dir, wanted)),
    ];
    #[cfg(target_os = "linux")]
    competitors.extend(limits::PLAIN.map(|(name, reads)| {
        Competitor::prepared(name, || wanted.ranges(dir), move |files| reads.run(&files))
    }));
    competitors
}
