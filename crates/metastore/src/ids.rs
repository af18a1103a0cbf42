//! Identifiers that never repeat, whatever is lost.

use crate::engine::{Engine, Sequence};
use crate::tx::transact;
use std::ops::Range;
use weir_host::plant::{Bug, planted};
use weir_types::{Error, ErrorKind, Result};

/// Hands out 64-bit ids from blocks that are reserved in the engine.
///
/// An id is handed out only after the reservation of its block is durable, so
/// no id repeats even if a power cut takes the last second of the log. The next
/// block is reserved while the current one is in use: nothing waits for a disk
/// except [`IdAllocator::open`]. Ids of a block that was not used up are lost.
pub struct IdAllocator {
    key: Vec<u8>,
    block: u64,
    /// Ids that are reserved durably and not handed out yet.
    ready: Range<u64>,
    /// A block that is reserved durably, used after `ready`.
    next: Option<Range<u64>>,
    /// A block that is reserved by this commit, which is not durable yet.
    pending: Option<(Range<u64>, Sequence)>,
}

impl IdAllocator {
    /// Reserves a first block of `block` ids and waits until that is durable.
    /// `key` holds the first id that was never reserved (8 bytes,
    /// little-endian); ids begin at `first` if it does not exist.
    pub fn open(engine: &mut dyn Engine, key: &[u8], first: u64, block: u64) -> Result<Self> {
        if block == 0 {
            return Err(Error::new(ErrorKind::InvalidArgument, "a block of ids cannot be empty"));
        }
        let (mut ready, _) = reserve(engine, key, first, block)?;
        engine.sync()?;
        if planted(Bug::ReuseIds) {
            ready.start = first;
        }
        Ok(Self { key: key.to_vec(), block, ready, next: None, pending: None })
    }

    /// An id that was never handed out. `None`: ids are used faster than blocks become durable. The
    /// caller answers `Overloaded`, or tries again after [`IdAllocator::upkeep`].
    pub fn take(&mut self) -> Option<u64> {
        if self.ready.is_empty() {
            self.ready = self.next.take()?;
        }
        self.ready.next()
    }

    /// Number of ids that can be taken at once.
    pub fn available(&self) -> u64 {
        let len = |range: &Range<u64>| range.end - range.start;
        len(&self.ready) + self.next.as_ref().map_or(0, len)
    }

    /// Reserves the next block in advance. Call it once per turn, before [`Engine::flush`]. Never
    /// waits.
    pub fn upkeep(&mut self, engine: &mut dyn Engine) -> Result<()> {
        if let Some((range, at)) = &self.pending
            && self.next.is_none()
            && engine.synced() >= *at
        {
            self.next = Some(range.clone());
            self.pending = None;
        }
        if self.next.is_none() && self.pending.is_none() {
            let (range, at) = reserve(engine, &self.key, self.ready.end, self.block)?;
            engine.request_sync(at);
            self.pending = Some((range, at));
        }
        Ok(())
    }
}

fn reserve(
    engine: &mut dyn Engine,
    key: &[u8],
    first: u64,
    block: u64,
) -> Result<(Range<u64>, Sequence)> {
    transact(engine, |tx| {
        let start = match tx.get(key)?.as_deref() {
            None => first,
            Some(bytes) => u64::from_le_bytes(bytes.try_into().map_err(|_| {
                Error::new(ErrorKind::Corrupt, "the record of reserved ids is not 8 bytes")
            })?),
        };
        let end = start
            .checked_add(block)
            .ok_or_else(|| Error::new(ErrorKind::NoSpace, "every 64-bit id has been used"))?;
        tx.put(key, &end.to_le_bytes())?;
        Ok::<_, Error>(start..end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ModelEngine;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn no_id_repeats_across_power_cuts(turns in proptest::collection::vec((0u64..12, 0u8..6), 1..60)) {
            let mut engine = ModelEngine::new();
            let mut ids = IdAllocator::open(&mut engine, b"ids", 2, 8).unwrap();
            let mut seen = BTreeSet::new();
            for (wanted, event) in turns {
                for _ in 0..wanted {
                    if let Some(id) = ids.take() {
                        prop_assert!(id >= 2 && seen.insert(id), "id {} came twice", id);
                    }
                }
                match event {
                    0 => {
                        engine.power_cut();
                        ids = IdAllocator::open(&mut engine, b"ids", 2, 8).unwrap();
                    }
                    1 | 2 => engine.poll().unwrap(),
                    _ => ids.upkeep(&mut engine).unwrap(),
                }
            }
        }
    }

    #[test]
    fn ids_run_dry_only_while_no_reservation_becomes_durable() {
        let mut engine = ModelEngine::new();
        let mut ids = IdAllocator::open(&mut engine, b"ids", 1, 4).unwrap();
        ids.upkeep(&mut engine).unwrap();
        assert_eq!(std::iter::from_fn(|| ids.take()).count(), 4);
        engine.poll().unwrap();
        ids.upkeep(&mut engine).unwrap();
        assert_eq!(std::iter::from_fn(|| ids.take()).collect::<Vec<_>>(), [5, 6, 7, 8]);
    }

    #[test]
    fn a_damaged_record_is_an_error_and_not_a_fresh_start() {
        let mut engine = ModelEngine::new();
        transact::<_, Error>(&mut engine, |tx| Ok(tx.put(b"ids", b"junk")?)).unwrap();
        let error = IdAllocator::open(&mut engine, b"ids", 1, 4).err().unwrap();
        assert_eq!(error.kind, ErrorKind::Corrupt);
    }
}
