//! Locations of the copies of columns, for data servers that bring each other up to date.

use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::machine::store::fault;
use crate::ops::columns::{self, Placed};
use crate::ops::inodes;
use crate::ops::list_copies::{Room, list_copies};
use crate::signing::Grant;
use weir_metastore::{Engine, Tx};
use weir_types::limits::{MAX_COLUMNS, MAX_FIND_COPIES, MAX_OBJECT_PAGE};
use weir_types::{
    CopyIndex, Error, ErrorKind, Generation, ObjectId, Result, SegmentState, ServerId, TargetId,
};
use weir_wire::Rights;
use weir_wire::data::CopyAccess;
use weir_wire::peer::{Copies, CopyPage, FindCopiesRequest, ListCopiesRequest};
use weir_wire::ticket::OF_SERVERS;

const _: () = assert!(MAX_COLUMNS < MAX_OBJECT_PAGE);
/// The most records that are read for one page of a list.
const MAX_LISTED_RECORDS: usize = 1024;

impl<E: Engine> MetaMachine<E> {
    /// The copies of the columns of some objects. The reply has to wait until its contents are
    /// durable: a server that learns that a copy is gone forgets what it lacked, and a power cut
    /// must not bring the copy back.
    ///
    /// # Errors
    /// `TooBig`; `Corrupt`, naming the file.
    pub(in crate::machine) fn find_copies(
        &self,
        asking: ServerId,
        request: &FindCopiesRequest,
        now: Moment,
    ) -> Result<Vec<Option<Copies>>> {
        if request.objects.len() > MAX_FIND_COPIES {
            let message = format!("ask for at most {MAX_FIND_COPIES} objects at a time");
            return Err(Error::new(ErrorKind::TooBig, message));
        }
        let mut tx = Tx::new(&self.engine);
        let mut found = Vec::with_capacity(request.objects.len());
        for object in &request.objects {
            let placed = columns::find(&mut tx, *object).map_err(fault)?;
            found.push(placed.map(|placed| self.copies(asking, *object, &placed, now)));
        }
        Ok(found)
    }

    /// A page of the copies that a target should have. The reply waits for durability like that of
    /// [`Self::find_copies`], because the server forgets copies that are not named.
    ///
    /// # Errors
    /// `TargetMissing`: the server does not serve it; `Corrupt`, naming the file.
    pub(in crate::machine) fn list_copies(
        &self,
        asking: ServerId,
        request: &ListCopiesRequest,
    ) -> Result<CopyPage> {
        let ListCopiesRequest { target, start, end, after } = *request;
        if !self.cluster.serves(asking, target) {
            let message = format!("data server {asking} does not serve target {target}");
            return Err(Error::new(ErrorKind::TargetMissing, message));
        }
        let mut tx = Tx::new(&self.engine);
        let room = Room { objects: MAX_OBJECT_PAGE - MAX_COLUMNS, records: MAX_LISTED_RECORDS };
        list_copies(&mut tx, target, start..end, after, room).map_err(fault)
    }

    fn copies(&self, asking: ServerId, object: ObjectId, placed: &Placed, now: Moment) -> Copies {
        let segment = placed.segment();
        let member = segment.member(usize::from(object.column.0));
        let targets = member.map_or(&[][..], |member| &member.targets);
        let sealed = segment.state == SegmentState::Sealed;
        // A server that has no copy of the column learns whom to tell what is
        // lacking, and no more. One may compute a part of a set from all others.
        let serves = |target: &TargetId| self.cluster.serves(asking, *target);
        let mut of_set = segment.members().flat_map(|(_, member)| &member.targets);
        let rights = match targets.iter().any(serves) {
            true => Rights::READ_WRITE,
            false if sealed && of_set.any(serves) => Rights::READ,
            false => Rights::NONE,
        };
        let capability = self.signer.for_servers(Grant {
            file: object.file,
            session: OF_SERVERS,
            user: 0,
            rights,
            now_unix_ms: now.unix_ms(),
        });
        let copy = |(at, &target): (usize, _)| CopyAccess {
            target,
            mac: self.signer.code(&capability, target),
            filling: segment.is_filling(object.column, CopyIndex(at as u8)),
        };
        let copies = targets.iter().enumerate().map(copy).collect();
        let generation = placed.inode.generation;
        // Those of a coded segment have their fences.
        let fence = if segment.is_coded() { Generation(0) } else { inodes::fence(&placed.inode) };
        let (columns, parities) = match segment.is_coded() {
            true => (segment.columns.len() as u16, segment.parities.len() as u8),
            false => (0, 0),
        };
        Copies { copies, generation, fence, sealed, columns, parities, capability }
    }
}
