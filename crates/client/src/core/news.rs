//! Events and own changes between the time at which the metadata server made a reply and now. A
//! reply that may be older than one of them is not cached.

use std::collections::{BTreeMap, VecDeque};
use weir_types::FileId;

/// The most remembered entries of each kind.
const REMEMBERED: usize = 4096;

/// When a reply was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Run of session and server that numbered the events.
    pub epoch: u64,
    /// Number of the session's last event before the reply.
    pub events: u64,
    /// What may be cached of the reply.
    pub keep: u8,
}

/// Identifies an event. Another run of session or server has its own numbers, which may be smaller
/// and cannot be compared with these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// Run of session and server that numbered the event.
    pub epoch: u64,
    /// Number of the event.
    pub number: u64,
}

/// State at the time of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Number of own changes that had ended.
    changes: u64,
    /// Whether there was a change meanwhile in any case.
    late: bool,
}

#[derive(Debug, Default)]
struct Log {
    entries: VecDeque<(u64, FileId)>,
    /// Entries up to this number are forgotten.
    forgotten: u64,
}

impl Log {
    /// Adds an entry. Entries stay sorted by number, whatever the order of arrival.
    fn push(&mut self, number: u64, file: FileId) {
        if self.entries.len() >= REMEMBERED
            && let Some((number, _)) = self.entries.pop_front()
        {
            self.forgotten = self.forgotten.max(number);
        }
        let at = self.entries.partition_point(|(other, _)| *other <= number);
        self.entries.insert(at, (number, file));
    }

    /// Whether there was, or may have been, an entry of the file after `number`.
    fn since(&self, number: u64, file: FileId) -> bool {
        let newer = self.entries.iter().rev().take_while(|(n, _)| *n > number);
        number < self.forgotten || newer.into_iter().any(|(_, f)| *f == file)
    }
}

/// Applied events and own changes.
#[derive(Debug, Default)]
pub struct News {
    epoch: u64,
    events: Log,
    recalls: Log,
    changes: Log,
    ended: u64,
    /// Own changes under way, by file.
    changing: BTreeMap<FileId, u32>,
}

impl News {
    /// Begins a new run of session or server, with new numbers.
    pub fn begin(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.events = Log::default();
        self.recalls = Log::default();
    }

    /// Records an event about cached data of a file or directory.
    pub fn event(&mut self, event: Numbered, file: FileId) {
        if event.epoch == self.epoch {
            self.events.push(event.number, file);
        }
    }

    /// Records that a recalled lease was given up.
    pub fn given_up(&mut self, event: Numbered, file: FileId) {
        if event.epoch == self.epoch {
            self.recalls.push(event.number, file);
        }
    }

    /// Records that everything was revoked: no reply from before this event may be cached.
    pub fn lapsed(&mut self, event: Numbered) {
        if event.epoch == self.epoch {
            for log in [&mut self.events, &mut self.recalls] {
                log.forgotten = log.forgotten.max(event.number);
            }
        }
    }

    /// Begins a request.
    pub fn asking(&self) -> Asked {
        Asked { changes: self.ended, late: false }
    }

    /// Begins a change of these files by this client.
    pub fn begin_change(&mut self, files: &[FileId]) -> Asked {
        for file in files {
            *self.changing.entry(*file).or_default() += 1;
        }
        self.asking()
    }

    /// Ends a change. Its own reply may be cached if [`News::is_fresh`] allows it for the returned
    /// value.
    pub fn end_change(&mut self, asked: Asked, files: &[FileId]) -> Asked {
        for file in files {
            if let Some(count) = self.changing.get_mut(file) {
                *count -= 1;
                if *count == 0 {
                    self.changing.remove(file);
                }
            }
        }
        let late = asked.late || files.iter().any(|file| self.changed(asked, *file));
        for file in files {
            self.ended += 1;
            self.changes.push(self.ended, *file);
        }
        Asked { changes: self.ended, late }
    }

    fn changed(&self, asked: Asked, file: FileId) -> bool {
        self.changing.contains_key(&file) || self.changes.since(asked.changes, file)
    }

    /// Whether cached data of a file must not be used, because the file is being changed.
    pub fn is_changing(&self, file: FileId) -> bool {
        self.changing.contains_key(&file)
    }

    /// Whether a reply about this file or directory is still true.
    pub fn is_fresh(&self, asked: Asked, found: Found, file: FileId) -> bool {
        found.epoch == self.epoch
            && !asked.late
            && !self.changed(asked, file)
            && !self.events.since(found.events, file)
    }

    /// Whether nothing of a file was given up since a reply brought a lease on it.
    pub fn is_held(&self, found: Found, file: FileId) -> bool {
        found.epoch == self.epoch && !self.recalls.since(found.events, file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: FileId = FileId(7);
    const B: FileId = FileId(8);

    fn found(events: u64) -> Found {
        Found { epoch: 1, events, keep: 0 }
    }

    fn at(number: u64) -> Numbered {
        Numbered { epoch: 1, number }
    }

    fn news() -> News {
        let mut news = News::default();
        news.begin(1);
        news
    }

    #[test]
    fn an_answer_that_an_event_overtook_is_not_kept() {
        let mut news = news();
        let asked = news.asking();
        assert!(news.is_fresh(asked, found(0), A));
        news.event(at(1), A);
        assert!(!news.is_fresh(asked, found(0), A));
        assert!(news.is_fresh(asked, found(1), A));
        assert!(news.is_fresh(asked, found(0), B));
        news.given_up(at(2), A);
        assert!(!news.is_held(found(1), A));
        assert!(news.is_held(found(2), A));
        assert!(news.is_held(found(0), B));
    }

    /// Recalls of several files are carried out at the same time.
    #[test]
    fn a_lease_that_was_given_up_is_not_held_whatever_was_given_up_after_it() {
        let mut news = news();
        news.given_up(at(7), B);
        news.given_up(at(5), A);
        assert!(!news.is_held(found(6), B) && !news.is_held(found(4), A));
        assert!(news.is_held(found(7), B) && news.is_held(found(5), A));
    }

    /// As when the answer to a request for a lease comes late, on another connection
    /// than the poll: the server has given the file to somebody else since.
    #[test]
    fn a_lease_that_was_granted_before_everything_was_taken_away_is_not_held() {
        let mut news = news();
        let asked = news.asking();
        news.lapsed(at(5));
        assert!(!news.is_held(found(4), A));
        assert!(!news.is_fresh(asked, found(4), A));
        assert!(news.is_held(found(5), A) && news.is_fresh(asked, found(5), A));
        news.begin(2);
        assert!(news.is_held(Found { epoch: 2, events: 1, keep: 0 }, A));
    }

    /// As after a client was stopped until its session had ended, with a recall on its
    /// way: the numbers of the new session may be smaller.
    #[test]
    fn what_an_earlier_session_was_told_takes_nothing_from_this_one() {
        let mut news = news();
        news.begin(2);
        let asked = news.asking();
        news.given_up(at(9), A);
        news.event(at(9), A);
        news.lapsed(at(9));
        let found = Found { epoch: 2, events: 1, keep: 0 };
        assert!(news.is_held(found, A) && news.is_fresh(asked, found, A));
    }

    #[test]
    fn an_answer_asked_for_before_an_own_change_ended_is_not_kept() {
        let mut news = news();
        let before = news.asking();
        let change = news.begin_change(&[A]);
        let during = news.asking();
        assert!(!news.is_fresh(during, found(0), A));
        assert!(news.is_fresh(during, found(0), B));
        let own = news.end_change(change, &[A]);
        assert!(!news.is_fresh(before, found(0), A));
        assert!(!news.is_fresh(during, found(0), A));
        assert!(news.is_fresh(own, found(0), A));
        assert!(news.is_fresh(news.asking(), found(0), A));
    }

    #[test]
    fn of_two_changes_at_once_neither_answer_is_kept() {
        let mut news = news();
        let one = news.begin_change(&[A]);
        let two = news.begin_change(&[A]);
        let one = news.end_change(one, &[A]);
        assert!(!news.is_fresh(one, found(0), A));
        let two = news.end_change(two, &[A]);
        assert!(!news.is_fresh(one, found(0), A));
        assert!(!news.is_fresh(two, found(0), A));
    }

    #[test]
    fn an_answer_older_than_what_is_remembered_is_not_kept() {
        let mut news = news();
        let asked = news.asking();
        (1..=REMEMBERED as u64 + 5).for_each(|number| news.event(at(number), B));
        assert!(!news.is_fresh(asked, found(4), A));
        assert!(news.is_fresh(asked, found(5), A));
        (0..=REMEMBERED).for_each(|_| {
            let change = news.begin_change(&[B]);
            news.end_change(change, &[B]);
        });
        assert!(!news.is_fresh(asked, found(5), A));
    }

    #[test]
    fn an_answer_of_another_run_is_not_kept() {
        let mut news = news();
        let asked = news.asking();
        news.begin(2);
        assert!(!news.is_fresh(asked, found(9), A));
        assert!(!news.is_held(found(9), A));
    }
}
