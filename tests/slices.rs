//! Slices as they are asked for and told of; that their bytes are right is shown by `conformance`.
#![expect(clippy::single_range_in_vec_init, reason = "a dimension has ranges, mostly one")]

use weightmap::{Error, Intervals, ReadMode, Selection, ShardedModel, SliceError};
use weightmap_testkit::{Checkpoint, Oracle, ShardBuilder, TempModel};

use crate::support::{FIRST, SECOND, assert_error, assert_says, in_mode, open};

const MIB: u64 = 1 << 20;

/// A matrix, packed elements and elements of unknown width in the first shard, and a matrix in the second.
fn files() -> TempModel {
    let first = ShardBuilder::new()
        .pattern("m", "F32", &[4, 6])
        .pattern("nibbles", "F4", &[4, 6])
        .pattern("sixes", "F6_E2M3", &[2, 8])
        .tensor("q", "Q8_0", &[7], *b"unknown bytes");
    Checkpoint::new()
        .shard(FIRST, first)
        .shard(SECOND, ShardBuilder::new().pattern("n", "F32", &[4, 6]))
        .temp()
}

fn slice(model: &ShardedModel, name: &str, dims: &[Intervals]) -> Selection {
    model.select().slice(name, dims.iter().cloned()).unwrap()
}

fn text(intervals: &str) -> Intervals {
    intervals.parse().unwrap()
}

fn dims(intervals: &[&str]) -> Vec<Intervals> {
    intervals.iter().map(|intervals| text(intervals)).collect()
}

#[test]
fn a_slice_that_the_tensor_does_not_have_is_told_by_all_that_open_its_shard() {
    let files = files();
    for (name, intervals, kind, said) in [
        ("m", &[":", ":", "0:1"][..], "SliceTooManyDims", "[4, 6]"),
        ("m", &["0:5"], "SliceOutOfRange", "0:5"),
        ("m", &[":", "7:"], "SliceOutOfRange", "7:"),
        ("m", &["3:1"], "SliceReversed", "3:1"),
        ("m", &[":", "2:4+0:1"], "SliceNotRising", "0:1"),
        ("m", &["0:3+2:4"], "SliceNotRising", "2:4"),
        ("nibbles", &[":", "1:3"], "SliceNotOnByte", "F4"),
        ("sixes", &[":", "0:2"], "SliceNotOnByte", "4"),
        ("q", &["0:1"], "SliceUnknownWidth", "Q8_0"),
    ] {
        let model = open(&files);
        let selection = slice(&model, name, &dims(intervals)).names(["n"]).unwrap();
        let mut empty = Vec::new();
        let streamed = selection.stream().unwrap().next().unwrap().unwrap_err();
        for error in [
            selection.infos().unwrap_err(),
            selection.load_with(&in_mode(ReadMode::Buffered)).unwrap_err(),
            selection.load_with(&in_mode(ReadMode::Mapped)).unwrap_err(),
            selection.load_into(|_| std::mem::take(&mut empty).leak()).unwrap_err(),
            selection.prefetch().unwrap_err(),
            streamed,
        ] {
            assert_error(&error, kind, FIRST);
            assert_eq!(error.tensor(), Some(name));
            assert_says(&error, &[said]);
        }
        assert_eq!(model.select().names(["n"]).unwrap().load().unwrap().tensors().len(), 1);
    }
}

#[test]
fn the_error_of_a_slice_has_its_fault_for_programs() {
    let files = files();
    let error = slice(&open(&files), "m", &dims(&[":", "0:7"])).load().unwrap_err();
    let Error::Slice { shape, fault, .. } = error else { panic!("{error}") };
    assert_eq!(shape, [4, 6]);
    assert_eq!(*fault, SliceError::OutOfRange { dim: 1, interval: "0:7".to_owned(), len: 6 });
    let error = slice(&open(&files), "nibbles", &dims(&[":", "2:5"])).infos().unwrap_err();
    let Error::Slice { fault, .. } = error else { panic!("{error}") };
    let SliceError::NotOnByte { dim, index, below, above, .. } = *fault else { panic!("{fault}") };
    assert_eq!((dim, index, below, above), (1, 5, 4, 6));
}

#[test]
fn text_that_is_no_slice_is_an_error_of_its_own() {
    assert_eq!("0:4:2".parse::<Intervals>().unwrap_err().kind(), "SliceSyntax");
}

#[test]
fn a_tensor_that_is_not_there_has_no_slice() {
    let files = files();
    let error = open(&files).select().slice("mm", [0..1]).unwrap_err();
    assert_eq!(error.kind(), "UnknownTensors");
    assert_says(&error, &["\"m\""]);
}

#[test]
fn of_unknown_width_a_tensor_is_had_by_a_slice_of_all() {
    let files = files();
    let loaded = slice(&open(&files), "q", &dims(&[":"])).load().unwrap();
    assert_eq!(loaded.tensors()[0].bytes(), b"unknown bytes");
}

/// The shapes of what is selected, each with its name.
fn shapes(selection: &Selection) -> Vec<(String, Vec<u64>)> {
    selection.infos().unwrap().into_iter().map(|info| (info.name, info.shape)).collect()
}

#[test]
fn a_slice_narrows_what_is_selected_and_keeps_its_place() {
    let files = files();
    let model = open(&files);
    let whole = model.select().names(["n", "m"]).unwrap();
    let narrowed = whole.clone().slice("n", [1..3]).unwrap();
    let expected = |rows| [("n".to_owned(), vec![rows, 6]), ("m".to_owned(), vec![4, 6])];
    assert_eq!(shapes(&narrowed), expected(2));
    assert_eq!(shapes(&whole), expected(4), "the selection that it was made from stays");
    assert_eq!(shapes(&narrowed.clone().slice("n", [0..3]).unwrap()), expected(3), "the last one counts");
    assert_eq!(shapes(&narrowed.slice("n", [..]).unwrap()), expected(4));
}

#[test]
fn what_selects_a_slice_again_by_any_name_leaves_it_a_slice() {
    let files = files();
    let sliced = || open(&files).select().slice("n", [1..2]).unwrap();
    for selection in [
        sliced().names(["n"]).unwrap(),
        sliced().glob("n").unwrap(),
        sliced().regex("^n$").unwrap(),
        sliced().shard(SECOND).unwrap(),
    ] {
        assert_eq!(shapes(&selection), [("n".to_owned(), vec![1, 6])]);
        assert_eq!(selection.len(), 1);
    }
    let all = sliced().all();
    assert_eq!(all.len(), 5);
    assert_eq!(shapes(&all)[0], ("n".to_owned(), vec![1, 6]));
}

#[test]
fn an_info_tells_the_part_and_the_whole() {
    let files = files();
    let model = open(&files);
    let whole = model.tensor("m").unwrap();
    assert_eq!(whole.slice, None);
    let start = whole.range.start;

    let selection = slice(&model, "m", &dims(&["1:3", "0:1+4:6"]));
    let [info] = &selection.infos().unwrap()[..] else { panic!("one tensor") };
    assert_eq!((info.shape.as_slice(), info.len_bytes(), info.elements()), (&[2, 3][..], 24, 6));
    // From the first element of row 1 to the last of row 2.
    assert_eq!(info.range, start + 24..start + 72);
    let part = info.slice.as_ref().unwrap();
    assert_eq!((part.tensor_shape.as_slice(), &part.intervals), (&[4, 6][..], &dims(&["1:3", "0:1+4:6"])));
    for &mode in ReadMode::ALL {
        let loaded = selection.load_with(&in_mode(mode)).unwrap();
        assert_eq!(loaded.tensors()[0].info(), info);
        assert_eq!(loaded.get("m").unwrap().shape(), [2, 3]);
    }
}

#[test]
fn a_slice_without_elements_is_a_tensor_without_elements() {
    let files = files();
    for &mode in ReadMode::ALL {
        let selection = slice(&open(&files), "m", &dims(&["2:2", "1:5"]));
        let loaded = selection.load_with(&in_mode(mode)).unwrap();
        assert_eq!((loaded.tensors()[0].shape(), loaded.tensors()[0].bytes()), (&[0, 4][..], &[][..]));
        assert_eq!((loaded.report().requested_bytes, loaded.report().read_bytes), (0, 0));
    }
}

#[test]
fn elements_of_a_slice_are_typed() {
    let files = files();
    let whole = open(&files).view("m").unwrap().to_vec::<f32>().unwrap();
    let loaded = slice(&open(&files), "m", &dims(&["2", "1+3"])).load().unwrap();
    assert_eq!(loaded.tensors()[0].as_slice::<f32>().unwrap(), [whole[13], whole[15]]);
}

#[test]
fn memory_for_a_slice_has_the_length_of_the_slice() {
    let files = files();
    let selection = slice(&open(&files), "m", &dims(&["1:3", "0:2"])).names(["n"]).unwrap();
    for given in [15, 17, 0, 96] {
        let mut memory = [0; 96];
        let error = selection
            .load_into(|info| {
                let bytes = if info.name == "m" { given } else { 96 };
                memory[..bytes].to_vec().leak()
            })
            .unwrap_err();
        assert_error(&error, "TargetLength", FIRST);
        assert_eq!(error.tensor(), Some("m"));
        assert_says(&error, &["16", &given.to_string()]);
        memory.fill(0);
    }
}

#[test]
fn narrow_gaps_between_rows_are_read_and_copied_apart() {
    let files = Checkpoint::single(ShardBuilder::new().pattern("t", "U8", &[64, 4096])).temp();
    let model = open(&files);
    let loaded = slice(&model, "t", &dims(&[":", ":2048"])).load_with(&in_mode(ReadMode::Buffered)).unwrap();
    let report = loaded.report();
    let hull = 63 * 4096 + 2048;
    assert_eq!((report.requested_bytes, report.read_bytes, report.requests), (64 * 2048, hull, 1));
    assert_eq!(report.copied_bytes, report.requested_bytes);
    assert_eq!(report.over_read, Some(hull as f64 / (64 * 2048) as f64));
    assert_eq!(report.shards[0].requests, 1);
    let file_bytes = files.file("model.safetensors").metadata().unwrap().len();
    // A model without an index has read its header when it was opened.
    assert_eq!(report.spared_bytes, Some(file_bytes - hull - report.header_bytes));
    assert!(report.peak_buffer_bytes < report.requested_bytes + MIB);
}

#[test]
fn rows_far_apart_are_read_by_themselves_to_their_places() {
    let files = Checkpoint::single(ShardBuilder::new().zeros("t", "U8", &[4, 4 * MIB])).temp();
    let columns = slice(&open(&files), "t", &[Intervals::from(..), (..MIB).into()]);
    let loaded = columns.load_with(&in_mode(ReadMode::Buffered)).unwrap();
    let report = loaded.report();
    assert_eq!((report.requested_bytes, report.read_bytes), (4 * MIB, 4 * MIB));
    assert_eq!((report.requests, report.shards[0].requests, report.copied_bytes), (4, 4, 0));
    assert_eq!(report.over_read, Some(1.0));
    assert!(report.peak_buffer_bytes <= 5 * MIB, "{} bytes", report.peak_buffer_bytes);
}

#[test]
fn first_rows_are_all_that_is_read() {
    let files = Checkpoint::single(ShardBuilder::new().pattern("t", "F32", &[1024, 1024])).temp();
    for &mode in ReadMode::ALL {
        let model = open(&files);
        let loaded = model.select().slice("t", [256..512]).unwrap().load_with(&in_mode(mode)).unwrap();
        let report = loaded.report();
        assert_eq!(report.requested_bytes, MIB);
        assert!(report.read_bytes <= MIB + 2 * report.page_bytes, "{mode}: {}", report.read_bytes);
        let mapped = if loaded.tensors()[0].is_mapped() { MIB } else { 0 };
        assert_eq!(report.mapped_bytes, mapped, "{mode}");
        assert!(loaded.tensors()[0].bytes() == Oracle::open(&files).slice("t", MIB..2 * MIB));
    }
}
