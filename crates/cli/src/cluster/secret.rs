//! Files with secrets. They are made with mode 0600, refused when other users can read them, and
//! written completely or not at all.

use crate::failure::{Done, Failure};
use std::fs::File;
use std::path::{Path, PathBuf};
use weir_wire::Key;

/// A fresh random key.
pub fn fresh_key() -> Done<Key> {
    Ok(Key::from_bytes(random()?))
}

/// Reads random bytes from the kernel.
pub fn random<const N: usize>() -> Done<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|e| Failure::new(format!("no random numbers from the kernel: {e}")))?;
    Ok(bytes)
}

/// Writes a file that everyone can read. It must not exist.
pub fn write_new_public(path: &Path, text: &str) -> Done {
    Ok(weir_connect::secret::write_with(path, text, 0o644)?)
}

/// Replaces a file that everyone can read. An interruption leaves the complete old or the complete
/// new file.
pub fn replace_public(path: &Path, text: &str) -> Done {
    replace(path, text, 0o644)
}

/// As [`replace_public`], for a file of this mode.
pub fn replace(path: &Path, text: &str, mode: u32) -> Done {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    let fresh = PathBuf::from(fresh);
    // An interrupted command has left this file.
    let _ = std::fs::remove_file(&fresh);
    weir_connect::secret::write_with(&fresh, text, mode)?;
    std::fs::rename(&fresh, path).map_err(|e| Failure::file(path, e))?;
    let dir = path.parent().unwrap_or(Path::new("/"));
    let sync = File::open(dir).and_then(|dir| dir.sync_all());
    sync.map_err(|e| Failure::file(dir, e))
}

/// Reads a key file: 64 hexadecimal digits.
pub fn read_key(path: &Path) -> Done<Key> {
    Key::from_hex(&weir_connect::secret::read(path)?).ok_or_else(|| {
        Failure::new(format!("{}: not a key: 64 hexadecimal digits expected", path.display()))
    })
}

/// Writes a key file.
pub fn write_key(path: &Path, key: &Key) -> Done {
    Ok(weir_connect::secret::write_new(path, &(key.to_hex() + "\n"))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

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
