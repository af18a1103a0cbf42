//! `weir top`: shows what each disk does now, and which disk delays the others. On a terminal it is
//! a screen ([`screen`]), otherwise one page for each sample.

mod screen;

use crate::args::Top;
use crate::cluster::daemon::data_name;
use crate::cluster::targets::{machine_json, pace_of, state_of, what_is_wrong};
use crate::failure::Done;
use crate::files::remote::connect;
use crate::output::{print, print_json};
use crate::settings;
use crate::text::{Table, human_size};
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use weir_wire::targets::{MachineLoad, TargetView, TargetWork};

/// A disk delays the others if it takes this many times as long as the median.
const HOLDS_UP: f64 = 1.5;

/// Runs `weir top`.
pub fn run(top: &Top) -> Done {
    let cluster = settings::cluster(&top.client)?;
    let connection = connect(&cluster.credential()?, "top")?;
    let interval = Duration::from_secs_f64(top.interval);
    if !top.json && top.count.is_none() && std::io::stdout().is_terminal() {
        return screen::run(connection, interval);
    }
    let (mut before, mut at) = (connection.targets()?, Instant::now());
    for _ in 0..top.count.unwrap_or(u32::MAX) {
        std::thread::sleep(interval);
        let (views, now) = (connection.targets()?, Instant::now());
        let seconds = now.duration_since(at).as_secs_f64();
        let rows: Vec<Row<'_>> = views.iter().map(|view| Row::of(view, &before, seconds)).collect();
        match top.json {
            true => print_json(&rows.iter().map(Row::to_json).collect::<Vec<_>>())?,
            false => print(&page(&rows))?,
        }
        (before, at) = (views, now);
    }
    Ok(())
}

/// The work of a target since the last sample.
struct Row<'a> {
    view: &'a TargetView,
    read_per_s: u64,
    written_per_s: u64,
}

impl<'a> Row<'a> {
    fn of(view: &'a TargetView, before: &[TargetView], seconds: f64) -> Self {
        let was = before.iter().find(|other| other.target == view.target);
        // The counters of a restarted server begin at zero.
        let per_s = |of: fn(&TargetWork) -> u64| {
            let done = was.map_or(0, |was| of(&view.work).saturating_sub(of(&was.work)));
            (done as f64 / seconds) as u64
        };
        let (read_per_s, written_per_s) = (per_s(|w| w.read_bytes), per_s(|w| w.written_bytes));
        Self { view, read_per_s, written_per_s }
    }

    fn to_json(&self) -> Value {
        let TargetView { target, server, work, machine, slow, .. } = self.view;
        json!({
            "target": target.0,
            "server": server.0,
            "server_name": data_name(server.0),
            "read_bytes_per_s": self.read_per_s,
            "written_bytes_per_s": self.written_per_s,
            "queued": work.queued,
            "us_per_mib": work.us_per_mib,
            "machine": machine_json(machine),
            "slow": slow,
        })
    }
}

/// The columns. Titles of numbers begin with `>`, which aligns them right.
const TITLES: [&str; 10] = [
    ">TARGET", "SERVER", "STATE", ">READ/S", ">WRITE/S", ">QUEUE", ">MS/MIB", ">CPU%", ">NET/S",
    "TROUBLE",
];

impl Row<'_> {
    /// The cells of a row in the order of [`TITLES`].
    fn cells(&self) -> [String; 10] {
        let Self { view, read_per_s, written_per_s } = self;
        let MachineLoad { cpu_permille, received_bytes_per_s, sent_bytes_per_s } = view.machine;
        [
            view.target.to_string(),
            format!("{} ({})", data_name(view.server.0), view.host),
            state_of(view),
            human_size(*read_per_s),
            human_size(*written_per_s),
            view.work.queued.to_string(),
            pace_of(view.work.us_per_mib),
            format!("{:.0}", f64::from(cpu_permille) / 10.0),
            human_size(received_bytes_per_s.saturating_add(sent_bytes_per_s)),
            what_is_wrong(view),
        ]
    }
}

/// The bytes that all disks together read and write in a second.
fn sums(rows: &[Row<'_>]) -> String {
    let sum = |of: fn(&Row<'_>) -> u64| human_size(rows.iter().map(of).sum());
    let (read, written) = (sum(|row| row.read_per_s), sum(|row| row.written_per_s));
    format!("{read}/s read, {written}/s written")
}

fn page(rows: &[Row<'_>]) -> String {
    let views: Vec<&TargetView> = rows.iter().map(|row| row.view).collect();
    let held = held_up(&views).unwrap_or_else(|| "no disk holds the others up".to_owned());
    let mut table = Table::new(&TITLES);
    rows.iter().for_each(|row| table.row(row.cells().to_vec()));
    format!("{}; {held}\n{}", sums(rows), table.render())
}

/// Names the slowest disk if it has work and takes clearly longer than the median.
pub fn held_up(views: &[&TargetView]) -> Option<String> {
    let (slowest, times) = slowest(views)?;
    let (target, server) = (slowest.target, data_name(slowest.server.0));
    Some(format!(
        "target {target} ({server} on {}) holds the others up: it takes {times:.1} times as long as \
         the median",
        slowest.host
    ))
}

/// The slowest disk, and how many times as long as the median it takes: see [`held_up`].
fn slowest<'a>(views: &[&'a TargetView]) -> Option<(&'a TargetView, f64)> {
    let mut times: Vec<u32> =
        views.iter().map(|view| view.work.us_per_mib).filter(|us| *us > 0).collect();
    times.sort_unstable();
    let median = *times.get(times.len().checked_sub(1)? / 2)?;
    let slowest = *views.iter().max_by_key(|view| view.work.us_per_mib)?;
    let times = f64::from(slowest.work.us_per_mib) / f64::from(median);
    (times >= HOLDS_UP).then_some((slowest, times))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{DiskId, FsUsage, ServerId, TargetId};
    use weir_wire::map::TargetState;

    pub(super) fn view(target: u32, read_bytes: u64, us_per_mib: u32) -> TargetView {
        TargetView {
            target: TargetId(target),
            server: ServerId(target),
            host: "node".into(),
            domain: String::new(),
            state: TargetState::Online,
            suspect: false,
            draining: false,
            since_ms: None,
            silent_ms: 0,
            held_ms: 0,
            usage: FsUsage::default(),
            disk: DiskId::UNKNOWN,
            behind: 0,
            behind_per_s: 0,
            behind_expected_s: 0,
            trouble: String::new(),
            hangs_ms: 0,
            given_up: false,
            work: TargetWork { read_bytes, us_per_mib, queued: 3, ..TargetWork::default() },
            machine: MachineLoad { cpu_permille: 253, ..MachineLoad::default() },
            slow: false,
        }
    }

    fn rows<'a>(now: &'a [TargetView], before: &[TargetView]) -> Vec<Row<'a>> {
        now.iter().map(|view| Row::of(view, before, 2.0)).collect()
    }

    #[test]
    fn the_disk_that_holds_others_up_is_named() {
        let before = [view(1, 100, 0), view(2, 100, 0), view(3, 900, 0)];
        let now = [
            view(1, 100 + (8 << 20), 30_000),
            view(2, 100 + (4 << 20), 120_000),
            view(3, 5, 31_000),
        ];
        let rows = rows(&now, &before);
        let rates: Vec<u64> = rows.iter().map(|row| row.read_per_s).collect();
        assert_eq!(rates, [4 << 20, 2 << 20, 0], "the third has begun anew");
        let page = page(&rows);
        assert!(page.starts_with("6.0M/s read, 0/s written; target 2 (data-2 on node) holds"));
        assert!(page.contains("3.9 times as long"), "{page}");
    }

    #[test]
    fn none_is_named_where_all_are_alike_or_nothing_is_read() {
        let [alike, idle] = [[30_000, 33_000, 31_000], [0, 0, 0]].map(|us| {
            let now: Vec<TargetView> = (1..4).zip(us).map(|(n, us)| view(n, 0, us)).collect();
            page(&rows(&now, &now))
        });
        assert!(alike.contains("no disk holds the others up"));
        assert!(idle.contains("no disk holds the others up"));
    }
}
