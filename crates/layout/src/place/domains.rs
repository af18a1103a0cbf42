//! Failure domains: a server, the machine that it shares with others, and the domain that an
//! administrator names, such as a rack.
//!
//! Each level contains the previous one: servers in different domains do not fail together, so they
//! count as on different machines, whatever the names of their hosts.

use std::collections::BTreeMap;
use weir_types::ServerId;

/// A machine, identified by the first of its servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host(pub ServerId);

/// A failure domain, identified by the first of its servers: the servers for which an administrator
/// names the same domain, or otherwise those of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Domain(pub ServerId);

/// The levels at which a server can fail: itself, its machine, its domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Home {
    /// The server.
    pub server: ServerId,
    /// Its machine.
    pub host: Host,
    /// Its failure domain.
    pub domain: Domain,
}

impl Home {
    /// The home of a server that shares nothing with others.
    pub fn alone(server: ServerId) -> Self {
        Self { server, host: Host(server), domain: Domain(server) }
    }
}

/// What is known about the place of a server.
#[derive(Clone, Copy, Debug)]
pub struct Whereabouts<'a> {
    /// The server.
    pub server: ServerId,
    /// The name of its host. Empty: unknown, and the server counts as alone on a host.
    pub host: &'a str,
    /// The name of its domain. Empty: its machine is its domain.
    pub domain: &'a str,
}

/// The home of each server.
pub fn homes<'a>(servers: impl Iterator<Item = Whereabouts<'a>>) -> BTreeMap<ServerId, Home> {
    let servers: BTreeMap<ServerId, Whereabouts<'a>> =
        servers.map(|known| (known.server, known)).collect();
    let (mut hosts, mut domains) = (BTreeMap::new(), BTreeMap::new());
    let home = |Whereabouts { server, host, domain }: Whereabouts<'a>| {
        let machine = match host {
            "" => Host(server),
            _ => *hosts.entry((domain, host)).or_insert(Host(server)),
        };
        let around = match domain {
            "" => Domain(machine.0),
            _ => *domains.entry(domain).or_insert(Domain(server)),
        };
        Home { server, host: machine, domain: around }
    };
    servers.into_values().map(home).map(|home| (home.server, home)).collect()
}

/// The narrowest level at which a copy is apart from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Apart {
    /// Another target of a server that has a copy.
    Target,
    /// Another server of a machine that has a copy.
    Server,
    /// Another machine of a domain that has a copy.
    Host,
    /// Another domain than all other copies.
    Domain,
}

impl Apart {
    /// How far a copy is apart from all of the others.
    pub fn of(home: Home, others: impl Iterator<Item = Home>) -> Self {
        let from = |other: Home| match () {
            () if other.server == home.server => Self::Target,
            () if other.host == home.host => Self::Server,
            () if other.domain == home.domain => Self::Host,
            () => Self::Domain,
        };
        others.map(from).min().unwrap_or(Self::Domain)
    }
}

/// Number of domains, machines and servers of a set of copies. More is better, domains first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spread {
    /// Domains.
    pub domains: usize,
    /// Machines.
    pub hosts: usize,
    /// Servers.
    pub servers: usize,
}

impl Spread {
    /// The spread of copies with these homes.
    pub fn of(homes: impl Iterator<Item = Home> + Clone) -> Self {
        fn count<T: Ord>(all: impl Iterator<Item = T>) -> usize {
            all.collect::<std::collections::BTreeSet<T>>().len()
        }
        Self {
            domains: count(homes.clone().map(|home| home.domain)),
            hosts: count(homes.clone().map(|home| home.host)),
            servers: count(homes.map(|home| home.server)),
        }
    }

    /// The widest level at which the copies are spread, as the part of a home that fails at that
    /// level: its domain, machine or server. `None` if all copies are on one server.
    pub fn part(self, home: Home) -> Option<ServerId> {
        match self {
            Self { domains: 2.., .. } => Some(home.domain.0),
            Self { hosts: 2.., .. } => Some(home.host.0),
            Self { servers: 2.., .. } => Some(home.server),
            _ => None,
        }
    }

    /// The best spread of this many copies within the given spread.
    pub fn at_most(self, copies: usize) -> Self {
        Self {
            domains: self.domains.min(copies),
            hosts: self.hosts.min(copies),
            servers: self.servers.min(copies),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Machine and domain of each server, from their names.
    fn homes_of(names: &[(&'static str, &'static str)]) -> Vec<(u32, u32)> {
        let numbered = names.iter().zip(0..);
        let known = |(names, n): (&(&'static str, &'static str), u32)| {
            let (server, (host, domain)) = (ServerId(n), *names);
            Whereabouts { server, host, domain }
        };
        let found = homes(numbered.map(known));
        found.values().map(|home| (home.host.0.0, home.domain.0.0)).collect()
    }

    #[test]
    fn servers_of_one_host_are_on_one_machine_which_is_a_domain_if_none_is_given() {
        let found = homes_of(&[("b", ""), ("a", ""), ("", ""), ("b", ""), ("", "")]);
        assert_eq!(found, [(0, 0), (1, 1), (2, 2), (0, 0), (4, 4)]);
    }

    #[test]
    fn servers_of_one_domain_are_together_though_their_machines_are_not() {
        let found = homes_of(&[("a", "r1"), ("b", "r1"), ("c", "r2"), ("a", "r1"), ("", "r2")]);
        assert_eq!(found, [(0, 0), (1, 0), (2, 2), (0, 0), (4, 2)]);
        // A domain with the name of a host is not that host.
        assert_eq!(homes_of(&[("a", ""), ("b", "a")]), [(0, 0), (1, 1)]);
    }

    #[test]
    fn servers_of_one_host_in_different_domains_do_not_fail_as_one() {
        let found = homes_of(&[("a", "r1"), ("a", "r2"), ("a", ""), ("a", "r2")]);
        assert_eq!(found, [(0, 0), (1, 1), (2, 2), (1, 1)]);
    }

    #[test]
    fn the_nearest_of_the_others_says_how_far_a_copy_is() {
        let home = |server, host, domain| Home {
            server: ServerId(server),
            host: Host(ServerId(host)),
            domain: Domain(ServerId(domain)),
        };
        let apart = |others: &[Home]| Apart::of(home(1, 0, 0), others.iter().copied());
        assert_eq!(apart(&[]), Apart::Domain);
        assert_eq!(apart(&[home(4, 4, 4)]), Apart::Domain);
        assert_eq!(apart(&[home(4, 4, 4), home(3, 3, 0)]), Apart::Host);
        assert_eq!(apart(&[home(4, 4, 4), home(3, 3, 0), home(0, 0, 0)]), Apart::Server);
        assert_eq!(apart(&[home(4, 4, 4), home(0, 0, 0), home(1, 0, 0)]), Apart::Target);
        let all = [home(4, 4, 4), home(3, 3, 0), home(0, 0, 0), home(1, 0, 0), home(1, 0, 0)];
        let spread = Spread::of(all.iter().copied());
        assert_eq!(spread, Spread { domains: 2, hosts: 3, servers: 4 });
        assert_eq!(spread.at_most(2), Spread { domains: 2, hosts: 2, servers: 2 });
    }
}
