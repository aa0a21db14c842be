//! Parsing a header of 20,000 tensors beside the safetensors crate; see README.md.

use std::hint::black_box;
use std::time::Duration;

use anyhow::{Context as _, Result};
use criterion::{Criterion, Throughput};
use safetensors::SafeTensors;
use weightmap::Header;
use weightmap_benches::sys;
use weightmap_testkit::Moe;

/// The bytes before a header's text, which give its length.
const LENGTH_BYTES: usize = 8;

fn main() -> Result<()> {
    let checkpoint = Moe { tensors: 20_000, shards: 1 }.checkpoint();
    let (_, shard) = checkpoint.shards().next().context("a shard was asked for")?;
    let head = shard.head();
    let (_, json) = head.split_at(LENGTH_BYTES);
    // The crate compares the header with the length of the buffer, which is the whole file: 136 GiB of holes,
    // mapped.
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("header.safetensors");
    shard.write(&path)?;
    let file = sys::map(&path)?;
    anyhow::ensure!(
        Header::parse(json, shard.file_len())?.len() == SafeTensors::read_metadata(&file)?.1.tensors().len()
    );

    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3))
        .configure_from_args();
    let mut group = criterion.benchmark_group("header_parse");
    group.throughput(Throughput::Bytes(json.len() as u64));
    group.bench_function("weightmap", |b| {
        b.iter_with_large_drop(|| Header::parse(black_box(json), shard.file_len()));
    });
    group.bench_function("safetensors", |b| {
        b.iter_with_large_drop(|| SafeTensors::read_metadata(black_box(&file)));
    });
    group.finish();
    criterion.final_summary();
    Ok(())
}
