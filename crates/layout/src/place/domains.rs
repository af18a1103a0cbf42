//! What fails as one: a server, and the machine that it runs on with others.

use std::collections::BTreeMap;
use weir_types::ServerId;

/// A failure domain: the servers of a machine. It goes by the first of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Domain(pub ServerId);

/// The domain of each server, by the names of their hosts; one whose host is not known
/// has one of its own.
pub fn domains<'a>(
    servers: impl Iterator<Item = (ServerId, &'a str)>,
) -> BTreeMap<ServerId, Domain> {
    let hosts: BTreeMap<ServerId, &str> = servers.collect();
    let mut first: BTreeMap<&str, Domain> = BTreeMap::new();
    let domain = |(server, host): (ServerId, &'a str)| match host {
        "" => (server, Domain(server)),
        host => (server, *first.entry(host).or_insert(Domain(server))),
    };
    hosts.into_iter().map(domain).collect()
}

/// What fails with a target.
pub type Home = (ServerId, Domain);

/// How far a copy is from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Apart {
    /// On a server with another.
    Target,
    /// In a domain with another.
    Server,
    /// What takes it leaves the others.
    Domain,
}

impl Apart {
    /// How far a copy is from all of the others.
    pub fn of((server, domain): Home, others: impl Iterator<Item = Home>) -> Self {
        let from = |(other, around)| match (other == server, around == domain) {
            (true, _) => Self::Target,
            (false, true) => Self::Server,
            (false, false) => Self::Domain,
        };
        others.map(from).min().unwrap_or(Self::Domain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_one_host_are_in_one_domain() {
        let hosts = ["b", "a", "", "b", ""].iter().enumerate();
        let found = domains(hosts.map(|(n, host)| (ServerId(n as u32), *host)));
        let first: Vec<u32> = found.values().map(|domain| domain.0.0).collect();
        assert_eq!(first, [0, 1, 2, 0, 4]);
    }

    #[test]
    fn the_nearest_of_the_others_says_how_far_a_copy_is() {
        let home = |server, domain| (ServerId(server), Domain(ServerId(domain)));
        let apart = |others: &[Home]| Apart::of(home(1, 0), others.iter().copied());
        assert_eq!(apart(&[]), Apart::Domain);
        assert_eq!(apart(&[home(2, 2)]), Apart::Domain);
        assert_eq!(apart(&[home(2, 2), home(0, 0)]), Apart::Server);
        assert_eq!(apart(&[home(2, 2), home(0, 0), home(1, 0)]), Apart::Target);
    }
}
