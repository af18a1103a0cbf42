//! A network namespace for each node, and one with a bridge that joins them, by links of a set
//! speed.
//!
//! Each link is a veth pair with a token bucket at both ends, so that it carries its rate each
//! way; the kernel counts at the end in the switch. Names follow from that of the network: who
//! knows it and the number of nodes can use the network, and take it away.

use crate::run;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Error, Result, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::scope;

/// Where the system keeps namespaces by name.
const NAMESPACES: &str = "/run/netns";
/// The name of each link's end in its node.
pub(crate) const CABLE: &str = "cable";
/// A bucket holds this much, which is more than the largest packet that the kernel hands down in
/// one piece (64 KiB), or as much as passes in this part of a second.
const BURST_BYTES: u64 = 128 << 10;
const BURSTS_PER_S: u64 = 1_000;
/// So much waits before a link of Ethernet; more is lost, as in a switch.
pub const ETHERNET_QUEUE: u64 = 1 << 20;
/// Myrinet loses nothing: who would send more has to wait (flow control at every link; Boden and
/// others, IEEE Micro 15(1), 1995). So before a link waits as much as there is.
pub const MYRINET_QUEUE: u64 = 256 << 20;
/// All of them are in this network, of 24 bits.
const NETWORK: [u8; 3] = [10, 214, 8];
/// How TCP goes by what links carry: as Linux does by default, whatever this machine is set to. (One
/// that goes by how fast segments were acknowledged, BBR, takes what a token bucket lets through at
/// once for a link's rate.)
const CONGESTION: &str = "cubic";
/// Address of the switch, where those are who only load links; nodes have those from 1 on.
const SWITCH: u8 = 254;
/// The most nodes.
const MAX_NODES: u32 = 250;

/// A network that is there. Dropped, it goes, unless it was found or left.
#[derive(Debug)]
pub struct Network {
    name: String,
    nodes: u32,
    goes: bool,
}

/// What a link has carried since it was made, as the kernel counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Bytes from the node.
    pub out_bytes: u64,
    /// Bytes to the node.
    pub in_bytes: u64,
}

impl LinkCounts {
    /// What was carried after an earlier count.
    pub fn since(self, before: Self) -> Self {
        Self {
            out_bytes: self.out_bytes.saturating_sub(before.out_bytes),
            in_bytes: self.in_bytes.saturating_sub(before.in_bytes),
        }
    }
}

impl Network {
    /// Makes one with a node for each rate (bytes a second, each way), and so many bytes that wait
    /// before a link until more are lost. If it cannot be made nothing of it is left.
    ///
    /// # Errors
    /// There is one of this name; what the system says.
    pub fn make(name: &str, rates: &[u64], queue_bytes: u64) -> Result<Self> {
        let nodes = u32::try_from(rates.len()).unwrap_or(u32::MAX);
        if !(1..=MAX_NODES).contains(&nodes) {
            return Err(Error::other(format!("a network has 1 to {MAX_NODES} nodes")));
        }
        if !namespaces(name)?.is_empty() {
            return Err(Error::other(format!("there is a network {name} already")));
        }
        let network = Self { name: name.into(), nodes, goes: true };
        network.make_switch()?;
        (1..)
            .zip(rates)
            .try_for_each(|(node, rate)| network.make_node(node, *rate, queue_bytes))?;
        Ok(network)
    }

    /// One that was left; it stays.
    pub fn found(name: &str, nodes: u32) -> Self {
        Self { name: name.into(), nodes, goes: false }
    }

    /// It stays when it is dropped.
    pub fn leave(&mut self) {
        self.goes = false;
    }

    /// Takes away all of a network that is there, even if that is not all of it.
    ///
    /// # Errors
    /// What the system says.
    pub fn remove(name: &str) -> Result<()> {
        namespaces(name)?.iter().try_for_each(|name| run("ip", &["netns", "del", name]).map(drop))
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Numbers of the nodes.
    pub fn nodes(&self) -> std::ops::RangeInclusive<u32> {
        1..=self.nodes
    }

    /// The address of a node; 0 is the switch.
    pub fn address(&self, node: u32) -> Ipv4Addr {
        // No more nodes than fit are made.
        let last = if node == 0 { SWITCH } else { u8::try_from(node).unwrap_or(u8::MAX) };
        let [a, b, c] = NETWORK;
        Ipv4Addr::new(a, b, c, last)
    }

    /// The file through which a node's network is entered; 0 is the switch.
    pub fn entrance(&self, node: u32) -> PathBuf {
        Path::new(NAMESPACES).join(self.namespace(node))
    }

    /// The command in the network of a node; files and mounts are those of everybody.
    pub fn command(&self, node: u32, program: &OsStr) -> Command {
        enter(&self.entrance(node), program)
    }

    /// Does something in the network of a node: sockets that are made there stay there.
    ///
    /// # Errors
    /// There is no such node; no root.
    pub fn within<T: Send>(&self, node: u32, work: impl FnOnce() -> T + Send) -> Result<T> {
        let path = self.entrance(node);
        let entrance = File::open(&path)
            .map_err(|e| Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        // A thread of its own: it does not come back.
        let inside = move || {
            rustix::thread::move_into_link_name_space(entrance.as_fd(), None)?;
            Ok(work())
        };
        let joined = scope(|scope| scope.spawn(inside).join());
        joined.map_err(|_| Error::other("a thread in a network has panicked"))?
    }

    /// From now on the link of a node carries so many bytes a second each way, and so many bytes
    /// wait before it until more are lost.
    ///
    /// # Errors
    /// There is no such node; what the system says.
    pub fn limit(&self, node: u32, bytes_per_s: u64, queue_bytes: u64) -> Result<()> {
        let burst = BURST_BYTES.max(bytes_per_s / BURSTS_PER_S);
        let words =
            format!("tbf rate {bytes_per_s}bps burst {burst} limit {}", queue_bytes.max(burst));
        let ends = [(node, CABLE.to_owned()), (0, port(node))];
        ends.iter().try_for_each(|(place, end)| {
            let namespace = self.namespace(*place);
            let fixed = ["-n", &namespace, "qdisc", "replace", "dev", end, "root"];
            let all: Vec<&str> = fixed.into_iter().chain(words.split(' ')).collect();
            run("tc", &all).map(drop)
        })
    }

    /// What the kernel has counted of a node's link.
    ///
    /// # Errors
    /// It cannot be asked.
    pub fn counts(&self, node: u32) -> Result<LinkCounts> {
        let port = port(node);
        let switch = self.namespace(0);
        let said = run("ip", &["-n", &switch, "-s", "-j", "link", "show", "dev", &port])?;
        let links: serde_json::Value = serde_json::from_str(&said)?;
        let bytes = |way: &str| {
            let bytes = links[0]["stats64"][way]["bytes"].as_u64();
            bytes.ok_or_else(|| Error::other(format!("ip link: not understood: {said}")))
        };
        // What comes into the switch goes out of the node.
        Ok(LinkCounts { out_bytes: bytes("rx")?, in_bytes: bytes("tx")? })
    }

    fn make_switch(&self) -> Result<()> {
        let switch = self.namespace(0);
        run("ip", &["netns", "add", &switch])?;
        self.ip(0, "link add name bridge type bridge")?;
        self.ip(0, "link set dev bridge up")?;
        self.ip(0, &format!("addr add {}/24 dev bridge", self.address(0)))
    }

    fn make_node(&self, node: u32, rate: u64, queue_bytes: u64) -> Result<()> {
        let (switch, port) = (self.namespace(0), port(node));
        run("ip", &["netns", "add", &self.namespace(node)])?;
        self.ip(node, &format!("link add {CABLE} type veth peer name {port} netns {switch}"))?;
        self.limit(node, rate, queue_bytes)?;
        self.join(node)
    }

    /// The two ends of a node's link are brought into use.
    pub(crate) fn join(&self, node: u32) -> Result<()> {
        let port = port(node);
        self.ip(0, &format!("link set dev {port} master bridge"))?;
        self.ip(0, &format!("link set dev {port} up"))?;
        self.ip(node, &format!("addr add {}/24 dev {CABLE}", self.address(node)))?;
        self.ip(node, &format!("link set dev {CABLE} up"))?;
        let [a, b, c] = NETWORK;
        let all = format!("{a}.{b}.{c}.0/24");
        self.ip(node, &format!("route change {all} dev {CABLE} congctl {CONGESTION}"))?;
        self.ip(node, "link set dev lo up")
    }

    /// Takes the link of a node away.
    pub(crate) fn cut(&self, node: u32) -> Result<()> {
        self.ip(node, &format!("link del {CABLE}"))
    }

    fn ip(&self, node: u32, words: &str) -> Result<()> {
        let namespace = self.namespace(node);
        let all: Vec<&str> = ["-n", &namespace].into_iter().chain(words.split(' ')).collect();
        run("ip", &all).map(drop)
    }

    fn namespace(&self, node: u32) -> String {
        if node == 0 { self.name.clone() } else { format!("{}-{node}", self.name) }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if !self.goes {
            return;
        }
        if let Err(error) = Self::remove(&self.name) {
            // Nobody is here to be told but whoever reads what the program says.
            let _ = writeln!(io::stderr(), "a network stays: {error}");
        }
    }
}

/// A program in a network by its entrance. It takes the place of the one that enters: the number
/// of the process stays.
pub fn enter(entrance: &Path, program: &OsStr) -> Command {
    let mut network = OsString::from("--net=");
    network.push(entrance);
    let mut command = Command::new("nsenter");
    command.arg(network).arg("--").arg(program);
    command
}

/// The name of a link's end in the switch.
pub(crate) fn port(node: u32) -> String {
    format!("node{node}")
}

/// The namespaces of a network, those of nodes first.
fn namespaces(name: &str) -> Result<Vec<String>> {
    if !Path::new(NAMESPACES).exists() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(NAMESPACES)? {
        let entry = entry?.file_name().to_string_lossy().into_owned();
        let node = entry.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
        if entry == name || node.is_some_and(|node| node.parse::<u32>().is_ok()) {
            found.push(entry);
        }
    }
    found.sort_unstable_by_key(|name| std::cmp::Reverse(name.len()));
    Ok(found)
}

/// What the kernel lacks for a network; found out by making a small one.
pub(crate) fn unsupported() -> Option<&'static str> {
    static TRIES: AtomicU32 = AtomicU32::new(0);
    let (process, number) = (std::process::id(), TRIES.fetch_add(1, Ordering::Relaxed));
    let made = Network::make(&format!("weir-try{process}.{number}"), &[1 << 20], ETHERNET_QUEUE);
    made.is_err().then_some(
        "network namespaces, veth, bridges, token buckets (tbf) and TCP's cubic of the kernel",
    )
}
