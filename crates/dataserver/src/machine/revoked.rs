//! What was revoked, as the metadata server has told this server: checked for each request of a
//! client. A server that has just started serves no client before it knows, because it may have been
//! away when something was revoked. A change that another server passes on was checked by that one:
//! copies of a column must not disagree on whether it is permitted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weir_host::sync::RwLock;
use weir_types::{ClientId, Error, ErrorKind, FileId, Result, SessionId};
use weir_wire::capability::Refusal;
use weir_wire::peer::Revocations;
use weir_wire::revoked::RevocationTable;

/// Interval at which entries for what has run out are removed, milliseconds.
const TIDY_MS: u64 = 60_000;

/// The table of this server.
#[derive(Debug)]
pub struct Revoked {
    table: RwLock<RevocationTable>,
    /// Whether the table is complete and empty, so that nothing needs to be looked up.
    nothing: AtomicBool,
    /// Whether the table is complete.
    known: AtomicBool,
    /// Number up to which it is.
    upto: AtomicU64,
    /// Time of the last removal of old entries, milliseconds since 1970.
    tidied_ms: AtomicU64,
}

impl Default for Revoked {
    /// Of a server that has no metadata server to ask.
    fn default() -> Self {
        Self::new(true)
    }
}

impl Revoked {
    /// Without `known`, clients are refused until the metadata server has answered.
    pub fn new(known: bool) -> Self {
        let (table, upto, tidied_ms) = <_>::default();
        Self { table, nothing: known.into(), known: known.into(), upto, tidied_ms }
    }

    /// Takes over what the metadata server has told.
    pub fn adopt(&self, told: &Revocations, now_unix_ms: u64) {
        let due = self.tidied_ms.load(Ordering::Relaxed).saturating_add(TIDY_MS) <= now_unix_ms;
        if !told.list.is_empty() || due {
            let mut table = self.table.write();
            told.list.iter().for_each(|entry| table.add(entry.clone()));
            if due {
                table.forget_old(now_unix_ms);
                self.tidied_ms.store(now_unix_ms, Ordering::Relaxed);
            }
        }
        self.upto.store(told.upto, Ordering::Release);
        if !told.more {
            self.known.store(true, Ordering::Release);
        }
        let nothing = self.known.load(Ordering::Acquire) && self.table.read().is_empty();
        self.nothing.store(nothing, Ordering::Release);
    }

    /// Number up to which all revocations are known.
    pub fn upto(&self) -> u64 {
        self.upto.load(Ordering::Acquire)
    }

    /// Checks that it is known what was revoked.
    ///
    /// # Errors
    /// `NotCurrent`.
    pub fn is_known(&self) -> Result<()> {
        if self.nothing.load(Ordering::Acquire) || self.known.load(Ordering::Acquire) {
            return Ok(());
        }
        let what = "its server has just started, and does not know yet what was revoked: it waits \
                    for the metadata server";
        Err(Error::new(ErrorKind::NotCurrent, what))
    }

    /// The reason to refuse a capability of this version.
    pub fn refusal(&self, file: FileId, version: u64) -> Option<Refusal> {
        let looks = !self.nothing.load(Ordering::Acquire);
        (looks && self.table.read().is_void(file, version)).then_some(Refusal::Revoked)
    }

    /// Whether the session was ended by a revocation of its client's key.
    pub fn is_over(&self, client: ClientId, session: SessionId) -> bool {
        !self.nothing.load(Ordering::Acquire) && self.table.read().is_over(client, session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::peer::Revocation;

    fn told(file: Option<u64>, number: u64, more: bool) -> Revocations {
        let entry = |file| Revocation {
            number,
            client: None,
            file: Some(FileId(file)),
            until_unix_ms: 1000,
        };
        Revocations { list: file.map(entry).into_iter().collect(), upto: number, more }
    }

    #[test]
    fn a_server_that_has_just_started_knows_only_after_the_last_page() {
        let revoked = Revoked::new(false);
        assert_eq!(revoked.is_known().unwrap_err().kind, ErrorKind::NotCurrent);
        revoked.adopt(&told(Some(7), 10, true), 0);
        assert!(revoked.is_known().is_err());
        assert_eq!((revoked.upto(), revoked.refusal(FileId(7), 9)), (10, Some(Refusal::Revoked)));
        revoked.adopt(&told(None, 12, false), 0);
        revoked.is_known().unwrap();
        assert_eq!((revoked.upto(), revoked.refusal(FileId(7), 9)), (12, Some(Refusal::Revoked)));
        assert_eq!(revoked.refusal(FileId(7), 10), None);
        // After a new registration it is told all again.
        revoked.adopt(&told(Some(7), 10, true), 0);
        revoked.is_known().unwrap();
    }

    #[test]
    fn entries_are_forgotten_when_what_they_revoke_has_run_out() {
        let revoked = Revoked::new(true);
        revoked.adopt(&told(Some(7), 10, false), 1);
        assert!(revoked.refusal(FileId(7), 9).is_some());
        revoked.adopt(&told(None, 10, false), TIDY_MS - 1);
        assert!(revoked.refusal(FileId(7), 9).is_some(), "not looked at yet");
        revoked.adopt(&told(None, 10, false), TIDY_MS);
        assert!(revoked.refusal(FileId(7), 9).is_none());
        assert!(revoked.nothing.load(Ordering::Acquire));
    }
}
