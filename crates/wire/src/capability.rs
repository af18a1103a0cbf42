//! Capabilities: what a client may do with the objects of a file. A capability is signed once for
//! each target, so that each data server checks it alone (NASD, paper 4).

use crate::key::{Key, Mac};
use weir_types::codec::{Decode, DecodeError, Encode, Reader};
use weir_types::{Error, ErrorKind, FileId, KeyGeneration, SessionId, TargetId};

/// A set of rights to a file's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rights(u8);

impl Rights {
    /// No right to data: attributes only.
    pub const NONE: Rights = Rights(0);
    /// Read data.
    pub const READ: Rights = Rights(1);
    /// Write, truncate and sync data.
    pub const WRITE: Rights = Rights(2);
    /// Both rights to data.
    pub const READ_WRITE: Rights = Rights(3);
    /// List, verify and remove any object of a target, whatever its file, but read and write no
    /// data. Only an administrator gets this right ([`Capability::of_administrator`]). No request
    /// can ask for it: it is decoded only as part of a capability.
    pub const ADMIN: Rights = Rights(4);

    /// Whether the set contains all of `needed`.
    pub fn allow(self, needed: Rights) -> bool {
        self.0 & needed.0 == needed.0
    }
    /// The union of both sets.
    #[must_use]
    pub fn union(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}
impl Encode for Rights {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.0);
    }
}
impl Decode for Rights {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::decode(r)? {
            bits @ 0..=3 => Ok(Rights(bits)),
            _ => Err(DecodeError::BadValue),
        }
    }
}

impl Rights {
    /// Decodes the rights of a capability: rights to data, or the right of an administrator, never
    /// both.
    fn decode_granted(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::decode(r)? {
            bits @ 0..=4 => Ok(Rights(bits)),
            _ => Err(DecodeError::BadValue),
        }
    }
}

/// The content of a capability. It names no byte range, because segments may be open-ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Capability {
    /// The file whose objects may be used.
    pub file: FileId,
    /// The session that may use the capability. For any other session it is useless.
    pub session: SessionId,
    /// The user that it was made for. With the session it identifies the capability in audit
    /// records (NASD's audit identifier); it gives and takes no right.
    pub user: u32,
    /// The granted rights.
    pub rights: Rights,
    /// The number of the last revocation when the capability was made: later ones may end it before
    /// its time.
    pub version: u64,
    /// The generation of the working keys that signed the capability.
    pub key_generation: KeyGeneration,
    /// End of validity, in milliseconds since 1970.
    pub expires_unix_ms: u64,
}

impl Encode for Capability {
    fn encode(&self, out: &mut Vec<u8>) {
        self.file.encode(out);
        self.session.encode(out);
        self.user.encode(out);
        self.rights.encode(out);
        self.version.encode(out);
        self.key_generation.encode(out);
        self.expires_unix_ms.encode(out);
    }
}
impl Decode for Capability {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            file: Decode::decode(r)?,
            session: Decode::decode(r)?,
            user: Decode::decode(r)?,
            rights: Rights::decode_granted(r)?,
            version: Decode::decode(r)?,
            key_generation: Decode::decode(r)?,
            expires_unix_ms: Decode::decode(r)?,
        })
    }
}

/// Stands for "any file" in an administrator's capability; no file has this id.
pub const ANY_FILE: FileId = FileId(0);

impl Capability {
    /// The capability of an administrator's session for the objects of every file.
    pub fn of_administrator(
        session: SessionId,
        version: u64,
        key_generation: KeyGeneration,
        expires_unix_ms: u64,
    ) -> Self {
        Self {
            file: ANY_FILE,
            session,
            user: 0,
            rights: Rights::ADMIN,
            version,
            key_generation,
            expires_unix_ms,
        }
    }

    /// The signature for one target, under the working key of the capability's generation.
    pub fn sign(&self, target: TargetId, target_key: &Key) -> Mac {
        self.sign_with(target, &target_key.working(self.key_generation))
    }

    /// The same with that working key.
    pub fn sign_with(&self, target: TargetId, working: &Key) -> Mac {
        working.mac("weir 1 capability", &[&target.0.to_le_bytes(), &self.to_bytes()])
    }

    /// Checks everything that a data server has to check: the signature for this target, the
    /// session, the file, the rights and the time.
    pub fn check(&self, mac: &Mac, against: &Check<'_>) -> Result<(), Error> {
        match self.refusal(mac, against) {
            None => Ok(()),
            Some(refusal) => Err(Error::new(ErrorKind::BadCapability, refusal.text())),
        }
    }

    /// The reason to refuse the capability, if there is one: see [`Capability::check`].
    pub fn refusal(&self, mac: &Mac, against: &Check<'_>) -> Option<Refusal> {
        if self.sign(against.target, against.target_key) != *mac {
            return Some(Refusal::NotSigned);
        }
        if self.session != against.session {
            return Some(Refusal::OtherSession);
        }
        if self.file != against.file {
            return Some(Refusal::OtherFile);
        }
        if !self.rights.allow(against.needed) {
            return Some(Refusal::NoRight);
        }
        if against.now_unix_ms >= self.expires_unix_ms {
            return Some(Refusal::Expired);
        }
        None
    }
}

/// Why a capability is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The capability was forged, altered, or made for another target.
    NotSigned,
    /// The capability belongs to another session: it was overheard or passed on.
    OtherSession,
    /// The capability is for another file.
    OtherFile,
    /// The session was not heard of within the lease time. Its locks and leases are revoked when
    /// another session needs them.
    NoRight,
    /// The capability has expired.
    Expired,
    /// The key that signed the capability was replaced, and its time is over.
    OldKey,
    /// The capability was made before a revocation of its file's capabilities, or of all.
    Revoked,
}

impl Refusal {
    /// The message for the client.
    pub fn text(self) -> &'static str {
        match self {
            Refusal::NotSigned => "capability is not signed for this target",
            Refusal::OtherSession => "capability belongs to another session",
            Refusal::OtherFile => "capability is for another file",
            Refusal::NoRight => "capability does not grant this kind of access",
            Refusal::Expired => "capability has expired",
            Refusal::OldKey => "capability is signed with a key that was replaced",
            Refusal::Revoked => "capability was revoked",
        }
    }
}

/// The facts that a capability is checked against.
#[derive(Debug)]
pub struct Check<'a> {
    /// The target of the request.
    pub target: TargetId,
    /// The target's key.
    pub target_key: &'a Key,
    /// The session of the connection.
    pub session: SessionId,
    /// The file of the object.
    pub file: FileId,
    /// The rights that the request needs.
    pub needed: Rights,
    /// The present time, in milliseconds since 1970.
    pub now_unix_ms: u64,
}

/// A capability with its signatures for the targets of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedCapability {
    /// The capability.
    pub capability: Capability,
    /// The signature for each target, sorted by target.
    pub macs: Vec<(TargetId, Mac)>,
}
weir_types::codec_struct!(SignedCapability { capability, macs });

impl SignedCapability {
    /// The signature for a target.
    pub fn mac_for(&self, target: TargetId) -> Option<Mac> {
        let at = self.macs.binary_search_by_key(&target, |(t, _)| *t).ok()?;
        Some(self.macs[at].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> Key {
        Key::from_bytes([n; 32])
    }

    fn capability() -> Capability {
        Capability {
            file: FileId(7),
            session: SessionId(3),
            user: 1000,
            rights: Rights::READ,
            version: 1,
            key_generation: KeyGeneration(1),
            expires_unix_ms: 1000,
        }
    }

    fn check<'a>(key: &'a Key) -> Check<'a> {
        Check {
            target: TargetId(2),
            target_key: key,
            session: SessionId(3),
            file: FileId(7),
            needed: Rights::READ,
            now_unix_ms: 999,
        }
    }

    #[test]
    fn the_right_of_administrators_cannot_be_asked_for_nor_mixed_with_others() {
        assert_eq!(Rights::from_bytes(&[4]), Err(DecodeError::BadValue));
        let admin = Capability::of_administrator(SessionId(3), 1, KeyGeneration(1), 1000);
        assert_eq!(Capability::from_bytes(&admin.to_bytes()).unwrap(), admin);
        for mixed in 5..=u8::MAX {
            let bad = Capability { rights: Rights(mixed), ..admin.clone() };
            assert_eq!(Capability::from_bytes(&bad.to_bytes()), Err(DecodeError::BadValue));
        }
        for data in [Rights::READ, Rights::WRITE, Rights::READ_WRITE] {
            assert!(!Rights::ADMIN.allow(data) && !data.allow(Rights::ADMIN));
        }
    }

    #[test]
    fn a_good_capability_passes_and_each_bad_one_is_refused() {
        let (good, k) = (capability(), key(1));
        let mac = good.sign(TargetId(2), &k);
        assert!(good.check(&mac, &check(&k)).is_ok());

        let forged = Capability { rights: Rights::READ_WRITE, ..capability() };
        assert!(forged.check(&mac, &check(&k)).is_err(), "forged rights");
        let user = Capability { user: 0, ..capability() };
        assert!(user.check(&mac, &check(&k)).is_err(), "for another user");
        assert!(good.check(&Mac([0; 16]), &check(&k)).is_err(), "forged code");
        let generation = Capability { key_generation: KeyGeneration(2), ..capability() };
        assert!(generation.check(&mac, &check(&k)).is_err(), "another generation");
        assert!(generation.check(&generation.sign(TargetId(2), &k), &check(&k)).is_ok());
        let other_key = key(2);
        assert!(good.check(&mac, &check(&other_key)).is_err(), "key of another target");
        assert!(good.check(&mac, &Check { target: TargetId(3), ..check(&k) }).is_err());
        assert!(good.check(&mac, &Check { session: SessionId(4), ..check(&k) }).is_err());
        assert!(good.check(&mac, &Check { file: FileId(8), ..check(&k) }).is_err());
        assert!(good.check(&mac, &Check { needed: Rights::WRITE, ..check(&k) }).is_err());
        assert!(good.check(&mac, &Check { now_unix_ms: 1000, ..check(&k) }).is_err(), "expired");
    }
}
