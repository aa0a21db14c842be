//! Digests beside a checkpoint: what is loaded and is not as they say is an error, in every way of loading.

use std::fs;
use std::path::Path;

use weightmap::{
    Content, Digests, Error, Intervals, LoadOptions, Plan, ReadMode, Result, Selection, ShardedModel,
    Warning, check_content,
};
use weightmap_testkit::{Checkpoint, ShardBuilder, TempModel};

use crate::support::assert_says;

const FIRST: &str = "model-00001-of-00002.safetensors";
const SECOND: &str = "model-00002-of-00002.safetensors";

/// Two shards: tensors of many chunks, of one, of part of one, and of none.
fn checkpoint() -> TempModel {
    let first = ShardBuilder::new()
        .pattern("small", "F32", &[100])
        .pattern("long", "F32", &[1000, 5000])
        .zeros("none", "F32", &[0, 4]);
    let second =
        ShardBuilder::new().pattern("chunk", "U8", &[1 << 20]).pattern("more", "BF16", &[3, (1 << 20) + 1]);
    Checkpoint::new().shard(FIRST, first).shard(SECOND, second).temp()
}

/// Turns a bit of a file over.
fn corrupt(path: &Path, at: u64) {
    let mut bytes = fs::read(path).unwrap();
    bytes[usize::try_from(at).unwrap()] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

fn digested(files: &TempModel) -> (ShardedModel, Digests) {
    let model = ShardedModel::open(files.path()).unwrap();
    let digests = model.digest(&LoadOptions::default()).unwrap();
    (model, digests)
}

fn reopened(files: &TempModel) -> ShardedModel {
    ShardedModel::open(files.path()).unwrap()
}

/// All ways of loading a selection, by all modes.
fn load_all_ways(selection: &Selection, digests: &Digests) -> Vec<(String, Result<u64>)> {
    let mut ways = Vec::new();
    for &mode in ReadMode::ALL {
        let options = LoadOptions::default().mode(mode).verify(digests.clone());
        let mut add = |way: &str, result: Result<u64>| ways.push((format!("{way}, {mode}"), result));
        add("load", selection.load_with(&options).map(|loaded| loaded.report().verified_bytes));
        let stream = || {
            let mut stream = selection.stream_with(&options)?;
            stream.by_ref().try_for_each(|tensor| tensor.map(drop))?;
            Ok(stream.report().map_or(0, |report| report.verified_bytes))
        };
        add("stream", stream());
        let infos = selection.infos().unwrap();
        let mut memory: Vec<_> =
            infos.iter().map(|info| vec![0; usize::try_from(info.len_bytes()).unwrap()]).collect();
        let mut buffers = memory.iter_mut();
        let load_into = selection.load_into_with(&options, |_| buffers.next().unwrap());
        add("load_into", load_into.map(|report| report.verified_bytes));
        add("prefetch", selection.prefetch_with(&options).map(|report| report.verified_bytes));
    }
    ways
}

#[test]
fn the_digest_of_a_tensor_is_that_of_its_bytes() {
    let files = checkpoint();
    let (model, digests) = digested(&files);
    assert_eq!(digests.len(), 5);
    for name in model.names() {
        let info = model.tensor(name).unwrap();
        let expected = blake3::hash(model.view(name).unwrap().bytes());
        assert_eq!(digests.tensor(info.shard.as_str(), name), Some(*expected.as_bytes()), "{name}");
    }
    assert_eq!(digests.tensor(FIRST, "chunk"), None);
}

#[test]
fn digests_are_the_same_whatever_they_are_computed_by() {
    let files = checkpoint();
    let (model, digests) = digested(&files);
    for &mode in ReadMode::ALL {
        let again = model.digest(&LoadOptions::default().mode(mode).workers(3)).unwrap();
        assert_eq!(again.as_bytes(), digests.as_bytes(), "{mode}");
    }
}

#[test]
fn a_checkpoint_that_is_as_its_digests_say_loads_in_all_ways() {
    let files = checkpoint();
    let (_, digests) = digested(&files);
    let all = reopened(&files).select().all();
    let bytes = all.load().unwrap().report().requested_bytes;
    for (way, verified) in load_all_ways(&all, &digests) {
        assert_eq!(verified.unwrap(), bytes, "{way}");
    }
}

#[test]
fn a_byte_that_changed_is_an_error_that_names_the_tensor_and_the_chunk_in_all_ways() {
    for (tensor, byte) in
        [("small", 399_u64), ("long", 0), ("long", 9 << 20), ("long", 19_999_999), ("more", 7 << 20 >> 1)]
    {
        let files = checkpoint();
        let (model, digests) = digested(&files);
        let info = model.tensor(tensor).unwrap();
        let at = info.range.start + byte;
        corrupt(&files.file(info.shard.as_str()), at);
        for (way, verified) in load_all_ways(&reopened(&files).select().all(), &digests) {
            let error = verified.expect_err(&way);
            let Error::ContentDiffers { tensor: Some(named), range, .. } = &error else {
                panic!("{way}: {error}")
            };
            assert_eq!(named, tensor, "{way}");
            assert!(range.contains(&at) && range.end - range.start <= 1 << 20, "{way}: {range:?}");
            assert_says(&error, &[info.shard.as_str(), "fetch the file again"]);
        }
        let others = reopened(&files).select().all().except_glob(tensor).unwrap();
        for (way, verified) in load_all_ways(&others, &digests) {
            assert!(verified.is_ok(), "{way}: {verified:?}");
        }
    }
}

#[test]
fn of_a_slice_the_chunks_are_verified_that_it_has_something_of() {
    let files = checkpoint();
    let (model, digests) = digested(&files);
    let rows = model.select().slice("long", [Intervals::from(100..200)]).unwrap();
    let columns = model.select().slice("long", [Intervals::from(..), Intervals::from(10..20)]).unwrap();
    let expected = [rows.load().unwrap(), columns.load().unwrap()];
    for (part, expected) in [&rows, &columns].into_iter().zip(&expected) {
        for (way, verified) in load_all_ways(part, &digests) {
            assert!(verified.unwrap() >= expected.report().requested_bytes, "{way}");
        }
        for &mode in ReadMode::ALL {
            let options = LoadOptions::default().mode(mode).verify(digests.clone());
            let loaded = part.load_with(&options).unwrap();
            assert!(loaded.tensors()[0].bytes() == expected.tensors()[0].bytes(), "{mode}");
        }
    }
    // Rows 100 to 199 are bytes 2,000,000 to 4,000,000: chunks 1 to 3. Of these, what the slice does not have counts too.
    let start = model.tensor("long").unwrap().range.start;
    for (byte, is_seen) in
        [(2_000_000, true), (1 << 20, true), ((4 << 20) - 1, true), ((1 << 20) - 1, false), (4 << 20, false)]
    {
        let files = checkpoint();
        corrupt(&files.file(FIRST), start + byte);
        let rows = reopened(&files).select().slice("long", [Intervals::from(100..200)]).unwrap();
        for (way, verified) in load_all_ways(&rows, &digests) {
            assert_eq!(verified.is_err(), is_seen, "{way}: byte {byte}");
        }
    }
}

#[test]
fn what_a_plan_puts_together_is_verified() {
    let files = checkpoint();
    let (_, digests) = digested(&files);
    corrupt(&files.file(FIRST), 5_000_000);
    let plan = Plan::fsdp(4).unwrap();
    let model = reopened(&files);
    let verified = (0..4).map(|rank| {
        let options = LoadOptions::default().verify(digests.clone());
        model.select().plan(&plan, rank).unwrap().load_with(&options).map(drop)
    });
    let verified: Vec<_> = verified.collect();
    assert!(verified.iter().any(Result::is_ok), "{verified:?}");
    let wrong = verified.iter().filter_map(|result| result.as_ref().err());
    assert!(
        wrong.clone().count() > 0 && wrong.clone().all(|error| error.kind() == "ContentDiffers"),
        "{verified:?}"
    );
}

#[test]
fn a_header_that_means_something_else_is_an_error_before_data_is_read() {
    let files = checkpoint();
    let (_, digests) = digested(&files);
    let path = files.file(SECOND);
    let text = fs::read(&path).unwrap();
    let at = text.windows(4).position(|four| four == b"BF16").unwrap();
    let mut other = text.clone();
    other[at..at + 4].copy_from_slice(b"I16\"");
    other[at + 4] = b' ';
    fs::write(&path, &other).unwrap();
    let selection = reopened(&files).select().names(["chunk"]).unwrap();
    for (way, verified) in load_all_ways(&selection, &digests) {
        let error = verified.expect_err(&way);
        assert!(matches!(&error, Error::ContentDiffers { tensor: None, .. }), "{way}: {error}");
        assert_says(&error, &[SECOND, "the header"]);
    }
}

#[test]
fn what_the_digests_do_not_know_is_an_error() {
    let files = checkpoint();
    let (_, digests) = digested(&files);
    let more = ShardBuilder::new().pattern("other", "U8", &[9]);
    let others = Checkpoint::new().shard("x.safetensors", more).temp();
    let error =
        reopened(&others).select().all().load_with(&LoadOptions::default().verify(digests)).unwrap_err();
    assert_eq!(error.kind(), "NotDigested");
    assert_says(&error, &["x.safetensors", "make them anew"]);
}

#[test]
fn digests_are_written_beside_the_model_and_read_again() {
    let files = checkpoint();
    let (model, digests) = digested(&files);
    assert!(model.digests().unwrap().is_none());
    let path = model.digests_path();
    assert_eq!(path, files.file("model.safetensors.index.json.digests"));
    digests.write(&path, false).unwrap();
    let error = digests.write(&path, false).unwrap_err();
    assert_says(&error, &["there is a file of this name"]);
    digests.write(&path, true).unwrap();
    let read = reopened(&files).digests().unwrap().unwrap();
    assert_eq!((read.as_bytes(), read.digest()), (digests.as_bytes(), digests.digest()));
    assert_eq!(read.path(), Some(path.as_path()));
    let names =
        fs::read_dir(files.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: Vec<_> = names.collect();
    assert!(names.iter().all(|name| !name.ends_with(".tmp")), "{names:?}");
    // Other programs can read it: it is a safetensors file of bytes.
    let content = fs::read(&path).unwrap();
    let reference = safetensors::SafeTensors::deserialize(&content).unwrap();
    assert_eq!(reference.len(), 5);
}

#[test]
fn digests_that_are_damaged_are_told_from_a_checkpoint_that_is() {
    let files = checkpoint();
    let (_, digests) = digested(&files);
    let all = reopened(&files).select().all();
    let mut kinds = std::collections::BTreeSet::new();
    let header =
        8 + usize::try_from(u64::from_le_bytes(digests.as_bytes()[..8].try_into().unwrap())).unwrap();
    for at in (0..digests.as_bytes().len()).step_by(7) {
        let mut bytes = digests.as_bytes().to_vec();
        bytes[at] ^= 1;
        let Ok(damaged) = Digests::parse(&bytes) else { continue };
        let result = all.load_with(&LoadOptions::default().verify(damaged));
        let kind = result.map_or_else(|error| error.kind(), |_| "none");
        // A bit of the header's text can be one of a name or of what no one reads.
        assert!(at < header || kind != "none", "{at}");
        kinds.insert(kind);
    }
    assert!(kinds.contains("DigestsDamaged") && kinds.contains("NotDigested"), "{kinds:?}");
}

#[test]
fn a_file_that_is_no_file_of_digests_is_an_error_that_says_so() {
    let files = checkpoint();
    let read = |content: &[u8]| {
        fs::write(files.file("x.digests"), content).unwrap();
        Digests::read(files.file("x.digests")).unwrap_err()
    };
    for content in [&b""[..], b"hello", &fs::read(files.file(FIRST)).unwrap()] {
        let error = read(content);
        assert_eq!(error.kind(), "NotDigests");
        assert_says(&error, &["x.digests"]);
    }
    assert_eq!(Digests::read(files.path()).unwrap_err().kind(), "NotRegularFile");
}

#[test]
fn a_whole_checkpoint_is_compared_and_each_tensor_that_differs_is_a_fault() {
    let files = checkpoint();
    let (model, digests) = digested(&files);
    digests.write(model.digests_path(), false).unwrap();
    let checked = |content: &Content| check_content(files.path(), &ShardedModel::options(), content).unwrap();
    let sound = checked(&Content::default());
    assert!(sound.is_sound() && sound.warnings.is_empty(), "{sound:?}");
    assert_eq!(sound.compared_tensors, 5);

    for tensor in ["small", "long", "more"] {
        let info = model.tensor(tensor).unwrap();
        corrupt(&files.file(info.shard.as_str()), info.range.end - 1);
    }
    let found = checked(&Content::default().digests(digests));
    let tensors: Vec<_> = found.faults.iter().map(|fault| (fault.kind(), fault.tensor().unwrap())).collect();
    assert_eq!(tensors, ["more", "long", "small"].map(|tensor| ("ContentDiffers", tensor)));
}

#[test]
fn tensors_of_odd_values_are_warned_of_when_that_is_asked_for() {
    let shard = ShardBuilder::new()
        .tensor("nan", "F32", &[2], [f32::NAN.to_le_bytes(), 1_f32.to_le_bytes()].concat())
        .tensor("infinite", "BF16", &[1], [0x80, 0x7f])
        .zeros("zero", "I64", &[300_000])
        .zeros("none", "F32", &[0])
        .pattern("usual", "U8", &[9]);
    let files = Checkpoint::new().shard("model.safetensors", shard).temp();
    let scanned =
        |scan| check_content(files.path(), &ShardedModel::options(), &Content::default().scan(scan)).unwrap();
    let of_tensors = |warnings: Vec<Warning>| {
        let tensors = warnings.into_iter().filter_map(|warning| Some((warning.kind, warning.tensor?)));
        tensors.collect::<Vec<_>>()
    };
    let expected = [("NotFinite", "infinite"), ("NotFinite", "nan"), ("AllZero", "zero")];
    let expected = expected.map(|(kind, tensor)| (kind, tensor.to_owned()));
    assert_eq!(of_tensors(scanned(true).warnings), expected);
    assert!(of_tensors(scanned(false).warnings).is_empty());
}

#[test]
fn where_nothing_is_known_of_the_bytes_that_is_a_warning_whether_values_are_looked_at_or_not() {
    let files = checkpoint();
    for scan in [false, true] {
        let content = Content::default().scan(scan);
        let found = check_content(files.path(), &ShardedModel::options(), &content).unwrap();
        let [warning] = &found.warnings[..] else { panic!("{:?}", found.warnings) };
        assert_eq!((warning.kind, warning.file.as_deref()), ("NothingKnown", Some(files.path())));
        assert!(warning.message.contains("model.safetensors.index.json.digests"), "{warning}");
        assert!(found.is_sound() && found.compared_tensors == 0, "{found:?}");
    }
}

#[test]
fn a_shard_that_the_digests_do_not_know_is_one_fault_and_its_tensors_are_missed_where_they_were() {
    let files = checkpoint();
    let (_, digests) = digested(&files);
    let renamed = files.file("other-00002-of-00002.safetensors");
    fs::rename(files.file(SECOND), &renamed).unwrap();
    let index = files.file("model.safetensors.index.json");
    let text = fs::read_to_string(&index).unwrap().replace(SECOND, "other-00002-of-00002.safetensors");
    fs::write(&index, text).unwrap();
    let content = Content::default().digests(digests);
    let found = check_content(files.path(), &ShardedModel::options(), &content).unwrap();
    let faults: Vec<_> = found.faults.iter().map(|fault| (fault.kind(), fault.path())).collect();
    let missed = ("DigestedNotThere", None);
    assert_eq!(faults, [("NotDigested", Some(renamed.as_path())), missed, missed]);
    assert_eq!(found.compared_tensors, 3);
}

#[test]
fn a_shard_that_cannot_be_read_to_its_end_is_a_fault_and_the_others_are_compared() {
    let files = checkpoint();
    let (model, digests) = digested(&files);
    digests.write(model.digests_path(), false).unwrap();
    weightmap_testkit::damage::truncate(files.file(FIRST), 5 << 20);
    corrupt(&files.file(SECOND), model.tensor("chunk").unwrap().range.start);
    let found = check_content(files.path(), &ShardedModel::options(), &Content::default()).unwrap();
    let kinds: Vec<_> = found.faults.iter().map(Error::kind).collect();
    assert_eq!(kinds, ["Truncated", "ContentDiffers"]);
    assert_eq!(found.compared_tensors, 2);
}

#[test]
fn progress_of_a_comparison_ends_at_the_bytes_of_all_tensors() {
    let files = checkpoint();
    let (model, digests) = digested(&files);
    let all = model.select().all().load().unwrap().report().requested_bytes;
    let most = std::sync::Arc::new(std::sync::Mutex::new((0, 0)));
    let told = std::sync::Arc::clone(&most);
    let content = Content::default().digests(digests).progress(move |done, of| {
        let mut most = told.lock().unwrap();
        *most = (done.max(most.0), of.max(most.1));
    });
    check_content(files.path(), &ShardedModel::options(), &content).unwrap();
    assert_eq!(*most.lock().unwrap(), (all, all));
}

#[cfg(unix)]
#[test]
fn a_file_of_the_hubs_cache_is_compared_with_the_name_of_its_blob() {
    use sha2::{Digest as _, Sha256};
    let files = TempModel::empty();
    let [blobs, snapshot] = ["blobs", "snapshots/c0"].map(|folder| files.file(folder));
    fs::create_dir_all(&blobs).unwrap();
    fs::create_dir_all(&snapshot).unwrap();
    for (name, shard) in [(FIRST, "a"), (SECOND, "b")]
        .map(|(name, tensor)| (name, ShardBuilder::new().pattern(tensor, "U8", &[99])))
    {
        let content = shard.build();
        let digest: String = Sha256::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
        fs::write(blobs.join(&digest), content).unwrap();
        std::os::unix::fs::symlink(format!("../../blobs/{digest}"), snapshot.join(name)).unwrap();
    }
    let checked = || check_content(&snapshot, &ShardedModel::options(), &Content::default()).unwrap();
    let sound = checked();
    assert!(sound.is_sound() && sound.warnings.is_empty(), "{sound:?}");
    assert_eq!((sound.compared_files, sound.compared_tensors), (2, 0));
    let blob = fs::canonicalize(snapshot.join(SECOND)).unwrap();
    corrupt(&blob, fs::metadata(&blob).unwrap().len() - 1);
    let faults = checked().faults;
    let [fault] = faults.as_slice() else { panic!("{faults:?}") };
    assert_eq!(fault.kind(), "BlobDiffers");
    assert_says(fault, &[SECOND, blob.file_name().unwrap().to_str().unwrap()]);
}
