//! Decides on the servers, targets and ports of a new cluster.

use crate::args::Up;
use crate::cluster::daemon::cluster_id_text;
use crate::cluster::state::{Description, MetaDescription, ServerDescription, StateDir};
use crate::cluster::{etcd, grow, invitation, ports, secret};
use crate::failure::{Done, Failure};
use crate::logging;
use crate::settings;
use crate::text::{ByteSize, parse_size};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use weir_connect::UpDefaults;
use weir_types::LayoutSpec;

/// Targets of a cluster that only this machine reaches, made to try things out. A cluster for other
/// machines has disks of its own, and gets one target by default.
const DEFAULT_TARGETS: u32 = 4;
/// The first port of a cluster that other machines reach. It is fixed, so that a firewall can be
/// configured for it.
const DEFAULT_PORT: u16 = 7700;
const DEFAULT_LISTEN: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The plan of a new cluster.
pub struct Plan {
    pub description: Description,
    /// The directories of its targets, unless they are in the state directory.
    pub dirs: Vec<PathBuf>,
    /// The metrics addresses of its servers, if they serve metrics.
    pub metrics: Vec<String>,
    /// The ports, held until the servers listen.
    pub held: Vec<ports::Held>,
}

/// Decides on servers, targets and ports.
pub fn plan(state: &StateDir, up: &Up, defaults: &UpDefaults) -> Done<Plan> {
    let listen = up.listen.unwrap_or(DEFAULT_LISTEN);
    let dirs = up.data.iter().map(|dir| settings::absolute(dir)).collect::<Done<Vec<_>>>()?;
    if up.targets.is_some_and(|targets| !dirs.is_empty() && targets as usize != dirs.len()) {
        return Err(Failure::new("--data says how many targets there are: one for each")
            .hint("leave out --targets"));
    }
    let usual = if listen.is_loopback() { DEFAULT_TARGETS } else { 1 };
    let targets = match dirs.len() {
        0 => up.targets.or(defaults.targets).unwrap_or(usual),
        dirs => dirs as u32,
    };
    let per_server = up.targets_per_server.or(defaults.targets_per_server).unwrap_or(1);
    if !(1..=256).contains(&targets) || !(1..=256).contains(&per_server) {
        return Err(Failure::new("a cluster has 1 to 256 targets"));
    }
    let unit = match (&up.unit, &defaults.unit) {
        (Some(unit), _) => *unit,
        (None, Some(text)) => parse_size(text).map_err(|e| Failure::new(e).about("up.unit"))?,
        (None, None) => ByteSize(0),
    };
    let servers = targets.div_ceil(per_server);
    let metas = up.meta.unwrap_or(1) as usize;
    if metas > 1 {
        etcd::require()?;
    }
    let count = servers as usize + metas;
    let base = up.port.or(defaults.port);
    let (held, base) = match base {
        Some(base) => (ports::from_base(listen, base, count)?, Some(base)),
        None if listen.is_loopback() => (ports::free(listen, count)?, None),
        None => {
            let (held, is_usual) = ports::usual(listen, DEFAULT_PORT, count)?;
            (held, is_usual.then_some(DEFAULT_PORT))
        }
    };
    let metrics_address = up.metrics.or(defaults.metrics);
    let metrics_base = base.map(|base| base.saturating_add(count as u16));
    let (metrics, held_for_metrics) = ports::for_metrics(metrics_address, metrics_base, count)?;
    let mut addresses = held.ports.iter().map(|port| SocketAddr::new(listen, *port).to_string());
    let metadata = addresses.next().unwrap_or_default();
    let others = addresses.by_ref().take(metas - 1).zip(2..);
    let others = others.map(|(address, id)| MetaDescription { id, address, here: None }).collect();
    let etcd = if metas > 1 { etcd::plan(metas) } else { Vec::new() };
    let servers = addresses
        .zip(1..)
        .map(|(address, id)| {
            let first = (id - 1) * per_server + 1;
            let last = (id * per_server).min(targets);
            let (targets, replacing) = ((first..=last).collect(), Vec::new());
            ServerDescription { id, address, targets, replacing }
        })
        .collect();
    let name = match &up.cluster.name {
        Some(name) => name.clone(),
        None => state.dir().file_name().map_or("default".into(), |n| n.display().to_string()),
    };
    let stripe_unit_bytes = u32::try_from(unit.0).map_err(|_| Failure::new("--unit: too large"))?;
    let copies = up.copies.unwrap_or(0);
    weir_layout::check_spec(&LayoutSpec { stripe_unit_bytes, copies, ..LayoutSpec::default() })?;
    let description = Description {
        name,
        id: cluster_id_text(secret::random()?),
        metadata,
        joined: false,
        stripe_unit_bytes,
        copies,
        metrics: metrics_address,
        protection: up.protection.map(|level| level.label().to_owned()),
        made_mountpoints: Vec::new(),
        adding: None,
        servers,
        invited: Vec::new(),
        metas: others,
        etcd,
        journal: Vec::new(),
    };
    Ok(Plan { description, dirs, metrics, held: vec![held, held_for_metrics] })
}

/// Links the targets that are elsewhere into the state directory.
pub fn link_targets(state: &StateDir, plan: &Plan) -> Done {
    let targets = plan.description.targets();
    targets
        .iter()
        .zip(&plan.dirs)
        .try_for_each(|(target, dir)| grow::make_link(&state.target_dir(*target), dir))
}

/// Warns of settings that are valid but perhaps not intended.
pub fn warn(state: &StateDir, up: &Up, description: &Description) {
    let targets = description.targets();
    let copies = usize::from(description.copies);
    if copies > targets.len() {
        logging::say(&format!(
            "weir: no file can be made before there are {copies} targets, for its copies; there \
             are {}: `weir invite` adds other machines, `weir server add` adds targets of this one",
            targets.len()
        ));
    }
    // The kernel shows only the disk of the file system, so targets are compared by that.
    let disk = |target: &u32| std::fs::metadata(state.target_dir(*target)).map(|meta| meta.dev());
    let disks: BTreeSet<u64> = targets.iter().flat_map(disk).collect();
    if copies > 1 && targets.len() > 1 && disks.len() < targets.len() {
        logging::say(&format!(
            "weir: the {} targets are on {} file system{} of this machine: copies that are on one \
             disk are lost with it. `weir up --data DIR --data DIR` names a directory on each disk",
            targets.len(),
            disks.len(),
            if disks.len() == 1 { "" } else { "s" }
        ));
    }
    if let Some(domain) =
        up.domain.as_ref().filter(|_| !invitation::is_for_others(&description.metadata))
    {
        logging::say(&format!(
            "weir: all of this machine is in domain {domain}, and no other machine reaches this \
             cluster: --domain keeps nothing apart here"
        ));
    }
}
