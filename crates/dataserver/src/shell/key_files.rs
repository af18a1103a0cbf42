//! The files of targets' later own keys, beside the files of their first ones. A line for each: its
//! generation, the first generation of working keys that follow from it, and 64 hexadecimal digits.
//! The metadata server brings them again if the file is lost.

use crate::config::others_may_read;
use crate::machine::LaterKey;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use weir_host::fs::{Directory, OpenHow};
use weir_types::{Error, ErrorKind, KeyGeneration, Result};
use weir_wire::Key;

/// The most bytes read from the file, more than it has.
const MAX_BYTES: usize = 16 << 10;

/// The file for later keys of the target whose first key is in this file.
fn beside(key_file: &Path) -> PathBuf {
    let mut name = OsString::from(key_file);
    name.push(".later");
    name.into()
}

/// Reads the later keys of a target; none if there is no file.
///
/// Errors: `AccessDenied` if others may read it, `InvalidArgument` if it holds something else. They
/// name the file and never its contents.
pub(crate) fn read(key_file: &Path) -> Result<Vec<LaterKey>> {
    let path = beside(key_file);
    let shown = path.display();
    let bytes = match weir_host::fs::read_file(&path, MAX_BYTES) {
        Ok(bytes) => bytes,
        Err(error) => {
            let error = Error::from(std::io::Error::from(error));
            return match error.kind {
                ErrorKind::NotFound => Ok(Vec::new()),
                _ => Err(error.context(format!("key file {shown}"))),
            };
        }
    };
    if others_may_read(&path)? {
        let what = format!("key file {shown} can be read by others: run `chmod 600 {shown}`");
        return Err(Error::new(ErrorKind::AccessDenied, what));
    }
    let text = String::from_utf8_lossy(&bytes);
    text.lines().map(parse).collect::<Option<Vec<_>>>().ok_or_else(|| {
        let what = format!(
            "key file {shown} is damaged: remove it, and the metadata server brings its keys again"
        );
        Error::new(ErrorKind::InvalidArgument, what)
    })
}

fn parse(line: &str) -> Option<LaterKey> {
    let mut words = line.split(' ');
    let mut number = || words.next()?.parse().ok().map(KeyGeneration);
    let (generation, from) = (number()?, number()?);
    Some(LaterKey { generation, from, key: Key::from_hex(words.next()?)? })
}

/// Writes the later keys of a target, durably.
///
/// Errors: those of the disk.
pub(crate) fn write(key_file: &Path, later: &[LaterKey]) -> Result<()> {
    let path = beside(key_file);
    let line = |it: &LaterKey| format!("{} {} {}\n", it.generation, it.from, it.key.to_hex());
    let text: String = later.iter().map(line).collect();
    let put = || {
        let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let directory = Directory::open(parent.unwrap_or(Path::new(".")))?;
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or(rustix::io::Errno::INVAL)?;
        let new = format!("{name}.new");
        let file = directory.open_file(&new, OpenHow::REPLACE)?;
        file.write_full(text.as_bytes(), 0)?;
        file.sync("own-key")?;
        directory.rename(&new, name)?;
        directory.sync("own-key-name")
    };
    put().map_err(|error: rustix::io::Errno| {
        Error::from(std::io::Error::from(error)).context(format!("key file {}", path.display()))
    })
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // Tests ask the operating system.
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn later_keys_are_kept_for_their_owner_alone_and_a_damaged_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let key_file = dir.path().join("target-1.key");
        assert_eq!(read(&key_file).unwrap(), []);
        let later = |generation, from, n| LaterKey {
            generation: KeyGeneration(generation),
            from: KeyGeneration(from),
            key: Key::from_bytes([n; 32]),
        };
        let keys = vec![later(2, 7, 1), later(3, 0, 2)];
        write(&key_file, &keys).unwrap();
        assert_eq!(read(&key_file).unwrap(), keys);
        let path = beside(&key_file);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(&path, "2 7 secret").unwrap();
        let error = read(&key_file).unwrap_err();
        assert!(error.message.contains("later") && !error.message.contains("secret"), "{error}");
    }
}
