//! File names: paths below the root of the attached file system.

use crate::core::codes::{Code, Failure, Result};
use crate::core::limits::MAX_NAME_LEN;

/// A checked name: parts without `/`, none of them empty, `.` or `..`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name(Vec<u8>);

impl Name {
    /// Checks a name. Leading slashes are ignored, so that a name never leaves the root.
    ///
    /// # Errors
    /// `InvalidFilename`.
    pub fn new(name: &[u8]) -> Result<Self> {
        let invalid = |why| Err(Failure::new(Code::InvalidFilename, why));
        if name.len() > MAX_NAME_LEN {
            return invalid(format!("{} bytes, the most is {MAX_NAME_LEN}", name.len()));
        }
        let start = name.iter().position(|byte| *byte != b'/').unwrap_or(name.len());
        let name = &name[start..];
        if name.is_empty() || name.contains(&0) {
            return invalid("the name is empty or has a NUL".into());
        }
        let bad = |part: &[u8]| part.is_empty() || part == b"." || part == b"..";
        if name.split(|byte| *byte == b'/').any(bad) {
            let shown = String::from_utf8_lossy(name);
            return invalid(format!("{shown:?} has an empty part, `.` or `..`"));
        }
        Ok(Self(name.to_vec()))
    }

    /// The bytes of the name.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The parent directory, empty for the root, and the last part.
    pub fn split(&self) -> (&[u8], &[u8]) {
        match self.0.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&self.0[..at], &self.0[at + 1..]),
            None => (&[], &self.0),
        }
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_below_the_root() {
        for bad in ["", "/", "..", "a/..", "a//b", "a/", "./a", "a/./b"] {
            assert!(Name::new(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(Name::new(b"a\0b").is_err());
        assert!(Name::new(&[b'x'; MAX_NAME_LEN]).is_ok());
        assert!(Name::new(&[b'x'; MAX_NAME_LEN + 1]).is_err());
        let name = Name::new(b"//a/b.c").unwrap();
        assert_eq!(name.split(), (&b"a"[..], &b"b.c"[..]));
        assert_eq!(Name::new(b"..a").unwrap().split(), (&b""[..], &b"..a"[..]));
    }
}
