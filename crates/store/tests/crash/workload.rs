//! Random operations on a target and on its model.

use super::model::{Model, ModelObject, Removal, State, fresh};
use super::target;
use crate::support::{
    BLOCK, PAGE_BORDER, Received, SECTION_BORDER, object_id, read_pieces, write_pieces,
};
use std::sync::Arc;
use weir_simhost::disk::SimDisk;
use weir_store::{Object, ReadMode, Target};
use weir_types::{Error, ErrorKind, Generation};

/// The most bytes of an object after its hole.
const MAX_BYTES: u64 = 20 * BLOCK;

/// A call may fail because the disk stopped, or without a reason.
type Outcome = Result<(), Error>;

pub struct Run<'a> {
    model: &'a mut Model,
    rng: &'a mut fastrand::Rng,
    /// What was wrong, if anything.
    wrong: Option<String>,
}

impl<'a> Run<'a> {
    pub fn new(model: &'a mut Model, rng: &'a mut fastrand::Rng) -> Self {
        Self { model, rng, wrong: None }
    }

    /// Runs this many operations, or until the disk stops.
    pub fn go(mut self, ops: usize, disk: &SimDisk) -> Result<(), String> {
        let mut open: Option<Target> = None;
        for _ in 0..=ops {
            let target = match open.take() {
                Some(target) => target,
                None => match target() {
                    Ok(target) => target,
                    Err(_) if disk.is_frozen() => return Ok(()),
                    Err(e) => return Err(format!("open: {e}")),
                },
            };
            let outcome = self.step(target, &mut open);
            if let Some(wrong) = self.wrong {
                return Err(wrong);
            }
            match outcome {
                Ok(()) => {}
                Err(_) if disk.is_frozen() => break,
                Err(e) => return Err(format!("an operation failed: {e}")),
            }
        }
        if let Some(target) = open {
            target.drop_unclosed();
        }
        Ok(())
    }

    fn step(&mut self, target: Target, open: &mut Option<Target>) -> Outcome {
        let outcome = match self.rng.u8(0..64) {
            0..24 => self.write(&target),
            24..30 => self.append(&target),
            30..33 => self.truncate(&target),
            33..35 => self.fence(&target),
            35..38 => self.punch(&target),
            38..40 => self.allocate(&target),
            40..50 => self.sync(&target),
            50..52 => self.sync_all(&target),
            52..55 => self.remove(&target),
            55..57 => self.sync_removals(&target),
            57..58 => self.come_and_go(&target),
            58..62 => self.read(&target),
            62..63 => {
                target.close()?;
                self.model.all_durable();
                return Ok(());
            }
            _ => {
                // Killed and started again: recovery makes everything durable.
                target.drop_unclosed();
                *open = Some(super::target()?);
                self.model.all_durable();
                return Ok(());
            }
        };
        match outcome {
            Ok(()) => *open = Some(target),
            Err(_) => target.drop_unclosed(),
        }
        outcome
    }

    /// An object that was not removed; perhaps a new one.
    fn pick(&mut self, may_make: bool) -> Option<u64> {
        let there = |o: &ModelObject| o.removal == Removal::No;
        let files: Vec<u64> =
            self.model.objects.iter().filter(|(_, o)| there(o)).map(|(file, _)| *file).collect();
        if may_make && (files.is_empty() || files.len() < 5 && self.rng.u8(0..6) == 0) {
            return Some(self.make());
        }
        self.rng.choice(files)
    }

    fn make(&mut self) -> u64 {
        // Several windows of ids.
        self.model.next_file += if self.rng.u8(0..4) == 0 { 50_000 } else { 1 };
        let file = self.model.next_file;
        let base = match self.rng.u8(0..16) {
            0 => SECTION_BORDER - 8 * BLOCK,
            1..4 => PAGE_BORDER - 8 * BLOCK,
            _ => 0,
        };
        self.model.objects.insert(file, ModelObject::new(base));
        file
    }

    fn object(&mut self, target: &Target, file: u64) -> Result<Arc<Object>, Error> {
        let object = target.object_or_create(object_id(file))?;
        self.of(file).half_made = false;
        Ok(object)
    }

    fn of(&mut self, file: u64) -> &mut ModelObject {
        self.model.objects.get_mut(&file).unwrap()
    }

    /// Notes the state that a call is about to give an object.
    fn begin(&mut self, file: u64, state: State) {
        let object = self.of(file);
        object.history.push(state);
        object.in_flight += 1;
    }

    fn end(&mut self, file: u64, len: u64) {
        let object = self.of(file);
        object.in_flight = 0;
        let expected = object.now().len;
        if len != expected {
            self.wrong = Some(format!("object {file:x} has length {len}, expected {expected}"));
        }
    }

    fn write(&mut self, target: &Target) -> Outcome {
        let Some(file) = self.pick(true) else { return Ok(()) };
        let count = if self.rng.u8(0..4) == 0 { self.rng.usize(2..4) } else { 1 };
        let pieces: Vec<(u64, u64)> = (0..count).map(|_| self.piece()).collect();
        self.write_pieces(target, file, &pieces)
    }

    fn piece(&mut self) -> (u64, u64) {
        let blocks = MAX_BYTES / BLOCK - 6;
        match self.rng.u8(0..4) {
            0 => (self.rng.u64(0..blocks) * BLOCK, self.rng.u64(1..5) * BLOCK),
            1 => (self.rng.u64(0..blocks * BLOCK), self.rng.u64(1..700)),
            _ => (self.rng.u64(0..blocks * BLOCK), self.rng.u64(1..5 * BLOCK)),
        }
    }

    fn append(&mut self, target: &Target) -> Outcome {
        let Some(file) = self.pick(true) else { return Ok(()) };
        let at = self.of(file).now().bytes.len() as u64;
        if at + 838 > MAX_BYTES {
            return Ok(());
        }
        self.write_pieces(target, file, &[(at, 838)])
    }

    fn write_pieces(&mut self, target: &Target, file: u64, pieces: &[(u64, u64)]) -> Outcome {
        let object = self.object(target, file)?;
        let total: u64 = pieces.iter().map(|p| p.1).sum();
        let data = fresh(self.rng.u64(..), total as usize);
        let model = self.of(file);
        let (base, mut state) = (model.base, model.now().clone());
        let generation = Generation(state.generation);
        let mut rest = &data[..];
        for &(at, len) in pieces {
            let (piece, others) = rest.split_at(len as usize);
            let end = (at + len) as usize;
            let bytes = Arc::make_mut(&mut state.bytes);
            if end > bytes.len() {
                bytes.resize(end, 0);
            }
            bytes[at as usize..end].copy_from_slice(piece);
            rest = others;
            state.len = state.len.max(base + bytes.len() as u64);
            // Overlapping pieces are written one after another.
            self.begin(file, state.clone());
        }
        let placed: Vec<(u64, u64)> = pieces.iter().map(|&(at, len)| (base + at, len)).collect();
        let len = write_pieces(&object, &placed, &data, generation)?;
        self.end(file, len);
        Ok(())
    }

    fn truncate(&mut self, target: &Target) -> Outcome {
        let Some(file) = self.pick(false) else { return Ok(()) };
        let object = self.object(target, file)?;
        let bytes = match self.rng.u8(0..3) {
            0 => 0,
            1 => self.rng.u64(0..MAX_BYTES / BLOCK) * BLOCK,
            _ => self.rng.u64(0..MAX_BYTES),
        };
        let model = self.of(file);
        let (base, mut state) = (model.base, model.now().clone());
        Arc::make_mut(&mut state.bytes).resize(bytes as usize, 0);
        (state.len, state.generation) = (base + bytes, state.generation + 1);
        let generation = Generation(state.generation);
        self.begin(file, state);
        let len = object.truncate(base + bytes, generation)?;
        self.end(file, len);
        self.late(file, &object, generation);
        Ok(())
    }

    /// Fences an object, which may be new.
    fn fence(&mut self, target: &Target) -> Outcome {
        let Some(file) = self.pick(true) else { return Ok(()) };
        let object = self.object(target, file)?;
        let mut state = self.of(file).now().clone();
        state.generation += 1;
        let generation = Generation(state.generation);
        self.begin(file, state);
        let (len, fence) = object.fence(generation)?;
        self.end(file, len);
        if fence != generation && self.wrong.is_none() {
            self.wrong = Some(format!("object {file:x} has the fence {fence}, not {generation}"));
        }
        self.late(file, &object, generation);
        Ok(())
    }

    fn late(&mut self, file: u64, object: &Object, generation: Generation) {
        let late = write_pieces(object, &[(0, 4)], b"late", Generation(generation.0 - 1));
        if !late.is_err_and(|e| e.kind == ErrorKind::Stale) && self.wrong.is_none() {
            self.wrong = Some(format!("object {file:x} took a write from before its fence"));
        }
    }

    fn punch(&mut self, target: &Target) -> Outcome {
        let Some(file) = self.pick(false) else { return Ok(()) };
        let object = self.object(target, file)?;
        let (at, len) = self.piece();
        let model = self.of(file);
        let (base, mut state) = (model.base, model.now().clone());
        let bytes = Arc::make_mut(&mut state.bytes);
        let end = bytes.len().min((at + len) as usize);
        bytes[(at as usize).min(end)..end].fill(0);
        let generation = Generation(state.generation);
        self.begin(file, state);
        let len = object.punch(base + at, len, generation)?;
        self.end(file, len);
        Ok(())
    }

    fn allocate(&mut self, target: &Target) -> Outcome {
        let Some(file) = self.pick(true) else { return Ok(()) };
        let object = self.object(target, file)?;
        let (at, len) = self.piece();
        let keep_size = self.rng.bool();
        let model = self.of(file);
        let (base, mut state) = (model.base, model.now().clone());
        if !keep_size {
            let bytes = Arc::make_mut(&mut state.bytes);
            bytes.resize(bytes.len().max((at + len) as usize), 0);
            state.len = base + bytes.len() as u64;
        }
        let generation = Generation(state.generation);
        self.begin(file, state);
        let len = object.allocate(base + at, len, keep_size, generation)?;
        self.end(file, len);
        Ok(())
    }

    fn sync(&mut self, target: &Target) -> Outcome {
        let Some(file) = self.pick(false) else { return Ok(()) };
        self.object(target, file)?.sync()?;
        self.of(file).durable();
        Ok(())
    }

    fn sync_all(&mut self, target: &Target) -> Outcome {
        target.sync_all()?;
        self.model.all_durable();
        Ok(())
    }

    fn remove(&mut self, target: &Target) -> Outcome {
        let Some(file) = self.pick(false) else { return Ok(()) };
        self.remove_file(target, file)
    }

    fn remove_file(&mut self, target: &Target, file: u64) -> Outcome {
        self.of(file).removal = Removal::Begun;
        target.remove(object_id(file))?;
        self.of(file).removal = Removal::Done;
        Ok(())
    }

    fn sync_removals(&mut self, target: &Target) -> Outcome {
        target.sync_removals()?;
        for object in self.model.objects.values_mut().filter(|o| o.removal == Removal::Done) {
            object.removal = Removal::Durable;
        }
        Ok(())
    }

    /// Makes many objects in many directories, and soon removes them.
    fn come_and_go(&mut self, target: &Target) -> Outcome {
        let mut files = Vec::new();
        for _ in 0..20 {
            let file = self.make();
            files.push(file);
            let object = self.object(target, file)?;
            drop(object);
        }
        if self.rng.bool() {
            self.sync_all(target)?;
        }
        for file in files {
            self.remove_file(target, file)?;
        }
        self.sync_removals(target)
    }

    /// Reads written bytes, in whole blocks and in parts.
    fn read(&mut self, target: &Target) -> Outcome {
        let Some(file) = self.pick(false) else { return Ok(()) };
        let object = self.object(target, file)?;
        let pieces = [self.piece(), self.piece()];
        let model = self.of(file);
        let (base, bytes) = (model.base, model.now().bytes.clone());
        let clip = |at: u64| (at as usize).min(bytes.len());
        let expected: Vec<u8> = pieces
            .iter()
            .flat_map(|&(at, len)| &bytes[clip(at)..clip(at + len)])
            .copied()
            .collect();
        let placed = pieces.map(|(at, len)| (base + at, len));
        let received = read_pieces(&object, &placed, ReadMode::Blocking)?;
        if received != Received::Good(expected) {
            self.wrong = Some(format!("object {file:x} reads otherwise than it was written"));
        }
        Ok(())
    }
}
