//! Closes of files: the metadata server is told of many at once, a little later, and with them of
//! the columns that were written last.
//!
//! If this client dies before, a check of the file system does not miss a lost object of such a
//! column; nothing else goes by that.

use crate::context::Context;
use crate::state::{Inner, OpenState};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use weir_types::limits::MAX_WRITTEN_SEGMENTS;
use weir_types::{FileId, Retry};
use weir_wire::meta::{CloseRequest, WrittenColumns};

/// The most closed files before the metadata server is told.
const CLOSE_BATCH: usize = 64;
/// The most files in one message about closes.
const MAX_CLOSES: usize = 4096;
/// The most closed files of which written columns are to be told. Beyond it a close tells them itself.
const MAX_LEFT: usize = 256;
/// The most messages about closes in a row.
const MAX_MESSAGES: usize = 1 + MAX_LEFT / MAX_WRITTEN_SEGMENTS;

/// What became of a message about closes.
#[derive(PartialEq, Eq)]
enum Sent {
    /// There was nothing to tell.
    Nothing,
    /// There is more to tell.
    Some,
    /// The rest has to wait.
    All,
}

impl Inner {
    /// Removes a handle.
    pub(crate) fn closed(&self, state: &Arc<OpenState>) {
        let last = {
            let mut opened = self.holdings.opened.lock();
            let mut last = false;
            if let Entry::Occupied(mut entry) = opened.files.entry(state.id) {
                entry.get_mut().1 -= 1;
                last = entry.get().1 == 0;
                if last {
                    entry.remove();
                }
            }
            if last {
                opened.departed.left(state.id, state.newest_change());
            }
            if last && state.is_unconfirmed() {
                opened.unconfirmed.insert(state.id);
            }
            last
        };
        let left = if last { state.writer().leave_columns() } else { Vec::new() };
        self.is_to_be_closed(state.id, left);
    }

    /// Ends the hold on a file without names.
    pub(crate) fn let_go(&self, file: FileId) {
        self.is_to_be_closed(file, Vec::new());
    }

    fn is_to_be_closed(&self, file: FileId, left: Vec<WrittenColumns>) {
        let many = {
            let mut opened = self.holdings.opened.lock();
            // Beyond the bound `weir fsck` misses none of their objects: see docs/semantics.md.
            let has_room = opened.written.len() < MAX_LEFT || opened.written.contains_key(&file);
            if !left.is_empty() && has_room {
                let all = opened.written.entry(file).or_default();
                all.extend(left);
                // Several only if it was opened and closed again just now.
                all.truncate(MAX_WRITTEN_SEGMENTS);
            }
            opened.closing.push(file);
            opened.closing.len() >= CLOSE_BATCH || opened.written.len() >= MAX_WRITTEN_SEGMENTS
        };
        if many {
            self.turns.hurry();
        }
    }

    /// The columns of a file that were left to be told with a close, which is not answered yet.
    pub(crate) fn take_left_columns(&self, file: FileId) -> Vec<WrittenColumns> {
        self.holdings.opened.lock().written.remove(&file).unwrap_or_default()
    }

    /// Whether written columns of a file that is being closed may be told with the close.
    pub(crate) fn may_leave_columns(&self, file: FileId) -> bool {
        let opened = self.holdings.opened.lock();
        opened.written.len() < MAX_LEFT && !opened.written.contains_key(&file)
    }

    /// Tells the metadata server which files are closed. Returns whether there were any.
    pub(crate) fn send_closes(&self) -> bool {
        let mut any = false;
        for _ in 0..MAX_MESSAGES {
            let sent = self.send_some_closes();
            any |= sent != Sent::Nothing;
            if sent != Sent::Some {
                break;
            }
        }
        any
    }

    fn send_some_closes(&self) -> Sent {
        let (request, more) = {
            let mut opened = self.holdings.opened.lock();
            let (mut files, mut later, mut written) = (Vec::new(), Vec::new(), BTreeMap::new());
            let (mut room, mut more) = (MAX_WRITTEN_SEGMENTS, false);
            for file in std::mem::take(&mut opened.closing) {
                // They stay until the answer: who asks again may have to say that they are there.
                let columns = opened.written.get(&file).filter(|_| !written.contains_key(&file));
                let count = columns.map_or(0, Vec::len);
                let is_heard = !opened.unheard.contains(&file);
                // What is beyond one request comes with the next.
                if is_heard && files.len() < MAX_CLOSES && count <= room {
                    room -= count;
                    written.extend(columns.map(|columns| (file, columns.clone())));
                    files.push(file);
                } else {
                    more |= is_heard;
                    later.push(file);
                }
            }
            opened.closing = later;
            let of_these = opened.unconfirmed.iter().filter(|file| files.contains(file)).copied();
            let unconfirmed = of_these.collect();
            (CloseRequest { files, unconfirmed, written: written.into_iter().collect() }, more)
        };
        if request.files.is_empty() {
            return Sent::Nothing;
        }
        // Asked for twice, a file that was opened again meanwhile would be closed.
        let told = self.session.change_at_last(&Context::root(), &request, || self.turns.go_on());
        let mut opened = self.holdings.opened.lock();
        if let Err(error) = told {
            tracing::warn!("metadata server: {error}; will say later what was closed");
            opened.closing.extend(request.files);
            // Columns serve a check alone, and closes have to get through: on a full disk, say, where
            // they make room.
            if error.kind.retry() == Retry::Never {
                opened.forget_written(&request.written);
            }
            return Sent::All;
        }
        opened.forget_written(&request.written);
        for file in &request.unconfirmed {
            opened.unconfirmed.remove(file);
        }
        for file in request.files {
            if let Entry::Occupied(mut count) = opened.counts.entry(file) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
        if more { Sent::Some } else { Sent::All }
    }
}
