//! `weir targets`, and what is said of targets.

use crate::args::Targets;
use crate::cluster::daemon::data_name;
use crate::failure::Done;
use crate::files::remote::connect;
use crate::layouts::df::{percent, state_name};
use crate::output::{Table, human_duration, human_size, print, print_json};
use crate::settings;
use serde_json::{Value, json};
use weir_wire::map::TargetState;
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

/// Where a server is: its host, and its failure domain if it has one.
pub fn place_of(host: &str, domain: &str) -> String {
    match domain {
        "" => host.to_owned(),
        domain => format!("{host}, {domain}"),
    }
}

/// A failure domain for programs; null: it is its host.
pub fn domain_of(domain: &str) -> Option<&str> {
    (!domain.is_empty()).then_some(domain)
}

/// The state of a target in words.
pub fn state_of(view: &TargetView) -> String {
    let state = if view.suspect { "suspect" } else { state_name(view.state) };
    match view.draining {
        true => format!("{state}, draining"),
        false => state.to_owned(),
    }
}

/// Whether it gets what it lacks.
fn syncs(view: &TargetView) -> bool {
    view.state == TargetState::Syncing
}

/// How long it will take until a target that is syncing has all, in words.
fn left(view: &TargetView) -> Option<String> {
    let known = syncs(view) && view.behind_expected_s > 0;
    known.then(|| human_duration(view.behind_expected_s))
}

/// Why a target is out of service, for how long its disk has not answered, or that it is slow.
pub fn what_is_wrong(view: &TargetView) -> String {
    match (view.trouble.as_str(), view.hangs_ms) {
        ("", ms) if ms > 0 => format!("its disk hangs since {}", human_duration(ms / 1000)),
        ("", _) if view.slow => "its disk has become slow".to_owned(),
        (trouble, _) => trouble.to_owned(),
    }
}

/// How long a MiB takes to be read from a disk, in milliseconds.
pub fn pace_of(us_per_mib: u32) -> String {
    match us_per_mib {
        0 => "-".to_owned(),
        us => format!("{:.1}", f64::from(us) / 1e3),
    }
}

/// How busy a server's machine is, for programs.
pub fn machine_json(machine: &MachineLoad) -> Value {
    json!({
        "cpu_percent": f64::from(machine.cpu_permille) / 10.0,
        "received_bytes_per_s": machine.received_bytes_per_s,
        "sent_bytes_per_s": machine.sent_bytes_per_s,
    })
}

/// A target for programs.
pub fn to_json(view: &TargetView) -> Value {
    json!({
        "target": view.target.0,
        "server": view.server.0,
        "host": view.host,
        "domain": domain_of(&view.domain),
        "state": if view.suspect { "suspect" } else { state_name(view.state) },
        "draining": view.draining,
        "since_s": view.since_ms.map(|ms| ms / 1000),
        "heard_ms_ago": view.silent_ms,
        "total_bytes": view.usage.total_bytes,
        "free_bytes": view.usage.free_bytes,
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

/// What is wrong with a target, and what to do; `None`: nothing, or its server says
/// it better.
pub fn trouble_of(view: &TargetView) -> Option<String> {
    let TargetView { target, host, behind, .. } = view;
    let name = data_name(view.server.0);
    let since =
        view.since_ms.map_or(String::new(), |ms| format!(" since {}", human_duration(ms / 1000)));
    let missing = match behind {
        0 => String::new(),
        _ => format!("; it lacks {behind} parts of objects, which it gets when it is back"),
    };
    match view.state {
        TargetState::Offline if view.given_up => {
            let hangs = match view.hangs_ms {
                0 => "has hung, and answers again".to_owned(),
                ms => format!("hangs since {}", human_duration(ms / 1000)),
            };
            Some(format!(
                "target {target}: its disk, of {name} on {host}, {hangs}; its server has given it \
                 up: files with copies elsewhere are served from those{missing}. It comes back by \
                 itself when all disks of {name} answer. Look at the disk (`dmesg`, `iostat -x`); \
                 if it is lost, `weir target drain {target}` and then `weir target remove {target}`, \
                 or `weir target replace {target}`"
            ))
        }
        TargetState::Offline => Some(format!(
            "target {target} is offline{since}: {name} on {host} has not been heard of; files \
             with copies elsewhere are served from those{missing}; start it anew, or, if it is \
             lost for good, `weir target drain {target}` and then `weir target remove {target}`, or \
             `weir target replace {target}`"
        )),
        _ if view.hangs_ms > 0 => Some(format!(
            "target {target}: its disk, of {name} on {host}, hangs since {}: it has not ended an \
             operation for so long. What needs it waits, for 15 s if others have what it has: then \
             it is done without until it answers. Look at the disk (`dmesg`, `iostat -x`)",
            human_duration(view.hangs_ms / 1000)
        )),
        TargetState::Syncing if view.held_ms > 0 => Some(format!(
            "target {target} on {host} came and went too often: it is kept waiting for another \
             {}; look at its machine, disk and network",
            human_duration(view.held_ms.div_ceil(1000))
        )),
        TargetState::Syncing => Some(format!(
            "target {target} on {host} is being brought up to date{since}: {behind} parts of \
             objects to go, {}/s{}; nothing needs to be done",
            view.behind_per_s,
            left(view).map_or(String::new(), |left| format!(", {left} left"))
        )),
        TargetState::Online if view.suspect => Some(format!(
            "target {target}: {name} on {host} has not been heard of for {} ms",
            view.silent_ms
        )),
        TargetState::Online if view.slow => Some(format!(
            "target {target}: its disk, of {name} on {host}, has become slow: reading takes more \
             than twice as long as on the others. What has copies elsewhere is read there in part, and new \
             files with one copy go elsewhere; look at the disk (`iostat -x`, `smartctl -a`), and if \
             it stays so, `weir target drain {target}`"
        )),
        TargetState::Online | TargetState::Suspect | TargetState::OutOfService => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{FsUsage, ServerId, TargetId};
    use weir_wire::targets::{MachineLoad, TargetWork};

    fn view(state: TargetState) -> TargetView {
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
    fn what_is_wrong_is_named_with_what_to_do() {
        let offline = trouble_of(&view(TargetState::Offline)).unwrap();
        for part in ["target 3 is offline since", "on node", "lacks 7", "weir target remove 3"] {
            assert!(offline.contains(part), "{offline}");
        }
        let syncing = trouble_of(&view(TargetState::Syncing)).unwrap();
        assert!(syncing.contains("7 parts of objects to go, 2/s, "), "{syncing}");
        assert!(left(&view(TargetState::Syncing)).is_some_and(|left| syncing.contains(&left)));
        assert_eq!(left(&view(TargetState::Offline)), None, "it gets nothing");
        let held = TargetView { held_ms: 4_100, ..view(TargetState::Syncing) };
        assert!(trouble_of(&held).unwrap().contains("too often"));
        assert_eq!(trouble_of(&view(TargetState::Online)), None);
        let hangs = TargetView { hangs_ms: 12_300, ..view(TargetState::Online) };
        assert!(trouble_of(&hangs).unwrap().contains("hangs since 12s"), "{hangs:?}");
        assert_eq!(what_is_wrong(&hangs), "its disk hangs since 12s");
        let slow = TargetView { slow: true, ..view(TargetState::Online) };
        assert!(trouble_of(&slow).unwrap().contains("has become slow"));
        assert_eq!(
            (what_is_wrong(&slow).as_str(), pace_of(31_250)),
            ("its disk has become slow", "31.2".to_owned())
        );
        let given_up = TargetView { state: TargetState::Offline, given_up: true, ..hangs };
        let said = trouble_of(&given_up).unwrap();
        assert!(said.contains("hangs since 12s") && said.contains("given it up"), "{said}");
        let answers = TargetView { hangs_ms: 0, ..given_up };
        assert!(trouble_of(&answers).unwrap().contains("answers again"), "{answers:?}");
        let gone = TargetView { given_up: false, ..answers };
        assert!(trouble_of(&gone).unwrap().contains("is offline"), "its server says no more");
        let drained = TargetView { draining: true, suspect: true, ..view(TargetState::Online) };
        assert_eq!(state_of(&drained), "suspect, draining");
    }
}
