//! Space that clients may write without asking again. It counts as used for others, so that all
//! together do not write more than the quota leaves.
//!
//! In memory only: after a restart clients go on up to what was granted, which counts as nothing
//! until they ask again.

use std::collections::{BTreeMap, BTreeSet};
use weir_types::{FileId, SessionId};
use weir_wire::quota::QuotaSubject;

/// News of a file with a quota from a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoomNews {
    /// The file.
    pub file: FileId,
    /// Its present size.
    pub size: u64,
    /// The quotas that limit its bytes.
    pub subjects: Vec<QuotaSubject>,
    /// How far the session may write from now on; `None` for no change.
    pub up_to: Option<u64>,
}

#[derive(Debug, Default)]
struct Granted {
    /// How far each session may write.
    up_to: BTreeMap<SessionId, u64>,
    /// Granted bytes beyond the size, which count as used.
    bytes: u64,
    /// The quotas that count them.
    subjects: Vec<QuotaSubject>,
}

/// Granted space of all files.
#[derive(Debug, Default)]
pub struct Grants {
    files: BTreeMap<FileId, Granted>,
    of_session: BTreeMap<SessionId, BTreeSet<FileId>>,
    /// Granted bytes of all files, for each quota.
    granted: BTreeMap<QuotaSubject, u128>,
}

impl Grants {
    /// Granted bytes of a quota.
    pub fn granted(&self, subject: QuotaSubject) -> u128 {
        self.granted.get(&subject).copied().unwrap_or(0)
    }

    /// Granted bytes of a quota, without one file.
    pub fn by_others(&self, subject: QuotaSubject, file: FileId) -> u128 {
        self.granted(subject).saturating_sub(self.of(file, subject).into())
    }

    fn of(&self, file: FileId, subject: QuotaSubject) -> u64 {
        let granted = self.files.get(&file).filter(|g| g.subjects.contains(&subject));
        granted.map_or(0, |granted| granted.bytes)
    }

    /// Records what a request of a session has shown.
    pub fn note(&mut self, session: SessionId, news: RoomNews) {
        let RoomNews { file, size, subjects, up_to } = news;
        if up_to.is_none() && !self.files.contains_key(&file) {
            return;
        }
        self.uncount(file);
        let granted = self.files.entry(file).or_default();
        if let Some(up_to) = up_to {
            granted.up_to.insert(session, up_to);
            self.of_session.entry(session).or_default().insert(file);
        }
        granted.subjects = subjects;
        self.count(file, size);
    }

    /// Ends a session's grant after its close.
    pub fn release(&mut self, session: SessionId, file: FileId) {
        let Some(files) = self.of_session.get_mut(&session) else { return };
        if !files.remove(&file) {
            return;
        }
        if files.is_empty() {
            self.of_session.remove(&session);
        }
        let Some(granted) = self.files.get_mut(&file) else { return };
        let before = granted.up_to.values().max().copied().unwrap_or(0);
        granted.up_to.remove(&session);
        let after = granted.up_to.values().max().copied();
        // What was counted is what the one who may write furthest may.
        let less = before - after.unwrap_or(0).min(before);
        let bytes = granted.bytes.saturating_sub(less);
        self.uncount(file);
        match (after, self.files.get_mut(&file)) {
            (Some(_), Some(granted)) => {
                granted.bytes = bytes;
                self.add(file);
            }
            _ => drop(self.files.remove(&file)),
        }
    }

    /// Ends the grants of a session that is gone.
    pub fn end(&mut self, session: SessionId) {
        let files = self.of_session.get(&session).cloned().unwrap_or_default();
        files.into_iter().for_each(|file| self.release(session, file));
    }

    /// Forgets a removed quota.
    pub fn forget(&mut self, subject: QuotaSubject) {
        self.granted.remove(&subject);
        self.files.values_mut().for_each(|granted| granted.subjects.retain(|s| *s != subject));
    }

    fn count(&mut self, file: FileId, size: u64) {
        if let Some(granted) = self.files.get_mut(&file) {
            let furthest = granted.up_to.values().max().copied().unwrap_or(0);
            granted.bytes = furthest.saturating_sub(size);
            self.add(file);
        }
    }

    fn add(&mut self, file: FileId) {
        let Some(granted) = self.files.get(&file) else { return };
        for subject in granted.subjects.iter().filter(|_| granted.bytes > 0) {
            *self.granted.entry(*subject).or_default() += u128::from(granted.bytes);
        }
    }

    fn uncount(&mut self, file: FileId) {
        let Some(granted) = self.files.get_mut(&file) else { return };
        for subject in &granted.subjects {
            if let Some(sum) = self.granted.get_mut(subject) {
                *sum = sum.saturating_sub(granted.bytes.into());
                if *sum == 0 {
                    self.granted.remove(subject);
                }
            }
        }
        granted.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: QuotaSubject = QuotaSubject::User(1);
    const STAFF: QuotaSubject = QuotaSubject::Group(2);
    const FILE: FileId = FileId(10);
    const ONE: SessionId = SessionId(1);
    const TWO: SessionId = SessionId(2);

    fn news(file: FileId, size: u64, subjects: &[QuotaSubject], up_to: Option<u64>) -> RoomNews {
        RoomNews { file, size, subjects: subjects.to_vec(), up_to }
    }

    #[test]
    fn what_two_may_write_of_one_file_counts_once() {
        let mut grants = Grants::default();
        grants.note(ONE, news(FILE, 100, &[ALICE], Some(300)));
        grants.note(TWO, news(FILE, 100, &[ALICE], Some(250)));
        assert_eq!(grants.granted(ALICE), 200);
        assert_eq!(grants.by_others(ALICE, FILE), 0);
        assert_eq!(grants.by_others(ALICE, FileId(11)), 200);
        grants.release(ONE, FILE);
        assert_eq!(grants.granted(ALICE), 150);
        grants.release(TWO, FILE);
        assert_eq!(grants.granted(ALICE), 0);
        assert!(grants.files.is_empty() && grants.of_session.is_empty());
    }

    #[test]
    fn what_has_been_reported_counts_as_used_and_no_longer_as_granted() {
        let mut grants = Grants::default();
        grants.note(ONE, news(FILE, 0, &[ALICE, STAFF], Some(64)));
        grants.note(ONE, news(FILE, 40, &[ALICE, STAFF], None));
        assert_eq!((grants.granted(ALICE), grants.granted(STAFF)), (24, 24));
        // It has been given away.
        grants.note(ONE, news(FILE, 40, &[STAFF], None));
        assert_eq!((grants.granted(ALICE), grants.granted(STAFF)), (0, 24));
        grants.forget(STAFF);
        grants.note(ONE, news(FILE, 40, &[], None));
        assert!(grants.granted.is_empty());
        // One that was never told anything.
        grants.note(TWO, news(FileId(11), 7, &[ALICE], None));
        assert!(!grants.files.contains_key(&FileId(11)));
    }

    #[test]
    fn a_session_that_ends_leaves_nothing_behind() {
        let mut grants = Grants::default();
        for file in 10..20 {
            grants.note(ONE, news(FileId(file), 0, &[ALICE], Some(5)));
            grants.note(TWO, news(FileId(file), 0, &[ALICE], Some(3)));
        }
        grants.end(ONE);
        assert_eq!(grants.granted(ALICE), 30);
        grants.end(TWO);
        assert!(grants.files.is_empty() && grants.granted.is_empty());
    }
}
