//! How much room a file takes (`st_blocks`). Of a file without holes that follows from its size;
//! of one that may have some, the servers of its objects are asked, one copy of each column.

use crate::client::Inner;
use crate::context::Context;
use crate::control::{BATCH, ask_allocated};
use crate::core::copies::copies_of;
use crate::core::kept::DOUBTFUL;
use crate::core::plan::{Place, columns};
use crate::drive::{Call, now_ms};
use crate::file::OpenState;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_host::clock;
use weir_host::sync::Mutex;
use weir_layout::covered_bytes;
use weir_types::{Attr, FileId, FileKind, Result, Segment, TargetId};
use weir_wire::Rights;
use weir_wire::meta::{GetLayoutRequest, OpenFile};

/// Of a file with more objects nobody is asked: it would take too long.
const MAX_OBJECTS: u64 = 1024;
/// Who does not answer within this time is not waited for,
const ASK_MS: u64 = 1_500;
/// nor is who was among those of whom one did not.
const ASK_AGAIN_MS: u64 = 200;
/// and for all of a file's objects together no longer than so.
/// (Who has not answered is not asked for [`DOUBTFUL`].)
const ASK_ALL_MS: u64 = 2_000;

/// What a file takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Taken {
    bytes: u64,
    /// All have answered.
    certain: bool,
}

impl Inner {
    /// Bytes of disk that a file takes which has these attributes; `None`: as many as its size
    /// says. What this client has not sent yet counts, all copies of a column count once, and a
    /// column of which no copy answers soon counts as if it had no holes.
    pub(crate) fn allocated(&self, ctx: &Context, attr: &Attr) -> Option<u64> {
        if !attr.sparse || attr.kind != FileKind::File {
            return None;
        }
        let open = self.open_state(attr.file);
        let number = |of: fn(&OpenState) -> u64| open.as_deref().map_or(0, of);
        let buffered = number(|state| state.buffered.load(Ordering::Acquire));
        let changes = number(|state| state.changes.load(Ordering::Acquire));
        let state = (attr.change, changes);
        if let Some(bytes) = self.known_allocated(attr.file, state) {
            return Some(bytes + buffered);
        }
        let taken = match self.ask_servers(ctx, attr, open) {
            Ok(taken) => taken?,
            Err(error) => {
                tracing::debug!("file {}: what it takes is not known: {error}", attr.file);
                return None;
            }
        };
        let found = (taken.bytes, taken.certain);
        self.holdings.kept.lock().keep_allocated(attr.file, state, found, clock::uptime());
        Some(taken.bytes + buffered)
    }

    fn ask_servers(
        &self,
        ctx: &Context,
        attr: &Attr,
        open: Option<Arc<OpenState>>,
    ) -> Result<Option<Taken>> {
        let state = match open {
            Some(state) => state,
            None => match self.look_at(ctx, attr)? {
                Some(state) => state,
                None => return Ok(None),
            },
        };
        if covered_bytes(&state.layout()) < attr.size {
            // Another client made the file longer.
            state.refresh(self, ctx)?;
        }
        let columns = columns(attr.file, &state.layout(), attr.size);
        if columns.len() as u64 > MAX_OBJECTS {
            return Ok(None);
        }
        let call = Call { inner: self, file: &state, ctx };
        ask_all(call, &columns).map(Some)
    }

    /// The layout of a file that is not open. `stat` needs no right to a file: it is looked at
    /// in this program's name, or if that may not, in that of who asks.
    fn look_at(&self, ctx: &Context, attr: &Attr) -> Result<Option<Arc<OpenState>>> {
        let request = GetLayoutRequest { file: attr.file, offset: 0, rights: Rights::READ };
        let own = Context { interrupt: ctx.interrupt, ..Context::root() };
        let page = self.session.call(&own, &request);
        let (by, page) = match page {
            Ok(page) => (&own, page),
            Err(_) => (ctx, self.session.call(ctx, &request)?),
        };
        let first = page.layout.segments.first();
        let chunks = first.and_then(|first| first.len).map_or(1, |len| attr.size / len.max(1));
        if chunks.saturating_mul(first.map_or(1, |f| f.columns.len() as u64)) > MAX_OBJECTS {
            return Ok(None);
        }
        let end = covered_bytes(&page.layout);
        let open = OpenFile {
            attr: attr.clone(),
            consistency: None,
            layout: page.layout,
            more_segments: page.more_segments,
            capability: page.capability,
            pending_truncate: None,
            loads: Vec::new(),
        };
        let state = OpenState::new(&open);
        if open.more_segments {
            state.fetch_layout(self, by, end, Rights::READ)?;
        }
        Ok(Some(Arc::new(state)))
    }

    fn known_allocated(&self, file: FileId, state: (u64, u64)) -> Option<u64> {
        let known = || self.holdings.kept.lock().allocated(file, state, clock::uptime());
        self.may_use_kept().then(known).flatten()
    }
}

/// Targets that have not answered of late.
#[derive(Debug, Default)]
pub(crate) struct Silent(Mutex<BTreeMap<TargetId, Duration>>);

impl Silent {
    fn note(&self, target: TargetId, now: Duration) {
        let mut all = self.0.lock();
        all.retain(|_, until| now < *until);
        all.insert(target, now + DOUBTFUL);
    }

    fn has(&self, target: TargetId, now: Duration) -> bool {
        self.0.lock().get(&target).is_some_and(|until| now < *until)
    }
}

/// Asks for all columns; each comes with its length without holes.
///
/// # Errors
/// `Interrupted`: nobody wants to know any more, and nothing was found out.
fn ask_all(call: Call<'_>, columns: &[(Place, u64)]) -> Result<Taken> {
    let end_ms = now_ms() + ASK_ALL_MS;
    let mut taken = Taken { bytes: 0, certain: true };
    for batch in columns.chunks(BATCH) {
        let places = batch.iter().map(|(place, _)| *place);
        let places: Vec<Place> = places.filter(|place| may_answer(call, place)).collect();
        let answers = ask_batch(call, &places, end_ms)?;
        let mut answered = places.iter().zip(answers).peekable();
        for (place, len) in batch {
            let is_it = |(asked, _): &(&Place, Option<u64>)| asked.object == place.object;
            let found = answered.next_if(is_it).and_then(|(_, found)| found);
            taken.certain &= found.is_some();
            taken.bytes += found.unwrap_or(*len);
        }
    }
    if !taken.certain {
        tracing::debug!("file {}: not all have said what it takes", call.file.id);
    }
    Ok(taken)
}

/// Whether any copy of a column is on a target that is not known to be silent.
fn may_answer(call: Call<'_>, place: &Place) -> bool {
    let (silent, servers, now) = (&call.inner.silent, &call.inner.servers, clock::uptime());
    let object = place.object;
    let any = |segment: &Segment| {
        let whole = |(copy, _): &_| !segment.is_filling(object.column, *copy);
        let mut targets = copies_of(segment, object.column).filter(whole).map(|(_, on)| on);
        targets.any(|target| !silent.has(target, now) && !servers.is_out(target))
    };
    call.file.with_segment(object, any).unwrap_or(true)
}

/// Asks for columns side by side, and once more by themselves for those that have not answered: one
/// that refuses ends the wait for the others.
fn ask_batch(call: Call<'_>, places: &[Place], end_ms: u64) -> Result<Vec<Option<u64>>> {
    let left_ms = || end_ms.saturating_sub(now_ms());
    if places.is_empty() || left_ms() == 0 {
        return Ok(vec![None; places.len()]);
    }
    let first = ask_allocated(call, places, ASK_MS.min(left_ms()))?;
    let mut answers: Vec<_> = first.into_iter().map(|asked| asked.found).collect();
    for (place, answer) in places.iter().zip(&mut answers) {
        let time_ms = ASK_AGAIN_MS.min(left_ms());
        if answer.is_some() || time_ms == 0 || !may_answer(call, place) {
            continue;
        }
        for asked in ask_allocated(call, &[*place], time_ms)? {
            *answer = asked.found;
            // Nothing is held against one that had no time.
            if asked.silent && time_ms == ASK_AGAIN_MS {
                call.inner.silent.note(asked.target, clock::uptime());
            }
        }
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_silent_is_not_asked_for_a_while() {
        let (silent, now) = (Silent::default(), Duration::from_secs(100));
        silent.note(TargetId(1), now);
        assert!(silent.has(TargetId(1), now) && !silent.has(TargetId(2), now));
        assert!(!silent.has(TargetId(1), now + DOUBTFUL));
        silent.note(TargetId(2), now + DOUBTFUL);
        assert_eq!(silent.0.lock().len(), 1);
    }
}
