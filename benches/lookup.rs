//! Finding tensors by name and pattern among 92,000 beside a `HashMap` and the regex crate; see README.md.

use std::hint::black_box;
use std::time::Duration;

use anyhow::Result;
use criterion::{Criterion, Throughput};
use weightmap::ShardedModel;
use weightmap_benches::models;
use weightmap_benches::wanted::read_index;

fn main() -> Result<()> {
    let target = env!("CARGO_TARGET_TMPDIR");
    models::write_moe(target)?;
    let dir = &models::moe_dir(target);
    let model = ShardedModel::open(dir)?;
    let map = read_index(dir)?.weight_map;
    // In the order of another hash, so that no table is read from start to end.
    let hits: Vec<String> = read_index(dir)?.weight_map.into_keys().collect();
    let misses: Vec<String> = hits.iter().map(|name| format!("{name}_")).collect();
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();

    for (what, names) in [("lookup_hit", &hits), ("lookup_miss", &misses)] {
        let mut group = criterion.benchmark_group(what);
        group.throughput(Throughput::Elements(names.len() as u64));
        let found =
            |contains: &dyn Fn(&str) -> bool| names.iter().filter(|name| contains(black_box(name))).count();
        group.bench_function("weightmap", |b| b.iter(|| found(&|name| model.contains(name))));
        group.bench_function("hash_map", |b| b.iter(|| found(&|name| map.contains_key(name))));
        group.finish();
    }

    for (what, glob, pattern) in [
        ("select_layer", "model.layers.3.*", r"^model\.layers\.3\..*$"),
        (
            "select_experts",
            "*.experts.{0..15}.down_proj.weight",
            r"\.experts\.(?:[0-9]|1[0-5])\.down_proj\.weight$",
        ),
    ] {
        let mut group = criterion.benchmark_group(what);
        group.bench_function("weightmap_glob", |b| b.iter(|| model.select().glob(glob)));
        group.bench_function("weightmap_regex", |b| b.iter(|| model.select().regex(pattern)));
        group.bench_function("regex_over_hash_map", |b| {
            b.iter(|| {
                let regex = regex::Regex::new(pattern)?;
                Ok::<_, regex::Error>(map.keys().filter(|name| regex.is_match(name)).collect::<Vec<_>>())
            });
        });
        group.finish();
    }
    criterion.final_summary();
    Ok(())
}
