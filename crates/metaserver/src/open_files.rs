//! The open files of sessions. In memory only: after a restart clients report them again
//! ([`weir_wire::meta::ReassertRequest`]).

use std::collections::BTreeMap;
use weir_types::{ErrorKind, FileId, Result, SessionId};
use weir_wire::Rights;

/// The most different open files of one session.
pub const MAX_OPEN_FILES: usize = 1 << 20;

#[derive(Clone, Copy, Debug)]
struct Opened {
    /// Number of opens; 0 while the session has not reported the file again.
    times: u32,
    rights: Rights,
}

/// Number of sessions that have a file open.
#[derive(Clone, Copy, Debug, Default)]
struct Sessions {
    all: u32,
    /// Number of those that have it open for writing.
    writing: u32,
}

fn writes(rights: Rights) -> bool {
    rights.allow(Rights::WRITE)
}

/// The open files of all sessions.
#[derive(Debug, Default)]
pub struct OpenFiles {
    by_session: BTreeMap<SessionId, BTreeMap<FileId, Opened>>,
    sessions: BTreeMap<FileId, Sessions>,
    /// Whether some files may be open that no client has reported yet.
    settling: bool,
}

impl OpenFiles {
    /// Starts without open files. `settling` says that some may be unreported.
    pub fn new(settling: bool) -> Self {
        Self { settling, ..Self::default() }
    }

    /// Ends the time for reports of open files.
    pub fn settled(&mut self) {
        self.settling = false;
    }

    /// Whether a file without a name has to stay.
    pub fn may_be_open(&self, file: FileId) -> bool {
        self.settling || self.sessions.contains_key(&file)
    }

    /// Number of sessions that have a file open; at least one while some sessions have not
    /// reported.
    pub fn sessions_with(&self, file: FileId) -> u32 {
        let known = self.sessions.get(&file).map_or(0, |sessions| sessions.all);
        known.max(u32::from(self.settling))
    }

    /// Whether any other session has a file open, as far as is known.
    pub fn is_open_elsewhere(&self, session: SessionId, file: FileId) -> bool {
        let own = u32::from(self.rights(session, file).is_some());
        self.sessions.get(&file).map_or(0, |sessions| sessions.all) > own
    }

    /// Whether any session has a file open for writing, as far as is known.
    pub fn has_writers(&self, file: FileId) -> bool {
        self.sessions.get(&file).is_some_and(|sessions| sessions.writing > 0)
    }

    /// Whether some files may be open that no client has reported yet.
    pub fn is_settling(&self) -> bool {
        self.settling
    }

    /// Number of sessions that write a file, if this one has it open with these rights, too.
    pub fn writers_with(&self, session: SessionId, file: FileId, rights: Rights) -> u32 {
        let known = self.sessions.get(&file).map_or(0, |sessions| sessions.writing);
        let counted = self.rights(session, file).is_some_and(writes);
        known + u32::from(writes(rights) && !counted)
    }

    /// The rights with which a session has a file open.
    pub fn rights(&self, session: SessionId, file: FileId) -> Option<Rights> {
        Some(self.by_session.get(&session)?.get(&file)?.rights)
    }

    /// Number of different open files of a session.
    pub fn count(&self, session: SessionId) -> usize {
        self.by_session.get(&session).map_or(0, BTreeMap::len)
    }

    /// Refuses a session with too many open files.
    ///
    /// # Errors
    /// `TooManyOpen`.
    pub fn check_room(&self, session: SessionId) -> Result<()> {
        if self.count(session) < MAX_OPEN_FILES {
            Ok(())
        } else {
            Err(ErrorKind::TooManyOpen.into())
        }
    }

    /// Records an open.
    pub fn open(&mut self, session: SessionId, file: FileId, rights: Rights) {
        let files = self.by_session.entry(session).or_default();
        let sessions = self.sessions.entry(file).or_default();
        let opened = files.entry(file).or_insert_with(|| {
            sessions.all += 1;
            sessions.writing += u32::from(writes(rights));
            Opened { times: 0, rights }
        });
        opened.times = opened.times.saturating_add(1);
        sessions.writing += u32::from(writes(rights) && !writes(opened.rights));
        opened.rights = opened.rights.union(rights);
    }

    /// Records a close. Returns whether no session has the file open any more.
    pub fn close(&mut self, session: SessionId, file: FileId) -> bool {
        let Some(files) = self.by_session.get_mut(&session) else { return false };
        let Some(opened) = files.get_mut(&file) else { return false };
        if opened.times > 1 {
            opened.times -= 1;
            return false;
        }
        let rights = opened.rights;
        files.remove(&file);
        self.leave(file, rights)
    }

    /// Begins a session's report of its open files. Earlier reports do not count any more, but the
    /// files do not count as closed until the report is complete.
    pub fn begin_again(&mut self, session: SessionId) {
        let files = self.by_session.get_mut(&session);
        files.into_iter().flat_map(BTreeMap::values_mut).for_each(|opened| opened.times = 0);
    }

    /// Ends a session's report. Returns the files that it does not have open after all, each with
    /// whether no session has.
    pub fn said_all(&mut self, session: SessionId) -> Vec<(FileId, bool)> {
        let Some(files) = self.by_session.get_mut(&session) else { return Vec::new() };
        let mut closed = Vec::new();
        files.retain(|file, opened| {
            if opened.times == 0 {
                closed.push((*file, opened.rights));
            }
            opened.times > 0
        });
        closed.into_iter().map(|(file, rights)| (file, self.leave(file, rights))).collect()
    }

    /// Removes an ended session. Returns the files that no session has open any more.
    pub fn end(&mut self, session: SessionId) -> Vec<FileId> {
        let files = self.by_session.remove(&session).unwrap_or_default();
        let left = files.into_iter().filter(|&(file, opened)| self.leave(file, opened.rights));
        left.map(|(file, _)| file).collect()
    }

    fn leave(&mut self, file: FileId, rights: Rights) -> bool {
        let Some(sessions) = self.sessions.get_mut(&file) else { return true };
        sessions.all -= 1;
        sessions.writing -= u32::from(writes(rights));
        if sessions.all > 0 {
            return false;
        }
        self.sessions.remove(&file);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_open_until_every_open_of_every_session_is_closed() {
        let (a, b, file) = (SessionId(1), SessionId(2), FileId(7));
        let mut opens = OpenFiles::new(false);
        opens.open(a, file, Rights::READ);
        opens.open(a, file, Rights::WRITE);
        opens.open(b, file, Rights::READ);
        assert_eq!(opens.rights(a, file), Some(Rights::READ_WRITE));
        assert!(!opens.close(a, file) && !opens.close(a, file));
        assert!(opens.may_be_open(file));
        assert_eq!(opens.end(b), [file]);
        assert!(!opens.may_be_open(file));
        assert!(!opens.close(a, file), "one close too many changes nothing");
    }

    #[test]
    fn what_is_said_again_counts_once_and_what_is_not_said_is_closed() {
        let (a, file, other) = (SessionId(1), FileId(7), FileId(8));
        let mut opens = OpenFiles::new(false);
        for _ in 0..2 {
            opens.begin_again(a);
            opens.open(a, file, Rights::READ);
        }
        opens.open(a, other, Rights::READ);
        opens.begin_again(a);
        assert!(opens.may_be_open(file) && opens.may_be_open(other), "it may still come");
        opens.open(a, file, Rights::READ);
        assert_eq!(opens.said_all(a), [(other, true)]);
        assert_eq!(opens.said_all(a), []);
        assert!(!opens.may_be_open(other));
        assert!(opens.close(a, file), "it was open once");
        opens.open(a, file, Rights::READ);
        opens.begin_again(a);
        assert!(opens.close(a, file), "also if it is closed meanwhile");
    }

    #[test]
    fn after_a_restart_anything_may_be_open_until_it_has_settled() {
        let mut opens = OpenFiles::new(true);
        assert!(opens.may_be_open(FileId(7)));
        assert_eq!(opens.sessions_with(FileId(7)), 1);
        opens.settled();
        assert_eq!(opens.sessions_with(FileId(7)), 0);
        assert!(!opens.may_be_open(FileId(7)));
    }

    #[test]
    fn who_writes_is_counted_once_and_with_who_is_about_to() {
        let (a, b, file) = (SessionId(1), SessionId(2), FileId(7));
        let mut opens = OpenFiles::new(false);
        opens.open(a, file, Rights::READ);
        let writers = |opens: &OpenFiles, rights| opens.writers_with(b, file, rights);
        assert_eq!([writers(&opens, Rights::READ), writers(&opens, Rights::WRITE)], [0, 1]);
        opens.open(a, file, Rights::WRITE);
        opens.open(a, file, Rights::READ_WRITE);
        opens.open(b, file, Rights::READ);
        assert_eq!([writers(&opens, Rights::READ), writers(&opens, Rights::WRITE)], [1, 2]);
        opens.open(b, file, Rights::WRITE);
        assert_eq!(writers(&opens, Rights::WRITE), 2);
        assert_eq!(opens.end(a), []);
        assert_eq!(writers(&opens, Rights::READ), 1);
        opens.close(b, file);
        opens.close(b, file);
        assert_eq!(writers(&opens, Rights::READ), 0);
    }
}
