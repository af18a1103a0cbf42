//! What goes wrong in a lab, and how it is mended.

use super::{CLIENTS, Failure, Lab, META, SERVERS};
use rustix::process::Signal;
use std::time::Duration;
use weir_conformance::Random;

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `kill -9` of a daemon, or of a mount; mended by a new process.
    Kill(&'static str),
    /// SIGSTOP, and SIGCONT.
    Stop(&'static str),
    /// Its cable is out.
    Unplug(&'static str),
    /// Packets between two vanish.
    Cut(&'static str, &'static str),
    /// A server and a mount reach each other, and no other machine.
    Island(&'static str, &'static str),
    /// So many of a hundred packets to it vanish.
    Loss(&'static str, u64),
    /// Its disk is full.
    Full(&'static str),
    /// Its disk fails.
    Disk(&'static str, Failure),
}

const FAILURES: [Failure; 3] = [Failure::Dead, Failure::DeadAndForgetful, Failure::ReadOnly];
/// Kinds that [`Fault::choose`] knows.
pub const KINDS: u64 = 10;

fn any(random: &mut Random, of: &[&'static str]) -> &'static str {
    of[random.below(of.len() as u64) as usize]
}

impl Fault {
    /// A random one of a kind (below [`KINDS`]).
    pub fn choose(kind: u64, random: &mut Random) -> Self {
        let server = any(random, &SERVERS);
        match kind {
            0 => Self::Kill(server),
            1 => Self::Kill(META),
            2 => Self::Kill(any(random, &CLIENTS)),
            3 => Self::Stop(any(random, &[server, server, server, META])),
            4 => match random.below(3) {
                0 => Self::Unplug(server),
                1 => Self::Cut(server, META),
                _ => {
                    let others: Vec<_> =
                        SERVERS.into_iter().filter(|name| *name != server).collect();
                    Self::Cut(server, any(random, &others))
                }
            },
            5 => Self::Disk(server, FAILURES[random.below(3) as usize]),
            6 => Self::Full(server),
            7 => match random.below(2) {
                0 => Self::Cut(any(random, &CLIENTS), META),
                _ => Self::Island(server, any(random, &CLIENTS)),
            },
            8 => Self::Cut(any(random, &CLIENTS), server),
            _ => {
                let all = [&SERVERS[..], &CLIENTS, &[META]].concat();
                Self::Loss(any(random, &all), 3 + random.below(20))
            }
        }
    }

    /// Whether who uses files with several copies has to go on meanwhile.
    pub fn leaves_copies(self) -> bool {
        match self {
            Self::Kill(name) | Self::Stop(name) | Self::Unplug(name) => SERVERS.contains(&name),
            // The other servers pass on what is for one that a client does not reach.
            Self::Cut(_, b) if SERVERS.contains(&b) => true,
            Self::Cut(a, _) => !CLIENTS.contains(&a),
            Self::Loss(..) | Self::Island(..) => false,
            Self::Full(_) | Self::Disk(..) => true,
        }
    }

    /// Machines that have this trouble: no other may come to them at the same time.
    pub fn machines(self) -> Vec<&'static str> {
        match self {
            Self::Cut(a, b) | Self::Island(a, b) => vec![a, b],
            Self::Kill(a) | Self::Stop(a) | Self::Unplug(a) | Self::Loss(a, _) | Self::Full(a) => {
                vec![a]
            }
            Self::Disk(a, _) => vec![a],
        }
    }

    /// Whether what was not synced may be lost.
    pub fn forgets(self) -> bool {
        match self {
            Self::Disk(_, failure) => failure != Failure::Dead,
            Self::Island(..) => true,
            _ => self.ends_a_mount(),
        }
    }

    /// Whether a mount loses what it has not sent, and whatever is open there.
    pub fn ends_a_mount(self) -> bool {
        matches!(self, Self::Kill(name) if CLIENTS.contains(&name))
    }

    pub fn begin(self, lab: &mut Lab<'_>) {
        match self {
            Self::Kill(name) if CLIENTS.contains(&name) => lab.kill_mount(name),
            Self::Kill(name) => lab.kill(name),
            Self::Stop(name) => lab.signal(name, Signal::STOP),
            Self::Unplug(name) => lab.network.plug(name, false),
            Self::Cut(a, b) => lab.network.cut(a, b),
            Self::Island(a, b) => lab.network.part(&[a, b]),
            Self::Loss(name, percent) => lab.network.lose(name, percent),
            Self::Full(name) => lab.disk(name).fill(),
            Self::Disk(name, failure) => lab.disk(name).fail(failure),
        }
    }

    pub fn end(self, lab: &mut Lab<'_>) {
        match self {
            Self::Kill(name) if CLIENTS.contains(&name) => lab.mount(name),
            Self::Kill(name) => lab.start(name),
            Self::Stop(name) => lab.signal(name, Signal::CONT),
            Self::Unplug(name) => lab.network.plug(name, true),
            Self::Cut(name, _) | Self::Loss(name, _) => lab.network.mend(name),
            Self::Island(a, b) => [a, b].iter().for_each(|name| lab.network.mend(name)),
            Self::Full(name) => lab.disk(name).empty(),
            Self::Disk(name, _) => {
                lab.kill(name);
                lab.disk(name).replace();
                lab.start(name);
            }
        }
    }

    /// The least that it has to last by itself to tell that others stand in.
    pub fn least(self) -> Duration {
        match self {
            Self::Cut(a, b) if CLIENTS.contains(&a) && SERVERS.contains(&b) => {
                Duration::from_secs(15)
            }
            _ => Duration::ZERO,
        }
    }

    /// The longest that it may last, so that nobody gives up for whom nothing stands in.
    pub fn longest(self, asked: Duration) -> Duration {
        match self {
            Self::Cut(_, b) if SERVERS.contains(&b) => asked,
            // A client that the metadata server does not hear of loses its leases.
            Self::Cut(a, _) | Self::Loss(a, _) if CLIENTS.contains(&a) => {
                asked.min(Duration::from_secs(4))
            }
            _ => asked,
        }
    }
}
