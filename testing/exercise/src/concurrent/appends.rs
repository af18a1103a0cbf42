//! Records appended to one file by all callers. Each record must be there exactly once, intact, and
//! after every record whose append had returned before its own began. A concurrent reader must see
//! every record whose append had returned.

use super::calls::{How, OpenFile, Place};
use super::kind::Exercise;
use crate::Outcome;
use crate::linear::Event;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const FILE: &str = "log";
/// A record: length, then its number, then bytes that follow from both.
const HEADER: usize = 12;
const MAX_RECORD: u32 = 3000;

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub enum Op {
    Append {
        id: u64,
        len: u32,
    },
    /// Reads the whole file.
    Read,
}

/// For a read: the records in order, and the number of bytes after the last intact one.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct Log {
    ids: Vec<u64>,
    rest: usize,
    /// What is wrong with a record.
    torn: Option<String>,
}

pub struct Appends {
    append: Box<dyn OpenFile>,
    caller: u32,
    made: u64,
}

fn record(id: u64, len: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len as usize);
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(&id.to_le_bytes());
    let body = (HEADER..len as usize).map(|i| (id as usize).wrapping_mul(31).wrapping_add(i) as u8);
    bytes.extend(body.map(|b| b | 1));
    bytes
}

/// Parses a log up to its first record that is not intact.
fn parse(mut bytes: &[u8]) -> Log {
    let mut log = Log::default();
    while bytes.len() >= HEADER {
        let (mut len, mut id) = ([0; 4], [0; 8]);
        len.copy_from_slice(&bytes[..4]);
        id.copy_from_slice(&bytes[4..HEADER]);
        let (len, id) = (u32::from_le_bytes(len), u64::from_le_bytes(id));
        if (len as usize) < HEADER || len > MAX_RECORD {
            log.torn = Some(format!("after {:?}: a length of {len}", log.ids.last()));
            break;
        }
        let Some(whole) = bytes.get(..len as usize) else { break };
        if whole != record(id, len) {
            log.torn = Some(format!("after {:?}: record {id:#x} is torn", log.ids.last()));
            break;
        }
        log.ids.push(id);
        bytes = &bytes[len as usize..];
    }
    log.rest = bytes.len();
    log
}

impl Exercise for Appends {
    type Op = Op;
    type Result = Log;

    fn prepare(at: &Place) -> Outcome {
        at.open(FILE, How::Empty).map(drop)
    }

    fn open(at: &Place, caller: u32) -> Outcome<Self> {
        Ok(Self { append: at.open(FILE, How::Append)?, caller, made: 0 })
    }

    fn choose(&mut self, rng: &mut fastrand::Rng) -> Op {
        if rng.u32(..10) == 0 {
            return Op::Read;
        }
        self.made += 1;
        let id = (u64::from(self.caller) + 1) << 32 | self.made;
        Op::Append { id, len: rng.u32(HEADER as u32..=MAX_RECORD) }
    }

    fn perform(&mut self, op: &Op) -> Outcome<Log> {
        match *op {
            Op::Append { id, len } => {
                let bytes = record(id, len);
                self.append.append(&bytes).map_err(|e| e.to_string())?;
                Ok(Log::default())
            }
            Op::Read => {
                let mut bytes = Vec::new();
                let mut part = vec![0; 1 << 16];
                loop {
                    let at = bytes.len() as u64;
                    match self.append.read_at(&mut part, at).map_err(|e| e.to_string())? {
                        0 => break,
                        n => bytes.extend_from_slice(&part[..n]),
                    }
                }
                Ok(parse(&bytes))
            }
        }
    }

    fn check(events: &[Seen], places: &[Place]) -> Outcome {
        let mut order: Option<Vec<u64>> = None;
        for (mount, at) in places.iter().enumerate() {
            let log = Self::open(at, 0)?.perform(&Op::Read)?;
            check_log(events, &log).map_err(|e| format!("through mount {mount}: {e}"))?;
            order = Some(log.ids);
        }
        check_reads(events, &order.unwrap_or_default())
    }
}

type Seen = Event<Op, Log>;

fn appends(events: &[Seen]) -> BTreeMap<u64, (u64, u64)> {
    let append = |e: &Seen| match e.op {
        Op::Append { id, .. } => Some((id, (e.invoked_ns, e.returned_ns))),
        Op::Read => None,
    };
    events.iter().filter_map(append).collect()
}

/// Checks the whole log at the end.
fn check_log(events: &[Seen], log: &Log) -> Outcome {
    if let Some(torn) = &log.torn {
        return Err(torn.clone());
    }
    if log.rest != 0 {
        return Err(format!("{} bytes after the last whole record", log.rest));
    }
    let mut left = appends(events);
    let mut latest_invoked = (0, 0);
    for id in &log.ids {
        let Some((invoked, returned)) = left.remove(id) else {
            return Err(format!("record {id:#x} is there twice, or nobody wrote it"));
        };
        if returned < latest_invoked.0 {
            return Err(format!(
                "record {id:#x} was complete before {:#x} began, and stands after it",
                latest_invoked.1
            ));
        }
        latest_invoked = latest_invoked.max((invoked, *id));
    }
    match left.keys().next() {
        Some(id) => Err(format!("{} records are lost, {id:#x} the first", left.len())),
        None => Ok(()),
    }
}

/// Checks concurrent reads: each is a beginning of the final log, with every record appended before
/// the read, and none appended after it.
fn check_reads(events: &[Seen], order: &[u64]) -> Outcome {
    let times = appends(events);
    for read in events.iter().filter(|e| e.op == Op::Read) {
        let seen = &read.result;
        if !order.starts_with(&seen.ids) {
            return Err(format!("caller {} saw records in another order", read.caller));
        }
        let rest = &order[seen.ids.len()..];
        let time = |id: &u64| times.get(id).copied().unwrap_or_default();
        if let Some(missed) = rest.iter().find(|id| time(id).1 < read.invoked_ns) {
            return Err(format!(
                "caller {} missed {missed:#x}, complete {} us before",
                read.caller,
                (read.invoked_ns - time(missed).1) / 1000
            ));
        }
        if let Some(early) = seen.ids.iter().find(|id| time(id).0 > read.returned_ns) {
            return Err(format!("caller {} saw {early:#x} before it was appended", read.caller));
        }
        // A partly appended record may be seen only during its append.
        let half = seen.rest > 0 || seen.torn.is_some();
        if half && rest.first().is_none_or(|id| time(id).0 > read.returned_ns) {
            return Err(format!("caller {}: half a record, and nobody appends", read.caller));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(id: u64, invoked_ns: u64, returned_ns: u64) -> Seen {
        let op = Op::Append { id, len: 20 };
        Event { caller: 0, op, result: Log::default(), invoked_ns, returned_ns }
    }

    fn read(ids: &[u64], invoked_ns: u64, returned_ns: u64) -> Seen {
        let result = Log { ids: ids.to_vec(), ..Log::default() };
        Event { caller: 9, op: Op::Read, result, invoked_ns, returned_ns }
    }

    fn log(ids: &[u64]) -> Log {
        Log { ids: ids.to_vec(), ..Log::default() }
    }

    #[test]
    fn lost_doubled_and_reordered_records_are_refused() {
        let events = [append(1, 0, 10), append(2, 5, 20), append(3, 30, 40)];
        assert_eq!(check_log(&events, &log(&[2, 1, 3])), Ok(()));
        assert_eq!(check_log(&events, &log(&[1, 2, 3])), Ok(()));
        assert!(check_log(&events, &log(&[1, 2])).unwrap_err().contains("lost"));
        assert!(check_log(&events, &log(&[1, 2, 3, 3])).unwrap_err().contains("twice"));
        assert!(check_log(&events, &log(&[1, 2, 3, 4])).unwrap_err().contains("nobody"));
        assert!(check_log(&events, &log(&[1, 3, 2])).unwrap_err().contains("stands after"));
    }

    #[test]
    fn a_torn_record_is_refused() {
        let mut bytes = [record(1, 50), record(2, 700)].concat();
        assert_eq!(parse(&bytes), log(&[1, 2]));
        assert_eq!(parse(&bytes[..100]), Log { rest: 50, ..log(&[1]) });
        bytes[300] = 0;
        let torn = parse(&bytes);
        assert_eq!(torn.ids, [1]);
        assert!(torn.torn.is_some());
        assert!(check_log(&[append(1, 0, 10), append(2, 20, 30)], &torn).is_err());
        let overwritten = [record(1, 50), record(2, 60)[20..].to_vec()].concat();
        assert!(parse(&overwritten).torn.is_some());
    }

    #[test]
    fn a_reader_that_misses_what_was_complete_is_refused() {
        let mut events = vec![append(1, 0, 10), append(2, 20, 30)];
        events.push(read(&[1], 15, 25));
        assert_eq!(check_reads(&events, &[1, 2]), Ok(()));
        events.push(read(&[1], 35, 45));
        assert!(check_reads(&events, &[1, 2]).unwrap_err().contains("missed 0x2"));
    }
}
