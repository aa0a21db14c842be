//! A load in a process that has threads, a directory and limits of its own.

#[cfg(unix)]
mod fork;
#[cfg(target_os = "linux")]
mod limits;
mod stress;
#[cfg(unix)]
mod surroundings;

use std::sync::OnceLock;

use rayon::prelude::*;
use weightmap::{LoadOptions, ReadMode};
use weightmap_testkit::{Checkpoint, Llama, Oracle, ShardBuilder, TempModel};

use crate::support::{alone, assert_is, in_mode, open, two_shards, within_a_minute};

/// A thousand tensors, more than a stack holds loads that are nested in each other.
fn many() -> TempModel {
    let add = |shard: ShardBuilder, number: u32| shard.zeros(&format!("t{number}"), "U8", &[64]);
    Checkpoint::single((0..1000).fold(ShardBuilder::new(), add)).temp()
}

#[test]
fn a_load_for_each_tensor_on_the_threads_of_a_pool_does_not_nest() {
    let files = many();
    for mode in [ReadMode::Mapped, ReadMode::Buffered] {
        let model = open(&files);
        let names: Vec<_> = model.names().map(str::to_owned).collect();
        let loaded = within_a_minute(move || {
            let load =
                |name: &String| model.select().names([name]).unwrap().load_with(&in_mode(mode)).unwrap();
            names.par_iter().map(|name| load(name).tensors()[0].bytes().len()).sum::<usize>()
        });
        assert_eq!(loaded, 64_000);
    }
}

#[test]
fn a_load_on_a_thread_of_a_pool_runs_no_other_job_that_waits_for_it() {
    let files = two_shards().temp();
    let model = open(&files);
    within_a_minute(move || {
        let once = OnceLock::new();
        (0..200).into_par_iter().for_each(|_| {
            once.get_or_init(|| model.select().all().load().unwrap());
        });
    });
}

#[test]
fn a_model_stays_where_it_was_opened_when_the_process_goes_elsewhere() {
    alone("", || {
        let (files, elsewhere) = (two_shards().temp(), TempModel::empty());
        let name = files.path().file_name().unwrap();
        std::env::set_current_dir(files.path().parent().unwrap()).unwrap();
        let model = open(std::path::Path::new(name));
        std::env::set_current_dir(elsewhere.path()).unwrap();
        assert_is(&model.select().names(["a"]).unwrap().load().unwrap().tensors()[0], &Oracle::open(&files));
    });
}

#[test]
fn no_more_workers_are_started_than_there_is_work() {
    let files = Llama::tiny().checkpoint().temp();
    let all = open(&files).select().all();
    for workers in [1, 1_000_000, usize::MAX] {
        let loaded = all.load_with(&LoadOptions::default().workers(workers)).unwrap();
        let report = loaded.report();
        assert!(report.workers.len() as u64 <= report.requests.max(report.shards_touched), "{report:?}");
    }
}
