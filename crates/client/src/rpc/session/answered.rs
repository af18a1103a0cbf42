//! Replies of the metadata server, and the attributes that come with them ([`Also`]).

use weir_net::BlockingConn;
use weir_types::{Attr, Decode, Result};
use weir_wire::Header;
use weir_wire::lease::{Also, HAS_ALSO};

/// A reply.
pub(crate) struct Answered<T> {
    pub(crate) reply: T,
    /// The run of the server that sent it.
    pub(crate) instance: u64,
    /// Attributes that came with it.
    pub(crate) also: Vec<Attr>,
}

/// A reply, and attributes that came with it.
pub(crate) type WithAlso<T> = (T, Vec<Attr>);

/// Decodes a reply, and the attributes that follow it.
pub(crate) fn decode_with_also<T: Decode>(
    conn: &mut BlockingConn,
    header: &Header,
) -> Result<WithAlso<T>> {
    if header.keep & HAS_ALSO == 0 {
        return Ok((conn.reply(header)?, Vec::new()));
    }
    let (reply, also) = conn.reply::<(T, Also)>(header)?;
    Ok((reply, also.attributes))
}
