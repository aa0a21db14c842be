//! The files of distributed checkpoints.

use super::*;

fn rank_files(places: &[(u64, u64)], of: u64) -> Vec<String> {
    let name = |(rank, number)| format!("shard-{rank:05}-model-{number:05}-of-{of:05}.safetensors");
    places.iter().copied().map(name).collect()
}

fn directory_of_ranks(places: &[(u64, u64)], of: u64) -> TempDir {
    let files = rank_files(places, of);
    directory(&files.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn files_of_all_ranks_are_one_model_be_it_that_some_pairs_have_none() {
    let places = [(1, 1), (1, 2), (2, 1), (3, 3)];
    let layout = resolve(&directory_of_ranks(&places, 3)).unwrap();
    assert!(matches!(layout.origin, Origin::Pieces { incomplete: None, .. }));
    assert_eq!((chosen(&layout), kinds(&layout)), (rank_files(&places, 3), vec![]));
}

#[test]
fn ranks_and_numbers_that_are_missing_are_named() {
    for (places, of, says) in [
        (&[(1, 1), (4, 1)][..], 1, "missing ranks: 2, 3"),
        (&[(2, 1)], 1, "missing ranks: 1"),
        (&[(0, 1), (1, 1)], 1, "ranks out of range: 0"),
        (&[(1, 1), (2, 1), (2, 4)], 4, "missing numbers: 2, 3"),
        (&[(1, 1), (1, 2)], 1, "numbers out of range: 2"),
        (&[(1, 1)], u64::MAX, "and 18446744073709551604 more"),
    ] {
        let dir = directory_of_ranks(places, of);
        contains(&message(resolve(&dir)), &[says]);
        let layout = Layout::resolve(dir.path(), &options().allow_missing(true)).unwrap();
        assert_eq!(kinds(&layout), ["MissingShards"], "{says}");
    }
}

#[test]
fn ranks_beside_another_set_are_ambiguous_and_beside_a_single_model_passed_over() {
    let dir = directory_of_ranks(&[(1, 1)], 1);
    write(&dir, "m-1-of-1.safetensors", "");
    contains(&message(resolve(&dir)), &["several sets of shards", "m-1-of-1", "shard-00001-model"]);
    write(&dir, "model.safetensors", "");
    let layout = resolve(&dir).unwrap();
    assert_eq!((chosen(&layout), kinds(&layout)), (vec!["model.safetensors".to_owned()], vec!["PassedOver"]));
}

#[test]
fn a_complete_set_wins_over_ranks_that_are_missing_be_that_allowed() {
    let dir = directory_of_ranks(&[(2, 1)], 1);
    write(&dir, "m-1-of-1.safetensors", "");
    let layout = Layout::resolve(dir.path(), &options().allow_missing(true)).unwrap();
    assert_eq!(
        (chosen(&layout), kinds(&layout)),
        (vec!["m-1-of-1.safetensors".to_owned()], vec!["PassedOver"])
    );
}

#[test]
fn one_file_of_a_rank_opened_by_its_path_is_a_warning() {
    let dir = directory_of_ranks(&[(3, 1)], 1);
    let path = dir.path().join(&rank_files(&[(3, 1)], 1)[0]);
    assert_eq!(kinds(&Layout::resolve(&path, &options()).unwrap()), ["RankFile"]);
}
