//! Feeds every target for a bounded time: garbage, valid values, damaged ones.
//!
//! Prints its seed. `WEIR_SEED=…` runs the same inputs again;
//! `WEIR_FUZZ_ITERATIONS=…` runs more or fewer; `WEIR_FUZZ_TARGET=…` runs one.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use weir_fuzz_targets::random::MAX_INPUT_BYTES;
use weir_fuzz_targets::{Gen, OPS, TARGETS, Target};
use weir_wire::Op;

const DEFAULT_ITERATIONS: u64 = 20_000;
/// Targets that use files and threads, or agree on keys, run fewer inputs.
const SLOW: [&str; 3] = ["sio_calls", "private_records", "key_agreement"];
/// Inputs of other targets for each input of a slow one.
const SLOW_SHARE: u64 = 20;
/// No input of this size may take longer, even on a busy machine.
const MAX_RUN: Duration = Duration::from_secs(5);
/// What a target may hold beside what is in proportion to its input, bytes:
/// the bounded lists of the layout maths.
const FIXED_BYTES: usize = 2 << 20;
/// What it may hold for each byte of its input: a short element of a list
/// becomes a struct, and is encoded again.
const BYTES_PER_BYTE: usize = 64;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, counting what this thread holds.
struct Meter;

fn count(change: impl FnOnce(usize) -> usize) {
    let held = change(HELD.get());
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
}

// SAFETY: every call goes to the system's allocator unchanged; the counters are
// plain cells that allocate nothing and have no destructor.
unsafe impl GlobalAlloc for Meter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(|held| held.saturating_add(layout.size()));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(|held| held.saturating_sub(layout.size()));
        // SAFETY: `ptr` came from `alloc` above with this layout.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Meter = Meter;

fn env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish() >> 16
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().take(4096).map(|b| format!("{b:02x}")).collect()
}

/// Runs one input; says what is wrong.
fn check(target: &Target, input: &[u8]) -> Result<(), String> {
    let before = HELD.get();
    PEAK.set(before);
    let begun = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let (taken, peak) = (begun.elapsed(), PEAK.get() - before);
    let limit = FIXED_BYTES + BYTES_PER_BYTE * input.len();
    if outcome.is_err() {
        Err("it panicked (see above)".into())
    } else if peak > limit {
        Err(format!("it held {peak} bytes, more than {limit}"))
    } else if taken > MAX_RUN {
        Err(format!("it took {taken:?}"))
    } else {
        Ok(())
    }
}

/// The next input: one in four garbage, one in eight valid, the rest damaged.
fn input(g: &mut Gen, target: &Target) -> Vec<u8> {
    if g.one_in(4) {
        return g.bytes(300);
    }
    let mut bytes = (target.example)(g);
    if !g.one_in(6) {
        // Mostly pieces of the same kind of message, sometimes of another.
        let donor = if g.one_in(4) { g.pick(TARGETS) } else { *target };
        let other = (donor.example)(g);
        g.damage(&mut bytes, &other);
    }
    bytes
}

#[test]
fn no_decoder_breaks_its_promises() {
    let seed = env("WEIR_SEED").unwrap_or_else(fresh_seed);
    let iterations = env("WEIR_FUZZ_ITERATIONS").unwrap_or(DEFAULT_ITERATIONS);
    let only = std::env::var("WEIR_FUZZ_TARGET").ok();
    println!("seed {seed}, {} targets, {iterations} inputs each", TARGETS.len());
    for target in TARGETS.iter().filter(|t| only.as_deref().is_none_or(|name| name == t.name)) {
        let mut g = Gen::new(seed, target.name);
        let share = if SLOW.contains(&target.name) { SLOW_SHARE } else { 1 };
        for iteration in 0..iterations / share {
            let input = input(&mut g, target);
            if let Err(what) = check(target, &input) {
                panic!(
                    "target {}: {what}\nrun again: WEIR_SEED={seed} WEIR_FUZZ_TARGET={} \
                     WEIR_FUZZ_ITERATIONS={}\ninput ({} bytes): {}",
                    target.name,
                    target.name,
                    (iteration + 1) * share,
                    input.len(),
                    hex(&input)
                );
            }
        }
    }
}

/// The longest messages, made of the shortest elements, claim the most memory.
#[test]
fn long_lists_of_short_elements_stay_within_bounds() {
    for target in TARGETS {
        for fill in [0u8, 1, 4, 0xff] {
            for count in [1024u32, 8192, 65_536] {
                let mut input = vec![fill; MAX_INPUT_BYTES];
                for at in [0, 8, 12, 16, 28] {
                    input[at..at + 4].copy_from_slice(&count.to_le_bytes());
                    if let Err(what) = check(target, &input) {
                        panic!("target {}: {what}; {count} at {at}, then {fill}", target.name);
                    }
                }
            }
        }
    }
}

#[test]
fn every_operation_has_both_its_messages_in_the_table() {
    let known = |name: &str| TARGETS.iter().any(|t| t.name == name);
    for op in Op::ALL {
        let found: Vec<_> = OPS.iter().filter(|t| t.op == *op).collect();
        let [targets] = found[..] else {
            panic!("{op:?} has {} lines in targets.rs, not one", found.len())
        };
        assert!(known(targets.request) && known(targets.reply), "{op:?}: {targets:?}");
    }
}

#[test]
fn names_are_unique_and_equal_seeds_give_equal_inputs() {
    for target in TARGETS {
        assert_eq!(TARGETS.iter().filter(|t| t.name == target.name).count(), 1, "{}", target.name);
        let run = |seed| input(&mut Gen::new(seed, target.name), target);
        assert_eq!(run(7), run(7));
    }
}
