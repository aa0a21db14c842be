use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::dtype::Dtype;
use crate::intervals::Intervals;
use crate::shard_name::ShardName;

/// What a member wants of a tensor of bytes that begins at `start`.
fn want(member: usize, item: usize, start: u64, shape: [u64; 2], dims: [Range<u64>; 2]) -> Want {
    let shard = ShardName::parse("x.safetensors").unwrap();
    let bytes = shape[0] * shape[1];
    let info = TensorInfo::new("t".into(), Dtype::U8, shape.to_vec(), shard, start..start + bytes);
    let info = info.sliced(&dims.map(Intervals::from)).unwrap();
    Want { member, item, shard: 0, info: Arc::new(info) }
}

#[test]
fn what_one_rank_alone_wants_is_its_own() {
    let rows =
        |member: usize| want(member, 0, 100, [8, 10], [member as u64 * 2..member as u64 * 2 + 2, 0..10]);
    let schedule = Schedule::new(4, &[rows(0), rows(1), rows(2), rows(3)]);
    assert_eq!(schedule.own, [[0], [0], [0], [0]]);
    assert_eq!(schedule.windows, []);
    assert_eq!(schedule.read_bytes, [20; 4]);
    assert_eq!((schedule.needed_bytes, schedule.wanted_bytes), (80, 80));
}

#[test]
fn what_all_want_is_read_once_and_by_all_about_the_same() {
    let whole = |member, start| want(member, 0, start, [1, 3 << 20], [0..1, 0..3 << 20]);
    let wants: Vec<_> =
        (0..4).flat_map(|member| (0..8).map(move |tensor| whole(member, tensor << 22))).collect();
    let schedule = Schedule::new(4, &wants);
    assert!(schedule.own.iter().all(Vec::is_empty));
    assert_eq!(schedule.read_bytes, [6 << 20; 4]);
    assert_eq!((schedule.needed_bytes, schedule.wanted_bytes), (24 << 20, 96 << 20));
    assert!(schedule.windows.iter().all(|window| window.is_for_all(4) && window.bytes() <= WINDOW_BYTES));
}

#[test]
fn rows_that_ranks_have_parts_of_are_read_once() {
    let columns =
        |member: usize| want(member, 0, 0, [100, 8], [0..100, member as u64 * 2..member as u64 * 2 + 2]);
    let schedule = Schedule::new(4, &[columns(0), columns(1), columns(2), columns(3)]);
    assert_eq!(schedule.needed_bytes, 800);
    let mut got = [0; 4];
    for receipt in schedule.windows.iter().flat_map(|window| &window.receipts) {
        got[receipt.member] += receipt.dest.end - receipt.dest.start;
    }
    assert_eq!(got, [200; 4]);
}

proptest! {
    #[test]
    fn every_rank_gets_every_byte_that_it_wants_once_and_in_order(
        wanted in vec((0_usize..4, 0_u64..3, (0_u64..6, 0_u64..6), (0_u64..5, 0_u64..5)), 0..12),
    ) {
        let wants: Vec<_> = wanted.iter().enumerate().map(|(item, &(member, tensor, rows, columns))| {
            let range = |(one, other): (u64, u64)| one.min(other)..one.max(other);
            want(member, item, tensor * 40, [6, 5], [range(rows), range(columns)])
        }).collect();
        let schedule = Schedule::new(4, &wants);
        let mut got = vec![0; wants.len()];
        for (member, own) in schedule.own.iter().enumerate() {
            for &item in own {
                prop_assert_eq!((wants[item].member, got[item]), (member, 0));
                got[item] = wants[item].info.len_bytes();
            }
        }
        for window in &schedule.windows {
            for receipt in &window.receipts {
                prop_assert_eq!(receipt.dest.start, got[receipt.item]);
                prop_assert_eq!(receipt.member, wants[receipt.item].member);
                got[receipt.item] = receipt.dest.end;
            }
            prop_assert!(!window.is_solo() || window.reader == window.receipts[0].member);
        }
        for (want, got) in wants.iter().zip(got) {
            prop_assert_eq!(want.info.len_bytes(), got);
        }
        let bytes = |want: &Want| runs(std::iter::once(&*want.info), &(0..u64::MAX), 0);
        let union = crate::extent::union(wants.iter().flat_map(bytes));
        let needed: u64 = union.iter().map(|run| run.end - run.start).sum();
        // What one rank wants twice counts twice where no other wants it.
        prop_assert!(schedule.needed_bytes >= needed);
        let one_each = (0..4).all(|member| {
            let own: Vec<_> = wants.iter().filter(|want| want.member == member).flat_map(bytes).collect();
            let sum: u64 = own.iter().map(|run| run.end - run.start).sum();
            sum == crate::extent::union(own).iter().map(|run| run.end - run.start).sum::<u64>()
        });
        prop_assert!(!one_each || schedule.needed_bytes == needed);
    }
}

#[test]
fn columns_that_no_one_wants_count_for_no_one() {
    let columns = |member| want(member, 0, 0, [8, 1 << 20], [0..8, 0..1000]);
    let schedule = Schedule::new(2, &[columns(0), columns(1)]);
    assert_eq!((schedule.needed_bytes, schedule.wanted_bytes), (8000, 16_000));
    assert_eq!(schedule.read_bytes.iter().sum::<u64>(), 8000);
}
