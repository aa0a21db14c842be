//! How much memory a load may hold at once.

use std::path::Path;

use super::LoadOptions;
use crate::error::{Error, Result};
use crate::memory_limit::allowed_bytes;
use crate::report::total;
use crate::tensor_info::TensorInfo;

/// The bytes that a load may hold, and who says so.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    bytes: u64,
    limit: &'static str,
    is_asked: bool,
}

/// How a load gives its tensors away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeps {
    /// Holds all of them until it is done.
    All,
    /// Holds those that have not been taken.
    Untaken,
}

/// No machine has more, and a plan of more would itself be of gigabytes.
const MOST_BYTES: u64 = 64 << 40;

/// How far a stream runs ahead of its consumer if nobody says otherwise.
const AHEAD_BYTES: u64 = 256 << 20;

/// Fails if so many bytes, held at once, are more than a load with these options may hold.
///
/// # Errors
/// [`Error::MemoryLimit`].
pub(crate) fn check_fits(needed_bytes: u64, options: &LoadOptions, directory: &Path) -> Result<()> {
    let Budget { bytes: limit_bytes, limit, .. } = Budget::new(options.memory_limit);
    if needed_bytes <= limit_bytes {
        return Ok(());
    }
    let help = "divide the model over more ranks, or raise LoadOptions::memory_limit";
    Err(Error::MemoryLimit {
        path: directory.to_owned(),
        tensor: None,
        needed_bytes,
        limit_bytes,
        limit,
        help,
    })
}

impl Budget {
    /// What was asked for, or what the process's control groups allow.
    pub(super) fn new(asked: Option<u64>) -> Self {
        if let Some(bytes) = asked {
            return Self { bytes, limit: "by LoadOptions::memory_limit", is_asked: true };
        }
        match allowed_bytes() {
            Some(bytes) => {
                Self { bytes, limit: "by the process's control group, less what it uses", is_asked: false }
            }
            None => Self { bytes: MOST_BYTES, limit: "as no machine has more", is_asked: false },
        }
    }

    pub(super) fn bytes(self) -> u64 {
        self.bytes
    }

    /// How many workers there are, of `most` that each need `worker_bytes` for themselves, and how many bytes of tensors
    /// may then be begun and not yet taken. Workers take a quarter of the budget at most and leave what has to be held at
    /// once; one of them is there in any case.
    ///
    /// `owned` are the tensors that need memory of their own, with how much they need; `copied_bytes` is what those that are
    /// put together by a copy need besides at the same time.
    ///
    /// # Errors
    /// [`Error::MemoryLimit`] if not even that fits: of tensors in memory of their own, all or the longest.
    pub(super) fn share<'i>(
        self,
        keeps: Keeps,
        most: usize,
        worker_bytes: u64,
        owned: &(impl Iterator<Item = (&'i TensorInfo, u64)> + Clone),
        copied_bytes: u64,
        directory: &Path,
    ) -> Result<(usize, u64)> {
        let longest = || owned.clone().max_by_key(|(_, bytes)| *bytes);
        let (held, tensor, help) = match keeps {
            Keeps::All => (
                total(owned.clone().map(|(info, _)| info.len_bytes())).saturating_add(copied_bytes),
                None,
                "take them one by one from a stream, leave them in the mapped files (ReadMode::Mapped), or raise LoadOptions::memory_limit",
            ),
            Keeps::Untaken => (
                longest().map_or(0, |(_, bytes)| bytes),
                longest(),
                "load it in slices, or raise LoadOptions::memory_limit",
            ),
        };
        let needed_bytes = held.saturating_add(worker_bytes);
        if needed_bytes > self.bytes && held > 0 {
            return Err(Error::MemoryLimit {
                path: directory.to_owned(),
                tensor: tensor.map(|(info, _)| info.name.clone()),
                needed_bytes,
                limit_bytes: self.bytes,
                limit: self.limit,
                help,
            });
        }
        let affordable = (self.bytes / 4).min(self.bytes.saturating_sub(held)) / worker_bytes.max(1);
        let workers = most.min(usize::try_from(affordable).unwrap_or(usize::MAX)).max(1);
        let left = self.bytes.saturating_sub(worker_bytes.saturating_mul(workers as u64));
        let ahead = match keeps {
            Keeps::All => u64::MAX,
            Keeps::Untaken if self.is_asked => left,
            // What a group allows is also for what the consumer does with the tensors that it takes.
            Keeps::Untaken => AHEAD_BYTES.min(left / 2),
        };
        Ok((workers, ahead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::Dtype;
    use crate::shard_name::ShardName;

    const ASKED: Budget = Budget { bytes: 1000, limit: "by the test", is_asked: true };

    fn infos(lengths: &[u64]) -> Vec<TensorInfo> {
        let info = |&bytes: &u64| {
            let shard = ShardName::parse("x.safetensors").unwrap();
            TensorInfo::new(format!("t{bytes}"), Dtype::U8, vec![bytes], shard, 0..bytes)
        };
        lengths.iter().map(info).collect()
    }

    /// Of a load by up to eight workers.
    fn share(budget: Budget, keeps: Keeps, worker_bytes: u64, lengths: &[u64]) -> Result<(usize, u64)> {
        let infos = infos(lengths);
        let owned = infos.iter().map(|info| (info, info.len_bytes()));
        budget.share(keeps, 8, worker_bytes, &owned, 0, Path::new("/model"))
    }

    /// What an error says is needed, and which tensor.
    fn needed(result: Result<(usize, u64)>) -> (u64, Option<String>) {
        match result.unwrap_err() {
            Error::MemoryLimit { needed_bytes, tensor, limit_bytes: 1000, .. } => (needed_bytes, tensor),
            error => panic!("{error}"),
        }
    }

    #[test]
    fn a_load_holds_all_of_its_tensors() {
        assert_eq!(share(ASKED, Keeps::All, 50, &[300, 300]).unwrap(), (5, u64::MAX));
        assert_eq!(needed(share(ASKED, Keeps::All, 400, &[300, 301])), (1001, None));
        assert_eq!(needed(share(ASKED, Keeps::All, 2000, &[1])), (2001, None));
    }

    #[test]
    fn a_stream_holds_at_least_its_longest_tensor() {
        assert_eq!(share(ASKED, Keeps::Untaken, 50, &[600, 300, 600]).unwrap(), (5, 750));
        assert_eq!(needed(share(ASKED, Keeps::Untaken, 400, &[5, 601, 9])), (1001, Some("t601".to_owned())));
    }

    #[test]
    fn workers_are_fewer_before_a_load_does_not_fit_and_what_is_said_to_be_needed_suffices() {
        let lengths = [300, 500];
        assert_eq!(share(ASKED, Keeps::All, 100, &lengths).unwrap().0, 2);
        assert_eq!(share(ASKED, Keeps::All, 200, &lengths).unwrap().0, 1);
        let (bytes, _) = needed(share(ASKED, Keeps::All, 201, &lengths));
        assert_eq!(share(Budget { bytes, ..ASKED }, Keeps::All, 201, &lengths).unwrap().0, 1);
    }

    #[test]
    fn workers_have_a_quarter_of_the_memory_and_one_of_them_is_there_in_any_case() {
        let workers = |worker_bytes| share(ASKED, Keeps::All, worker_bytes, &[]).unwrap().0;
        assert_eq!([0, 10, 100, 251, 5000].map(workers), [8, 8, 2, 1, 1]);
    }

    #[test]
    fn a_stream_without_a_limit_of_its_own_leaves_memory_to_its_consumer() {
        let group = Budget { is_asked: false, ..ASKED };
        assert_eq!(share(group, Keeps::Untaken, 400, &[600]).unwrap(), (1, 300));
        let much = Budget { bytes: u64::MAX, ..group };
        assert_eq!(share(much, Keeps::Untaken, 400, &[600]).unwrap(), (8, AHEAD_BYTES));
    }

    #[test]
    fn sums_beyond_all_numbers_are_too_much() {
        assert!(share(ASKED, Keeps::All, u64::MAX, &[u64::MAX, u64::MAX]).is_err());
    }

    #[test]
    fn what_is_asked_for_counts_and_not_what_is_allowed() {
        assert_eq!(Budget::new(Some(7)).bytes(), 7);
        assert_eq!(Budget::new(None).bytes(), allowed_bytes().unwrap_or(MOST_BYTES));
    }
}
