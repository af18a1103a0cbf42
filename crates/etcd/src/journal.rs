//! [`Journal`] on etcd.
//!
//! Invariants
//! - An append is one transaction that compares the create revision of the leader's key: nobody
//!   who has lost the lead changes the log.
//! - An append also compares the head, so that it may be repeated as often as there is no answer.
//! - The end of the lead here, on the boot-time clock, is before the end of the lease in etcd:
//!   the time counts from before a request that starts or keeps the lease, and is shorter.

use crate::gateway::Gateway;
use crate::message::{
    KeyValue, LeaseResponse, RangeResponse, Streamed, TxnResponse, changed_at, created_at, delete,
    get, has_value, put, put_leased, text, txn,
};
use serde_json::{Value, json};
use std::time::Duration;
use weir_host::sync::Mutex;
use weir_host::{clock, thread};
use weir_metastore::{Batch, Begun, Extent, Held, Journal, Sequence};
use weir_types::{Error, ErrorKind, Result};

/// Lease time in etcd, seconds. After a leader's death others wait this long.
pub const LEASE_S: u64 = 4;
/// Share of a lease that is not used, because clocks may differ in speed: one part in this many.
const CLOCK_MARGIN: u32 = 8;
/// The most batches of one reply.
const BATCHES_PER_READ: usize = 8;
/// The most members that are listed.
const MAX_MEMBERS: usize = 64;
/// The most removed members that are listed. With each one a metadata server was set up and removed.
const MAX_REMOVED: usize = 10_000;
/// etcd is compacted after this many changes.
const COMPACT_AFTER: i64 = 100;
/// Pause before an append is sent again.
const PAUSE: Duration = Duration::from_millis(20);

struct Lead {
    lease: i64,
    /// Create revision of the leader's key.
    fence: i64,
    /// On the clock of [`clock::since_boot`].
    until: Duration,
}

/// A journal on etcd, for one metadata server.
pub struct EtcdJournal {
    gateway: Gateway,
    prefix: String,
    lead: Mutex<Option<Lead>>,
    /// The revision up to which this server has compacted etcd.
    compacted: Mutex<i64>,
}

impl EtcdJournal {
    /// The journal of a cluster. Sends no request.
    ///
    /// # Errors
    /// `InvalidArgument` for addresses that are neither `http://HOST:PORT` nor `unix:/PATH`.
    pub fn new(endpoints: &[String], cluster: [u8; 16]) -> Result<Self> {
        let prefix = format!("/weir/{:032x}/", u128::from_be_bytes(cluster));
        Ok(Self {
            gateway: Gateway::new(endpoints)?,
            prefix,
            lead: Mutex::new(None),
            compacted: Mutex::new(0),
        })
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn log_key(&self, last: Sequence) -> String {
        self.key(&format!("log/{:016x}", last.0))
    }

    fn txn(&self, compare: &[Value], success: &[Value], failure: &[Value]) -> Result<TxnResponse> {
        self.gateway.ask("/v3/kv/txn", &txn(compare, success, failure))
    }

    fn range(&self, from: &str, end: &str, limit: usize) -> Result<Vec<KeyValue>> {
        let request =
            json!({"key": text(from), "range_end": text(end), "limit": limit.to_string()});
        Ok(self.gateway.ask::<RangeResponse>("/v3/kv/range", &request)?.kvs)
    }

    fn find(&self, name: &str) -> Result<Option<KeyValue>> {
        let request = json!({"key": text(self.key(name))});
        Ok(self.gateway.ask::<RangeResponse>("/v3/kv/range", &request)?.kvs.pop())
    }

    /// The fence of the present lead; an error if the lead has ended.
    fn fence(&self) -> Result<i64> {
        match &*self.lead.lock() {
            Some(lead) if clock::since_boot() < lead.until => Ok(lead.fence),
            Some(_) => Err(lost("its lease in etcd has run out")),
            None => Err(lost("it has not acquired it")),
        }
    }

    /// Makes these changes, if this server leads.
    fn as_leader(&self, changes: &[Value]) -> Result<()> {
        let leader = created_at(&self.key("leader"), self.fence()?);
        match self.txn(&[leader], changes, &[])?.succeeded {
            true => Ok(()),
            false => Err(lost("another one has taken it")),
        }
    }

    fn revoke(&self, lease: i64) {
        let request = json!({"ID": lease.to_string()});
        if let Err(error) = self.gateway.ask::<Value>("/v3/lease/revoke", &request) {
            tracing::debug!("a lease in etcd runs out by itself: {error}");
        }
    }

    fn take_lead(
        &self,
        (lease, until): (i64, Duration),
        address: &str,
        begin: Option<Begun>,
    ) -> Result<Option<u64>> {
        let (leader, term) = (self.key("leader"), self.key("term"));
        let (head, begun) = (self.key("head"), self.key("begun"));
        let seen = self.txn(&[], &[get(&leader), get(&term), get(&head), get(&begun)], &[])?;
        if seen.found(0).is_some() {
            return Ok(None);
        }
        let (number, of) = match seen.found(1) {
            Some(found) => (decimal(found)?, found.mod_revision),
            // A new journal starts above all terms of a lost one, because event numbers derive from
            // the term.
            None => (clock::unix_now().as_secs() / 60, 0),
        };
        let next = number + 1;
        let mut compare = vec![created_at(&leader, 0), changed_at(&term, of)];
        let mut success =
            vec![put_leased(&leader, address, lease), put(&term, next.to_string().as_bytes())];
        let found = extent(seen.found(2), seen.found(3))?;
        let led = Extent::led(found, begin).ok_or_else(|| {
            let what = format!("etcd holds no log of metadata below {}", self.prefix);
            Error::new(ErrorKind::NotFound, what)
        })?;
        // The term has not changed since: so nobody has led, and appended, since.
        if found.is_none() {
            compare.push(created_at(&head, 0));
            success.push(put(&head, led.head.0.to_string()));
            success.push(delete(&self.key("removed/"), &self.key("removed0")));
        }
        if let Some(new) = led.begun.filter(|_| found.is_none_or(|found| found.begun.is_none())) {
            compare.push(created_at(&begun, 0));
            success.push(put(&begun, shown(new)));
        }
        let done = self.txn(&compare, &success, &[])?;
        if !done.succeeded {
            return Ok(None);
        }
        *self.lead.lock() = Some(Lead { lease, fence: done.header.revision, until });
        Ok(Some(next))
    }

    /// One attempt to append; `Corrupt` if others have appended.
    fn try_append(&self, fence: i64, previous: Sequence, batch: &Batch) -> Result<()> {
        let (leader, head) = (self.key("leader"), self.key("head"));
        let compare = [created_at(&leader, fence), has_value(&head, &previous.0.to_string())];
        let success =
            [put(&self.log_key(batch.last), &batch.records), put(&head, batch.last.0.to_string())];
        let done = self.txn(&compare, &success, &[get(&leader), get(&head)])?;
        if done.succeeded {
            return Ok(());
        }
        if done.found(0).is_none_or(|leader| leader.create_revision != fence) {
            return Err(Error::new(
                ErrorKind::NotLeader,
                "another metadata server has taken the lead",
            ));
        }
        match done.found(1).map(decimal).transpose()? {
            // Appended by an attempt whose reply was lost: nobody else appends while this server
            // leads.
            Some(now) if now == batch.last.0 => Ok(()),
            now => {
                let what = format!(
                    "the log in etcd ends with operation {}, not with {previous}",
                    now.unwrap_or_default()
                );
                Err(Error::new(ErrorKind::Corrupt, what))
            }
        }
    }
}

impl Journal for EtcdJournal {
    fn leader(&self) -> Result<Option<String>> {
        let found = self.find("leader")?;
        Ok(found.map(|found| String::from_utf8_lossy(&found.value).into_owned()))
    }

    fn extent(&self) -> Result<Option<Extent>> {
        let seen = self.txn(&[], &[get(&self.key("head")), get(&self.key("begun"))], &[])?;
        extent(seen.found(0), seen.found(1))
    }

    fn acquire(&self, address: &str, begin: Option<Begun>) -> Result<Option<u64>> {
        let sent = clock::since_boot();
        let request = json!({"TTL": LEASE_S.to_string()});
        let lease: LeaseResponse = self.gateway.ask("/v3/lease/grant", &request)?;
        let taken = self.take_lead((lease.id, end_of(sent, lease.ttl)), address, begin);
        if !matches!(taken, Ok(Some(_))) {
            self.revoke(lease.id);
        }
        taken
    }

    fn read(&self, after: Sequence) -> Result<Vec<Batch>> {
        let (from, end) = (self.log_key(after.next()), self.key("log0"));
        let log = self.key("log/");
        let batch = |found: KeyValue| {
            let name = std::str::from_utf8(&found.key).ok().and_then(|key| key.strip_prefix(&log));
            let last = name.and_then(|name| u64::from_str_radix(name, 16).ok());
            let last = last.map(Sequence).ok_or_else(|| foreign(&found))?;
            Ok(Batch { last, records: found.value })
        };
        self.range(&from, &end, BATCHES_PER_READ)?.into_iter().map(batch).collect()
    }

    fn append(&self, previous: Sequence, batch: &Batch) -> Result<()> {
        loop {
            let fence = self.fence()?;
            match self.try_append(fence, previous, batch) {
                // While this server leads, no other server can know the outcome.
                Err(error)
                    if matches!(error.kind, ErrorKind::Unreachable | ErrorKind::TimedOut) =>
                {
                    tracing::warn!("append to the journal: {error}; trying again");
                    thread::sleep(PAUSE);
                }
                Err(error) => {
                    *self.lead.lock() = None;
                    return Err(error);
                }
                Ok(()) => return Ok(()),
            }
        }
    }

    fn renew(&self) -> Result<()> {
        self.fence()?;
        let Some(lease) = self.lead.lock().as_ref().map(|lead| lead.lease) else {
            return Err(lost("it has given it up"));
        };
        let sent = clock::since_boot();
        let request = json!({"ID": lease.to_string()});
        let kept: Streamed<LeaseResponse> = self.gateway.ask("/v3/lease/keepalive", &request)?;
        let mut lead = self.lead.lock();
        if kept.result.ttl <= 0 {
            *lead = None;
            return Err(lost("its lease in etcd has ended"));
        }
        if let Some(lead) = lead.as_mut().filter(|lead| lead.lease == lease) {
            lead.until = lead.until.max(end_of(sent, kept.result.ttl));
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        self.fence().map(drop)
    }

    fn resign(&self) {
        let lead = self.lead.lock().take();
        if let Some(lead) = lead {
            self.revoke(lead.lease);
        }
    }

    fn report(&self, member: &str, upto: Sequence) -> Result<()> {
        let key = self.key(&format!("members/{member}"));
        let request = json!({"key": text(key), "value": text(upto.0.to_string())});
        self.gateway.ask::<Value>("/v3/kv/put", &request).map(drop)
    }

    fn forget(&self, member: &str) -> Result<()> {
        let request = json!({"key": text(self.key(&format!("members/{member}")))});
        self.gateway.ask::<Value>("/v3/kv/deleterange", &request).map(drop)
    }

    fn remove(&self, member: &str) -> Result<()> {
        let own = self.key(&format!("members/{member}"));
        let mark = put(&self.key(&format!("removed/{member}")), "");
        // The key itself, and no other one.
        self.as_leader(&[mark, delete(&own, &format!("{own}\0"))])
    }

    fn removed(&self) -> Result<Vec<String>> {
        let prefix = self.key("removed/");
        let found = self.range(&prefix, &self.key("removed0"), MAX_REMOVED)?;
        let name = |found: &KeyValue| {
            let name = String::from_utf8_lossy(&found.key);
            Ok(name.strip_prefix(&prefix).ok_or_else(|| foreign(found))?.to_owned())
        };
        found.iter().map(name).collect()
    }

    fn end(&self) -> Result<()> {
        let below =
            |name: &str| delete(&self.key(&format!("{name}/")), &self.key(&format!("{name}0")));
        let one = |name: &str| delete(&self.key(name), &self.key(&format!("{name}\0")));
        self.as_leader(&[one("head"), one("begun"), below("log"), below("members")])
    }

    fn members(&self) -> Result<Vec<Held>> {
        let prefix = self.key("members/");
        let found = self.range(&prefix, &self.key("members0"), MAX_MEMBERS)?;
        let member = |found: &KeyValue| {
            let name = String::from_utf8_lossy(&found.key);
            let name = name.strip_prefix(&prefix).ok_or_else(|| foreign(found))?;
            Ok(Held {
                member: name.to_owned(),
                upto: Sequence(decimal(found)?),
                stamp: found.mod_revision.unsigned_abs(),
            })
        };
        found.iter().map(member).collect()
    }

    fn cut(&self, upto: Sequence) -> Result<()> {
        self.as_leader(&[delete(&self.log_key(Sequence::ZERO), &self.log_key(upto.next()))])
    }

    fn compact(&self) -> Result<()> {
        self.fence()?;
        let request = json!({"key": text(self.key("head"))});
        let now = self.gateway.ask::<RangeResponse>("/v3/kv/range", &request)?.header.revision;
        if now - *self.compacted.lock() < COMPACT_AFTER {
            return Ok(());
        }
        // Revisions older than the present one are never read.
        let request = json!({"revision": now.to_string()});
        match self.gateway.ask::<Value>("/v3/kv/compaction", &request) {
            // Another server has compacted already.
            Err(error) if error.kind == ErrorKind::Stale => {}
            other => drop(other?),
        }
        *self.compacted.lock() = now;
        Ok(())
    }
}

/// When a lead ends whose lease was requested at `sent`.
fn end_of(sent: Duration, ttl_s: i64) -> Duration {
    let ttl = Duration::from_secs(u64::try_from(ttl_s).unwrap_or(0));
    sent + ttl - ttl / CLOCK_MARGIN
}

fn decimal(found: &KeyValue) -> Result<u64> {
    let text = std::str::from_utf8(&found.value).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| foreign(found))
}

/// A log with these values of its keys.
fn extent(head: Option<&KeyValue>, begun: Option<&KeyValue>) -> Result<Option<Extent>> {
    let Some(head) = head else { return Ok(None) };
    let begun = begun.map(|found| parsed(found).ok_or_else(|| foreign(found))).transpose()?;
    Ok(Some(Extent { begun, head: Sequence(decimal(head)?) }))
}

/// The value that says how a log was begun: the id as 32 hexadecimal digits, the operation, the id of
/// the log before it or `-`, and `adopted` if an older version has begun the log.
fn shown(begun: Begun) -> String {
    let hex = |id| format!("{:032x}", u128::from_be_bytes(id));
    let from = begun.from.map_or_else(|| "-".to_owned(), hex);
    let adopted = if begun.adopted { " adopted" } else { "" };
    format!("{} {} {from}{adopted}", hex(begun.id), begun.at.0)
}

fn parsed(found: &KeyValue) -> Option<Begun> {
    let id = |text: &str| Some(u128::from_str_radix(text, 16).ok()?.to_be_bytes());
    let words: Vec<&str> = std::str::from_utf8(&found.value).ok()?.split(' ').collect();
    let (start, adopted) = match &words[..] {
        [start @ .., "adopted"] => (start, true),
        start => (start, false),
    };
    let [own, at, from] = start else { return None };
    let from = if *from == "-" { None } else { Some(id(from)?) };
    Some(Begun { id: id(own)?, at: Sequence(at.parse().ok()?), from, adopted })
}

/// The error for a key or value that Weir does not write.
fn foreign(found: &KeyValue) -> Error {
    let what = format!("the key {} in etcd is not Weir's", String::from_utf8_lossy(&found.key));
    Error::new(ErrorKind::Corrupt, what)
}

fn lost(why: &str) -> Error {
    let what = format!("this metadata server has no lead: {why}");
    Error::new(ErrorKind::NotLeader, what)
}
