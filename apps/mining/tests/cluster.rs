//! The same tests on a cluster of real processes.

#[path = "../../../bindings/c/tests/cluster/mod.rs"]
mod processes;

use crate::plain::{complaint, found, said};
use processes::Cluster;
pub use processes::built;
use std::path::Path;

#[test]
fn a_cluster_and_plain_files_give_the_same() {
    let cluster = Cluster::up();
    let files = format!("weir:{}", cluster.credential().display());
    let dir = tempfile::tempdir().unwrap();
    let make = |at: &Path, more: &[&str]| {
        let size = ["generate", "sales", "--size", "6MB", "--items", "200", "--patterns", "60"];
        said(at, &[&size[..], more].concat())
    };
    let run = |more: &[&str]| {
        let run = ["run", "sales", "--support", "2%", "--confidence", "0.6", "--json"];
        found(dir.path(), &[&run[..], more].concat())
    };
    make(dir.path(), &[]);
    cluster.weir(&["setlayout", "weir:/", "--unit", "512K"]);
    make(dir.path(), &["--files", &files]);
    let (plain, weir) = (run(&[]), run(&["--files", &files, "--clients", "3"]));
    assert!(plain == weir && plain["passes"].as_array().unwrap().len() > 2);
    let absent = complaint(dir.path(), &["run", "absent", "--files", &files]);
    assert!(absent.contains("absent"), "{absent}");
    let elsewhere = complaint(dir.path(), &["run", "sales", "--files", "weir:/no/credential"]);
    assert!(elsewhere.contains("/no/credential"), "{elsewhere}");
}
