//! `weir layout`: shows where the bytes of a file are.

use crate::args::Layout;
use crate::cluster::daemon::data_name;
use crate::cluster::targets::domain_of;
use crate::failure::{Done, Failures};
use crate::layouts::spec::{
    describe, duplication_name, family_name, parities_name, placement_name, text,
};
use crate::layouts::whereabouts::{Finder, Found};
use crate::output::{print, print_json};
use crate::text::{Table, human_size};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt::Write as _;
use weir_client::core::plan::objects;
use weir_types::{ErrorKind, FileKind, FileLayout, LayoutKind, ObjectId, Segment, TargetId};
use weir_wire::Rights;
use weir_wire::map::{ClusterMap, TargetState};

/// The longest to wait, in milliseconds, for a server's answer about its directories.
const STATUS_TIMEOUT_MS: u64 = 2_000;

/// Runs `weir layout`.
pub fn run(layout: &Layout) -> Done {
    let mut finder = Finder::new(&layout.client, "layout");
    let mut failures = Failures::default();
    let mut all = Vec::new();
    for (i, path) in layout.paths.iter().enumerate() {
        let shown = finder.find(path).and_then(|found| show(&found, layout.json));
        if let Some((value, text)) = failures.keep(shown) {
            all.push(value);
            if !layout.json {
                print(&format!("{}{text}", if i > 0 { "\n" } else { "" }))?;
            }
        }
    }
    if layout.json {
        print_json(&all)?;
    }
    failures.end()
}

/// Describes one file or directory. Makes either JSON or text.
fn show(found: &Found, json: bool) -> Done<(Value, String)> {
    let tree = &found.tree;
    let attr = found.attr()?;
    if attr.kind == FileKind::Directory {
        let spec = tree.client.default_layout(&tree.context, attr.file);
        let spec = spec.map_err(tree.about(&found.path))?;
        let value = json!({ "path": found.named, "default": describe(&spec) });
        return Ok((value, format!("{}: new files: {}\n", found.named, text(&spec))));
    }
    if attr.kind != FileKind::File {
        return Err(tree.about(&found.path)(ErrorKind::InvalidArgument.into()));
    }
    let (file, attr) = tree.open_file(&found.path, Rights::READ)?;
    let layout = file.layout();
    let map = tree.client.cluster_map().map_err(tree.about(&found.path))?;
    let objects = objects(attr.file, &layout, attr.size);
    let places = Places::new(found, map);
    Ok(match json {
        true => (value_of(found, &layout, attr.size, &objects, &places), String::new()),
        false => (Value::Null, text_of(found, &layout, attr.size, &objects, &places)),
    })
}

/// The server and directory of each target.
struct Places {
    map: ClusterMap,
    directories: HashMap<TargetId, String>,
}

impl Places {
    fn new(found: &Found, map: ClusterMap) -> Self {
        let mut directories = HashMap::new();
        for server in &map.servers {
            // The directories of a server that does not answer stay unknown.
            let first = server.targets.first().map(|t| t.target);
            let status =
                first.and_then(|t| found.tree.client.data_status(t, STATUS_TIMEOUT_MS).ok());
            for target in status.into_iter().flat_map(|s| s.targets) {
                directories.insert(target.target, target.dir);
            }
        }
        Self { map, directories }
    }

    fn server(&self, target: TargetId) -> String {
        match self.map.server_of(target) {
            Some(server) => format!("{} ({})", data_name(server.server.0), server.tcp),
            None => "?".to_owned(),
        }
    }

    fn state(&self, target: TargetId) -> Option<TargetState> {
        let mut all = self.map.targets();
        all.find(|(_, entry)| entry.target == target).map(|(_, entry)| entry.state)
    }

    fn directory(&self, target: TargetId) -> &str {
        self.directories.get(&target).map_or("?", String::as_str)
    }
}

/// The number of copies of each column of a file.
fn copies_of(layout: &FileLayout) -> usize {
    let columns = layout.segments.iter().filter_map(|segment| segment.columns.first());
    columns.map(|column| column.copies().count()).max().unwrap_or(1)
}

/// Whether a copy is usable now.
fn state_of(
    segment: Option<&Segment>,
    object: &ObjectId,
    target: TargetId,
    places: &Places,
) -> &'static str {
    if segment.is_some_and(|segment| segment.is_filling(object.column, object.copy)) {
        return "filling";
    }
    match places.state(target) {
        None => "gone",
        Some(TargetState::Online) => "online",
        Some(TargetState::Offline) => "offline",
        Some(TargetState::OutOfService) => "out of service",
        Some(TargetState::Syncing) => "syncing",
        Some(TargetState::Suspect) => "suspect",
    }
}

fn text_of(
    found: &Found,
    layout: &FileLayout,
    size: u64,
    objects: &[(ObjectId, TargetId, u64)],
    places: &Places,
) -> String {
    let mut out = format!("{}: {size} bytes, {}", found.named, family_name(layout.kind));
    // Writing to a String cannot fail.
    if let (LayoutKind::Striped, Some(segment)) = (layout.kind, layout.segments.first()) {
        let unit = human_size(u64::from(segment.stripe_unit_bytes));
        let _ = write!(out, ", base {}, count {}, unit {unit}", layout.base, segment.columns.len());
    }
    let copies = copies_of(layout);
    if copies > 1 {
        let (protocol, placement) =
            (duplication_name(layout.duplication), placement_name(layout.placement));
        let _ = write!(out, ", {copies} copies, {protocol}, {placement}");
    }
    if let Some(segment) = layout.segments.first().filter(|s| !s.parities.is_empty()) {
        let name = parities_name(segment.parities.len());
        let _ = write!(out, ", {name}{}", if segment.is_coded() { "" } else { " being made" });
    }
    let _ = writeln!(out, ", {} segment(s), epoch {}", layout.segments.len(), layout.epoch);
    let titles = [
        "SEGMENT",
        ">START",
        ">LENGTH",
        ">COLUMN",
        ">COPY",
        "STATE",
        ">TARGET",
        ">BYTES",
        "SERVER",
        "DIRECTORY",
    ];
    let mut table = Table::new(&titles);
    for (object, target, bytes) in objects {
        let segment = layout.segments.iter().find(|s| s.index == object.segment);
        let length = segment.and_then(|s| s.len).map_or("open".to_owned(), |len| len.to_string());
        table.row(vec![
            object.segment.to_string(),
            segment.map_or(0, |s| s.start).to_string(),
            length,
            object.column.to_string(),
            object.copy.to_string(),
            state_of(segment, object, *target, places).to_owned(),
            target.to_string(),
            bytes.to_string(),
            places.server(*target),
            places.directory(*target).to_owned(),
        ]);
    }
    out + &table.render()
}

fn value_of(
    found: &Found,
    layout: &FileLayout,
    size: u64,
    objects: &[(ObjectId, TargetId, u64)],
    places: &Places,
) -> Value {
    let segments: Vec<Value> = layout
        .segments
        .iter()
        .map(|segment| {
            let objects: Vec<Value> = objects
                .iter()
                .filter(|(object, ..)| object.segment == segment.index)
                .map(|(object, target, bytes)| {
                    let server = places.map.server_of(*target);
                    json!({
                        "object": object.to_string(),
                        "column": object.column.0,
                        "copy": object.copy.0,
                        "state": state_of(Some(segment), object, *target, places),
                        "target": target.0,
                        "bytes": bytes,
                        "server": server.map(|s| s.server.0),
                        "server_name": server.map(|s| data_name(s.server.0)),
                        "host": server.map(|s| s.host.as_str()),
                        "domain": server.and_then(|s| domain_of(&s.domain)),
                        "address": server.map(|s| s.tcp.as_str()),
                        "directory": places.directories.get(target),
                    })
                })
                .collect();
            json!({
                "index": segment.index.0,
                "start": segment.start,
                "length": segment.len,
                "stripe_unit_bytes": segment.stripe_unit_bytes,
                "count": segment.columns.len(),
                "parities": segment.parities.len(),
                "coded": segment.is_coded(),
                "epoch": segment.epoch.0,
                "objects": objects,
            })
        })
        .collect();
    json!({
        "path": found.named,
        "size": size,
        "layout": family_name(layout.kind),
        "base": layout.base,
        "count": layout.segments.first().map(|s| s.columns.len()),
        "stripe_unit_bytes": layout.segments.first().map(|s| s.stripe_unit_bytes),
        "copies": copies_of(layout),
        "duplication": duplication_name(layout.duplication),
        "placement": placement_name(layout.placement),
        "epoch": layout.epoch.0,
        "segments": segments,
    })
}
