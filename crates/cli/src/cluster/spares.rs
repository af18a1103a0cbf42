//! Spare files in `run/` that become pid files on a full disk. Freed space is no substitute,
//! because other programs could take it.

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::Path;

/// The numbers of the spare files.
const SPARES: Range<u32> = 0..16;
/// The contents of a spare file: longer than any pid file.
const SPARE: [u8; 64] = [b' '; 64];

/// Makes the missing spare files of a directory, as far as there is room.
pub fn make(run: &Path) {
    let missing = SPARES.map(|n| run.join(format!("spare-{n}"))).filter(|spare| !spare.exists());
    for spare in missing {
        if std::fs::write(&spare, SPARE).is_err() {
            // A spare file without a block of its own is useless.
            let _ = std::fs::remove_file(&spare);
            return;
        }
    }
}

/// Turns a spare file into a pid file with this text, which needs no space. Returns `false` if
/// there is no spare file.
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
