//! A target on a disk that loses unsynced bytes, and a model of the values that each byte may have
//! afterwards.
//!
//! A [`History`] is a random workload that is interrupted once or several times. Each time the disk
//! becomes what a power cut or `kill -9` may leave. The target is opened, perhaps with another
//! interruption, and everything on it is compared with the model.

pub mod mirror;
pub mod model;
mod workload;

use crate::support::IDENTITY;
use model::Model;
use std::panic::{AssertUnwindSafe, catch_unwind};
use weir_simhost::disk::{SimDisk, with_disk};
use weir_store::{ScrubCursor, Target, TargetOptions};
use workload::Run;

pub const DIR: &str = "/disk/target";
/// Number of interruptions of a history.
const CUTS: u64 = 5;
/// Number of images of each interruption.
const IMAGES_PER_CUT: u64 = 3;

/// How histories are run.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// A sync to leave out.
    pub skip_site: Option<String>,
}

pub fn target() -> weir_types::Result<Target> {
    // Small limits: objects are closed and opened again, the log is rewritten soon, and recovery
    // saves its progress often and syncs in each of its ways.
    let options = TargetOptions {
        max_open_objects: 3,
        max_log_sectors: 3,
        recovery_save_bytes: 8192,
        recovery_syncs: 2,
    };
    Target::open_with(DIR, options)
}

/// Runs the history of this seed. Returns the number of images checked, or what was wrong with one.
pub fn history(seed: u64, settings: &Settings) -> Result<u64, (u64, String)> {
    let mut images = 0;
    let result = catch_unwind(AssertUnwindSafe(|| whole_history(seed, settings, &mut images)));
    match result {
        Ok(Ok(())) => Ok(images),
        Ok(Err(what)) => Err((images, what)),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
            Err((images, format!("panicked: {}", text.unwrap_or_default())))
        }
    }
}

fn whole_history(seed: u64, settings: &Settings, images: &mut u64) -> Result<(), String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut disk = SimDisk::new(rng.u64(..));
    disk.skip_site(settings.skip_site.as_deref());
    with_disk(&disk, 0, || Target::create(DIR, IDENTITY)).map_err(|e| format!("create: {e}"))?;
    let mut model = Model::default();
    for cut in 0..CUTS {
        // Sometimes there are no operations, so that the state after recovery is checked.
        let operations = if rng.u8(0..8) == 0 { 0 } else { rng.u64(0..160) };
        if cut > 0 || rng.bool() {
            disk.crash_after(operations);
        }
        let ops = if operations == 0 { 0 } else { rng.usize(1..40) };
        let run = with_disk(&disk, rng.u64(..), || Run::new(&mut model, &mut rng).go(ops, &disk));
        run.map_err(|what| format!("cut {cut}: {what}"))?;
        let mut next = None;
        for _ in 0..IMAGES_PER_CUT {
            let image = disk.copy();
            let killed = rng.u8(0..4) == 0;
            if killed {
                image.thaw();
            } else {
                image.power_cut(&mut rng);
            }
            *images += 1;
            let left = check(&image, model.clone(), killed, &mut rng).map_err(|what| {
                format!("cut {cut}, {}: {what}", if killed { "kill" } else { "power" })
            })?;
            next = Some((image, left));
        }
        if let Some((image, left)) = next {
            (disk, model) = (image, left);
        }
    }
    Ok(())
}

/// Opens the target on an image and checks everything. Returns the model of its contents, all of it
/// durable.
fn check(
    image: &SimDisk,
    mut expected: Model,
    mut killed: bool,
    rng: &mut fastrand::Rng,
) -> Result<Model, String> {
    // Recovery is interrupted and begun again.
    for _ in 0..2 {
        if rng.u8(0..3) > 0 {
            break;
        }
        image.crash_after(rng.u64(0..12));
        with_disk(image, 0, || {
            if let Ok(target) = target() {
                target.drop_unclosed();
            }
        });
        if rng.bool() {
            image.power_cut(rng);
            killed = false;
        } else {
            image.thaw();
        }
    }
    if killed {
        expected.nothing_is_lost();
    }
    with_disk(image, 0, || {
        let target = target().map_err(|e| format!("open: {e}"))?;
        let report = target.recovery().clone();
        if report.log_damaged || report.failed > 0 {
            return Err(format!("recovery: {report:?}"));
        }
        let left = expected.check(&target)?;
        let scrub = target.scrub(&ScrubCursor::default(), u64::MAX).map_err(|e| e.to_string())?;
        if let Some(finding) = scrub.findings.first() {
            return Err(format!("scrub: {finding}"));
        }
        for item in target.objects() {
            item.map_err(|e| format!("listing: {e}"))?;
        }
        if let Some(trouble) = target.trouble() {
            return Err(format!("trouble: {trouble}"));
        }
        target.drop_unclosed();
        Ok(left)
    })
}

/// Runs histories until one fails or `max_images` are checked. Returns the number of images and
/// what was wrong, or `None`.
pub fn search(first_seed: u64, max_images: u64, settings: &Settings) -> Option<(u64, u64, String)> {
    let (mut images, mut seed) = (0, first_seed);
    while images < max_images {
        match history(seed, settings) {
            Ok(n) => images += n,
            Err((n, what)) => return Some((images + n, seed, what)),
        }
        seed += 1;
    }
    None
}

/// A number from the environment.
pub fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|v| v.parse().unwrap())
}

/// The sites of all syncs in the history of this seed.
pub fn sites_of(seed: u64) -> Vec<&'static str> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let disk = SimDisk::new(seed);
    with_disk(&disk, 0, || Target::create(DIR, IDENTITY)).unwrap();
    let mut model = Model::default();
    for _ in 0..2 {
        with_disk(&disk, 0, || Run::new(&mut model, &mut rng).go(100, &disk)).unwrap();
    }
    disk.sites().into_keys().collect()
}

/// Flips one bit of a target with the objects of this seed. Returns the kind of place it was in.
pub fn rot(seed: u64) -> Result<&'static str, String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let disk = SimDisk::new(seed);
    with_disk(&disk, 0, || Target::create(DIR, IDENTITY)).map_err(|e| e.to_string())?;
    let mut model = Model::default();
    with_disk(&disk, 0, || Run::new(&mut model, &mut rng).go(25, &disk))?;
    let files: Vec<_> = disk.files().into_iter().filter(|(_, len)| *len > 0).collect();
    let (path, len) = rng.choice(files).ok_or("no files")?;
    let (at, region) = place(&disk, &path, len, &mut rng);
    let clean = rng.bool();
    let open_before = rng.bool();
    with_disk(&disk, 0, || {
        let first = target().map_err(|e| format!("open: {e}"))?;
        model.all_durable();
        if open_before {
            disk.flip_bit(&path, at, rng.u32(0..8)).map_err(|e| e.to_string())?;
            return look(&first, &model, &path, &mut rng).map(|()| region);
        }
        if clean {
            first.close().map_err(|e| e.to_string())?
        } else {
            first.drop_unclosed()
        }
        disk.flip_bit(&path, at, rng.u32(0..8)).map_err(|e| e.to_string())?;
        match target() {
            // Recovery may accept rot in marked parts as the last write. Nothing is marked here.
            Ok(second) if region == "intents" => {
                // Found when the target was opened, and repaired.
                if second.recovery().log_damaged { Ok(region) } else { Err("not found".into()) }
            }
            Ok(second) => look(&second, &model, &path, &mut rng).map(|()| region),
            Err(_) if region == "superblock" => Ok(region),
            Err(e) => Err(format!("open: {e}")),
        }
    })
    .map_err(|what| format!("byte {at} of {path} ({region}): {what}"))
}

/// Chooses a bit to flip.
fn place(disk: &SimDisk, path: &str, len: u64, rng: &mut fastrand::Rng) -> (u64, &'static str) {
    if path.ends_with("superblock") {
        return (rng.u64(0..len), "superblock");
    }
    if path.ends_with("intents") {
        // In written bytes, or anywhere.
        let at =
            if rng.bool() { rng.u64(0..2) * (1 << 20) + rng.u64(0..512) } else { rng.u64(0..len) };
        return (at, "intents");
    }
    // Not in a hole that is never read: slot pages of blocks that do not exist.
    let bytes = disk.read_file(path).unwrap();
    let used: Vec<u64> = (0..len / 512)
        .filter(|s| bytes[(s * 512) as usize..][..512].iter().any(|&b| b != 0))
        .collect();
    let sector = match rng.u8(0..4) {
        0 => 0,
        _ => *rng.choice(&used).unwrap_or(&0),
    };
    let at = (sector * 512 + rng.u64(0..512)).min(len - 1);
    let region = match at {
        0..512 => "header",
        _ if at % (32_800 * 4096) < 32 * 4096 => "checksums",
        _ => "data",
    };
    (at, region)
}

/// Checks that everything readable is right, and that scrubbing finds the file.
fn look(target: &Target, model: &Model, path: &str, rng: &mut fastrand::Rng) -> Result<(), String> {
    model.check_reads(target, rng)?;
    let mut cursor = Some(ScrubCursor::default());
    let mut found = Vec::new();
    while let Some(at) = cursor {
        let step = target.scrub(&at, rng.u64(1..100_000)).map_err(|e| e.to_string())?;
        found.extend(step.findings);
        cursor = step.next;
    }
    let path = path.strip_prefix(&DIR[1..]).unwrap_or(path).trim_start_matches('/');
    if found.iter().any(|finding| finding.path == path) {
        Ok(())
    } else {
        Err(format!("scrubbing {path} found only {found:?}"))
    }
}

/// As [`search`], with bits that flip.
pub fn search_rot(first_seed: u64, max: u64) -> Option<(u64, u64, String)> {
    (0..max).find_map(|i| rot(first_seed + i).err().map(|what| (i + 1, first_seed + i, what)))
}
