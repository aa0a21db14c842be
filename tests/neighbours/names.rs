//! Names of tensors and shards that deceive whoever reads them, or a terminal.

use std::fs;

use weightmap::{ReadMode, ShardedModel, check};
use weightmap_testkit::{Checkpoint, ShardBuilder};

use crate::open::INDEX;
use crate::support::{load_all, open, open_error};

/// Characters that control a terminal, or the order of what is shown, or are not seen.
const UNSEEN: [&str; 12] = [
    "\u{1b}[2J",
    "\u{1b}]0;x\u{7}",
    "\u{9b}31m",
    "\r",
    "\n",
    "\u{8}",
    "\u{202e}",
    "\u{2066}",
    "\u{200b}",
    "\u{200d}",
    "\u{feff}",
    "\0",
];

fn assert_clean(message: &str) {
    for unseen in UNSEEN {
        assert!(!message.contains(unseen), "{message:?}");
    }
}

#[test]
fn tensors_of_deceiving_names_load_and_their_errors_show_each_character() {
    for unseen in UNSEEN {
        let name = format!("model{unseen}.weight");
        let files = Checkpoint::single(ShardBuilder::new().pattern(&name, "U8", &[4]).pattern(
            "model.weight",
            "U8",
            &[2],
        ))
        .temp();
        let model = open(&files);
        assert_eq!(load_all(&model, ReadMode::Auto).unwrap().get(&name).unwrap().bytes().len(), 4);
        assert_clean(&model.view(&format!("{name}?")).unwrap_err().to_string());
        assert_clean(&model.view(&name).unwrap().as_slice::<f32>().unwrap_err().to_string());

        let wrong = ShardBuilder::new().declare(&name, "U8", &[5], 0, 4).data([0; 4]);
        let error = open_error(&Checkpoint::single(wrong).temp());
        assert_eq!((error.kind(), error.tensor()), ("SizeMismatch", Some(&*name)));
        assert_clean(&error.to_string());
    }
}

#[test]
fn shards_and_dtypes_of_deceiving_names_are_shown_with_each_character() {
    for unseen in UNSEEN {
        let shard = format!("x{unseen}.safetensors");
        let text = serde_json::json!({ "weight_map": { "x": shard } }).to_string();
        assert_clean(&open_error(&Checkpoint::new().index_text(text).temp()).to_string());
        if unseen != "\0" {
            // A directory can have it, though an index may not.
            let files = Checkpoint::new().file(&shard, "no header").temp();
            assert_clean(&open_error(&files).to_string());
        }
        let header = serde_json::json!({ "q": { "dtype": unseen, "shape": [1], "data_offsets": [0, 2] } });
        let odd = ShardBuilder::new().raw_header(header.to_string()).data([0; 2]);
        for warning in check(&Checkpoint::single(odd).temp(), &ShardedModel::options()).unwrap().warnings {
            assert_clean(&warning.to_string());
        }
    }
}

#[test]
fn names_that_look_the_same_are_told_apart() {
    let twins = ["caf\u{e9}", "cafe\u{301}", "cafe", "\u{441}afe", "cafe\u{200b}"];
    let shard = twins.iter().fold(ShardBuilder::new(), |shard, name| shard.pattern(name, "U8", &[3]));
    let files = Checkpoint::single(shard).temp();
    let model = open(&files);
    for name in twins {
        assert_eq!(model.view(name).unwrap().bytes(), weightmap_testkit::pattern::bytes(name, 3));
    }
    let message = model.view("cafe\u{301}\u{301}").unwrap_err().to_string();
    assert!(message.contains("\\u{301}"), "{message}");
}

#[test]
fn a_very_long_name_is_a_name_and_is_cut_where_it_is_shown() {
    let name = "n".repeat(1 << 20);
    let files =
        Checkpoint::new().shard("x.safetensors", ShardBuilder::new().pattern(&name, "U8", &[3])).temp();
    assert_eq!(open(&files).view(&name).unwrap().bytes().len(), 3);
    let text = format!(r#"{{"weight_map": {{"x": "{name}.safetensors"}}}}"#);
    fs::write(files.file(INDEX), text).unwrap();
    let message = open_error(&files).to_string();
    assert!(message.len() < 2000, "{} bytes", message.len());
}
