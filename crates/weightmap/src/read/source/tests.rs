use std::io::Write;
use std::sync::mpsc;

use proptest::prelude::*;

use super::faulty::{FaultySource, MemorySource};
use super::*;

fn bytes(count: usize) -> Vec<u8> {
    (0..=250).cycle().take(count).collect()
}

fn memory(count: usize) -> MemorySource {
    MemorySource(bytes(count))
}

/// Reads into parts of these lengths, one after another.
fn read(source: &dyn Source, lengths: &[usize], offset: u64) -> io::Result<Vec<u8>> {
    let mut target = vec![0xff; lengths.iter().sum()];
    let mut rest = target.as_mut_slice();
    let mut parts = Vec::new();
    for &length in lengths {
        let (part, later) = rest.split_at_mut(length);
        parts.push(IoSliceMut::new(part));
        rest = later;
    }
    read_exact_vectored_at(source, &mut parts, offset)?;
    Ok(target)
}

fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

proptest! {
    #[test]
    fn every_source_gives_the_same_bytes_however_short_its_reads_are(
        lengths in prop::collection::vec(0_usize..50, 0..20),
        offset in 0_usize..100,
        seed: u64,
        most in 1_usize..40,
    ) {
        let all = bytes(1100);
        let expected = &all[offset..offset + lengths.iter().sum::<usize>()];
        let faulty = FaultySource::new(memory(1100)).short(seed, most).interrupted(3);
        for source in [&memory(1100) as &dyn Source, &file_of(&all), &faulty] {
            prop_assert_eq!(read(source, &lengths, offset as u64).unwrap(), expected);
        }
    }
}

#[test]
fn more_parts_than_a_system_takes_at_once_are_read_by_several_calls() {
    let all = bytes(5000);
    let lengths: Vec<_> = (0..3 * PARTS + 1).map(|number| number % 3).collect();
    let total: usize = lengths.iter().sum();
    assert_eq!(read(&file_of(&all), &lengths, 7).unwrap(), all[7..7 + total]);
    let counted = FaultySource::new(memory(5000));
    assert_eq!(read(&counted, &lengths, 7).unwrap(), all[7..7 + total]);
    assert!(counted.calls() >= 3, "{} calls", counted.calls());
}

#[test]
fn parts_that_are_all_empty_need_no_call() {
    let source = FaultySource::new(memory(0)).failing_after(0);
    assert_eq!(read(&source, &[0, 0, 0], 99).unwrap(), [0; 0]);
    assert_eq!(source.calls(), 0);
}

#[test]
fn the_end_of_a_source_within_the_parts_is_an_error() {
    let cut = FaultySource::new(memory(100)).cut_at(60);
    for source in [&cut as &dyn Source, &memory(60), &file_of(&bytes(60))] {
        assert_eq!(read(source, &[20, 20], 20).unwrap(), bytes(60)[20..]);
        assert_eq!(read(source, &[20, 21], 20).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(read(source, &[1], 1000).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}

#[test]
fn a_place_that_no_file_has_is_an_error() {
    assert!(read(&file_of(&bytes(60)), &[1], u64::MAX).is_err());
    assert!(read(&memory(60), &[1], u64::MAX).is_err());
}

#[test]
fn a_failure_of_the_device_is_told_and_what_lies_before_it_is_read() {
    let source = FaultySource::new(memory(100)).failing_at(50..60);
    assert_eq!(read(&source, &[30, 20], 0).unwrap(), bytes(50));
    assert_eq!(read(&source, &[30], 60).unwrap(), bytes(90)[60..]);
    let told = |source: &dyn Source| read(source, &[30, 21], 0).unwrap_err().to_string();
    assert_eq!(told(&source), faulty::device_failure().to_string());
    assert_eq!(told(&FaultySource::new(memory(100)).short(1, 9).failing_after(2)), told(&source));
}

#[test]
fn a_signal_is_no_failure() {
    let source = FaultySource::new(memory(100)).interrupted(2).short(0, 1);
    let mut found = [0; 10];
    read_exact_vectored_at(&source, &mut [IoSliceMut::new(&mut found)], 5).unwrap();
    assert_eq!(found, bytes(15)[5..]);
    assert_eq!(source.calls(), 19, "ten reads of a byte, and nine signals between them");
}

#[test]
fn a_slow_source_is_waited_for() {
    let (arrived, arrival) = mpsc::channel();
    let (go_on, permission) = mpsc::channel::<()>();
    let permission = std::sync::Mutex::new(permission);
    let source = FaultySource::new(memory(100)).before_each(move |offset| {
        arrived.send(offset).unwrap();
        permission.lock().unwrap().recv().unwrap();
    });
    let reader = std::thread::spawn(move || read(&source, &[10], 40));
    assert_eq!(arrival.recv().unwrap(), 40);
    assert!(!reader.is_finished());
    go_on.send(()).unwrap();
    assert_eq!(reader.join().unwrap().unwrap(), bytes(50)[40..]);
}
