//! A network namespace for each node, and one with a bridge (the switch) that joins them by links
//! of a set speed.
//!
//! Each link is a veth pair with a token bucket at both ends, so that it carries its rate in each
//! direction. The kernel counts at the switch's end. All names derive from the network's name: with
//! it and the number of nodes, another process can use or remove the network.

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

/// Where the system keeps named namespaces.
const NAMESPACES: &str = "/run/netns";
/// The name of each link's end in its node.
pub(crate) const CABLE: &str = "cable";
/// Minimum capacity of a token bucket: more than the largest packet that the kernel passes down in
/// one piece (64 KiB). At higher rates it is the amount of this part of a second.
const BURST_BYTES: u64 = 128 << 10;
const BURSTS_PER_S: u64 = 1_000;
/// Queue of an Ethernet link, bytes; further frames are lost, as in a switch.
pub const ETHERNET_QUEUE: u64 = 1 << 20;
/// Queue of a Myrinet link. Myrinet loses nothing, because senders wait (flow control at every
/// link; Boden and others, IEEE Micro 15(1), 1995). So the queue is practically unlimited.
pub const MYRINET_QUEUE: u64 = 256 << 20;
/// The network of all addresses, 24 bits.
const NETWORK: [u8; 3] = [10, 214, 8];
/// TCP congestion control: Linux's default, whatever this machine is set to. BBR would take the
/// burst of a token bucket for the link's rate.
const CONGESTION: &str = "cubic";
/// Last byte of the switch's address, for processes that only load links. Nodes begin at 1.
const SWITCH: u8 = 254;
/// Maximum number of nodes.
const MAX_NODES: u32 = 250;

/// A network. Dropping it removes it, unless it was found or left.
#[derive(Debug)]
pub struct Network {
    name: String,
    nodes: u32,
    goes: bool,
}

/// The kernel's counters of a link since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Bytes from the node.
    pub out_bytes: u64,
    /// Bytes to the node.
    pub in_bytes: u64,
}

impl LinkCounts {
    /// The difference to an earlier count.
    pub fn since(self, before: Self) -> Self {
        Self {
            out_bytes: self.out_bytes.saturating_sub(before.out_bytes),
            in_bytes: self.in_bytes.saturating_sub(before.in_bytes),
        }
    }
}

impl Network {
    /// Makes a network with a node for each rate (bytes per second in each direction).
    /// `queue_bytes` wait before a link; further frames are lost. A failure leaves nothing behind.
    ///
    /// # Errors
    /// A network of this name exists; errors of the system.
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

    /// An existing network. Dropping the result does not remove it.
    pub fn found(name: &str, nodes: u32) -> Self {
        Self { name: name.into(), nodes, goes: false }
    }

    /// Keeps the network when this is dropped.
    pub fn leave(&mut self) {
        self.goes = false;
    }

    /// Removes a network, even if only parts of it exist.
    ///
    /// # Errors
    /// Those of the system.
    pub fn remove(name: &str) -> Result<()> {
        namespaces(name)?.iter().try_for_each(|name| run("ip", &["netns", "del", name]).map(drop))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Numbers of the nodes.
    pub fn nodes(&self) -> std::ops::RangeInclusive<u32> {
        1..=self.nodes
    }

    /// The address of a node; 0 is the switch.
    pub fn address(&self, node: u32) -> Ipv4Addr {
        // The number of nodes is limited, so this always fits.
        let last = if node == 0 { SWITCH } else { u8::try_from(node).unwrap_or(u8::MAX) };
        let [a, b, c] = NETWORK;
        Ipv4Addr::new(a, b, c, last)
    }

    /// The file through which a node's network is entered; node 0 is the switch.
    pub fn entrance(&self, node: u32) -> PathBuf {
        Path::new(NAMESPACES).join(self.namespace(node))
    }

    /// A command that runs in the network of a node, with the same files and mounts as this
    /// process.
    pub fn command(&self, node: u32, program: &OsStr) -> Command {
        enter(&self.entrance(node), program)
    }

    /// Runs a function in the network of a node. Sockets made there stay in that network.
    ///
    /// # Errors
    /// There is no such node; this process is not root.
    pub fn within<T: Send>(&self, node: u32, work: impl FnOnce() -> T + Send) -> Result<T> {
        let path = self.entrance(node);
        let entrance = File::open(&path)
            .map_err(|e| Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        // In a thread of its own, which does not leave the network.
        let inside = move || {
            rustix::thread::move_into_link_name_space(entrance.as_fd(), None)?;
            Ok(work())
        };
        let joined = scope(|scope| scope.spawn(inside).join());
        joined.map_err(|_| Error::other("a thread in a network has panicked"))?
    }

    /// Sets the rule of congestion control by which all nodes send on connections made from now on.
    ///
    /// # Errors
    /// The kernel does not know the rule; this process is not root.
    pub fn congestion(&self, rule: &str) -> Result<()> {
        let set = || std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", rule);
        self.nodes().try_for_each(|node| self.within(node, set)?).map_err(|error| {
            let known =
                std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
            let known = known.unwrap_or_default();
            Error::new(error.kind(), format!("{rule}: {error}; the kernel has {}", known.trim()))
        })
    }

    /// Sets the rate of a node's link in each direction (bytes per second), and its queue.
    ///
    /// # Errors
    /// There is no such node; errors of the system.
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

    /// The kernel's counters of a node's link.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn counts(&self, node: u32) -> Result<LinkCounts> {
        let port = port(node);
        let switch = self.namespace(0);
        let said = run("ip", &["-n", &switch, "-s", "-j", "link", "show", "dev", &port])?;
        let links: serde_json::Value = serde_json::from_str(&said)?;
        let bytes = |way: &str| {
            let bytes = links[0]["stats64"][way]["bytes"].as_u64();
            bytes.ok_or_else(|| Error::other(format!("ip link: not understood: {said}")))
        };
        // Bytes into the switch are bytes out of the node.
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

    /// Brings up both ends of a node's link.
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

    /// Removes the link of a node.
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
            // In a destructor the error can only be printed.
            let _ = writeln!(io::stderr(), "a network stays: {error}");
        }
    }
}

/// A program in the network with this entrance. It replaces the process that enters, so the process
/// id stays.
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

/// What the kernel lacks for a network, found out by making a small one.
pub(crate) fn unsupported() -> Option<&'static str> {
    static TRIES: AtomicU32 = AtomicU32::new(0);
    let (process, number) = (std::process::id(), TRIES.fetch_add(1, Ordering::Relaxed));
    let made = Network::make(&format!("weir-try{process}.{number}"), &[1 << 20], ETHERNET_QUEUE);
    made.is_err().then_some(
        "network namespaces, veth, bridges, token buckets (tbf) and TCP's cubic of the kernel",
    )
}
