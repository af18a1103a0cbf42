//! The conformance suite through the functions that C programs call.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod c_file;
mod cluster;

use c_file::{CFile, connect, done};
use cluster::Cluster;
use weir::fs::{weir_disconnect, weir_options_t};
use weir_conformance::{Random, layouts, run_suite};

#[test]
fn the_c_interface_keeps_every_layout() {
    let cluster = Cluster::up();
    let cached = weir_options_t::default();
    let uncached = weir_options_t {
        read_ahead_bytes: u64::MAX,
        write_behind_bytes: u64::MAX,
        ..weir_options_t::default()
    };
    for (options, seed) in [(cached, Random::seed_of_run()), (uncached, 7)] {
        let fs = connect(&cluster.credential(), &options);
        for (name, layout) in layouts() {
            let fresh = |check: &str| {
                let path = format!("/{name} {check}").replace(' ', "-");
                CFile::create(fs, &path, &layout).unwrap()
            };
            run_suite(fresh, seed).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        done(weir_disconnect(fs)).unwrap();
    }
}
