use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::source::faulty::{FaultySource, MemorySource, device_failure};
use super::*;
use crate::dtype::Dtype;
use crate::extent::{Cost, Item, plan};
use crate::intervals::Intervals;
use crate::meter::Meter;
use crate::report::WorkerRow;
use crate::shard_name::ShardName;
use crate::tensor_info::TensorInfo;

/// What stands for a file in memory, and what is wanted of it.
#[derive(Debug)]
struct Case {
    file: Vec<u8>,
    infos: Vec<TensorInfo>,
    /// Of each tensor, its wanted bytes, picked one by one.
    expected: Vec<Vec<u8>>,
}

impl Case {
    /// Matrices of bytes, each with the gap before it, and the columns that are wanted of it.
    fn new(tensors: &[(u64, [u64; 2], Range<u64>)]) -> Self {
        let (mut infos, mut expected, mut at) = (Vec::new(), Vec::new(), 0);
        let byte = |offset: u64| (offset * 31 % 251) as u8;
        for (gap, [rows, columns], wanted) in tensors {
            let start = at + gap;
            at = start + rows * columns;
            let shard = ShardName::parse("x.safetensors").unwrap();
            let info =
                TensorInfo::new(format!("t{start}"), Dtype::U8, vec![*rows, *columns], shard, start..at);
            infos.push(info.sliced(&[Intervals::from(..), wanted.clone().into()]).unwrap());
            let row = |row: u64| wanted.clone().map(move |column| byte(start + row * columns + column));
            expected.push((0..*rows).flat_map(row).collect());
        }
        Self { file: (0..at + 10).map(byte).collect(), infos, expected }
    }

    fn source(&self) -> MemorySource {
        MemorySource(self.file.clone())
    }

    /// The bytes of each tensor, read from a source that has the bytes of the file.
    fn read(
        &self,
        source: impl Source,
        gap_bytes: u64,
        cost: &Cost,
        meter: &Meter,
    ) -> Result<(Vec<Vec<u8>>, WorkerRow)> {
        let reader =
            Positioned { source, path: Path::new("/x.safetensors").into(), gap_bytes, is_announced: false };
        let items = self.infos.iter().enumerate();
        let items = items.map(|(item, info)| Item { item, start: info.start, region: &info.region });
        let mut found: Vec<_> = self.expected.iter().map(|bytes| vec![0; bytes.len()]).collect();
        let mut worker = Worker::new(0, meter);
        for request in plan(items.collect(), cost) {
            let mut targets: Vec<_> = request
                .portions
                .iter()
                .map(|portion| vec![0; index(portion.dest.end - portion.dest.start)])
                .collect();
            let fills = request.portions.iter().zip(&mut targets);
            let mut fills: Vec<_> = fills
                .map(|(portion, target)| Fill { info: &self.infos[portion.item], portion, target })
                .collect();
            reader.read(&request.range, &mut fills, &mut worker)?;
            for (portion, target) in request.portions.iter().zip(targets) {
                found[portion.item][index(portion.dest.start)..index(portion.dest.end)]
                    .copy_from_slice(&target);
            }
        }
        Ok((found, worker.into_row()))
    }

    /// The same with one request for all.
    fn read_at_once(&self, source: impl Source, gap_bytes: u64) -> Result<WorkerRow> {
        let cost = Cost {
            gap_bytes: u64::MAX,
            gap_share: 0,
            row_gap_bytes: u64::MAX,
            request_bytes: 1 << 30,
            chunk_bytes: 0,
        };
        let (found, row) = self.read(source, gap_bytes, &cost, &Meter::new(None))?;
        assert!(found == self.expected);
        Ok(row)
    }
}

/// Up to eight matrices, of each some columns, at least one.
fn cases() -> impl Strategy<Value = Case> {
    let tensor = (0_u64..40, 1_u64..8, 1_u64..30, 0_u64..30, 0_u64..30);
    let tensor = tensor.prop_map(|(gap, rows, columns, one, other)| {
        let (one, other) = (one % columns, other % columns);
        (gap, [rows, columns], one.min(other)..one.max(other) + 1)
    });
    vec(tensor, 1..8).prop_map(|tensors| Case::new(&tensors))
}

proptest! {
    #[test]
    fn any_regions_have_the_bytes_of_the_file_whatever_the_gaps_and_requests_and_faults_that_pass(
        case in cases(),
        (gap_bytes, row_gap_bytes, request_bytes) in (0_u64..50, 0_u64..50, 1_u64..300),
        reader_gap_bytes in 0_u64..50,
        (seed, most, every) in (any::<u64>(), 1_usize..60, 2_u64..5),
    ) {
        let cost = Cost { gap_bytes, gap_share: 0, row_gap_bytes, request_bytes, chunk_bytes: 0 };
        let meter = Meter::new(None);
        let (found, row) = case.read(case.source(), reader_gap_bytes, &cost, &meter).unwrap();
        prop_assert_eq!(&found, &case.expected);
        let wanted: u64 = case.expected.iter().map(|bytes| bytes.len() as u64).sum();
        prop_assert!(row.read_bytes >= wanted && meter.copied_bytes() <= wanted);

        let faulty = FaultySource::new(case.source()).short(seed, most).interrupted(every);
        let (again, same) = case.read(faulty, reader_gap_bytes, &cost, &Meter::new(None)).unwrap();
        prop_assert_eq!(&again, &case.expected);
        prop_assert_eq!((same.read_bytes, same.requests), (row.read_bytes, row.requests));
    }
}

/// Two rows of three wanted bytes with a gap of five between them, and four bytes by themselves.
fn small() -> Case {
    Case::new(&[(2, [2, 8], 1..4), (20, [1, 4], 0..4)])
}

#[test]
fn a_failure_of_the_device_is_told_wherever_it_meets_what_is_read() {
    let case = small();
    let read =
        |gap, offset| case.read_at_once(FaultySource::new(case.source()).failing_at(offset..offset + 1), gap);
    let wanted = [3..6, 11..14, 38..42_u64];
    for offset in 0..case.file.len() as u64 {
        let is_wanted = wanted.iter().any(|range| range.contains(&offset));
        match read(0, offset) {
            Ok(_) => assert!(!is_wanted, "{offset}"),
            Err(error) => {
                assert!(is_wanted, "{offset}");
                assert_eq!((error.kind(), error.path()), ("Io", Some(Path::new("/x.safetensors"))));
                assert!(error.to_string().contains(&device_failure().to_string()), "{error}");
            }
        }
        // Read together, rows are read with what lies between them.
        let is_read = (3..14).contains(&offset) || (38..42).contains(&offset);
        assert_eq!(read(5, offset).is_err(), is_read, "{offset}");
    }
    let error = read(5, 12).unwrap_err().to_string();
    assert!(error.contains("read 11 bytes at offset 3"), "{error}");
}

#[test]
fn a_file_that_was_cut_is_an_error_from_the_last_wanted_byte_on() {
    let case = small();
    for gap in [0, 5, 100] {
        for end in 0..case.file.len() as u64 {
            let read = case.read_at_once(FaultySource::new(case.source()).cut_at(end), gap);
            assert_eq!(read.is_ok(), end >= 42, "cut at {end}");
            if let Err(error) = read {
                assert_eq!(error.kind(), "Io");
            }
        }
    }
}

#[test]
fn a_load_that_is_cancelled_asks_for_nothing_more() {
    let case = small();
    let cost = Cost { gap_bytes: 0, gap_share: 0, row_gap_bytes: 0, request_bytes: 1000, chunk_bytes: 0 };
    let meter = Arc::new(Meter::new(None));
    let cancels = Arc::clone(&meter);
    let calls = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&calls);
    let source = FaultySource::new(case.source()).before_each(move |_| {
        counter.fetch_add(1, Relaxed);
        cancels.cancel();
    });
    assert_eq!(case.read(source, 0, &cost, &meter).unwrap_err().kind(), "Cancelled");
    assert_eq!(calls.load(Relaxed), 1);
}

#[test]
fn rows_near_to_each_other_go_through_scratch_in_pieces_that_are_counted() {
    const MIB: u64 = 1 << 20;
    let case = Case::new(&[(7, [2048, 1024], 0..512)]);
    let meter = Meter::new(None);
    let cost =
        Cost { gap_bytes: 0, gap_share: 0, row_gap_bytes: MIB, request_bytes: 8 * MIB, chunk_bytes: 0 };
    let (found, row) = case.read(case.source(), 600, &cost, &meter).unwrap();
    assert!(found == case.expected);
    // As many whole rows as the scratch has room for.
    assert_eq!((row.read_bytes, row.requests), (4 * (511 * 1024 + 512), 4));
    assert_eq!((meter.copied_bytes(), meter.peak_bytes()), (MIB, SCRATCH_BYTES as u64));
    // Rows that are farther apart than what is worth reading have a call each, and need no copy.
    let meter = Meter::new(None);
    let (found, row) = case.read(case.source(), 511, &cost, &meter).unwrap();
    assert!(found == case.expected);
    assert_eq!((row.read_bytes, row.requests, meter.copied_bytes()), (MIB, 2048, 0));
}

#[test]
fn gaps_between_whole_tensors_go_to_scratch_as_far_as_it_has_room() {
    let kib = 1 << 10;
    let whole = |gap| (gap, [1, 100], 0..100);
    let case = Case::new(&[whole(0), whole(300 * kib), whole(200 * kib), whole(100 * kib), whole(500 * kib)]);
    let row = case.read_at_once(FaultySource::new(case.source()).short(3, 100_000), 1 << 30).unwrap();
    // The first two gaps leave no room for the third, which is left out; then there is room for the fourth.
    assert_eq!((row.requests, row.read_bytes), (2, 1000 * kib + 500));
    let case = Case::new(&[whole(0), whole(513 * kib)]);
    assert_eq!(case.read_at_once(case.source(), 1 << 30).unwrap().requests, 2);
}

#[test]
fn more_tensors_than_a_system_takes_parts_at_once_are_one_request() {
    let case = Case::new(&vec![(1, [1, 3], 0..3); 3000]);
    let row = case.read_at_once(case.source(), 1).unwrap();
    assert_eq!((row.requests, row.read_bytes), (1, 3000 * 4 - 1));
    let row = case.read_at_once(FaultySource::new(case.source()).short(1, 999).interrupted(3), 1).unwrap();
    assert_eq!(row.requests, 1);
}

#[test]
fn what_is_only_to_be_in_the_page_cache_is_read_and_kept_nowhere() {
    let source = FaultySource::new(MemorySource(vec![7; 3 * SCRATCH_BYTES]));
    let reader = Positioned { source, path: Path::new("/x").into(), gap_bytes: 0, is_announced: false };
    let meter = Meter::new(None);
    let mut worker = Worker::new(0, &meter);
    let range = 5..2 * SCRATCH_BYTES as u64 + 6;
    reader.read(&range, &mut [], &mut worker).unwrap();
    assert_eq!((reader.source.calls(), meter.copied_bytes()), (3, 0));
    let row = worker.into_row();
    assert_eq!((row.read_bytes, row.requests), (range.end - range.start, 3));
}
