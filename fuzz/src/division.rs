//! Plans as they are built, which are right far more often than those that are read from any text.

use arbitrary::Arbitrary;
use weightmap::Plan;
use weightmap::plan::{
    Blocks, By, Interleave, OutputRule, Own, PlanSpec, Replicas, Rule, Shard, Split, Step, Unmatched,
};

use crate::plan::check;

/// The most of each list of a plan.
const MOST: usize = 3;

/// What a plan is built of.
#[derive(Debug, Arbitrary)]
pub struct Case {
    /// The sizes of `a`, `b` and `c`.
    axes: [u8; 3],
    /// Of a second view: the size of its axis `d`, which takes the place of those that make it.
    second: bool,
    rules: Vec<OneRule>,
    outputs: Vec<Output>,
    errs: bool,
}

#[derive(Debug, Arbitrary)]
struct OneRule {
    pattern: u8,
    min_dims: u8,
    own: Vec<OneOwn>,
    how: How,
}

#[derive(Debug, Arbitrary)]
enum OneOwn {
    At(u8, Vec<i8>),
    Var(u8, bool, u8, OneSplit),
    By(u8, bool),
}

#[derive(Debug, Arbitrary)]
enum How {
    Steps(Vec<OneStep>),
    Flat(u8, bool),
    Scale([u8; 2]),
    Drop,
}

#[derive(Debug, Arbitrary)]
enum OneStep {
    Interleave {
        dim: i8,
        parts: Vec<u8>,
        groups: u8,
    },
    Shard {
        dim: i8,
        axis: u8,
        split: OneSplit,
        unit: Option<u8>,
        blocks: Option<OneBlocks>,
        replicas: Option<u8>,
        each: bool,
        pad: Option<u8>,
    },
}

#[derive(Debug, Arbitrary)]
enum OneBlocks {
    Count(u8),
    Sizes(Vec<u8>),
}

#[derive(Debug, Arbitrary)]
enum OneSplit {
    Even,
    Chunk,
    Balanced,
    Cyclic,
    Sizes(Vec<u8>),
    Ids(Vec<Vec<u8>>),
}

#[derive(Debug, Arbitrary)]
struct Output {
    name: u8,
    from: u8,
    concat: Option<i8>,
    groups: Option<u8>,
    stacks: bool,
}

/// Without `\d`, which stands for so many characters that compiling it takes longer than all else.
const PATTERNS: [&str; 12] = [
    ".*",
    r"l\.(?P<n>[0-9]+)\.w",
    r"l\.(?P<n>[0-9])\..*",
    r"(?P<w>l\.[0-9]\.w)_scale",
    r"e\.(?P<n>[0-9]+)\.u",
    "emb|norm",
    "l.[12].[wv]",
    r"e\.1\.u",
    "[a-n]+",
    "q|odd|bias",
    r".*[0-9].*",
    "none|norm|l.2.*",
];

/// What outputs are put together of.
const PARTS: [&[&str]; 10] = [
    &["l.{n}.w", "l.{n}.v"],
    &["l.{n}.v", "l.{n}.w"],
    &["l.2.w", "l.1.v", "l.2.v"],
    &["l.{n}.w"],
    &["e.{n}.u"],
    &["e.1.u", "e.10.u"],
    &["norm"],
    &["bias", "norm"],
    &["none"],
    &["l.{n}.w", "e.{n}.u"],
];

/// Their names: those that have a number, and those that have none.
const NAMES: [[&str; 4]; 2] = [["out.{n}", "l.{n}.v", "e.{n}.u", "x{n}"], ["out", "emb", "l.2.v", "norm"]];

/// Builds a plan, and divides the model by it.
pub fn run(case: &Case) {
    if let Ok(plan) = Plan::try_from(case.spec()) {
        check(&plan);
    }
}

impl Case {
    fn spec(&self) -> PlanSpec {
        let [a, b, c] = self.axes.map(u64::from);
        let (a, b, c) = (a % 4 + 1, b % 2 + 1, c % 2 + 1);
        let mut spec = PlanSpec::new().mesh("m", [("a", a), ("b", b), ("c", c)]);
        if self.second {
            spec = spec.mesh("v", [("d", a * b), ("c", c)]);
        }
        if !self.errs {
            spec = spec.unmatched(Unmatched::Replicate);
        }
        let axis =
            |axis: u8| ["a", "b", "c", "d"][usize::from(axis % if self.second { 4 } else { 3 })].to_owned();
        spec = self.rules.iter().take(MOST).fold(spec, |spec, rule| spec.rule(rule.built(&axis)));
        self.outputs.iter().take(MOST).fold(spec, |spec, output| spec.output(output.built()))
    }
}

impl OneRule {
    fn built(&self, axis: &dyn Fn(u8) -> String) -> Rule {
        let rule = Rule::new(PATTERNS[usize::from(self.pattern) % PATTERNS.len()])
            .min_dims(usize::from(self.min_dims % 4));
        let rule = self.own.iter().take(MOST).fold(rule, |rule, own| rule.own(own.built(axis)));
        match &self.how {
            How::Steps(steps) => {
                steps.iter().take(MOST).fold(rule, |rule, step| rule.shard(step.built(axis)))
            }
            How::Flat(on, pad) => rule.flat(axis(*on), *pad),
            How::Scale(block) => rule.scale_of("${w}", block.map(|len| u64::from(len % 4))),
            How::Drop => rule.dropped(),
        }
    }
}

impl OneOwn {
    fn built(&self, axis: &dyn Fn(u8) -> String) -> Own {
        match self {
            Self::At(on, at) => {
                Own::at(axis(*on), at.iter().take(MOST).map(|at| i64::from(at % 5)).collect::<Vec<_>>())
            }
            Self::Var(on, is_w, n, split) => {
                Own::var(axis(*on), if *is_w { "w" } else { "n" }, u64::from(n % 16)).split(split.built())
            }
            Self::By(on, by_bytes) => Own::by(axis(*on), if *by_bytes { By::Bytes } else { By::Shard }),
        }
    }
}

impl OneStep {
    fn built(&self, axis: &dyn Fn(u8) -> String) -> Step {
        match self {
            Self::Interleave { dim, parts, groups } => {
                Step::Interleave(Interleave::of(i64::from(dim % 4), few(parts), u64::from(groups % 5)))
            }
            Self::Shard { dim, axis: on, split, unit, blocks, replicas, each, pad } => {
                let mut shard = Shard::of(i64::from(dim % 4), axis(*on)).split(split.built());
                shard.unit = unit.map(|unit| u64::from(unit % 5));
                shard.blocks = blocks.as_ref().map(OneBlocks::built);
                shard.replicas = replicas.map(|replicas| match blocks {
                    Some(OneBlocks::Sizes(sizes)) if *each => {
                        let of = (0..sizes.len().min(MOST)).map(|block| u64::from(replicas >> block & 1) + 1);
                        Replicas::PerBlock(of.collect())
                    }
                    _ => Replicas::Same(u64::from(replicas % 5)),
                });
                shard.pad_multiple = pad.map(|pad| u64::from(pad % 12));
                Step::Shard(shard)
            }
        }
    }
}

impl OneBlocks {
    fn built(&self) -> Blocks {
        match self {
            Self::Count(count) => Blocks::Count(u64::from(count % 6)),
            Self::Sizes(sizes) => Blocks::Sizes(few(sizes)),
        }
    }
}

impl OneSplit {
    fn built(&self) -> Split {
        match self {
            Self::Even => Split::Even,
            Self::Chunk => Split::Chunk,
            Self::Balanced => Split::Balanced,
            Self::Cyclic => Split::Cyclic,
            Self::Sizes(sizes) => {
                Split::Sizes(sizes.iter().take(4).map(|size| u64::from(size % 10)).collect())
            }
            Self::Ids(ids) => Split::Ids(
                ids.iter()
                    .take(4)
                    .map(|ids| ids.iter().take(4).map(|id| u64::from(id % 12)).collect())
                    .collect(),
            ),
        }
    }
}

impl Output {
    fn built(&self) -> OutputRule {
        let parts = PARTS[usize::from(self.from) % PARTS.len()];
        let has_number = parts[0].contains('{') != self.stacks;
        let name = NAMES[usize::from(!has_number)][usize::from(self.name % 4)];
        let mut output = OutputRule::new(name, parts.iter().copied());
        output.concat = self.concat.map(|dim| i64::from(dim % 4));
        output.groups = self.groups.map(|groups| u64::from(groups % 5));
        output.stack = self.stacks.then(|| "n".to_owned());
        output
    }
}

/// Small numbers.
fn few(numbers: &[u8]) -> Vec<u64> {
    numbers.iter().take(MOST).map(|number| u64::from(number % 12)).collect()
}
