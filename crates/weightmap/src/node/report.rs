//! What loading together cost.

use std::fmt;
use std::time::Duration;

use super::Node;
use super::exchange;
use super::peers::Peers;
use crate::error::{Bytes, Result, count};
use crate::report::{Given, LoadReport, Seconds, ratio};

/// What the ranks of a node have read and sent in order to load together. It is the same on all of them.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct NodeReport {
    /// The ranks of the node, in rising order; the other lists have an entry for each.
    pub ranks: Vec<usize>,
    /// The sum of the bytes that each rank wants of files.
    pub wanted_bytes: u64,
    /// The bytes of files that the ranks want, those that several want counted once: the least that has to be read.
    pub needed_bytes: u64,
    /// The bytes that all ranks together have asked the kernel for, with gaps that were read through.
    pub read_bytes: u64,
    /// `read_bytes / needed_bytes`; `None` when nothing is needed.
    pub over_read: Option<f64>,
    /// The bytes that each rank has asked the kernel for.
    pub rank_read_bytes: Vec<u64>,
    /// The bytes that each rank has sent to others: what others got of what it read.
    pub rank_sent_bytes: Vec<u64>,
    /// The time that each rank took, from the call to having its last byte, in seconds; what it waited for others to send is in it.
    pub rank_seconds: Vec<f64>,
}

impl fmt::Display for NodeReport {
    /// A short table for people: two lines, and one for each rank.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wanted_bytes, needed_bytes, read_bytes, over_read, .. } = *self;
        let ranks = count(self.ranks.len() as u64, "rank");
        writeln!(
            f,
            "node    {ranks}, {} wanted, {} of it different",
            Bytes(wanted_bytes),
            Bytes(needed_bytes)
        )?;
        write!(f, "read    {}, over-read {}", Bytes(read_bytes), Given(over_read, ratio))?;
        let figures = self.rank_read_bytes.iter().zip(&self.rank_sent_bytes).zip(&self.rank_seconds);
        for (rank, ((&read, &sent), &seconds)) in self.ranks.iter().zip(figures) {
            write!(f, "\nrank {rank:<2} read {}, sent {} in {}", Bytes(read), Bytes(sent), Seconds(seconds))?;
        }
        Ok(())
    }
}

impl Node {
    pub(super) fn report(
        &self,
        peers: &Peers<'_>,
        given: &exchange::Given,
        own: &LoadReport,
        taken: Duration,
    ) -> Result<NodeReport> {
        let micros = u64::try_from(taken.as_micros()).unwrap_or(u64::MAX);
        let read_bytes = own.read_bytes.saturating_add(given.read_bytes);
        let told = peers.exchange([read_bytes, given.sent_bytes, micros])?;
        let read_bytes: u64 = told.iter().map(|[read, ..]| read).sum();
        let needed_bytes = self.schedule.needed_bytes;
        #[expect(clippy::cast_precision_loss, reason = "a ratio and seconds")]
        Ok(NodeReport {
            ranks: (0..peers.count()).map(|member| peers.rank(member)).collect(),
            wanted_bytes: self.schedule.wanted_bytes,
            needed_bytes,
            read_bytes,
            over_read: (needed_bytes > 0).then(|| read_bytes as f64 / needed_bytes as f64),
            rank_read_bytes: told.iter().map(|[read, ..]| *read).collect(),
            rank_sent_bytes: told.iter().map(|[_, sent, _]| *sent).collect(),
            rank_seconds: told.iter().map(|[.., micros]| *micros as f64 / 1e6).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_a_node_has_a_line_for_each_rank() {
        let report = NodeReport {
            ranks: vec![4, 5],
            wanted_bytes: 6 << 20,
            needed_bytes: 4 << 20,
            read_bytes: 5 << 20,
            over_read: Some(1.25),
            rank_read_bytes: vec![3 << 20, 2 << 20],
            rank_sent_bytes: vec![2 << 20, 0],
            rank_seconds: vec![0.5, 0.0125],
        };
        let lines = [
            "node    2 ranks, 6.00 MiB wanted, 4.00 MiB of it different",
            "read    5.00 MiB, over-read 1.250",
            "rank 4  read 3.00 MiB, sent 2.00 MiB in 500 ms",
            "rank 5  read 2.00 MiB, sent 0 B in 12.5 ms",
        ];
        assert_eq!(report.to_string(), lines.join("\n"));
        let nothing = NodeReport { needed_bytes: 0, over_read: None, ..report };
        assert!(nothing.to_string().contains("over-read –"), "{nothing}");
    }
}
