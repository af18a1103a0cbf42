//! Prints the rows as a table or as JSON.

use super::arguments::{Protocol, Reliability};
use super::rows::{Row, Rows};
use super::units::{available, duration, lifetime, probability};
use crate::failure::Done;
use crate::output::{print, print_json};
use crate::text::{ByteSize, Table, human_size};
use serde_json::json;
use weir_reliability::HOURS_PER_YEAR;

/// Prints the rows.
pub fn show(asked: &Reliability, answer: &Rows) -> Done {
    if asked.json {
        return print_json(&as_json(asked, answer));
    }
    let mut text = about(asked);
    text.push('\n');
    text.push_str(&table(asked, &answer.rows).render());
    for left_out in &answer.left_out {
        text.push_str(&format!("left out: {left_out}\n"));
    }
    if answer.rows.iter().any(|row| row.figures.pending > 0.0) {
        text.push_str(&format!(
            "\nAT RISK is what is acknowledged and on one disk only, on average, writing {} to each \
             primary disk every {}; the last copy is {} late. MTTDL counts its loss too.\n",
            decimal(asked.write_size.0 as f64),
            duration(asked.write_every),
            duration(asked.duplicate_in),
        ));
    }
    if asked.layout.is_empty() && asked.copies.is_empty() && asked.code.is_empty() {
        text.push_str(
            "\nOther clusters, layouts, protocols and rebuild speeds: weir reliability --help\n",
        );
    }
    print(&text)
}

/// The assumptions as text.
fn about(asked: &Reliability) -> String {
    let disks = match asked.mttf {
        Some(hours) => format!("MTTF {}", lifetime(hours)),
        None => {
            format!("AFR {:.3}", asked.afr * 100.0)
                .trim_end_matches('0')
                .trim_end_matches('.')
                .to_owned()
                + "%"
        }
    };
    let speed = match &asked.rebuild[..] {
        [one] => format!(", rebuilt at {}/s each", decimal(one.0 as f64)),
        _ => String::new(),
    };
    format!(
        "{} nodes of {} disks of {}, {disks}; failures detected in {}{speed}; a node stops every {} \
         for {}; mission {}
",
        asked.nodes,
        asked.disks_per_node,
        decimal(asked.capacity.0 as f64),
        duration(asked.detect),
        duration(asked.node_mttf),
        duration(asked.node_repair),
        duration(asked.mission),
    )
}

/// Formats a size with powers of 1000. A multiple of 1024 that is not a multiple of 1000 gets
/// powers of 1024.
fn decimal(bytes: f64) -> String {
    if bytes >= 1024.0 && bytes % 1024.0 == 0.0 && bytes % 1000.0 != 0.0 {
        return human_size(bytes as u64);
    }
    let (mut value, mut unit) = (bytes, "B");
    for next in ["kB", "MB", "GB", "TB", "PB", "EB"] {
        if value < 1000.0 {
            break;
        }
        (value, unit) = (value / 1000.0, next);
    }
    if value < 9.95 && value.fract() != 0.0 {
        format!("{value:.1}{unit}")
    } else {
        format!("{value:.0}{unit}")
    }
}

fn table(asked: &Reliability, rows: &[Row]) -> Table {
    let protocols = !asked.protocol.is_empty();
    let speeds = asked.rebuild.len() > 1;
    let pending = rows.iter().any(|row| row.figures.pending > 0.0);
    let mut titles = vec!["LAYOUT", "KEPT AS"];
    titles.extend(protocols.then_some("PROTOCOL"));
    titles.extend(speeds.then_some(">SPEED"));
    titles.extend([
        ">OVERHEAD",
        ">USABLE",
        ">REBUILT IN",
        ">MTTDL",
        ">LOSS IN MISSION",
        ">AVAILABLE",
    ]);
    titles.extend(pending.then_some(">AT RISK"));
    let mut table = Table::new(&titles);
    for row in rows {
        let figures = &row.figures;
        let mut cells = vec![row.scheme.layout.to_string(), row.scheme.redundancy.to_string()];
        let protocol = row.protocol.map_or("-", Protocol::name).to_owned();
        cells.extend(protocols.then_some(protocol));
        cells.extend(speeds.then(|| format!("{}/s", decimal(row.rebuild.0 as f64))));
        let rebuilt = match row.scheme.redundancy.spare() {
            0 => "never".to_owned(),
            _ => duration(figures.rebuild_hours),
        };
        cells.extend([
            format!("{}%", (row.scheme.redundancy.overhead() * 1000.0).round() / 10.0),
            format!("{:.0}%", figures.usable * 100.0),
            rebuilt,
            lifetime(figures.mttdl_hours),
            probability(figures.loss_probability),
            available(figures.unavailability),
        ]);
        let at_risk = row.protocol.map_or("-".to_owned(), |_| decimal(figures.bytes_at_risk));
        cells.extend(pending.then_some(at_risk));
        table.row(cells);
    }
    table
}

fn as_json(asked: &Reliability, answer: &Rows) -> serde_json::Value {
    let cluster = |rebuild: ByteSize| {
        let cluster = asked.cluster(rebuild);
        json!({
            "nodes": cluster.nodes,
            "disks_per_node": cluster.disks_per_node,
            "disk_mttf_hours": cluster.disk_mttf_hours,
            "node_mttf_hours": cluster.node_mttf_hours,
            "node_repair_hours": cluster.node_repair_hours,
            "disk_bytes": cluster.disk_bytes,
            "detect_hours": cluster.detect_hours,
            "segment_bytes": cluster.segment_bytes,
            "unreadable_per_bit": cluster.unreadable_per_bit,
        })
    };
    let row = |row: &Row| {
        let figures = &row.figures;
        json!({
            "layout": row.scheme.layout.to_string(),
            "redundancy": row.scheme.redundancy.to_string(),
            "width": row.scheme.redundancy.width(),
            "may_lose": row.scheme.redundancy.spare(),
            "protocol": row.protocol.map(Protocol::name),
            "rebuild_bytes_per_s": row.rebuild.0,
            "overhead": row.scheme.redundancy.overhead(),
            "usable": figures.usable,
            "rebuild_hours": figures.rebuild_hours,
            "mttdl_hours": figures.mttdl_hours,
            "mttdl_years": figures.mttdl_hours / HOURS_PER_YEAR,
            "loss_probability": figures.loss_probability,
            "unavailability": figures.unavailability,
            "availability": 1.0 - figures.unavailability,
            "pending_probability": figures.pending,
            "bytes_at_risk": figures.bytes_at_risk,
            "bytes_lost_per_year": figures.bytes_lost_per_year,
        })
    };
    json!({
        "cluster": asked.rebuild.first().copied().map(cluster),
        "mission_hours": asked.mission,
        "rows": answer.rows.iter().map(row).collect::<Vec<_>>(),
        "left_out": answer.left_out,
    })
}
