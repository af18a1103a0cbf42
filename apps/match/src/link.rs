//! Looks up the records of the first file in the second one. Each reader takes an equal part of the
//! first file, sequentially, and reads the candidates in the second file, wherever they are.
//!
//! A plain reader reads one record of the second file at a time. A hinted reader gives the hint
//! that it reads at random, and requests all candidates of the next 350 records with one list.

use crate::fields::{Field, Record};
use crate::index::{Index, RECORDS_PER_CALL, read_in_order};
use crate::likeness::{LEAST_SCORE, household, keys, score};
use crate::profiles::Profiles;
use sio::constants::{HINT_RANDOM_PARTIAL, HINT_READ};
use sio::safe::{File, Range};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, Thread};
use std::time::Duration;
use weir_records::record::RECORD_BYTES;

/// Maximum number of ranges in one list.
const LIST_RANGES: usize = 2048;

/// Interval of progress reports.
const SHOWN_EVERY: Duration = Duration::from_millis(200);
/// Message of a reader that ends because another one has failed.
const GIVEN_UP: &str = "given up";

/// Reports the end of a reader, also after a panic.
struct End<'a> {
    left: &'a AtomicU64,
    is_over: &'a AtomicBool,
    caller: &'a Thread,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.is_over.fetch_or(thread::panicking(), Relaxed);
        self.left.fetch_sub(1, Relaxed);
        self.caller.unpark();
    }
}

/// The customer found for a record of the first file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The matching record of the second file, if any is similar enough.
    pub customer: Option<u32>,
    /// Their similarity.
    pub score: u32,
}

impl Link {
    /// No customer found yet.
    pub const NONE: Self = Self { customer: None, score: 0 };

    /// Replaces the link if this customer is more similar. Among equally similar ones the first
    /// stays.
    pub fn consider(&mut self, customer: u32, score: u32) {
        if score >= LEAST_SCORE && score > self.score {
            *self = Self { customer: Some(customer), score };
        }
    }
}

/// The combined results of the readers.
#[derive(Default)]
pub struct Linked {
    /// The link of each record of the first file.
    pub links: Vec<Link>,
    /// Profiles of the customers that were found.
    pub profiles: Profiles,
    /// Number of records of the second file that were read.
    pub looked_up: u64,
    /// Number of calls that read them.
    pub calls: u64,
    /// Number of records linked as the generator has made them, and number of records for which
    /// that is known.
    pub right: u64,
    pub told: u64,
}

/// Both files, and the index of the second one.
pub struct Matching<'a> {
    pub first: &'a str,
    pub first_records: u64,
    pub second: &'a str,
    pub index: &'a Index,
    pub is_hinted: bool,
}

impl Matching<'_> {
    /// Links all records with this many readers. `seen` is called from time to time with the number
    /// of finished records.
    ///
    /// # Errors
    /// That of the first reader that fails.
    pub fn link(&self, readers: u64, mut seen: impl FnMut(u64)) -> Result<Linked, String> {
        let (done, left) = (AtomicU64::new(0), AtomicU64::new(readers));
        let (is_over, caller) = (AtomicBool::new(false), thread::current());
        let parts: Vec<Result<Linked, String>> = thread::scope(|scope| {
            let all: Vec<_> = (0..readers)
                .map(|reader| {
                    let (done, left, is_over, caller) = (&done, &left, &is_over, &caller);
                    scope.spawn(move || {
                        let _end = End { left, is_over, caller };
                        let at = |reader| self.first_records * reader / readers;
                        let found = self.read(at(reader)..at(reader + 1), done, is_over);
                        is_over.fetch_or(found.is_err(), Relaxed);
                        found
                    })
                })
                .collect();
            while left.load(Relaxed) > 0 {
                seen(done.load(Relaxed));
                thread::park_timeout(SHOWN_EVERY);
            }
            let ended = all.into_iter().map(|reader| reader.join());
            ended.map(|end| end.unwrap_or_else(|_| Err("internal error: a panic".into()))).collect()
        });
        let is_cause = |part: &&Result<Linked, String>| part.as_ref().is_err_and(|e| e != GIVEN_UP);
        if let Some(Err(why)) = parts.iter().find(is_cause) {
            return Err(why.clone());
        }
        let mut sum = Linked::default();
        for part in parts {
            let part = part?;
            sum.links.extend(part.links);
            sum.profiles.add(part.profiles);
            sum.looked_up += part.looked_up;
            sum.calls += part.calls;
            sum.right += part.right;
            sum.told += part.told;
        }
        Ok(sum)
    }

    /// The work of one reader.
    fn read(
        &self,
        part: std::ops::Range<u64>,
        done: &AtomicU64,
        is_over: &AtomicBool,
    ) -> Result<Linked, String> {
        let open = |name| File::open(name).map_err(|e| e.to_string());
        let (first, second) = (open(self.first)?, open(self.second)?);
        if self.is_hinted {
            // A hint that is refused changes nothing.
            let _ = second.hint(HINT_READ | HINT_RANDOM_PARTIAL, &[]);
        }
        let mut found = Linked::default();
        let mut batch: Vec<([u8; RECORD_BYTES], Vec<u32>)> = Vec::new();
        let batch_records = if self.is_hinted { RECORDS_PER_CALL as usize } else { 1 };
        let end = part.end;
        let mut bytes = [0; RECORD_BYTES];
        read_in_order(&first, self.first, part, |number, record| {
            bytes.copy_from_slice(record.bytes());
            batch.push((bytes, self.index.candidates(record)));
            if batch.len() == batch_records || number + 1 == end {
                self.decide(&second, &batch, &mut found)?;
                done.fetch_add(batch.len() as u64, Relaxed);
                batch.clear();
            }
            // Another reader has failed.
            if is_over.load(Relaxed) { Err(GIVEN_UP.into()) } else { Ok(()) }
        })?;
        Ok(found)
    }

    /// Reads the candidates of these records, and chooses among them.
    fn decide(
        &self,
        second: &File,
        batch: &[([u8; RECORD_BYTES], Vec<u32>)],
        found: &mut Linked,
    ) -> Result<(), String> {
        let mut wanted: Vec<u32> = batch.iter().flat_map(|(_, of)| of.iter().copied()).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut customers: BTreeMap<u32, [u8; RECORD_BYTES]> = BTreeMap::new();
        let at_once = if self.is_hinted { LIST_RANGES } else { 1 };
        let mut buffer = vec![0; at_once.min(wanted.len()) * RECORD_BYTES];
        for list in wanted.chunks(at_once) {
            let len = RECORD_BYTES as u64;
            let range = |number: &u32| Range { offset: u64::from(*number) * len, len };
            let ranges: Vec<Range> = list.iter().map(range).collect();
            let bytes = &mut buffer[..list.len() * RECORD_BYTES];
            let read = second.read_list(&ranges, bytes).map_err(|e| e.to_string())?;
            if read < bytes.len() {
                return Err(format!("{} has become shorter", self.second));
            }
            found.calls += 1;
            found.looked_up += list.len() as u64;
            customers.extend(list.iter().copied().zip(bytes.as_chunks().0.iter().copied()));
        }
        for (bytes, candidates) in batch {
            let record = Record::new(bytes).map_err(str::to_owned)?;
            let own = keys(&record);
            let mut link = Link::NONE;
            for number in candidates {
                let Some(customer) = customers.get(number) else { continue };
                let customer = self.customer(*number, customer)?;
                // Different keys can have the same hash.
                let shares = keys(&customer).iter().zip(&own).any(|(a, b)| a.is_some() && a == b);
                if shares {
                    link.consider(*number, score(&record, &customer));
                }
            }
            if let Some((number, customer)) =
                link.customer.and_then(|n| Some((n, customers.get(&n)?)))
            {
                let customer = self.customer(number, customer)?;
                let amount = record.digits(Field::Amount).unwrap_or_default();
                found.profiles.count(number, &household(&customer), amount);
            }
            if let Some(truth) = record.digits(Field::Truth) {
                found.told += 1;
                found.right += u64::from(link.customer.map(u64::from) == Some(truth));
            }
            found.links.push(link);
        }
        Ok(())
    }

    fn customer<'b>(&self, number: u32, bytes: &'b [u8]) -> Result<Record<'b>, String> {
        Record::new(bytes).map_err(|why| format!("{}: record {number} {why}", self.second))
    }
}
