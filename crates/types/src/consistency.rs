//! How far clients see each other's changes of a file.

/// The extended attribute of a file or directory that says how far clients are
/// to see each other's changes of it; what is made in a directory inherits it.
pub const CONSISTENCY_XATTR: &[u8] = b"user.weir.consistency";

/// How far clients see each other's changes (`docs/leases.md`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// At once, as on one machine.
    #[default]
    Strict,
    /// When a file is opened after it was closed; names and attributes after a
    /// while.
    Relaxed,
    /// At once, because every call goes to the servers.
    None,
}
crate::codec_tag!(Consistency { Strict = 0, Relaxed = 1, None = 2 });

impl Consistency {
    /// Every kind.
    pub const ALL: [Consistency; 3] =
        [Consistency::Strict, Consistency::Relaxed, Consistency::None];

    /// The word for it, in mount options and [`CONSISTENCY_XATTR`].
    pub fn name(self) -> &'static str {
        match self {
            Consistency::Strict => "strict",
            Consistency::Relaxed => "relaxed",
            Consistency::None => "none",
        }
    }

    /// What a word stands for.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name().as_bytes() == name)
    }

    /// What holds for a file with a hint in a client that keeps to this one
    /// otherwise: the hint, except that a client without caches gets none, and
    /// one that hears of no changes cannot be strict.
    #[must_use]
    pub fn with_hint(self, hint: Option<Consistency>) -> Self {
        match (self, hint) {
            (Consistency::None, _) | (_, None) | (_, Some(Consistency::Strict)) => self,
            (_, Some(hint)) => hint,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for kind in Consistency::ALL {
            assert_eq!(Consistency::from_name(kind.name().as_bytes()), Some(kind));
        }
        assert_eq!(Consistency::from_name(b"Strict"), None);
        assert_eq!(Consistency::from_name(b""), None);
    }

    #[test]
    fn a_hint_makes_no_client_stricter_than_it_is() {
        use Consistency::{None as Nothing, Relaxed, Strict};
        for mount in Consistency::ALL {
            assert_eq!(mount.with_hint(None), mount);
            assert_eq!(mount.with_hint(Some(Strict)), mount);
            assert_eq!(Nothing.with_hint(Some(mount)), Nothing);
        }
        assert_eq!(Strict.with_hint(Some(Relaxed)), Relaxed);
        assert_eq!(Strict.with_hint(Some(Nothing)), Nothing);
        assert_eq!(Relaxed.with_hint(Some(Nothing)), Nothing);
    }
}
