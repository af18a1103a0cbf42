//! A target with copies of objects that other targets have too.
//!
//! Changes are pledged here, made on the others, and then made here, if the target lives that long.
//! After a stop the target must report every difference to the others. It must also still report
//! what it had noted as missing on a third target.

use super::{DIR, Settings, setting, target};
use crate::support::{G0, IDENTITY, Received, object_id, read_pieces, write_pieces};
use std::collections::BTreeMap;
use std::ops::Range;
use weir_simhost::disk::{SimDisk, with_disk};
use weir_store::{Pledge, ReadMode, Target};
use weir_types::{CopyIndex, Error, TargetId};

const BOOT_ID: &str = "proc/sys/kernel/random/boot_id";
const AWAY: TargetId = TargetId(9);
const SECOND: CopyIndex = CopyIndex(1);
/// One file for each window of the intent log, so that a mark of a window means one file.
const WINDOW_FILES: u64 = 1 << 16;
const CUTS: u64 = 5;
const IMAGES_PER_CUT: u64 = 3;
/// The most bytes of an object after its hole.
const MAX_BYTES: u64 = 20_000;
const MAX_OPEN: usize = 4;

/// An object as the other copies have it: a hole of `base` bytes and the bytes after it.
#[derive(Clone, Debug, Default)]
struct Other {
    base: u64,
    bytes: Vec<u8>,
    /// Bytes noted as missing on the third target.
    away: Vec<Range<u64>>,
}

impl Other {
    fn len(&self) -> u64 {
        if self.bytes.is_empty() { 0 } else { self.base + self.bytes.len() as u64 }
    }
}

/// A change that the other copies have.
struct Open {
    file: u64,
    piece: (u64, u64),
    data: Vec<u8>,
    applied: bool,
    _pledge: Pledge,
}

#[derive(Clone, Debug, Default)]
struct Model {
    files: BTreeMap<u64, Other>,
    next: u64,
    boots: u64,
}

/// As [`super::search`].
pub fn search(first_seed: u64, max_images: u64, settings: &Settings) -> Option<(u64, u64, String)> {
    let (mut images, mut seed) = (0, first_seed);
    while images < max_images {
        if let Err(what) = history(seed, settings, &mut images) {
            return Some((images, seed, what));
        }
        if setting("WEIR_SEED").is_some() {
            break;
        }
        seed += 1;
    }
    None
}

fn history(seed: u64, settings: &Settings, images: &mut u64) -> Result<(), String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut disk = SimDisk::new(rng.u64(..));
    disk.skip_site(settings.skip_site.as_deref());
    with_disk(&disk, 0, || Target::create(DIR, IDENTITY)).map_err(|e| format!("create: {e}"))?;
    let mut model = Model::default();
    model.boot(&disk);
    for cut in 0..CUTS {
        disk.crash_after(rng.u64(0..120));
        let ops = rng.usize(0..40);
        let run = with_disk(&disk, rng.u64(..), || run(&mut model, &mut rng, ops, &disk));
        run.map_err(|what| format!("cut {cut}: {what}"))?;
        let mut next = None;
        for _ in 0..IMAGES_PER_CUT {
            let (image, mut left) = (disk.copy(), model.clone());
            let killed = rng.u8(0..3) == 0;
            if killed {
                image.thaw();
            } else {
                image.power_cut(&mut rng);
                left.boot(&image);
            }
            *images += 1;
            interrupt(&image, &mut left, &mut rng);
            let how = if killed { "kill" } else { "power" };
            with_disk(&image, 0, || left.check(&mut rng))
                .map_err(|what| format!("cut {cut}, {how}: {what}"))?;
            next = Some((image, left));
        }
        if let Some((image, left)) = next {
            (disk, model) = (image, left);
        }
    }
    Ok(())
}

/// Sometimes recovery is interrupted too.
fn interrupt(image: &SimDisk, model: &mut Model, rng: &mut fastrand::Rng) {
    if rng.u8(0..3) > 0 {
        return;
    }
    image.crash_after(rng.u64(0..16));
    with_disk(image, 0, || {
        if let Ok(target) = target() {
            target.drop_unclosed();
        }
    });
    if rng.bool() {
        image.power_cut(rng);
        model.boot(image);
    } else {
        image.thaw();
    }
}

/// Random operations until the disk stops.
fn run(
    model: &mut Model,
    rng: &mut fastrand::Rng,
    ops: usize,
    disk: &SimDisk,
) -> Result<(), String> {
    let failed = |e: Error| if disk.is_frozen() { Ok(()) } else { Err(e.to_string()) };
    let mut open = Vec::new();
    let mut served = match target() {
        Ok(target) => target,
        Err(e) => return failed(e),
    };
    for _ in 0..ops {
        if rng.u8(0..24) == 0 {
            // With changes in progress this does not count as a clean close.
            let closed = served.close();
            open.clear();
            match closed.and_then(|()| target()) {
                Ok(target) => served = target,
                Err(e) => return failed(e),
            }
        } else if let Err(e) = step(&served, model, &mut open, rng) {
            served.drop_unclosed();
            return failed(e);
        }
    }
    served.drop_unclosed();
    Ok(())
}

fn step(
    target: &Target,
    model: &mut Model,
    open: &mut Vec<Open>,
    rng: &mut fastrand::Rng,
) -> Result<(), Error> {
    match rng.u8(0..16) {
        0..5 if open.len() < MAX_OPEN => begin(target, model, open, rng)?,
        5..9 => {
            if let Some(change) = open.iter_mut().find(|change| !change.applied) {
                let object = target.object_or_create(object_id(change.file))?;
                write_pieces(&object, &[change.piece], &change.data, G0)?;
                change.applied = true;
            }
        }
        // Every copy has the change.
        9..11 => open.retain(|change| !change.applied),
        11..13 => target.sync_all()?,
        13 => {
            let file = rng.choice(model.files.keys().copied());
            if let Some(object) = file.map(|f| target.object(object_id(f))).transpose()?.flatten() {
                object.sync()?;
            }
        }
        14 => {
            let Some((file, other)) = rng.choice(model.files.iter_mut()) else { return Ok(()) };
            let at = rng.u64(0..3) << 20;
            target.gaps().note(object_id(*file), AWAY, SECOND, &(at..at + 5))?;
            other.away.push(at..at + 5);
        }
        15 => {
            let Some((file, other)) = rng.choice(model.files.iter_mut()) else { return Ok(()) };
            other.away.clear();
            target.gaps().clear(object_id(*file), AWAY, &(0..u64::MAX))?;
        }
        _ => {}
    }
    Ok(())
}

fn begin(
    target: &Target,
    model: &mut Model,
    open: &mut Vec<Open>,
    rng: &mut fastrand::Rng,
) -> Result<(), Error> {
    let file = model.pick(rng);
    let base = model.files[&file].base;
    let piece = (base + rng.u64(0..MAX_BYTES - 5000), rng.u64(1..5000));
    let apart = |o: &Open| o.piece.0 + o.piece.1 <= piece.0 || piece.0 + piece.1 <= o.piece.0;
    if open.iter().any(|o| o.file == file && !apart(o)) {
        return Ok(());
    }
    let pledge = target.pledge(object_id(file), &[piece])?;
    let data: Vec<u8> = (0..piece.1).map(|_| rng.u8(1..)).collect();
    if let Some(other) = model.files.get_mut(&file) {
        let (at, end) = ((piece.0 - base) as usize, (piece.0 - base + piece.1) as usize);
        let len = other.bytes.len().max(end);
        other.bytes.resize(len, 0);
        other.bytes[at..end].copy_from_slice(&data);
    }
    open.push(Open { file, piece, data, applied: false, _pledge: pledge });
    Ok(())
}

impl Model {
    /// The machine has restarted.
    fn boot(&mut self, disk: &SimDisk) {
        self.boots += 1;
        disk.write_file(BOOT_ID, format!("{:032x}", self.boots).as_bytes()).unwrap();
    }

    /// An object, perhaps a new one.
    fn pick(&mut self, rng: &mut fastrand::Rng) -> u64 {
        let known: Vec<u64> = self.files.keys().copied().collect();
        if let Some(file) = rng.choice(known.iter().copied())
            && (known.len() >= 6 || rng.u8(0..4) > 0)
        {
            return file;
        }
        self.next += WINDOW_FILES;
        let base = if rng.u8(0..3) == 0 { 9 << 20 } else { 0 };
        self.files.insert(self.next, Other { base, ..Other::default() });
        self.next
    }

    fn check(&mut self, rng: &mut fastrand::Rng) -> Result<(), String> {
        let target = target().map_err(|e| format!("open: {e}"))?;
        if target.gaps().lost_files().iter().any(|files| files.end == u64::MAX) {
            return Err("the gap log was lost".to_string());
        }
        for (file, other) in &self.files {
            other.compare(*file, &target).map_err(|what| format!("object {file:x}: {what}"))?;
        }
        // Sometimes one of the bytes that the copy lacks.
        if rng.bool() {
            self.bring_up(&target).map_err(|e| format!("bring up: {e}"))?;
        }
        target.drop_unclosed();
        Ok(())
    }

    /// Sends the target the bytes that the others have.
    fn bring_up(&self, target: &Target) -> Result<(), Error> {
        for (file, other) in &self.files {
            let id = object_id(*file);
            if !target.gaps().lacks(id, IDENTITY.target, &(0..u64::MAX)) {
                continue;
            }
            let _pledge = target.pledge(id, &[(0, other.len().max(1))])?;
            let object = target.object_or_create(id)?;
            object.align(other.len(), G0)?;
            if !other.bytes.is_empty() {
                let piece = (other.base, other.bytes.len() as u64);
                write_pieces(&object, &[piece], &other.bytes, G0)?;
            }
            target.gaps().clear(id, IDENTITY.target, &(0..u64::MAX))?;
        }
        target.gaps().found()
    }
}

impl Other {
    /// Checks that the target reports every byte that differs.
    fn compare(&self, file: u64, target: &Target) -> Result<(), String> {
        let id = object_id(file);
        let lacks = |range| target.gaps().lacks(id, IDENTITY.target, &range);
        for range in &self.away {
            if !target.gaps().lacks(id, AWAY, range) {
                return Err(format!("it was forgotten that {AWAY} lacks {range:?}"));
            }
        }
        let object = target.object(id).map_err(|e| e.to_string())?;
        let here_len = object.as_ref().map_or(0, |object| object.len());
        if here_len < self.len() && !lacks(here_len..self.len()) {
            return Err(format!("it has {here_len} of {} bytes and does not know", self.len()));
        }
        let Some(object) = object else { return Ok(()) };
        let wanted = here_len.saturating_sub(self.base);
        let here = match read_pieces(&object, &[(self.base, wanted)], ReadMode::Locked) {
            Ok(Received::Good(bytes)) => bytes,
            Ok(other) => return Err(format!("{other:?}")),
            Err(e) => return Err(e.to_string()),
        };
        let others = self.bytes.iter().copied().chain(std::iter::repeat(0));
        for (at, (a, b)) in here.iter().zip(others).enumerate() {
            let at = self.base + at as u64;
            if *a != b && !lacks(at..at + 1) {
                return Err(format!("byte {at} is {a} instead of {b}, and it does not know"));
            }
        }
        Ok(())
    }
}

/// The sites of all syncs in the history of this seed.
pub fn sites_of(seed: u64) -> Vec<&'static str> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let disk = SimDisk::new(seed);
    with_disk(&disk, 0, || Target::create(DIR, IDENTITY)).unwrap();
    let mut model = Model::default();
    with_disk(&disk, 0, || run(&mut model, &mut rng, 100, &disk)).unwrap();
    disk.sites().into_keys().collect()
}

/// A damaged or missing gap log: the target must report that it knows nothing.
fn damage(seed: u64) -> Result<(), String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let disk = SimDisk::new(seed);
    with_disk(&disk, 0, || Target::create(DIR, IDENTITY)).map_err(|e| e.to_string())?;
    let mut model = Model::default();
    model.boot(&disk);
    with_disk(&disk, 0, || run(&mut model, &mut rng, 25, &disk))?;
    let path = format!("{}/gaps", &DIR[1..]);
    let Ok(bytes) = disk.read_file(&path) else { return Ok(()) };
    let result = match rng.u8(0..3) {
        0 => disk.remove_file(&path),
        1 => disk.truncate_file(&path, rng.u64(0..512)),
        _ => {
            let used = bytes.iter().rposition(|&b| b != 0).unwrap_or(0) as u64;
            disk.flip_bit(&path, rng.u64(0..=used), rng.u32(0..8)).map(drop)
        }
    };
    result.map_err(|e| e.to_string())?;
    with_disk(&disk, 0, || {
        let target = target().map_err(|e| format!("open: {e}"))?;
        let lost = target.gaps().lost();
        target.drop_unclosed();
        if lost { Ok(()) } else { Err("a damaged gap log was believed".to_string()) }
    })
}

/// As [`super::search_rot`], of the gap log.
pub fn search_damage(first_seed: u64, max: u64) -> Option<(u64, u64, String)> {
    (0..max).find_map(|i| damage(first_seed + i).err().map(|what| (i + 1, first_seed + i, what)))
}
