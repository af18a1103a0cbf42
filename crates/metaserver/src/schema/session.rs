//! Records of sessions and of their last mutations.

use weir_types::codec::Bytes;
use weir_types::{ClientId, SlotSequence};

/// One run of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// Its client.
    pub client: ClientId,
    /// The program's own name.
    pub name: String,
    /// Whether it has expired, so that the rest of it is being removed.
    pub ended: bool,
}
weir_types::codec_struct!(SessionRecord { client, name, ended });

/// The last mutation of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRecord {
    /// Its number.
    pub sequence: SlotSequence,
    /// 0 for success, else the code of the error.
    pub status: u16,
    /// The body of the reply.
    pub body: Bytes,
}
weir_types::codec_struct!(SlotRecord { sequence, status, body });
