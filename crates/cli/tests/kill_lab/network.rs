//! A network namespace for each machine, and one with a bridge that joins them.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The name of each virtual cable's end in its machine.
const CABLE: &str = "cable";

/// Machines on one network; gone when dropped.
pub struct Network {
    id: String,
    machines: Vec<Machine>,
}

/// One of them.
#[derive(Clone, Debug)]
pub struct Machine {
    pub name: &'static str,
    pub address: String,
    namespace: String,
}

fn run(command: &str) -> bool {
    let mut words = command.split(' ');
    let mut program = Command::new(words.next().unwrap());
    program.args(words).output().is_ok_and(|output| output.status.success())
}

impl Network {
    /// Nothing where namespaces, bridges or packet filters are missing.
    pub fn new(names: &[&'static str]) -> Option<Self> {
        static LABS: AtomicU32 = AtomicU32::new(0);
        let lab = LABS.fetch_add(1, Ordering::Relaxed);
        let id = format!("weir-k{}.{lab}", std::process::id());
        let machine = |(i, name): (usize, &&'static str)| Machine {
            name,
            address: format!("10.214.9.{}", i + 1),
            namespace: format!("{id}-{name}"),
        };
        let machines = names.iter().enumerate().map(machine).collect();
        let network = Self { id, machines };
        network.make().then_some(network)
    }

    fn make(&self) -> bool {
        let switch = &self.id;
        let done = run(&format!("ip netns add {switch}"))
            && run(&format!("ip -n {switch} link add name br0 type bridge"))
            && run(&format!("ip -n {switch} link set dev br0 up"));
        done && self.machines.iter().all(|machine| {
            let Machine { namespace, address, name } = machine;
            let cable = format!("type veth peer name to-{name} netns {switch}");
            run(&format!("ip netns add {namespace}"))
                && run(&format!("ip -n {namespace} link add {CABLE} {cable}"))
                && run(&format!("ip -n {switch} link set dev to-{name} master br0"))
                && run(&format!("ip -n {switch} link set dev to-{name} up"))
                && run(&format!("ip -n {namespace} addr add {address}/24 dev {CABLE}"))
                && run(&format!("ip -n {namespace} link set dev {CABLE} up"))
                && run(&format!("ip -n {namespace} link set dev lo up"))
                && machine.filter("-L")
                && machine.filter(&loss('A', 0))
                && machine.filter(&loss('D', 0))
        })
    }

    /// The machine of this name.
    pub fn machine(&self, name: &str) -> &Machine {
        self.machines.iter().find(|machine| machine.name == name).unwrap()
    }

    /// Unplugs a machine, or plugs it in again.
    pub fn plug(&self, name: &str, is_in: bool) {
        let state = if is_in { "up" } else { "down" };
        assert!(run(&format!("ip -n {} link set dev to-{name} {state}", self.id)));
    }

    /// Packets between two machines vanish.
    pub fn cut(&self, a: &str, b: &str) {
        let (a, b) = (self.machine(a), &self.machine(b).address);
        assert!(a.filter(&format!("-A INPUT -s {b} -j DROP")));
        assert!(a.filter(&format!("-A OUTPUT -d {b} -j DROP")));
    }

    /// These machines reach each other, and no others.
    pub fn part(&self, island: &[&str]) {
        let rest = || self.machines.iter().filter(|other| !island.contains(&other.name));
        island.iter().for_each(|name| rest().for_each(|other| self.cut(name, other.name)));
    }

    /// So many of a hundred packets to a machine vanish.
    pub fn lose(&self, name: &str, percent: u64) {
        assert!(self.machine(name).filter(&loss('A', percent)));
    }

    /// Takes back what was done to the packets of a machine.
    pub fn mend(&self, name: &str) {
        assert!(self.machine(name).filter("-F"));
    }
}

fn loss(change: char, percent: u64) -> String {
    let share = percent as f64 / 100.0;
    format!("-{change} INPUT -m statistic --mode random --probability {share} -j DROP")
}

impl Machine {
    fn filter(&self, arguments: &str) -> bool {
        run(&format!("nsenter --net=/run/netns/{} iptables -w {arguments}", self.namespace))
    }

    /// The command on this machine (in its network alone: files and mounts are those
    /// of everybody).
    pub fn command(&self, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside.arg(format!("--net=/run/netns/{}", self.namespace));
        through(inside, command)
    }
}

/// A command that another one starts.
pub fn through(mut starter: Command, command: &Command) -> Command {
    starter.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => starter.env(name, value),
            None => starter.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        starter.current_dir(dir);
    }
    starter
}

impl Drop for Network {
    fn drop(&mut self) {
        for machine in &self.machines {
            run(&format!("ip netns del {}", machine.namespace));
        }
        run(&format!("ip netns del {}", self.id));
    }
}
