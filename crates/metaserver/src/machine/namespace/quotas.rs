//! Quota requests: administrators set quotas, callers see their own, and existing files are
//! counted.

use crate::machine::state::MetaMachine;
use crate::machine::store::fault;
use crate::quota::{self, MAX_ABOVE, MAX_QUOTAS, Quotas};
use crate::schema::{self, Inode, QuotaRecord, key};
use weir_metastore::{Engine, Tx, transact};
use weir_types::{Caller, ClientId, Error, ErrorKind, FileId, FileKind, Result};
use weir_wire::quota::{
    ListQuotasRequest, QuotaChange, QuotaInfo, QuotaLimits, QuotaPage, QuotaSubject,
    SetQuotaRequest,
};

/// Quotas in one reply.
const PAGE: usize = 1024;

impl<E: Engine> MetaMachine<E> {
    /// Sets, removes or recounts a quota.
    ///
    /// # Errors
    /// `NotAdministrator`; `NotFound` and `NotDirectory` for an invalid subject; `NoSpace`: there
    /// are too many quotas.
    pub(in crate::machine) fn set_quota(
        &mut self,
        asker: ClientId,
        request: &SetQuotaRequest,
    ) -> Result<()> {
        self.require_administrator(asker)?;
        let SetQuotaRequest { subject, change } = *request;
        if let (QuotaChange::Set(_), QuotaSubject::Directory(dir)) = (change, subject) {
            self.check_directory(dir)?;
        }
        let known = self.quotas.has(subject);
        if !known && !matches!(change, QuotaChange::Set(_)) {
            return Err(Error::new(ErrorKind::NotFound, format!("{subject} has no quota")));
        }
        if !known && self.quotas.len() >= MAX_QUOTAS {
            let message = format!("there are {MAX_QUOTAS} quotas already, which is the most");
            return Err(Error::new(ErrorKind::NoSpace, message));
        }
        let others = self.quotas.len() > usize::from(known);
        let (format, at) = (&self.format, key::quota(subject));
        let (record, _) = transact(&mut self.engine, |tx| {
            let before = quota::record(tx, subject).map_err(fault)?;
            let after = changed(before, change);
            match &after {
                Some(record) => tx.put(&at, &schema::encode(record))?,
                None => tx.delete(&at)?,
            }
            // A program that does not know quotas would not count.
            let has_quotas = others || after.is_some();
            let before = tx.get(key::FORMAT)?;
            let now = schema::with_quotas(format, has_quotas, before.as_deref());
            tx.put(key::FORMAT, &now)?;
            Ok::<_, Error>(after)
        })?;
        match record {
            Some(record) => self.quotas.set(subject, &record),
            None => self.quotas.forget(subject),
        }
        Ok(())
    }

    fn check_directory(&mut self, dir: FileId) -> Result<()> {
        let mut tx = Tx::new(&self.engine);
        let Some(inode) = quota::peek(&mut tx, dir).map_err(fault)? else {
            let message = format!("there is no directory {dir} to have a quota");
            return Err(Error::new(ErrorKind::NotFound, message));
        };
        let Inode { kind: FileKind::Directory, nlink, .. } = inode else {
            let message = format!("file {dir} is no directory: quotas are for directories");
            return Err(Error::new(ErrorKind::NotDirectory, message));
        };
        let above_it = quota::above(&mut tx, &self.quotas, dir).map_err(fault)?;
        if above_it.contains(&dir) {
            return Ok(());
        }
        let with_it = above_it.len() + 1;
        let most = match self.quotas.deepest() {
            // There are none below it.
            Some(deepest) if deepest < MAX_ABOVE && nlink <= 2 => deepest.max(with_it),
            // Those below it get one more above them.
            Some(deepest) if deepest < MAX_ABOVE => deepest + 1,
            // To look at all of them takes time.
            _ => with_it.max(self.deepest_with(&mut tx, dir)?),
        };
        if most > MAX_ABOVE {
            let message =
                format!("{MAX_ABOVE} directories above one another have quotas, which is the most");
            return Err(Error::new(ErrorKind::TooBig, message));
        }
        self.quotas.deepest_is(most);
        Ok(())
    }

    /// The largest number of nested directories with quotas, if `dir` gets one.
    fn deepest_with(&self, tx: &mut Tx<'_>, dir: FileId) -> Result<usize> {
        let mut most = 0;
        for subject in self.quotas.behind(None) {
            let QuotaSubject::Directory(other) = subject else { continue };
            let way = quota::way_up(tx, other).map_err(fault)?;
            let counts =
                |at: &&FileId| **at == dir || self.quotas.has(QuotaSubject::Directory(**at));
            most = most.max(way.iter().filter(counts).count());
        }
        Ok(most)
    }

    /// A page of the quotas: all for administrators, their own for all others.
    pub(in crate::machine) fn list_quotas(
        &self,
        asker: ClientId,
        caller: &Caller,
        request: &ListQuotasRequest,
    ) -> Result<QuotaPage> {
        if !request.own {
            self.require_administrator(asker)?;
        }
        let is_own = |subject: &QuotaSubject| match subject {
            QuotaSubject::User(uid) => *uid == caller.uid,
            QuotaSubject::Group(gid) => caller.in_group(*gid),
            QuotaSubject::Directory(_) => false,
        };
        let mut wanted =
            self.quotas.behind(request.after).filter(|subject| !request.own || is_own(subject));
        let mut tx = Tx::new(&self.engine);
        let mut quotas = Vec::new();
        for subject in wanted.by_ref().take(PAGE) {
            if let Some(record) = quota::record(&mut tx, subject).map_err(fault)? {
                quotas.push(info(&self.quotas, subject, &record));
            }
        }
        Ok(QuotaPage { end: wanted.next().is_none(), quotas })
    }

    /// Carries out one step of the counting.
    pub(in crate::machine) fn count_for_quotas(&mut self) -> Result<()> {
        let quotas = &self.quotas;
        let counted = transact(&mut self.engine, |tx| quota::count(tx, quotas).map_err(fault));
        let (counted, _) = counted.inspect_err(|_| self.quotas.cannot_count())?;
        for (subject, record) in counted {
            self.quotas.set(subject, &record);
        }
        Ok(())
    }
}

fn changed(before: Option<QuotaRecord>, change: QuotaChange) -> Option<QuotaRecord> {
    match change {
        QuotaChange::Set(limits) => Some(QuotaRecord { limits, ..before.unwrap_or_default() }),
        QuotaChange::Remove => None,
        QuotaChange::Recount => {
            let limits = before.map_or(QuotaLimits::default(), |before| before.limits);
            Some(QuotaRecord { limits, ..QuotaRecord::default() })
        }
    }
}

fn info(quotas: &Quotas, subject: QuotaSubject, record: &QuotaRecord) -> QuotaInfo {
    QuotaInfo {
        subject,
        limits: record.limits,
        used_bytes: u64::try_from(record.used_bytes).unwrap_or(u64::MAX),
        used_files: record.used_files,
        granted_bytes: u64::try_from(quotas.grants.granted(subject)).unwrap_or(u64::MAX),
        counting: record.counted_to != schema::ALL_COUNTED,
    }
}
