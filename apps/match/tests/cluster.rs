//! The same tests on a cluster of real processes.

#[path = "../../../bindings/c/tests/cluster/mod.rs"]
mod processes;

use crate::plain::{found, said};
use processes::Cluster;

#[test]
fn a_cluster_and_plain_files_give_the_same_and_hints_spare_calls() {
    let cluster = Cluster::up();
    let files = format!("weir:{}", cluster.credential().display());
    let dir = tempfile::tempdir().unwrap();
    let make = ["generate", "customers", "records", "--count", "700"];
    said(dir.path(), &make);
    said(dir.path(), &[&make[..], &["--files", &files]].concat());
    let run = |more: &[&str]| {
        let run = ["run", "records", "customers", "--readers", "2", "--json"];
        let mut found = found(dir.path(), &[&run[..], more].concat());
        let counts = ["linked", "right", "profiles", "households"].map(|key| found[key].take());
        (counts, found["calls"].as_u64())
    };
    let plain = run(&[]);
    assert_eq!(run(&["--files", &files]), plain);
    let (counts, calls) = run(&["--files", &files, "--hinted"]);
    assert_eq!(counts, plain.0);
    assert!(calls < plain.1.map(|calls| calls / 100), "{calls:?}");
}
