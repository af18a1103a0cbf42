//! Queries of administrators before data servers are added or removed: whether files have copies
//! there, and which ids are free.

use super::membership::{STEP_PAGES, place_after};
use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::schema::{self, SegmentPage, key};
use weir_metastore::{Engine, Tx};
use weir_types::codec::Bytes;
use weir_types::{ClientId, Error, ErrorKind, FileId, Result, Segment, ServerId, TargetId};
use weir_wire::targets::{CountCopiesRequest, Numbers, Removal, RemovalPlace, RemoveServerRequest};

/// The most targets in one query: as many as a server has.
const MAX_COUNTED: usize = 1024;
/// Ids from here on have a special meaning (gaps "elsewhere" and "unheard").
const NUMBERS_END: u32 = u32::MAX - 1;

impl<E: Engine> MetaMachine<E> {
    /// Removes a data server without targets from the cluster.
    ///
    /// # Errors
    /// `NotAdministrator`, `TargetMissing` (there is no such server); `Busy` if it has targets, or
    /// is the last server.
    pub(in crate::machine) fn remove_server(
        &mut self,
        client: ClientId,
        request: &RemoveServerRequest,
        now: Moment,
    ) -> Result<()> {
        self.require_administrator(client)?;
        let server = request.server;
        let Some(record) = self.cluster.servers.get(&server) else {
            let message = format!("there is no data server {server}: see `weir server list`");
            return Err(Error::new(ErrorKind::TargetMissing, message));
        };
        let busy = |message| Err(Error::new(ErrorKind::Busy, message));
        if let Some(target) = record.targets.first() {
            let target = target.target;
            return busy(format!(
                "data server {server} has target {target} yet: `weir target remove {target}` first"
            ));
        }
        if self.cluster.servers.len() == 1 {
            return busy(format!("data server {server} is the last one of the cluster"));
        }
        self.commit_change(self.cluster.without_server(server), now)?;
        self.revoked.removed(server);
        tracing::warn!(server = server.0, "a data server was removed from the cluster");
        Ok(())
    }

    /// Ids for a new server and its targets that were never in use.
    ///
    /// # Errors
    /// `NotAdministrator`, `TooBig` if there are none.
    pub(in crate::machine) fn free_numbers(&self, client: ClientId) -> Result<Numbers> {
        self.require_administrator(client)?;
        let (server, target) = self.cluster.greatest();
        let next = |last: Option<u32>| {
            let next = last.map_or(1, |last| last.saturating_add(1));
            if next < NUMBERS_END { Ok(next) } else { Err(Error::from(ErrorKind::TooBig)) }
        };
        Ok(Numbers {
            server: ServerId(next(server.map(|server| server.0))?),
            target: TargetId(next(target.map(|target| target.0))?),
        })
    }

    /// Counts the files in some pages of segments that have copies on the targets.
    ///
    /// # Errors
    /// `NotAdministrator`, `TooBig` (too many targets).
    pub(in crate::machine) fn count_copies(
        &self,
        client: ClientId,
        request: CountCopiesRequest,
    ) -> Result<Removal> {
        self.require_administrator(client)?;
        if request.targets.len() > MAX_COUNTED {
            return Err(ErrorKind::TooBig.into());
        }
        let (start, end) = key::all_segments();
        let place = request.place;
        let mut place =
            place.unwrap_or(RemovalPlace { key: Bytes(start), last: FileId(0), files: 0 });
        let found = Tx::new(&self.engine).range(&place.key.0, &end, STEP_PAGES)?;
        for (at, bytes) in &found {
            let (file, ..) = key::list_page(at)?;
            let page: SegmentPage = schema::decode(bytes, "of segments")?;
            let columns = page.segments.iter().flat_map(Segment::members);
            let mut targets = columns.flat_map(|(_, column)| &column.targets);
            if file != place.last && targets.any(|target| request.targets.contains(target)) {
                (place.last, place.files) = (file, place.files + 1);
            }
        }
        place.key = place_after(&found, &end);
        let files = place.files;
        Ok(Removal { files, next: (place.key.0 < end).then_some(place) })
    }
}
