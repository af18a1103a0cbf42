//! Quotas: how much users, groups and directories may have.

use crate::message::{records, requests};
use weir_types::FileId;
use weir_types::codec::{Decode, DecodeError, Encode, Reader};

/// Whose files a quota counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuotaSubject {
    /// Those that a user owns.
    User(u32),
    /// Those that belong to a group.
    Group(u32),
    /// Those in a directory or below it, and itself.
    Directory(FileId),
}
impl Encode for QuotaSubject {
    fn encode(&self, out: &mut Vec<u8>) {
        let (tag, number) = self.parts();
        tag.encode(out);
        number.encode(out);
    }
}
impl Decode for QuotaSubject {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let tag = u8::decode(r)?;
        Self::of_parts(tag, u64::decode(r)?).ok_or(DecodeError::BadValue)
    }
}

impl QuotaSubject {
    /// What it is, and its number.
    pub fn parts(self) -> (u8, u64) {
        match self {
            QuotaSubject::User(uid) => (0, uid.into()),
            QuotaSubject::Group(gid) => (1, gid.into()),
            QuotaSubject::Directory(dir) => (2, dir.0),
        }
    }

    /// The reverse of [`QuotaSubject::parts`]; `None`: they make no sense.
    pub fn of_parts(tag: u8, number: u64) -> Option<Self> {
        match tag {
            0 => number.try_into().ok().map(QuotaSubject::User),
            1 => number.try_into().ok().map(QuotaSubject::Group),
            2 => Some(QuotaSubject::Directory(FileId(number))),
            _ => None,
        }
    }
}

impl std::fmt::Display for QuotaSubject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            QuotaSubject::User(uid) => write!(f, "user {uid}"),
            QuotaSubject::Group(gid) => write!(f, "group {gid}"),
            QuotaSubject::Directory(dir) => write!(f, "directory {dir}"),
        }
    }
}

/// What becomes of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaChange {
    /// It gets these limits; what is used is counted if there was none.
    Set(QuotaLimits),
    /// There is none any more.
    Remove,
    /// What is used is counted anew.
    Recount,
}
impl Encode for QuotaChange {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            QuotaChange::Set(limits) => {
                out.push(0);
                limits.encode(out);
            }
            QuotaChange::Remove => out.push(1),
            QuotaChange::Recount => out.push(2),
        }
    }
}
impl Decode for QuotaChange {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::decode(r)? {
            0 => Ok(QuotaChange::Set(Decode::decode(r)?)),
            1 => Ok(QuotaChange::Remove),
            2 => Ok(QuotaChange::Recount),
            _ => Err(DecodeError::BadValue),
        }
    }
}

records! {
    /// How much there may be; `None`: it is counted, and not limited.
    #[derive(Copy, Default)]
    QuotaLimits {
        /// Bytes: the sizes of regular files.
        bytes: Option<u64>,
        /// Files of any kind, directories too.
        files: Option<u64>,
    }
    /// How far a file may grow.
    #[derive(Copy)]
    Room {
        /// Up to this size, without asking again; `u64::MAX`: no quota concerns it.
        up_to: u64,
    }
    /// A quota, and what is used of it.
    QuotaInfo {
        /// Whose.
        subject: QuotaSubject,
        /// How much there may be.
        limits: QuotaLimits,
        /// Bytes that there are; `u64::MAX`: so many or more.
        used_bytes: u64,
        /// Files that there are.
        used_files: u64,
        /// Bytes that clients may write without asking, and have not yet.
        granted_bytes: u64,
        /// The files that were there before the quota are still being counted: what is used
        /// is more than is said.
        counting: bool,
    }
    /// A part of the list of quotas.
    QuotaPage {
        /// In the order of their subjects.
        quotas: Vec<QuotaInfo>,
        /// Whether the list ends here.
        end: bool,
    }
}

requests! {
    /// A file that a quota concerns is about to grow: how far may it?
    RoomRequest(Room) -> Room {
        /// The file.
        file: FileId,
        /// Where what is about to be written ends.
        end: u64,
    }
    /// Sets, removes or counts anew a quota (administrators).
    SetQuotaRequest(SetQuota) -> () {
        /// Whose.
        subject: QuotaSubject,
        /// What becomes of it.
        change: QuotaChange,
    }
    /// A page of the quotas (administrators), or those of the caller and its groups (anybody).
    ListQuotasRequest(ListQuotas) -> QuotaPage {
        /// Those behind this one.
        after: Option<QuotaSubject>,
        /// Those of the caller only.
        own: bool,
    }
}

/// The attribute of anything on a mount that has, as text, the quotas that concern whoever asks.
pub const QUOTA_XATTR: &str = "user.weir.quota";

impl QuotaInfo {
    /// As a line of [`QUOTA_XATTR`]: what it is and its number, bytes that there are and may be,
    /// files that there are and may be (`-`: any), bytes granted, and whether all has been counted.
    pub fn line(&self) -> String {
        let kind = match self.subject {
            QuotaSubject::User(_) => "user",
            QuotaSubject::Group(_) => "group",
            QuotaSubject::Directory(_) => "dir",
        };
        let most = |limit: Option<u64>| limit.map_or("-".to_owned(), |limit| limit.to_string());
        format!(
            "{kind} {} {} {} {} {} {} {}\n",
            self.subject.parts().1,
            self.used_bytes,
            most(self.limits.bytes),
            self.used_files,
            most(self.limits.files),
            self.granted_bytes,
            if self.counting { "counting" } else { "counted" }
        )
    }

    /// The reverse; `None`: it is no such line.
    pub fn of_line(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let [kind, number, used, bytes, count, files, granted, counted] = words[..] else {
            return None;
        };
        let tag = ["user", "group", "dir"].iter().position(|known| *known == kind)?;
        let most = |word: &str| match word {
            "-" => Some(None),
            limit => limit.parse().ok().map(Some),
        };
        Some(Self {
            subject: QuotaSubject::of_parts(tag as u8, number.parse().ok()?)?,
            limits: QuotaLimits { bytes: most(bytes)?, files: most(files)? },
            used_bytes: used.parse().ok()?,
            used_files: count.parse().ok()?,
            granted_bytes: granted.parse().ok()?,
            counting: counted == "counting",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_read_back_from_its_line() {
        let info = QuotaInfo {
            subject: QuotaSubject::Group(7),
            limits: QuotaLimits { bytes: Some(u64::MAX), files: None },
            used_bytes: 5,
            used_files: 3,
            granted_bytes: 1,
            counting: true,
        };
        assert_eq!(info.line(), "group 7 5 18446744073709551615 3 - 1 counting\n");
        assert_eq!(QuotaInfo::of_line(info.line().trim_end()), Some(info));
        for bad in ["", "group 7", "file 7 5 - 3 - 1 counted", "user 4294967296 5 - 3 - 1 counted"]
        {
            assert_eq!(QuotaInfo::of_line(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_subject_is_read_back_and_a_number_that_no_user_has_is_refused() {
        for subject in [
            QuotaSubject::User(u32::MAX),
            QuotaSubject::Group(0),
            QuotaSubject::Directory(FileId(u64::MAX)),
        ] {
            assert_eq!(QuotaSubject::from_bytes(&subject.to_bytes()), Ok(subject));
        }
        let beyond = (0u8, u64::from(u32::MAX) + 1).to_bytes();
        assert_eq!(QuotaSubject::from_bytes(&beyond), Err(DecodeError::BadValue));
    }
}
