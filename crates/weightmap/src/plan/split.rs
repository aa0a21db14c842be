//! How a number of things is divided over the coordinates of an axis.

use std::collections::HashMap;
use std::ops::Range;

use super::flaw::Flaw;
use super::spec::Split;

/// A split that has been looked through.
#[derive(Debug, Clone)]
pub(super) enum Division {
    Even,
    Chunk,
    Balanced,
    Cyclic,
    /// Where the things of each coordinate begin, and where the last ones end.
    Sizes(Vec<u64>),
    /// The ids of each coordinate, and how many these are.
    Ids(Vec<Vec<u64>>, u64),
}

impl Division {
    /// The division over `k` coordinates. Lists must be one for each of them; lists of ids must have all numbers
    /// from 0 on, each once.
    pub(super) fn new(split: &Split, k: u32) -> Result<Self, Flaw> {
        match split {
            Split::Even => Ok(Self::Even),
            Split::Chunk => Ok(Self::Chunk),
            Split::Balanced => Ok(Self::Balanced),
            Split::Cyclic => Ok(Self::Cyclic),
            Split::Sizes(sizes) => {
                one_for_each("PlanSizes", "sizes", sizes.len(), k)?;
                starts(sizes).map(Self::Sizes)
            }
            Split::Ids(ids) => {
                one_for_each("PlanIds", "lists of ids", ids.len(), k)?;
                Ok(Self::Ids(ids.clone(), each_once(ids)?))
            }
        }
    }

    /// That `n` things can be divided in this way over `k` coordinates. `what` they are is for the message.
    pub(super) fn check(&self, n: u64, k: u32, what: &str) -> Result<(), Flaw> {
        let flaw = |kind, found: String| {
            Err(Flaw::new(
                kind,
                format!("expected {n} {what} to be divided over {k} coordinates, found {found}"),
            ))
        };
        match self {
            Self::Even if n.checked_rem(u64::from(k)) != Some(0) => {
                let rest = n.checked_rem(u64::from(k)).unwrap_or(0);
                flaw("PlanUneven", format!("a rest of {rest}; say how with `split`, or choose another axis"))
            }
            Self::Sizes(starts) if starts.last() != Some(&n) => {
                let sum = starts.last().copied().unwrap_or(0);
                flaw("PlanSizes", format!("sizes that sum to {sum}; they must sum to {n}"))
            }
            Self::Ids(_, listed) if *listed != n => {
                flaw("PlanIds", format!("{listed} ids; list each from 0 to below {n} once"))
            }
            _ => Ok(()),
        }
    }

    /// Hands out what coordinate `at` of `k` has of `n` things, in its order, run by run.
    pub(super) fn each(
        &self,
        at: u32,
        k: u32,
        n: u64,
        mut run: impl FnMut(Range<u64>) -> Result<(), Flaw>,
    ) -> Result<(), Flaw> {
        let (at, k) = (u64::from(at), u64::from(k).max(1));
        let cut = |whole: u64| whole.min(n);
        match self {
            Self::Even | Self::Balanced => {
                let (quotient, rest) = (n / k, n % k);
                let start = |at: u64| at.saturating_mul(quotient).saturating_add(at.min(rest));
                run(cut(start(at))..cut(start(at + 1)))
            }
            Self::Chunk => {
                let chunk = n.div_ceil(k);
                run(cut(at.saturating_mul(chunk))..cut((at + 1).saturating_mul(chunk)))
            }
            Self::Cyclic if k == 1 => run(0..n),
            Self::Cyclic => {
                let mut next = at;
                while next < n {
                    run(next..next + 1)?;
                    let Some(after) = next.checked_add(k) else { break };
                    next = after;
                }
                Ok(())
            }
            Self::Sizes(starts) => {
                let start =
                    |at: u64| usize::try_from(at).ok().and_then(|at| starts.get(at)).copied().unwrap_or(n);
                run(cut(start(at))..cut(start(at + 1)))
            }
            Self::Ids(ids, _) => {
                let ids = usize::try_from(at).ok().and_then(|at| ids.get(at)).map_or(&[][..], Vec::as_slice);
                ids.iter().filter(|&&id| id < n).try_for_each(|&id| run(id..id + 1))
            }
        }
    }
}

/// Which coordinate each of `n` numbered things falls to.
#[derive(Debug, Clone)]
pub(super) struct Places {
    division: Division,
    /// By id, for lists of ids.
    of_id: HashMap<u64, u32>,
    n: u64,
    k: u32,
}

impl Places {
    pub(super) fn new(split: &Split, n: u64, k: u32) -> Result<Self, Flaw> {
        let division = Division::new(split, k)?;
        division.check(n, k, "numbers")?;
        let mut of_id = HashMap::new();
        if let Division::Ids(ids, _) = &division {
            of_id.extend((0..).zip(ids).flat_map(|(at, ids)| ids.iter().map(move |&id| (id, at))));
        }
        Ok(Self { division, of_id, n, k })
    }

    /// The coordinate of a number; an error for one that is too large.
    pub(super) fn of(&self, number: u64) -> Result<u32, Flaw> {
        if number >= self.n {
            let message = format!("expected a number below n = {}, found {number}; is `n` right?", self.n);
            return Err(Flaw::new("PlanVar", message));
        }
        let k = u64::from(self.k).max(1);
        let (quotient, rest) = (self.n / k, self.n % k);
        let at = match &self.division {
            Division::Even | Division::Balanced => {
                // The first `rest` coordinates have one more than the others.
                let longer = (quotient + 1).saturating_mul(rest);
                match number.checked_sub(longer) {
                    None => number / (quotient + 1),
                    Some(beyond) => rest + beyond.checked_div(quotient).unwrap_or(0),
                }
            }
            Division::Chunk => number / self.n.div_ceil(k).max(1),
            Division::Cyclic => number % k,
            Division::Sizes(starts) => {
                starts.partition_point(|&start| start <= number).saturating_sub(1) as u64
            }
            Division::Ids(..) => u64::from(self.of_id.get(&number).copied().unwrap_or(0)),
        };
        Ok(u32::try_from(at).unwrap_or(u32::MAX))
    }
}

fn one_for_each(kind: &'static str, what: &str, found: usize, k: u32) -> Result<(), Flaw> {
    match found as u64 == u64::from(k) {
        true => Ok(()),
        false => Err(Flaw::new(kind, format!("expected {k} {what}, one for each coordinate, found {found}"))),
    }
}

/// Where each of several neighbours begins, and where the last one ends.
pub(super) fn starts(sizes: &[u64]) -> Result<Vec<u64>, Flaw> {
    let mut starts = vec![0];
    let mut end = 0_u64;
    for size in sizes {
        let sum = end.checked_add(*size);
        end = sum.ok_or_else(|| {
            Flaw::new("PlanSizes", "expected sizes that 64 bits can sum, found larger ones")
        })?;
        starts.push(end);
    }
    Ok(starts)
}

/// How many ids there are, which must be the numbers from 0 on, each once.
fn each_once(ids: &[Vec<u64>]) -> Result<u64, Flaw> {
    let total = ids.iter().map(Vec::len).sum::<usize>();
    let mut seen = vec![false; total];
    for &id in ids.iter().flatten() {
        match usize::try_from(id).ok().and_then(|id| seen.get_mut(id)) {
            Some(seen) if !*seen => *seen = true,
            Some(_) => {
                return Err(Flaw::new("PlanIds", format!("expected each id once, found {id} twice")));
            }
            None => {
                let message = format!("expected the ids 0 to below {total}, each once, found {id}");
                return Err(Flaw::new("PlanIds", message));
            }
        }
    }
    Ok(total as u64)
}
