//! Copies between objects; the source may be on another server.

use super::{Action, CopyWork, Incoming, Machine, expect_no_payload};
use weir_types::codec::Decode;
use weir_types::limits::{MAX_COPY_BYTES, MAX_COPY_PIECES, MAX_FILE_BYTES};
use weir_types::{Error, ErrorKind, Result};
use weir_wire::Rights;
use weir_wire::capability::Refusal;
use weir_wire::data::{Access, CopyPiece, CopyRequest};

impl<C: Copy> Machine<C> {
    pub(super) fn copy(&mut self, incoming: &Incoming<'_, C>) -> Result<Action<C>> {
        let CopyRequest { access, source, pieces } = CopyRequest::from_bytes(incoming.body)?;
        let target = self.admit(incoming, &access, Rights::WRITE)?;
        let by = self.admitted.take();
        let local = self.targets.binary_search_by_key(&source.target, |t| t.id).is_ok();
        if local {
            let from = self.admit(incoming, &source, Rights::READ)?;
            self.note_source(&from);
        } else if source.capability.session != incoming.session {
            // Whoever serves it checks the rest, and cannot check this.
            let refusal = Refusal::OtherSession;
            self.counters.count_refusal(refusal);
            let message = format!("target {}: {}", source.target, refusal.text());
            return Err(Error::new(ErrorKind::BadCapability, message));
        }
        expect_no_payload(incoming.header)?;
        if !access.copies.is_empty() || !source.copies.is_empty() {
            let what =
                "servers do not copy objects with several copies: the client has to read and write";
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        check_copy(&pieces)?;
        let Access { object, generation, .. } = access;
        self.admitted = by;
        let work = Box::new(CopyWork { object, generation, source, local, pieces });
        let id = target.id;
        let op = self.begin(incoming, target, false);
        Ok(Action::Copy { op, conn: incoming.conn, target: id, work })
    }
}

fn check_copy(pieces: &[CopyPiece]) -> Result<()> {
    let mut total = 0u64;
    for &CopyPiece { from, to, len } in pieces {
        let fits = |at: u64| at.checked_add(len).is_some_and(|end| end <= MAX_FILE_BYTES);
        total = total.saturating_add(len);
        if len == 0 || !fits(from) || !fits(to) {
            let what = format!("{len} bytes from {from} to {to} are no part of an object");
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        }
    }
    if pieces.is_empty() || pieces.len() > MAX_COPY_PIECES || total > MAX_COPY_BYTES {
        let what = format!(
            "{} pieces of {total} bytes to copy in one request: 1 to {MAX_COPY_PIECES}, of at most \
             {MAX_COPY_BYTES} bytes",
            pieces.len()
        );
        return Err(Error::new(ErrorKind::InvalidArgument, what));
    }
    Ok(())
}
