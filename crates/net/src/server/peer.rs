//! Connections and who is at their other end.

use weir_types::SessionId;
use weir_wire::Level;
use weir_wire::handshake::Identity;

/// Id of a connection. Never reused within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub(super) u64);

impl ConnId {
    const SLOT_BITS: u32 = 24;
    const GENERATION_BITS: u32 = 32;

    pub(super) fn new(loop_index: usize, generation: u32, slot: usize) -> Self {
        let upper = (loop_index as u64) << (Self::SLOT_BITS + Self::GENERATION_BITS);
        Self(upper | u64::from(generation) << Self::SLOT_BITS | slot as u64)
    }

    /// Index of the event loop that serves the connection.
    pub fn loop_index(self) -> usize {
        (self.0 >> (Self::SLOT_BITS + Self::GENERATION_BITS)) as usize
    }

    pub(super) fn slot(self) -> usize {
        (self.0 & ((1 << Self::SLOT_BITS) - 1)) as usize
    }
}

/// The peer of an authenticated connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The identity that the peer has proved.
    pub identity: Identity,
    /// The session that the peer has joined.
    pub session: SessionId,
    /// The name that the peer gives itself, for messages.
    pub name: String,
    /// How the connection is protected.
    pub level: Level,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_id_keeps_its_parts() {
        let id = ConnId::new(63, u32::MAX, (1 << 24) - 1);
        assert_eq!((id.loop_index(), id.slot()), (63, (1 << 24) - 1));
        let id = ConnId::new(0, 1, 2);
        assert_eq!((id.loop_index(), id.slot()), (0, 2));
        assert_ne!(id, ConnId::new(0, 2, 2));
    }
}
