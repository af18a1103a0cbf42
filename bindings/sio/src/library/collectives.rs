//! Collective operations. Participants are threads of this process, or one thread that joins for
//! several.

use super::{Busy, Library, lock};
use crate::core::codes::{Code, Failure, Result};
use crate::core::collective::Collective;
use crate::core::limits::MAX_PARTICIPANTS;
use crate::core::list::{Direction, Piece};
use crate::tasks::Ended;
use crate::transfer::Transfer;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A defined collective.
pub(super) struct Defined {
    descriptor: i32,
    plan: Collective,
    /// Participants that have joined the present round, with their handles.
    handles: Vec<(u32, u32)>,
    /// Keeps the file busy for these handles.
    busy: Option<Busy>,
    cancel: Arc<AtomicBool>,
}

fn unknown(collective: u32) -> Failure {
    Failure::new(Code::InvalidHandle, format!("collective {collective:#x}"))
}

impl Library {
    /// `sio_coll_define`.
    pub fn define(&self, descriptor: i32, direction: Direction, participants: u32) -> Result<u32> {
        Self::check_direction(&*self.file(descriptor)?, direction)?;
        if participants == 0 || participants > MAX_PARTICIPANTS {
            let what = format!("{participants} participants, from 1 to {MAX_PARTICIPANTS} may be");
            return Err(Failure::new(Code::InvalidParticipant, what));
        }
        let plan = Collective::new(direction, participants);
        let (handles, busy, cancel) = (Vec::new(), None, Arc::default());
        let defined = Defined { descriptor, plan, handles, busy, cancel };
        let full = |_| Failure::new(Code::MaxAsyncOutstandingExceeded, "too many collectives");
        lock(&self.collectives).add(defined).map_err(full)
    }

    /// The direction of a collective.
    pub fn direction(&self, collective: u32) -> Result<Direction> {
        let all = lock(&self.collectives);
        all.get(collective).map(|defined| defined.plan.direction()).ok_or(unknown(collective))
    }

    /// `sio_coll_join`: when the last participant joins, the operation begins.
    ///
    /// # Safety
    /// See [`Transfer::run`], until the handle is completed.
    pub unsafe fn join(
        &self,
        collective: u32,
        participant: u32,
        pieces: Vec<Piece>,
    ) -> Result<u32> {
        let mut all = lock(&self.collectives);
        let defined = all.get_mut(collective).ok_or(unknown(collective))?;
        let busy = match defined.busy.take() {
            Some(busy) => busy,
            None => self.begin(defined.descriptor)?,
        };
        let reserved = self.tasks.reserve(true, defined.cancel.clone());
        let joined = reserved.and_then(|handle| {
            let joined = defined.plan.join(participant, pieces);
            joined.map(|round| (handle, round)).inspect_err(|_| self.tasks.give_back(handle))
        });
        let (handle, round) = match joined {
            Ok(joined) => joined,
            Err(failure) => {
                if !defined.plan.is_idle() {
                    defined.busy = Some(busy);
                }
                return Err(failure);
            }
        };
        defined.handles.push((participant, handle));
        let Some(mut round) = round else {
            defined.busy = Some(busy);
            return Ok(handle);
        };
        let direction = defined.plan.direction();
        let cancel = std::mem::take(&mut defined.cancel);
        let mut handles = std::mem::take(&mut defined.handles);
        handles.sort_unstable();
        let work = move |cancel: &AtomicBool| {
            let pieces = std::mem::take(&mut round.pieces);
            let transfer = Transfer { direction, pieces };
            // SAFETY: by the contracts of all participants' calls.
            let (count, result) = unsafe { busy.0.run(&transfer, cancel) };
            drop(busy);
            round.pieces = transfer.pieces;
            let ended = |count| Ended { count, result: result.clone() };
            round.shares(count).into_iter().map(ended).collect()
        };
        let handles = handles.into_iter().map(|(_, handle)| handle).collect();
        self.tasks.queue(handles, cancel, Box::new(work));
        Ok(handle)
    }

    /// `sio_coll_free`.
    pub fn free(&self, collective: u32) -> Result<()> {
        let mut all = lock(&self.collectives);
        let defined = all.get(collective).ok_or(unknown(collective))?;
        if !defined.plan.is_idle() {
            return Err(Failure::new(Code::IoInProgress, "a participant waits for the others"));
        }
        all.remove(collective);
        Ok(())
    }

    /// Ends cancelled rounds that still wait for participants.
    pub(super) fn end_cancelled_rounds(&self) {
        let mut all = lock(&self.collectives);
        for defined in all.iter_mut().filter(|one| one.cancel.load(Ordering::Relaxed)) {
            let handles: Vec<u32> = defined.handles.drain(..).map(|(_, handle)| handle).collect();
            defined.plan.cancel();
            defined.cancel = Arc::default();
            drop(defined.busy.take());
            let ended = Ended { count: 0, result: Err(Code::IoCanceled.into()) };
            self.tasks.end_all(&handles, &ended);
        }
    }
}
