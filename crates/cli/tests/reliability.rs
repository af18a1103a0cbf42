//! `weir reliability`: the paper's rows, comparisons, and what it refuses.

use crate::harness::Place;
use serde_json::Value;

fn json(place: &Place, arguments: &[&str]) -> Value {
    serde_json::from_str(&place.weir(arguments).ok()).unwrap()
}

/// A figure of each row.
fn column(answer: &Value, name: &str) -> Vec<f64> {
    answer["rows"].as_array().unwrap().iter().map(|row| row[name].as_f64().unwrap()).collect()
}

#[test]
fn the_papers_rows_are_printed_beside_ours() {
    let place = Place::new();
    let text = place.weir(&["reliability", "--paper"]).ok();
    for row in [
        ["8+8", "0.918", "0.91", "0.9977", "38.9"],
        ["16+16", "0.849", "0.85", "0.9972", "64.0"],
        ["32+32", "0.739", "0.73", "0.9963", "95.0"],
    ] {
        let line = text.lines().find(|line| line.starts_with(row[0])).unwrap();
        assert!(row.iter().all(|cell| line.contains(cell)), "{line}");
    }
    let answer = json(&place, &["reliability", "--paper", "--json"]);
    let factors: Vec<String> =
        column(&answer, "factor").iter().map(|factor| format!("{factor:.1}")).collect();
    assert_eq!(factors, ["38.9", "64.0", "95.0"]);
    let lasts: Vec<f64> = answer["by_duplication_time"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["ceft_mttdl_hours"].as_f64().unwrap())
        .collect();
    assert!(lasts.windows(2).all(|pair| pair[0] > pair[1]), "{lasts:?}");
}

#[test]
fn without_arguments_layouts_are_compared() {
    let place = Place::new();
    let text = place.weir(&["reliability"]).ok();
    for said in [
        "12 nodes",
        "striped",
        "mirrored",
        "chained",
        "random",
        "8+2",
        "raid5-mirror:8",
        "112.5%",
        "--help",
    ] {
        assert!(text.contains(said), "{text}");
    }
    let few = place.weir(&["reliability", "--nodes", "4"]).ok();
    assert!(few.contains("left out: random 8+2 needs at least 10 nodes"), "{few}");
}

#[test]
fn lists_are_combined_and_faster_rebuilds_last_longer() {
    let place = Place::new();
    let asked = "reliability --layout mirrored,random --copies 2,3 --rebuild 50MB/s,200MB/s \
                 --protocol server-sync,client-async --mttf 1000000h --mission 10y --json";
    let answer = json(&place, &asked.split_whitespace().collect::<Vec<_>>());
    let (lasts, risks) = (column(&answer, "mttdl_years"), column(&answer, "bytes_at_risk"));
    assert_eq!(lasts.len(), 16);
    let synchronous = |rows: &[f64]| rows[1] > rows[0];
    assert!(lasts.chunks(4).all(synchronous), "{lasts:?}");
    for (lasts, risks) in lasts.chunks(4).zip(risks.chunks(4)) {
        let [synchronous, asynchronous] = [0, 2].map(|i| (lasts[i], risks[i]));
        assert!(synchronous.0 > asynchronous.0, "{lasts:?}");
        assert!(synchronous.1 == 0.0 && asynchronous.1 > 0.0, "{risks:?}");
    }
    assert_eq!(answer["mission_hours"], 87_600.0);
}

#[test]
fn what_cannot_be_computed_is_refused_with_a_way_out() {
    let place = Place::new();
    for (arguments, said) in [
        ("--layout mirrored --code 8+2", ["--code", "--layout striped,random"]),
        ("--layout striped --copies 3", ["--copies", "--layout mirrored,chained,random"]),
        ("--layout striped --protocol server-async", ["--protocol", "--copies 2"]),
        ("--layout random --code 20+2", ["22 nodes", "--nodes 22"]),
        ("--copies 2 --protocol server-async --duplicate-in 2s", ["duplicated", "--write-every"]),
        ("--layout striped --code raid5-mirror --nodes 5", ["6 nodes", "--nodes 6"]),
        ("--nodes 0", ["number of nodes", "from 1"]),
    ] {
        let arguments: Vec<&str> =
            std::iter::once("reliability").chain(arguments.split(' ')).collect();
        place.weir(&arguments).fails(&said);
    }
    for wrong in ["--mttf 5", "--afr 4", "--code 8", "--paper --nodes 3", "--paper --mission 1y"] {
        let arguments: Vec<&str> = std::iter::once("reliability").chain(wrong.split(' ')).collect();
        assert_eq!(place.weir(&arguments).code, Some(2), "{wrong}");
    }
}
