//! Updates the counts of quotas in a transaction before its commit, and refuses the transaction if
//! a quota does not allow it.

use super::{Quotas, Share, bytes_of, exceeded, peek, record, share};
use crate::fault::Outcome;
use crate::schema::{self, Inode, QuotaRecord, key};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use weir_metastore::{Engine, Tx};
use weir_types::codec::DecodeError;
use weir_types::{Error, ErrorKind, FileId, FileKind};
use weir_wire::message::Op;
use weir_wire::quota::QuotaSubject;

/// Facts about a transaction besides its writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    /// The operation of its request; `None` for the server's own work.
    pub op: Option<Op>,
    /// Whether the caller is exempt from limits.
    pub exempt: bool,
}

/// The change of a quota.
#[derive(Debug)]
struct Account {
    record: QuotaRecord,
    /// The stored record.
    before: QuotaRecord,
    /// Change of the number of files, whether they were counted already or not.
    files: i64,
    bytes: i128,
    /// Bytes granted to clients of the changed files.
    granted: u128,
}

/// An inode before and after the transaction.
struct Change {
    file: FileId,
    was: Option<Inode>,
    now: Option<Inode>,
}

/// Counts the changes of a transaction. Returns the quotas that were removed with their
/// directories.
///
/// # Errors
/// `QuotaExceeded`; `CrossDevice` if it would move a non-empty directory, or one of several names
/// of a file, out of a directory with a quota or into it.
pub(crate) fn charge(
    quotas: &Quotas,
    engine: &dyn Engine,
    tx: &mut Tx<'_>,
    charge: Charge,
) -> Outcome<Vec<QuotaSubject>> {
    let (start, end) = key::inodes();
    if quotas.is_empty() || tx.written(&start, &end).is_empty() {
        return Ok(Vec::new());
    }
    let mut before = Tx::new(engine);
    let mut accounts: BTreeMap<QuotaSubject, Account> = BTreeMap::new();
    let mut gone = Vec::new();
    for (at, value) in tx.written(&start, &end) {
        let change = change(&mut before, &at, value.as_deref())?;
        let file = change.file;
        if change.counts_as_before() {
            continue;
        }
        let from = of(&mut before, quotas, file, change.was.as_ref())?;
        let to = of(tx, quotas, file, change.now.as_ref())?;
        require_same_quotas(tx, quotas, &change, (&from, &to), charge.op)?;
        for (share, sign) in [(&from, -1), (&to, 1)] {
            for subject in &share.subjects {
                let account = account(tx, &mut accounts, *subject)?;
                account.add(file, share.bytes, sign);
            }
        }
        for (subject, account) in &mut accounts {
            let others = quotas.grants.by_others(*subject, file);
            account.granted += quotas.grants.granted(*subject) - others;
        }
        if change.now.is_none() && quotas.has(QuotaSubject::Directory(file)) {
            gone.push(QuotaSubject::Directory(file));
        }
    }
    for (subject, account) in accounts {
        if charge.may_be_refused() {
            account.require(subject, quotas.grants.granted(subject))?;
        }
        if account.record != account.before && !gone.contains(&subject) {
            tx.put(&key::quota(subject), &schema::encode(&account.record))?;
        }
    }
    for subject in &gone {
        tx.delete(&key::quota(*subject))?;
    }
    Ok(gone)
}

fn change(before: &mut Tx<'_>, at: &[u8], value: Option<&[u8]>) -> Outcome<Change> {
    let file = key::inode_file(at).map_err(|e: DecodeError| Error::from(e))?;
    let now = value.map(|bytes| schema::decode(bytes, "of an inode")).transpose()?;
    Ok(Change { file, was: peek(before, file)?, now })
}

fn of(tx: &mut Tx<'_>, quotas: &Quotas, file: FileId, inode: Option<&Inode>) -> Outcome<Share> {
    inode.map_or(Ok(Share::default()), |inode| share(tx, quotas, file, inode))
}

fn account<'a>(
    tx: &mut Tx<'_>,
    accounts: &'a mut BTreeMap<QuotaSubject, Account>,
    subject: QuotaSubject,
) -> Outcome<&'a mut Account> {
    match accounts.entry(subject) {
        Entry::Occupied(known) => Ok(known.into_mut()),
        Entry::Vacant(new) => {
            let before = record(tx, subject)?.unwrap_or_default();
            Ok(new.insert(Account { record: before, before, files: 0, bytes: 0, granted: 0 }))
        }
    }
}

impl Charge {
    /// Whether the transaction may be refused. Writes that are done already are counted whatever
    /// the quota says, and so are reports.
    fn may_be_refused(self) -> bool {
        use Op::{Create, Link, Mkdir, Rename, SetAttr, Symlink};
        let makes = matches!(self.op, Some(Create | Mkdir | Symlink | Link | Rename | SetAttr));
        makes && !self.exempt
    }
}

impl Change {
    /// Whether nothing has changed that a quota could count.
    fn counts_as_before(&self) -> bool {
        let (Some(was), Some(now)) = (&self.was, &self.now) else {
            return self.was.is_none() && self.now.is_none();
        };
        let counted =
            |inode: &Inode| (inode.uid, inode.gid, bytes_of(inode), inode.parent, inode.nlink == 0);
        counted(was) == counted(now)
    }
}

/// Refuses moves between quotas. Everything below a directory moves with it, and cannot be counted
/// at once; and all names of a file have to be below the same directories with quotas.
fn require_same_quotas(
    tx: &mut Tx<'_>,
    quotas: &Quotas,
    change: &Change,
    (from, to): (&Share, &Share),
    op: Option<Op>,
) -> Outcome<()> {
    let (Some(was), Some(now)) = (&change.was, &change.now) else { return Ok(()) };
    if from.directories == to.directories || !matches!(op, Some(Op::Rename | Op::Link)) {
        return Ok(());
    }
    let file = change.file;
    let stays = match now.kind {
        FileKind::Directory => {
            let (start, end) = key::listing_of(file);
            quotas.has(QuotaSubject::Directory(file)) || !tx.peek_range(&start, &end, 1)?.is_empty()
        }
        _ => was.nlink > 0 && now.nlink > 1 && now.nlink >= was.nlink,
    };
    if stays {
        let what = "it would go into or out of a directory with a quota: copy it there instead";
        return Err(Error::new(ErrorKind::CrossDevice, what).into());
    }
    Ok(())
}

impl Account {
    fn add(&mut self, file: FileId, bytes: u64, sign: i64) {
        self.files += sign;
        self.bytes += i128::from(bytes) * i128::from(sign);
        if file >= self.before.counted_to {
            return;
        }
        let record = &mut self.record;
        let (files, sum) = match sign {
            1 => (record.used_files.checked_add(1), record.used_bytes.checked_add(bytes.into())),
            _ => (record.used_files.checked_sub(1), record.used_bytes.checked_sub(bytes.into())),
        };
        if files.is_none() || sum.is_none() {
            tracing::error!("a quota had counted less than there was: run `weir fsck --repair`");
        }
        record.used_files = files.unwrap_or(0);
        record.used_bytes = sum.unwrap_or(0);
    }

    /// # Errors
    /// `QuotaExceeded`.
    fn require(&self, subject: QuotaSubject, granted: u128) -> Outcome<()> {
        let limits = self.before.limits;
        if let Some(limit) = limits.files.filter(|_| self.files > 0)
            && i128::from(self.before.used_files) + i128::from(self.files) > i128::from(limit)
        {
            return Err(exceeded(subject, &format!("{limit} files")));
        }
        if let Some(limit) = limits.bytes.filter(|_| self.bytes > 0) {
            let others = granted.saturating_sub(self.granted);
            let used = self.before.used_bytes.saturating_add(others);
            let after = used.saturating_add_signed(self.bytes);
            if after > u128::from(limit) {
                return Err(exceeded(subject, &format!("{limit} bytes")));
            }
        }
        Ok(())
    }
}
