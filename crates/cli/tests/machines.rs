//! A cluster of several machines, set up as `docs/operating.md` says: three commands on each. A
//! machine here has a network, a name and mounts of its own, and its servers listen there alone.

use crate::harness::{
    self, Place, Running, Said, WEIR, eventually, kill_and_wait, noise, root, said,
};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use weir_testbed::{ETHERNET_QUEUE, Network};

/// Bytes a second of each link.
const LINK: u64 = 1 << 30;

/// One machine, as long as it is kept.
pub struct Machine<'a> {
    place: &'a Place,
    number: u32,
    /// Keeps its namespaces.
    holder: Running,
}

impl<'a> Machine<'a> {
    /// On a node of a network, with an empty disk.
    pub fn new(place: &'a Place, network: &Network, number: u32) -> Self {
        let script = "hostname $1; mkdir -p /run/weir; mount -t tmpfs none /run/weir
             mount -t tmpfs none $2; echo ready; exec sleep 1000";
        std::fs::create_dir_all(place.path("disk")).unwrap();
        let mut command = network.command(number, OsStr::new("unshare"));
        command.args(["--mount", "--uts", "sh", "-ec", script, "sh", &format!("node{number}")]);
        place.prepare(command.arg(place.path("disk")));
        let mut holder = Running(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(holder.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { place, number, holder }
    }

    /// Something on its disk, which others do not see.
    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path("disk").join(name)
    }

    pub fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        let target = self.holder.0.id().to_string();
        command.args(["--target", &target, "--mount", "--uts", "--net", "--", program]);
        self.place.prepare(command.args(arguments));
        command.env("XDG_STATE_HOME", self.path("state"));
        command
    }

    pub fn weir(&self, arguments: &[&str]) -> Said {
        said(self.command(WEIR, arguments))
    }

    pub fn run(&self, program: &str, arguments: &[&str]) -> String {
        said(self.command(program, arguments)).ok()
    }

    /// What another machine does with an invitation.
    pub fn join(&self, invitation: &str, more: &[&str]) -> Said {
        let data = self.path("disks/a");
        let mut command = self.command(WEIR, &["join", "--data", data.to_str().unwrap()]);
        command.args(more).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut joining = command.spawn().unwrap();
        joining.stdin.take().unwrap().write_all(invitation.as_bytes()).unwrap();
        let output = joining.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    fn mount(&self) {
        self.weir(&["mount", self.path("mnt/weir").to_str().unwrap()]).ok();
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        let _ = self.weir(&["down", "--force", "--purge", "--yes"]);
        // Whatever went wrong with that: nothing of this test stays behind.
        for process in std::fs::read_dir("/proc").unwrap().flatten() {
            let pid = process.file_name().to_string_lossy().parse().unwrap_or(0);
            let own = self.holder.0.id();
            let place = |pid: u32| std::fs::read_link(format!("/proc/{pid}/ns/uts")).ok();
            if pid != 0 && harness::is_ours(pid) && place(pid as u32) == place(own) {
                harness::kill_and_wait(pid);
            }
        }
        println!("node{} is gone", self.number);
    }
}

/// The page of metrics at an address, as a node of the network gets it.
fn metrics(network: &Network, node: u32, address: &str) -> String {
    let address: SocketAddr = address.parse().unwrap();
    let get = || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    };
    network.within(node, get).unwrap()
}

#[test]
fn three_machines_join_with_three_commands_each_and_one_may_fail() {
    if !root() {
        return;
    }
    if let Some(missing) = weir_testbed::missing_for_networks() {
        eprintln!("skipped: {missing}");
        return;
    }
    let place = Place::new();
    let network =
        Network::make(&format!("weir-j{}", std::process::id()), &[LINK; 3], ETHERNET_QUEUE)
            .unwrap();
    let [first, second, third] = [1, 2, 3].map(|number| Machine::new(&place, &network, number));
    let at: Ipv4Addr = network.address(1);
    let listen = at.to_string();

    let up = ["up", "--listen", &listen, "--port", "7700", "--targets", "1", "--metrics", &listen];
    assert!(first.weir(&up).ok().contains("weir invite"), "it says how others join");
    first.mount();
    let invitation = first.weir(&["invite"]).ok();
    assert_eq!(invitation.lines().count(), 1, "it is one line");
    second.join(&invitation, &[]).ok();
    // Without `--port`: what docs/operating.md says that a firewall has to let in.
    let (config, address) = (second.path("state/weir"), network.address(2));
    let listens = second.run("sh", &["-c", "cat \"$0\"/*/data-2.toml", config.to_str().unwrap()]);
    assert!(listens.contains(&format!("listen = \"{address}:7701\"")), "{listens}");
    let listens = second.run("ss", &["-Hltn"]);
    assert!(listens.contains(&format!("{address}:7701 ")), "{listens}");
    second.mount();
    let again = third.join(&invitation, &[]).fails(&["has been used", "weir invite"]);
    assert!(!again.contains(invitation.trim()), "a secret was shown");
    let invitation = first.weir(&["invite"]).ok();
    third.join(&invitation, &["--port", "7701", "--metrics", &network.address(3).to_string()]).ok();
    third.mount();

    // One cluster: each has the others' files, with copies on machines of their own.
    let bytes = noise(3 << 20, 7);
    let file = second.path("mnt/weir/file");
    first.weir(&["setlayout", "--copies", "2", "--count", "3", "weir:/"]).ok();
    std::fs::write(place.path("bytes"), &bytes).unwrap();
    let copy = [place.path("bytes"), file.clone()].map(|path| path.display().to_string());
    second.run("cp", &[&copy[0], &copy[1]]);
    third.run("cmp", &[&copy[0], &copy[1]]);
    let targets = first.weir(&["targets", "--json"]).json();
    let of = |name: &str| -> Vec<String> {
        let all = targets.as_array().unwrap().iter();
        all.map(|target| target[name].to_string()).collect()
    };
    assert_eq!(of("host"), ["\"node1\"", "\"node2\"", "\"node3\""]);
    for machine in [&first, &second, &third] {
        eventually("all is well", || machine.weir(&["status"]).code == Some(0));
    }
    let keys = first.weir(&["key", "list"]).ok();
    assert!(keys.contains("for the machine of data-2"), "its key can be revoked: {keys}");
    // A joined machine is no administrator, and can invite nobody.
    second.weir(&["invite"]).fails(&["weir invite"]);
    second.weir(&["target", "drain", "1"]).fails(&["administrator"]);

    // Metrics are had from elsewhere, at the addresses that `weir status` shows.
    let status = first.weir(&["status", "--json"]).json();
    assert_eq!(status["daemons"][0]["metrics"], format!("{listen}:7702"), "{status}");
    let page = metrics(&network, 2, &format!("{listen}:7702"));
    assert!(page.contains("weir_target_state{target=\"1\",server=\"1\",state=\"online\"} 1"));
    let address = format!("{}:7702", network.address(3));
    assert!(metrics(&network, 1, &address).contains("weir_target_written_bytes_total"));

    // A machine fails, and comes back as `weir up` starts it.
    let server = third.weir(&["status", "--json"]).json()["daemons"][0]["pid"].to_string();
    third.run("kill", &["-9", &server]);
    let lost = || first.weir(&["status"]).out.contains("is offline since");
    eventually("it is missed", lost);
    second.run("cmp", &[&copy[0], &copy[1]]);
    assert!(third.weir(&["status"]).out.contains("data-3 does not run\n  -> `weir up`"));
    third.weir(&["up"]).ok();
    eventually("all is well again", || first.weir(&["status"]).code == Some(0));
    third.run("cmp", &[&copy[0], &copy[1]]);

    // Its disk fails for good, and is replaced as `weir status` says.
    let server = third.weir(&["status", "--json"]).json()["daemons"][0]["pid"].to_string();
    kill_and_wait(server.parse().unwrap());
    third.run("rm", &["-r", third.path("disks/a").to_str().unwrap()]);
    third.weir(&["up"]).fails(&["is missing (is its disk mounted?)"]);
    let advice = "`weir invite --replace 3 | ssh node3 weir join --data DIRECTORY`";
    eventually("it is missed", || first.weir(&["status"]).out.contains(advice));
    let mut inviting = first.command(WEIR, &["invite", "--replace", "3", "--yes"]);
    let mut inviting = inviting.stdout(Stdio::piped()).spawn().unwrap();
    let disk = third.path("disks/b");
    let mut joining = third.command(WEIR, &["join", "--data", disk.to_str().unwrap()]);
    joining.stdin(inviting.stdout.take().unwrap());
    said(joining).ok();
    assert!(inviting.wait().unwrap().success());
    eventually("all is well again", || first.weir(&["status"]).code == Some(0));
    first.weir(&["fsck"]).ok();
    third.run("cmp", &[&copy[0], &copy[1]]);
}
