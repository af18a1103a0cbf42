//! `weir testbed up`: makes the network, the disks, and a cluster on them. If something fails,
//! everything is removed again.

use super::down;
use super::failed::failed;
use super::profiles::megabytes;
use super::record::{Node, Place, Record, head_name};
use crate::args::TestbedUp;
use crate::cluster::awaiting::{await_targets, never_heard_of};
use crate::cluster::daemon::{META, cluster_id_text, data_name};
use crate::cluster::process::{self, DaemonSpec, Process, Starting};
use crate::cluster::secret;
use crate::cluster::state::{Description, ServerDescription, make_dir};
use crate::cluster::up::make_described;
use crate::failure::{Done, Failure};
use crate::files::remote::connect;
use crate::output::print;
use std::os::unix::fs::symlink;
use weir_connect::Credential;
use weir_testbed::profile::{Plan, Profile, Wishes};
use weir_testbed::{Counts, Disk, Memory, Network, Throttle, make_image};

/// The port of the metadata server; data servers use [`DATA_PORT`]. Each server is in a network
/// namespace of its own.
const META_PORT: u16 = 7700;
const DATA_PORT: u16 = 7701;
/// The node of the metadata server.
const META_NODE: u32 = 1;

/// Runs `weir testbed up`.
pub fn run(up: &TestbedUp) -> Done {
    let profile = Profile::of(&up.profile).ok_or_else(|| {
        Failure::new(format!("there is no profile '{}'", up.profile))
            .hint("`weir testbed profiles` lists them")
    })?;
    let wishes = Wishes {
        nodes: up.nodes,
        disk_rate: up.disk_rate.map(|rate| rate.0),
        link_rate: up.link_rate.map(|rate| rate.0),
    };
    let plan = profile.plan(wishes);
    possible(&plan)?;
    let mut record = planned(profile, &plan, up)?;
    let (place, _lock) = Place::vacant(&up.choice)?;
    // From here on `down` can find everything that may be made.
    place.write(&record)?;
    let done = make(up, &place, &mut record, plan.link_queue);
    if done.is_err() {
        // The first failure is returned; failures of the removal are only printed.
        down::remove(&place, &record).unwrap_or_else(|failure| failure.say());
    }
    done?;
    print(&report(&place, &record))
}

/// Fails with what this machine lacks for a testbed.
fn possible(plan: &Plan) -> Done {
    let lacks = weir_testbed::missing_for_networks().or_else(|| match plan.head {
        Some(_) => weir_testbed::missing_for_models(),
        None => weir_testbed::missing(),
    });
    lacks.map_or(Ok(()), |what| Err(Failure::new(format!("a testbed needs {what}"))))
}

fn planned(profile: &Profile, plan: &Plan, up: &TestbedUp) -> Done<Record> {
    // Further nodes have as much as the last one.
    let last = profile.memory.last().copied();
    if up.memory && last.is_none() {
        let what = format!("nobody says how much memory the nodes of '{}' have", profile.name);
        return Err(Failure::new(what).hint("leave --memory out: then it is not limited"));
    }
    let memory = |n: usize| profile.memory.get(n).copied().or(last).filter(|_| up.memory);
    let node = |(n, rate): (usize, &u64)| Node {
        disk_rate: *rate,
        memory: memory(n),
        drive: plan.drive(n),
        counted: Counts::default(),
    };
    Ok(Record {
        profile: profile.name.to_owned(),
        nodes: plan.disk_rates.iter().enumerate().map(node).collect(),
        clients: up.clients,
        link_rate: plan.link_rate,
    })
}

fn make(up: &TestbedUp, place: &Place, record: &mut Record, link_queue: u64) -> Done {
    let links = vec![record.link_rate; record.nodes.len() + record.clients as usize];
    let mut network = Network::make(&place.name(), &links, link_queue).map_err(failed)?;
    network.leave();
    for dir in [place.disks(), place.run_dir(), place.log_dir()] {
        make_dir(&dir, 0o755)?;
    }
    make_disks(up, place, record)?;
    place.write(record)?;
    make_cluster(place, record, &network)?;
    throttle(place, record)?;
    limit_memory(place, record)?;
    let targets: Vec<u32> = record.numbered().map(|(n, _)| n).collect();
    let credential = Credential::read(&place.cluster().credential_file())?;
    let missing =
        network.within(META_NODE, || await_targets(&connect(&credential, "testbed up")?, &targets));
    let missing = missing.map_err(failed)??;
    if missing.offline > 0 { Err(never_heard_of(missing.offline)) } else { Ok(()) }
}

/// Makes images with a file system each, daemons for their heads, and the disks.
fn make_disks(up: &TestbedUp, place: &Place, record: &mut Record) -> Done {
    let mut starting = Vec::new();
    for (number, node) in record.numbered() {
        make_image(&place.image(number), up.disk_size.0).map_err(failed)?;
        make_dir(&place.disk(number), 0o755)?;
        if node.drive.is_some() {
            make_dir(&Disk::model_at(&place.disk(number)), 0o755)?;
            starting.push(start_head(place, number)?);
        }
    }
    starting.into_iter().try_for_each(|head: Starting| head.ready().map(drop))?;
    for (number, node) in (1..).zip(&mut record.nodes) {
        let backing = place.backing(number, node.drive);
        let disk = Disk::of(&backing, &place.disk(number), node.drive.is_some()).map_err(failed)?;
        disk.device().read_ahead(up.read_ahead_kib).map_err(failed)?;
        node.counted = disk.counts().map_err(failed)?;
        disk.leave();
    }
    Ok(())
}

fn start_head(place: &Place, number: u32) -> Done<Starting> {
    let (name, files) = (head_name(number), place.files());
    let node = number.to_string();
    process::start(&DaemonSpec {
        name: &name,
        command: &["testbed", "disk"],
        arguments: vec!["--dir".into(), place.dir().into(), "--node".into(), node.into()],
        log: &files.log_file(&name),
        pid_file: &files.pid_file(&name),
        network: None,
    })
}

/// Makes a cluster with one data server for each disk. Each daemon is in the network of its node.
fn make_cluster(place: &Place, record: &Record, network: &Network) -> Done {
    let state = place.cluster();
    state.make()?;
    let link = |to: std::path::PathBuf, at: std::path::PathBuf| {
        symlink(to, &at).map_err(|e| Failure::file(&at, e))
    };
    link(network.entrance(META_NODE), state.network_file(META))?;
    let mut servers = Vec::new();
    for (id, _) in record.numbered() {
        let target = place.disk(id).join("target");
        make_dir(&target, 0o700)?;
        link(target, state.target_dir(id))?;
        link(network.entrance(id), state.network_file(&data_name(id)))?;
        let address = format!("{}:{DATA_PORT}", network.address(id));
        servers.push(ServerDescription { id, address, targets: vec![id], replacing: Vec::new() });
    }
    let description = Description {
        name: format!("testbed-{}", record.profile),
        id: cluster_id_text(secret::random()?),
        metadata: format!("{}:{META_PORT}", network.address(META_NODE)),
        joined: false,
        stripe_unit_bytes: 0,
        copies: 0,
        metrics: None,
        protection: None,
        made_mountpoints: Vec::new(),
        adding: None,
        servers,
        invited: Vec::new(),
        metas: Vec::new(),
        etcd: Vec::new(),
        journal: Vec::new(),
    };
    make_described(&state, &description)
}

/// Limits disks without a head in the kernel, for one group with all data servers.
fn throttle(place: &Place, record: &Record) -> Done {
    let plain = || record.numbered().filter(|(_, node)| node.drive.is_none());
    if plain().next().is_none() {
        return Ok(());
    }
    let mut group = Throttle::new(&place.name()).map_err(failed)?;
    group.leave();
    for (number, node) in plain() {
        let device = record.device(place, number)?;
        group.limit(&device, node.disk_rate).map_err(failed)?;
        group.limit_writes(&device, node.disk_rate).map_err(failed)?;
        group.add(server(place, &data_name(number))?).map_err(failed)?;
    }
    Ok(())
}

/// The process of a server.
fn server(place: &Place, name: &str) -> Done<i32> {
    let gone = || Failure::new(format!("{name} has ended"));
    let server = Process::from_file(&place.cluster().pid_file(name)).ok_or_else(gone)?;
    Ok(server.id())
}

/// Limits the memory of each node's servers, if that was requested.
fn limit_memory(place: &Place, record: &Record) -> Done {
    let limited = record.numbered().filter_map(|(number, node)| Some((number, node.memory?)));
    for (number, bytes) in limited {
        let memory = Memory::new(&place.memory_name(number), bytes).map_err(failed)?;
        let mut memory = memory.ok_or_else(|| {
            Failure::new("--memory needs the memory controller of cgroup v1").hint("leave it out")
        })?;
        memory.leave();
        memory.add(server(place, &data_name(number))?).map_err(failed)?;
        if number == META_NODE {
            memory.add(server(place, META)?).map_err(failed)?;
        }
    }
    Ok(())
}

fn report(place: &Place, record: &Record) -> String {
    let (nodes, first) = (record.nodes.len(), record.nodes.first());
    let clients = match record.clients {
        0 => String::new(),
        n => format!(" and {n} for clients"),
    };
    let kind = match first.and_then(|node| node.drive) {
        Some(_) => "with a head",
        None => "limited by the kernel",
    };
    let links = megabytes(record.link_rate);
    let dir = place.dir().display();
    let with = |verb: &str, rest: &str| format!("  weir testbed {verb} --dir {dir}{rest}\n");
    format!(
        "Testbed {} is up: {nodes} nodes with a disk each{clients}\nDisks are {kind}; links carry \
         {links} MB/s each way\nAll of it is in {}\n\n{}{}{}{}",
        record.profile,
        dir,
        with("run", " 1 -- weir mount DIRECTORY"),
        with("status", ""),
        with("perturb", " --disk 1 --share 50% --seconds 10"),
        with("down", ""),
    )
}
