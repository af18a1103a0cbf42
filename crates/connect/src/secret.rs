//! Files that hold secrets: created with mode 0600, and refused if other users can read them.

use crate::Problem;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use weir_types::ErrorKind;

/// Maximum size of a secret file.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// Writes a file that only its owner can read. It must not exist.
pub fn write_new(path: &Path, text: &str) -> Result<(), Problem> {
    write_with(path, text, 0o600)
}

/// Writes a new file with a mode, durably. It must not exist.
pub fn write_with(path: &Path, text: &str, mode: u32) -> Result<(), Problem> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .map_err(|e| Problem::file(path, e))?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(|e| Problem::file(path, e))
}

/// Reads a secret file; refuses one that others can read.
pub fn read(path: &Path) -> Result<String, Problem> {
    let file = File::open(path).map_err(|e| {
        let missing = e.kind() == std::io::ErrorKind::NotFound;
        let problem = Problem::file(path, e);
        if missing { problem.hint("this key file is missing") } else { problem }
    })?;
    let mode = file.metadata().map_err(|e| Problem::file(path, e))?.permissions().mode();
    if mode & 0o007 != 0 {
        return Err(Problem::new(
            ErrorKind::NotPermitted,
            format!(
                "{}: anyone on this machine can use this secret (mode {:04o})",
                path.display(),
                mode & 0o7777
            ),
        )
        .hint(format!("chmod 600 {}", path.display())));
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(|e| Problem::file(path, e))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_its_owners_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        write_new(&path, "xyzzy").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(read(&path).unwrap(), "xyzzy");
        assert!(write_new(&path, "other").is_err(), "an existing file is never replaced");

        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let refusal = read(&path).unwrap_err();
        assert!(refusal.message.contains("anyone"), "{refusal}");
        assert!(!refusal.to_string().contains("xyzzy"));
    }
}
