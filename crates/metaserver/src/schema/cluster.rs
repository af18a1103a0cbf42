//! Records of servers, clients and the store itself.

use weir_types::codec::{Bytes, DecodeError, Reader};
use weir_types::{ClientStanding, Decode, Encode, Epoch, LayoutSpec, Restrictions, TargetId};
use weir_wire::map::TargetState;

/// A target of a data server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetRecord {
    /// The target.
    pub target: TargetId,
    /// Whether it served when last heard of.
    pub state: TargetState,
    /// Online: the epoch at which it became so; else the one at which it ceased
    /// to be. 0: before there were copies.
    pub since: Epoch,
}

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

/// The epochs come last, and only if there are any: so records from before there
/// were copies are good.
impl Encode for ServerRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        self.host.encode(out);
        self.tcp.encode(out);
        self.unix.encode(out);
        let states: Vec<_> = self.targets.iter().map(|t| (t.target, t.state)).collect();
        states.encode(out);
        if self.targets.iter().any(|t| t.since != Epoch(0)) {
            let since: Vec<_> = self.targets.iter().map(|t| t.since).collect();
            since.encode(out);
        }
    }
}

impl Decode for ServerRecord {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (host, tcp, unix) = (Decode::decode(r)?, Decode::decode(r)?, Decode::decode(r)?);
        let states: Vec<(TargetId, TargetState)> = Decode::decode(r)?;
        let since: Vec<Epoch> = match r.remaining() {
            0 => vec![Epoch(0); states.len()],
            _ => Decode::decode(r)?,
        };
        if since.len() != states.len() {
            return Err(DecodeError::BadValue);
        }
        let targets = states.into_iter().zip(since);
        let targets = targets.map(|((target, state), since)| TargetRecord { target, state, since });
        Ok(Self { host, tcp, unix, targets: targets.collect() })
    }
}

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
