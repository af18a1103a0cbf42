//! Restrictions of a client, whatever user its processes claim to be.

use crate::attr::Caller;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{ClientId, FileId};

/// User and group of anonymous users, as on Linux.
pub const NOBODY: u32 = 65_534;

/// What a client may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientStanding {
    /// Use the file system. This is what every client with a key may do.
    #[default]
    Ordinary,
    /// Use the file system and administer the cluster.
    Administrator,
    /// Nothing: the key was revoked.
    Revoked,
}
crate::codec_tag!(ClientStanding { Ordinary = 0, Administrator = 1, Revoked = 2 });

/// Which users of a client are mapped to its anonymous user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Squash {
    /// No user.
    #[default]
    None,
    /// The superuser.
    Root,
    /// Every user.
    All,
}
crate::codec_tag!(Squash { None = 0, Root = 1, All = 2 });

/// The restrictions that the metadata server enforces for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restrictions {
    /// The client may change nothing.
    pub read_only: bool,
    /// Which users are mapped to the anonymous user.
    pub squash: Squash,
    /// The anonymous user.
    pub anon_uid: u32,
    /// The group of the anonymous user.
    pub anon_gid: u32,
    /// The directory that the client sees as its root; `None`: the whole file system.
    pub subtree: Option<FileId>,
}
crate::codec_struct!(Restrictions { read_only, squash, anon_uid, anon_gid, subtree });

impl Restrictions {
    /// No restrictions.
    pub const NONE: Restrictions = Restrictions {
        read_only: false,
        squash: Squash::None,
        anon_uid: NOBODY,
        anon_gid: NOBODY,
        subtree: None,
    };

    /// Refuses combinations that would not restrict as they claim.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub fn check(&self) -> Result<()> {
        let wrong = |why: &str| Err(Error::new(ErrorKind::InvalidArgument, why));
        if self.squash == Squash::Root && self.anon_uid == 0 {
            return wrong("squashing the superuser to user 0 changes nothing: take another user");
        }
        if self.squash == Squash::Root && self.anon_gid == 0 {
            return wrong("squashing group 0 to group 0 changes nothing: take another group");
        }
        if self.subtree == Some(FileId::ROOT) {
            return wrong("the whole file system is no subtree: leave the subtree out");
        }
        Ok(())
    }

    /// The user and groups that a caller is mapped to. Group 0 counts as the superuser's.
    #[must_use]
    pub fn squashed(&self, mut caller: Caller) -> Caller {
        let anonymous = || Caller { uid: self.anon_uid, gid: self.anon_gid, groups: Vec::new() };
        match self.squash {
            Squash::None => caller,
            Squash::All => anonymous(),
            Squash::Root if caller.uid == 0 => anonymous(),
            Squash::Root => {
                let groups = caller.groups.iter_mut().chain([&mut caller.gid]);
                groups.filter(|gid| **gid == 0).for_each(|gid| *gid = self.anon_gid);
                caller
            }
        }
    }
}

/// Bit of a client's id: set if the metadata server need not have a record of the client. Small
/// ids, which people choose, need no record either.
const MAY_BE_UNKNOWN: u64 = 1 << 40;

/// An id for a client that needs no record on the metadata server.
pub fn plain_client(random: u64) -> ClientId {
    ClientId(random >> 1 | MAY_BE_UNKNOWN)
}

/// An id for a client that has a record on the metadata server. If the record is missing, because
/// metadata was restored from an older export, the client is refused: it may have been restricted.
pub fn recorded_client(random: u64) -> ClientId {
    ClientId((random >> 1 | 1 << 62) & !MAY_BE_UNKNOWN)
}

/// Whether a client without a record must be refused.
pub fn needs_record(client: ClientId) -> bool {
    client.0 > MAY_BE_UNKNOWN && client.0 & MAY_BE_UNKNOWN == 0
}

impl Default for Restrictions {
    fn default() -> Self {
        Self::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(uid: u32, gid: u32, groups: &[u32]) -> Caller {
        Caller { uid, gid, groups: groups.to_vec() }
    }

    #[test]
    fn a_squashed_superuser_has_neither_its_user_nor_its_groups() {
        let none = Restrictions::NONE;
        let root = Restrictions { squash: Squash::Root, ..none };
        let all = Restrictions { squash: Squash::All, anon_uid: 7, anon_gid: 8, ..none };
        let superuser = caller(0, 0, &[0, 5]);
        assert_eq!(none.squashed(superuser.clone()), superuser);
        assert_eq!(root.squashed(superuser.clone()), caller(NOBODY, NOBODY, &[]));
        assert_eq!(root.squashed(caller(5, 0, &[6, 0])), caller(5, NOBODY, &[6, NOBODY]));
        assert_eq!(all.squashed(caller(5, 6, &[7])), caller(7, 8, &[]));
    }

    #[test]
    fn numbers_tell_whether_a_record_is_needed() {
        for random in [0, 1, 1 << 40, 1 << 41, 0x1234_5678_9abc_def0, u64::MAX] {
            assert!(!needs_record(plain_client(random)), "{random}");
            assert!(needs_record(recorded_client(random)), "{random}");
            assert!(recorded_client(random).0 <= i64::MAX as u64, "credentials are TOML");
        }
        assert!(!needs_record(ClientId(1)) && !needs_record(ClientId(1 << 39)));
    }

    #[test]
    fn what_restricts_nothing_is_refused() {
        let none = Restrictions::NONE;
        none.check().unwrap();
        Restrictions { squash: Squash::All, anon_uid: 0, ..none }.check().unwrap();
        assert!(Restrictions { squash: Squash::Root, anon_uid: 0, ..none }.check().is_err());
        assert!(Restrictions { squash: Squash::Root, anon_gid: 0, ..none }.check().is_err());
        assert!(Restrictions { subtree: Some(FileId::ROOT), ..none }.check().is_err());
    }
}
