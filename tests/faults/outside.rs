//! Which files are opened: those of the model, and what the kernel tells of itself.

use std::path::Path;

use weightmap::{ReadMode, ShardedModel, check};
use weightmap_testkit::{Checkpoint, ShardBuilder, TempModel, faults};

use super::{WAYS, by_workers, checkpoint, with_faults};
use crate::support::{open, shard_of};

/// What was opened or looked up that lies neither in the model's directory nor in what the kernel tells.
fn outside(model: &Path, work: impl FnOnce()) -> Vec<String> {
    let log = tempfile::NamedTempFile::new().unwrap();
    faults::log_to(log.path());
    work();
    faults::clear();
    let text = std::fs::read_to_string(log.path()).unwrap();
    assert!(text.lines().any(|path| Path::new(path).starts_with(model)), "nothing was told: {text}");
    let is_ours = |path: &&str| {
        let is_plain = !path.split('/').any(|part| part == "..");
        is_plain
            && [model, Path::new("/proc"), Path::new("/sys")]
                .iter()
                .any(|own| Path::new(path).starts_with(own))
    };
    text.lines().filter(|path| !is_ours(path)).map(str::to_owned).collect()
}

/// Opens, checks and loads, whatever comes of it.
fn use_all(path: &Path) {
    let _ = check(path, &ShardedModel::options());
    for allows in [false, true] {
        let Ok(model) = ShardedModel::options().allow_missing(allows).open(path) else { continue };
        for &mode in ReadMode::ALL {
            let _ = model.select().allow_empty().all().load_with(&by_workers(mode));
        }
        let names: Vec<_> = model.names().map(str::to_owned).collect();
        names.iter().for_each(|name| drop(model.view(name)));
    }
}

/// A good shard, of which names that lead out of a model could make it a part, lies beside the directory of the model.
fn beside_others() -> (TempModel, std::path::PathBuf) {
    let parent = TempModel::empty();
    for name in ["outside.safetensors", "model-00001-of-00001.safetensors"] {
        shard_of("a").write(parent.file(name)).unwrap();
    }
    let dir = parent.file("model");
    std::fs::create_dir(&dir).unwrap();
    (parent, dir)
}

#[test]
fn a_good_model_is_read_from_its_own_files_alone() {
    with_faults(|| {
        let files = checkpoint().temp();
        let found = outside(files.path(), || {
            for way in WAYS {
                for &mode in ReadMode::ALL {
                    way.go(&open(&files), &by_workers(mode), true).unwrap();
                }
            }
        });
        assert!(found.is_empty(), "{found:?}");
    });
}

#[test]
fn no_name_of_an_index_leads_out_of_the_directory() {
    with_faults(|| {
        let (parent, dir) = beside_others();
        let absolute = parent.file("outside.safetensors").display().to_string();
        for name in [
            "../outside.safetensors",
            "x/../../outside.safetensors",
            "./../outside.safetensors",
            "..//outside.safetensors",
            "..",
            ".",
            "",
            "/",
            &absolute,
            &format!("/{absolute}"),
            "//server/share/outside.safetensors",
            r"..\outside.safetensors",
            r"x\..\..\outside.safetensors",
            r"\\server\share\outside.safetensors",
            r"\\?\C:\outside.safetensors",
            "C:outside.safetensors",
            "C:/outside.safetensors",
            "file:///outside.safetensors",
            "https://host/outside.safetensors",
            "outside.safetensors\0.safetensors",
            "../outside.safetensors\0",
            "~/outside.safetensors",
            "$HOME/outside.safetensors",
            "%2e%2e/outside.safetensors",
            "\u{2024}\u{2024}/outside.safetensors",
            "．．/outside.safetensors",
            "..\n/outside.safetensors",
            "con.safetensors",
            "/dev/zero.safetensors",
            "/proc/self/fd/0.safetensors",
        ] {
            for index in ["model.safetensors.index.json", "other.safetensors.index.json"] {
                let checkpoint =
                    Checkpoint::new().shard("in.safetensors", ShardBuilder::new().pattern("b", "U8", &[3]));
                checkpoint.map("a", name).index_name(index).write(&dir).unwrap();
                let found = outside(&dir, || use_all(&dir));
                assert!(found.is_empty(), "{name:?}: {found:?}");
                let path = dir.join(index);
                let found = outside(&dir, || use_all(&path));
                assert!(found.is_empty(), "{name:?}: {found:?}");
                std::fs::remove_file(path).unwrap();
            }
        }
    });
}

#[test]
fn no_revision_of_a_hub_cache_leads_out_of_it() {
    with_faults(|| {
        let (_parent, dir) = beside_others();
        std::fs::create_dir_all(dir.join("snapshots/abc")).unwrap();
        std::fs::create_dir_all(dir.join("refs")).unwrap();
        std::fs::create_dir_all(dir.join("blobs")).unwrap();
        for revision in
            ["../..", "../../..", "/", "/tmp", "..", ".", "", "abc/../../..", r"..\..", "abc\0", "%2e%2e"]
        {
            std::fs::write(dir.join("refs/main"), revision).unwrap();
            let found = outside(&dir, || use_all(&dir));
            assert!(found.is_empty(), "{revision:?}: {found:?}");
        }
    });
}

#[test]
fn nothing_that_a_header_or_a_configuration_names_is_opened() {
    with_faults(|| {
        let (parent, dir) = beside_others();
        let outside_name = parent.file("outside.safetensors").display().to_string();
        let shard = ShardBuilder::new().metadata("format", &outside_name).pattern(&outside_name, "U8", &[4]);
        shard
            .pattern("../outside.safetensors", "U8", &[4])
            .write(dir.join("adapter_model.safetensors"))
            .unwrap();
        let config =
            format!(r#"{{"base_model_name_or_path": "{outside_name}", "_name_or_path": "../outside"}}"#);
        for file in ["adapter_config.json", "config.json"] {
            std::fs::write(dir.join(file), &config).unwrap();
        }
        let found = outside(&dir, || use_all(&dir));
        assert!(found.is_empty(), "{found:?}");
    });
}
