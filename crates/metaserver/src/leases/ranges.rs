//! Leases on ranges of files, by session.
//!
//! Ranges are whole blocks. A piece of a lease is either *asked for*, by a range that a call
//! needed, or an extension: it came with an open, or because more was granted than asked.
//! Extensions are cut where another session needs the bytes.
//!
//! Invariant: a block with a write lease has no lease of another session.

use std::collections::{BTreeMap, BTreeSet};
use weir_types::limits::BLOCK;
use weir_types::{FileId, SessionId};
use weir_wire::lease::{LeaseMode, LeaseRange, TO_THE_END};

/// Bytes that are granted beyond the requested range, the first time.
const FIRST_EXTENSION_BYTES: u64 = 1 << 20;
/// The most bytes that are granted beyond the requested range.
const MAX_EXTENSION_BYTES: u64 = 64 << 20;
/// The most pieces of leases of one session. At the limit it has to give others up.
pub const MAX_PIECES: usize = 65_536;
/// A session may exceed the limit by this part until it has given others up.
const SPARE_PART: usize = 16;

/// The lease on a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hold {
    mode: LeaseMode,
    asked: bool,
}

/// Consecutive blocks with the same lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    start: u64,
    end: u64,
    hold: Hold,
}

/// A session's leases on a file: ascending pieces, none empty, none touching one of the same kind.
#[derive(Clone, Debug, Default)]
struct Held {
    pieces: Vec<Piece>,
    extension_bytes: u64,
    /// Number of the last grant, counted over all files of all sessions.
    granted: u64,
}

impl Held {
    /// Changes the leases on `start..end`.
    fn apply(&mut self, start: u64, end: u64, change: impl Fn(Option<Hold>) -> Option<Hold>) {
        let mut all = Vec::with_capacity(self.pieces.len() + 2);
        let mut add = |start: u64, end: u64, hold: Option<Hold>| {
            let Some(hold) = hold.filter(|_| start < end) else { return };
            match all.last_mut() {
                Some(Piece { end: last, hold: before, .. })
                    if *last == start && *before == hold =>
                {
                    *last = end;
                }
                _ => all.push(Piece { start, end, hold }),
            }
        };
        let mut at = start;
        for piece in &self.pieces {
            add(piece.start, piece.end.min(start), Some(piece.hold));
            let (from, to) = (piece.start.max(start), piece.end.min(end));
            if from < to {
                add(at, from, change(None));
                add(from, to, change(Some(piece.hold)));
                at = to;
            } else if piece.start >= end && at < end {
                add(at, end, change(None));
                at = end;
            }
            add(piece.start.max(end), piece.end, Some(piece.hold));
            // Nothing of the range is left behind a piece that reaches past it.
            if piece.end >= end {
                at = at.max(end);
            }
        }
        add(at, end, change(None));
        self.pieces = all;
    }

    fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = &Piece> {
        let first = self.pieces.partition_point(move |piece| piece.end <= start);
        self.pieces[first..].iter().take_while(move |piece| piece.start < end)
    }

    fn covers(&self, start: u64, end: u64, mode: LeaseMode) -> bool {
        let mut at = start;
        for piece in self.overlapping(start, end) {
            if piece.start > at || piece.hold.mode < mode {
                return false;
            }
            at = piece.end;
        }
        at >= end
    }

    fn writes(&self) -> bool {
        self.pieces.iter().any(|piece| piece.hold.mode == LeaseMode::Write)
    }
}

/// Whether two sessions cannot hold leases of these modes on the same block.
pub fn conflict(a: LeaseMode, b: LeaseMode) -> bool {
    a == LeaseMode::Write || b == LeaseMode::Write
}

/// Extends a range to whole blocks; `None` if it is empty.
pub fn whole_blocks(lease: &LeaseRange) -> Option<LeaseRange> {
    if lease.start >= lease.end {
        return None;
    }
    let start = lease.start - lease.start % BLOCK;
    let end = lease.end.checked_next_multiple_of(BLOCK).unwrap_or(TO_THE_END);
    Some(LeaseRange { file: lease.file, start, end, mode: lease.mode })
}

/// A lease on the whole of a file.
pub fn whole(file: FileId, mode: LeaseMode) -> LeaseRange {
    LeaseRange { file, start: 0, end: TO_THE_END, mode }
}

/// Whether a session may be granted a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It may.
    Yes,
    /// It may, and has to give others up.
    Instead,
    /// Not before it has given others up.
    No,
}

/// All leases.
#[derive(Debug)]
pub struct Ranges {
    files: BTreeMap<FileId, BTreeMap<SessionId, Held>>,
    files_of: BTreeMap<SessionId, BTreeSet<FileId>>,
    /// Files by session and [`Held::granted`].
    by_age: BTreeMap<(SessionId, u64), FileId>,
    pieces: BTreeMap<SessionId, usize>,
    grants: u64,
    most: usize,
}

impl Default for Ranges {
    fn default() -> Self {
        Self::with_limit(MAX_PIECES)
    }
}

impl Ranges {
    /// Makes a table with another limit of pieces for each session.
    pub fn with_limit(most: usize) -> Self {
        Self {
            files: BTreeMap::new(),
            files_of: BTreeMap::new(),
            by_age: BTreeMap::new(),
            pieces: BTreeMap::new(),
            grants: 0,
            most,
        }
    }

    /// Sets the limit of pieces for each session.
    pub fn limit(&mut self, most: usize) {
        self.most = most;
    }

    /// Number of files on which a session has leases.
    pub fn count_files(&self, session: SessionId) -> usize {
        self.files_of.get(&session).map_or(0, BTreeSet::len)
    }

    /// The next file with leases, from this one on.
    pub fn next_file(&self, from: FileId) -> Option<FileId> {
        self.files.range(from..).next().map(|(file, _)| *file)
    }

    /// The leases on a file.
    pub fn of_file(&self, file: FileId) -> impl Iterator<Item = (SessionId, LeaseRange)> {
        let held = self.files.get(&file).into_iter().flatten();
        held.flat_map(move |(session, held)| {
            held.pieces.iter().map(move |piece| {
                let Piece { start, end, hold } = *piece;
                (*session, LeaseRange { file, start, end, mode: hold.mode })
            })
        })
    }

    fn held(&self, session: SessionId, file: FileId) -> Option<&Held> {
        self.files.get(&file)?.get(&session)
    }

    fn others(&self, session: SessionId, file: FileId) -> impl Iterator<Item = (SessionId, &Held)> {
        let of_file = self.files.get(&file).into_iter().flatten();
        of_file.filter(move |(id, _)| **id != session).map(|(id, held)| (*id, held))
    }

    /// Whether a session's leases cover all of this lease.
    pub fn covers(&self, session: SessionId, lease: &LeaseRange) -> bool {
        let held = self.held(session, lease.file);
        held.is_some_and(|held| held.covers(lease.start, lease.end, lease.mode))
    }

    /// The largest range around `lease` that a session holds in that mode: the session may not know
    /// the lease that came with an open.
    pub fn around(&self, session: SessionId, lease: &LeaseRange) -> LeaseRange {
        let mut around = lease.clone();
        let pieces = self.held(session, lease.file).map_or(&[][..], |held| &held.pieces);
        let allowed = || pieces.iter().filter(|piece| piece.hold.mode >= lease.mode);
        for piece in allowed() {
            if piece.start <= around.end && piece.end > around.end {
                around.end = piece.end;
            }
        }
        for piece in allowed().rev() {
            if piece.end >= around.start && piece.start < around.start {
                around.start = piece.start;
            }
        }
        around
    }

    /// Whether a session has a write lease anywhere on a file.
    pub fn writes(&self, session: SessionId, file: FileId) -> bool {
        self.held(session, file).is_some_and(Held::writes)
    }

    /// The other sessions with a write lease anywhere on a file.
    pub fn other_writers(&self, session: SessionId, file: FileId) -> Vec<SessionId> {
        self.others(session, file).filter(|(_, held)| held.writes()).map(|(id, _)| id).collect()
    }

    /// Whether another session has any lease on a file.
    pub fn others_hold(&self, session: SessionId, file: FileId) -> bool {
        self.others(session, file).next().is_some()
    }

    /// The other sessions with a lease that conflicts with this one.
    pub fn in_the_way(&self, session: SessionId, lease: &LeaseRange) -> Vec<SessionId> {
        let blocks = |held: &Held| {
            let mut found = held.overlapping(lease.start, lease.end);
            found.any(|piece| conflict(piece.hold.mode, lease.mode))
        };
        self.others(session, lease.file)
            .filter(|(_, held)| blocks(held))
            .map(|(id, _)| id)
            .collect()
    }

    /// The range to grant for a request for `lease`: the whole file if that takes nothing from
    /// others, else an extension towards the end, but nothing that others have asked for.
    pub fn reach(&self, session: SessionId, lease: &LeaseRange) -> LeaseRange {
        let all = whole(lease.file, lease.mode);
        if self.in_the_way(session, &all).is_empty() {
            return all;
        }
        let last = self.held(session, lease.file).map_or(0, |held| held.extension_bytes);
        let mut end = lease.end.saturating_add(next_extension(last));
        for (_, held) in self.others(session, lease.file) {
            let wanted = |piece: &&Piece| piece.hold.asked && conflict(piece.hold.mode, lease.mode);
            if let Some(piece) = held.overlapping(lease.end, end).find(wanted) {
                end = end.min(piece.start.max(lease.end));
            }
        }
        LeaseRange { end, ..lease.clone() }
    }

    /// Whether a session may hold another lease.
    pub fn room(&self, session: SessionId) -> Room {
        let held = self.pieces.get(&session).copied().unwrap_or(0);
        match held {
            _ if held < self.most => Room::Yes,
            _ if held < self.most + self.spare() => Room::Instead,
            _ => Room::No,
        }
    }

    /// Number of pieces by which a session may exceed its limit.
    pub fn spare(&self) -> usize {
        self.most.div_ceil(SPARE_PART)
    }

    /// The files on which a session has leases, ordered by their last grant, the oldest first.
    pub fn oldest(&self, session: SessionId) -> impl Iterator<Item = FileId> {
        self.by_age.range((session, 0)..=(session, u64::MAX)).map(|(_, file)| *file)
    }

    /// Grants `granted` to a session that has asked for `asked`. No conflicting lease is left.
    pub fn grant(&mut self, session: SessionId, granted: &LeaseRange, asked: Option<&LeaseRange>) {
        self.grants += 1;
        let number = self.grants;
        self.change(session, granted.file, |held| {
            held.granted = number;
            held.apply(granted.start, granted.end, |hold| {
                let hold = hold.unwrap_or(Hold { mode: granted.mode, asked: false });
                Some(Hold { mode: hold.mode.max(granted.mode), ..hold })
            });
            if let Some(asked) = asked {
                held.apply(asked.start, asked.end, |hold| {
                    hold.map(|hold| Hold { asked: true, ..hold })
                });
                if granted.end > asked.end && granted.end < TO_THE_END {
                    held.extension_bytes = next_extension(held.extension_bytes);
                }
            }
        });
    }

    /// Removes a session's lease on a range, or for [`LeaseMode::Read`] the right to write there.
    pub fn give_up(&mut self, session: SessionId, lease: &LeaseRange) {
        self.change(session, lease.file, |held| {
            held.apply(lease.start, lease.end, |hold| match lease.mode {
                LeaseMode::Write => None,
                LeaseMode::Read => hold.map(|hold| Hold { mode: LeaseMode::Read, ..hold }),
            });
        });
    }

    /// Removes a session's leases on a file. Returns whether it had any.
    pub fn drop_file(&mut self, session: SessionId, file: FileId) -> bool {
        let held = self.held(session, file).is_some();
        self.change(session, file, |held| held.pieces.clear());
        held
    }

    /// Transfers a session's write leases on a file to another.
    pub fn hand_over(&mut self, from: SessionId, file: FileId, to: SessionId) {
        let pieces = self.held(from, file).map_or_else(Vec::new, |held| held.pieces.clone());
        self.drop_file(from, file);
        for piece in pieces.iter().filter(|piece| piece.hold.mode == LeaseMode::Write) {
            let (start, end, mode) = (piece.start, piece.end, LeaseMode::Write);
            self.grant(to, &LeaseRange { file, start, end, mode }, None);
        }
    }

    /// The files on which a session has leases.
    pub fn files_of(&self, session: SessionId) -> Vec<FileId> {
        self.files_of.get(&session).into_iter().flatten().copied().collect()
    }

    fn change(&mut self, session: SessionId, file: FileId, change: impl FnOnce(&mut Held)) {
        let of_file = self.files.entry(file).or_default();
        let held = of_file.entry(session).or_default();
        let (before, age) = (held.pieces.len(), held.granted);
        change(held);
        let after = held.pieces.len();
        if after == 0 || age != held.granted {
            self.by_age.remove(&(session, age));
        }
        if after > 0 {
            self.by_age.insert((session, held.granted), file);
        }
        if after == 0 {
            of_file.remove(&session);
        }
        if of_file.is_empty() {
            self.files.remove(&file);
        }
        let count = self.pieces.entry(session).or_default();
        *count = *count + after - before;
        if *count == 0 {
            self.pieces.remove(&session);
        }
        let files = self.files_of.entry(session).or_default();
        if after == 0 {
            files.remove(&file)
        } else {
            files.insert(file)
        };
        if files.is_empty() {
            self.files_of.remove(&session);
        }
    }
}

fn next_extension(last: u64) -> u64 {
    (last * 2).clamp(FIRST_EXTENSION_BYTES, MAX_EXTENSION_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FILE: FileId = FileId(7);
    const BLOCKS: u64 = 12;

    fn lease(from: u64, to: u64, mode: LeaseMode) -> LeaseRange {
        LeaseRange { file: FILE, start: from * BLOCK, end: to * BLOCK, mode }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Acquire(u64, u64, u64, LeaseMode),
        GiveUp(u64, u64, u64, LeaseMode),
        Drop(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let mode = prop_oneof![Just(LeaseMode::Read), Just(LeaseMode::Write)];
        let part = (0..3u64, 0..BLOCKS, 1..6u64, mode);
        prop_oneof![
            6 => part.clone().prop_map(|(s, at, n, mode)| Step::Acquire(s, at, at + n, mode)),
            3 => part.prop_map(|(s, at, n, mode)| Step::GiveUp(s, at, at + n, mode)),
            1 => (0..3u64).prop_map(Step::Drop),
        ]
    }

    /// What each session holds of each block, block by block.
    #[derive(Default)]
    struct Model(BTreeMap<(u64, u64), (LeaseMode, bool)>);

    impl Model {
        fn blocked(&self, session: u64, from: u64, to: u64, mode: LeaseMode) -> BTreeSet<u64> {
            let hit = |(&(who, block), &(held, _)): (&(u64, u64), &(LeaseMode, bool))| {
                let other = who != session && (from..to).contains(&block);
                (other && conflict(held, mode)).then_some(who)
            };
            self.0.iter().filter_map(hit).collect()
        }
    }

    proptest! {
        #[test]
        fn leases_are_what_a_table_of_blocks_says(steps in prop::collection::vec(step(), 1..60)) {
            let (mut ranges, mut model) = (Ranges::default(), Model::default());
            for step in steps {
                match step {
                    Step::Acquire(who, from, to, mode) => {
                        let (session, asked) = (SessionId(who), lease(from, to, mode));
                        let reach = ranges.reach(session, &asked);
                        prop_assert!(reach.start <= asked.start && reach.end >= asked.end);
                        // In whole blocks here, up to the last that counts.
                        let first = reach.start / BLOCK;
                        let last = (reach.end / BLOCK).min(3 * BLOCKS);
                        let expected = model.blocked(who, first, last, mode);
                        let others = ranges.in_the_way(session, &reach);
                        // Others may be so only behind the blocks that count.
                        prop_assert!(expected.iter().all(|id| others.contains(&SessionId(*id))));
                        for other in others {
                            let take = LeaseRange {
                                mode: if mode == LeaseMode::Read { mode } else { LeaseMode::Write },
                                ..reach.clone()
                            };
                            ranges.give_up(other, &take);
                            for block in first..last {
                                let Some(held) = model.0.get_mut(&(other.0, block)) else { continue };
                                let outside = block < from || block >= to;
                                let wanted = held.1 && conflict(held.0, mode);
                                prop_assert!(!(outside && wanted), "taken though asked for");
                                match mode {
                                    LeaseMode::Read => held.0 = LeaseMode::Read,
                                    LeaseMode::Write => { model.0.remove(&(other.0, block)); }
                                }
                            }
                        }
                        ranges.grant(session, &reach, Some(&asked));
                        for block in first..last {
                            let held = model.0.entry((who, block)).or_insert((mode, false));
                            held.0 = held.0.max(mode);
                            held.1 |= (from..to).contains(&block);
                        }
                    }
                    Step::GiveUp(who, from, to, mode) => {
                        ranges.give_up(SessionId(who), &lease(from, to, mode));
                        for block in from..to {
                            match (mode, model.0.get_mut(&(who, block))) {
                                (LeaseMode::Read, Some(held)) => held.0 = LeaseMode::Read,
                                _ => { model.0.remove(&(who, block)); }
                            }
                        }
                    }
                    Step::Drop(who) => {
                        ranges.drop_file(SessionId(who), FILE);
                        model.0.retain(|(other, _), _| *other != who);
                    }
                }
                for who in 0..3 {
                    let mut any = false;
                    for block in 0..3 * BLOCKS {
                        let held = model.0.get(&(who, block)).map(|held| held.0);
                        any |= held.is_some();
                        for mode in [LeaseMode::Read, LeaseMode::Write] {
                            let covers = ranges.covers(SessionId(who), &lease(block, block + 1, mode));
                            prop_assert_eq!(covers, held.is_some_and(|held| held >= mode));
                        }
                        if held == Some(LeaseMode::Write) {
                            prop_assert!(model.blocked(who, block, block + 1, LeaseMode::Write).is_empty());
                        }
                    }
                    prop_assert!(!any || !ranges.files_of(SessionId(who)).is_empty());
                    let by_age: Vec<_> = ranges.oldest(SessionId(who)).collect();
                    prop_assert_eq!(by_age, ranges.files_of(SessionId(who)));
                }
            }
            for who in 0..3 {
                ranges.drop_file(SessionId(who), FILE);
            }
            prop_assert!(ranges.files.is_empty() && ranges.pieces.is_empty());
            prop_assert!(ranges.files_of.is_empty() && ranges.by_age.is_empty());
        }
    }

    #[test]
    fn at_the_bound_the_files_go_that_were_granted_longest_ago() {
        let mut ranges = Ranges::with_limit(3);
        let me = SessionId(1);
        let mut grant = |file| {
            let room = ranges.room(me);
            ranges.grant(me, &whole(FileId(file), LeaseMode::Read), None);
            room
        };
        assert_eq!([1, 2, 3].map(&mut grant), [Room::Yes; 3]);
        assert_eq!([4, 1].map(&mut grant), [Room::Instead, Room::No]);
        assert_eq!(ranges.oldest(me).collect::<Vec<_>>(), [2, 3, 4, 1].map(FileId));
        ranges.drop_file(me, FileId(3));
        ranges.give_up(me, &whole(FileId(4), LeaseMode::Write));
        assert_eq!(ranges.oldest(me).collect::<Vec<_>>(), [2, 1].map(FileId));
        assert_eq!((ranges.room(me), ranges.room(SessionId(2))), (Room::Yes, Room::Yes));
    }

    #[test]
    fn ranges_are_whole_blocks() {
        let odd = |start, end| LeaseRange { file: FILE, start, end, mode: LeaseMode::Read };
        assert_eq!(whole_blocks(&odd(4097, 4098)), Some(odd(4096, 8192)));
        assert_eq!(whole_blocks(&odd(0, 4096)), Some(odd(0, 4096)));
        assert_eq!(whole_blocks(&odd(5, TO_THE_END)), Some(odd(0, TO_THE_END)));
        assert_eq!(whole_blocks(&odd(5, u64::MAX - 3)), Some(odd(0, TO_THE_END)));
        assert_eq!(whole_blocks(&odd(5, 5)), None);
    }
}
