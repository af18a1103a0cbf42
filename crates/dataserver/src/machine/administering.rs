//! Requests of administrators: they list, verify and remove objects of any file.

use super::{Action, Incoming, Machine, Work, expect_no_payload};
use weir_types::codec::Decode;
use weir_types::limits::{MAX_FILE_BYTES, MAX_LACKING_OBJECTS, MAX_OBJECT_PAGE, MAX_SCRUB_BYTES};
use weir_types::{Error, ErrorKind, Result};
use weir_wire::data::{
    AcceptLossRequest, ListLackingRequest, ListObjectsRequest, RemoveObjectsRequest, ScrubRequest,
};

impl<C: Copy> Machine<C> {
    pub(super) fn list_objects(&mut self, incoming: &Incoming<'_, C>) -> Result<Action<C>> {
        let ListObjectsRequest { access, after, max_objects } =
            ListObjectsRequest::from_bytes(incoming.body)?;
        let target = self.admit_administrator(incoming, &access)?;
        expect_no_payload(incoming.header)?;
        let max = (max_objects as usize).clamp(1, MAX_OBJECT_PAGE);
        Ok(self.queue_work(incoming, target, Work::List { after, max }))
    }

    pub(super) fn scrub(&mut self, incoming: &Incoming<'_, C>) -> Result<Action<C>> {
        let ScrubRequest { access, cursor, budget_bytes } =
            ScrubRequest::from_bytes(incoming.body)?;
        let target = self.admit_administrator(incoming, &access)?;
        expect_no_payload(incoming.header)?;
        if cursor.as_ref().is_some_and(|cursor| cursor.offset > MAX_FILE_BYTES) {
            return Err(Error::new(ErrorKind::InvalidArgument, "no object is that long"));
        }
        let budget_bytes = budget_bytes.min(MAX_SCRUB_BYTES);
        Ok(self.queue_work(incoming, target, Work::Scrub { cursor, budget_bytes }))
    }

    pub(super) fn remove_objects(&mut self, incoming: &Incoming<'_, C>) -> Result<Action<C>> {
        let RemoveObjectsRequest { access, objects } =
            RemoveObjectsRequest::from_bytes(incoming.body)?;
        let target = self.admit_administrator(incoming, &access)?;
        expect_no_payload(incoming.header)?;
        if objects.len() > MAX_OBJECT_PAGE {
            let what =
                format!("{} objects in one request, at most {MAX_OBJECT_PAGE}", objects.len());
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        }
        Ok(self.queue_work(incoming, target, Work::Remove { objects }))
    }

    pub(super) fn list_lacking(&mut self, incoming: &Incoming<'_, C>) -> Result<Action<C>> {
        let ListLackingRequest { access, from, max_objects } =
            ListLackingRequest::from_bytes(incoming.body)?;
        let target = self.admit_administrator(incoming, &access)?;
        expect_no_payload(incoming.header)?;
        let max = (max_objects as usize).clamp(1, MAX_LACKING_OBJECTS);
        Ok(self.queue_work(incoming, target, Work::ListLacking { from, max }))
    }

    pub(super) fn accept_loss(&mut self, incoming: &Incoming<'_, C>) -> Result<Action<C>> {
        let AcceptLossRequest { access, object, start, end } =
            AcceptLossRequest::from_bytes(incoming.body)?;
        let target = self.admit_administrator(incoming, &access)?;
        expect_no_payload(incoming.header)?;
        if start >= end {
            let what = "the range of the loss is empty";
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        }
        let bytes = (start, end);
        Ok(self.queue_work(incoming, target, Work::AcceptLoss { object, bytes }))
    }
}
