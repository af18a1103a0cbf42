//! A model of one name in the kernel, of threads that walk through its directory, of another client that changes the
//! name, and of a thread that removes it here. In no order of their steps, at whatever times, does a walk find
//! what the name stood for before the walk began.

use super::*;

const DIR: FileId = FileId(7);
const OTHER: FileId = FileId(8);
const FILE: FileId = FileId(20);
const WALKERS: usize = 3;
/// The number of the thread that removes the name.
const REMOVER: u32 = 9;

/// A bug in the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// The directory is not closed when another client changes a name.
    NotClosed,
    /// It is closed, and the kernel keeps its attributes.
    AttributesKept,
    /// A closed directory's attributes get a lifetime.
    AttributesLast,
    /// Attributes of a closed directory are told at once.
    NoWait,
    /// The kernel is told a longer lifetime than the mount counts with.
    Longer,
    /// The name is compared with the client's before it is recorded.
    ComparedFirst,
    /// A reply counts as handled when it is sent.
    SettledWhenSent,
    /// The directory stays open while this kernel removes a name.
    OpenForOwn,
}

/// What the kernel, the client and the server have.
struct World {
    bug: Bug,
    begin: Instant,
    now_ms: u64,
    /// The name in the kernel: what it stands for, and until when.
    name: Option<(u64, u64)>,
    attributes: bool,
    /// Grows with each drop of the attributes.
    drops: u64,
    /// Grows when the kernel removes the name: answers that come later are of no use.
    removals: u64,
    cached: Option<u64>,
    /// The server lets nobody cache: a change waits.
    parked: bool,
    value: u64,
    unique: u64,
    names: Names,
}

impl World {
    fn now(&self) -> Instant {
        self.begin + Duration::from_millis(self.now_ms)
    }

    fn asker(&mut self, thread: u32) -> Asker {
        self.unique += 1;
        Asker { thread, unique: self.unique }
    }

    fn lifetime_ms(&self) -> u64 {
        let ticks_ms = 30;
        let factor = if self.bug == Bug::Longer { 4 } else { 1 };
        LIFETIME.as_millis() as u64 * factor + ticks_ms
    }

    /// The kernel finds the directory in its parent, which waits for nothing.
    fn finds_directory(&mut self) {
        let closed = self.names.is_closed(DIR) && self.bug != Bug::AttributesLast;
        self.attributes |= !closed && !self.parked;
    }

    /// Whether the attributes of the directory may be told.
    fn is_open(&self, sleepers: &[u32]) -> bool {
        if self.bug == Bug::NoWait {
            return true;
        }
        let Some(threads) = self.names.waits_for(DIR, self.now()) else { return true };
        for of in threads {
            let sleeps = sleepers.contains(&of.0) || self.bug == Bug::SettledWhenSent;
            let doing = if sleeps { Doing::Sleeps } else { Doing::Unknown };
            self.names.is_seen(of, doing, self.now());
        }
        self.names.waits_for(DIR, self.now()).is_none()
    }
}

/// A thread that looks the name up by a path, again and again.
#[derive(Default)]
struct Walker {
    step: u32,
    /// What the name stood for when the walk began.
    least: u64,
    drops: u64,
    removals: u64,
    asker: Option<Asker>,
    read: u64,
    lasts: bool,
    sent_ms: Option<u64>,
}

impl Walker {
    /// Takes its next step. Returns whether it found what was true before.
    fn goes_on(&mut self, world: &mut World, thread: u32, sleepers: &[u32]) -> bool {
        let mut found = None;
        match self.step {
            0 => {
                self.least = world.value;
                // The right to search the directory.
                self.step = if world.attributes { 4 } else { 1 };
            }
            1 => {
                let asker = world.asker(thread);
                world.names.asks(asker, world.now());
                self.drops = world.drops;
                self.step = 2;
            }
            2 if world.is_open(sleepers) => self.step = 3,
            2 => {}
            3 => {
                let closed = world.names.is_closed(DIR) && world.bug != Bug::AttributesLast;
                // The kernel ignores what it asked for before a drop.
                if !closed && self.drops == world.drops && !world.parked {
                    world.attributes = true;
                }
                self.step = 4;
            }
            4 => match world.name.filter(|(_, until)| world.now_ms <= *until) {
                Some((value, _)) => found = Some(value),
                None => self.step = 5,
            },
            5 => {
                let asker = world.asker(thread);
                world.names.asks(asker, world.now());
                self.asker = Some(asker);
                self.removals = world.removals;
                self.read = world.cached.unwrap_or(world.value);
                if !world.parked {
                    world.cached = Some(self.read);
                }
                if world.bug == Bug::ComparedFirst {
                    self.lasts = world.cached == Some(self.read);
                }
                self.step = 6;
            }
            6 => {
                let asker = self.asker.unwrap();
                let begun = world.names.begins(asker, (DIR, FILE), false, world.now());
                let same = match world.bug {
                    Bug::ComparedFirst => self.lasts,
                    _ => world.cached == Some(self.read),
                };
                self.lasts = begun && same;
                if begun && !same {
                    world.names.tells_none(asker);
                }
                self.step = 7;
            }
            7 => {
                world.names.sent(self.asker.unwrap(), world.now());
                self.sent_ms = Some(world.now_ms);
                self.step = 8;
            }
            _ => {
                self.sent_ms = None;
                let until = world.now_ms + world.lifetime_ms();
                if self.removals == world.removals {
                    world.name = self.lasts.then_some((self.read, until));
                }
                found = Some(self.read);
            }
        }
        if found.is_some() {
            self.step = 0;
        }
        found.is_some_and(|found| found < self.least)
    }
}

/// Another client changes the name.
fn elsewhere(step: u32, world: &mut World) -> bool {
    match step {
        0 => (world.cached, world.parked) = (None, true),
        1 if world.bug != Bug::NotClosed => world.names.close(DIR, world.now()),
        2 if world.bug != Bug::AttributesKept => {
            world.attributes = false;
            world.drops += 1;
        }
        1 | 2 => {}
        3 => (world.value, world.parked) = (world.value + 1, false),
        _ => return false,
    }
    true
}

/// A thread of this machine replaces the name, and another client sees that before the kernel does.
fn here(step: u32, world: &mut World, asker: &mut Option<Asker>) -> bool {
    let is_closed = world.bug != Bug::OpenForOwn;
    match step {
        0 if is_closed => {
            let one = world.asker(REMOVER);
            *asker = Some(one);
            world.names.change_begins(one, &[DIR], world.now());
        }
        1 => {
            (world.cached, world.parked) = (None, true);
            world.attributes = false;
            world.drops += 1;
        }
        2 => (world.value, world.parked) = (world.value + 1, false),
        3 if is_closed => world.names.change_ends(asker.unwrap(), &[DIR], Ended::Done),
        4 if is_closed => world.names.sent(asker.unwrap(), world.now()),
        5 => (world.name, world.removals) = (None, world.removals + 1),
        0 | 3 | 4 => {}
        _ => return false,
    }
    true
}

/// Runs the steps in the order of a seed. Returns whether a walk found what was true before it.
fn shows_old(seed: u64, bug: Bug, begin: Instant) -> bool {
    let mut world = World {
        bug,
        begin,
        now_ms: 0,
        name: None,
        attributes: false,
        drops: 0,
        removals: 0,
        cached: None,
        parked: false,
        value: 0,
        unique: 0,
        names: Names::default(),
    };
    let mut walkers: [Walker; WALKERS] = Default::default();
    let (mut changing, mut removing, mut remover) = (0, 0, None);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) % n
    };
    for _ in 0..160 {
        let removed = !(1..6).contains(&removing);
        match random(11) {
            0 if random(8) == 0 => changing = 0,
            1 if removed && random(8) == 0 => removing = 0,
            0 | 2 => {
                // One change at a time holds the directory's lock at the server.
                if removed && elsewhere(changing, &mut world) {
                    changing += 1;
                }
            }
            1 | 3 => {
                let elsewhere = (1..4).contains(&changing);
                if (!elsewhere || removing > 0) && here(removing, &mut world, &mut remover) {
                    removing += 1;
                }
            }
            4 => {
                // A thread handles a reply in time.
                let sent = walkers.iter().filter_map(|walker| walker.sent_ms).min();
                let latest = sent.map_or(u64::MAX, |sent| sent + ACTS.as_millis() as u64);
                world.now_ms = (world.now_ms + random(120)).min(latest.max(world.now_ms));
            }
            5 => world.finds_directory(),
            who => {
                let who = who as usize % WALKERS;
                // Who is between two walks may sleep, and so may who has removed.
                let mut sleepers: Vec<u32> = (0..WALKERS as u32)
                    .filter(|other| walkers[*other as usize].step == 0)
                    .map(|other| other + 1)
                    .collect();
                sleepers.extend((removing > 5).then_some(REMOVER));
                if walkers[who].goes_on(&mut world, who as u32 + 1, &sleepers) {
                    return true;
                }
            }
        }
    }
    false
}

#[test]
fn no_walk_finds_what_was_true_before_it_and_each_bug_is_found() {
    let begin = Instant::now();
    let found = |bug, seeds: u64| (1..seeds).find(|seed| shows_old(*seed, bug, begin));
    assert_eq!(found(Bug::None, 60_000), None, "the seed of the order");
    for bug in [
        Bug::NotClosed,
        Bug::AttributesKept,
        Bug::AttributesLast,
        Bug::NoWait,
        Bug::Longer,
        Bug::ComparedFirst,
        Bug::SettledWhenSent,
        Bug::OpenForOwn,
    ] {
        assert!(found(bug, 200_000).is_some(), "{bug:?} was not found");
    }
}

fn asker(thread: u32, unique: u64) -> Asker {
    Asker { thread, unique }
}

/// Tells a thread a name in a directory.
fn tells(names: &Names, asker: Asker, dir: FileId, now: Instant) -> bool {
    let begun = names.begins(asker, (dir, FILE), false, now);
    names.sent(asker, now);
    begun
}

#[test]
fn a_name_that_moves_takes_its_lifetime_along() {
    for settled in [false, true] {
        let (names, now) = (Names::default(), Instant::now());
        assert!(tells(&names, asker(1, 1), DIR, now));
        if settled {
            names.asks(asker(1, 2), now);
        }
        let mover = asker(2, 3);
        names.change_begins(mover, &[DIR, OTHER], now);
        names.change_ends(mover, &[DIR, OTHER], Ended::Done);
        names.sent(mover, now);
        names.asks(asker(2, 4), now);
        assert!(names.waits_for(OTHER, now).is_none(), "it is open");
        names.close(OTHER, now);
        assert!(names.waits_for(OTHER, now).is_some(), "settled: {settled}");
        names.asks(asker(1, 5), now);
        assert!(names.waits_for(OTHER, now + LIFETIME).is_some());
        assert!(names.waits_for(OTHER, now + OVER).is_none());
    }
}

#[test]
fn the_names_of_a_file_end_in_all_directories_that_may_have_one() {
    let (names, now) = (Names::default(), Instant::now());
    assert!(tells(&names, asker(1, 1), DIR, now));
    assert!(names.begins(asker(2, 2), (OTHER, FileId(21)), false, now));
    names.sent(asker(2, 2), now);
    assert_eq!(names.close_names_of(FileId(22), now), []);
    assert_eq!(names.close_names_of(FILE, now), [DIR]);
    assert!(names.is_closed(DIR) && !names.is_closed(OTHER));
    let mover = asker(3, 3);
    names.change_begins(mover, &[DIR, OTHER], now);
    names.change_ends(mover, &[DIR, OTHER], Ended::Refused);
    let mut closed = names.close_names_of(FILE, now);
    closed.sort_unstable();
    assert_eq!(closed, [DIR, OTHER], "it may have moved");
    assert!(names.is_closed(OTHER));
    assert_eq!(names.close_names_of(FILE, now + LONGEST), [], "it is over");
}

#[test]
fn moves_between_others_concern_no_name_unless_they_are_too_many() {
    let (names, now) = (Names::default(), Instant::now());
    let moves = |from, to| {
        let (mover, dirs) = (asker(3, 3), [FileId(from), FileId(to)]);
        names.change_begins(mover, &dirs, now);
        names.change_ends(mover, &dirs, Ended::Refused);
    };
    assert!(tells(&names, asker(1, 1), DIR, now));
    moves(100, 101);
    assert_eq!(names.close_names_of(FILE, now), [DIR]);
    // By way of others, and the first way once more.
    for (from, to) in [(DIR.0, 100), (100, 102), (DIR.0, 100)] {
        moves(from, to);
    }
    let mut closed = names.close_names_of(FILE, now);
    closed.sort_unstable();
    assert_eq!(closed, [DIR, FileId(100), FileId(101), FileId(102)]);
    assert!(names.begins(asker(2, 2), (OTHER, FileId(21)), false, now));
    (0..MAX_MOVES as u64).for_each(|n| moves(1_000 + n, 5_000 + n));
    assert!(names.close_names_of(FILE, now).contains(&OTHER));
}

#[test]
fn directories_that_are_changed_are_forgotten_when_they_are_too_many() {
    let (names, now) = (Names::default(), Instant::now());
    for n in 0..3 * MAX_DIRECTORIES as u64 {
        // As long as it takes, and longer than between two sweeps.
        let at = now + Duration::from_millis(n / 10);
        names.change_begins(asker(0, n), &[FileId(n)], at);
        names.change_ends(asker(0, n), &[FileId(n)], Ended::Done);
    }
    assert!(names.lock().directories.len() < 2 * MAX_DIRECTORIES);
}

#[test]
fn a_directory_is_opened_when_names_are_over_and_gives_lifetimes_again_when_all_is_calm() {
    let (names, now) = (Names::default(), Instant::now());
    assert!(tells(&names, asker(1, 1), DIR, now));
    names.close(DIR, now);
    assert!(!tells(&names, asker(2, 2), DIR, now), "it is closed");
    let threads = names.waits_for(DIR, now).unwrap();
    assert_eq!(threads, [(1, 1)]);
    assert!(!names.is_seen((1, 1), Doing::Unknown, now));
    assert!(names.is_seen((1, 1), Doing::Sleeps, now));
    assert!(names.waits_for(DIR, now).is_some() && names.is_closed(DIR));
    let over = now + OVER;
    assert!(names.waits_for(DIR, over).is_none() && !names.is_closed(DIR));
    assert!(!tells(&names, asker(1, 3), DIR, over), "another client has just changed it");
    assert!(tells(&names, asker(1, 4), DIR, now + CALM));
}

#[test]
fn who_is_busy_has_handled_its_reply_after_some_time_and_a_listing_may_sleep_meanwhile() {
    for (listing, doing) in [(false, Doing::Unknown), (true, Doing::Sleeps)] {
        let (names, now) = (Names::default(), Instant::now());
        assert!(names.begins(asker(1, 1), (DIR, FILE), listing, now));
        names.sent(asker(1, 1), now);
        names.close(DIR, now);
        let late = now + ACTS;
        assert!(!names.is_seen((1, 1), doing, late - Duration::from_millis(1)));
        assert!(names.is_seen((1, 1), doing, late));
        assert!(
            names.waits_for(DIR, late).is_some() && names.waits_for(DIR, late + OVER).is_none()
        );
    }
}

#[test]
fn a_change_that_may_have_happened_closes_the_directory_and_a_refused_one_opens_it() {
    for (how, closed) in [(Ended::Refused, false), (Ended::Unknown, true), (Ended::Done, true)] {
        let (names, now) = (Names::default(), Instant::now());
        assert!(tells(&names, asker(1, 1), DIR, now));
        let changer = asker(2, 2);
        names.change_begins(changer, &[DIR], now);
        assert!(names.is_closed(DIR) && names.waits_for(DIR, now).is_some());
        names.change_ends(changer, &[DIR], how);
        assert_eq!(names.is_closed(DIR), closed, "{how:?}");
        names.sent(changer, now);
        names.asks(asker(2, 3), now);
        assert_eq!(names.is_closed(DIR), how == Ended::Unknown, "{how:?}");
        names.asks(asker(1, 3), now);
        let over = now + OVER;
        assert!(names.waits_for(DIR, over).is_none());
        assert!(!tells(&names, asker(1, 4), DIR, over), "many change it");
        assert!(tells(&names, asker(1, 5), DIR, now + BUSY));
    }
    // Of a thread that is unknown nobody knows when it has handled the reply.
    let (names, now) = (Names::default(), Instant::now());
    assert!(!tells(&names, asker(0, 1), DIR, now));
    names.change_begins(asker(0, 2), &[DIR], now);
    names.change_ends(asker(0, 2), &[DIR], Ended::Done);
    assert!(names.is_closed(DIR) && names.waits_for(DIR, now).is_none(), "no name has a lifetime");
}

#[test]
fn directories_and_threads_are_bounded_and_make_room_when_their_time_is_over() {
    let (names, now) = (Names::default(), Instant::now());
    let mut unique = 0;
    let mut tell = |thread, dir, now| {
        unique += 1;
        tells(&names, asker(thread, unique), FileId(dir), now)
    };
    for dir in 0..MAX_DIRECTORIES as u64 {
        assert!(tell(1, dir, now));
    }
    assert!(!tell(1, 1 << 40, now));
    let later = now + OVER + SWEEP * 2;
    for thread in 2..MAX_THREADS as u32 + 1 {
        assert!(tell(thread, 1, later));
    }
    assert!(tell(1, 1, later));
    assert!(!tell(1 << 20, 1, later));
    let last = later + LONGEST + SWEEP * 2;
    assert!(tell(1 << 20, 1, last));
    let (names, mut unique) = (Names::default(), 0);
    let mut tell = |file, now| {
        unique += 1;
        names.begins(asker(1, unique), (DIR, FileId(file)), true, now)
    };
    assert!((0..MAX_FILES as u64).all(|file| tell(file, now)) && !tell(1 << 40, now));
    assert!(tell(1 << 40, last));
}
