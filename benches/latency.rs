//! Loads over a file system that delays every read; see README.md.

use std::path::Path;

use anyhow::Result;
use weightmap_benches::interleave::Program;

const TARGET: &str = env!("CARGO_TARGET_TMPDIR");

/// Faults one by one take seconds.
const ROUNDS: usize = 5;

#[cfg(target_os = "linux")]
fn main() -> Result<()> {
    use weightmap_benches::mount::Delayed;
    use weightmap_benches::wanted::Wanted;
    use weightmap_benches::{models, workspaces};

    let program = Program::from_args(ROUNDS)?;
    let mount_point = Path::new(TARGET).join("latency");
    let mut delayed = Delayed {
        program: "latency-fs".into(),
        source: models::llama_dir(TARGET),
        mount_point: mount_point.clone(),
        options: Vec::new(),
    };
    if program.prepares() {
        models::write_llama(TARGET)?;
        delayed.program = workspaces::build("latency-fs", TARGET)?;
        if let Some(obstacle) = delayed.obstacle() {
            println!("skipped: {obstacle}");
            return Ok(());
        }
    }
    for (how, options) in [
        ("reads of up to 128 KiB", ["--request-bytes", "131072", "--background", "12"]),
        ("reads of up to 1 MiB", ["--request-bytes", "1048576", "--background", "64"]),
    ] {
        let options = [["--delay-ms", "2"].as_slice(), &options].concat().into_iter().map(str::to_owned);
        let delayed = Delayed { options: options.collect(), ..delayed.clone() };
        for (what, wanted) in [("whole model", Wanted::all()), ("one layer", Wanted::layers(&[3]))] {
            contest(&program, &format!("2 ms, {how}, {what}"), &delayed, &wanted)?;
        }
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn contest(
    program: &Program,
    title: &str,
    delayed: &weightmap_benches::mount::Delayed,
    wanted: &weightmap_benches::wanted::Wanted,
) -> Result<()> {
    use weightmap_benches::competitor::Competitor;
    use weightmap_benches::limits::PlainReads;
    use weightmap_benches::storage::Storage;
    use weightmap_benches::{baseline, ours};

    let dir = delayed.mount_point.as_path();
    let mut competitors = ours::competitors(dir, wanted, ours::ALL_MODES);
    competitors.extend([
        Competitor::new("safetensors + memmap2, touched", || baseline::touched(dir, wanted)),
        Competitor::new("safetensors -> Vec, rayon", || baseline::copied_in_parallel(dir, wanted)),
    ]);
    for (threads, kibibytes, direct) in
        [(16, 1024, false), (64, 1024, false), (64, 128, false), (64, 1024, true)]
    {
        let reads = PlainReads { threads, request_bytes: kibibytes << 10, direct, keep: true };
        let how = if direct { ", O_DIRECT" } else { "" };
        competitors.push(Competitor::prepared(
            format!("limit: {threads} threads, {kibibytes} KiB{how}"),
            || wanted.ranges(dir),
            move |files| reads.run(&files),
        ));
    }
    program.contest(title, &Storage::Delayed(delayed), &competitors)
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("skipped: file systems in user space are mounted on Linux only");
}
