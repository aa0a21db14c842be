//! Parsing a large index, and opening the model, beside serde_json; see README.md.

use std::fs;
use std::hint::black_box;
use std::time::Duration;

use anyhow::Result;
use criterion::{Criterion, Throughput};
use weightmap::{Index, ShardedModel};
use weightmap_benches::models;
use weightmap_benches::wanted::{INDEX, WeightMap, read_index};

fn main() -> Result<()> {
    let target = env!("CARGO_TARGET_TMPDIR");
    models::write_moe(target)?;
    let dir = &models::moe_dir(target);
    let json = fs::read(dir.join(INDEX))?;
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3))
        .configure_from_args();

    // What is made is dropped after the clock has stopped, for all alike.
    let mut group = criterion.benchmark_group("index_parse");
    group.throughput(Throughput::Bytes(json.len() as u64));
    group.bench_function("weightmap", |b| b.iter_with_large_drop(|| Index::parse(black_box(&json))));
    group.bench_function("serde_json_value", |b| {
        b.iter_with_large_drop(|| serde_json::from_slice::<serde_json::Value>(black_box(&json)));
    });
    group.bench_function("serde_json_hash_map", |b| {
        b.iter_with_large_drop(|| serde_json::from_slice::<WeightMap>(black_box(&json)));
    });
    group.finish();

    let name = "model.layers.30.mlp.experts.100.up_proj.weight";
    let mut group = criterion.benchmark_group("open");
    group.bench_function("weightmap", |b| b.iter_with_large_drop(|| ShardedModel::open(dir)));
    group.bench_function("weightmap_and_first_view", |b| {
        b.iter_with_large_drop(|| {
            let model = ShardedModel::open(dir)?;
            model.view(name).map(|view| (model, view))
        });
    });
    group.bench_function("read_and_serde_json_hash_map", |b| {
        b.iter_with_large_drop(|| read_index(dir));
    });
    group.finish();
    criterion.final_summary();
    Ok(())
}
