//! Brings one copy of an object to what the copy here has, while both take changes.

use super::change::{Asked, Change, copy_of};
use super::lines::Parcel;
use super::repair::Suspect;
use crate::disk::Disk;
use crate::machine::Work;
use crate::service::Shared;
use std::ops::Range;
use std::sync::Arc;
use weir_host::plant::{Bug, planted};
use weir_layout::{RegionList, segment_offset};
use weir_store::{ELSEWHERE, Object, RangeSet, ReadMode, ReadOutcome};
use weir_types::limits::{MAX_FILE_BYTES, MAX_STRIPE_UNIT_BYTES};
use weir_types::{Error, ErrorKind, Generation, ObjectId, Result, StripeMap, TargetId};
use weir_wire::data::{
    Access, AlignRequest, CopyAccess, ObjectLen, PunchRequest, Relay, SyncRequest, WriteFlags,
    WriteRequest,
};
use weir_wire::peer::Copies as Column;

/// Bytes of one step, under the lock of the range.
pub(crate) const STEP_BYTES: u64 = 1 << 20;
/// One step ends within this time, or is done again.
const STEP_MS: u64 = 8_000;
/// After so many bytes they are made durable where they were lacking.
const SYNC_BYTES: u64 = 64 << 20;
/// That may take so long.
const SYNC_MS: u64 = 30_000;

/// One object that another copy lacks something of.
pub(crate) struct Push<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) disk: &'a Disk,
    /// Here.
    pub(crate) object: ObjectId,
    pub(crate) column: &'a Column,
    /// The position of the other copy.
    pub(crate) to: usize,
    /// What is here is current for certain.
    pub(crate) vouched: bool,
    /// Told of the bytes of each step before it is made.
    pub(crate) pace: &'a dyn Fn(u64) -> Result<()>,
}

impl Push<'_> {
    fn own(&self) -> TargetId {
        self.disk.served.id
    }

    fn behind(&self) -> TargetId {
        self.column.copies[self.to].target
    }

    /// Brings over what `lacking` says. What is done is forgotten in the gap log,
    /// step by step.
    ///
    /// # Errors
    /// `NotCurrent` if this copy does not order changes, or the other takes none.
    pub(crate) fn bring(&self, lacking: &RangeSet, buffer: &mut Vec<u8>) -> Result<()> {
        let len = match self.disk.store.gaps().of(self.object, ELSEWHERE) {
            // It may be longer there.
            Some(_) => self.check().map(|()| MAX_FILE_BYTES)?,
            None => self.align()?,
        };
        let mut unsynced = 0;
        for range in lacking.iter() {
            let (mut at, end) = (range.start, range.end.min(len));
            while at < end {
                let next = (at - at % STEP_BYTES + STEP_BYTES).min(end);
                (self.pace)(next - at)?;
                self.step(at..next, buffer)?;
                unsynced += next - at;
                at = next;
                if unsynced >= SYNC_BYTES {
                    self.sync()?;
                    unsynced = 0;
                }
            }
        }
        self.sync()
    }

    /// What the other copy has got it must not lose any more before it is forgotten
    /// here that it lacked it: it may be durable here.
    fn sync(&self) -> Result<()> {
        let request = SyncRequest { access: self.access() };
        let lines = &self.shared.copies.lines;
        let wait = lines.wait(SYNC_MS);
        let line = lines.take(self.behind(), &wait)?;
        line.ask::<()>(&wait, (&[], &[]), |parcel| parcel.send(&request))?;
        self.disk.store.gaps().clear_sent(self.object, self.behind())
    }

    /// Gives the other copy the length and the fence of this one. What lies behind
    /// is the same then: nothing.
    fn align(&self) -> Result<u64> {
        let copies = &self.shared.copies;
        let _lock = copies.locks.lock(self.own(), self.object, 0..MAX_FILE_BYTES);
        self.check()?;
        let object = self.disk.store.object(self.object)?;
        let (len, generation) = object
            .as_ref()
            .map_or((0, Generation(0)), |object| (object.len(), object.generation()));
        let access = Access { generation, ..self.access() };
        self.ask((&[], &[]), |parcel| parcel.send(&AlignRequest { access, len }))?;
        self.sent(len..u64::MAX);
        Ok(len)
    }

    /// Sends blocks of a range anew, although nothing is known to be lacking.
    pub(crate) fn again(&self, range: Range<u64>) -> Result<()> {
        self.step(range, &mut Vec::new())
    }

    fn step(&self, range: Range<u64>, buffer: &mut Vec<u8>) -> Result<()> {
        let _lock = self.shared.copies.locks.lock(self.own(), self.object, range.clone());
        self.check()?;
        if planted(Bug::ClearGapEarly) {
            return self.disk.store.gaps().clear(self.object, self.behind(), &range);
        }
        // What this one lacks the other may have.
        let mut here = RangeSet::default();
        here.insert(range.clone());
        if let Some(elsewhere) = self.disk.store.gaps().of(self.object, ELSEWHERE) {
            elsewhere.iter().for_each(|lacking| here.remove(&lacking));
        }
        for part in here.iter() {
            self.send(part, buffer)?;
        }
        self.sent(range);
        Ok(())
    }

    fn send(&self, range: Range<u64>, buffer: &mut Vec<u8>) -> Result<()> {
        let object = self.disk.store.object(self.object)?;
        // It may have been cut since.
        let end = object.as_ref().map_or(0, |object| object.len()).min(range.end);
        let mut at = range.start;
        while at < end {
            let data = match &object {
                Some(object) => object.next_data(at)?.map_or(end, |data| data.clamp(at, end)),
                None => end,
            };
            if at < data {
                self.punch(at..data)?;
                at = data;
                continue;
            }
            let Some(object) = &object else { break };
            let hole = object.next_hole(at)?.clamp(at + 1, end);
            self.write(object, at..hole, buffer)?;
            at = hole;
        }
        Ok(())
    }

    fn write(&self, object: &Arc<Object>, range: Range<u64>, buffer: &mut Vec<u8>) -> Result<()> {
        let len = (range.end - range.start) as usize;
        buffer.resize(len, 0);
        let mut checks = Vec::new();
        let pieces = [(range.start, len as u64)];
        let read = object.read_pieces(&pieces, buffer, &mut checks, ReadMode::Locked);
        if read.as_ref().is_err_and(|e| e.kind == ErrorKind::Corrupt) {
            // A third copy may have it.
            let suspect = Suspect::Bytes(range.clone());
            self.shared.copies.repairs.suspect(self.own(), self.object, suspect);
        }
        let n = match read? {
            ReadOutcome::Done { bytes, .. } => bytes,
            ReadOutcome::WouldBlock => return Err(ErrorKind::Internal.into()),
        };
        if n < len {
            let what = "it has become shorter while its range was locked";
            return Err(Error::new(ErrorKind::Internal, what));
        }
        // Any stripe does that has the column and units as long as the range.
        let column = self.object.column;
        let stripe = StripeMap { unit_bytes: MAX_STRIPE_UNIT_BYTES, columns: column.0 + 1 };
        let start =
            segment_offset(stripe, column, range.start).ok_or(ErrorKind::InvalidArgument)?;
        let request = WriteRequest {
            access: Access { generation: object.generation(), ..self.access() },
            stripe,
            flags: WriteFlags::default(),
            regions: RegionList::contiguous(start, len as u64)?,
        };
        self.ask((buffer, &checks), |parcel| parcel.send(&request))
    }

    fn punch(&self, range: Range<u64>) -> Result<()> {
        let access = Access { generation: Generation(u64::MAX), ..self.access() };
        let (offset, len) = (range.start, range.end - range.start);
        self.ask((&[], &[]), |parcel| parcel.send(&PunchRequest { access, offset, len }))
    }

    /// Whether this copy orders, and the other takes what it orders.
    fn check(&self) -> Result<()> {
        let orders = self.shared.copies.standings.orders(self.own(), &self.column.copies)?;
        match orders.lacking.contains(&self.behind()) {
            true => Err(super::roles::not_current(self.behind(), "it is away")),
            false => Ok(()),
        }
    }

    fn sent(&self, range: Range<u64>) {
        self.disk.store.gaps().sent(self.object, self.behind(), &range);
    }

    fn access(&self) -> Access {
        let vouched = self.vouched;
        let CopyAccess { target, mac, .. } = self.column.copies[self.to];
        Access {
            target,
            object: copy_of(self.object, self.to),
            generation: self.column.generation,
            capability: self.column.capability.clone(),
            mac,
            copies: self.column.copies.clone(),
            relay: Some(Relay { by: self.own(), lacking: Vec::new(), alone: true, vouched }),
        }
    }

    fn ask(
        &self,
        data: (&[u8], &[u32]),
        send: impl FnOnce(&mut Parcel<'_>) -> Result<()>,
    ) -> Result<()> {
        let lines = &self.shared.copies.lines;
        let wait = lines.wait(STEP_MS);
        lines.take(self.behind(), &wait)?.ask::<ObjectLen>(&wait, data, send).map(drop)
    }
}

/// A fence of all copies of a column, as a client would ask for it.
pub(crate) fn fence(
    column: &Column,
    object: ObjectId,
    own: usize,
    generation: Generation,
) -> Change {
    let CopyAccess { target, mac, .. } = column.copies[own];
    let object = copy_of(object, own);
    let access = Access {
        target,
        object,
        generation,
        capability: column.capability.clone(),
        mac,
        copies: column.copies.clone(),
        relay: None,
    };
    Change { access, asked: Asked::Fence, work: Work::Fence { object, generation } }
}
