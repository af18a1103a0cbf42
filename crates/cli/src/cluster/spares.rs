//! Files in `run/` that become pid files on a full disk. What is freed for a pid file others could take.

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::Path;

/// Their numbers.
const SPARES: Range<u32> = 0..16;
/// What is in such a file: more than any pid file has.
const SPARE: [u8; 64] = [b' '; 64];

/// Makes the spare pid files of a directory that are missing, as far as there is room.
pub fn make(run: &Path) {
    let missing = SPARES.map(|n| run.join(format!("spare-{n}"))).filter(|spare| !spare.exists());
    for spare in missing {
        if std::fs::write(&spare, SPARE).is_err() {
            // One that has no block of its own is none.
            let _ = std::fs::remove_file(&spare);
            return;
        }
    }
}

/// Makes a spare pid file one with this text, which takes no room. Returns `false` if there is none.
pub fn use_one(path: &Path, text: &str) -> bool {
    let Some(run) = path.parent() else { return false };
    let taken = path.with_extension("taken");
    let mut spares = SPARES.map(|n| run.join(format!("spare-{n}")));
    let write = || -> std::io::Result<()> {
        File::options().write(true).open(&taken)?.write_all(text.as_bytes())?;
        std::fs::rename(&taken, path)
    };
    spares.any(|spare| std::fs::rename(spare, &taken).is_ok()) && write().is_ok()
}
