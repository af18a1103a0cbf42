//! Where the bytes of a file are, and what the disks there give now: for programs that choose
//! where to compute, or what to read first (layout exposure, 3.11).

use super::Client;
use crate::context::Context;
use crate::core::located::{Piece, pieces};
use crate::file::File;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weir_types::{CopyIndex, FileId, FileLayout, Result, ServerId, TargetId};
use weir_wire::capability::Rights;
use weir_wire::map::TargetState;
use weir_wire::meta::{DirPage, ReaddirRequest};

/// The most locations that one call returns; the next call goes on behind the last one.
pub const MAX_LOCATIONS: usize = 65_536;

/// Bytes of a file that follow each other in one object, and its copies.
#[derive(Clone, Debug)]
pub struct Location {
    /// First byte, in the file.
    pub offset: u64,
    /// Bytes; never 0.
    pub len: u64,
    /// Where the first byte is in the object.
    pub object_offset: u64,
    /// All copies, the first one first. Several locations share what is said of a target.
    pub copies: Vec<LocatedCopy>,
}

/// One copy of a location.
#[derive(Clone, Debug)]
pub struct LocatedCopy {
    /// Which copy.
    pub copy: CopyIndex,
    /// It is being made, and is not read yet.
    pub is_filling: bool,
    /// Where it is.
    pub place: Arc<TargetPlace>,
}

/// A target, and what it is good for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetPlace {
    /// The target.
    pub target: TargetId,
    /// Its data server; `None`: the target is not part of the cluster any more.
    pub server: Option<ServerId>,
    /// The name of the machine where the server runs; empty if it is not known.
    pub host: String,
    /// Where the server listens, `address:port`; empty if it is not known.
    pub address: String,
    /// Its failure domain; empty: its host.
    pub domain: String,
    /// Whether it serves.
    pub state: TargetState,
    /// It has been much slower than others for some time.
    pub slow: bool,
    /// Bytes a second that it serves now while it has something to do, all readers together.
    /// The choice among copies goes by the same value. `None`: nobody has read there of late, and
    /// no trial has been made yet.
    pub bytes_per_s: Option<u64>,
    /// Requests that it has not answered, whoever sent them.
    pub in_flight: u32,
}

/// A page of a directory, with where its files are.
pub struct LocatedPage {
    /// Names and attributes.
    pub page: DirPage,
    places: Places,
}

impl Client {
    /// Where `len` bytes of an open file from `offset` on are, in order, and what each disk gives
    /// now. Bytes beyond the end of the file, or for which the file has no place yet, are in no
    /// location. At most [`MAX_LOCATIONS`] are returned.
    ///
    /// Asks the metadata server, and no data server: what a disk gives is as old as a heartbeat,
    /// or as the last reply to this client if that is newer.
    ///
    /// # Errors
    /// `Unreachable` or `TimedOut` if the metadata server does not answer.
    pub fn locations(
        &self,
        ctx: &Context,
        file: &File,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Location>> {
        file.refresh_layout(ctx)?;
        let size = self.getattr(ctx, file.id())?.size;
        let len = len.min(size.saturating_sub(offset));
        let layout = file.layout();
        let found = pieces(&layout, offset, len, MAX_LOCATIONS);
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let columns = found
            .iter()
            .map(|piece| &layout.segments[piece.segment].columns[usize::from(piece.column.0)]);
        let targets = columns.flat_map(|column| column.copies().map(|(_, target)| target));
        let places = self.places(targets)?;
        Ok(found.iter().map(|piece| location(piece, &layout, &places)).collect())
    }

    /// As [`Client::locations`], of a file that is named by its path from the root. The caller
    /// has to have the right to read it.
    pub fn locations_of(
        &self,
        ctx: &Context,
        path: &[u8],
        offset: u64,
        len: u64,
    ) -> Result<Vec<Location>> {
        let attr = self.resolve(ctx, path, true)?;
        let (file, _) = self.open(ctx, attr.file, Rights::READ)?;
        let found = self.locations(ctx, &file, offset, len);
        file.close(ctx)?;
        found
    }

    /// A page of a directory, as of [`Client::readdir`], with attributes and with where the bytes of
    /// its files are. One request has the names, attributes and layouts of all, and what the disks
    /// give is asked for once.
    ///
    /// # Errors
    /// As [`Client::readdir`] has them.
    pub fn readdir_located(
        &self,
        ctx: &Context,
        dir: FileId,
        (cookie, last): (u64, u64),
        max_entries: u32,
    ) -> Result<LocatedPage> {
        let (attributes, layouts) = (true, true);
        let request = ReaddirRequest { dir, cookie, last, max_entries, attributes, layouts };
        let page = self.inner.readdir(ctx, &request)?;
        let columns = page.entries.iter().filter_map(|entry| entry.layout.as_ref());
        let columns = columns.flat_map(|layout| &layout.segments).flat_map(|one| &one.columns);
        let targets: BTreeSet<TargetId> =
            columns.flat_map(|column| column.copies().map(|(_, target)| target)).collect();
        let places = if targets.is_empty() { Places::new() } else { self.places(targets)? };
        Ok(LocatedPage { page, places })
    }

    /// What is known of targets.
    fn places(&self, targets: impl IntoIterator<Item = TargetId>) -> Result<Places> {
        let place = |target| (target, Arc::new(unknown(target)));
        let mut places: Places = targets.into_iter().map(place).collect();
        let map = self.cluster_map()?;
        for view in self.targets()? {
            let Some(place) = places.get_mut(&view.target) else { continue };
            let heard = self.inner.servers.us_per_mib(view.target);
            let us_per_mib = heard.unwrap_or(f64::from(view.work.serves_us_per_mib));
            let address = map.server_of(view.target).map(|server| server.tcp.clone());
            *place = Arc::new(TargetPlace {
                target: view.target,
                server: Some(view.server),
                host: view.host,
                address: address.unwrap_or_default(),
                domain: view.domain,
                state: view.state,
                slow: view.slow,
                bytes_per_s: bytes_per_s(us_per_mib),
                in_flight: view.work.in_flight,
            });
        }
        Ok(places)
    }
}

impl LocatedPage {
    /// All locations of the file of an entry, by its position in the page. `None`: the page does not
    /// have all of them, or they are more than `most`; [`Client::locations_of`] finds them.
    pub fn locations(&self, entry: usize, most: usize) -> Option<Vec<Location>> {
        let entry = self.page.entries.get(entry)?;
        let (attr, layout) = (entry.attr.as_ref()?, entry.layout.as_ref()?);
        let most = most.min(MAX_LOCATIONS);
        let found = pieces(layout, 0, attr.size, most.saturating_add(1));
        let is_all = found.len() <= most;
        is_all.then(|| found.iter().map(|piece| location(piece, layout, &self.places)).collect())
    }
}

/// By target.
type Places = BTreeMap<TargetId, Arc<TargetPlace>>;

/// A target that the cluster does not have any more.
fn unknown(target: TargetId) -> TargetPlace {
    let [host, address, domain] = [(); 3].map(|()| String::new());
    let (state, slow, bytes_per_s) = (TargetState::Offline, false, None);
    TargetPlace {
        target,
        server: None,
        host,
        address,
        domain,
        state,
        slow,
        bytes_per_s,
        in_flight: 0,
    }
}

/// From the time that a MiB takes; 0: not known.
fn bytes_per_s(us_per_mib: f64) -> Option<u64> {
    (us_per_mib > 0.0).then(|| (f64::from(1 << 20) * 1e6 / us_per_mib) as u64)
}

fn location(piece: &Piece, layout: &FileLayout, places: &Places) -> Location {
    let segment = &layout.segments[piece.segment];
    let copies = segment.columns[usize::from(piece.column.0)].copies();
    let copy = |(copy, target)| LocatedCopy {
        copy,
        is_filling: segment.is_filling(piece.column, copy),
        place: places.get(&target).cloned().unwrap_or_else(|| Arc::new(unknown(target))),
    };
    Location {
        offset: piece.offset,
        len: piece.len,
        object_offset: piece.object_offset,
        copies: copies.map(copy).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_disk_gives_is_the_inverse_of_the_time_of_a_mib() {
        assert_eq!(bytes_per_s(0.0), None);
        assert_eq!(bytes_per_s(1e6), Some(1 << 20));
        assert_eq!(bytes_per_s(50_000.0), Some(20 << 20));
    }
}
