//! Typed access: it checks type, alignment and booleans.

use weightmap::{Element, ReadMode};
use weightmap_testkit::{Checkpoint, ShardBuilder, TempModel};

use crate::support::{assert_says, in_mode, open};

/// A single file whose data begins so many bytes after a multiple of 8.
fn misaligned_by(bytes: usize, shard: ShardBuilder) -> TempModel {
    let unpadded = shard.clone().header_padding(0).head().len();
    Checkpoint::single(shard.header_padding(unpadded.next_multiple_of(8) - unpadded + bytes)).temp()
}

fn assert_elements<T: Element + PartialEq + std::fmt::Debug>(dtype: &str, values: &[T], bytes: Vec<u8>) {
    let shard = ShardBuilder::new().tensor("t", dtype, &[values.len() as u64], bytes);
    let model = Checkpoint::single(shard).temp();
    let view = open(&model).view("t").unwrap();
    assert_eq!(view.to_vec::<T>().unwrap(), values);
    assert_eq!(view.as_slice::<T>().unwrap(), values);
    assert_eq!(view.info().elements(), values.len() as u64);
}

macro_rules! assert_numbers {
    ($($dtype:literal: $values:expr;)+) => {$(
        assert_elements($dtype, &$values, $values.iter().flat_map(|value| value.to_le_bytes()).collect());
    )+};
}

#[cfg(target_endian = "little")]
#[test]
fn elements_are_those_of_the_file() {
    assert_numbers! {
        "U8": [0_u8, 255]; "I8": [-1_i8, 127]; "U16": [1_u16, u16::MAX]; "I16": [i16::MIN, 2]; "U32": [u32::MAX, 3];
        "I32": [i32::MIN, 4]; "U64": [u64::MAX, 5]; "I64": [i64::MIN, 6]; "F32": [1.5_f32, -0.0]; "F64": [f64::MAX, 2.5];
    }
    assert_elements(
        "C64",
        &[[1.0_f32, 2.0]],
        [1.0_f32, 2.0].iter().flat_map(|part| part.to_le_bytes()).collect(),
    );
}

#[test]
fn the_bits_of_a_nan_are_kept() {
    let bytes = *b"\xff\xff\xff\xff\x01\x00\x80\x7f";
    let model = Checkpoint::single(ShardBuilder::new().tensor("t", "F32", &[2], bytes)).temp();
    let values = open(&model).view("t").unwrap().to_vec::<f32>().unwrap();
    assert_eq!(values.iter().map(|value| value.to_bits()).collect::<Vec<_>>(), [0xffff_ffff, 0x7f80_0001]);
}

#[test]
fn another_type_is_an_error_that_names_both() {
    let model =
        Checkpoint::single(ShardBuilder::new().zeros("t", "F32", &[2]).tensor("q", "Q8_0", &[2], [1, 2]))
            .temp();
    let opened = open(&model);
    let error = opened.view("t").unwrap().as_slice::<i32>().unwrap_err();
    assert_eq!((error.kind(), error.tensor()), ("DtypeMismatch", Some("t")));
    assert_says(&error, &["\"t\"", "I32", "F32"]);
    for error in [
        opened.view("t").unwrap().to_vec::<u8>().unwrap_err(),
        opened.view("t").unwrap().as_bools().unwrap_err(),
        opened.view("q").unwrap().as_slice::<u8>().unwrap_err(),
    ] {
        assert_eq!(error.kind(), "DtypeMismatch");
    }
}

#[test]
fn mapped_elements_that_are_not_aligned_are_an_error_and_can_be_copied() {
    for offset in 0..8 {
        let shard = ShardBuilder::new().tensor("t", "F64", &[1], 1.5_f64.to_le_bytes());
        let opened = open(&misaligned_by(offset, shard));
        let view = opened.view("t").unwrap();
        assert_eq!(view.to_vec::<f64>().unwrap(), [1.5]);
        match view.as_slice::<f64>() {
            Ok(values) => assert_eq!((offset, values), (0, &[1.5][..])),
            Err(error) => {
                assert_ne!(offset, 0);
                assert_eq!((error.kind(), error.tensor()), ("Misaligned", Some("t")));
            }
        }
    }
}

#[test]
fn memory_of_a_tensors_own_is_aligned_wherever_it_lay() {
    let shard = ShardBuilder::new()
        .pattern("a", "U8", &[3])
        .tensor("t", "F64", &[1], 1.5_f64.to_le_bytes())
        .pattern("z", "U8", &[1]);
    let opened = open(&misaligned_by(1, shard));
    let loaded = opened.select().all().load_with(&in_mode(ReadMode::Buffered)).unwrap();
    assert_eq!(loaded.get("t").unwrap().as_slice::<f64>().unwrap(), [1.5]);
    assert!(!loaded.get("t").unwrap().is_mapped());
}

#[test]
fn a_boolean_that_is_neither_0_nor_1_is_an_error_and_its_bytes_can_be_had() {
    let shard = ShardBuilder::new().tensor("good", "BOOL", &[3], [0, 1, 1]).tensor(
        "bad",
        "BOOL",
        &[4],
        [0, 1, 2, 255],
    );
    let model = Checkpoint::single(shard).temp();
    for &mode in ReadMode::ALL {
        let loaded = open(&model).select().all().load_with(&in_mode(mode)).unwrap();
        assert_eq!(loaded.get("good").unwrap().as_bools().unwrap(), [false, true, true]);
        let error = loaded.get("bad").unwrap().as_bools().unwrap_err();
        assert_eq!((error.kind(), error.tensor()), ("NotBool", Some("bad")));
        assert_says(&error, &["element 2 is 2"]);
        assert_eq!(loaded.get("bad").unwrap().bytes(), [0, 1, 2, 255]);
    }
}
