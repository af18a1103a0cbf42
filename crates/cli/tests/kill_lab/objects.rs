//! Objects on the disks of the targets: all copies of one hold the same
//! (docs/format-store.md).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The header of an object comes before its data.
const HEADER_BYTES: usize = 32 * 4096;

/// Names (`file.segment.column`) of the objects whose copies are not the same, and how.
pub fn differing(targets: &[PathBuf]) -> Vec<String> {
    let mut objects: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for path in targets.iter().flat_map(|target| files_in(&target.join("objects"))) {
        let name = path.file_name().unwrap().to_str().unwrap();
        if let Some((object, _copy)) = name.strip_prefix('f').and_then(|n| n.rsplit_once('.')) {
            objects.entry(object.to_owned()).or_default().push(path);
        }
    }
    objects.into_iter().filter_map(|(name, paths)| compare(&name, &paths)).collect()
}

fn files_in(dir: &Path) -> Vec<PathBuf> {
    let entries = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten();
    let dirs = entries(dir).map(|entry| entry.path());
    dirs.flat_map(|dir| entries(&dir).map(|entry| entry.path()).collect::<Vec<_>>()).collect()
}

fn compare(name: &str, paths: &[PathBuf]) -> Option<String> {
    let data: Vec<Vec<u8>> = paths.iter().map(|path| payload(path)).collect();
    let (first, others) = data.split_first()?;
    let (at, other) = others.iter().enumerate().find(|(_, other)| *other != first)?;
    let byte = first.iter().zip(other).position(|(a, b)| a != b);
    let byte = byte.unwrap_or_else(|| first.len().min(other.len()));
    let (a, b) = (paths[0].display(), paths[at + 1].display());
    Some(format!(
        "{name}: {a} ({} bytes) and {b} ({} bytes) at byte {byte}",
        first.len(),
        other.len()
    ))
}

/// The contents without the zeros at its end (a hole that was never written).
fn payload(path: &Path) -> Vec<u8> {
    // Removed meanwhile: the same as empty.
    let mut data = fs::read(path).unwrap_or_default();
    data.drain(..HEADER_BYTES.min(data.len()));
    while data.last() == Some(&0) {
        data.pop();
    }
    data
}
