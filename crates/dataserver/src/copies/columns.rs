//! Where the copies of columns are, as the metadata server says.

use crate::state::Shared;
use std::time::Duration;
use weir_types::{ErrorKind, ObjectId, Result};
use weir_wire::peer::{Copies as Column, FindCopiesRequest};

/// Timeout of the metadata server's reply, milliseconds.
const FIND_MS: u64 = 4_000;
/// Locations of copies are asked for again after this time: moved copies are removed for good some
/// seconds later.
pub(super) const FRESH: Duration = Duration::from_secs(2);

/// Asks the metadata server for the columns of objects, at most [`weir_types::limits::MAX_FIND_COPIES`].
pub(super) fn find(shared: &Shared, objects: Vec<ObjectId>) -> Result<Vec<Option<Column>>> {
    let lines = &shared.copies.lines;
    let count = objects.len();
    let request = FindCopiesRequest { objects };
    let columns = lines.peers().ask_metadata(&request, &lines.wait(FIND_MS))?;
    match columns.len() == count {
        true => Ok(columns),
        false => Err(ErrorKind::Protocol.into()),
    }
}
