//! The content of an index file, compared with the same text as a tree.

use std::collections::HashSet;

use weightmap::{Index, IndexError, ShardName};

use crate::json::{Json, is_refused_for_content};

/// However long a file is, an error about it is not. An error shows some of its faults, each with a name or two.
const MAX_MESSAGE_BYTES: usize = 16_000;

/// Reads an index file.
pub fn run(file: &[u8]) {
    let index = Index::parse(file);
    if let Err(error) = &index {
        let message = error.to_string();
        assert!(!message.is_empty() && message.len() < MAX_MESSAGE_BYTES, "{message}");
    }
    match (index, serde_json::from_slice::<Json>(file)) {
        (Ok(index), Ok(tree)) => {
            let listed = listed(&tree).unwrap_or_else(|reason| panic!("taken in spite of {reason}"));
            check(&index, &listed);
        }
        // What stands beside the map is passed over.
        (Ok(_), Err(error)) => assert!(is_refused_for_content(&error), "taken in spite of {error}"),
        (Err(error), Ok(tree)) => assert!(listed(&tree).is_err(), "refused: {error}"),
        (Err(error), Err(_)) => {
            let is_about_names = matches!(error, IndexError::EmptyWeightMap | IndexError::NoWeightMap { .. });
            assert!(!is_about_names || std::str::from_utf8(file).is_ok());
        }
    }
}

/// The tensors and shards of a tree that is an index, or what it lacks for that.
fn listed(tree: &Json) -> Result<Vec<(&str, ShardName)>, &'static str> {
    let Json::Object(_) = tree else { return Err("not being an object") };
    if tree.all("metadata").count() > 1 || tree.all("weight_map").count() != 1 {
        return Err("two keys of one name, or no map");
    }
    let map = tree.all("weight_map").next().filter(|map| !map.members().is_empty());
    let map = map.ok_or("a map that is empty, or none")?;
    if map.repeats() {
        return Err("a tensor that is listed twice");
    }
    let shard = |(tensor, shard): &'_ (String, Json)| match shard {
        Json::Text(shard) => ShardName::parse(shard).map_err(|_| "a bad name"),
        _ => Err(if tensor.is_empty() { "no name, of \"\"" } else { "no name" }),
    };
    map.members().iter().map(|member| Ok((member.0.as_str(), shard(member)?))).collect()
}

/// That an index says what is listed, and that no name leads out of the directory.
fn check(index: &Index, listed: &[(&str, ShardName)]) {
    assert!(index.names().eq(listed.iter().map(|(tensor, _)| *tensor)));
    let (mut seen, mut shards) = (HashSet::new(), Vec::new());
    for (number, (tensor, shard)) in (0..).zip(listed) {
        if seen.insert(shard) {
            shards.push(shard);
        }
        assert_eq!((index.find(tensor), index.name(number)), (Some(number), Some(*tensor)));
        let found = index.shard_of(number).and_then(|shard| index.shards().get(shard as usize));
        assert_eq!(found, Some(shard));
    }
    assert!(index.shards().iter().eq(shards));
    let of_shards = (0..).zip(index.shards()).flat_map(|(number, _)| index.tensors_of(number));
    let mut of_shards: Vec<_> = of_shards.collect();
    of_shards.sort_unstable();
    assert!(of_shards.into_iter().eq((0..).take(index.len())));
    for (number, shard) in (0..).zip(index.shards()) {
        assert_eq!(index.find_shard(shard.as_str()), Some(number));
        assert!(stays_inside(shard.as_str()), "{shard:?}");
    }
    assert!(index.warnings().iter().all(|warning| warning.message.len() < MAX_MESSAGE_BYTES));
}

/// Whether a name is a relative path of plain parts, on POSIX and on Windows.
fn stays_inside(name: &str) -> bool {
    let is_plain = |part: &str| {
        !part.is_empty() && !part.chars().all(|c| matches!(c, '.' | ' ')) && !part.ends_with(' ')
    };
    name.split('/').all(is_plain) && !name.contains(['\\', ':', '\0']) && name.ends_with(".safetensors")
}
