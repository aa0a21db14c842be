//! Competitors measured in turn, each run in a process of its own.
//!
//! A run of one competitor is followed by a run of the next, so that whatever else the machine does hits all
//! of them, and ratios are taken within a round. A process of its own, since that is how weights are loaded:
//! once, into memory that the process has not used before. In one long-lived process the allocator would hand
//! out again what the run before has faulted in.

use std::any::Any;
use std::fs;
use std::process::{Command, exit};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

/// The rounds that are measured unless the command line says otherwise.
const ROUNDS: usize = 15;

/// What a run leaves: how many bytes it loaded, and what is to be dropped after the clock has stopped.
struct Outcome {
    bytes: u64,
    _keep: Box<dyn Any>,
}

/// One way to do what is measured.
pub struct Competitor<'a> {
    name: &'a str,
    huge_malloc: bool,
    run: Box<dyn Fn() -> Result<Outcome> + 'a>,
}

impl<'a> Competitor<'a> {
    /// A competitor that does its work by `run`, which is timed as a whole and tells how many bytes it came
    /// to, the same for all competitors. What else it gives is dropped after the clock has stopped.
    pub fn new<T: 'static>(name: &'a str, run: impl Fn() -> Result<(u64, T)> + 'a) -> Self {
        let run = move || run().map(|(bytes, keep)| Outcome { bytes, _keep: Box::new(keep) });
        Self { name, huge_malloc: false, run: Box::new(run) }
    }

    /// Lets glibc's `malloc` ask for huge pages, to show what is won by them alone.
    #[must_use]
    pub fn with_huge_malloc(self) -> Self {
        Self { huge_malloc: true, ..self }
    }
}

/// One run.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
struct Sample {
    seconds: f64,
    bytes: u64,
    /// Bytes that the process fetched from devices meanwhile.
    device_bytes: Option<u64>,
    /// Faults of the whole process that needed no device.
    minor_faults: Option<u64>,
    /// Whether some memory of the process was to be of huge pages.
    huge_pages_advised: bool,
}

/// What this process is for.
#[derive(Debug)]
pub enum Program {
    /// To start the runs and to print what came of them.
    Measure {
        /// How often each competitor runs.
        rounds: usize,
        /// A part of the titles of the contests that are wanted.
        filter: Option<String>,
    },
    /// To do one run.
    Run {
        /// The title of the contest.
        contest: String,
        /// The number of the competitor.
        competitor: usize,
    },
}

impl Program {
    /// Reads the command line as cargo and criterion have it: `--test` and the absence of `--bench` mean one
    /// round, `--quick` three, `--rounds N` any number; a word is a filter; other options are for criterion.
    ///
    /// # Errors
    /// When a number is none.
    pub fn from_args() -> Result<Self> {
        let mut rounds = ROUNDS;
        let mut filter = None;
        let mut is_bench = false;
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--run" => {
                    let contest = args.next().context("--run needs a contest")?;
                    let competitor = args.next().context("--run needs a competitor")?.parse()?;
                    return Ok(Self::Run { contest, competitor });
                }
                "--bench" => is_bench = true,
                "--test" => rounds = 1,
                "--quick" => rounds = 3,
                "--rounds" => rounds = args.next().context("--rounds needs a number")?.parse()?,
                option if option.starts_with("--") => {}
                word => filter = Some(word.to_owned()),
            }
        }
        Ok(Self::Measure { rounds: if is_bench { rounds } else { 1 }, filter })
    }

    /// Whether this process has to make ready what is measured.
    pub fn prepares(&self) -> bool {
        matches!(self, Self::Measure { .. })
    }

    /// Measures the competitors, each against the first, and prints a table; or does the run that this
    /// process is for, and ends.
    ///
    /// # Errors
    /// When a run fails, when two loaded different numbers of bytes, and when one reads more than
    /// `most_device_bytes`, if that is given, from a device, however often it is repeated.
    pub fn contest(
        &self,
        title: &str,
        most_device_bytes: Option<u64>,
        competitors: &[Competitor<'_>],
    ) -> Result<()> {
        match self {
            Self::Run { contest, competitor } if contest == title => {
                let competitor = competitors.get(*competitor).context("no such competitor")?;
                println!("{}", serde_json::to_string(&measure(competitor)?)?);
                exit(0);
            }
            Self::Measure { rounds, filter } if filter.as_ref().is_none_or(|part| title.contains(part)) => {
                let rounds = interleave(title, most_device_bytes, *rounds, competitors)?;
                let mut bytes = rounds.iter().flatten().map(|sample| sample.bytes);
                let first = bytes.next();
                ensure!(
                    bytes.all(|bytes| Some(bytes) == first),
                    "{title}: competitors differ in the bytes they loaded"
                );
                print(title, &rounds, competitors);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn measure(competitor: &Competitor<'_>) -> Result<Sample> {
    let (device_before, faults_before) = (device_bytes(), minor_faults());
    let start = Instant::now();
    let outcome = (competitor.run)()?;
    let seconds = start.elapsed().as_secs_f64();
    let since = |before: Option<u64>, after: Option<u64>| after?.checked_sub(before?);
    Ok(Sample {
        seconds,
        bytes: outcome.bytes,
        minor_faults: since(faults_before, minor_faults()),
        device_bytes: since(device_before, device_bytes()),
        huge_pages_advised: huge_pages_advised(),
    })
}

/// The samples by round and competitor. A round that is not counted goes first: it brings into memory the
/// programs, the files and pages of the machine that were never used.
fn interleave(
    title: &str,
    most_device_bytes: Option<u64>,
    rounds: usize,
    competitors: &[Competitor<'_>],
) -> Result<Vec<Vec<Sample>>> {
    let round = |number: usize| {
        let mut samples = vec![None; competitors.len()];
        for place in 0..competitors.len() {
            // A round begins with another competitor each time: being first is no one's privilege.
            let competitor = (place + number) % competitors.len();
            samples[competitor] =
                Some(start(title, most_device_bytes, competitor, &competitors[competitor])?);
        }
        Ok(samples.into_iter().flatten().collect())
    };
    (0..=rounds).map(round).skip(1).collect()
}

/// One run in a process of its own; it is repeated if it was not what is to be measured.
fn start(
    title: &str,
    most_device_bytes: Option<u64>,
    number: usize,
    competitor: &Competitor<'_>,
) -> Result<Sample> {
    /// glibc 2.36 heeds the variable in about every second process: it compares the text of
    /// `/sys/kernel/mm/transparent_hugepage/enabled` without having ended it. And somebody may have dropped
    /// the page cache.
    const TRIES: usize = 16;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--run", title, &number.to_string()]);
    if competitor.huge_malloc {
        command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
    }
    let mut run = || {
        let output = command.output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{title}, {}: {}: {error}", competitor.name, output.status);
        Ok(serde_json::from_slice::<Sample>(&output.stdout)?)
    };
    let is_cold = |sample: &Sample| sample.device_bytes > most_device_bytes.or(sample.device_bytes);
    let mut sample = run()?;
    for _ in 1..TRIES {
        if !is_cold(&sample) && (!competitor.huge_malloc || sample.huge_pages_advised) {
            break;
        }
        sample = run()?;
    }
    ensure!(
        !is_cold(&sample),
        "{title}, {}: read from the device again and again: {sample:?}",
        competitor.name
    );
    Ok(sample)
}

fn print(title: &str, rounds: &[Vec<Sample>], competitors: &[Competitor<'_>]) {
    let bytes = rounds.iter().flatten().next().map_or(0, |sample| sample.bytes);
    println!("\n{title} ({:.1} MB, {} rounds)", mega(bytes), rounds.len());
    println!(
        "{:<44} {:>9} {:>17} {:>8} {:>7} {:>6} {:>12}",
        "", "median ms", "quartiles", "GB/s", "faults", "ratio", "quartiles"
    );
    for (number, competitor) in competitors.iter().enumerate() {
        let of = |figure: &dyn Fn(&Sample) -> f64| -> Vec<f64> {
            rounds.iter().filter_map(|round| round.get(number)).map(figure).collect()
        };
        let seconds = quartiles(of(&|sample| sample.seconds));
        let faults = quartiles(of(&|sample| sample.minor_faults.map_or(f64::NAN, float)))[1];
        let ratios = quartiles(rounds.iter().map(|round| round[number].seconds / round[0].seconds).collect());
        let [low, median, high] = seconds.map(|seconds| seconds * 1e3);
        println!(
            "{:<44} {median:>9.2} {:>17} {:>8.2} {faults:>7.0} {:>6.2} {:>12}",
            competitor.name,
            format!("{low:.2}..{high:.2}"),
            mega(bytes) / median,
            ratios[1],
            format!("{:.2}..{:.2}", ratios[0], ratios[2]),
        );
    }
}

/// The first quartile, the median and the third, each a value that was measured.
fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    [last / 4, last / 2, (last * 3).div_ceil(4)].map(|place| values.get(place).copied().unwrap_or(f64::NAN))
}

fn mega(bytes: u64) -> f64 {
    float(bytes) / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "a few digits are shown")]
fn float(count: u64) -> f64 {
    count as f64
}

/// The bytes that the process has fetched from devices; `None` where the system does not tell.
fn device_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes:"))?.trim().parse().ok()
}

/// The faults of all threads of the process that needed no device; `None` where the system does not tell.
fn minor_faults() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field, a name in parentheses, may hold spaces; this is the eighth after it.
    text.rsplit(')').next()?.split_whitespace().nth(7)?.parse().ok()
}

/// Whether a mapping of the process has the mark of `MADV_HUGEPAGE`.
fn huge_pages_advised() -> bool {
    fs::read_to_string("/proc/self/smaps").is_ok_and(|text| text.contains(" hg"))
}
