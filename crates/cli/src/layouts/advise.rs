//! `weir advise`: the layout that fits how a file is read.

use crate::args::Advise;
use crate::failure::{Done, Failure};
use crate::layouts::trial::{self, Measured, Trial};
use crate::layouts::whereabouts::{Finder, Found};
use crate::output::{print, print_json};
use crate::text::human_size;
use serde_json::json;
use weir_layout::advice::{
    Advice, Limit, Machines, Order, Prediction, Stripes, WORTH, Workload, advise, predict,
};
use weir_layout::place::stripe_unit;
use weir_types::{FileKind, LayoutKind, LayoutSpec};
use weir_wire::Rights;

/// The bytes of a file in which records are looked for.
const LOOK_BYTES: usize = 1 << 20;
/// The longest record that is looked for.
const MAX_RECORD_BYTES: usize = LOOK_BYTES / 4;
/// Seconds by which one more request makes a call longer, if that is not measured: 40 microseconds of
/// work in all (`docs/performance.md`, Pieces), on machines that do something else as well.
const REQUEST_S: f64 = 100e-6;
/// The longest call.
const MAX_CALL_BYTES: u64 = 1 << 30;

/// Runs `weir advise`.
pub fn run(asked: &Advise) -> Done {
    let found = Finder::new(&asked.client, "advise").find(&asked.path)?;
    let attr = found.attr()?;
    let record = match (asked.record, attr.kind) {
        (Some(record), _) if record.0 > 0 => record.0,
        (Some(_), _) => return Err(Failure::new("--record 0: a record has at least one byte")),
        (None, FileKind::File) => record_of(&found)?,
        (None, _) => {
            return Err(Failure::new("no record size is given")
                .about(&found.named)
                .hint("give --record SIZE, or name a file whose lines are of equal length"));
        }
    };
    let call_bytes = record
        .checked_mul(u64::from(asked.records))
        .filter(|&bytes| bytes <= MAX_CALL_BYTES)
        .ok_or_else(|| Failure::new("--record times --records: a call has at most 1 GiB"))?;
    let map = found.tree.client.cluster_map().map_err(found.tree.about(&found.path))?;
    let online = u16::try_from(map.targets().count()).unwrap_or(u16::MAX);
    let targets = asked.targets.unwrap_or(online);
    if targets == 0 || targets > online {
        return Err(Failure::new(format!("--targets {targets}: the cluster has {online}")));
    }
    let trial = Trial::new(&found, attr.kind)?;
    if asked.try_it {
        trial::check(asked.readers, call_bytes, asked.size.0)?;
    }
    let machines = machines(asked, &trial, targets)?;
    let order = if asked.random { Order::Random } else { Order::Sequential };
    let workload = Workload { call_bytes, readers: asked.readers, order };
    let spec = found.tree.client.default_layout(&found.tree.context, trial.directory());
    let spec = spec.map_err(found.tree.about(&found.path))?;
    let mut advice = advise(workload, machines, current(&found, &spec, online)?);
    let copies = Copies::of(spec.copies, targets);
    let mut measured = Vec::new();
    if asked.try_it {
        let layouts = if advice.stripes == advice.current {
            vec![advice.stripes]
        } else {
            vec![advice.current, advice.stripes]
        };
        for stripes in layouts {
            measured.push((stripes, trial.run(workload, stripes, asked.size.0, asked.no_cache)?));
        }
        // What was measured counts more than what was predicted.
        if let [(_, now), (_, advised)] = measured[..]
            && advised < now
        {
            let (stripes, prediction) = (advice.current, advice.current_prediction);
            advice = Advice { stripes, prediction, ..advice };
        }
    }
    match asked.json {
        true => {
            let json = as_json(&found, record, workload, machines, (&advice, &copies), &measured);
            print_json(&json)
        }
        false => {
            let advice = (&advice, &copies);
            print(&as_text(asked, &found, record, workload, machines, advice, &measured))
        }
    }
}

/// Why files that several read are striped.
const STRIPED: &str =
    "each reader uses all targets; --layout chunked is for jobs that run where blocks are";

/// The number of copies that is advised.
struct Copies {
    now: u8,
    advice: u8,
    reason: &'static str,
}

impl Copies {
    fn of(now: u8, targets: u16) -> Self {
        let now = now.max(1);
        let (advice, reason) = match (now, targets) {
            (1, 1) => (1, "the cluster has one target, and copies take two"),
            (1, _) => (2, "one is lost with its disk, and readers wait for a disk that is slow"),
            _ => (now, "readers go on without a disk that is lost, and past one that is slow"),
        };
        Self { now, advice, reason }
    }
}

/// The stripes of a new file in the directory of the path, in a cluster of so many targets.
fn current(found: &Found, spec: &LayoutSpec, targets: u16) -> Done<Stripes> {
    if spec.kind != LayoutKind::Striped {
        return Err(Failure::new("new files here are not striped, so there is nothing to advise")
            .about(&found.named)
            .hint("docs/jobs.md says which layout is for what"));
    }
    let unit_bytes = u64::from(stripe_unit(spec));
    let count = match spec.count {
        0 => targets,
        count => count.min(targets),
    };
    Ok(Stripes { unit_bytes, count })
}

/// The distance of the ends of lines at the beginning of a file, if it is always the same.
fn record_of(found: &Found) -> Done<u64> {
    let (client, context) = (&found.tree.client, &found.tree.context);
    let about = found.tree.about(&found.path);
    let attr = found.attr()?;
    let (file, _) = client.open(context, attr.file, Rights::READ).map_err(&about)?;
    let mut bytes = vec![0; LOOK_BYTES];
    let len = file.read_at(context, 0, &mut bytes).map_err(&about)?;
    file.close(context).map_err(&about)?;
    record_length(&bytes[..len]).ok_or_else(|| {
        Failure::new("its lines are not of equal length, so the record size is not known")
            .about(&found.named)
            .hint("say --record SIZE")
    })
}

fn record_length(bytes: &[u8]) -> Option<u64> {
    let record = bytes.iter().take(MAX_RECORD_BYTES).position(|&byte| byte == b'\n')? + 1;
    let whole = |line: &[u8]| line.iter().position(|&byte| byte == b'\n') == Some(record - 1);
    let lines = bytes.chunks_exact(record);
    // A single line says nothing.
    (lines.len() > 1 && bytes.chunks_exact(record).all(whole)).then_some(record as u64)
}

fn machines(asked: &Advise, trial: &Trial, targets: u16) -> Done<Machines> {
    let given = (asked.link, asked.disk, asked.round_trip);
    let measured = match given {
        (Some(_), Some(_), Some(_)) => Measured::default(),
        _ => trial.measure()?,
    };
    let speed = |size: crate::text::ByteSize| size.0 as f64;
    Ok(Machines {
        targets,
        link_bytes_per_s: asked.link.map_or(measured.link_bytes_per_s, speed),
        disk_bytes_per_s: asked.disk.map_or(measured.disk_bytes_per_s, speed),
        seek_s: asked.seek / 1e3,
        round_trip_s: asked.round_trip.map_or(measured.round_trip_s, |ms| ms / 1e3),
        request_s: measured.request_s.unwrap_or(REQUEST_S),
        read_ahead_bytes: if asked.no_cache { 0 } else { trial.read_ahead_bytes() },
    })
}

fn reason(workload: Workload, stripes: Stripes, prediction: Prediction) -> String {
    let calls = match workload.order {
        Order::Random => format!("a call of {}", human_size(workload.call_bytes)),
        Order::Sequential => "a piece of read-ahead".to_owned(),
    };
    let limit = match prediction.limit {
        Limit::Latency => "each reader waits for one call before the next",
        Limit::ReaderLinks => "the links of the readers are full",
        Limit::ServerLinks => "the links of the servers are full",
        Limit::Disks => "the disks are busy",
    };
    format!("{calls} uses {:.1} of {} targets; {limit}", prediction.servers_per_call, stripes.count)
}

fn rate(bytes_per_s: f64) -> String {
    format!("{}/s", human_size(bytes_per_s as u64))
}

fn flags(stripes: Stripes) -> String {
    format!("--unit {} --count {}", exact(stripes.unit_bytes), stripes.count)
}

/// A multiple of 4 KiB as `--unit` takes it.
fn exact(bytes: u64) -> String {
    match bytes.is_multiple_of(1 << 20) {
        true => format!("{}M", bytes >> 20),
        false => format!("{}K", bytes >> 10),
    }
}

/// A rate that was measured is that of servers that have the file in memory.
fn measured_or_given(given: bool) -> &'static str {
    if given { "" } else { " (from the memory of servers)" }
}

fn as_text(
    asked: &Advise,
    found: &Found,
    record: u64,
    workload: Workload,
    machines: Machines,
    (advice, copies): (&Advice, &Copies),
    measured: &[(Stripes, f64)],
) -> String {
    let order = match workload.order {
        Order::Random => "at random",
        Order::Sequential => "from front to back",
    };
    let mut text = format!(
        "workload   {} readers, {} a call ({} records of {record} bytes), {order}\n\
         machines   {} targets, link{} {}, disk{} {}, seek {:.1} ms, round trip {:.3} ms\n\
         now        {:<24} {:>10}  {}\n",
        workload.readers,
        human_size(workload.call_bytes),
        workload.call_bytes / record,
        machines.targets,
        measured_or_given(asked.link.is_some()),
        rate(machines.link_bytes_per_s),
        measured_or_given(asked.disk.is_some()),
        rate(machines.disk_bytes_per_s),
        machines.seek_s * 1e3,
        machines.round_trip_s * 1e3,
        flags(advice.current),
        rate(advice.current_prediction.bytes_per_s),
        reason(workload, advice.current, advice.current_prediction),
    );
    let is_as_now = advice.stripes == advice.current;
    if is_as_now {
        text += &match measured {
            [_, _] => {
                "advice     as it is: the other layout was measured to be slower\n".to_owned()
            }
            _ => format!(
                "advice     as it is: no other layout is predicted to be {:.0} % faster\n",
                (WORTH - 1.0) * 100.0
            ),
        };
    } else {
        text += &format!(
            "advice     {:<24} {:>10}  {}\n",
            flags(advice.stripes),
            rate(advice.prediction.bytes_per_s),
            reason(workload, advice.stripes, advice.prediction),
        );
    }
    text += &format!("layout     striped: {STRIPED}\n");
    text += &format!("copies     {}: {}\n", copies.advice, copies.reason);
    for (stripes, bytes_per_s) in measured {
        text += &format!("measured   {:<24} {:>10}\n", flags(*stripes), rate(*bytes_per_s));
    }
    let mut wanted = Vec::new();
    if !is_as_now {
        wanted.push(flags(advice.stripes));
    }
    if copies.advice != copies.now {
        wanted.push(format!("--copies {}", copies.advice));
    }
    if !wanted.is_empty() {
        let is_dir = found.attr().is_ok_and(|attr| attr.kind == FileKind::Directory);
        let (what, command, path) = match is_dir {
            true => ("for what is made in it", "setlayout", found.named.as_str()),
            false => ("for a new file, to copy this one to", "mkfile", "NEW"),
        };
        text += &format!("Apply {what}: weir {command} {path} {}\n", wanted.join(" "));
    }
    text
}

fn as_json(
    found: &Found,
    record: u64,
    workload: Workload,
    machines: Machines,
    (advice, copies): (&Advice, &Copies),
    measured: &[(Stripes, f64)],
) -> serde_json::Value {
    let layout = |stripes: Stripes| {
        let prediction = predict(workload, machines, stripes);
        let measured = measured.iter().find(|(of, _)| *of == stripes).map(|(_, rate)| *rate);
        json!({
            "stripe_unit_bytes": stripes.unit_bytes,
            "count": stripes.count,
            "predicted_bytes_per_s": prediction.bytes_per_s,
            "measured_bytes_per_s": measured,
            "targets_per_call": prediction.servers_per_call,
            "reason": reason(workload, stripes, prediction),
        })
    };
    json!({
        "path": found.named,
        "record_bytes": record,
        "call_bytes": workload.call_bytes,
        "readers": workload.readers,
        "random": workload.order == Order::Random,
        "machines": {
            "targets": machines.targets,
            "link_bytes_per_s": machines.link_bytes_per_s,
            "disk_bytes_per_s": machines.disk_bytes_per_s,
            "seek_s": machines.seek_s,
            "round_trip_s": machines.round_trip_s,
            "request_s": machines.request_s,
        },
        "now": layout(advice.current),
        "advice": layout(advice.stripes),
        "layout": "striped",
        "copies": { "now": copies.now, "advice": copies.advice, "reason": copies.reason },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_lines_of_one_length() {
        let lines = |lengths: &[usize]| -> Vec<u8> {
            lengths.iter().flat_map(|&n| [vec![b'x'; n - 1], vec![b'\n']].concat()).collect()
        };
        assert_eq!(record_length(&lines(&[838; 5])), Some(838));
        let cut = lines(&[838; 5]);
        assert_eq!(record_length(&cut[..838 * 4 + 17]), Some(838), "the last may be cut");
        assert_eq!(record_length(&lines(&[10, 10, 11, 10])), None);
        assert_eq!(record_length(&lines(&[10])), None, "one line tells nothing");
        assert_eq!(record_length(b"no line"), None);
        assert_eq!(record_length(b""), None);
    }

    #[test]
    fn stripe_units_are_written_as_they_are_read() {
        for bytes in [4 << 10, 40 << 10, 64 << 10, 1 << 20, 4 << 20, (1 << 20) + (4 << 10)] {
            let parsed = crate::text::parse_size(&exact(bytes)).unwrap();
            assert_eq!(parsed.0, bytes);
        }
    }
}
