//! Works off the gap log of one target: a thread for each.
//!
//! A gap for another copy is filled from here if this copy orders the changes of
//! the column, and is left to the one that does otherwise. A gap of this copy is
//! told to the one that orders; if that is this one, what it has counts, and the
//! others have the gap.

use super::change::copy_of;
use super::lost::Search;
use super::order::order;
use super::push::{Push, fence};
use crate::counters::add;
use crate::disk::{Data, Disk};
use crate::service::Shared;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_host::clock;
use weir_host::net::Signal;
use weir_host::sync::Mutex;
use weir_store::{ELSEWHERE, Gap};
use weir_types::limits::{MAX_FILE_BYTES, MAX_FIND_COPIES};
use weir_types::{CopyIndex, Epoch, ErrorKind, ObjectId, Result, TargetId};
use weir_wire::data::NoteGapRequest;
use weir_wire::peer::{Copies as Column, Fill, FindCopiesRequest};

/// Between looks at the log.
const INTERVAL: Duration = Duration::from_millis(250);
/// The metadata server answers within this time.
const FIND_MS: u64 = 4_000;
/// What has not been filled so long after it was told is told again: the other one
/// could not vouch for what it had, or took the gap for void.
const TELL_AGAIN: Duration = Duration::from_secs(2);
/// Another server notes a gap within this time.
const NOTE_MS: u64 = 4_000;
/// Orders to fill that are remembered for one target.
const MAX_FILLS: usize = 4096;

/// What the heartbeats have to say of the work of one target.
#[derive(Default)]
pub(crate) struct Progress {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Under which epoch it was seen which gaps of this target keep it from being
    /// online: those that another copy can fill.
    seen: Option<(Epoch, u64)>,
    /// What was ordered, and whether its gap has been noted.
    fills: BTreeMap<(ObjectId, TargetId), (Fill, bool)>,
    /// With the object that each was filled from, if there is anything to fill.
    filled: Vec<(Fill, Option<ObjectId>)>,
}

impl Progress {
    /// What the metadata server orders now; what it does not any more is done.
    pub(crate) fn ordered(&self, target: TargetId, fills: &[Fill]) {
        let mut state = self.state.lock();
        let mine = || fills.iter().filter(|fill| fill.from == target).take(MAX_FILLS);
        state.fills.retain(|_, (fill, _)| mine().any(|ordered| ordered == fill));
        state.filled.retain(|(fill, _)| mine().any(|ordered| ordered == fill));
        for fill in mine() {
            if !state.filled.iter().any(|(filled, _)| filled == fill) {
                let key = (fill.object, fill.to);
                state.fills.entry(key).or_insert_with(|| (fill.clone(), false));
            }
        }
    }

    /// There are gaps that nobody has looked at yet.
    pub(super) fn look_again(&self) {
        self.state.lock().seen = None;
    }

    /// Copies that have been made, and that have all there is at this moment:
    /// `lacks` says whether the copy of an object on a target does not.
    pub(crate) fn filled(&self, lacks: impl Fn(ObjectId, TargetId) -> bool) -> Vec<Fill> {
        let all = self.state.lock().filled.clone();
        let whole =
            |(fill, from): &(Fill, Option<ObjectId>)| from.is_none_or(|from| !lacks(from, fill.to));
        all.into_iter().filter(whole).map(|(fill, _)| fill).collect()
    }

    /// Gaps of this target that another copy has to fill; `count`, as long as
    /// nobody has looked under this epoch.
    pub(crate) fn to_be_filled(&self, count: u64, acting: Epoch) -> u64 {
        match self.state.lock().seen {
            // Without a map nobody knows who could fill them.
            Some((epoch, seen)) if epoch == acting && acting > Epoch(0) => seen,
            _ => count,
        }
    }
}

fn copies_in(column: &Column) -> usize {
    column.copies.iter().filter(|copy| copy.target != TargetId::NONE).count()
}

/// To whom a gap was told, under which epoch, and what it was.
type Told = (TargetId, Epoch, Vec<Range<u64>>);

/// The thread of one target.
pub(crate) struct Resync {
    pub(super) shared: Arc<Shared>,
    pub(super) disk: Arc<Disk>,
    shutdown: Signal,
    buffer: Vec<u8>,
    /// Gaps of this copy that were told: to whom, under which epoch.
    told: BTreeMap<ObjectId, (Told, Instant)>,
    pub(super) search: Search,
}

impl Resync {
    pub(crate) fn new(shared: Arc<Shared>, disk: Arc<Disk>, shutdown: Signal) -> Self {
        let (buffer, told, search) = (Vec::new(), BTreeMap::new(), Search::default());
        Self { shared, disk, shutdown, buffer, told, search }
    }

    /// Until the server stops.
    pub(crate) fn run(mut self) {
        while matches!(self.shutdown.wait(Some(INTERVAL)), Ok(false)) {
            if let Err(error) = self.fills() {
                tracing::debug!("{}: copies to be made: {error}", self.disk.store.name());
            }
            // What is noted later is noted under a later epoch, or this one is not said.
            let acting = self.shared.copies.acting();
            let mut to_be_filled = 0;
            if self.disk.store.gaps().lost()
                && let Err(error) = self.look_for_lost()
            {
                tracing::debug!("{}: what was lost: {error}", self.disk.store.name());
            }
            for (behind, _) in self.disk.store.gaps().counts() {
                match self.work_off(behind) {
                    Ok(count) => to_be_filled += count,
                    Err(error) => {
                        tracing::debug!("{}: gaps of {behind}: {error}", self.disk.store.name());
                        to_be_filled += u64::from(behind == self.own());
                    }
                }
            }
            self.disk.progress.state.lock().seen = Some((acting, to_be_filled));
        }
    }

    pub(super) fn own(&self) -> TargetId {
        self.disk.served.id
    }

    /// Goes through what one target lacks; returns the gaps of this one that another
    /// has to fill before it is online. The first error counts, and does not end it:
    /// other objects may be on other servers.
    fn work_off(&mut self, behind: TargetId) -> Result<u64> {
        let (mut after, mut to_be_filled, mut result) = (None, 0, Ok(()));
        loop {
            let mut page = Vec::new();
            while page.len() < MAX_FIND_COPIES
                && let Some(gap) = self.disk.store.gaps().next(behind, after)
            {
                after = Some(gap.object);
                page.push(gap);
            }
            if page.is_empty() {
                break;
            }
            let columns = self.find(page.iter().map(|gap| gap.object).collect())?;
            for (gap, column) in page.iter().zip(&columns) {
                match self.gap(behind, gap, column.as_ref()) {
                    Ok(waits) => to_be_filled += u64::from(waits),
                    Err(error) if error.kind == ErrorKind::Interrupted => return Err(error),
                    Err(error) => result = result.and(Err(error)),
                }
            }
        }
        result.map(|()| to_be_filled)
    }

    fn find(&self, objects: Vec<ObjectId>) -> Result<Vec<Option<Column>>> {
        let lines = &self.shared.copies.lines;
        let count = objects.len();
        let request = FindCopiesRequest { objects };
        let columns = lines.peers().ask_metadata(&request, &lines.wait(FIND_MS))?;
        match columns.len() == count {
            true => Ok(columns),
            false => Err(ErrorKind::Protocol.into()),
        }
    }

    /// Does about one gap what can be done now; whether another copy has to fill it.
    fn gap(&mut self, behind: TargetId, gap: &Gap, column: Option<&Column>) -> Result<bool> {
        let own = self.own();
        let who = if behind == ELSEWHERE { own } else { behind };
        let place = column.and_then(|column| {
            let at = |target| column.copies.iter().position(|copy| copy.target == target);
            Some((column, at(own)?, at(who)?)).filter(|(c, ..)| copies_in(c) > 1)
        });
        // No file needs it any more, here or there.
        let Some((column, here, there)) = place else {
            self.disk.store.gaps().clear(gap.object, behind, &(0..u64::MAX))?;
            return Ok(false);
        };
        match self.shared.copies.standings.who_orders(&column.copies) {
            None => Ok(false),
            Some(orders) if orders == own && behind == own => {
                self.give_to_others(gap, column, here)?;
                Ok(false)
            }
            // Another should order, which has it.
            Some(orders) if orders == own && behind == ELSEWHERE => Ok(true),
            Some(orders) if orders == own => {
                // Nobody can vouch for what may be different elsewhere.
                let vouched = self.disk.store.gaps().of(gap.object, own).is_none();
                self.push(gap, column, there, vouched)?;
                Ok(false)
            }
            // It says itself what is so.
            Some(orders) if orders == who => {
                self.disk.store.gaps().clear(gap.object, behind, &(0..u64::MAX))?;
                Ok(false)
            }
            Some(orders) => {
                match self.tell(orders, who, gap, column, there) {
                    // It lacks that itself, so what this one has is what there is.
                    Err(error)
                        if error.kind == ErrorKind::NotCurrent
                            && behind == own
                            && copies_in(column) == 2 =>
                    {
                        self.disk.store.gaps().clear(gap.object, own, &(0..u64::MAX))?;
                        return Ok(false);
                    }
                    told => told?,
                }
                if who != own {
                    self.disk.store.gaps().clear(gap.object, behind, &(0..u64::MAX))?;
                }
                Ok(behind == own)
            }
        }
    }

    /// What this copy has counts: all others that are online are brought to it, and
    /// only then it does.
    fn give_to_others(&mut self, gap: &Gap, column: &Column, here: usize) -> Result<()> {
        let copies = &self.shared.copies;
        let orders = copies.standings.orders(self.own(), &column.copies)?;
        let others = column.copies.iter().enumerate();
        for (at, copy) in others.filter(|(at, c)| *at != here && c.target != TargetId::NONE) {
            let away =
                orders.lacking.contains(&copy.target) || orders.dispensable.contains(&copy.target);
            if !away {
                self.push(gap, column, at, false)?;
                continue;
            }
            let index = CopyIndex(at as u8);
            for range in gap.bytes.iter() {
                self.disk.store.gaps().note(gap.object, copy.target, index, &range)?;
            }
        }
        for range in gap.bytes.iter() {
            self.disk.store.gaps().clear(gap.object, self.own(), &range)?;
        }
        Ok(())
    }

    fn push(&mut self, gap: &Gap, column: &Column, to: usize, vouched: bool) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let (shared, disk, object) = (&*self.shared, &*self.disk, gap.object);
        let pace = |bytes| self.pace(bytes);
        let push = Push { shared, disk, object, column, to, vouched, pace: &pace };
        let brought = push.bring(&gap.bytes, &mut buffer);
        self.buffer = buffer;
        brought
    }

    /// Tells the copy that orders. What others lack is its business then; what this
    /// one lacks stays noted here until it has come.
    fn tell(
        &mut self,
        orders: TargetId,
        behind: TargetId,
        gap: &Gap,
        column: &Column,
        there: usize,
    ) -> Result<()> {
        let (own, acting) = (self.own(), self.shared.copies.standings.acting());
        let ranges: Vec<Range<u64>> = gap.bytes.iter().collect();
        let told = (orders, acting, ranges.clone());
        let known = self.told.get(&gap.object).filter(|(before, _)| *before == told);
        if behind == own && known.is_some_and(|(_, at)| clock::elapsed(*at) < TELL_AGAIN) {
            return Ok(());
        }
        let at = column.copies.iter().position(|copy| copy.target == orders);
        let object = copy_of(gap.object, at.unwrap_or_default());
        for range in ranges {
            self.note_at(orders, object, (behind, there), range)?;
        }
        if behind != own {
            return Ok(());
        }
        if self.told.len() > MAX_FIND_COPIES * 64 {
            self.told.clear();
        }
        self.told.insert(gap.object, (told, clock::now()));
        Ok(())
    }

    fn note_at(
        &self,
        target: TargetId,
        object: ObjectId,
        (behind, copy): (TargetId, usize),
        range: Range<u64>,
    ) -> Result<()> {
        let copy = CopyIndex(copy as u8);
        let Range { start, end } = range;
        let told = behind == target || behind == self.own();
        let epoch = self.shared.copies.standings.acting();
        let note = NoteGapRequest { target, object, behind, copy, start, end, told, epoch };
        let lines = &self.shared.copies.lines;
        let wait = lines.wait(NOTE_MS);
        lines.take(target, &wait)?.ask(&wait, (&[], &[]), |parcel| parcel.send(&note))
    }

    /// Orders to make copies: the old ones are fenced off from clients that do not
    /// know of the new one, and it gets all that is here.
    fn fills(&mut self) -> Result<()> {
        let fills: Vec<(Fill, bool)> = {
            let state = self.disk.progress.state.lock();
            state.fills.values().cloned().collect()
        };
        let mut result = Ok(());
        for page in fills.chunks(MAX_FIND_COPIES) {
            let columns = self.find(page.iter().map(|(fill, _)| fill.object).collect())?;
            for ((fill, begun), column) in page.iter().zip(&columns) {
                let done = match column {
                    Some(column) => self.fill(fill, *begun, column),
                    // There is nothing to be copied any more.
                    None => Ok(true),
                };
                match done {
                    Ok(false) => {}
                    Ok(true) => {
                        let mut state = self.disk.progress.state.lock();
                        if state.fills.remove(&(fill.object, fill.to)).is_some() {
                            let at =
                                |c: &Column| c.copies.iter().position(|c| c.target == fill.from);
                            let here = column.as_ref().and_then(at);
                            let from = here.map(|here| copy_of(fill.object, here));
                            state.filled.push((fill.clone(), from));
                        }
                    }
                    Err(error) => result = result.and(Err(error)),
                }
            }
        }
        result
    }

    /// Whether it is done.
    fn fill(&self, fill: &Fill, begun: bool, column: &Column) -> Result<bool> {
        let own = self.own();
        let at = |target| column.copies.iter().position(|copy| copy.target == target);
        let here = at(own).ok_or(ErrorKind::TargetMissing)?;
        let object = copy_of(fill.object, here);
        if begun {
            return Ok(!self.disk.store.gaps().lacks(object, fill.to, &(0..MAX_FILE_BYTES)));
        }
        let only_fence = fill.to == own;
        if !only_fence {
            let there = at(fill.to).ok_or(ErrorKind::TargetMissing)?;
            let copy = CopyIndex(there as u8);
            self.disk.store.gaps().note_told(object, fill.to, copy, &(0..MAX_FILE_BYTES))?;
        }
        // From here on nobody changes it who does not know of the new copy.
        let change = fence(column, object, here, fill.generation.max(column.generation));
        order(&self.shared, &self.disk, &change, &mut Data::default())?;
        if let Some((_, begun)) =
            self.disk.progress.state.lock().fills.get_mut(&(fill.object, fill.to))
        {
            *begun = true;
        }
        Ok(only_fence)
    }

    /// Keeps to the rate that is set for such work.
    fn pace(&self, bytes: u64) -> Result<()> {
        add(&self.shared.counters.resynced_bytes, bytes);
        let rate = self.shared.resync_bytes_per_s;
        if rate == 0 {
            return Ok(());
        }
        let time = Duration::from_secs_f64(bytes as f64 / rate as f64);
        match self.shutdown.wait(Some(time)) {
            Ok(false) => Ok(()),
            Ok(true) => Err(ErrorKind::Interrupted.into()),
            Err(e) => Err(std::io::Error::from(e).into()),
        }
    }
}
