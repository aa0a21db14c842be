//! Loads from the page cache beside what a user would otherwise do; see README.md.

use std::fs;
use std::path::Path;

use anyhow::Result;
use weightmap::ShardedModel;
use weightmap_benches::competitor::Competitor;
use weightmap_benches::interleave::Program;
use weightmap_benches::storage::Storage;
use weightmap_benches::wanted::{INDEX, Wanted, read_index};
use weightmap_benches::{baseline, limits, models, ours};

const TARGET: &str = env!("CARGO_TARGET_TMPDIR");

const ROUNDS: usize = 11;

fn main() -> Result<()> {
    let program = Program::from_args(ROUNDS)?;
    if program.prepares() {
        models::write_large(TARGET)?;
        models::write_moe(TARGET)?;
        models::write_small(TARGET)?;
    }
    first_tensor(&program, &models::moe_dir(TARGET))?;
    let large = &models::large_dir(TARGET);
    for (what, wanted) in [("whole model", Wanted::all()), ("one layer", Wanted::layers(&[4]))] {
        mapped(&program, large, what, &wanted)?;
        owned(&program, large, what, &wanted)?;
    }
    let [many, single] = &models::small_dirs(TARGET);
    small_tensors(&program, many, single)
}

/// Opening an index of 92,000 tensors and a view of one of them, beside parsing the index.
fn first_tensor(program: &Program, dir: &Path) -> Result<()> {
    const NAME: &str = "model.layers.30.mlp.experts.100.up_proj.weight";
    // Children that have nothing to do with it run before the index is written.
    let bytes = || Ok::<_, std::io::Error>(fs::metadata(dir.join(INDEX))?.len());
    let index = || fs::read(dir.join(INDEX));
    program.contest(
        "open a large index, first tensor",
        &Storage::Warm(&[]),
        &[
            Competitor::new("weightmap: open + view", || {
                let model = ShardedModel::open(dir)?;
                let view = model.view(NAME)?;
                Ok((bytes()?, (model, view)))
            }),
            Competitor::new("weightmap: open", || Ok((bytes()?, ShardedModel::open(dir)?))),
            Competitor::new("serde_json -> Value", || {
                Ok((bytes()?, serde_json::from_slice::<serde_json::Value>(&index()?)?))
            }),
            Competitor::new("serde_json -> HashMap", || Ok((bytes()?, read_index(dir)?))),
            Competitor::new("the same, safetensors + memmap2", || {
                Ok((bytes()?, baseline::found(dir, NAME)?))
            }),
        ],
    )
}

fn mapped(program: &Program, dir: &Path, what: &str, wanted: &Wanted) -> Result<()> {
    let mut competitors = ours::competitors(dir, wanted, &["mapped", "auto"]);
    competitors.extend([
        Competitor::new("safetensors + memmap2, touched", || baseline::touched(dir, wanted)),
        Competitor::new("the same by rayon", || baseline::touched_in_parallel(dir, wanted)),
        #[cfg(target_os = "linux")]
        Competitor::new("limit: populated by all cores", || limits::populated(dir, wanted)),
    ]);
    program.contest(&format!("warm, mapped, {what}"), &Storage::Warm(&[dir]), &competitors)
}

fn owned(program: &Program, dir: &Path, what: &str, wanted: &Wanted) -> Result<()> {
    let mut competitors = ours::competitors(dir, wanted, &["buffered", "direct"]);
    competitors.extend([
        ours::into_memory(dir, wanted),
        Competitor::new("safetensors -> Vec", || baseline::copied(dir, wanted)),
        Competitor::new("the same, huge malloc", || baseline::copied(dir, wanted)).with_huge_malloc(),
        Competitor::new("safetensors -> Vec, rayon", || baseline::copied_in_parallel(dir, wanted)),
        Competitor::new("the same by rayon, huge malloc", || baseline::copied_in_parallel(dir, wanted))
            .with_huge_malloc(),
        #[cfg(target_os = "linux")]
        Competitor::new("limit: populated, copied to huge pages", || limits::copied(dir, wanted)),
    ]);
    program.contest(&format!("warm, owned, {what}"), &Storage::Warm(&[dir]), &competitors)
}

/// Many tensors beside one tensor of the same bytes.
fn small_tensors(program: &Program, many: &Path, single: &Path) -> Result<()> {
    let wanted = &Wanted::all();
    for (title, modes) in [("mapped", ["mapped", "auto"]), ("owned", ["buffered", "direct"])] {
        let mut competitors = ours::competitors(many, wanted, &modes);
        let ours = ours::competitors(single, wanted, &modes);
        competitors.extend(ours.into_iter().map(|competitor| competitor.of("one tensor")));
        #[cfg(target_os = "linux")]
        competitors.push(if title == "mapped" {
            Competitor::new("limit: populated by all cores", || limits::populated(many, wanted))
        } else {
            Competitor::new("limit: populated, copied to huge pages", || limits::copied(many, wanted))
        });
        program.contest(
            &format!("warm, {title}, 20,000 small tensors"),
            &Storage::Warm(&[many, single]),
            &competitors,
        )?;
    }
    Ok(())
}
