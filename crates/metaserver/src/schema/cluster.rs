//! Records of servers, clients and the store itself.

use weir_types::codec::{Bytes, DecodeError, Reader};
use weir_types::{ClientStanding, Decode, Encode, LayoutSpec, Restrictions, TargetId};
use weir_wire::map::TargetState;

/// A target of a data server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetRecord {
    /// The target.
    pub target: TargetId,
    /// Whether it served when last heard of.
    pub state: TargetState,
}
weir_types::codec_struct!(TargetRecord { target, state });

/// A data server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRecord {
    /// Where it runs.
    pub host: String,
    /// `address:port` for TCP.
    pub tcp: String,
    /// Path of its Unix socket; may be empty.
    pub unix: String,
    /// Its targets.
    pub targets: Vec<TargetRecord>,
}
weir_types::codec_struct!(ServerRecord { host, tcp, unix, targets });

/// What is known of a client. Its key is derived, not stored; a client without
/// a record is an ordinary one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientRecord {
    /// What it may do.
    pub standing: ClientStanding,
    /// For people.
    pub name: String,
    /// What it is held to. Written only if there is anything: so records from
    /// before there were restrictions are good, and a program that does not
    /// know them refuses the record and with it the client.
    pub restrictions: Restrictions,
}

impl Encode for ClientRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        self.standing.encode(out);
        self.name.encode(out);
        if self.restrictions != Restrictions::NONE {
            self.restrictions.encode(out);
        }
    }
}

impl Decode for ClientRecord {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (standing, name) = (Decode::decode(r)?, Decode::decode(r)?);
        let restrictions = match r.remaining() {
            0 => Restrictions::NONE,
            _ => match Restrictions::decode(r)? {
                Restrictions::NONE => return Err(DecodeError::BadValue),
                some => some,
            },
        };
        Ok(Self { standing, name, restrictions })
    }
}

/// What this store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatRecord {
    /// The cluster.
    pub cluster: [u8; 16],
    /// Depends on the master key, to tell a wrong one; says nothing about it.
    pub key_check: Bytes,
    /// What directories go back to that have no parent to ask.
    pub default_layout: LayoutSpec,
}
weir_types::codec_struct!(FormatRecord { cluster, key_check, default_layout });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;

    #[test]
    fn a_record_from_before_restrictions_is_one_of_a_client_without_any() {
        let old = [&[1, 1][..], &[3, 0, 0, 0], b"one"].concat();
        let record: ClientRecord = schema::decode(&old, "of a client").unwrap();
        assert_eq!((record.standing, &*record.name), (ClientStanding::Administrator, "one"));
        assert_eq!(record.restrictions, Restrictions::NONE);
        assert_eq!(schema::encode(&record), old, "and is written as it was");
        let restrictions = Restrictions { read_only: true, ..Restrictions::NONE };
        let new = ClientRecord { restrictions, ..record };
        let bytes = schema::encode(&new);
        assert_eq!(schema::decode::<ClientRecord>(&bytes, "of a client").unwrap(), new);
    }
}
