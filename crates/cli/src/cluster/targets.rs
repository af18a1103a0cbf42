//! `weir targets`, and how targets are displayed.

use crate::args::Targets;
use crate::cluster::daemon::data_name;
use crate::cluster::trouble::recovers;
use crate::failure::Done;
use crate::files::remote::connect;
use crate::layouts::df::{percent, state_name};
use crate::output::{print, print_json};
use crate::settings;
use crate::text::{Table, human_duration, human_size};
use serde_json::{Value, json};
use weir_types::DiskId;
use weir_wire::map::TargetState;
use weir_wire::peer::is_recovering;
use weir_wire::targets::{MachineLoad, TargetView};

/// Runs `weir targets`.
pub fn list(asked: &Targets) -> Done {
    let cluster = settings::cluster(&asked.client)?;
    let views = connect(&cluster.credential()?, "targets")?.targets()?;
    if asked.json {
        return print_json(&views.iter().map(to_json).collect::<Vec<_>>());
    }
    let titles = [
        ">TARGET", "SERVER", "STATE", ">SINCE", ">SIZE", ">AVAIL", ">USE%", ">MS/MIB", ">BEHIND",
        ">PER S", ">LEFT", "TROUBLE",
    ];
    let mut table = Table::new(&titles);
    for view in &views {
        table.row(vec![
            view.target.to_string(),
            format!("{} ({})", data_name(view.server.0), place_of(&view.host, &view.domain)),
            state_of(view),
            view.since_ms.map_or("-".to_owned(), |ms| human_duration(ms / 1000)),
            human_size(view.usage.total_bytes),
            human_size(view.usage.free_bytes),
            percent(&view.usage),
            pace_of(view.work.us_per_mib),
            view.behind.to_string(),
            if syncs(view) { view.behind_per_s.to_string() } else { "-".to_owned() },
            left(view).unwrap_or_else(|| "-".to_owned()),
            what_is_wrong(view),
        ]);
    }
    print(&table.render())
}

/// The host of a server, with its failure domain if it has one.
pub fn place_of(host: &str, domain: &str) -> String {
    match domain {
        "" => host.to_owned(),
        domain => format!("{host}, {domain}"),
    }
}

/// A failure domain for JSON. It is null if the domain is the host.
pub fn domain_of(domain: &str) -> Option<&str> {
    (!domain.is_empty()).then_some(domain)
}

/// An identifier of a disk for JSON. All targets on a disk have the same one until the machine
/// restarts. It is null if the disk is not known.
pub fn disk_name(disk: DiskId) -> Option<String> {
    (disk != DiskId::UNKNOWN).then(|| format!("{:016x}", disk.0))
}

/// The state of a target as text.
pub fn state_of(view: &TargetView) -> String {
    let state = match () {
        () if recovers(view) => "recovering",
        () if view.suspect => "suspect",
        () => state_name(view.state),
    };
    match view.draining {
        true => format!("{state}, draining"),
        false => state.to_owned(),
    }
}

/// Whether the target is receiving data that it lacks.
fn syncs(view: &TargetView) -> bool {
    view.state == TargetState::Syncing
}

/// The time until a syncing target is complete, as text.
pub fn left(view: &TargetView) -> Option<String> {
    if syncs(view) { time_left(view.behind_expected_s) } else { None }
}

/// A longer estimate, in seconds, says only that hardly any progress is being made now.
const BELIEVABLE_S: u64 = 7 * 86_400;

/// An estimate as text; `None` if there is none yet.
pub fn time_left(expected_s: u64) -> Option<String> {
    (1..=BELIEVABLE_S).contains(&expected_s).then(|| human_duration(expected_s))
}

/// Why a target is out of service, how long its disk has not answered, or that it is slow.
pub fn what_is_wrong(view: &TargetView) -> String {
    match (view.trouble.as_str(), view.hangs_ms) {
        ("", ms) if ms > 0 => format!("its disk hangs since {}", human_duration(ms / 1000)),
        ("", _) if view.slow => "its disk has become slow".to_owned(),
        // This report may be outdated, if the server is gone.
        (trouble, _) if is_recovering(trouble) && !view.given_up => String::new(),
        (trouble, _) => trouble.to_owned(),
    }
}

/// How long a disk takes to read one MiB, in milliseconds.
pub fn pace_of(us_per_mib: u32) -> String {
    match us_per_mib {
        0 => "-".to_owned(),
        us => format!("{:.1}", f64::from(us) / 1e3),
    }
}

/// The load of a server's machine as JSON.
pub fn machine_json(machine: &MachineLoad) -> Value {
    json!({
        "cpu_percent": f64::from(machine.cpu_permille) / 10.0,
        "received_bytes_per_s": machine.received_bytes_per_s,
        "sent_bytes_per_s": machine.sent_bytes_per_s,
    })
}

/// A target as JSON.
pub fn to_json(view: &TargetView) -> Value {
    json!({
        "target": view.target.0,
        "server": view.server.0,
        "server_name": data_name(view.server.0),
        "host": view.host,
        "domain": domain_of(&view.domain),
        "state": if view.suspect { "suspect" } else { state_name(view.state) },
        "draining": view.draining,
        "since_s": view.since_ms.map(|ms| ms / 1000),
        "heard_ms_ago": view.silent_ms,
        "total_bytes": view.usage.total_bytes,
        "free_bytes": view.usage.free_bytes,
        "disk": disk_name(view.disk),
        "behind": view.behind,
        "behind_per_s": view.behind_per_s,
        "behind_expected_s": view.behind_expected_s,
        "trouble": view.trouble,
        "disk_hangs_ms": view.hangs_ms,
        "given_up": view.given_up,
        "slow": view.slow,
        "read_bytes": view.work.read_bytes,
        "written_bytes": view.work.written_bytes,
        "queued": view.work.queued,
        "us_per_mib": view.work.us_per_mib,
        "serves_us_per_mib": view.work.serves_us_per_mib,
        "machine": machine_json(&view.machine),
    })
}

/// How much a target lacks, as the end of a sentence.
pub fn lacking(behind: u64) -> String {
    match behind {
        0 => String::new(),
        _ => format!("; it lacks {behind} parts of objects, which it gets when it is back"),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use weir_types::{FsUsage, ServerId, TargetId};
    use weir_wire::targets::{MachineLoad, TargetWork};

    pub fn view(state: TargetState) -> TargetView {
        TargetView {
            target: TargetId(3),
            server: ServerId(2),
            host: "node".into(),
            domain: "rack7".into(),
            state,
            suspect: false,
            draining: false,
            since_ms: Some(12_000),
            silent_ms: 0,
            held_ms: 0,
            usage: FsUsage::default(),
            disk: DiskId::UNKNOWN,
            behind: 7,
            behind_per_s: 2,
            behind_expected_s: 3,
            trouble: String::new(),
            hangs_ms: 0,
            given_up: false,
            work: TargetWork::default(),
            machine: MachineLoad::default(),
            slow: false,
        }
    }

    #[test]
    fn states_and_what_is_wrong_are_said_in_a_few_words() {
        assert_eq!(left(&view(TargetState::Offline)), None, "it gets nothing");
        assert_eq!(left(&view(TargetState::Syncing)).as_deref(), Some("3s"));
        let far = TargetView { behind_expected_s: 212 * 86_400, ..view(TargetState::Syncing) };
        assert_eq!(left(&far), None, "it is not known yet");
        let hangs = TargetView { hangs_ms: 12_300, ..view(TargetState::Online) };
        assert_eq!(what_is_wrong(&hangs), "its disk hangs since 12s");
        let slow = TargetView { slow: true, ..view(TargetState::Online) };
        assert_eq!(
            (what_is_wrong(&slow).as_str(), pace_of(31_250)),
            ("its disk has become slow", "31.2".to_owned())
        );
        let drained = TargetView { draining: true, suspect: true, ..view(TargetState::Online) };
        assert_eq!(state_of(&drained), "suspect, draining");
    }
}
