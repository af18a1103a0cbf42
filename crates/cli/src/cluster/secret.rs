//! Files that hold secrets: made with mode 0600, refused when others can read
//! them, written whole or not at all.

use crate::failure::{Done, Failure};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use weir_wire::Key;

/// A secret file is small; more is not read.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// A fresh random key.
pub fn fresh_key() -> Done<Key> {
    Ok(Key::from_bytes(random()?))
}

/// Random bytes from the kernel.
pub fn random<const N: usize>() -> Done<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|e| Failure::new(format!("no random numbers from the kernel: {e}")))?;
    Ok(bytes)
}

/// Writes a file that only its owner can read. It must not exist.
pub fn write_new(path: &Path, text: &str) -> Done {
    write_with(path, text, 0o600)
}

/// Writes a file that everyone can read. It must not exist.
pub fn write_new_public(path: &Path, text: &str) -> Done {
    write_with(path, text, 0o644)
}

fn write_with(path: &Path, text: &str, mode: u32) -> Done {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .map_err(|e| Failure::file(path, e))?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(|e| Failure::file(path, e))
}

/// Writes a file that everyone can read in place of what is there: the old one, or the new
/// one whole, whenever this is interrupted.
pub fn replace_public(path: &Path, text: &str) -> Done {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    let fresh = PathBuf::from(fresh);
    // One that an interrupted command left behind.
    let _ = std::fs::remove_file(&fresh);
    write_new_public(&fresh, text)?;
    std::fs::rename(&fresh, path).map_err(|e| Failure::file(path, e))?;
    let dir = path.parent().unwrap_or(Path::new("/"));
    let sync = File::open(dir).and_then(|dir| dir.sync_all());
    sync.map_err(|e| Failure::file(dir, e))
}

/// Reads a secret file; refuses one that others can read.
pub fn read(path: &Path) -> Done<String> {
    let file = File::open(path).map_err(|e| {
        let missing = e.kind() == std::io::ErrorKind::NotFound;
        let failure = Failure::file(path, e);
        if missing { failure.hint("this key file is missing") } else { failure }
    })?;
    let mode = file.metadata().map_err(|e| Failure::file(path, e))?.permissions().mode();
    if mode & 0o007 != 0 {
        return Err(Failure::new(format!(
            "{}: anyone on this machine can use this secret (mode {:04o})",
            path.display(),
            mode & 0o7777
        ))
        .hint(format!("chmod 600 {}", path.display())));
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(|e| Failure::file(path, e))?;
    Ok(text)
}

/// Reads a key file: 64 hexadecimal digits.
pub fn read_key(path: &Path) -> Done<Key> {
    Key::from_hex(&read(path)?).ok_or_else(|| {
        Failure::new(format!("{}: not a key: 64 hexadecimal digits expected", path.display()))
    })
}

/// Writes a key file.
pub fn write_key(path: &Path, key: &Key) -> Done {
    write_new(path, &(key.to_hex() + "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_survives_its_file_and_only_its_owner_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let key = fresh_key().unwrap();
        write_key(&path, &key).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(read_key(&path).unwrap(), key);
        assert!(write_key(&path, &key).is_err(), "an existing key is never replaced");

        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let refusal = read_key(&path).unwrap_err();
        assert!(refusal.message.contains("anyone"), "{refusal}");
        assert!(!refusal.to_string().contains(&key.to_hex()));
    }
}
