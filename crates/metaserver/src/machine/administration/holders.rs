//! Sessions and what they hold, for administrators: pages of bounded length, each made in bounded
//! time, because all other requests wait meanwhile.

use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::schema::{self, Inode, ListEntry, SessionRecord, key};
use std::collections::BTreeMap;
use std::ops::Bound;
use weir_metastore::{Engine, Tx};
use weir_types::codec::Bytes;
use weir_types::{ClientId, FileId, Result, SessionId};
use weir_wire::holders::{
    Hold, HoldKind, HoldPage, HoldPlace, ListHoldsRequest, SessionPage, SessionStanding,
    SessionView,
};
use weir_wire::lease::LeaseMode;
use weir_wire::lock::LockMode;

/// Sessions, or locks and leases, in one reply.
const PAGE: usize = 256;
/// The most locks and leases that are looked at for one reply.
const MOST_LOOKED_AT: usize = 65_536;
/// The most directory entries that are looked at for the names in one reply.
const MOST_NAMES: usize = 16_384;
/// Entries read at a time.
const STEP: usize = 256;
/// The longest path in a reply, bytes.
const MAX_PATH_BYTES: usize = 2048;

impl<E: Engine> MetaMachine<E> {
    /// A page of sessions with greater ids than this one.
    ///
    /// # Errors
    /// `NotAdministrator`.
    pub(in crate::machine) fn list_sessions(
        &self,
        asker: ClientId,
        after: SessionId,
        now: Moment,
    ) -> Result<SessionPage> {
        self.require_administrator(asker)?;
        let rest = self.sessions.by_id.range((Bound::Excluded(after), Bound::Unbounded));
        let ids: Vec<SessionId> = rest.take(PAGE).map(|(id, _)| *id).collect();
        let end = ids.len() < PAGE;
        let views = ids.into_iter().filter_map(|id| self.view_of_session(id, now).transpose());
        let (lease_ms, timeout_ms) = (self.times.lease_ms, self.times.session_timeout_ms);
        Ok(SessionPage { sessions: views.collect::<Result<_>>()?, lease_ms, timeout_ms, end })
    }

    fn view_of_session(&self, id: SessionId, now: Moment) -> Result<Option<SessionView>> {
        let Some(session) = self.sessions.by_id.get(&id) else { return Ok(None) };
        let program = match Tx::new(&self.engine).get(&key::session(id))? {
            Some(record) => schema::decode::<SessionRecord>(&record, "of a session")?.name,
            None => String::new(),
        };
        let standing = match () {
            () if self.leases.events.lapse_of(id).is_some() => SessionStanding::CutOff,
            () if self.is_silent(id, now) => SessionStanding::Silent,
            () => SessionStanding::Live,
        };
        let ago = |then: u64| now.monotonic_ms.saturating_sub(then);
        Ok(Some(SessionView {
            session: id,
            client: session.client,
            key_name: self.clients.name(session.client).to_owned(),
            program,
            host: session.host.clone(),
            since_ms: session.began_ms.map(ago),
            silent_ms: ago(session.last_heard_ms),
            open_files: self.opens.count(id) as u64,
            leased_files: self.leases.ranges.count_files(id) as u64,
            locks: self.table.locks.count(id) as u64,
            waiting: self.table.locks.waiting(id) as u64,
            standing,
        }))
    }

    /// A page of locks and leases.
    ///
    /// # Errors
    /// `NotAdministrator`.
    pub(in crate::machine) fn list_holds(
        &self,
        asker: ClientId,
        asked: &ListHoldsRequest,
        now: Moment,
    ) -> Result<HoldPage> {
        self.require_administrator(asker)?;
        let first = HoldPlace { file: asked.file.unwrap_or(FileId(0)), skip: 0 };
        let mut place = asked.place.unwrap_or(first);
        let (mut holds, mut looked_at) = (Vec::new(), 0);
        let mut names = Names::new(&self.engine);
        while let Some(file) = self.next_held(place.file) {
            if asked.file.is_some_and(|only| only != file) {
                break;
            }
            if file != place.file {
                place = HoldPlace { file, skip: 0 };
            }
            let skip = usize::try_from(place.skip).unwrap_or(usize::MAX);
            for hold in self.holds_of(file, now).skip(skip) {
                if holds.len() >= PAGE || looked_at >= MOST_LOOKED_AT {
                    return Ok(HoldPage { holds, next: Some(place) });
                }
                place.skip += 1;
                looked_at += 1;
                if is_asked_for(asked, &hold) {
                    holds.push(Hold { path: names.path(file)?, ..hold });
                }
            }
            let Some(next) = file.0.checked_add(1) else { break };
            place = HoldPlace { file: FileId(next), skip: 0 };
        }
        Ok(HoldPage { holds, next: None })
    }

    fn next_held(&self, from: FileId) -> Option<FileId> {
        let locked = self.table.locks.next_file(from);
        let leased = self.leases.ranges.next_file(from);
        locked.into_iter().chain(leased).min()
    }

    fn holds_of(&self, file: FileId, now: Moment) -> impl Iterator<Item = Hold> {
        let nothing = move |session, kind| Hold {
            session,
            file,
            path: Bytes(Vec::new()),
            kind,
            exclusive: false,
            start: 0,
            last: 0,
            pid: 0,
            waits_ms: None,
        };
        let locks = self.table.locks.of_file(file).map(move |(session, lock, since_ms)| Hold {
            exclusive: lock.mode == LockMode::Exclusive,
            start: lock.start,
            last: lock.last,
            pid: lock.pid,
            waits_ms: since_ms.map(|since| now.monotonic_ms.saturating_sub(since)),
            ..nothing(session, if lock.flock { HoldKind::Flock } else { HoldKind::Posix })
        });
        let leases = self.leases.ranges.of_file(file).map(move |(session, lease)| Hold {
            exclusive: lease.mode == LeaseMode::Write,
            start: lease.start,
            last: lease.end.saturating_sub(1),
            ..nothing(session, HoldKind::Lease)
        });
        locks.chain(leases)
    }
}

fn is_asked_for(asked: &ListHoldsRequest, hold: &Hold) -> bool {
    asked.session.is_none_or(|session| session == hold.session)
        && asked.kind.is_none_or(|kind| kind == hold.kind)
        && (!asked.waiting || hold.waits_ms.is_some())
}

/// Names of files, found by searching their directories.
struct Names<'a> {
    tx: Tx<'a>,
    /// Paths of files and directories that were found, or given up.
    known: BTreeMap<FileId, Option<Vec<u8>>>,
    looked_at: usize,
}

impl<'a> Names<'a> {
    fn new(engine: &'a dyn Engine) -> Self {
        let known = BTreeMap::from([(FileId::ROOT, Some(Vec::new()))]);
        Self { tx: Tx::new(engine), known, looked_at: 0 }
    }

    /// A path of a file; empty if none was found.
    fn path(&mut self, file: FileId) -> Result<Bytes> {
        // Down again the way that was gone up.
        let (mut here, mut way) = (file, Vec::new());
        let top = loop {
            if let Some(known) = self.known.get(&here) {
                break known.clone();
            }
            match self.parent_and_name(here)? {
                Some((parent, name)) if way.len() < MAX_PATH_BYTES => {
                    way.push((here, name));
                    here = parent;
                }
                _ => break None,
            }
        };
        let mut path = top;
        for (file, name) in way.into_iter().rev() {
            path = path.and_then(|mut path| {
                path.push(b'/');
                path.extend_from_slice(&name);
                (path.len() <= MAX_PATH_BYTES).then_some(path)
            });
            self.known.insert(file, path.clone());
        }
        self.known.entry(file).or_insert(None);
        let root = || if file == FileId::ROOT { b"/".to_vec() } else { Vec::new() };
        Ok(Bytes(path.filter(|path| !path.is_empty()).unwrap_or_else(root)))
    }

    fn parent_and_name(&mut self, file: FileId) -> Result<Option<(FileId, Vec<u8>)>> {
        let Some(bytes) = self.tx.peek(&key::inode(file))? else { return Ok(None) };
        let inode: Inode = schema::decode(&bytes, "of an inode")?;
        if inode.nlink == 0 {
            return Ok(None);
        }
        let (mut start, end) = key::listing_of(inode.parent);
        while self.looked_at < MOST_NAMES {
            let page = self.tx.peek_range(&start, &end, STEP)?;
            self.looked_at += page.len();
            for (_, record) in &page {
                let entry: ListEntry = schema::decode(record, "of a listing")?;
                if entry.file == file && !matches!(&entry.name[..], b"." | b"..") {
                    return Ok(Some((inode.parent, entry.name.0)));
                }
            }
            match page.last() {
                Some((last, _)) if page.len() == STEP => {
                    start = weir_metastore::key_after(last).into_vec();
                }
                _ => return Ok(None),
            }
        }
        Ok(None)
    }
}
