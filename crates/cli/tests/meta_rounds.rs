//! Three metadata servers and three members of etcd, of which one is killed, stopped or cut off again
//! and again, under load with two copies. Nothing that was acknowledged is lost, nothing fails, and
//! the longest time without an acknowledgement is printed.
//!
//! `WEIR_META_ROUNDS` says how many rounds, `WEIR_META_SEED` repeats a course.

use crate::failover::{Told, told_while};
use crate::harness::{Place, Running, eventually, kill_and_wait};
use crate::link::Link;
use crate::several_metas::{Metas, daemon, free_address, list, set};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const MEMBERS: usize = 3;
const DEFAULT_ROUNDS: u64 = 3;

/// What happens to a process, or to its connections.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Killed,
    Stopped,
    CutOff,
}

struct Trio<'a> {
    place: &'a Place,
    shared: Metas,
    /// Where each metadata server listens, for itself and for the others.
    metas: [Link; MEMBERS],
    members: [Option<Running>; MEMBERS],
    /// From each metadata server to each member of etcd.
    to_etcd: Vec<Link>,
    etcd: [Option<Running>; MEMBERS],
    etcd_addresses: [[String; 2]; MEMBERS],
    _data: Vec<Running>,
}

impl<'a> Trio<'a> {
    fn start(place: &'a Place) -> Option<Self> {
        if Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_err() {
            println!("skipped: needs etcd");
            return None;
        }
        let cluster = place.up("trio", &["--targets", "2", "--copies", "2"]);
        cluster.down(&[]);
        let from = cluster.dir();
        let dir = place.path("trio");
        fs::rename(&from, &dir).unwrap();
        drop(cluster);
        let etcd_addresses = [(); MEMBERS].map(|()| [free_address(), free_address()]);
        let metas = [(); MEMBERS].map(|()| Link::to(free_address()));
        let pairs = (0..MEMBERS).flat_map(|meta| (0..MEMBERS).map(move |etcd| (meta, etcd)));
        let to_etcd = pairs.map(|(_, etcd)| Link::to(etcd_addresses[etcd][0].clone())).collect();
        let addresses: Vec<String> = metas.iter().map(|link| link.address.clone()).collect();
        set(&dir.join("client.toml"), &[("metadata", list(&addresses))]);
        let mut trio = Self {
            place,
            shared: Metas { dir, addresses },
            metas,
            members: [const { None }; MEMBERS],
            to_etcd,
            etcd: [const { None }; MEMBERS],
            etcd_addresses,
            _data: Vec::new(),
        };
        (0..MEMBERS).for_each(|member| trio.begin_etcd(member));
        (0..MEMBERS).for_each(|member| trio.configure(member));
        trio.begin(0);
        trio._data = trio.shared.start_data(place, &from);
        trio.shared.all_online(2);
        // They have nothing, and get a snapshot.
        (1..MEMBERS).for_each(|member| trio.begin(member));
        trio.all_follow();
        Some(trio)
    }

    fn configure(&self, member: usize) {
        let path = self.config_file(member);
        fs::copy(self.shared.dir.join("meta.toml"), &path).unwrap();
        let etcd: Vec<String> = (0..MEMBERS)
            .map(|etcd| format!("http://{}", self.to_etcd[member * MEMBERS + etcd].address))
            .collect();
        let journal: toml::Table =
            format!("etcd = {etcd:?}\nmember = \"m{member}\"").parse().unwrap();
        let own = self.shared.dir.join(if member == 0 {
            "meta".into()
        } else {
            format!("meta-{member}")
        });
        let listen = [self.metas[member].target.clone()];
        let master = self.shared.dir.join("keys/master.key");
        set(
            &path,
            &[
                ("dir", own.to_str().unwrap().into()),
                ("listen", list(&listen)),
                ("master_key_file", master.to_str().unwrap().into()),
                ("journal", journal.into()),
            ],
        );
    }

    fn config_file(&self, member: usize) -> PathBuf {
        self.shared.dir.join(format!("m{member}.toml"))
    }

    fn begin(&mut self, member: usize) {
        self.members[member] = Some(daemon(self.place, "meta", &self.config_file(member)));
    }

    fn begin_etcd(&mut self, member: usize) {
        let url = |address: &String| format!("http://{address}");
        let peers: Vec<String> = self
            .etcd_addresses
            .iter()
            .enumerate()
            .map(|(n, [_, peer])| format!("e{n}={}", url(peer)))
            .collect();
        let [client, peer] = self.etcd_addresses[member].each_ref().map(url);
        let data = self.place.path(&format!("etcd-{member}"));
        let etcd = Command::new("etcd")
            .args(["--name", &format!("e{member}"), "--data-dir", data.to_str().unwrap()])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &peers.join(","), "--log-level", "error"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.etcd[member] = Some(Running(etcd.unwrap()));
    }

    fn leader(&self) -> usize {
        let mut leader = None;
        eventually("one leads", || {
            leader = (0..MEMBERS).find(|member| self.shared.asks(*member).is_ok());
            leader.is_some()
        });
        leader.unwrap()
    }

    /// Waits until all but the one that leads stand by.
    fn all_follow(&self) {
        eventually("all stand by", || {
            (0..MEMBERS).filter(|member| self.shared.stands_by(*member)).count() == MEMBERS - 1
        });
    }

    fn cut_off(&self, member: usize, cut: bool) {
        self.metas[member].cut(cut);
        (0..MEMBERS).for_each(|etcd| self.to_etcd[member * MEMBERS + etcd].cut(cut));
    }

    fn cut_off_etcd(&self, etcd: usize, cut: bool) {
        (0..MEMBERS).for_each(|member| self.to_etcd[member * MEMBERS + etcd].cut(cut));
    }

    fn harm(&mut self, fault: Fault, leader: Option<usize>, etcd: Option<usize>) {
        match fault {
            Fault::Killed => {
                for (running, which) in [(&mut self.members, leader), (&mut self.etcd, etcd)] {
                    if let Some(killed) = which.and_then(|which| running[which].take()) {
                        kill_and_wait(killed.0.id() as i32);
                    }
                }
            }
            Fault::Stopped => self.signal(leader, etcd, Signal::STOP),
            Fault::CutOff => self.cut(leader, etcd, true),
        }
    }

    fn heal(&mut self, fault: Fault, leader: Option<usize>, etcd: Option<usize>) {
        match fault {
            Fault::Killed => {
                leader.into_iter().for_each(|member| self.begin(member));
                etcd.into_iter().for_each(|member| self.begin_etcd(member));
            }
            Fault::Stopped => self.signal(leader, etcd, Signal::CONT),
            Fault::CutOff => self.cut(leader, etcd, false),
        }
    }

    fn signal(&self, leader: Option<usize>, etcd: Option<usize>, signal: Signal) {
        for (running, which) in [(&self.members, leader), (&self.etcd, etcd)] {
            if let Some(running) = which.and_then(|which| running[which].as_ref()) {
                kill_process(Pid::from_child(&running.0), signal).unwrap();
            }
        }
    }

    fn cut(&self, leader: Option<usize>, etcd: Option<usize>, cut: bool) {
        leader.into_iter().for_each(|member| self.cut_off(member, cut));
        etcd.into_iter().for_each(|member| self.cut_off_etcd(member, cut));
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

#[test]
fn nothing_acknowledged_is_lost_whatever_happens_to_the_leader_and_to_a_member_of_etcd() {
    let rounds = number("WEIR_META_ROUNDS").unwrap_or(DEFAULT_ROUNDS);
    let seed = number("WEIR_META_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    println!("{rounds} rounds: WEIR_META_SEED={seed}");
    let mut dice = fastrand::Rng::with_seed(seed);
    let place = Place::new();
    let Some(mut trio) = Trio::start(&place) else { return };
    let clients = [0, 1].map(|_| trio.shared.client());
    let told = Told::default();
    told_while(&told, &clients, || {
        for round in 0..rounds {
            let fault = [Fault::Killed, Fault::Stopped, Fault::CutOff][dice.usize(..3)];
            let (of_leader, of_etcd) =
                [(true, false), (false, true), (true, true)][dice.usize(..3)];
            let leader = of_leader.then(|| trio.leader());
            let etcd = of_etcd.then(|| dice.usize(..MEMBERS));
            let before = told.count();
            trio.harm(fault, leader, etcd);
            eventually("they write on", || told.count() > before + 10);
            trio.heal(fault, leader, etcd);
            trio.all_follow();
            println!(
                "round {round}: {fault:?}: leader {leader:?}, etcd {etcd:?}; longest so far {:?}, {} files",
                told.longest_stall(),
                told.count()
            );
        }
    });
    told.check(&trio.shared.client());
    println!("longest time without an acknowledgement: {:?}", told.longest_stall());
}
