//! weightmap beside other loaders, of Rust and of Python; see README.md.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use weightmap_benches::competitor::Competitor;
use weightmap_benches::interleave::Program;
use weightmap_benches::storage::Storage;
use weightmap_benches::wanted::{Names, Wanted};
use weightmap_benches::{baseline, models, ours, workspaces};

const TARGET: &str = env!("CARGO_TARGET_TMPDIR");

const ROUNDS: usize = 5;

/// The peers of `peers/peer.py`, and whether they go past the page cache.
const PYTHON_PEERS: [(&str, bool); 4] =
    [("safetensors-numpy", false), ("safetensors-torch", false), ("fastsafetensors", true), ("runai", true)];

fn main() -> Result<()> {
    let program = Program::from_args(ROUNDS)?;
    let mut programs = Programs::default();
    if program.prepares() {
        models::write_large(TARGET)?;
        programs = Programs::find();
    }
    let large = &models::large_dir(TARGET);
    let rows = Names::Ending(".mlp.down_proj.weight".to_owned());
    for (what, wanted) in [
        ("whole model", Wanted::all()),
        ("three layers", Wanted::layers(&[1, 4, 6])),
        ("a rank of four, dim 0", Wanted::quarter(Names::All, 0)),
        ("a rank of four, dim 1", Wanted::quarter(rows, 1)),
    ] {
        for (state, storage) in [("cold", Storage::Cold(&[large])), ("warm", Storage::Warm(&[large]))] {
            let competitors = programs.competitors(large, &wanted);
            program.contest(&format!("peers, {state}, {what}"), &storage, &competitors)?;
        }
    }
    Ok(())
}

/// What is installed of the peers that are programs of their own.
#[derive(Default)]
struct Programs {
    rust: Option<PathBuf>,
    python: Vec<(&'static str, bool)>,
}

impl Programs {
    fn find() -> Self {
        let rust = workspaces::build("peers", TARGET)
            .inspect_err(|error| println!("skipped: candle: {error:#}"))
            .ok();
        let python = PYTHON_PEERS.into_iter().filter(|(peer, _)| is_installed(peer)).collect();
        Self { rust, python }
    }

    /// weightmap, and each peer as it is and with huge pages, so that a win which is those alone is seen to be.
    fn competitors<'a>(&'a self, dir: &'a Path, wanted: &'a Wanted) -> Vec<Competitor<'a>> {
        let mut peers = vec![
            Competitor::new("safetensors -> Vec", || baseline::copied(dir, wanted)),
            Competitor::new("safetensors -> Vec, rayon", || baseline::copied_in_parallel(dir, wanted)),
        ];
        // candle has no slices on the way from the file.
        if let (Some(program), None) = (&self.rust, wanted.cut) {
            let command = move || with_arguments(Command::new(program), "candle", dir, wanted);
            peers.push(Competitor::program("candle -> Tensor", command));
        }
        peers.extend(self.python.iter().map(|&(peer, past_cache)| {
            let competitor = Competitor::program(peer, move || with_arguments(python(), peer, dir, wanted));
            if past_cache { competitor.past_cache() } else { competitor }
        }));
        let mut competitors = ours::competitors(dir, wanted, ours::ALL_MODES);
        competitors
            .push(Competitor::new("safetensors + memmap2, touched", || baseline::touched(dir, wanted)));
        for peer in peers {
            competitors.extend([peer.clone(), peer.with_huge_malloc().of("huge malloc")]);
        }
        competitors
    }
}

/// What `peers/src/main.rs` and `peer.py` take.
fn with_arguments(mut command: Command, peer: &str, dir: &Path, wanted: &Wanted) -> Command {
    command.arg(peer).arg(dir).arg(wanted.to_json());
    command
}

fn is_installed(peer: &str) -> bool {
    let output = python().arg(peer).output();
    let error = match &output {
        Ok(output) if output.status.success() => return true,
        Ok(output) => {
            String::from_utf8_lossy(&output.stderr).trim().lines().last().unwrap_or_default().to_owned()
        }
        Err(error) => error.to_string(),
    };
    println!("skipped: {peer}: {error}");
    false
}

/// The peers for Python; the variable `PYTHON` names the interpreter.
fn python() -> Command {
    let mut command = Command::new(std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into()));
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/peer.py"));
    command
}
