//! `weir testbed status`: shows nodes, disks and links with the kernel's counters.

use super::failed;
use super::profiles::megabytes;
use super::record::{Place, Record, head_name};
use crate::args::TestbedStatus;
use crate::cluster::daemon::data_name;
use crate::cluster::process::Process;
use crate::failure::Done;
use crate::output::{Table, human_size, print, print_json};
use serde::Serialize;
use weir_testbed::{Counts, Drive};

/// The status of a node.
#[derive(Serialize)]
struct Row {
    node: u32,
    address: String,
    /// The status of its disk, if it has one.
    disk: Option<DiskRow>,
    link: LinkRow,
}

#[derive(Serialize)]
struct DiskRow {
    device: String,
    at: std::path::PathBuf,
    /// The file in which the disk is stored.
    file: std::path::PathBuf,
    bytes_per_s: u64,
    /// Of the node's servers, if it is limited.
    memory_bytes: Option<u64>,
    drive: Option<Drive>,
    /// The counters since the testbed was made.
    #[serde(flatten)]
    counts: Counts,
    /// Whether the data server is running, and for a disk with a head also its daemon.
    serves: bool,
}

#[derive(Serialize)]
struct LinkRow {
    bytes_per_s: u64,
    out_bytes: u64,
    in_bytes: u64,
}

#[derive(Serialize)]
struct All {
    profile: String,
    /// The name of the network and of the process group.
    name: String,
    dir: std::path::PathBuf,
    cluster: std::path::PathBuf,
    nodes: Vec<Row>,
}

/// Runs `weir testbed status`.
pub fn run(status: &TestbedStatus) -> Done {
    let place = Place::of(&status.choice)?;
    let record = place.required()?;
    let nodes = record.network(&place).nodes();
    let nodes = nodes.map(|node| row(&place, &record, node)).collect::<Done<Vec<Row>>>()?;
    if status.json {
        let (profile, name) = (record.profile, place.name());
        let (dir, cluster) = (place.dir().to_owned(), place.cluster().dir().to_owned());
        return print_json(&All { profile, name, dir, cluster, nodes });
    }
    let titles =
        ["NODE", "ADDRESS", "DISK", ">MB/s", ">READ", ">WRITTEN", ">LINK MB/s", ">OUT", ">IN"];
    let mut table = Table::new(&titles);
    for row in &nodes {
        let mut cells = vec![row.node.to_string(), row.address.clone()];
        cells.extend(match &row.disk {
            Some(disk) => {
                let device = match disk.serves {
                    true => disk.device.clone(),
                    false => format!("{} (not served)", disk.device),
                };
                let sizes = [disk.counts.read_bytes, disk.counts.written_bytes].map(human_size);
                let [read, written] = sizes;
                [device, megabytes(disk.bytes_per_s), read, written]
            }
            None => ["-", "", "", ""].map(str::to_owned),
        });
        let LinkRow { bytes_per_s, out_bytes, in_bytes } = row.link;
        cells.extend([megabytes(bytes_per_s), human_size(out_bytes), human_size(in_bytes)]);
        table.row(cells);
    }
    print(&table.render())
}

fn row(place: &Place, record: &Record, node: u32) -> Done<Row> {
    let network = record.network(place);
    let link = network.counts(node).map_err(failed)?;
    let of_disk = record.node(node).ok().map(|of| -> Done<DiskRow> {
        let server = place.cluster().pid_file(&data_name(node));
        let head = place.files().pid_file(&head_name(node));
        let runs = |file| Process::from_file(file).is_some();
        Ok(DiskRow {
            device: record.device(place, node)?.node(),
            at: place.disk(node),
            file: place.backing(node, of.drive),
            bytes_per_s: of.disk_rate,
            memory_bytes: of.memory,
            drive: of.drive,
            counts: record.disk_counts(place, node)?,
            serves: runs(&server) && (of.drive.is_none() || runs(&head)),
        })
    });
    let (out_bytes, in_bytes) = (link.out_bytes, link.in_bytes);
    Ok(Row {
        node,
        address: network.address(node).to_string(),
        disk: of_disk.transpose()?,
        link: LinkRow { bytes_per_s: record.link_rate, out_bytes, in_bytes },
    })
}
