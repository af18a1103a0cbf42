//! What the judges of data have to know.

use super::health::Health;
use crate::history::{History, Node, Position, What};
use std::collections::BTreeSet;
use std::time::Duration;

/// No position: never.
pub(super) const NEVER: Position = Position::MAX;
/// What the judge has to know of a file.
#[derive(Clone, Debug)]
pub struct FileFacts {
    /// Its cells; of a file that is only appended to: more than it gets.
    pub cells: u32,
    /// The data servers that hold each cell.
    pub nodes_of_cells: Vec<Vec<u8>>,
    /// The data servers that hold each column: also those in which no cell is, which are
    /// asked all the same when a file is cut, or its attributes are needed.
    pub nodes_of_columns: BTreeSet<Vec<u8>>,
    /// Whether it begins empty and is only appended to.
    pub log: bool,
    /// Whether a write may be acknowledged when one copy alone has it.
    pub early: bool,
}

impl FileFacts {
    /// Whether a server of each column must have served it all the time: any of them, unless
    /// one may have what no other has.
    pub(super) fn are_served(&self, health: &Health, span: (Duration, Duration)) -> bool {
        let is_served = |nodes: &[u8]| match self.early {
            false => health.is_served(nodes, span),
            true => nodes.iter().all(|node| health.is_served(&[*node], span)),
        };
        self.nodes_of_columns.iter().all(|nodes| nodes.len() > 1 && is_served(nodes))
    }

    /// Whether what one server forgets at this place of the history may be lost
    /// altogether, where these servers have copies of it.
    pub(super) fn takes(
        &self,
        (history, health): (&History, &Health),
        nodes: &[u8],
        at: Position,
        lost: u8,
    ) -> bool {
        match self.early {
            // It may have been the only one that had it.
            true => nodes.contains(&lost),
            false => health.takes(history, nodes, at, lost),
        }
    }
}

impl FileFacts {
    /// Whether something of it was lost on all servers before this, or by the
    /// metadata server.
    pub(super) fn may_have_lost(&self, health: &Health, history: &History, by: Position) -> bool {
        let gone = |at: Position, node: u8| {
            self.nodes_of_cells.iter().any(|nodes| self.takes((history, health), nodes, at, node))
        };
        history.entries[..by].iter().enumerate().any(|(at, entry)| match entry.what {
            What::PowerCut(Node::Data(n)) | What::DiskForgets(Node::Data(n)) => gone(at, n),
            What::PowerCut(Node::Meta) => true,
            _ => false,
        })
    }
}

/// What is known of the clients.
#[derive(Clone, Debug)]
pub struct ClientFacts {
    /// Whether writes return before they are confirmed.
    pub write_behind: bool,
    /// Whether it holds leases: what it has written nobody else sees older.
    pub leases: bool,
    /// Whether something above it keeps pages, as the kernel does: bytes that a
    /// data server has lost may still be seen there.
    pub keeps_pages: bool,
}
