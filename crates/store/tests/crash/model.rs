//! The possible states of a target's objects after a stop.

use crate::support::{Received, object_id, pattern, read_pieces, write_pieces};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_store::{ReadMode, Target};
use weir_types::{ErrorKind, Generation};

/// An object at one time. It begins with a hole of `base` bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    pub len: u64,
    /// The bytes after the hole.
    pub bytes: Arc<Vec<u8>>,
    pub generation: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Removal {
    No,
    /// Possibly removed: the call did not return.
    Begun,
    Done,
    Durable,
}

#[derive(Clone, Debug)]
pub struct ModelObject {
    pub base: u64,
    /// The last durable state and every later one. Readers see the last one.
    pub history: Vec<State>,
    /// Number of last states that belong to a call which did not return.
    pub in_flight: usize,
    /// The object may be gone after a power cut: its name was never durable.
    pub nameless: bool,
    /// The object may be missing after a kill: the call that made it did not return.
    pub half_made: bool,
    pub removal: Removal,
}

impl ModelObject {
    pub fn new(base: u64) -> Self {
        let empty = State { len: 0, bytes: Arc::default(), generation: 0 };
        Self {
            base,
            history: vec![empty],
            in_flight: 0,
            nameless: true,
            half_made: true,
            removal: Removal::No,
        }
    }

    pub fn now(&self) -> &State {
        self.history.last().unwrap()
    }

    pub fn durable(&mut self) {
        self.history.drain(..self.history.len() - 1);
        self.nameless = false;
    }

    /// Whether a byte may have this value in an object with this generation. Bytes cut off by the
    /// truncation of a generation must be gone: a truncation that the object reports as done is not
    /// repeated.
    fn allows(&self, at: usize, value: u8, generation: u64) -> bool {
        let cut_off = |old: &State| {
            self.history.iter().any(|s| {
                (old.generation + 1..=generation).contains(&s.generation) && s.bytes.len() <= at
            })
        };
        let has = |s: &State| s.bytes.get(at).copied().unwrap_or(0) == value;
        self.history.iter().any(|s| has(s) && !cut_off(s))
    }
}

#[derive(Clone, Debug, Default)]
pub struct Model {
    pub objects: BTreeMap<u64, ModelObject>,
    pub next_file: u64,
}

impl Model {
    /// The process died and the machine did not: every call that returned has taken effect.
    pub fn nothing_is_lost(&mut self) {
        for object in self.objects.values_mut() {
            let first = object.history.len().saturating_sub(object.in_flight + 1);
            object.history.drain(..first);
            object.nameless = object.half_made;
            if object.removal == Removal::Done {
                object.removal = Removal::Durable;
            }
        }
    }

    /// Makes the present state durable.
    pub fn all_durable(&mut self) {
        for object in self.objects.values_mut() {
            object.durable();
            if object.removal == Removal::Done {
                object.removal = Removal::Durable;
            }
        }
    }

    /// Compares the target with the model. Returns the model of its contents.
    pub fn check(mut self, target: &Target) -> Result<Model, String> {
        let mut left = Model { next_file: self.next_file, ..Model::default() };
        for (file, expected) in std::mem::take(&mut self.objects) {
            let found = target.object(object_id(file)).map_err(|e| format!("open: {e}"))?;
            let Some(object) = found else {
                if expected.removal == Removal::No && !expected.nameless {
                    return Err(format!("object {file:x} is gone"));
                }
                continue;
            };
            if expected.removal == Removal::Durable {
                return Err(format!("object {file:x} is back after it was removed"));
            }
            let state = check_object(file, &expected, &object)?;
            let base = expected.base;
            let mut object = ModelObject { history: vec![state], ..ModelObject::new(base) };
            (object.nameless, object.half_made) = (false, false);
            left.objects.insert(file, object);
        }
        Ok(left)
    }
}

fn check_object(
    file: u64,
    expected: &ModelObject,
    object: &weir_store::Object,
) -> Result<State, String> {
    let bad = |what: String| Err(format!("object {file:x}: {what}"));
    let len = object.len();
    let lens = || expected.history.iter().map(|s| s.len);
    let (min, max) = (lens().min().unwrap_or(0), lens().max().unwrap_or(0));
    if !(min..=max).contains(&len) {
        return bad(format!("length {len} is not in {min}..={max}"));
    }
    let generation = object.generation().0;
    if !expected.history.iter().any(|s| s.generation == generation) {
        return bad(format!("generation {generation} was never"));
    }
    if generation > 0 {
        let late = write_pieces(object, &[(0, 5)], b"stale", Generation(generation - 1));
        if !late.is_err_and(|e| e.kind == ErrorKind::Stale) {
            return bad("a write from before the truncation was accepted".to_string());
        }
    }
    let base = expected.base;
    // The whole object, including the hole; and a part, which the store itself verifies.
    let around = base.saturating_sub(20_000);
    let pieces = [(around, len.saturating_sub(around))];
    let bytes = match read_pieces(object, &pieces, ReadMode::Locked) {
        Ok(Received::Good(bytes)) => bytes,
        Ok(other) => return bad(format!("{other:?}")),
        Err(e) => return bad(e.to_string()),
    };
    let (hole, bytes) = bytes.split_at(((base - around) as usize).min(bytes.len()));
    if hole.iter().any(|&b| b != 0) {
        return bad("its hole has bytes".to_string());
    }
    if let Some(at) = (0..bytes.len()).find(|&at| !expected.allows(at, bytes[at], generation)) {
        let allowed: Vec<_> = expected.history.iter().map(|s| s.bytes.get(at).copied()).collect();
        return bad(format!("byte {at} of {} is {}, not {allowed:?}", bytes.len(), bytes[at]));
    }
    Ok(State { len, bytes: Arc::new(bytes.to_vec()), generation })
}

/// Bytes that identify the write they come from.
pub fn fresh(seed: u64, len: usize) -> Vec<u8> {
    pattern(seed.wrapping_mul(0x9e37_79b9), len)
}

impl Model {
    /// Reads random ranges, in whole blocks and in parts. The result must be right, or an error
    /// that reports corruption.
    pub fn check_reads(&self, target: &Target, rng: &mut fastrand::Rng) -> Result<(), String> {
        for (file, expected) in &self.objects {
            let object = match target.object(object_id(*file)) {
                Ok(Some(object)) => object,
                Ok(None) if expected.removal != Removal::No => continue,
                Ok(None) => return Err(format!("object {file:x} is gone")),
                Err(e) if e.kind == ErrorKind::Corrupt => continue,
                Err(e) => return Err(e.to_string()),
            };
            let bytes = &expected.now().bytes;
            for _ in 0..60 {
                let from = rng.usize(0..bytes.len() + 1);
                let to = (from + rng.usize(0..9000)).min(bytes.len());
                let piece = (expected.base + from as u64, (to - from) as u64);
                match read_pieces(&object, &[piece], ReadMode::Blocking) {
                    Ok(Received::Good(got)) if got == bytes[from..to] => {}
                    Ok(Received::Good(_)) => {
                        return Err(format!("object {file:x} served wrong bytes"));
                    }
                    Ok(Received::Mismatch) => {}
                    Ok(Received::WouldBlock) => return Err("a blocking read blocks".to_string()),
                    Err(e) if e.kind == ErrorKind::Corrupt => {}
                    Err(e) => return Err(e.to_string()),
                }
            }
        }
        Ok(())
    }
}
