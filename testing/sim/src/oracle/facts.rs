//! Facts for the judges of data.

use super::health::Health;
use crate::history::{History, Node, Position, What};
use std::collections::BTreeSet;
use std::time::Duration;

/// Stands for no position.
pub(super) const NEVER: Position = Position::MAX;
/// Facts about a file.
#[derive(Clone, Debug)]
pub struct FileFacts {
    /// Number of its cells; for a growing file, an upper limit.
    pub cells: u32,
    /// For each cell, the data servers that hold it.
    pub nodes_of_cells: Vec<Vec<u8>>,
    /// For each column, the data servers that hold it. Includes columns without cells, because a
    /// cut or a query of attributes asks them too.
    pub nodes_of_columns: BTreeSet<Vec<u8>>,
    /// Whether it begins empty and is only appended to.
    pub log: bool,
    /// Whether a write may be acknowledged when only one copy has it.
    pub early: bool,
}

impl FileFacts {
    /// Whether some server of each column must have served it all the time. With early
    /// acknowledgements all servers must, because one may have what no other has.
    pub(super) fn are_served(&self, health: &Health, span: (Duration, Duration)) -> bool {
        let is_served = |nodes: &[u8]| match self.early {
            false => health.is_served(nodes, span),
            true => nodes.iter().all(|node| health.is_served(&[*node], span)),
        };
        self.nodes_of_columns.iter().all(|nodes| nodes.len() > 1 && is_served(nodes))
    }

    /// Whether data that one server forgets at a position of the history may be lost for good,
    /// given the servers that have copies.
    pub(super) fn takes(
        &self,
        (history, health): (&History, &Health),
        nodes: &[u8],
        at: Position,
        lost: u8,
    ) -> bool {
        match self.early {
            // It may have been the only server that had it.
            true => nodes.contains(&lost),
            false => health.takes(history, nodes, at, lost),
        }
    }
}

impl FileFacts {
    /// Whether some data of the file was lost on all servers before this, or by the metadata
    /// server.
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

/// Facts about the clients.
#[derive(Clone, Debug)]
pub struct ClientFacts {
    /// Whether its writes return before they are confirmed.
    pub write_behind: bool,
    /// Whether it holds leases: nobody else reads anything older than its writes.
    pub leases: bool,
    /// Whether pages are cached above it, as by the kernel. Bytes that a data server has lost may
    /// still be read there.
    pub keeps_pages: bool,
}
