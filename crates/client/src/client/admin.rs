//! Requests of administrators: to list, verify and remove the objects of targets, whatever their
//! files, and to read all metadata.

use super::Client;
use crate::context::Context;
use crate::rpc::servers::DataConn;
use crate::state::Inner;
use std::sync::Arc;
use std::time::Duration;
use weir_host::sync::Mutex;
use weir_net::Wait;
use weir_types::codec::Bytes;
use weir_types::{
    Attr, ClientId, Error, ErrorKind, FileId, Generation, ObjectId, Result, Retry, Segment,
    ServerId, SessionId, TargetId,
};
use weir_wire::audit::{AuditPage, ListAuditRequest, ListMetaAuditRequest};
use weir_wire::capability::{ANY_FILE, Rights, SignedCapability};
use weir_wire::data::{
    AcceptLossRequest, Access, AdminAccess, LackingPage, ListLackingRequest, ListObjectsRequest,
    ObjectPage, ObjectStat, RemoveObjectsRequest, ScrubCursor, ScrubPage, ScrubRequest,
    StatObjectRequest,
};
use weir_wire::holders::{HoldPage, ListHoldsRequest, ListSessionsRequest, SessionPage};
use weir_wire::meta::{
    AdminCapabilityRequest, ClientInfo, CommitSizeRequest, CountOpensRequest, ExportMetaRequest,
    ExportPlace, ExportRecord, GetLayoutRequest, ListClientsRequest, RebalanceRequest,
    SetClientRequest, VerifiedMeta, VerifyMetaRequest,
};
use weir_wire::quota::{ListQuotasRequest, QuotaChange, QuotaInfo, QuotaSubject, SetQuotaRequest};
use weir_wire::targets::{
    AcceptLossesRequest, CountCopiesRequest, FreeNumbersRequest, KeyRotation, ListTargetsRequest,
    LostColumn, Numbers, RemoveServerRequest, RemoveTargetRequest, RotateKeysRequest,
    SetTargetRequest, TargetView,
};
use weir_wire::{Header, Request};

/// The longest record of the metadata.
const MAX_EXPORTED_BYTES: usize = 2 << 20;
/// The most clients that a server records.
const MAX_CLIENTS: usize = 65_536;
/// The most quotas that a server records.
const MAX_QUOTAS: usize = 65_536;
/// The most targets of a cluster.
const MAX_TARGETS: usize = 4096 * 1024;
/// Longest wait between two attempts.
const MAX_BACKOFF: Duration = Duration::from_millis(500);

/// A client that may administer the cluster. Every call ends within the
/// client's request timeout, with an error that names the server.
pub struct Administrator {
    inner: Arc<Inner>,
    /// Valid for about an hour; requested again after it was refused.
    capability: Mutex<Arc<SignedCapability>>,
}

impl Client {
    /// All targets as the metadata server sees them, by ascending id.
    pub fn targets(&self) -> Result<Vec<TargetView>> {
        let mut all: Vec<TargetView> = Vec::new();
        loop {
            let after = all.last().map(|view| view.target);
            let call = self.inner.session.call(&Context::root(), &ListTargetsRequest { after });
            let page = call?;
            let more = !page.end && !page.targets.is_empty();
            all.extend(page.targets);
            if !more || all.len() > MAX_TARGETS {
                return Ok(all);
            }
        }
    }

    /// The quotas of a caller and its groups.
    pub fn own_quotas(&self, ctx: &Context) -> Result<Vec<QuotaInfo>> {
        list_quotas(&self.inner, ctx, true)
    }

    /// Begins to act as an administrator.
    ///
    /// # Errors
    /// `NotAdministrator` if this client's key is not an administrator's.
    pub fn administrator(&self) -> Result<Administrator> {
        let inner = self.inner.clone();
        let capability = inner.session.call(&Context::root(), &AdminCapabilityRequest {})?;
        Ok(Administrator { inner, capability: Mutex::new(Arc::new(capability)) })
    }
}

fn list_quotas(inner: &Inner, ctx: &Context, own: bool) -> Result<Vec<QuotaInfo>> {
    let mut all: Vec<QuotaInfo> = Vec::new();
    loop {
        let after = all.last().map(|info| info.subject);
        let page = inner.session.call(ctx, &ListQuotasRequest { after, own })?;
        let more = !page.end && !page.quotas.is_empty();
        all.extend(page.quotas);
        if !more || all.len() > MAX_QUOTAS {
            return Ok(all);
        }
    }
}

impl Administrator {
    /// Lists a page of a target's objects after `after`.
    pub fn list_objects(
        &self,
        target: TargetId,
        after: Option<ObjectId>,
        max_objects: u32,
    ) -> Result<ObjectPage> {
        self.ask(target, |access| ListObjectsRequest { access, after, max_objects })
    }

    /// Verifies about `budget_bytes` of a target's objects from `cursor` on.
    pub fn scrub(
        &self,
        target: TargetId,
        cursor: Option<ScrubCursor>,
        budget_bytes: u32,
    ) -> Result<ScrubPage> {
        self.ask(target, |access| ScrubRequest { access, cursor: cursor.clone(), budget_bytes })
    }

    /// Asks a target for the state of an object.
    pub fn stat_object(&self, target: TargetId, object: ObjectId) -> Result<ObjectStat> {
        self.ask(target, |AdminAccess { target, capability, mac }| {
            let generation = Generation(0);
            let (copies, relay) = (Vec::new(), None);
            StatObjectRequest {
                access: Access { target, object, generation, capability, mac, copies, relay },
            }
        })
    }

    /// Removes objects from a target. They are durably gone on return.
    pub fn remove_objects(&self, target: TargetId, objects: &[ObjectId]) -> Result<()> {
        let objects = objects.to_vec();
        self.ask(target, |access| RemoveObjectsRequest { access, objects: objects.clone() })
    }

    /// Number of sessions that have each of these files open.
    pub fn count_opens(&self, files: &[FileId]) -> Result<Vec<u32>> {
        self.inner.session.call(&Context::root(), &CountOpensRequest { files: files.to_vec() })
    }

    /// Sets, removes or recounts a quota.
    pub fn set_quota(&self, subject: QuotaSubject, change: QuotaChange) -> Result<()> {
        self.inner.session.call(&Context::root(), &SetQuotaRequest { subject, change })
    }

    /// All quotas.
    pub fn quotas(&self) -> Result<Vec<QuotaInfo>> {
        list_quotas(&self.inner, &Context::root(), false)
    }

    /// Sets what a client may do from now on, and ends its sessions.
    ///
    /// # Errors
    /// `InvalidArgument`, `Exists` (its name), `NotFound` or `NotDirectory` (its subtree).
    pub fn set_client(&self, info: &ClientInfo) -> Result<()> {
        let request = SetClientRequest { info: info.clone() };
        self.inner.session.call(&Context::root(), &request)
    }

    /// All clients with a record on the metadata server, by ascending id.
    pub fn clients(&self) -> Result<Vec<ClientInfo>> {
        let mut all: Vec<ClientInfo> = Vec::new();
        loop {
            let after = all.last().map_or(ClientId(0), |info| info.client);
            let page = self.inner.session.call(&Context::root(), &ListClientsRequest { after })?;
            let more = !page.end && !page.clients.is_empty();
            all.extend(page.clients);
            if !more || all.len() > MAX_CLIENTS {
                return Ok(all);
            }
        }
    }

    /// A page of the sessions with greater ids than `after`.
    pub fn sessions(&self, after: SessionId) -> Result<SessionPage> {
        self.inner.session.call(&Context::root(), &ListSessionsRequest { after })
    }

    /// A page of the locks and leases of sessions.
    pub fn holds(&self, asked: &ListHoldsRequest) -> Result<HoldPage> {
        self.inner.session.call(&Context::root(), asked)
    }

    /// Sets whether a target is drained.
    ///
    /// # Errors
    /// `TargetMissing`.
    pub fn set_target(&self, target: TargetId, draining: bool) -> Result<()> {
        self.inner.session.call(&Context::root(), &SetTargetRequest { target, draining })
    }

    /// Removes a target from the cluster for good. With `force` it is removed even if files have
    /// copies there, which are then lost. Returns the number of such files.
    ///
    /// # Errors
    /// `TargetMissing`; `Busy` if it is in use.
    pub fn remove_target(&self, target: TargetId, force: bool) -> Result<u64> {
        let mut place = None;
        loop {
            let request = RemoveTargetRequest { target, force, place };
            let step = self.inner.session.call(&Context::root(), &request)?;
            match step.next {
                None => return Ok(step.files),
                next => place = next,
            }
        }
    }

    /// Removes a data server without targets from the cluster for good.
    ///
    /// # Errors
    /// `TargetMissing`: there is no such server; `Busy` if it has targets, or is the last server.
    pub fn remove_server(&self, server: ServerId) -> Result<()> {
        self.inner.session.call(&Context::root(), &RemoveServerRequest { server })
    }

    /// Ids that no data server and no target has or had.
    pub fn free_numbers(&self) -> Result<Numbers> {
        self.inner.session.call(&Context::root(), &FreeNumbersRequest {})
    }

    /// Makes new working keys, which sign all capabilities from now on. The earlier ones of a
    /// target, or of all, count until what they have signed has expired, or, with `now`, no more.
    /// With `own` the targets' own keys are replaced first, and each target's working keys follow
    /// when its server has the new key.
    ///
    /// # Errors
    /// `Busy` while earlier ones count since the last rotation, `TargetMissing`.
    pub fn rotate_keys(
        &self,
        target: Option<TargetId>,
        now: bool,
        own: bool,
    ) -> Result<KeyRotation> {
        self.inner.session.call(&Context::root(), &RotateKeysRequest { target, now, own })
    }

    /// Number of files with copies on any of these targets.
    pub fn count_copies(&self, targets: &[TargetId]) -> Result<u64> {
        let mut place = None;
        loop {
            let request = CountCopiesRequest { targets: targets.to_vec(), place };
            let step = self.inner.session.call(&Context::root(), &request)?;
            match step.next {
                None => return Ok(step.files),
                next => place = next,
            }
        }
    }

    /// A page of the audit records of a target with greater numbers than `after`.
    pub fn audit_of_target(&self, target: TargetId, after: u64) -> Result<AuditPage> {
        self.ask(target, |access| ListAuditRequest { access, after })
    }

    /// A page of the audit records of the metadata server with greater numbers than `after`.
    pub fn audit_of_metadata(&self, after: u64) -> Result<AuditPage> {
        self.inner.session.call(&Context::root(), &ListMetaAuditRequest { after })
    }

    /// Bytes that copies on a target do not serve, from an object on.
    pub fn list_lacking(
        &self,
        target: TargetId,
        from: ObjectId,
        max_objects: u32,
    ) -> Result<LackingPage> {
        self.ask(target, |access| ListLackingRequest { access, from, max_objects })
    }

    /// Makes a target serve the bytes of its copy of an object in a range, although another copy,
    /// which is lost for good, had newer bytes there.
    pub fn accept_loss(&self, target: TargetId, object: ObjectId, bytes: (u64, u64)) -> Result<()> {
        let (start, end) = bytes;
        self.ask(target, |access| AcceptLossRequest { access, object, start, end })
    }

    /// Gives new, empty columns to a file in place of columns that have lost all copies. Clients
    /// drop what they cache of the file.
    pub fn accept_losses(&self, file: FileId) -> Result<Vec<LostColumn>> {
        let (mut all, mut from) = (Vec::new(), 0);
        loop {
            let request = AcceptLossesRequest { file, from, accept: true };
            let page = self.inner.session.call(&Context::root(), &request)?;
            all.extend(page.columns);
            match page.next {
                Some(next) => from = next,
                None => return Ok(all),
            }
        }
    }

    /// Makes the metadata server move copies until all targets use about the same share of their
    /// space. The moves go on in the background.
    pub fn rebalance(&self, within_percent: u8, stop: bool) -> Result<()> {
        let request = RebalanceRequest { within_percent, stop };
        self.inner.session.call(&Context::root(), &request)
    }

    /// The segment that holds a byte of a file, if one has been granted there.
    ///
    /// # Errors
    /// `Stale` if the file does not exist any more.
    pub fn segment_at(&self, file: FileId, offset: u64) -> Result<Option<Segment>> {
        let request = GetLayoutRequest { file, offset, rights: Rights::NONE };
        let page = self.inner.session.call(&Context::root(), &request)?;
        Ok(page.layout.segments.into_iter().next().filter(|segment| segment.start <= offset))
    }

    /// Segments of a file from the one with byte `offset` on, and whether there are more.
    ///
    /// # Errors
    /// `Stale` if the file does not exist any more.
    pub fn segments_from(&self, file: FileId, offset: u64) -> Result<(Vec<Segment>, bool)> {
        let request = GetLayoutRequest { file, offset, rights: Rights::NONE };
        let page = self.inner.session.call(&Context::root(), &request)?;
        Ok((page.layout.segments, page.more_segments))
    }

    /// Extends a file to at least this size, unless it was truncated since it had this generation.
    ///
    /// # Errors
    /// `Stale` if it was truncated or does not exist any more.
    pub fn raise_size(&self, file: FileId, size: u64, generation: Generation) -> Result<Attr> {
        let request = CommitSizeRequest {
            file,
            size,
            generation,
            mtime: None,
            written: Vec::new(),
            ranges: Vec::new(),
            sparse: false,
            durable: false,
        };
        self.inner.session.change(&Context::root(), &request)
    }

    /// Compares some of the metadata on disk with its checksums, from `place` on (0 for the
    /// beginning).
    pub fn verify_metadata(&self, place: u64) -> Result<VerifiedMeta> {
        self.inner.session.call(&Context::root(), &VerifyMetaRequest { place })
    }

    /// Starts reading a consistent snapshot of all metadata, record by record. It must be read
    /// without long pauses, and within an hour.
    pub fn export(&self) -> Result<Export> {
        let place = ExportPlace { key: Bytes::default(), offset: 0 };
        let request = ExportMetaRequest { snapshot: 0, place };
        let page = self.inner.session.call(&Context::root(), &request)?;
        Ok(Export {
            inner: self.inner.clone(),
            cluster: page.cluster,
            sequence: page.sequence,
            snapshot: page.snapshot,
            records: page.records.into_iter(),
            next: page.next,
            failed: false,
        })
    }

    fn ask<R: Request>(
        &self,
        target: TargetId,
        request: impl Fn(AdminAccess) -> R,
    ) -> Result<R::Reply> {
        let wait = Wait::for_ms(self.inner.config.request_timeout_ms);
        let mut backoff = Duration::from_millis(5);
        loop {
            let error = match self.attempt(target, &request, &wait) {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            if error.kind.retry() == Retry::Never || wait.expired() {
                return Err(error);
            }
            self.prepare_again(target, &error)?;
            wait.sleep(backoff)?;
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    }

    fn attempt<R: Request>(
        &self,
        target: TargetId,
        request: impl Fn(AdminAccess) -> R,
        wait: &Wait,
    ) -> Result<R::Reply> {
        let access = self.access(target)?;
        let mut conn = self.inner.servers.take(&self.inner.session, target, wait)?;
        let header = Header::request(R::OP, conn.conn.next_request_id());
        let result = conn
            .conn
            .send(header, &request(access), &[], &[], wait)
            .and_then(|()| conn.conn.recv_reply::<R::Reply>(wait));
        let result = result.map_err(|e| conn.in_context(target, e));
        if conn.conn.is_usable() {
            DataConn::put_back(conn);
        }
        result
    }

    fn access(&self, target: TargetId) -> Result<AdminAccess> {
        let capability = self.capability.lock().clone();
        let mac = capability.mac_for(target).ok_or_else(|| {
            Error::new(ErrorKind::BadCapability, format!("there is no target {target}"))
        })?;
        debug_assert_eq!(capability.capability.file, ANY_FILE);
        Ok(AdminAccess { target, capability: capability.capability.clone(), mac })
    }

    /// Renews what an error has shown to be out of date.
    fn prepare_again(&self, target: TargetId, error: &Error) -> Result<()> {
        match error.kind.retry() {
            Retry::Reconnect => self.inner.servers.forget(target),
            Retry::Refresh => {
                let request = AdminCapabilityRequest {};
                let capability = self.inner.session.call(&Context::root(), &request)?;
                if capability.mac_for(target).is_none() {
                    return Err(error.clone());
                }
                *self.capability.lock() = Arc::new(capability);
                self.inner.servers.refresh_map(
                    &self.inner.session,
                    false,
                    self.inner.config.request_timeout_ms,
                )?;
            }
            Retry::Never | Retry::Later => {}
        }
        Ok(())
    }
}

/// The records of a snapshot of the metadata, by ascending key.
pub struct Export {
    inner: Arc<Inner>,
    cluster: [u8; 16],
    sequence: u64,
    snapshot: u64,
    /// Records of the page that were not read yet.
    records: std::vec::IntoIter<ExportRecord>,
    next: Option<ExportPlace>,
    failed: bool,
}

impl Export {
    /// Id of the cluster.
    pub fn cluster(&self) -> [u8; 16] {
        self.cluster
    }

    /// Number of the last commit in the snapshot.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Fetches the next page. Returns `false` after the last.
    fn fetch(&mut self) -> Result<bool> {
        let Some(place) = self.next.take() else { return Ok(false) };
        let request = ExportMetaRequest { snapshot: self.snapshot, place };
        let page = self.inner.session.call(&Context::root(), &request)?;
        // Every page has something, or is the last one.
        if page.records.is_empty() && page.next.is_some() {
            return Err(Error::new(ErrorKind::Protocol, "a page of the metadata is empty"));
        }
        self.records = page.records.into_iter();
        self.next = page.next;
        Ok(true)
    }

    fn next_record(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let record = loop {
            match self.records.next() {
                Some(record) => break record,
                None if self.fetch()? => {}
                None => return Ok(None),
            }
        };
        let (key, mut value) = (record.key.0, record.value.0);
        // A value that did not fit goes on in the next page.
        while self.records.len() == 0 && self.next.as_ref().is_some_and(|next| next.offset > 0) {
            self.fetch()?;
            match self.records.next() {
                Some(more)
                    if *more.key == *key
                        && value.len() + more.value.len() <= MAX_EXPORTED_BYTES =>
                {
                    value.extend_from_slice(&more.value);
                }
                _ => {
                    return Err(Error::new(
                        ErrorKind::Protocol,
                        "a value of the metadata is truncated",
                    ));
                }
            }
        }
        Ok(Some((key, value)))
    }
}

impl Iterator for Export {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let record = self.next_record();
        self.failed = record.is_err();
        record.transpose()
    }
}
