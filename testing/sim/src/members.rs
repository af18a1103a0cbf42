//! Several metadata servers with one journal, under faults. Some clients make directories and
//! remember acknowledged ones. Others look up, on whatever server they are connected to, the last
//! acknowledged directory, and those that are being made. Nothing that was acknowledged, or seen, is
//! ever missing, and there is a leader again within a minute.

use crate::journal::JournalModel;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use weir_client::{Client, ClientConfig, Consistency, Context, Transport};
use weir_host::net::Signal;
use weir_host::thread::sleep;
use weir_metaserver::{JournalConfig, MetaServerConfig, NewFileSystem, Observer};
use weir_simhost::disk::SimDisk;
use weir_simhost::{NodeId, Options, ProcessId, Simulation};
use weir_types::{ClientId, Error, ErrorKind, FileId, Result};
use weir_wire::Key;
use weir_wire::key::MasterKey;

const MEMBERS: usize = 3;
const CLUSTER: [u8; 16] = *b"several members!";
const CLIENT: ClientId = ClientId(1);
/// Number of faults of a run.
const ROUNDS: usize = 6;
/// Maximum time until there is a leader again and writes go on.
const GOES_ON: Duration = Duration::from_secs(60);
/// Pause after a fault until the next one.
const SETTLES: Duration = Duration::from_secs(7);
const PAUSE: Duration = Duration::from_millis(2);

fn master() -> MasterKey {
    MasterKey(Key::from_bytes([0x5a; 32]))
}

fn address(member: usize) -> String {
    format!("meta{member}:7000")
}

/// The knowledge of the clients.
#[derive(Default)]
struct Seen {
    /// What is being made; some of it may have been acknowledged meanwhile.
    begun: RefCell<Vec<String>>,
    /// What another client has seen, whether or not it was acknowledged.
    noticed: RefCell<BTreeMap<String, FileId>>,
    acknowledged: RefCell<Vec<String>>,
    wrong: RefCell<Option<String>>,
    stop: Cell<bool>,
}

struct Members {
    sim: Simulation,
    journal: JournalModel,
    nodes: Vec<NodeId>,
    processes: Vec<Option<ProcessId>>,
    writer: NodeId,
    seen: Rc<Seen>,
    rng: fastrand::Rng,
}

/// Runs a sequence of faults. Errors: what went wrong.
pub fn try_members(seed: u64) -> std::result::Result<(), String> {
    let mut members = Members::new(seed);
    members.make()?;
    let writer = members.writer;
    let reader = members.sim.node("reader", SimDisk::new(seed));
    let mut clients = Vec::new();
    let works: [(NodeId, Work); 5] =
        [(writer, write), (writer, write), (writer, write), (reader, look), (reader, peek)];
    for (number, (node, work)) in works.into_iter().enumerate() {
        let seen = members.seen.clone();
        clients.push(members.sim.start(node, "client", move || {
            let done = client().and_then(|client| {
                let done = work(&client, number, &seen);
                client.shutdown();
                done
            });
            if let Err(error) = done {
                seen.wrong.borrow_mut().get_or_insert(error.to_string());
            }
        }));
    }
    members.goes_on("begins")?;
    (0..MEMBERS).try_for_each(|member| members.is_filled(member))?;
    for _ in 0..ROUNDS {
        members.round()?;
    }
    members.goes_on("goes on in the end")?;
    members.seen.stop.set(true);
    let deadline = members.sim.now() + GOES_ON;
    let ended = |sim: &Simulation| clients.iter().all(|client| !sim.is_running(*client));
    if !members.sim.run_until(deadline, |sim| ended(sim)) {
        return Err("the clients do not end".into());
    }
    members.check()
}

impl Members {
    fn new(seed: u64) -> Self {
        let mut sim = Simulation::new(seed, Options::default());
        let node = |sim: &mut Simulation, name: String, at: u64| {
            let disk = SimDisk::new(seed ^ at << 32);
            let _ = disk.write_file("master.key", master().0.to_hex().as_bytes());
            let id = format!("00000000-0000-4000-8000-{:012x}\n", at + 1);
            let _ = disk.write_file("proc/sys/kernel/random/boot_id", id.as_bytes());
            sim.node(&name, disk)
        };
        let nodes = (0..MEMBERS).map(|n| node(&mut sim, format!("meta{n}"), n as u64)).collect();
        let writer = node(&mut sim, "writer".into(), 9);
        let journal = JournalModel::new(seed, MEMBERS);
        let (processes, seen) = (vec![None; MEMBERS], Rc::new(Seen::default()));
        let rng = fastrand::Rng::with_seed(seed ^ 0x5eed);
        Self { sim, journal, nodes, processes, writer, seen, rng }
    }

    /// Makes the metadata of the first member. The others get a snapshot.
    fn make(&mut self) -> std::result::Result<(), String> {
        let seen = self.seen.clone();
        let process = self.sim.start(self.nodes[0], "make", move || {
            let new = NewFileSystem::new(CLUSTER, CLIENT);
            if let Err(error) = weir_metaserver::init("/meta".as_ref(), &master(), &new) {
                *seen.wrong.borrow_mut() = Some(error.to_string());
            }
        });
        let deadline = self.sim.now() + GOES_ON;
        self.sim.run_until(deadline, |sim| !sim.is_running(process));
        (0..MEMBERS).for_each(|member| self.start(member));
        Ok(())
    }

    fn start(&mut self, member: usize) {
        let (journal, seen) = (self.journal.clone(), self.seen.clone());
        let process = self.sim.start(self.nodes[member], "server", move || {
            if let Err(error) = serve(member, &journal) {
                seen.wrong.borrow_mut().get_or_insert(format!("meta{member} ends: {error}"));
            }
        });
        self.processes[member] = Some(process);
    }

    fn kill(&mut self, member: usize) {
        if let Some(process) = self.processes[member].take() {
            self.sim.kill(process);
        }
    }

    fn leader(&self) -> Option<usize> {
        let leader = self.journal.leader()?;
        (0..MEMBERS).find(|member| leader.contains(&address(*member)))
    }

    /// Waits until more writes are acknowledged.
    fn goes_on(&mut self, what: &str) -> std::result::Result<(), String> {
        let before = self.seen.acknowledged.borrow().len();
        let (seen, deadline) = (self.seen.clone(), self.sim.now() + GOES_ON);
        let more = || seen.acknowledged.borrow().len() > before + 5;
        let done = self.sim.run_until(deadline, |_| more() || seen.wrong.borrow().is_some());
        match (self.seen.wrong.borrow().clone(), done) {
            (Some(wrong), _) => Err(wrong),
            (None, false) => Err(format!("{what}: nothing is acknowledged for a minute")),
            (None, true) => Ok(()),
        }
    }

    fn round(&mut self) -> std::result::Result<(), String> {
        let deadline = self.sim.now() + GOES_ON;
        let (journal, seen) = (self.journal.clone(), self.seen.clone());
        let leads = || journal.leader().is_some() || seen.wrong.borrow().is_some();
        self.sim.run_until(deadline, |_| leads());
        let Some(leader) = self.leader() else { return Err("nobody leads for a minute".into()) };
        let other = (leader + 1 + self.rng.usize(0..MEMBERS - 1)) % MEMBERS;
        let what = match self.rng.u8(0..5) {
            0 => {
                self.kill(leader);
                self.goes_on("the leader is killed")?;
                self.start(leader);
                "killed"
            }
            1 => {
                if let Some(process) = self.processes[leader] {
                    self.sim.stop(process);
                    self.goes_on("the leader is stopped")?;
                    self.sim.cont(process);
                }
                "stopped"
            }
            2 => {
                // Cut off from the journal and from the writer, but not from the reader.
                self.journal.cut_off(leader, true);
                self.sim.network().partition(self.nodes[leader], self.writer, true);
                self.goes_on("the leader is cut off")?;
                self.sim.run_for(Duration::from_secs(1));
                self.journal.cut_off(leader, false);
                self.sim.network().partition(self.nodes[leader], self.writer, false);
                "cut off"
            }
            3 => {
                // Both standby members lag behind, and are then needed.
                let others: Vec<usize> = (0..MEMBERS).filter(|member| *member != leader).collect();
                others.iter().for_each(|member| self.journal.cut_off(*member, true));
                self.sim.run_for(Duration::from_secs(13));
                others.iter().for_each(|member| self.journal.cut_off(*member, false));
                self.kill(leader);
                self.goes_on("the leader is killed when the others lag behind")?;
                self.start(leader);
                "lagging"
            }
            _ => {
                // A member with a new disk, which then has to lead.
                self.kill(other);
                self.new_disk(other);
                self.start(other);
                self.goes_on("a standby has lost its disk")?;
                self.is_filled(other)?;
                for member in (0..MEMBERS).filter(|member| *member != other) {
                    self.kill(member);
                }
                self.goes_on("the one with a new disk leads")?;
                (0..MEMBERS).filter(|member| *member != other).for_each(|m| self.start(m));
                "new disk"
            }
        };
        self.sim.note(what);
        self.goes_on(what)?;
        self.sim.run_for(SETTLES);
        Ok(())
    }

    /// Waits until a member has metadata: before that it cannot lead.
    fn is_filled(&mut self, member: usize) -> std::result::Result<(), String> {
        let deadline = self.sim.now() + GOES_ON;
        let node = self.nodes[member];
        let is_there = |sim: &Simulation| sim.disk(node).read_file("meta/format").is_ok();
        match self.sim.run_until(deadline, is_there) {
            true => Ok(()),
            false => Err(format!("meta{member} has no snapshot after a minute")),
        }
    }

    /// Removes all data of a member.
    fn new_disk(&mut self, member: usize) {
        let disk = self.sim.disk(self.nodes[member]);
        for (path, _) in disk.files() {
            if path.starts_with("meta/") {
                let _ = disk.remove_file(&path);
            }
        }
    }

    /// Checks that everything acknowledged is there, whoever leads.
    fn check(&mut self) -> std::result::Result<(), String> {
        let seen = self.seen.clone();
        let node = self.sim.node("auditor", SimDisk::new(1));
        let process = self.sim.start(node, "audit", move || {
            let done = client().and_then(|client| {
                let acknowledged = seen.acknowledged.borrow().clone();
                let noticed = seen.noticed.borrow().clone();
                let found = acknowledged
                    .iter()
                    .try_for_each(|name| find(&client, name).map(drop))
                    .and_then(|()| noticed.iter().try_for_each(|it| is_the_same(&client, it)));
                client.shutdown();
                found
            });
            if let Err(error) = done {
                seen.wrong.borrow_mut().get_or_insert(format!("in the end: {error}"));
            }
        });
        let deadline = self.sim.now() + 10 * GOES_ON;
        let ended = self.sim.run_until(deadline, |sim| !sim.is_running(process));
        match (self.seen.wrong.borrow().clone(), ended) {
            (Some(wrong), _) => Err(wrong),
            (None, false) => Err("the audit does not end".into()),
            (None, true) => Ok(()),
        }
    }
}

/// The whole life of a member's process, as in `weir meta`.
fn serve(member: usize, journal: &JournalModel) -> Result<()> {
    let signal = Signal::new().map_err(|e| weir_types::Error::from(std::io::Error::from(e)))?;
    let mut config =
        MetaServerConfig::new("/meta".into(), vec![address(member)], "/master.key".into());
    config.cluster = Some(CLUSTER);
    config.cache_bytes = 4 << 20;
    config.journal = Some(JournalConfig { etcd: Vec::new(), member: format!("m{member}") });
    loop {
        let open = |_: &JournalConfig, _| {
            Ok(Arc::new(journal.of(member)) as Arc<dyn weir_metaserver::Journal>)
        };
        let observer = Arc::<Observer>::default();
        match weir_metaserver::run_member(config.clone(), open, &signal, observer, |_| {}) {
            Err(error) if error.kind == ErrorKind::NotLeader => {}
            done => return done,
        }
    }
}

fn client() -> Result<Client> {
    let mut config = ClientConfig::new("", CLIENT, master().client(CLIENT));
    config.metadata = (0..MEMBERS).map(address).collect();
    config.transport = Transport::Tcp;
    config.request_timeout_ms = 120_000;
    config.connect_timeout_ms = 2_000;
    config.consistency = Consistency::None;
    config.keep_metadata = false;
    let config = config.without_cache();
    let begin = weir_host::clock::now();
    loop {
        match Client::connect(config.clone()) {
            Ok(client) => return Ok(client),
            Err(error) if weir_host::clock::elapsed(begin) > GOES_ON => return Err(error),
            Err(_) => sleep(Duration::from_millis(50)),
        }
    }
}

/// What a client does, which has this number, until it is to stop.
type Work = fn(&Client, usize, &Seen) -> Result<()>;

/// Makes one directory after another.
fn write(client: &Client, number: usize, seen: &Seen) -> Result<()> {
    for n in 0.. {
        if seen.stop.get() {
            break;
        }
        let name = format!("d{number}-{n}");
        seen.begun.borrow_mut().push(name.clone());
        client.mkdir(&Context::root(), FileId::ROOT, name.as_bytes(), 0o755)?;
        seen.begun.borrow_mut().retain(|begun| *begun != name);
        seen.acknowledged.borrow_mut().push(name);
        sleep(PAUSE);
    }
    Ok(())
}

/// Looks up directories that are being made. Those that it sees must stay: if another server made one
/// anew for a client that asks again, it would have another number.
fn peek(client: &Client, _: usize, seen: &Seen) -> Result<()> {
    while !seen.stop.get() {
        let begun = seen.begun.borrow().clone();
        for name in begun {
            match client.lookup(&Context::root(), FileId::ROOT, name.as_bytes()) {
                Ok(found) => {
                    seen.noticed.borrow_mut().entry(name).or_insert(found.file);
                }
                Err(error) if error.kind == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        sleep(PAUSE);
    }
    Ok(())
}

/// Looks up the last acknowledged directory.
fn look(client: &Client, _: usize, seen: &Seen) -> Result<()> {
    while !seen.stop.get() {
        let last = seen.acknowledged.borrow().last().cloned();
        if let Some(name) = last {
            find(client, &name)?;
        }
        sleep(PAUSE);
    }
    Ok(())
}

fn find(client: &Client, name: &str) -> Result<FileId> {
    let found = client.lookup(&Context::root(), FileId::ROOT, name.as_bytes());
    let missing = |error: Error| error.context(format!("{name}, which was acknowledged or seen"));
    found.map(|found| found.file).map_err(missing)
}

fn is_the_same(client: &Client, (name, seen): (&String, &FileId)) -> Result<()> {
    match find(client, name)? {
        file if file == *seen => Ok(()),
        file => {
            let what = format!("{name} was seen as {seen}, and is {file}: what was seen is lost");
            Err(Error::new(ErrorKind::Corrupt, what))
        }
    }
}
