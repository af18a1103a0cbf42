//! Which data servers may lack acknowledged data, and when: from the begin of a fault of a server
//! until no server has had a fault for so long that it must be up to date again.

use crate::history::{Entry, History, Node, Position, What};
use std::time::Duration;

/// A server that was away is up to date after this time without any faults of servers.
pub const MENDED: Duration = Duration::from_secs(10);

/// A period, both ends included.
type Span = (Duration, Duration);

fn overlap(a: Span, b: Span) -> bool {
    a.0 <= b.1 && b.0 <= a.1
}

/// The health of the servers during a run.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// Faulty nodes and connections, with their periods.
    ill: Vec<(Node, Option<Node>, Span)>,
}

fn is_server(node: Node) -> bool {
    !matches!(node, Node::Client(_))
}

impl Health {
    /// Determines it from a history.
    pub fn of(history: &History) -> Self {
        let ill = |entry: &Entry| match entry.what {
            What::Ill { node, peer, until } => Some((node, peer, (entry.at, until))),
            _ => None,
        };
        Self { ill: history.entries.iter().filter_map(ill).collect() }
    }

    /// Faults of servers and of connections between them.
    fn of_servers(&self) -> impl Iterator<Item = &(Node, Option<Node>, Span)> {
        self.ill.iter().filter(|(node, peer, _)| is_server(*node) && peer.is_none_or(is_server))
    }

    /// The end of the first quiet period after this time.
    fn mended(&self, from: Duration) -> Duration {
        let mut quiet = from;
        while let Some((_, _, span)) =
            self.of_servers().find(|(_, _, span)| span.1 > quiet && span.0 < quiet + MENDED)
        {
            quiet = span.1;
        }
        quiet + MENDED
    }

    /// Periods in which a data server may lack something. `alone`: only faults of the server
    /// itself, not of its connection to another data server.
    fn doubts(&self, server: u8, alone: bool) -> impl Iterator<Item = Span> + '_ {
        let this = Node::Data(server);
        let concerns = move |(node, peer, _): &&(Node, Option<Node>, Span)| {
            let between = matches!((node, peer), (Node::Data(_), Some(Node::Data(_))));
            (*node == this || *peer == Some(this)) && !(alone && between)
        };
        self.of_servers().filter(concerns).map(|(_, _, (from, until))| (*from, self.mended(*until)))
    }

    /// Whether data that one server forgets at a position of the history may be lost for good,
    /// given the servers that have copies.
    pub(super) fn takes(&self, history: &History, nodes: &[u8], at: Position, lost: u8) -> bool {
        if !nodes.contains(&lost) {
            return false;
        }
        let at = history.entries[at].at;
        let doubtful = |node: u8| self.doubts(node, false).any(|doubt| overlap(doubt, (at, at)));
        nodes.iter().filter(|node| **node != lost).all(|node| doubtful(*node))
    }

    /// Whether none of the other servers need have had everything at any time from this position
    /// until this server has it again.
    pub(super) fn is_last(&self, history: &History, nodes: &[u8], at: Position, last: u8) -> bool {
        let at = history.entries[at].at;
        let doubts = self.doubts(last, false).filter(|doubt| overlap(*doubt, (at, at)));
        let doubts: Vec<Span> = doubts.collect();
        let doubtful = |node: u8| {
            self.doubts(node, false).any(|doubt| doubts.iter().any(|other| overlap(doubt, *other)))
        };
        let others = nodes.iter().filter(|node| **node != last);
        nodes.contains(&last) && others.into_iter().all(|node| doubtful(*node))
    }

    /// Whether one of these servers must have had everything and served it all the time.
    pub(super) fn is_served(&self, nodes: &[u8], span: Span) -> bool {
        let is_sound = |node: u8| !self.doubts(node, true).any(|doubt| overlap(doubt, span));
        let sound: Vec<u8> = nodes.iter().copied().filter(|node| is_sound(*node)).collect();
        // Of two servers that cannot reach each other, one may be given up.
        let touches = |node: Node| matches!(node, Node::Data(n) if sound.contains(&n));
        let mut apart: Vec<(Node, Node)> = self
            .of_servers()
            .filter(|(_, _, (from, until))| overlap((*from, self.mended(*until)), span))
            .filter_map(|(a, b, _)| Some((*a, (*b)?)))
            .filter(|(a, b)| matches!((a, b), (Node::Data(_), Node::Data(_))))
            .filter(|(a, b)| touches(*a) || touches(*b))
            .map(|(a, b)| (a.min(b), a.max(b)))
            .collect();
        apart.sort_unstable();
        apart.dedup();
        sound.len() > apart.len()
    }

    /// Whether two or more data servers may lack something.
    pub(super) fn are_several_in_doubt(&self, span: Span) -> bool {
        let data = |node: Node| matches!(node, Node::Data(_)).then_some(node);
        let of = |(node, peer, _): &(Node, Option<Node>, Span)| {
            data(*node).into_iter().chain(peer.and_then(data))
        };
        let doubted = self
            .of_servers()
            .filter(|(_, _, (from, until))| overlap((*from, self.mended(*until)), span))
            .flat_map(of);
        doubted.collect::<std::collections::BTreeSet<Node>>().len() > 1
    }

    /// Whether the metadata server, a client or a connection to one had a fault, at most `after`
    /// before this.
    pub(super) fn is_troubled(&self, after: Duration, span: Span) -> bool {
        self.ill.iter().any(|(node, peer, (from, until))| {
            let data = |node: Node| matches!(node, Node::Data(_));
            let only_data = data(*node) && peer.is_none_or(is_server);
            let only_data = only_data || *node == Node::Meta && peer.is_some_and(data);
            !only_data && overlap((*from, *until + after), span)
        })
    }
}
