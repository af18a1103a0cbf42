//! `weir df`: the space of each target, and of all disks.

use crate::args::Df;
use crate::cluster::daemon::data_name;
use crate::cluster::encoding::Encoding;
use crate::cluster::targets::{disk_name, domain_of};
use crate::failure::Done;
use crate::files::remote::connect;
use crate::output::{print, print_json};
use crate::settings;
use crate::text::{Table, human_size};
use serde_json::json;
use weir_types::{Disks, FsUsage};
use weir_wire::map::{ClusterMap, TargetState};

/// Runs `weir df`.
pub fn run(df: &Df) -> Done {
    let cluster = settings::cluster(&df.client)?;
    let client = connect(&cluster.credential()?, "df")?;
    let map = client.cluster_map()?;
    if df.json {
        let targets: Vec<_> = map
            .targets()
            .map(|(server, target)| {
                json!({
                    "target": target.target.0,
                    "server": server.server.0,
                    "server_name": data_name(server.server.0),
                    "host": server.host,
                    "domain": domain_of(&server.domain),
                    "state": state_name(target.state),
                    "total_bytes": target.usage.total_bytes,
                    "used_bytes": used(&target.usage),
                    "free_bytes": target.usage.free_bytes,
                    "disk": disk_name(target.disk),
                })
            })
            .collect();
        return print_json(&targets);
    }
    let size = |bytes: u64| match df.human_readable {
        true => human_size(bytes),
        // In blocks of 1 KiB, as df prints them.
        false => bytes.div_ceil(1024).to_string(),
    };
    let unit = if df.human_readable { ">SIZE" } else { ">1K-BLOCKS" };
    let mut table = Table::new(&[">TARGET", "SERVER", unit, ">USED", ">AVAIL", ">USE%", "STATE"]);
    let mut row = |target, place, usage: &FsUsage, state| {
        let (all, used, free) = (usage.total_bytes, used(usage), usage.free_bytes);
        table.row(vec![target, place, size(all), size(used), size(free), percent(usage), state]);
    };
    for (server, target) in map.targets() {
        let place = format!("{} ({})", data_name(server.server.0), server.tcp);
        row(target.target.to_string(), place, &target.usage, state_name(target.state).to_owned());
    }
    let disks = online_disks(&map);
    if map.targets().count() > 1 && disks.count() > 0 {
        let state = format!("{} online", disks.targets());
        row("all".to_owned(), disks_in_words(disks.count()), &disks.usage(), state);
    }
    let coded = Encoding::of(&client.metadata_status()?).space();
    print(&(table.render() + &coded.map(|line| format!("\n{line}")).unwrap_or_default()))
}

/// The disks that can be written to. `df` on a mount shows their space.
fn online_disks(map: &ClusterMap) -> Disks {
    let online = map.targets().map(|(_, t)| t).filter(|t| t.state == TargetState::Online);
    online.map(|t| (t.disk, t.usage)).collect()
}

fn disks_in_words(count: u64) -> String {
    match count {
        1 => "on 1 disk".to_owned(),
        _ => format!("on {count} disks"),
    }
}

/// Bytes in use.
pub fn used(usage: &FsUsage) -> u64 {
    usage.total_bytes.saturating_sub(usage.free_bytes)
}

/// The share in use in percent, rounded up as df does.
pub fn percent(usage: &FsUsage) -> String {
    match usage.total_bytes {
        0 => "-".to_owned(),
        total => format!("{}%", (u128::from(used(usage)) * 100).div_ceil(u128::from(total))),
    }
}

/// The state of a target in one word.
pub fn state_name(state: TargetState) -> &'static str {
    match state {
        TargetState::Suspect => "suspect",
        TargetState::Online => "online",
        TargetState::Offline => "offline",
        TargetState::OutOfService => "out of service",
        TargetState::Syncing => "syncing",
    }
}
