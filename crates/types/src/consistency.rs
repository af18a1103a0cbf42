//! Cache consistency: how soon a client sees other clients' changes of a file.

/// The extended attribute that sets the cache consistency of a file or directory. New files and
/// directories inherit it from their parent.
pub const CONSISTENCY_XATTR: &[u8] = b"user.weir.consistency";

/// How soon a client sees other clients' changes (`docs/leases.md`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// At once, as between processes of one machine.
    #[default]
    Strict,
    /// When a file is opened after the writer has closed it. Names and attributes after a delay.
    Relaxed,
    /// At once, because nothing is cached: every call goes to the servers.
    None,
}
crate::codec_tag!(Consistency { Strict = 0, Relaxed = 1, None = 2 });

impl Consistency {
    /// Every kind.
    pub const ALL: [Consistency; 3] =
        [Consistency::Strict, Consistency::Relaxed, Consistency::None];

    /// The name in mount options and in [`CONSISTENCY_XATTR`].
    pub fn name(self) -> &'static str {
        match self {
            Consistency::Strict => "strict",
            Consistency::Relaxed => "relaxed",
            Consistency::None => "none",
        }
    }

    /// The value with this name.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name().as_bytes() == name)
    }

    /// The consistency for a file with a hint, in a client whose own setting is `self`. The hint
    /// applies, with two exceptions: a client without caches keeps none, and a client that gets no
    /// events about changes cannot be strict.
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
