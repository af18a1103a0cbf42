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
    /// It gets nothing new, and what it has is moved away.
    pub draining: bool,
    /// Online, and not everybody knows it yet: `since` as it was before. What others
    /// did meanwhile it may lack; nothing is read from it.
    pub joins: Option<Epoch>,
}

impl TargetRecord {
    /// Whether it serves, as far as everybody knows.
    pub fn serves(&self) -> bool {
        self.state == TargetState::Online && self.joins.is_none()
    }
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

/// The epochs come last, and only if there are any; after them which targets are
/// draining, and then which join, again only if any does: so older records are
/// good.
impl Encode for ServerRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        self.host.encode(out);
        self.tcp.encode(out);
        self.unix.encode(out);
        let states: Vec<_> = self.targets.iter().map(|t| (t.target, t.state)).collect();
        states.encode(out);
        let joins = self.targets.iter().any(|t| t.joins.is_some());
        let draining = joins || self.targets.iter().any(|t| t.draining);
        if draining || self.targets.iter().any(|t| t.since != Epoch(0)) {
            let since: Vec<_> = self.targets.iter().map(|t| t.since).collect();
            since.encode(out);
        }
        if draining {
            let draining: Vec<_> = self.targets.iter().map(|t| t.draining).collect();
            draining.encode(out);
        }
        if joins {
            let joins: Vec<_> = self.targets.iter().map(|t| t.joins).collect();
            joins.encode(out);
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
        let draining: Vec<bool> = match r.remaining() {
            0 => vec![false; states.len()],
            _ => Decode::decode(r)?,
        };
        let joins: Vec<Option<Epoch>> = match r.remaining() {
            0 => vec![None; states.len()],
            _ => Decode::decode(r)?,
        };
        if [since.len(), draining.len(), joins.len()] != [states.len(); 3] {
            return Err(DecodeError::BadValue);
        }
        let targets = states.into_iter().zip(since).zip(draining.into_iter().zip(joins));
        let target = |(((target, state), since), (draining, joins))| TargetRecord {
            target,
            state,
            since,
            draining,
            joins,
        };
        Ok(Self { host, tcp, unix, targets: targets.map(target).collect() })
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
    fn records_of_servers_from_before_there_were_copies_or_drains_are_good() {
        let target = |target, since, draining| TargetRecord {
            target: TargetId(target),
            state: TargetState::Syncing,
            since: Epoch(since),
            draining,
            joins: None,
        };
        let record = |targets| ServerRecord {
            host: "h".into(),
            tcp: "h:1".into(),
            unix: String::new(),
            targets,
        };
        let old = record(vec![target(1, 0, false), target(2, 0, false)]);
        let middle = record(vec![target(1, 4, false), target(2, 0, false)]);
        let new = record(vec![target(1, 4, false), target(2, 0, true)]);
        let joins = TargetRecord { joins: Some(Epoch(3)), ..target(1, 4, false) };
        let joins = record(vec![joins, target(2, 0, true)]);
        let lens = [&old, &middle, &new, &joins].map(|record| {
            let bytes = schema::encode(record);
            assert_eq!(schema::decode::<ServerRecord>(&bytes, "of a server").unwrap(), *record);
            bytes.len()
        });
        // Each list has its length in front.
        let (second, third) = (lens[0] + 4 + 16, lens[0] + 4 + 16 + 4 + 2);
        assert_eq!(lens, [lens[0], second, third, third + 4 + 9 + 1]);
    }

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
