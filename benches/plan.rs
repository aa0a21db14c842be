//! What 64 ranks have of 92,000 tensors, from headers alone; see README.md.

use std::time::Duration;

use anyhow::Result;
use criterion::Criterion;
use weightmap::{Parallel, Plan, ShardedModel};
use weightmap_benches::models;

fn main() -> Result<()> {
    let target = env!("CARGO_TARGET_TMPDIR");
    models::write_moe(target)?;
    let dir = models::moe_dir(target);
    let config = std::fs::read_to_string(dir.join("config.json"))?;
    let model = ShardedModel::open(&dir)?;
    let parallel = Parallel::default().pp(4).dp(4).tp(4).ep(16);
    let plans = [
        ("experts", Plan::for_model(&config, &parallel)?),
        ("fsdp", Plan::fsdp(64)?),
        ("balanced", Plan::balanced(64)?),
    ];
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3))
        .configure_from_args();
    let mut group = criterion.benchmark_group("plan_92000_tensors_64_ranks");
    for (name, plan) in &plans {
        let partition = model.divide(plan)?;
        group.bench_function(format!("{name}_divide"), |b| b.iter(|| model.divide(plan)));
        group.bench_function(format!("{name}_forecast"), |b| b.iter(|| model.forecast(&partition)));
        group.bench_function(format!("{name}_select_a_rank"), |b| {
            b.iter(|| model.select().part(&partition, 17));
        });
    }
    group.bench_function("open_and_read_headers", |b| {
        b.iter(|| ShardedModel::open(&dir)?.divide(&plans[0].1));
    });
    group.finish();
    criterion.final_summary();
    Ok(())
}
