//! A model of one name in the kernel, of threads that ask for it, of this mount's own changes, and of another client
//! that changes the name: in no order of their steps does the kernel use what was true before the change.

use super::*;

const DIR: FileId = FileId(7);
const NODE: NodeId = 7;
const NAME: &[u8] = b"name";

fn name() -> Name {
    (NODE, NAME.into())
}

/// A bug in the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// The kernel is not told.
    NotTold,
    /// Names are compared before the lifetime is recorded.
    ComparedFirst,
    /// Replies that are handled without the lock are not waited for.
    NotWaitedFor,
    /// A thread that sleeps counts as one that has handled its reply, though it is not running yet.
    RunsBeforeItIsSent,
    /// A name that the kernel has moved is not recorded.
    MovedUnnoticed,
    /// The kernel moves a name with its lifetime while another client's change waits.
    MovedUnsettled,
    /// What the kernel has is told to be valid for longer than the client is allowed to use it.
    LongerThanLease,
}

/// The name in the kernel. A lifetime is over when the mount's lease is.
#[derive(Debug, Default)]
struct World {
    /// What the kernel uses without asking, and whether that ends with the lease.
    used: Option<(u64, bool)>,
    /// Which of its entries has the name.
    entry: u32,
    /// What it uses under another name.
    other: Option<(u64, bool)>,
    /// How many hold the directory's lock together, and whether one has it alone.
    readers: u32,
    writer: bool,
    /// The client's cache, and whether its lease is good.
    cached: Option<u64>,
    lapsed: bool,
    /// At the metadata server, and whether a change waits there.
    value: u64,
    parked: bool,
    /// Threads that have run since their replies were sent.
    ran: Vec<u32>,
    names: NameLifetimes,
}

/// A thread that asks for the name, with the lock or without.
#[derive(Debug)]
struct Asker {
    by: u32,
    locks: bool,
    step: u32,
    entry: u32,
    read: Option<u64>,
    lasts: bool,
}

impl Asker {
    fn new(by: u32, locks: bool) -> Self {
        Self { by, locks, step: 0, entry: 0, read: None, lasts: false }
    }

    /// Takes its next step. Returns `false` if it cannot.
    fn goes_on(&mut self, world: &mut World, bug: Bug, now: Instant) -> bool {
        let same = |world: &World, read| world.cached == read && !world.lapsed;
        match self.step {
            0 if self.locks && world.writer => return false,
            0 => {
                world.readers += u32::from(self.locks);
                self.entry = world.entry;
            }
            1 => {
                self.read = world.cached.filter(|_| !world.lapsed);
                if bug == Bug::ComparedFirst {
                    self.lasts = self.read.is_some() && same(world, self.read);
                }
            }
            2 if self.read.is_some() => {
                let may = world.names.begins(DIR, name(), now);
                world.names.replies(self.by, DIR, (!self.locks).then_some(NAME), now);
                self.read = self.read.filter(|_| may);
            }
            3 => {
                if self.read.is_some() && bug != Bug::ComparedFirst {
                    self.lasts = same(world, self.read);
                }
                world.names.sent(self.by);
            }
            // The kernel handles the reply.
            4 => {
                let ends = bug != Bug::LongerThanLease;
                let over = ends && world.lapsed;
                if self.entry == world.entry {
                    let lasts = self.read.filter(|_| self.lasts && !over);
                    world.used = lasts.map(|read| (read, ends));
                }
                world.readers -= u32::from(self.locks);
            }
            // It sleeps, and later it asks for something else.
            5 => world.ran.push(self.by),
            6 => world.names.goes_on(self.by),
            2 => {}
            _ => return false,
        }
        self.step += 1;
        true
    }
}

/// A thread that renames what the kernel has under the other name to this one.
fn renames(world: &mut World, step: &mut u32, bug: Bug, now: Instant) -> bool {
    match *step {
        0 if world.writer || world.readers > 0 => return false,
        0 => world.writer = true,
        1 => {
            if bug != Bug::MovedUnnoticed {
                world.names.moves(DIR, name(), now);
            }
            world.cached = None;
        }
        2 => {
            world.value += 1;
            world.other = Some((world.value, true));
        }
        // It asks for the new name. If that is another file by now, or if another request waits, so that
        // nothing of the reply may be cached, it waits until lifetimes are over.
        3 => {
            world.cached = Some(world.value).filter(|_| !world.parked);
            let is_kept = world.cached.is_some() && world.cached == world.other.map(|(v, _)| v);
            if !is_kept && bug != Bug::MovedUnsettled {
                world.other = None;
            }
        }
        4 => {
            (world.used, world.entry) = (world.other, world.entry + 1);
            world.writer = false;
        }
        _ => return false,
    }
    *step += 1;
    true
}

/// The change of another client, of which this one is told.
fn changes(world: &mut World, step: &mut u32, bug: Bug, now: Instant) -> bool {
    match *step {
        0 => (world.cached, world.parked) = (None, true),
        1 => {
            let told = world.names.change(DIR, Some(NAME), now);
            if told.is_empty() || bug == Bug::NotTold {
                *step = 3;
            }
        }
        2 => {
            let has_run = |by| world.ran.contains(&by) || bug == Bug::RunsBeforeItIsSent;
            let handled = world.names.is_handled(DIR, Some(NAME), now, &has_run);
            if !handled && bug != Bug::NotWaitedFor {
                return false;
            }
        }
        // The kernel takes the lock.
        3 if world.writer || world.readers > 0 => return false,
        3 => world.used = None,
        4 => (world.value, world.parked) = (world.value + 1, false),
        _ => return false,
    }
    *step += 1;
    true
}

/// This client is cut off until its lease is over, and others change the name.
fn is_cut_off(world: &mut World, step: &mut u32) -> bool {
    match *step {
        0 => {
            world.lapsed = true;
            world.used = world.used.filter(|(_, ends)| !ends);
            world.other = world.other.filter(|(_, ends)| !ends);
        }
        1 => world.value += 1,
        _ => return false,
    }
    *step += 1;
    true
}

/// Runs the steps in the order of a seed. Returns whether the kernel used something old.
fn shows_old(seed: u64, bug: Bug, now: Instant) -> bool {
    let mut world = World { cached: Some(0), ..World::default() };
    let mut askers = [Asker::new(1, true), Asker::new(2, false), Asker::new(3, false)];
    let (mut rename, mut change, mut cut) = (0, 0, 0);
    let (mut state, mut idle) = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, 0);
    let (what, mut old) = (seed % 3, false);
    while idle < 64 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let went_on = match state % 5 {
            who @ 0..=2 => askers[who as usize].goes_on(&mut world, bug, now),
            3 if what == 0 => renames(&mut world, &mut rename, bug, now),
            3 if what == 1 => is_cut_off(&mut world, &mut cut),
            _ => changes(&mut world, &mut change, bug, now),
        };
        idle = if went_on { 0 } else { idle + 1 };
        old |= world.used.is_some_and(|(used, _)| used < world.value) && !world.writer;
        if old {
            break;
        }
    }
    old
}

#[test]
fn the_kernel_uses_no_old_name_after_a_change_and_each_bug_is_found() {
    let now = Instant::now();
    let found = |bug| (1..40_000).find(|seed| shows_old(*seed, bug, now));
    assert_eq!(found(Bug::None), None, "the seed of the order");
    let told = [Bug::NotTold, Bug::ComparedFirst, Bug::NotWaitedFor, Bug::LongerThanLease];
    let moved = [Bug::MovedUnnoticed, Bug::MovedUnsettled, Bug::RunsBeforeItIsSent];
    for bug in told.into_iter().chain(moved) {
        assert!(found(bug).is_some(), "{bug:?} was not found");
    }
}

#[test]
fn a_directory_in_which_others_change_names_in_use_has_no_lifetimes_for_a_while() {
    let (names, now) = (NameLifetimes::default(), Instant::now());
    assert!(names.begins(DIR, name(), now));
    assert!(names.change(DIR, Some(b"other"), now).is_empty());
    assert!(names.begins(DIR, name(), now), "nobody used that one");
    assert_eq!(names.change(DIR, Some(NAME), now), [name()]);
    assert!(!names.begins(DIR, name(), now) && names.begins(FileId(8), name(), now));
    assert!(names.begins(DIR, name(), now + QUIET));
    names.was_waited_for(DIR, now);
    assert!(!names.begins(DIR, name(), now + QUIET));
    assert!(names.begins(DIR, name(), now + LONG_QUIET));
}

#[test]
fn all_names_of_a_directory_are_ended_together() {
    let (names, now) = (NameLifetimes::default(), Instant::now());
    for n in 0..10_u64 {
        assert!(names.begins(DIR, (NODE, n.to_string().into_bytes().into()), now));
    }
    assert!(names.begins(FileId(8), name(), now));
    let later = now + SPAN;
    assert!(names.begins(DIR, name(), later), "the others are the old ones now");
    assert_eq!(names.change(DIR, None, later).len(), 11);
    assert!(names.change(DIR, None, later).is_empty());
    assert_eq!(names.change(FileId(8), None, later), [name()]);
}

#[test]
fn names_are_bounded_and_make_room_when_their_lifetime_is_over() {
    let (names, now) = (NameLifetimes::default(), Instant::now());
    let begins = |n: usize, now| names.begins(DIR, (NODE, n.to_string().into_bytes().into()), now);
    assert!((0..MAX_NAMES).all(|n| begins(n, now)));
    assert!(!begins(MAX_NAMES, now + LIFETIME));
    assert!(!begins(MAX_NAMES, now + SPAN) && begins(MAX_NAMES, now + SPAN * 2));
    assert_eq!(names.take_all().len(), 1);
    assert!(names.take_all().is_empty());
}

#[test]
fn a_thread_has_handled_its_reply_when_it_goes_on_or_some_time_later() {
    let (names, now) = (NameLifetimes::default(), Instant::now());
    names.replies(5, DIR, Some(NAME), now);
    names.replies(7, DIR, None, now);
    names.goes_on(6);
    let is_handled = |dir, name, now| names.is_handled(dir, name, now, &|_| false);
    let has_run = |by| names.is_handled(DIR, None, now, &|thread| thread == by);
    assert!(!is_handled(DIR, Some(NAME), now) && !is_handled(DIR, None, now));
    assert!(is_handled(DIR, Some(b"other"), now) && is_handled(FileId(8), None, now));
    assert!(is_handled(DIR, None, now + ACTS));
    assert!(!has_run(5), "it waits for its reply");
    names.sent(5);
    assert!(has_run(5) && !has_run(7));
    names.goes_on(5);
    assert!(is_handled(DIR, None, now) && !names.are_all_handled(DIR, now));
    assert!(names.is_all_handled(now, &|_| false), "that one has the lock");
    names.goes_on(7);
    assert!(names.are_all_handled(DIR, now));
}

#[test]
fn only_what_is_asked_for_again_at_once_is_asked_often() {
    let (names, now) = (NameLifetimes::default(), Instant::now());
    let other: Name = (NODE, b"other"[..].into());
    assert!(!names.is_asked_often(&name(), now) && names.is_asked_often(&name(), now));
    assert!(!names.is_asked_often(&other, now));
    assert!(!names.is_asked_often(&name(), now + OFTEN));
}
