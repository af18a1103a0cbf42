//! Which sessions cache attributes of a file, or names of a directory, as far as the server knows.
//!
//! The table is bounded. A session at its limit has to give up what it has cached longest.
//!
//! A session may keep knowing a file without caching anything of it. It is then told before the
//! file is removed, and of nothing else.

use std::collections::{BTreeMap, BTreeSet};
use weir_types::{FileId, SessionId};

/// The most files and directories in the cache of one session.
pub const MAX_OF_SESSION: usize = 1 << 17;
/// The most entries of all sessions.
pub const MAX_IN_ALL: usize = 1 << 21;

#[derive(Debug, Default)]
struct OfSession {
    /// When each entry was cached, without entries that are being given up.
    since: BTreeMap<FileId, u64>,
    by_age: BTreeMap<u64, FileId>,
    giving_up: BTreeSet<FileId>,
    /// Files that the session still knows, and since when.
    known: BTreeMap<FileId, u64>,
    known_by_age: BTreeMap<u64, FileId>,
}

/// The cached entries of all sessions.
#[derive(Debug)]
pub struct Beliefs {
    all: BTreeSet<(FileId, SessionId)>,
    known: BTreeSet<(FileId, SessionId)>,
    sessions: BTreeMap<SessionId, OfSession>,
    next: u64,
    of_session: usize,
    in_all: usize,
}

impl Default for Beliefs {
    fn default() -> Self {
        Self::with_limits(MAX_OF_SESSION, MAX_IN_ALL)
    }
}

/// Whether a session may cache an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It may.
    Yes,
    /// It may, and has to be asked to give up this file.
    Instead(FileId),
    /// It may not: the table is full.
    No,
}

impl Beliefs {
    /// Makes a table with other limits.
    pub fn with_limits(of_session: usize, in_all: usize) -> Self {
        let (all, known) = Default::default();
        Self { all, known, sessions: BTreeMap::new(), next: 0, of_session, in_all }
    }

    /// Adds a file or directory to a session's cache.
    pub fn add(&mut self, session: SessionId, file: FileId) -> Added {
        if self.all.contains(&(file, session)) {
            return Added::Yes;
        }
        let all = self.all.len();
        let known = self.sessions.entry(session).or_default();
        let full = known.since.len() >= self.of_session || all >= self.in_all;
        let mut instead = None;
        if full {
            // Those who give up slowly get nothing new.
            if known.giving_up.len() >= self.of_session.min(1024) || all >= self.in_all + 1024 {
                return Added::No;
            }
            let Some((_, oldest)) = known.by_age.pop_first() else { return Added::No };
            known.since.remove(&oldest);
            known.giving_up.insert(oldest);
            instead = Some(oldest);
        }
        self.next += 1;
        known.since.insert(file, self.next);
        known.by_age.insert(self.next, file);
        self.all.insert((file, session));
        self.forget_known(session, file);
        instead.map_or(Added::Yes, Added::Instead)
    }

    /// The other sessions that cache something of a file or directory.
    pub fn others(&self, session: SessionId, file: FileId) -> impl Iterator<Item = SessionId> {
        let range = (file, SessionId(0))..=(file, SessionId(u64::MAX));
        self.all.range(range).map(|(_, id)| *id).filter(move |id| *id != session)
    }

    /// Records that a session still knows a file without caching anything of it. Beyond the
    /// session's limit its oldest such file is forgotten; beyond the limit of all nothing is
    /// recorded.
    pub fn still_knows(&mut self, session: SessionId, file: FileId) {
        self.forget_known(session, file);
        let Some(of_session) = self.sessions.get_mut(&session) else { return };
        if of_session.known.len() >= self.of_session
            && let Some((_, oldest)) = of_session.known_by_age.pop_first()
        {
            of_session.known.remove(&oldest);
            self.known.remove(&(oldest, session));
        }
        if self.known.len() < self.in_all {
            self.next += 1;
            of_session.known.insert(file, self.next);
            of_session.known_by_age.insert(self.next, file);
            self.known.insert((file, session));
        }
    }

    /// Forgets that a session still knows a file.
    pub fn forget_known(&mut self, session: SessionId, file: FileId) {
        if self.known.remove(&(file, session))
            && let Some(of_session) = self.sessions.get_mut(&session)
            && let Some(since) = of_session.known.remove(&file)
        {
            of_session.known_by_age.remove(&since);
        }
    }

    /// The other sessions that cache something of a file, or still know it.
    pub fn others_who_know(
        &self,
        session: SessionId,
        file: FileId,
    ) -> impl Iterator<Item = SessionId> {
        let range = (file, SessionId(0))..=(file, SessionId(u64::MAX));
        let known = self.known.range(range).map(|(_, id)| *id).filter(move |id| *id != session);
        self.others(session, file).chain(known)
    }

    /// Records that a session was told of a file's removal.
    pub fn was_told(&mut self, session: SessionId, file: FileId) {
        self.remove(session, file);
        self.forget_known(session, file);
    }

    /// Removes a file from a session's cache.
    pub fn remove(&mut self, session: SessionId, file: FileId) {
        if !self.all.remove(&(file, session)) {
            return;
        }
        let Some(known) = self.sessions.get_mut(&session) else { return };
        known.giving_up.remove(&file);
        if let Some(since) = known.since.remove(&file) {
            known.by_age.remove(&since);
        }
    }

    /// Removes a session that has ended, or caches nothing any more.
    pub fn end(&mut self, session: SessionId) {
        let Some(known) = self.sessions.remove(&session) else { return };
        for file in known.since.into_keys().chain(known.giving_up) {
            self.all.remove(&(file, session));
        }
        for file in known.known.into_keys() {
            self.known.remove(&(file, session));
        }
    }

    /// Number of entries.
    pub fn count(&self) -> usize {
        self.all.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_the_bound_the_oldest_belief_is_given_up_for_a_new_one() {
        let mut beliefs = Beliefs::with_limits(3, 100);
        let me = SessionId(1);
        for file in 1..=3 {
            assert_eq!(beliefs.add(me, FileId(file)), Added::Yes);
        }
        assert_eq!(beliefs.add(me, FileId(2)), Added::Yes, "it does already");
        assert_eq!(beliefs.add(me, FileId(4)), Added::Instead(FileId(1)));
        let who: Vec<_> = beliefs.others(SessionId(2), FileId(1)).collect();
        assert_eq!(who, [me], "until it has said so");
        beliefs.remove(me, FileId(1));
        assert_eq!(beliefs.others(SessionId(2), FileId(1)).count(), 0);
        assert_eq!(beliefs.add(SessionId(2), FileId(4)), Added::Yes);
        assert_eq!(beliefs.others(me, FileId(4)).collect::<Vec<_>>(), [SessionId(2)]);
        beliefs.end(me);
        assert_eq!(beliefs.count(), 1);
    }

    #[test]
    fn who_still_knows_a_file_is_told_of_its_removal_alone() {
        let mut beliefs = Beliefs::with_limits(2, 100);
        let (me, other, file) = (SessionId(1), SessionId(2), FileId(7));
        beliefs.add(me, file);
        beliefs.remove(me, file);
        beliefs.still_knows(me, file);
        assert_eq!(beliefs.others(other, file).count(), 0);
        assert_eq!(beliefs.others_who_know(other, file).collect::<Vec<_>>(), [me]);
        assert_eq!(beliefs.others_who_know(me, file).count(), 0);
        (8..20).for_each(|file| beliefs.still_knows(me, FileId(file)));
        let who = |file| beliefs.others_who_know(other, FileId(file)).count();
        assert_eq!((who(7), who(17), who(18), who(19)), (0, 0, 1, 1), "the last, within the bound");
        // What it believes in again it says anew when it gives that up.
        beliefs.add(me, FileId(19));
        assert_eq!(beliefs.others_who_know(other, FileId(19)).count(), 1);
        beliefs.remove(me, FileId(19));
        assert_eq!(beliefs.others_who_know(other, FileId(19)).count(), 0);
        beliefs.still_knows(me, file);
        beliefs.was_told(me, file);
        assert_eq!(beliefs.others_who_know(other, file).count(), 0);
        beliefs.still_knows(me, file);
        beliefs.end(me);
        assert!(beliefs.known.is_empty());
    }

    #[test]
    fn who_gives_up_nothing_gets_nothing_new() {
        let mut beliefs = Beliefs::with_limits(2, 100);
        let me = SessionId(1);
        let added: Vec<_> = (1..=5).map(|file| beliefs.add(me, FileId(file))).collect();
        let expected = [
            Added::Yes,
            Added::Yes,
            Added::Instead(FileId(1)),
            Added::Instead(FileId(2)),
            Added::No,
        ];
        assert_eq!(added, expected);
        beliefs.remove(me, FileId(2));
        assert_eq!(beliefs.add(me, FileId(5)), Added::Instead(FileId(3)));
        let mut full = Beliefs::with_limits(10, 1);
        assert_eq!(full.add(me, FileId(1)), Added::Yes);
        assert_eq!(full.add(SessionId(2), FileId(1)), Added::No, "it has nothing to give up");
    }
}
