//! `weightmap prefetch`.

use weightmap_testkit::Llama;

use crate::{args, weightmap};

#[test]
fn what_was_prefetched_is_in_the_page_cache_and_in_no_memory_of_the_program() {
    let model = Llama::tiny().checkpoint().temp();
    let arguments =
        args!["prefetch", model.path(), "--select", "model.layers.0.*", "--workers", "1", "--json"];
    let json = weightmap(arguments).json();
    let keys: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["path", "report"]);
    assert_eq!(json["path"], model.path().to_str().unwrap());
    let report = &json["report"];
    assert_eq!(report["reason"], "into the page cache");
    assert_eq!((&report["tensors"], &report["mapped_bytes"]), (&9.into(), &0.into()));
    assert_eq!(report["workers"].as_array().unwrap().len(), 1);
    if !report["resident_after"].is_null() {
        assert_eq!(report["resident_after"], report["extent_pages"]);
    }
}

#[test]
fn for_people_it_prints_the_report() {
    let model = Llama::tiny().checkpoint().temp();
    let text = weightmap(args!["prefetch", model.path()]).ok();
    assert!(text.starts_with("warmed  21 tensors"), "{text}");
    assert!(text.contains("\nmode    buffered (into the page cache)"), "{text}");
}
