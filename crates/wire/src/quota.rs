//! Quotas: limits on the space and the number of files of users, groups and directories.

use crate::message::{records, requests};
use weir_types::FileId;
use weir_types::codec::{Decode, DecodeError, Encode, Reader};

/// The files that a quota counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuotaSubject {
    /// Files that a user owns.
    User(u32),
    /// Files that belong to a group.
    Group(u32),
    /// A directory and all files below it.
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
    /// Encodes the subject as its kind and number.
    pub fn parts(self) -> (u8, u64) {
        match self {
            QuotaSubject::User(uid) => (0, uid.into()),
            QuotaSubject::Group(gid) => (1, gid.into()),
            QuotaSubject::Directory(dir) => (2, dir.0),
        }
    }

    /// The reverse of [`QuotaSubject::parts`]; `None` for invalid numbers.
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

/// A change of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaChange {
    /// Sets these limits. A new quota first counts the used space.
    Set(QuotaLimits),
    /// Removes the quota.
    Remove,
    /// Counts the used space anew.
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
    /// Limits; `None` counts without a limit.
    #[derive(Copy, Default)]
    QuotaLimits {
        /// Bytes: the sum of the sizes of regular files.
        bytes: Option<u64>,
        /// Number of files of any kind, directories included.
        files: Option<u64>,
    }
    /// Permission for a file to grow.
    #[derive(Copy)]
    Room {
        /// Size up to which the file may grow without asking again; `u64::MAX` if no quota applies.
        up_to: u64,
    }
    /// A quota and its use.
    QuotaInfo {
        /// The files that it counts.
        subject: QuotaSubject,
        /// Its limits.
        limits: QuotaLimits,
        /// Used bytes; `u64::MAX` stands for that many or more.
        used_bytes: u64,
        /// Number of files.
        used_files: u64,
        /// Bytes that clients may write without asking and have not written yet.
        granted_bytes: u64,
        /// Files from before the quota are still being counted, so the real use is higher.
        counting: bool,
    }
    /// A page of the list of quotas.
    QuotaPage {
        /// The quotas, by subject.
        quotas: Vec<QuotaInfo>,
        /// Whether this is the last page.
        end: bool,
    }
}

requests! {
    /// Asks how far a file with a quota may grow.
    RoomRequest(Room) -> Room {
        /// The file.
        file: FileId,
        /// End of the bytes to be written.
        end: u64,
    }
    /// Sets, removes or recounts a quota (administrators).
    SetQuotaRequest(SetQuota) -> () {
        /// The files that the quota counts.
        subject: QuotaSubject,
        /// The change.
        change: QuotaChange,
    }
    /// Asks for a page of the quotas (administrators), or for those of the caller and its groups
    /// (any client).
    ListQuotasRequest(ListQuotas) -> QuotaPage {
        /// Quotas after this one.
        after: Option<QuotaSubject>,
        /// Only the quotas of the caller.
        own: bool,
    }
}

/// Extended attribute of any file on a mount. Its value is text with the caller's quotas.
pub const QUOTA_XATTR: &str = "user.weir.quota";

impl QuotaInfo {
    /// Formats the quota as a line of [`QUOTA_XATTR`]: kind and number of the subject, used bytes
    /// and their limit, number of files and its limit (`-`: none), granted bytes, and whether all
    /// files were counted.
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

    /// Parses a line of [`QUOTA_XATTR`]; `None` if it is invalid.
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
