//! The dashboard for Grafana and the example for Prometheus: all that they ask for is documented.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Words of PromQL that dashboards and alerts use.
const WORDS: [&str; 17] = [
    "absent",
    "job",
    UP,
    "sum",
    "max",
    "count",
    "rate",
    "increase",
    "histogram_quantile",
    "by",
    "bool",
    "on",
    "group_left",
    "le",
    "__rate_interval",
    "instance",
    "or",
];

struct Metric {
    kind: String,
    labels: BTreeSet<String>,
}

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

/// The table rows of `docs/metrics.md`.
fn documented() -> BTreeMap<String, Metric> {
    let rows = read("docs/metrics.md");
    let rows = rows.lines().filter(|line| line.starts_with("| `"));
    let metric = |row: &str| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let labels = cells[3].split('`').skip(1).step_by(2).map(str::to_owned).collect();
        (cells[1].trim_matches('`').to_owned(), Metric { kind: cells[2].to_owned(), labels })
    };
    rows.map(metric).collect()
}

/// Names and the like in an expression: not what is in quotes, nor durations.
fn words(expression: &str) -> Vec<String> {
    let outside: String = expression.split('"').step_by(2).collect::<Vec<_>>().join(" ");
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = outside.split(|c: char| !is_of_word(c));
    let is_word = |word: &&str| word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    words.filter(is_word).map(str::to_owned).collect()
}

/// The metric that a name in an expression means.
fn meant<'a>(name: &str, all: &'a BTreeMap<String, Metric>) -> Option<&'a Metric> {
    let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|s| name.strip_suffix(s));
    match of_histogram.and_then(|family| all.get(family)) {
        Some(metric) if metric.kind == "histogram" => Some(metric),
        // A histogram has no values of its own.
        _ => all.get(name).filter(|metric| metric.kind != "histogram"),
    }
}

/// What Prometheus itself says of each process that it asks.
const UP: &str = "up";

/// What is wrong with an expression.
fn problem(expression: &str, all: &BTreeMap<String, Metric>) -> Option<String> {
    let words = words(expression);
    let metrics: Vec<&Metric> = words.iter().filter_map(|word| meant(word, all)).collect();
    if metrics.is_empty() && !words.iter().any(|word| word == UP) {
        return Some("it asks for no metric".to_owned());
    }
    let labels: BTreeSet<&String> = metrics.iter().flat_map(|metric| &metric.labels).collect();
    let known = |word: &String| {
        meant(word, all).is_some() || labels.contains(word) || WORDS.contains(&word.as_str())
    };
    let unknown = words.iter().find(|word| !known(word));
    let parts = [("(", ")"), ("[", "]"), ("{", "}")];
    let even = |(open, close): &(&str, &str)| {
        expression.matches(open).count() == expression.matches(close).count()
    };
    match unknown {
        Some(word) => Some(format!("{word} is neither a metric nor a label of these")),
        None if !parts.iter().all(even) => Some("its brackets do not fit".to_owned()),
        None => None,
    }
}

fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("expr").map(|expr| expr.as_str().unwrap().to_owned()));
            fields.values().for_each(|field| expressions(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

#[test]
fn the_dashboard_asks_for_what_is_documented_only() {
    let all = documented();
    let dashboard: Value = serde_json::from_str(&read("packaging/grafana/weir.json")).unwrap();
    let mut found = Vec::new();
    expressions(&dashboard, &mut found);
    assert!(found.len() > 50, "{}", found.len());
    for expression in &found {
        assert_eq!(problem(expression, &all), None, "{expression}");
    }
    let text = found.join("\n");
    for name in [
        "weir_target_read_bytes_total",
        "weir_target_slow",
        "weir_target_state",
        "weir_target_queued",
        "weir_copies_missing",
        "weir_mount_operation_duration_seconds_count",
    ] {
        assert!(text.contains(name), "no panel shows {name}");
    }
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has a number of its own");
}

#[test]
fn what_is_not_documented_is_noticed() {
    let all = documented();
    for wrong in [
        "rate(weir_target_red_bytes_total[5m])",
        "sum by (tarket) (weir_target_queued)",
        "weir_mount_operation_duration_seconds",
        "weir_target_queued_bucket",
        "sum(weir_target_queued",
        "down",
        "weir_target_queued{sever=\"1\"}",
    ] {
        assert!(problem(wrong, &all).is_some(), "{wrong}");
    }
    let right = "sum by (le) (rate(weir_mount_operation_duration_seconds_bucket{op=\"a_b\"}[5m]))";
    assert_eq!(problem(right, &all), None);
}

#[test]
fn alerts_in_the_example_ask_for_what_is_documented_only() {
    let all = documented();
    let operating = read("docs/operating.md");
    let alerts = operating.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    let alerts: Vec<&str> = alerts.collect();
    assert!(alerts.len() >= 4, "{alerts:?}");
    // What has died says nothing by itself.
    assert!(alerts.iter().any(|alert| words(alert)[0] == UP), "{alerts:?}");
    for expression in alerts {
        assert_eq!(problem(expression, &all), None, "{expression}");
    }
}
