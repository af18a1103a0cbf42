//! A model of one file in the kernel, of threads that ask for its attributes, and of another client that changes
//! them: in no order of their steps does the kernel use what was true before the change.

use super::*;

const FILE: FileId = FileId(7);
const NODE: NodeId = 7;
const LONG: Duration = Duration::from_secs(8);

/// A bug in the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// The kernel is not told.
    NotTold,
    /// It is told once, also if it does not have the file yet.
    ToldOnce,
    /// The attributes are compared before the lifetime is recorded.
    ComparedFirst,
    /// A reply counts as handled when it is sent.
    SettledWhenSent,
    /// A node counts as dropped though a reply for it is under way.
    DroppedTooSoon,
    /// A node is dropped though a reply for it has begun since that was looked at.
    DroppedTooLate,
}

/// The kernel's inode of the file.
#[derive(Debug, Default)]
struct Inode {
    version: u64,
    /// What it uses without asking.
    used: Option<u64>,
    lookups: u64,
}

#[derive(Debug, Default)]
struct World {
    inode: Option<Inode>,
    /// Grows with each notification and each handled reply.
    version: u64,
    /// Grows when an inode is dropped.
    dropped: u64,
    /// The kernel's reports of drops that the mount has not read.
    reports: u64,
    /// Lookups by the mount's count.
    known: u64,
    /// The client's cache.
    cached: Option<u64>,
    /// At the metadata server.
    value: u64,
    lifetimes: Lifetimes,
}

/// A thread that looks the file up.
#[derive(Debug, Default)]
struct Asker {
    step: u32,
    asked: (u64, u64),
    read: Option<u64>,
    lasts: bool,
}

impl Asker {
    /// Takes its next step. Returns `false` at the end.
    fn goes_on(&mut self, world: &mut World, bug: Bug, now: Instant) -> bool {
        match self.step {
            0 => self.asked = (world.version, world.dropped),
            1 => {
                self.read = world.cached;
                world.known += 1;
                if bug == Bug::ComparedFirst {
                    self.lasts = self.read.is_some() && world.cached == self.read;
                }
            }
            2 if self.read.is_some() => {
                assert!(world.lifetimes.begins(FILE, (NODE, 1), LONG, now));
            }
            3 if self.read.is_some() => {
                if bug != Bug::ComparedFirst {
                    self.lasts = world.cached == self.read;
                }
            }
            4 if self.read.is_some() => {
                let then = now.checked_sub(ACTS * 2).filter(|_| bug == Bug::SettledWhenSent);
                world.lifetimes.sent(FILE, then.unwrap_or(now));
            }
            5 => self.handles(world),
            2..=4 => {}
            _ => return false,
        }
        self.step += 1;
        true
    }

    /// As Linux does (`fuse_iget`, `fuse_change_attributes`).
    fn handles(&self, world: &mut World) {
        let is_new = world.inode.is_none();
        let inode = world.inode.get_or_insert_default();
        inode.lookups += 1;
        if inode.version > self.asked.0 {
            return;
        }
        let may_be_old = is_new && world.dropped != self.asked.1;
        world.version += 1;
        inode.version = world.version;
        inode.used = self.read.filter(|_| self.lasts && !may_be_old);
    }
}

/// The change of another client, of which this one is told.
#[derive(Debug, Default)]
struct Change {
    step: u32,
    to_end: Option<ToEnd>,
    found: bool,
}

impl Change {
    fn goes_on(&mut self, world: &mut World, bug: Bug, now: Instant) -> bool {
        match self.step {
            0 => world.cached = None,
            1 => self.to_end = world.lifetimes.of(FILE),
            2 if self.to_end.is_some() && bug != Bug::NotTold => {
                self.found = world.inode.is_some();
                if let Some(inode) = &mut world.inode {
                    world.version += 1;
                    (inode.version, inode.used) = (world.version, None);
                }
                let again = !self.found && world.lifetimes.is_unsettled(FILE, now);
                if again && bug != Bug::ToldOnce {
                    return true;
                }
            }
            3 => {
                let number = self.to_end.as_ref().map(|end| end.number);
                number.into_iter().for_each(|number| world.lifetimes.ended(FILE, number));
            }
            4 => world.value += 1,
            // Somebody asks the server again.
            5 => world.cached = Some(world.value),
            2 => {}
            _ => return false,
        }
        self.step += 1;
        true
    }
}

/// The kernel drops the file, and says so later.
#[derive(Debug, Default)]
struct Dropping {
    step: u32,
    number: u64,
    is_gone: bool,
}

impl Dropping {
    fn goes_on(&mut self, world: &mut World, bug: Bug) -> bool {
        match self.step {
            0 => {
                if let Some(inode) = world.inode.take() {
                    world.dropped += 1;
                    world.reports += inode.lookups;
                }
            }
            1 => world.known -= std::mem::take(&mut world.reports),
            2 => self.number = world.lifetimes.number(FILE),
            3 => self.is_gone = world.known == 0 || bug == Bug::DroppedTooSoon,
            4 if self.is_gone => {
                if bug == Bug::DroppedTooLate {
                    self.number = world.lifetimes.number(FILE);
                }
                world.lifetimes.dropped(FILE, NODE, self.number);
            }
            4 => {}
            _ => return false,
        }
        self.step += 1;
        true
    }
}

/// Runs the steps in the order of a seed. Returns whether the kernel used something old.
fn shows_old(seed: u64, bug: Bug, now: Instant) -> bool {
    let mut world = World { cached: Some(0), ..World::default() };
    let mut askers = [Asker::default(), Asker::default(), Asker::default()];
    let (mut change, mut dropping) =
        (Change::default(), [Dropping::default(), Dropping::default()]);
    let (mut state, mut idle) = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, 0);
    let mut old = false;
    while idle < 64 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let went_on = match state % 6 {
            who @ 0..=2 => askers[who as usize].goes_on(&mut world, bug, now),
            3 => change.goes_on(&mut world, bug, now),
            who => dropping[who as usize - 4].goes_on(&mut world, bug),
        };
        idle = if went_on { 0 } else { idle + 1 };
        let used = world.inode.as_ref().and_then(|inode| inode.used);
        old |= used.is_some_and(|used| used < world.value);
        if old {
            break;
        }
    }
    old
}

#[test]
fn the_kernel_uses_nothing_old_after_a_change_and_each_bug_is_found() {
    let now = Instant::now();
    let found = |bug| (1..40_000).find(|seed| shows_old(*seed, bug, now));
    assert_eq!(found(Bug::None), None, "the seed of the order");
    for bug in [
        Bug::NotTold,
        Bug::ToldOnce,
        Bug::ComparedFirst,
        Bug::SettledWhenSent,
        Bug::DroppedTooSoon,
        Bug::DroppedTooLate,
    ] {
        assert!(found(bug).is_some(), "{bug:?} was not found");
    }
}

#[test]
fn files_are_bounded_and_make_room_when_their_time_is_over() {
    let (lifetimes, begin) = (Lifetimes::default(), Instant::now());
    let begins = |file: u64, now| lifetimes.begins(FileId(file), (file, 1), LONG, now);
    for file in 0..MAX_FILES as u64 {
        assert!(begins(file, begin));
        lifetimes.sent(FileId(file), begin);
    }
    assert!(!begins(1 << 40, begin) && begins(7, begin), "that is there");
    lifetimes.sent(FileId(7), begin);
    let over = begin + LONG + ACTS + SWEEP * 2;
    assert!(begins(1 << 40, over));
    assert_eq!(lifetimes.all(), [FileId(1 << 40)]);
}

#[test]
fn a_read_by_the_only_thread_that_asked_comes_after_all_replies() {
    let (lifetimes, now) = (Lifetimes::default(), Instant::now());
    let begins = |by| assert!(lifetimes.begins(FILE, (NODE, by), LONG, now));
    assert!(lifetimes.has_handled_all(FILE, 1, now), "there are none");
    begins(1);
    assert!(!lifetimes.has_handled_all(FILE, 1, now), "it was not sent");
    lifetimes.sent(FILE, now);
    assert!(lifetimes.has_handled_all(FILE, 1, now) && !lifetimes.has_handled_all(FILE, 2, now));
    begins(2);
    lifetimes.sent(FILE, now);
    assert!(!lifetimes.has_handled_all(FILE, 1, now) && !lifetimes.has_handled_all(FILE, 2, now));
    let later = now + ACTS;
    assert!(lifetimes.has_handled_all(FILE, 3, later));
    begins(0);
    lifetimes.sent(FILE, now);
    assert!(!lifetimes.has_handled_all(FILE, 0, now), "nobody knows who that is");
}
