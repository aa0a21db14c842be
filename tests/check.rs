//! A whole checkpoint compared with itself.

use weightmap::{Check, OpenOptions, check};
use weightmap_testkit::{Checkpoint, ShardBuilder, TempModel, damage};

use crate::support::{FIRST, SECOND, assert_error, shard_of, two_shards};

fn checked(files: &TempModel) -> Check {
    check(files, &OpenOptions::default()).unwrap()
}

fn kinds(check: &Check) -> Vec<&str> {
    check.faults.iter().map(|fault| fault.kind()).collect()
}

#[test]
fn a_sound_checkpoint_has_neither_faults_nor_warnings() {
    let check = checked(&two_shards().temp());
    assert!(check.is_sound(), "{:?}", check.faults);
    assert_eq!((check.warnings.as_slice(), check.shards, check.tensors), (&[][..], 2, 4));
}

#[test]
fn every_fault_is_found_each_by_itself() {
    let files = two_shards()
        .shard("absent.safetensors", shard_of("x"))
        .omit_shard("absent.safetensors")
        .shard("other.safetensors", shard_of("y"))
        .map("not there", "other.safetensors")
        .map("nor this", "other.safetensors")
        .temp();
    damage::truncate(files.file(FIRST), 20);
    damage::append(files.file(SECOND), "x");
    let check = checked(&files);
    let mut found = kinds(&check);
    found.sort_unstable();
    let expected =
        ["HeaderTruncated", "MissingShards", "TensorNotInShard", "TensorNotInShard", "TrailingBytes"];
    assert_eq!(found, expected);
    assert!(!check.is_sound());
}

#[test]
fn faults_of_an_index_come_each_by_itself() {
    let text = r#"{"weight_map": {"a": "../a.safetensors", "b": 7}}"#;
    let check = checked(&two_shards().index_text(text).temp());
    assert_eq!(kinds(&check), ["UnsafeShardName", "NotAName"]);
}

#[test]
fn what_is_accepted_and_odd_is_a_warning_that_names_file_and_tensor() {
    let odd = ShardBuilder::new()
        .raw_header(r#" {"__metadata__":null,"q":{"dtype":"Q8","shape":[1],"data_offsets":[0,2],"x":1}}"#);
    let files =
        two_shards().shard("odd.safetensors", odd.data([0; 2])).map("q", "odd.safetensors").unmap("b").temp();
    let check = checked(&files);
    assert!(check.is_sound(), "{:?}", check.faults);
    let mut found: Vec<_> = check
        .warnings
        .iter()
        .map(|warning| {
            let file = warning.file.as_ref().and_then(|file| file.file_name()).unwrap().to_str().unwrap();
            (warning.kind, file, warning.tensor.as_deref())
        })
        .collect();
    found.sort_unstable();
    let odd = "odd.safetensors";
    let expected = [
        ("LeadingWhiteSpace", odd, None),
        ("NullMetadata", odd, None),
        ("TotalSizeDiffers", "model.safetensors.index.json", None),
        ("UnknownDtype", odd, Some("q")),
        ("UnknownField", odd, Some("q")),
        ("UnlistedTensor", FIRST, Some("b")),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_total_size_that_is_not_that_of_the_tensors_is_a_warning() {
    let check = checked(&two_shards().index_metadata("total_size", 12345).temp());
    let [warning] = check.warnings.as_slice() else { panic!("{:?}", check.warnings) };
    assert_eq!(warning.kind, "TotalSizeDiffers");
    assert!(warning.message.contains("12345") && warning.message.contains("99"), "{warning:?}");
}

#[test]
fn nothing_to_check_is_an_error_and_no_fault() {
    let files = TempModel::empty();
    assert_error(&check(files.file("absent"), &OpenOptions::default()).unwrap_err(), "Io", "absent");
    assert_eq!(kinds(&checked(&files)), ["NoModel"]);
    assert_eq!(
        kinds(&checked(&Checkpoint::new().file("model.safetensors", "x").without_index().temp())),
        ["TooShort"]
    );
}
