//! Real files, and inputs that broke other loaders, where the checkout has them beside it.

mod runtime;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use weightmap::{Error, OpenOptions, ReadMode, Result, ShardedModel, check};
use weightmap_testkit::{Oracle, TempModel};

use crate::support::{assert_is, assert_says, load_all, within_a_minute};

/// The folder of cases; `None`, with a line that says so, if it is not there.
fn cases() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/cases");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: {} is not there", folder.display());
    None
}

/// What a script of the folder makes; `None`, with a line that says so, where it cannot be run.
fn made_by(script: &str) -> Option<TempModel> {
    let script = cases()?.join(script);
    let made = TempModel::empty();
    match Command::new("python3").arg(script).arg(made.path()).output() {
        Ok(output) if output.status.success() => Some(made),
        Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            println!("skipped: python3 cannot be run: {error}");
            None
        }
    }
}

/// The rows of a table with a line of names, each as a look-up by name.
fn table(path: PathBuf) -> Vec<impl Fn(&str) -> String> {
    let text = fs::read_to_string(path).unwrap();
    let mut rows = text.lines().map(|line| line.split('\t').map(str::to_owned).collect::<Vec<_>>());
    let names = rows.next().unwrap();
    rows.map(|row| {
        let names = names.clone();
        move |name: &str| row[names.iter().position(|other| other == name).unwrap()].clone()
    })
    .collect()
}

/// Loads all of a model, in two ways, and compares each tensor with what the oracle reads in its shard.
fn load_and_compare(model: &ShardedModel) -> Result<()> {
    let loaded = [load_all(model, ReadMode::Mapped)?, load_all(model, ReadMode::Buffered)?];
    for shard in model.shards() {
        let oracle = Oracle::open(model.directory().join(shard.as_str()));
        let tensors = loaded.iter().flat_map(|loaded| loaded.tensors());
        tensors.filter(|tensor| tensor.info().shard == *shard).for_each(|tensor| assert_is(tensor, &oracle));
    }
    assert!(loaded.iter().all(|loaded| loaded.tensors().len() == model.len()));
    Ok(())
}

/// Where a policy wins over a case's own wish, and why.
const EXCEPTIONS: [(&str, &str, &str); 5] = [
    ("dtype_lowercase", "accept", "an unknown dtype: the file opens and the bytes can be had raw"),
    ("dtype_c128", "accept", "an unknown dtype: the file opens and the bytes can be had raw"),
    (
        "shape_huge_then_zero",
        "accept",
        "a shape with a zero in it has no elements, whatever the order of its dims",
    ),
    ("idx_dup_key_same", "reject", "twice the same line in `weight_map` is an error too"),
    ("dir_shards_no_index", "accept", "shards without an index are opened when they are complete"),
];

/// Faults of these classes are found when the model is opened; all others at the latest when it is loaded.
const FOUND_AT_OPEN: [&str; 9] = [
    "IndexJson",
    "IndexSchema",
    "IndexMissing",
    "DuplicateKey",
    "PathEscape",
    "BadShardName",
    "ShardMissing",
    "NoModelFound",
    "NotSafetensors",
];

/// What a case's class may be called here. Classes that say too little are not in it.
const KINDS: [(&str, &[&str]); 13] = [
    ("HeaderTooSmall", &["TooShort"]),
    ("HeaderTooLarge", &["TooLong", "NotSafetensors"]),
    ("InvalidHeaderLength", &["HeaderTruncated", "NotSafetensors"]),
    ("HeaderUtf8", &["NotUtf8"]),
    ("NotSafetensors", &["NotSafetensors"]),
    ("TensorInfoInvalid", &["InvalidEntry", "MissingField", "Json"]),
    ("Overflow", &["SizeOverflow"]),
    ("SizeMismatch", &["SizeMismatch"]),
    ("SubByteMisaligned", &["PartialByte"]),
    ("InvalidOffset", &["ReversedOffsets", "Hole", "Overlap"]),
    ("IncompleteBuffer", &["Truncated", "TrailingBytes"]),
    ("TensorMissingInShard", &["TensorNotInShard"]),
    ("NotRegularFile", &["NotRegularFile"]),
];

struct Case {
    name: String,
    path: PathBuf,
    accept: bool,
    class: Option<String>,
}

/// The cases of a group that could be made here.
fn group(made: &TempModel, group: &str) -> Vec<Case> {
    let text = fs::read(made.file("expected.json")).unwrap();
    let cases: Vec<Value> = serde_json::from_slice(&text).unwrap();
    let text = |case: &Value, field: &str| case[field].as_str().map(str::to_owned);
    let of_group = cases.iter().filter(|case| case["group"] == group && case.get("skipped").is_none());
    of_group
        .map(|case| {
            let name = text(case, "name").unwrap();
            let exception =
                EXCEPTIONS.iter().find(|(of, ..)| *of == name).map(|(_, want, _)| (*want).to_owned());
            let accept = exception.or_else(|| text(case, "want")).unwrap() == "accept";
            Case { path: made.file(&text(case, "path").unwrap()), accept, class: text(case, "cls"), name }
        })
        .collect()
}

fn options(case: &Case) -> OpenOptions {
    let variant = ["dir_variant_new", "dir_variant_legacy"].contains(&case.name.as_str());
    if variant { ShardedModel::options().variant("fp16") } else { ShardedModel::options() }
}

/// What is wrong with the answer to a case, if anything is.
fn judge(case: &Case) -> Option<String> {
    let opened = options(case).open(&case.path);
    let at_open = opened.is_err();
    let answer = opened.and_then(|model| load_all(&model, ReadMode::Auto).map(|_| model));
    let class = case.class.as_deref().unwrap_or_default();
    match answer {
        Ok(_) if !case.accept => Some("is accepted".to_owned()),
        Ok(model) => load_and_compare(&model).err().map(|error| error.to_string()),
        Err(error) if case.accept => Some(format!("is refused: {error}")),
        Err(_) if FOUND_AT_OPEN.contains(&class) && !at_open => {
            Some("is found only when it is loaded".to_owned())
        }
        Err(error) => {
            let expected = KINDS.iter().find(|(of, _)| *of == class).map(|(_, kinds)| *kinds);
            let wrong = expected.is_some_and(|kinds| !kinds.contains(&error.kind()));
            wrong.then(|| format!("is {}, not {expected:?}: {error}", error.kind()))
        }
    }
}

fn run_group(name: &'static str) {
    let Some(made) = made_by("make_malformed.py") else { return };
    within_a_minute(move || {
        let cases = group(&made, name);
        assert!(cases.len() > 10, "the group {name} has {} cases", cases.len());
        let readable_by_all =
            |case: &Case| case.name == "fs_permission_denied" && fs::read_dir("/root").is_ok();
        let wrong: Vec<_> = cases
            .iter()
            .filter(|case| !readable_by_all(case))
            .filter_map(|case| Some(format!("{} {}", case.name, judge(case)?)))
            .collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}

#[test]
fn malformed_files_are_refused_and_odd_ones_read() {
    run_group("file");
}

#[test]
fn malformed_indexes_are_refused_and_odd_ones_read() {
    run_group("index");
}

#[cfg(unix)]
#[test]
fn hostile_file_systems_are_errors() {
    run_group("fs");
}

#[test]
fn names_that_lead_out_of_the_directory_are_refused_as_unsafe() {
    let Some(made) = made_by("make_malformed.py") else { return };
    for case in group(&made, "index").iter().filter(|case| case.class.as_deref() == Some("PathEscape")) {
        let error = ShardedModel::open(&case.path).map(drop).unwrap_err();
        assert_says(&error, &["unsafe shard name"]);
    }
}

/// Reports whose model loads: the folder, the path in it, the number of tensors.
const LOADS: [(&str, &str, usize); 32] = [
    ("R00_good", "", 4),
    ("R03_single_file_plus_stale_index", "", 4),
    ("R07_index_names_odd_file", "", 4),
    ("R09_subdir_original", "", 4),
    ("R10_unindexed_tensor_in_listed_shard", "", 4),
    ("R11_overlay", "", 4),
    ("R16_no_total_size", "", 4),
    ("R17b_total_size_float", "", 4),
    ("R17c_total_size_string", "", 4),
    ("R17d_total_size_negative_huge", "", 4),
    ("R18_no_metadata", "", 4),
    ("R20a_hf_cache", "models--o--m/snapshots/c0", 4),
    ("R21_consolidated_index_only", "", 4),
    ("R22_variant", "", 4),
    // The index of known name is the default: the policies' order.
    ("R22b_two_indexes", "", 4),
    ("R23_nested_names", "", 4),
    ("R26_appledouble", "", 4),
    ("R29_incomplete_files", "", 4),
    // It is the only model there: it opens, with a warning that it is an adapter.
    ("R91_adapter", "", 1),
    ("R39_lead_space", "", 1),
    ("R43b_zero_times_huge", "", 1),
    ("R47_no_meta", "", 2),
    ("R48_only_meta", "", 0),
    ("R50_scalar", "", 2),
    ("R52_f8e8m0", "", 1),
    ("R52d_unknown", "", 1),
    ("R54_bool", "", 1),
    ("R57_slice", "", 1),
    // Its content can only be judged by a hash.
    ("R59_zeroed_content", "models--o--m/snapshots/c0", 1),
    ("R59_zeroed_content", "models--o--m", 1),
    ("R20a_hf_cache", "models--o--m", 4),
    ("R92_tied", "", 2),
];

/// Reports whose model is refused: the folder, and what the message has to say.
const FAILS: [(&str, &[&str]); 35] = [
    ("R01_missing_shard", &["model-00002-of-00002.safetensors", "2 tensors"]),
    (
        "R04_st_index_but_only_bin",
        &["model-00001-of-00002.safetensors", "pytorch_model-00001-of-00002.bin", "convert"],
    ),
    (
        "R12_duplicate_no_index",
        &["a.weight", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
    ),
    ("R15_dup_key_in_weight_map", &["a.weight"]),
    ("R18b_weight_map_null", &["weight_map"]),
    ("R18c_weight_map_value_list", &["a.weight", "a list"]),
    ("R18d_bom", &["BOM"]),
    ("R18e_index_truncated", &["line 1", "column"]),
    ("R18f_index_is_lfs_pointer", &["LFS"]),
    ("R19a_absolute", &["unsafe shard name"]),
    ("R19b_parent", &["unsafe shard name"]),
    ("R19c_backslash_drive", &["3 faults", "unsafe shard name"]),
    ("R19d_empty_dot_nul", &["3 faults", "shard name"]),
    ("R24_dcp_partial", &["DCP", "shard-00001-model-00001-of-00001.safetensors"]),
    ("R25b_no_index_gap", &["missing numbers: 2"]),
    ("R28b_nfd_nfc", &["`mod\\u{e9}l.safetensors`", "`mode\\u{301}l.safetensors`"]),
    ("R90_split_gguf", &["GGUF"]),
    ("R30b_html", &["HTML"]),
    ("R30c_json_err", &["JSON"]),
    ("R30d_zip_pickle", &["zip", "PyTorch"]),
    ("R31_short_data", &["truncated", "5 are missing"]),
    ("R31b_short_header", &["40"]),
    ("R34_zeros", &["zeros"]),
    ("R35_empty", &["empty"]),
    ("R37_len_max", &["18446744073709551615"]),
    ("R37b_len_just_over", &["header"]),
    ("R40_dup_header_key", &["\"a\"", "twice"]),
    ("R40b_same_range_dup_key", &["\"a\"", "twice"]),
    ("R42_hole", &["hole", "4..8", "\"b\""]),
    ("R43_shape_overflow", &["\"a\"", "2^64"]),
    ("R44_shape_mismatch", &["\"a\"", "4000000"]),
    ("R44b_reversed", &["\"a\"", "[4, 0]"]),
    ("R46_meta_int", &["\"step\""]),
    ("R52c_f4_odd", &["\"w\"", "12 bits"]),
    ("R60_dir", &["directory"]),
];

/// What a report's model may warn of, when it is opened or checked.
const WARNS: [(&str, &str); 8] = [
    ("R03_single_file_plus_stale_index", "PassedOver"),
    ("R10_unindexed_tensor_in_listed_shard", "UnlistedTensor"),
    ("R17c_total_size_string", "OddTotalSize"),
    ("R17d_total_size_negative_huge", "OddTotalSize"),
    ("R22b_two_indexes", "PassedOver"),
    ("R39_lead_space", "LeadingWhiteSpace"),
    ("R52d_unknown", "UnknownDtype"),
    ("R91_adapter", "Adapter"),
];

fn assert_loads(path: &Path, tensors: usize) {
    let model = ShardedModel::open(path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(model.len(), tensors, "{path:?}");
    load_and_compare(&model).unwrap();
}

#[test]
fn public_reports_have_the_outcome_that_they_ask_for() {
    let Some(made) = made_by("make_reports.py") else { return };
    for (folder, path, tensors) in LOADS {
        assert_loads(&made.file(folder).join(path), tensors);
    }
    for (folder, words) in FAILS {
        let error: Error = ShardedModel::open(made.file(folder)).map(drop).expect_err(folder);
        assert_says(&error, words);
    }
    for (folder, kind) in WARNS {
        let checked = check(made.file(folder), &ShardedModel::options()).unwrap();
        assert!(checked.is_sound(), "{folder}: {:?}", checked.faults);
        assert!(
            checked.warnings.iter().any(|warning| warning.kind == kind),
            "{folder}: {:?}",
            checked.warnings
        );
    }
    for entry in fs::read_dir(made.path()).unwrap() {
        let folder = entry.unwrap().file_name().into_string().unwrap();
        let known =
            LOADS.iter().any(|(name, ..)| *name == folder) || FAILS.iter().any(|(name, _)| *name == folder);
        assert!(known || !made.file(&folder).join("EXPECT.txt").exists(), "nothing is expected of {folder}");
    }
}

#[test]
fn public_reports_are_right_in_bytes_and_types_too() {
    let Some(made) = made_by("make_reports.py") else { return };
    let view =
        |folder: &str, tensor: &str| ShardedModel::open(made.file(folder)).unwrap().view(tensor).unwrap();
    assert_eq!(view("R11_overlay", "a.weight").bytes(), [0x11; 64]);
    assert_ne!(view("R10_unindexed_tensor_in_listed_shard", "a.weight").bytes(), [0xee; 64]);
    assert_eq!(view("R54_bool", "m").as_bools().unwrap_err().kind(), "NotBool");
    assert_eq!(view("R52d_unknown", "a").as_slice::<u8>().unwrap_err().kind(), "DtypeMismatch");
    let half = ShardedModel::options().variant("fp16").open(made.file("R22_variant")).unwrap();
    assert_eq!(half.names().collect::<Vec<_>>(), ["a.weight"]);
    let missing = ShardedModel::options().allow_missing(true).open(made.file("R01_missing_shard")).unwrap();
    assert_eq!(load_all(&missing, ReadMode::Auto).unwrap().tensors().len(), 2);
}

#[test]
fn real_indexes_are_read_and_broken_ones_refused() {
    let Some(folder) = cases().map(|cases| cases.join("indexes")) else { return };
    let rows = table(folder.join("SOURCES.tsv"));
    assert!(rows.len() > 20);
    for row in rows {
        let name = row("file");
        let json = fs::read(folder.join(&name)).unwrap();
        let parsed = weightmap::Index::parse(&json);
        // An index that lists nothing is broken by our policy, though it is JSON.
        if name.starts_with("BAD-") || row("tensors") == "0" {
            assert!(parsed.is_err(), "{name}");
            continue;
        }
        let index = parsed.unwrap_or_else(|error| panic!("{name}: {error}"));
        let counts = (index.len().to_string(), index.shards().len().to_string());
        assert_eq!(counts, (row("tensors"), row("shards")), "{name}");

        let files = TempModel::empty();
        let path = files.file(Path::new(&row("path")).file_name().unwrap().to_str().unwrap());
        fs::write(&path, &json).unwrap();
        for shard in index.shards() {
            fs::write(files.file(shard.as_str()), "").unwrap();
        }
        let model = ShardedModel::open(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!((model.len(), model.shards()), (index.len(), index.shards()), "{name}");
        let values: Value = serde_json::from_slice(&json).unwrap();
        for (tensor, shard) in values["weight_map"].as_object().unwrap() {
            let found = index.find(tensor).and_then(|tensor| index.shard_of(tensor)).unwrap();
            assert_eq!(index.shards()[found as usize].as_str(), shard.as_str().unwrap(), "{name}: {tensor}");
        }
    }
}

#[test]
fn real_files_are_read_as_the_reference_reads_them() {
    let Some(folder) = cases().map(|cases| cases.join("models")) else { return };
    for row in table(folder.join("SOURCES.tsv")) {
        let path = folder.join(row("file"));
        if path.extension().is_none_or(|extension| extension != "safetensors") {
            continue;
        }
        let file = fs::read(&path).unwrap();
        let Ok(reference) = safetensors::SafeTensors::deserialize(&file) else {
            assert_says(&ShardedModel::open(&path).map(drop).unwrap_err(), &["LFS"]);
            continue;
        };
        let model = ShardedModel::open(&path).unwrap();
        assert_eq!(model.len(), row("tensors").parse().unwrap_or(0), "{path:?}");
        load_and_compare(&model).unwrap();
        for (name, tensor) in reference.iter() {
            assert!(model.view(name).unwrap().bytes() == tensor.data(), "{path:?} {name}");
        }
    }
}

#[test]
fn a_real_shard_of_72_serves_without_the_others() {
    let Some(folder) = cases().map(|cases| cases.join("models/bloom-partial")) else { return };
    let error = ShardedModel::open(&folder).map(drop).unwrap_err();
    let Error::MissingShards { missing, shards, .. } = &error else { panic!("{error}") };
    assert_eq!((missing.len(), *shards), (71, 72));
    let model = ShardedModel::options().allow_missing(true).open(&folder).unwrap();
    assert_eq!((model.len(), load_all(&model, ReadMode::Auto).unwrap().tensors().len()), (845, 2));
}
