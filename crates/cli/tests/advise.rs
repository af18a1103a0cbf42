//! `weir advise`: the layout that fits how a file is read.

use crate::harness::{Cluster, Place};
use serde_json::Value;

fn machines() -> [&'static str; 6] {
    ["--link", "125MB/s", "--disk", "150MB/s", "--round-trip", "0.2"]
}

fn advice(cluster: &Cluster<'_>, path: &str, more: &[&str]) -> Value {
    let mut arguments = vec!["advise", path, "--json"];
    arguments.extend(more);
    cluster.weir(&arguments).json()
}

#[test]
fn the_advice_follows_from_what_is_read_and_from_the_machines() {
    let place = Place::new();
    let cluster = place.up("advise", &["--targets", "4"]);
    cluster.weir(&["mkdir", "weir:/d"]).ok();
    cluster.weir(&["setlayout", "weir:/d", "--unit", "8K"]).ok();
    let of = |more: &[&str]| advice(&cluster, "weir:/d", &[&machines(), more].concat());

    let long = of(&["--record", "838", "--records", "350", "--random", "--no-cache"]);
    assert_eq!(long["now"]["stripe_unit_bytes"], 8192);
    assert_eq!(long["call_bytes"], 838 * 350);
    assert_eq!(long["machines"]["link_bytes_per_s"], 125e6);
    assert_eq!(long["machines"]["disk_bytes_per_s"], 150e6);
    assert_eq!(long["machines"]["round_trip_s"], 0.2e-3);
    let rate = |of: &Value| of["predicted_bytes_per_s"].as_f64().unwrap();
    assert!(rate(&long["advice"]) >= rate(&long["now"]));

    // Two stripes of 8 KiB are two requests; a call of 16 KiB from disks with heads shares none.
    let heads = of(&["--record", "16K", "--readers", "64", "--random", "--seek", "8"]);
    assert_eq!(heads["readers"], 64);
    assert_eq!(heads["machines"]["seek_s"], 0.008);
    assert!(heads["now"]["targets_per_call"].as_f64().unwrap() > 2.0);
    assert!(heads["advice"]["targets_per_call"].as_f64().unwrap() < 1.2, "{heads}");
    assert!(rate(&heads["advice"]) > 1.5 * rate(&heads["now"]), "{heads}");

    // Read-ahead joins small calls; without it each waits for the one before.
    let ahead = of(&["--record", "838"]);
    let single = of(&["--record", "838", "--no-cache"]);
    assert!(rate(&ahead["now"]) > 5.0 * rate(&single["now"]));
    assert_eq!(of(&["--record", "1M", "--targets", "2"])["machines"]["targets"], 2);
    // A copy more, unless there are some.
    assert_eq!(ahead["copies"]["now"], 1);
    assert_eq!(ahead["copies"]["advice"], 2);
    assert_eq!(of(&["--record", "1M", "--targets", "1"])["copies"]["advice"], 1);
    let text = |path| {
        let asked = [&["advise", path, "--record", "1M"], &machines()[..]].concat();
        cluster.weir(&asked).ok()
    };
    let once = text("weir:/d");
    assert!(once.contains("\nlayout     striped: "), "{once}");
    assert!(once.contains("\ncopies     2: ") && once.contains(" --copies 2\n"), "{once}");
    cluster.weir(&["setlayout", "weir:/d", "--copies", "3"]).ok();
    let thrice = text("weir:/d");
    assert!(thrice.contains("\ncopies     3: ") && !thrice.contains("--copies"), "{thrice}");
    cluster
        .weir(&["advise", "weir:/d", "--record", "1M", "--targets", "5"])
        .fails(&["the cluster has 4"]);
}

#[test]
fn records_are_found_in_a_file_and_layouts_are_tried() {
    let place = Place::new();
    let cluster = place.up("advise", &["--targets", "4"]);
    cluster.weir(&["advise", "weir:/"]).fails(&["--record SIZE"]);
    let lines = place.path("lines");
    std::fs::write(&lines, format!("{:099}\n", 1).repeat(5000)).unwrap();
    cluster.weir(&["cp", lines.to_str().unwrap(), "weir:/lines"]).ok();
    cluster.weir(&["setlayout", "weir:/", "--unit", "4K"]).ok();
    let tried = ["--records", "200", "--readers", "2", "--random", "--try", "--size", "1M"];
    let found = advice(&cluster, "weir:/lines", &tried);
    assert_eq!(found["record_bytes"], 100);
    assert!(found["machines"]["round_trip_s"].as_f64().unwrap() > 0.0, "measured");
    assert!(found["now"]["measured_bytes_per_s"].as_f64().unwrap() > 0.0, "{found}");
    assert!(found["advice"]["measured_bytes_per_s"].as_f64().unwrap() > 0.0, "{found}");
    assert_eq!(cluster.weir(&["ls", "weir:/"]).ok().trim(), "lines", "what was made is gone");
    cluster
        .weir(&["advise", "weir:/", "--record", "2M", "--try", "--size", "1M"])
        .fails(&["smaller than one call"]);
}
