//! What files of any content cost to open, check and read from: time and memory beside the size of the input; see README.md.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use weightmap::{Error, OpenOptions, ReadMode, ShardedModel};

const INDEX: &str = "model.safetensors.index.json";
const SHARD: &str = "model-00001-of-00001.safetensors";

/// What tells a process that it is to open the directory of this name.
const CHILD: &str = "WEIGHTMAP_BENCH_HOSTILE";

/// Writes an input of so many parts to a directory.
type Author = fn(&Path, u64) -> io::Result<()>;

/// Inputs, the number of parts of the larger size, and how they are written. The smaller size has a quarter of them.
const INPUTS: [(&str, u64, Author); 20] = [
    ("header: tensors of one byte", 1_300_000, |dir, n| {
        header(dir, n, |i| tensor(&i.to_string(), i, i + 1), n)
    }),
    ("header: tensors that no index lists", 1_000_000, |dir, n| {
        header(dir, n, |i| tensor(&i.to_string(), i, i + 1), n)?;
        index(dir, 1, |i| (i.to_string(), SHARD.to_owned()))
    }),
    ("header: tensors in reverse order", 1_000_000, |dir, n| {
        header(dir, n, |i| tensor(&i.to_string(), n - i - 1, n - i), n)
    }),
    ("header: ranges that are all the same", 1_000_000, |dir, n| {
        header(dir, n, |i| tensor(&i.to_string(), 0, 8), 8)
    }),
    ("header: ranges with holes", 1_000_000, |dir, n| {
        header(dir, n, |i| tensor(&i.to_string(), 2 * i + 1, 2 * i + 2), 2 * n)
    }),
    ("header: tensors without elements", 1_000_000, |dir, n| {
        header(dir, n, |i| format!(r#""{i}":{{"dtype":"F32","shape":[0,9],"data_offsets":[0,0]}}"#), 0)
    }),
    ("header: one shape of many dimensions", 40_000_000, |dir, n| {
        let shape = "1,".repeat(usize::try_from(n).unwrap_or(0));
        header(dir, 1, |_| format!(r#""a":{{"dtype":"U8","shape":[{shape}1],"data_offsets":[0,1]}}"#), 1)
    }),
    ("header: one long name", 90_000_000, |dir, n| {
        header(dir, 1, |_| tensor(&"x".repeat(usize::try_from(n).unwrap_or(0)), 0, 1), 1)
    }),
    ("header: metadata", 4_000_000, |dir, n| {
        let entries: Vec<_> = (0..n).map(|i| format!(r#""{i}":"""#)).collect();
        header(dir, 1, |_| format!(r#""__metadata__":{{{}}}"#, entries.join(",")), 0)
    }),
    ("header: unknown fields", 4_000_000, |dir, n| {
        let fields: Vec<_> = (0..n).map(|i| format!(r#""{i}":[{{}}],"#)).collect();
        header(
            dir,
            1,
            |_| format!(r#""a":{{{}"dtype":"U8","shape":[],"data_offsets":[0,1]}}"#, fields.concat()),
            1,
        )
    }),
    ("header: unknown types, all different", 1_000_000, |dir, n| {
        header(
            dir,
            n,
            |i| format!(r#""{i}":{{"dtype":"x{i}","shape":[],"data_offsets":[{i},{}]}}"#, i + 1),
            n,
        )
    }),
    ("header: brackets in brackets", 45_000_000, |dir, n| {
        let depth = usize::try_from(n).unwrap_or(0);
        let fields = format!(r#""x":{}{},"#, "[".repeat(depth), "]".repeat(depth));
        header(dir, 1, |_| format!(r#""a":{{{fields}"dtype":"U8","shape":[],"data_offsets":[0,1]}}"#), 1)
    }),
    ("index: short names, one shard, absent", 6_000_000, |dir, n| {
        index(dir, n, |i| (format!("{i:x}"), "x.safetensors".to_owned()))
    }),
    ("index: short names, one shard, which has none", 4_000_000, |dir, n| {
        header(dir, 1, |_| tensor("other", 0, 1), 1)?;
        index(dir, n, |i| (format!("{i:x}"), SHARD.to_owned()))
    }),
    ("index: four long names", 60_000_000, |dir, n| {
        let name = |i| format!("{i}{}", "x".repeat(usize::try_from(n).unwrap_or(0)));
        index(dir, 4, |i| (name(i), SHARD.to_owned()))
    }),
    ("index: a shard for each tensor, all absent", 4_000_000, |dir, n| {
        index(dir, n, |i| (format!("{i:x}"), format!("{i:x}.safetensors")))
    }),
    ("index: a folder for each shard, all absent", 4_000_000, |dir, n| {
        index(dir, n, |i| (format!("{i:x}"), format!("{i:x}/a.safetensors")))
    }),
    ("index: one shard in very many folders", 100_000_000, |dir, n| {
        index(dir, 1, |_| {
            ("a".to_owned(), format!("{}x.safetensors", "a/".repeat(usize::try_from(n).unwrap_or(0))))
        })
    }),
    ("ranks: pieces of one tensor each", 400_000, |dir, n| {
        let info: Vec<_> = (0..n).map(|i| format!(r#"\"{i}\":{{\"saved_offsets\":[0]}}"#)).collect();
        rank(dir, n, &info.join(","), |i| {
            format!(r#""{i}":{{"dtype":"U8","shape":[1],"data_offsets":[{i},{}]}}"#, i + 1)
        })
    }),
    ("ranks: offsets of tensors that are not there", 2_000_000, |dir, n| {
        let info: Vec<_> = (0..n).map(|i| format!(r#"\"{i:x}\":{{}}"#)).collect();
        rank(dir, 1, &info.join(","), |_| r#""t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}"#.to_owned())
    }),
];

fn tensor(name: &str, begin: u64, end: u64) -> String {
    format!(r#""{name}":{{"dtype":"U8","shape":[{}],"data_offsets":[{begin},{end}]}}"#, end - begin)
}

/// Writes a shard whose header has these entries, and so many bytes of zeros.
fn header(dir: &Path, count: u64, entry: impl Fn(u64) -> String, data_bytes: u64) -> io::Result<()> {
    shard(&dir.join(SHARD), count, entry, data_bytes)
}

fn shard(path: &Path, count: u64, entry: impl Fn(u64) -> String, data_bytes: u64) -> io::Result<()> {
    let entries: Vec<_> = (0..count).map(entry).collect();
    let json = format!("{{{}}}", entries.join(","));
    let mut file = BufWriter::new(File::create(path)?);
    file.write_all(&(json.len() as u64).to_le_bytes())?;
    file.write_all(json.as_bytes())?;
    file.into_inner()?.set_len(8 + json.len() as u64 + data_bytes)
}

/// Writes an index of these tensors and shards.
fn index(dir: &Path, count: u64, entry: impl Fn(u64) -> (String, String)) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(dir.join(INDEX))?);
    file.write_all(b"{\"weight_map\":{")?;
    for number in 0..count {
        let (tensor, shard) = entry(number);
        let comma = if number > 0 { "," } else { "" };
        write!(file, "{comma}\"{tensor}\":\"{shard}\"")?;
    }
    file.write_all(b"}}")?;
    file.flush()
}

/// Writes the one file of a distributed checkpoint; `info` is what it says of offsets, quotes escaped.
fn rank(dir: &Path, count: u64, info: &str, entry: impl Fn(u64) -> String) -> io::Result<()> {
    let path = dir.join("shard-00001-model-00001-of-00001.safetensors");
    let metadata = format!(r#""__metadata__":{{"DCP_SHARDING_INFO":"{{{info}}}"}}"#);
    shard(&path, count + 1, |i| if i == 0 { metadata.clone() } else { entry(i - 1) }, count)
}

/// What a process saw.
#[derive(Serialize, Deserialize)]
struct Seen {
    open: f64,
    first: f64,
    check: f64,
    peak_bytes: u64,
    outcome: String,
    message_bytes: u64,
}

fn main() -> Result<()> {
    if let Some(dir) = std::env::var_os(CHILD) {
        println!("{}", serde_json::to_string(&look_at(Path::new(&dir)))?);
        return Ok(());
    }
    let wanted: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    println!(
        "{:<47} {:>6} {:>7} {:>7} {:>7} {:>7} {:>7}  outcome",
        "", "MB", "open s", "first s", "check s", "× quart", "peak ×"
    );
    for (name, count, write) in INPUTS {
        if wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str())) {
            let (_, quarter) = measure(write, count / 4)?;
            let (bytes, whole) = measure(write, count)?;
            show(name, bytes, &quarter, &whole);
        }
    }
    Ok(())
}

/// Writes the input, and has a process of its own look at it; gives the bytes of the input too.
fn measure(write: Author, count: u64) -> Result<(u64, Seen)> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hostile");
    fs::create_dir_all(&dir)?;
    write(&dir, count)?;
    let bytes = fs::read_dir(&dir)?.map(|entry| Ok(entry?.metadata()?.len())).sum::<io::Result<u64>>()?;
    let output = Command::new(std::env::current_exe()?).env(CHILD, &dir).output()?;
    fs::remove_dir_all(&dir)?;
    ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    Ok((bytes, serde_json::from_slice(&output.stdout).context("what the process saw")?))
}

/// Opens a directory, reads one tensor of it, and checks it.
fn look_at(dir: &Path) -> Seen {
    let before = peak_bytes();
    let options = OpenOptions::default();
    let start = cpu_seconds();
    let model = options.open(dir);
    let open = cpu_seconds() - start;
    let first = model.and_then(|model| first(&model).map(|()| model));
    let first_seconds = cpu_seconds() - start - open;
    let message_bytes = first.as_ref().err().map_or(0, |error| error.to_string().len()) as u64;
    let outcome = first.as_ref().map_or_else(Error::kind, |_| "loads").to_owned();
    drop(first);
    let start = cpu_seconds();
    let check = weightmap::check(dir, &options);
    let (faults, warnings) =
        check.as_ref().map_or((0, 0), |check| (check.faults.len(), check.warnings.len()));
    let check = cpu_seconds() - start;
    let outcome = format!("{outcome}; {faults} faults, {warnings} warnings kept");
    Seen {
        open,
        first: first_seconds,
        check,
        peak_bytes: peak_bytes().saturating_sub(before),
        outcome,
        message_bytes,
    }
}

/// Loads the first tensor by its name.
fn first(model: &ShardedModel) -> weightmap::Result<()> {
    let Some(name) = model.names().next() else { return Ok(()) };
    let options = weightmap::LoadOptions::default().mode(ReadMode::Buffered);
    model.select().names([name])?.load_with(&options).map(drop)
}

/// The time that this process has had on cores, its calls of the system included: steadier than the clock.
#[expect(clippy::cast_precision_loss, reason = "a few digits are shown")]
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The most memory that this process has had.
fn peak_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    peak.and_then(|kibibytes| kibibytes.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[expect(clippy::cast_precision_loss, reason = "a few digits are shown")]
fn show(name: &str, bytes: u64, quarter: &Seen, whole: &Seen) {
    let seconds = |seen: &Seen| seen.open + seen.first + seen.check;
    println!(
        "{name:<47} {:>6.0} {:>7.2} {:>7.2} {:>7.2} {:>7.1} {:>7.1}  {}, message of {} bytes",
        bytes as f64 / 1e6,
        whole.open,
        whole.first,
        whole.check,
        seconds(whole) / seconds(quarter),
        whole.peak_bytes as f64 / bytes as f64,
        whole.outcome,
        whole.message_bytes,
    );
}
