//! The machines of the papers' measurements, and a newer one: nodes, disks and links.

use crate::model::Drive;
use crate::network::{ETHERNET_QUEUE, MYRINET_QUEUE};
use serde::Serialize;

/// A set of machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Profile {
    /// Its name.
    pub name: &'static str,
    /// What it stands for.
    pub about: &'static str,
    /// The source of its figures.
    pub source: &'static str,
    /// Number of nodes, each with a disk and a data server.
    pub nodes: u32,
    /// Rate of each node's disk, bytes per second. The last one applies to all further nodes.
    pub disk_rates: &'static [u64],
    /// Memory of each node, bytes. Empty: unknown, or not limited.
    pub memory: &'static [u64],
    /// The behaviour of disk heads; `None`: a disk is limited by its rate alone.
    pub head: Option<Mechanics>,
    /// Rate of a link in each direction, bytes per second.
    pub link_rate: u64,
    /// Queue of a link, bytes; further frames are lost.
    pub link_queue: u64,
    /// All rates are divided by this, so that two cores can carry them.
    pub scale: u64,
}

/// Properties of a drive besides its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Mechanics {
    /// See [`Drive`].
    pub positioning_us: u64,
    /// See [`Drive`].
    pub overhead_us: u64,
    /// See [`Drive`].
    pub streams: usize,
    /// See [`Drive`].
    pub prefetch_bytes: u64,
}

const MB: u64 = 1_000_000;
const KB: u64 = 1_000;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Results of `hdparm` on the disks in Arkansas. Node 0 has another disk, [`NFS_RATE`].
const ARKANSAS_RATES: [u64; 8] =
    [12_650 * KB, 13 * MB, 13 * MB, 13 * MB, 18 * MB, 18 * MB, 18 * MB, 18_440 * KB];
/// Four machines of each kind.
const ARKANSAS_MEMORY: [u64; 8] =
    [256 * MIB, 256 * MIB, 256 * MIB, 256 * MIB, 128 * MIB, 128 * MIB, 128 * MIB, 128 * MIB];
/// The disk in Arkansas that holds NFS's file only.
pub const NFS_RATE: u64 = 19_280 * KB;
const ARKANSAS_HEAD: Mechanics =
    Mechanics { positioning_us: 8_000, overhead_us: 300, streams: 8, prefetch_bytes: 256 << 10 };
/// Rate of a NASD drive.
const NASD_RATE: u64 = 6_200 * KB;
/// Payload rate of an OC-3 ATM link.
const OC3_RATE: u64 = 17_600 * KB;

/// All profiles.
pub const ALL: [Profile; 9] = [
    Profile {
        name: "arkansas",
        about: "8 Pentium III and II, IDE and SCSI disks, switched Fast Ethernet",
        source: "where PVFS was compared with NFS; rates by hdparm, on node 0 that of PVFS's disk",
        nodes: 8,
        disk_rates: &ARKANSAS_RATES,
        memory: &ARKANSAS_MEMORY,
        head: None,
        link_rate: 12_500 * KB,
        link_queue: ETHERNET_QUEUE,
        scale: 1,
    },
    Profile {
        name: "arkansas-heads",
        about: "the same, with disks that have heads",
        source: "8 ms to another place are assumed: a short seek and half a turn of such disks",
        nodes: 8,
        disk_rates: &ARKANSAS_RATES,
        memory: &ARKANSAS_MEMORY,
        head: Some(ARKANSAS_HEAD),
        link_rate: 12_500 * KB,
        link_queue: ETHERNET_QUEUE,
        scale: 1,
    },
    Profile {
        name: "act",
        about: "ACT: 7 dual Pentium III, two disks as a RAID, Myrinet",
        source: "announced by the paper on PVFS and NFS, without rates: two disks of 18 MB/s, \
            PrairieFire's Myrinet; --link-rate 12500kB has the rate of its Fast Ethernet",
        nodes: 7,
        disk_rates: &[36 * MB],
        memory: &[GIB; 7],
        head: None,
        link_rate: 126_500 * KB,
        link_queue: MYRINET_QUEUE,
        scale: 1,
    },
    Profile {
        name: "now",
        about: "NOW: 16 UltraSPARC 1, one SCSI disk each (ST32430WC), Myrinet",
        source: "River: outer tracks, streams that turn cost 12 ms and what the drive read ahead",
        nodes: 16,
        disk_rates: &[5_450 * KB],
        memory: &[],
        head: Some(Mechanics {
            positioning_us: 12_000,
            overhead_us: 300,
            streams: 1,
            prefetch_bytes: 256 << 10,
        }),
        link_rate: 40 * MB,
        link_queue: MYRINET_QUEUE,
        scale: 1,
    },
    Profile {
        name: "nasd",
        about: "8 NASD drives and their clients, OC-3 ATM",
        source: "NASD: 6.2 MB/s for each drive; 155.52 Mb/s, of which cells carry 48 of 53 bytes",
        nodes: 8,
        disk_rates: &[NASD_RATE],
        memory: &[],
        head: None,
        link_rate: OC3_RATE,
        link_queue: ETHERNET_QUEUE,
        scale: 1,
    },
    Profile {
        name: "nasd-heads",
        about: "the same, with disks that have heads",
        source: "7.5 MB/s of two Medallists; 12 ms to another place are assumed",
        nodes: 8,
        disk_rates: &[7_500 * KB],
        memory: &[],
        head: Some(Mechanics {
            positioning_us: 12_000,
            overhead_us: 300,
            streams: 8,
            prefetch_bytes: 128 << 10,
        }),
        link_rate: OC3_RATE,
        link_queue: ETHERNET_QUEUE,
        scale: 1,
    },
    Profile {
        name: "prairiefire",
        about: "PrairieFire: 8 of 128 dual Athlons, IDE disks, Myrinet; a quarter of all rates",
        source: "CEFT-PVFS: Netperf 126.5 MB/s, Bonnie 26 MB/s: links are 4.9 times disks",
        nodes: 8,
        disk_rates: &[6_500 * KB],
        memory: &[],
        head: None,
        link_rate: 31_625 * KB,
        link_queue: MYRINET_QUEUE,
        scale: 4,
    },
    Profile {
        name: "disc",
        about: "DISC: 8 of 63 nodes, four SATA disks each, 10 Gb/s; a 35th of all rates",
        source: "where DiskReduce was measured; Seagate's data sheet: 105 MB/s (ES.2, 1 TB)",
        nodes: 8,
        disk_rates: &[12 * MB],
        memory: &[],
        head: None,
        link_rate: 35_714 * KB,
        link_queue: ETHERNET_QUEUE,
        scale: 35,
    },
    Profile {
        name: "modern",
        about: "4 nodes, an NVMe disk each, 10 Gb/s; a sixteenth of all rates",
        source: "data sheets: 3 GB/s in any order and 80 us, 1.25 GB/s each way",
        nodes: 4,
        disk_rates: &[187_500 * KB],
        memory: &[],
        head: Some(Mechanics {
            positioning_us: 0,
            overhead_us: 80,
            streams: 64,
            prefetch_bytes: 0,
        }),
        link_rate: 78_125 * KB,
        link_queue: ETHERNET_QUEUE,
        scale: 16,
    },
];

/// Changes to a profile.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes {
    /// Number of nodes.
    pub nodes: Option<u32>,
    /// Rate of all disks.
    pub disk_rate: Option<u64>,
    /// Rate of all links in each direction.
    pub link_rate: Option<u64>,
}

/// A profile with changes applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Rate of each node's disk.
    pub disk_rates: Vec<u64>,
    /// The behaviour of disk heads.
    pub head: Option<Mechanics>,
    /// Rate of a link in each direction.
    pub link_rate: u64,
    /// Queue of a link, bytes.
    pub link_queue: u64,
}

impl Profile {
    /// The profile with this name.
    pub fn of(name: &str) -> Option<&'static Self> {
        static PROFILES: [Profile; 9] = ALL;
        PROFILES.iter().find(|profile| profile.name == name)
    }

    /// The profile with these changes.
    pub fn plan(&self, wishes: Wishes) -> Plan {
        let last = self.disk_rates.last().copied().unwrap_or(MB);
        let rate = |node: usize| self.disk_rates.get(node).copied().unwrap_or(last);
        let nodes = wishes.nodes.unwrap_or(self.nodes) as usize;
        Plan {
            disk_rates: (0..nodes).map(|node| wishes.disk_rate.unwrap_or(rate(node))).collect(),
            head: self.head,
            link_rate: wishes.link_rate.unwrap_or(self.link_rate),
            link_queue: self.link_queue,
        }
    }
}

impl Plan {
    /// The drive of a node, counted from 0, if it has a head.
    pub fn drive(&self, node: usize) -> Option<Drive> {
        let Mechanics { positioning_us, overhead_us, streams, prefetch_bytes } = self.head?;
        let bytes_per_s = *self.disk_rates.get(node)?;
        let zones = None;
        Some(Drive { bytes_per_s, positioning_us, overhead_us, streams, prefetch_bytes, zones })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_say_what_the_papers_say() {
        let plan = |name| Profile::of(name).unwrap().plan(Wishes::default());
        let arkansas = plan("arkansas");
        assert_eq!((arkansas.link_queue, plan("now").link_queue), (ETHERNET_QUEUE, MYRINET_QUEUE));
        assert_eq!(
            (arkansas.disk_rates.len(), arkansas.link_rate, arkansas.drive(0)),
            (8, 12_500_000, None)
        );
        let memory = Profile::of("arkansas").unwrap().memory;
        assert_eq!(memory.iter().sum::<u64>(), (4 * (256 + 128)) << 20);
        assert_eq!(Profile::of("act").unwrap().memory, [1 << 30; 7]);
        let heads = plan("arkansas-heads");
        assert_eq!(
            (&heads.disk_rates, heads.link_rate),
            (&arkansas.disk_rates, arkansas.link_rate)
        );
        assert_eq!(heads.drive(0).map(|drive| drive.positioning_us), Some(8_000));
        // In Arkansas the network is slower than the disks, on PrairieFire the disks are slower.
        assert!(arkansas.disk_rates.iter().all(|rate| *rate > arkansas.link_rate));
        let fire = plan("prairiefire");
        let ratio = fire.link_rate as f64 / fire.disk_rates[0] as f64;
        assert!((4.8..4.95).contains(&ratio), "{ratio}");
        let disc = plan("disc");
        let ratio = disc.link_rate as f64 / disc.disk_rates[0] as f64;
        assert!((2.97..2.98).contains(&ratio), "1250 MB/s of links, 420 of disks: {ratio}");
        let now = plan("now").drive(15).unwrap();
        assert_eq!((now.bytes_per_s, now.positioning_us, now.streams), (5_450_000, 12_000, 1));
        let (nasd, heads) = (plan("nasd"), plan("nasd-heads"));
        assert_eq!((nasd.disk_rates[7], nasd.drive(0)), (6_200_000, None));
        assert_eq!(heads.drive(0).map(|drive| drive.bytes_per_s), Some(7_500_000));
        assert!(nasd.link_rate == heads.link_rate && 2 * nasd.link_rate > 35_000_000);
        assert!(Profile::of("pdp11").is_none());
    }

    #[test]
    fn flags_are_over_a_profile() {
        let wishes = Wishes { nodes: Some(9), disk_rate: None, link_rate: Some(1_000_000) };
        let plan = Profile::of("arkansas").unwrap().plan(wishes);
        assert_eq!((plan.disk_rates[0], plan.disk_rates[8]), (12_650_000, 18_440_000));
        assert_eq!(plan.link_rate, 1_000_000);
        let wishes = Wishes { nodes: Some(2), disk_rate: Some(7), link_rate: None };
        let plan = Profile::of("now").unwrap().plan(wishes);
        assert_eq!(plan.disk_rates, [7, 7]);
        assert_eq!(plan.drive(1).unwrap().bytes_per_s, 7);
    }
}
