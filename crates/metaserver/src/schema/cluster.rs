//! Records of servers, clients and the store itself.

use weir_types::codec::{Bytes, DecodeError, Reader};
use weir_types::limits::MAX_PAST;
use weir_types::{ClientStanding, Decode, Encode, Epoch, LayoutSpec, Restrictions, TargetId};
use weir_wire::map::{Online, TargetState};

/// The last periods in which a target was online, the latest last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Past([Option<Online>; MAX_PAST]);

impl Past {
    /// Adds a period.
    pub fn and(mut self, online: Online) -> Self {
        if online.from < online.until {
            if self.0[MAX_PAST - 1].is_some() {
                self.0.rotate_left(1);
            }
            let free = self.0.iter().position(Option::is_none).unwrap_or(MAX_PAST - 1);
            self.0[free] = Some(online);
        }
        self
    }

    /// The periods.
    pub fn times(&self) -> impl Iterator<Item = Online> + '_ {
        self.0.iter().flatten().copied()
    }
}

impl Encode for Past {
    fn encode(&self, out: &mut Vec<u8>) {
        self.times().collect::<Vec<_>>().encode(out);
    }
}

impl Decode for Past {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let times: Vec<Online> = Decode::decode(r)?;
        match times.len() <= MAX_PAST && times.iter().all(|online| online.from < online.until) {
            true => Ok(times.into_iter().fold(Self::default(), Self::and)),
            false => Err(DecodeError::BadValue),
        }
    }
}

/// A target of a data server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetRecord {
    /// The target.
    pub target: TargetId,
    /// Its last known state.
    pub state: TargetState,
    /// The epoch at which it came online; if it is not online, the epoch at which it went offline.
    /// 0 from before there were copies.
    pub since: Epoch,
    /// Whether it is drained: it gets no new data, and its data is moved away.
    pub draining: bool,
    /// Set while it is online but not all servers know it: the earlier value of `since`. It may
    /// lack changes of that time, and nothing is read from it.
    pub joins: Option<Epoch>,
    /// Periods in which it was online before `since`.
    pub past: Past,
    /// The run of its disk's memory; 0: not known.
    pub run: u64,
    /// The epoch from which on it is known to have kept what it confirmed: before,
    /// its machine started anew, or its disk was mounted anew or failed.
    pub anew: Epoch,
}

impl TargetRecord {
    /// Whether it serves, as far as all servers know.
    pub fn serves(&self) -> bool {
        self.state == TargetState::Online && self.joins.is_none()
    }

    /// Whether it is not online, and may have lost confirmed changes since it went.
    pub fn forgot(&self) -> bool {
        self.state != TargetState::Online && self.anew >= self.since
    }
}

/// A data server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRecord {
    /// Its host.
    pub host: String,
    /// Its failure domain; if empty, its host.
    pub domain: String,
    /// `address:port` for TCP.
    pub tcp: String,
    /// Path of its Unix socket; may be empty.
    pub unix: String,
    /// Its targets.
    pub targets: Vec<TargetRecord>,
}

/// Optional lists follow at the end, each only if it or a later one has entries: epochs, draining
/// targets, joining targets, periods online, runs of machines, and the domain. So older records are
/// valid.
impl Encode for ServerRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        self.host.encode(out);
        self.tcp.encode(out);
        self.unix.encode(out);
        let states: Vec<_> = self.targets.iter().map(|t| (t.target, t.state)).collect();
        states.encode(out);
        let lists = self.lists();
        if lists > 0 {
            let since: Vec<_> = self.targets.iter().map(|t| t.since).collect();
            since.encode(out);
        }
        if lists > 1 {
            let draining: Vec<_> = self.targets.iter().map(|t| t.draining).collect();
            draining.encode(out);
        }
        if lists > 2 {
            let joins: Vec<_> = self.targets.iter().map(|t| t.joins).collect();
            joins.encode(out);
        }
        if lists > 3 {
            let past: Vec<_> = self.targets.iter().map(|t| t.past).collect();
            past.encode(out);
        }
        if lists > 4 {
            let runs: Vec<_> = self.targets.iter().map(|t| (t.run, t.anew)).collect();
            runs.encode(out);
        }
        if lists > 5 {
            self.domain.encode(out);
        }
    }
}

impl ServerRecord {
    /// Number of optional lists to write, the domain counted as one: those after the last one with
    /// entries are left out.
    fn lists(&self) -> usize {
        let any = |says: fn(&TargetRecord) -> bool| self.targets.iter().any(says);
        let says = [
            any(|t| t.since != Epoch(0)),
            any(|t| t.draining),
            any(|t| t.joins.is_some()),
            any(|t| t.past != Past::default()),
            any(|t| (t.run, t.anew) != (0, Epoch(0))),
            !self.domain.is_empty(),
        ];
        says.iter().rposition(|says| *says).map_or(0, |last| last + 1)
    }
}

impl Decode for ServerRecord {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (host, tcp, unix) = (Decode::decode(r)?, Decode::decode(r)?, Decode::decode(r)?);
        let states: Vec<(TargetId, TargetState)> = Decode::decode(r)?;
        let (count, mut lists) = (states.len(), 0);
        let since = list(r, count, Epoch(0), &mut lists)?;
        let draining = list(r, count, false, &mut lists)?;
        let joins = list(r, count, None, &mut lists)?;
        let past = list(r, count, Past::default(), &mut lists)?;
        let runs = list(r, count, (0, Epoch(0)), &mut lists)?;
        let domain = match r.remaining() {
            0 => String::new(),
            _ => {
                lists += 1;
                Decode::decode(r)?
            }
        };
        let lens = [since.len(), draining.len(), joins.len(), past.len(), runs.len()];
        if lens != [states.len(); 5] {
            return Err(DecodeError::BadValue);
        }
        let target = |(at, (target, state)): (usize, (TargetId, TargetState))| TargetRecord {
            target,
            state,
            since: since[at],
            draining: draining[at],
            joins: joins[at],
            past: past[at],
            run: runs[at].0,
            anew: runs[at].1,
        };
        let targets = states.into_iter().enumerate().map(target).collect();
        let record = Self { host, domain, tcp, unix, targets };
        // It has one form only.
        match record.lists() == lists {
            true => Ok(record),
            false => Err(DecodeError::BadValue),
        }
    }
}

/// Decodes one optional list; a missing one has `without` for each target.
fn list<T: Decode + Clone>(
    r: &mut Reader<'_>,
    count: usize,
    without: T,
    lists: &mut usize,
) -> Result<Vec<T>, DecodeError> {
    if r.remaining() == 0 {
        return Ok(vec![without; count]);
    }
    *lists += 1;
    Decode::decode(r)
}

/// The record of a client. Its key is derived, not stored; a client without a record is an ordinary
/// one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientRecord {
    /// What it may do.
    pub standing: ClientStanding,
    /// Name for messages.
    pub name: String,
    /// Its restrictions, written only if there are any. So records from before there were
    /// restrictions are valid, and a program that does not know them refuses the record and with it
    /// the client.
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

/// Identity and format of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatRecord {
    /// The cluster.
    pub cluster: [u8; 16],
    /// A value derived from the master key, to recognise a wrong key. It reveals nothing about the
    /// key.
    pub key_check: Bytes,
    /// Default layout of directories without a parent to inherit it from.
    pub default_layout: LayoutSpec,
}
weir_types::codec_struct!(FormatRecord { cluster, key_check, default_layout });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;

    #[test]
    fn a_record_of_a_server_with_a_list_that_says_nothing_is_refused() {
        let record = ServerRecord {
            host: "h".into(),
            domain: String::new(),
            tcp: "h:1".into(),
            unix: String::new(),
            targets: vec![TargetRecord {
                target: TargetId(1),
                state: TargetState::Online,
                since: Epoch(2),
                draining: false,
                joins: None,
                past: Past::default(),
                run: 0,
                anew: Epoch(0),
            }],
        };
        let mut bytes = schema::encode(&record);
        assert_eq!(schema::decode::<ServerRecord>(&bytes, "it").unwrap(), record);
        vec![false].encode(&mut bytes);
        schema::decode::<ServerRecord>(&bytes, "it").unwrap_err();
    }

    #[test]
    fn records_of_servers_from_before_there_were_copies_drains_or_domains_are_good() {
        let target = |target, since, draining| TargetRecord {
            target: TargetId(target),
            state: TargetState::Syncing,
            since: Epoch(since),
            draining,
            joins: None,
            past: Past::default(),
            run: 0,
            anew: Epoch(0),
        };
        let record = |targets| ServerRecord {
            host: "h".into(),
            domain: String::new(),
            tcp: "h:1".into(),
            unix: String::new(),
            targets,
        };
        let old = record(vec![target(1, 0, false), target(2, 0, false)]);
        let middle = record(vec![target(1, 4, false), target(2, 0, false)]);
        let new = record(vec![target(1, 4, false), target(2, 0, true)]);
        let joins = TargetRecord { joins: Some(Epoch(3)), ..target(1, 4, false) };
        let joins = record(vec![joins, target(2, 0, true)]);
        let past = Past::default().and(Online { from: Epoch(1), until: Epoch(4) });
        let was = record(vec![TargetRecord { past, ..target(1, 4, false) }, target(2, 0, false)]);
        let run = TargetRecord { run: 7, anew: Epoch(2), ..target(1, 0, false) };
        let run = record(vec![run, target(2, 0, false)]);
        let domain = ServerRecord { domain: "rack7".into(), ..new.clone() };
        let lens = [&old, &middle, &new, &joins, &was, &run, &domain].map(|record| {
            let bytes = schema::encode(record);
            assert_eq!(schema::decode::<ServerRecord>(&bytes, "of a server").unwrap(), *record);
            bytes.len()
        });
        // Each list has its length in front.
        let (second, third) = (lens[0] + 4 + 16, lens[0] + 4 + 16 + 4 + 2);
        let last = third + 4 + 2;
        let was = last + 4 + (4 + 16) + 4;
        let run = last + 4 + 2 * 4 + 4 + 2 * 16;
        let domain = run + 4 + "rack7".len();
        assert_eq!(lens, [lens[0], second, third, third + 4 + 9 + 1, was, run, domain]);
    }

    #[test]
    fn of_the_times_in_which_a_target_was_online_the_last_are_remembered() {
        let online = |n: u64| Online { from: Epoch(2 * n), until: Epoch(2 * n + 1) };
        let all = MAX_PAST as u64 + 3;
        let past = (0..all).fold(Past::default(), |past, n| past.and(online(n)));
        assert!(past.times().eq((3..all).map(online)));
        assert_eq!(past.and(Online { from: Epoch(99), until: Epoch(99) }), past, "never");
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
