//! The allocated space of a file (`st_blocks`). For a file without holes it follows from the size.
//! For a file that may have holes, the servers of one copy of each column are asked.

use crate::context::Context;
use crate::core::copies::copies_of;
use crate::core::plan::{Place, columns};
use crate::io::control::{BATCH, ask_allocated};
use crate::io::drive::now_ms;
use crate::state::{Call, Inner, OpenState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_host::clock;
use weir_layout::covered_bytes;
use weir_types::{Attr, FileId, FileKind, Result, Segment};
use weir_wire::Rights;
use weir_wire::meta::{GetLayoutRequest, OpenFile};

/// The servers of a file with more objects are not asked, because that would take too long.
const MAX_OBJECTS: u64 = 1024;
/// Timeout of the first request to each server, milliseconds.
const ASK_MS: u64 = 1_500;
/// Timeout of the second request, after another server of the same group gave no reply,
/// milliseconds.
const ASK_AGAIN_MS: u64 = 200;
/// Timeout for all objects of a file together, milliseconds. (A server that gave no reply is not
/// asked again for [`crate::core::kept::DOUBTFUL`].)
const ASK_ALL_MS: u64 = 2_000;

/// The allocated space of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Taken {
    bytes: u64,
    /// Whether all servers have replied.
    certain: bool,
}

impl Inner {
    /// Bytes of disk of a file with these attributes; `None` if they equal its size. Buffered
    /// writes of this client count, all copies of a column count once, and a column without a
    /// timely reply counts as if it had no holes.
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
                tracing::debug!("file {}: its allocated space is unknown: {error}", attr.file);
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

    /// The layout of a file that is not open. `stat` needs no right to a file, so the file is
    /// opened under this program's own identity, or if that is refused, under the caller's.
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

/// Asks for all columns. Each comes with its length without holes.
///
/// # Errors
/// `Interrupted`: the caller was interrupted and nothing was found out.
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
        tracing::debug!("file {}: some servers did not report its allocated space", call.file.id);
    }
    Ok(taken)
}

/// Whether a column has a copy on a target that is not known to be silent.
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

/// Asks for a group of columns in parallel. Columns without a reply are then asked for one by one,
/// because one refusal ends the wait for the others.
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
