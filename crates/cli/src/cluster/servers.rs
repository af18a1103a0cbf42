//! `weir server list`, and how data servers are displayed.

use crate::args::ServerList;
use crate::cluster::daemon::data_name;
use crate::cluster::targets::state_of;
use crate::failure::{Done, Failure};
use crate::files::remote::connect;
use crate::layouts::df::percent;
use crate::output::{print, print_json};
use crate::settings;
use crate::text::{Table, human_size};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use weir_client::Client;
use weir_types::{Disks, FsUsage, ServerId, TargetId};
use weir_wire::map::ServerEntry;
use weir_wire::targets::TargetView;

/// A data server with its targets.
pub struct Member {
    pub entry: ServerEntry,
    pub targets: Vec<TargetView>,
}

/// All data servers, by number.
pub fn all(client: &Client) -> Done<BTreeMap<ServerId, Member>> {
    let mut views: BTreeMap<ServerId, Vec<TargetView>> = BTreeMap::new();
    for view in client.targets()? {
        views.entry(view.server).or_default().push(view);
    }
    let servers = client.cluster_map()?.servers.into_iter();
    let member = |entry: ServerEntry| {
        let targets = views.remove(&entry.server).unwrap_or_default();
        (entry.server, Member { entry, targets })
    };
    Ok(servers.map(member).collect())
}

/// A data server by its number.
pub fn one(client: &Client, server: u32) -> Done<Member> {
    all(client)?.remove(&ServerId(server)).ok_or_else(|| unknown(server))
}

/// The failure that there is no such server.
pub fn unknown(server: u32) -> Failure {
    Failure::new(format!("there is no data server {server}"))
        .hint("`weir server list` shows those that there are")
}

/// Runs `weir server list`.
pub fn list(asked: &ServerList) -> Done {
    let cluster = settings::cluster(&asked.client)?;
    let members = all(&connect(&cluster.credential()?, "server list")?)?;
    if asked.json {
        return print_json(&members.values().map(Member::to_json).collect::<Vec<_>>());
    }
    let titles =
        ["SERVER", "HOST", "ADDRESS", "TARGETS", "STATE", ">SIZE", ">AVAIL", ">USE%", ">BEHIND"];
    let mut table = Table::new(&titles);
    for member in members.values() {
        let usage = member.usage();
        table.row(vec![
            data_name(member.entry.server.0),
            member.entry.host.clone(),
            member.entry.tcp.clone(),
            listed(&member.numbers()),
            member.state(),
            human_size(usage.total_bytes),
            human_size(usage.free_bytes),
            percent(&usage),
            member.targets.iter().map(|view| view.behind).sum::<u64>().to_string(),
        ]);
    }
    print(&table.render())
}

impl Member {
    /// The numbers of the server's targets.
    pub fn numbers(&self) -> Vec<TargetId> {
        self.targets.iter().map(|view| view.target).collect()
    }

    /// One word if all targets are in the same state, otherwise how many are in each state.
    fn state(&self) -> String {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for view in &self.targets {
            *counts.entry(state_of(view)).or_default() += 1;
        }
        match counts.len() {
            0 => "no targets".to_owned(),
            1 => counts.into_keys().collect(),
            _ => {
                let each = counts.iter().map(|(state, count)| format!("{count} {state}"));
                each.collect::<Vec<_>>().join("; ")
            }
        }
    }

    /// The space of the server's disks.
    fn usage(&self) -> FsUsage {
        self.targets.iter().map(|view| (view.disk, view.usage)).collect::<Disks>().usage()
    }

    fn to_json(&self) -> Value {
        let usage = self.usage();
        json!({
            "server": self.entry.server.0,
            "server_name": data_name(self.entry.server.0),
            "host": self.entry.host,
            "address": self.entry.tcp,
            "socket": self.entry.unix,
            "total_bytes": usage.total_bytes,
            "free_bytes": usage.free_bytes,
            "draining": !self.targets.is_empty() && self.targets.iter().all(|view| view.draining),
            "targets": self.targets.iter().map(super::targets::to_json).collect::<Vec<_>>(),
        })
    }
}

/// Numbers separated by commas.
pub fn listed(targets: &[TargetId]) -> String {
    match targets.is_empty() {
        true => "-".to_owned(),
        false => targets.iter().map(TargetId::to_string).collect::<Vec<_>>().join(","),
    }
}
