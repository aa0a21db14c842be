//! A model of 92,000 tensors in 163 shards.

use weightmap::ReadMode;
use weightmap_testkit::{Moe, TempModel};

use crate::support::{assert_says, in_mode, open};

#[cfg(unix)]
#[test]
fn of_163_shards_one_tensor_opens_one() {
    let files = TempModel::empty();
    let written = Moe::full().write(files.path()).unwrap();
    let model = open(&files);
    assert_eq!((model.len(), model.shards().len()), (92_000, 163));

    // Only one shard can be opened without an error.
    let (last, others) = written.shards.split_last().unwrap();
    for shard in others {
        weightmap_testkit::damage::replace_by_dangling_link(shard);
    }
    let last = last.file_name().unwrap().to_str().unwrap();
    let name = model.select().shard(last).unwrap().selected().last().unwrap().to_owned();
    let info = model.tensor(&name).unwrap();
    assert_eq!(info.shard.as_str(), last);
    let loaded = model.select().names([&name]).unwrap().load_with(&in_mode(ReadMode::Buffered)).unwrap();
    let report = loaded.report();
    assert_eq!(
        (report.shards_touched, report.shards_opened, report.shards_checked),
        (1, 0, 0),
        "the first touch was before"
    );
    assert_eq!((report.tensors, report.requested_bytes), (1, info.len_bytes()));

    let misspelt = name.replace("weight", "wieght");
    let error = model.tensor(&misspelt).unwrap_err();
    assert_says(&error, &[&misspelt, &name]);
    let layer = model.select().glob("model.layers.7.*").unwrap();
    assert_eq!(layer.len(), model.names().filter(|name| name.starts_with("model.layers.7.")).count());
    assert!(layer.len() > 1500);
}
