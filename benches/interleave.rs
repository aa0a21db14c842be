//! Competitors measured in turn, each run in a process of its own.
//!
//! A run of one competitor is followed by a run of another, so that whatever else the machine does hits all
//! of them, and ratios are taken within a round. A process of its own, since that is how weights are loaded:
//! once, into memory that the process has not used before. In one long-lived process the allocator would hand
//! out again what the run before has faulted in.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::process::{Command, exit};

use anyhow::{Context as _, Result, ensure};

use crate::competitor::{Competitor, Run};
use crate::machine;
use crate::memory;
use crate::sample::Sample;
use crate::storage::Storage;
use crate::table;

/// What this process is for.
#[derive(Debug)]
pub enum Program {
    /// To start the runs and to print what came of them.
    Measure(Settings),
    /// To do one run.
    Run {
        /// The title of the contest.
        contest: String,
        /// The name of the competitor.
        competitor: String,
    },
}

/// How it is measured.
#[derive(Debug)]
pub struct Settings {
    /// How often each competitor runs.
    rounds: usize,
    /// A part of the titles of the contests that are wanted.
    filter: Option<String>,
    /// Whether a cold run finds nothing at all in the kernel's caches.
    drop_all: bool,
}

impl Program {
    /// Reads the command line as cargo and criterion have it: `--test` and the absence of `--bench` mean one
    /// round, `--quick` three, `--rounds N` any number, and otherwise there are `rounds`; `--drop-caches` has
    /// all caches of the kernel dropped before cold runs; a word is a filter; other options are for criterion.
    ///
    /// # Errors
    /// When a number is none.
    pub fn from_args(rounds: usize) -> Result<Self> {
        let mut settings = Settings { rounds, filter: None, drop_all: false };
        let mut is_bench = false;
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--run" => {
                    let contest = args.next().context("--run needs a contest")?;
                    let competitor = args.next().context("--run needs a competitor")?;
                    return Ok(Self::Run { contest, competitor });
                }
                "--bench" => is_bench = true,
                "--test" => settings.rounds = 1,
                "--quick" => settings.rounds = 3,
                "--rounds" => settings.rounds = args.next().context("--rounds needs a number")?.parse()?,
                "--drop-caches" => settings.drop_all = true,
                option if option.starts_with("--") => {}
                word => settings.filter = Some(word.to_owned()),
            }
        }
        if !is_bench {
            settings.rounds = 1;
        }
        println!("{}", machine::description());
        Ok(Self::Measure(settings))
    }

    /// Whether this process has to make ready what is measured.
    pub fn prepares(&self) -> bool {
        matches!(self, Self::Measure(_))
    }

    /// Measures the competitors, each against the first and against the quickest limit, and prints a table; or does
    /// the run that this process is for, and ends.
    ///
    /// # Errors
    /// When a run fails, when two loaded different numbers of bytes, and when one does not find the storage as it should
    /// be, however often it is repeated.
    pub fn contest(&self, title: &str, storage: &Storage<'_>, competitors: &[Competitor<'_>]) -> Result<()> {
        match self {
            Self::Run { contest, competitor } if contest == title => {
                let named = competitors.iter().find(|known| known.name == *competitor);
                let Run::Here(run) = &named.context("no such competitor")?.run else { return Ok(()) };
                println!("{}", serde_json::to_string(&run(&|| storage.settle())?)?);
                exit(0);
            }
            Self::Measure(settings) if settings.wants(title) => {
                let rounds = settings.interleave(title, storage, competitors)?;
                table::print(title, &rounds, competitors);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl Settings {
    fn wants(&self, title: &str) -> bool {
        self.filter.as_ref().is_none_or(|part| title.contains(part))
    }

    /// The samples by round and competitor. A round that is not counted goes first: it brings into memory the
    /// programs, the files and pages of the machine that were never used.
    fn interleave(
        &self,
        title: &str,
        storage: &Storage<'_>,
        competitors: &[Competitor<'_>],
    ) -> Result<Vec<Vec<Sample>>> {
        storage.prepare()?;
        let round = |number: usize| {
            let mut samples = vec![None; competitors.len()];
            for competitor in shuffled(competitors.len(), number) {
                samples[competitor] = Some(self.start(title, storage, &competitors[competitor])?);
            }
            let samples: Vec<Sample> = samples.into_iter().flatten().collect();
            check_bytes(&samples, competitors).with_context(|| title.to_owned())?;
            if number == 0 {
                // A run has pages of the file in the cache, and copies of its own.
                memory::touch(samples.first().map_or(0, |sample| sample.bytes * 3))?;
            }
            Ok(samples)
        };
        (0..=self.rounds).map(round).skip(1).collect()
    }

    /// One run in a process of its own; it is repeated if it was not what is to be measured.
    fn start(&self, title: &str, storage: &Storage<'_>, competitor: &Competitor<'_>) -> Result<Sample> {
        /// glibc 2.36 heeds the variable in about every second process: it compares the text of
        /// `/sys/kernel/mm/transparent_hugepage/enabled` without having ended it. And somebody may have dropped
        /// the page cache.
        const TRIES: usize = 16;
        let run = || {
            let scene = storage.enter(self.drop_all)?;
            let output = competitor.command(title)?.output()?;
            let error = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.success(), "{title}, {}: {}: {error}", competitor.name, output.status);
            scene.leave(serde_json::from_slice::<Sample>(&output.stdout)?)
        };
        let mut sample = run()?;
        for _ in 1..TRIES {
            let is_as_found = competitor.past_cache || storage.check(&sample).is_ok();
            if is_as_found && (!competitor.huge_malloc || sample.huge_pages_advised) {
                break;
            }
            sample = run()?;
        }
        if !competitor.past_cache {
            storage.check(&sample).with_context(|| format!("{title}, {}", competitor.name))?;
        }
        Ok(sample)
    }
}

impl Competitor<'_> {
    fn command(&self, contest: &str) -> Result<Command> {
        let mut command = match &self.run {
            Run::Here(_) => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(["--run", contest, &self.name]);
                command
            }
            Run::Program(command) => command(),
        };
        if self.huge_malloc {
            command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
        }
        Ok(command)
    }
}

/// Fails if a competitor came to another number of bytes than the first.
fn check_bytes(samples: &[Sample], competitors: &[Competitor<'_>]) -> Result<()> {
    let Some(first) = samples.first().map(|sample| sample.bytes) else { return Ok(()) };
    for (sample, competitor) in samples.iter().zip(competitors) {
        ensure!(sample.bytes == first, "{} loaded {} bytes, and not {first}", competitor.name, sample.bytes);
    }
    Ok(())
}

/// The numbers below `count`, in another order in each round: neither being first nor coming after a certain other is
/// anyone's privilege.
fn shuffled(count: usize, round: usize) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..count).collect();
    numbers.sort_by_cached_key(|number| {
        let mut hasher = DefaultHasher::new();
        (round, number).hash(&mut hasher);
        hasher.finish()
    });
    numbers
}
