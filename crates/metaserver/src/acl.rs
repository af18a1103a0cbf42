//! Access control lists as in POSIX.1e (draft 17) and acl(5), with Linux's behaviour where those
//! leave a choice. Pure.
//!
//! A list is stored as the extended attribute that Linux passes on: a version (u32, 2), then for
//! each entry its tag (u16), its permissions (u16) and the user or group (u32), all little-endian.
//! A list of three entries says no more than permission bits do, and is never stored. In a stored
//! list the entries of owner and others equal the mode's bits for them, and the mask equals the
//! bits for the group.

use weir_types::{Caller, ErrorKind};

/// The most entries: Linux fetches at most one page from a FUSE file system.
pub const MAX_ENTRIES: usize = (4096 - HEADER_BYTES) / ENTRY_BYTES;

const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// Id in entries without a user or group.
const NOBODY: u32 = u32::MAX;
/// Read, write and execute bits of one class.
const ALL: u16 = 7;
/// The permission bits of all three classes.
const CLASSES: u16 = 0o777;

/// The subject of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The file's owner.
    Owner,
    /// A user.
    User(u32),
    /// The file's group.
    OwningGroup,
    /// A group.
    Group(u32),
    /// The mask: the upper limit for named users, groups and the file's group.
    Mask,
    /// All other users.
    Other,
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The subject.
    pub who: Who,
    /// Read 4, write 2, execute 1.
    pub bits: u16,
}

/// A valid list: all required entries, once each and in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    entries: Vec<Entry>,
}

impl Acl {
    /// Decodes a list. Returns `None` for an empty list, which means no list.
    ///
    /// # Errors
    /// `Unsupported` for another version, `TooBig`, `InvalidArgument`: as on Linux.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, ErrorKind> {
        let Some((version, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return if bytes.is_empty() { Ok(None) } else { Err(ErrorKind::InvalidArgument) };
        };
        if u32::from_le_bytes(*version) != VERSION {
            return Err(ErrorKind::Unsupported);
        }
        if !rest.len().is_multiple_of(ENTRY_BYTES) {
            return Err(ErrorKind::InvalidArgument);
        }
        if rest.len() / ENTRY_BYTES > MAX_ENTRIES {
            return Err(ErrorKind::TooBig);
        }
        let entries = rest.chunks_exact(ENTRY_BYTES).map(decode_entry);
        let entries = entries.collect::<Option<Vec<_>>>().ok_or(ErrorKind::InvalidArgument)?;
        match entries.is_empty() {
            true => Ok(None),
            false if is_valid(&entries) => Ok(Some(Self { entries })),
            false => Err(ErrorKind::InvalidArgument),
        }
    }

    /// Encodes the list for [`Acl::decode`].
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES + self.entries.len() * ENTRY_BYTES);
        out.extend(VERSION.to_le_bytes());
        for entry in &self.entries {
            let (tag, id) = tag_of(entry.who);
            out.extend(tag.to_le_bytes());
            out.extend(entry.bits.to_le_bytes());
            out.extend(id.to_le_bytes());
        }
        out
    }

    /// The permission bits of the list; the mask gives the group's bits. The flag says that the
    /// bits alone are equivalent to the list.
    pub fn mode(&self) -> (u16, bool) {
        let group = self.mask().or(self.bits(Who::OwningGroup)).unwrap_or(0);
        let (owner, other) = (self.bits(Who::Owner), self.bits(Who::Other));
        let mode = owner.unwrap_or(0) << 6 | group << 3 | other.unwrap_or(0);
        (mode, self.entries.len() == 3)
    }

    /// Applies `chmod` to the list.
    pub fn set_mode(&mut self, mode: u16) {
        let group = if self.mask().is_some() { Who::Mask } else { Who::OwningGroup };
        for entry in &mut self.entries {
            match entry.who {
                Who::Owner => entry.bits = mode >> 6 & ALL,
                Who::Other => entry.bits = mode & ALL,
                who if who == group => entry.bits = mode >> 3 & ALL,
                _ => {}
            }
        }
    }

    /// The list and mode of a new file with this default list and the requested `mode`: only bits
    /// that both give.
    pub fn inherited(&self, mode: u16) -> (Self, u16) {
        let mut list = self.clone();
        let (most, _) = self.mode();
        list.set_mode(mode & most);
        (list, mode & !CLASSES | mode & most)
    }

    /// Whether a list gives the caller all of `wanted` on a file of this owner and group.
    ///
    /// The owner's entry alone decides for the owner, and a named user's entry for that user.
    /// Otherwise one entry for a group of the caller has to give all bits; if any entry is for a
    /// group of the caller, the entry for others does not apply.
    pub fn allows(&self, caller: &Caller, (uid, gid): (u32, u32), wanted: u16) -> bool {
        let masked = |bits: u16| bits & self.mask().unwrap_or(ALL) & wanted == wanted;
        let mut in_group = false;
        for entry in &self.entries {
            match entry.who {
                Who::Owner if caller.uid == uid => return entry.bits & wanted == wanted,
                Who::User(user) if caller.uid == user => return masked(entry.bits),
                Who::OwningGroup if caller.in_group(gid) => in_group = true,
                Who::Group(group) if caller.in_group(group) => in_group = true,
                Who::Other => return !in_group && entry.bits & wanted == wanted,
                _ => continue,
            }
            // As Linux: the first group entry that holds all of it decides.
            if entry.bits & wanted == wanted {
                return masked(entry.bits);
            }
        }
        false
    }

    /// All bits for users who are neither the owner nor the superuser, nor in the file's group.
    pub fn bits_of_strangers(&self, gid: u32) -> u16 {
        let mask = self.mask().unwrap_or(ALL);
        let bits = self.entries.iter().map(|entry| match entry.who {
            Who::User(user) if user != 0 => entry.bits & mask,
            Who::Group(group) if group != 0 => entry.bits & mask,
            Who::OwningGroup if gid != 0 => entry.bits & mask,
            Who::Other => entry.bits,
            _ => 0,
        });
        bits.fold(0, |all, bits| all | bits)
    }

    fn mask(&self) -> Option<u16> {
        self.bits(Who::Mask)
    }

    fn bits(&self, who: Who) -> Option<u16> {
        self.entries.iter().find(|entry| entry.who == who).map(|entry| entry.bits)
    }
}

fn tag_of(who: Who) -> (u16, u32) {
    match who {
        Who::Owner => (0x01, NOBODY),
        Who::User(user) => (0x02, user),
        Who::OwningGroup => (0x04, NOBODY),
        Who::Group(group) => (0x08, group),
        Who::Mask => (0x10, NOBODY),
        Who::Other => (0x20, NOBODY),
    }
}

fn decode_entry(bytes: &[u8]) -> Option<Entry> {
    let (tag, rest) = bytes.split_first_chunk()?;
    let (bits, rest) = rest.split_first_chunk()?;
    let id = u32::from_le_bytes(rest.try_into().ok()?);
    let who = match u16::from_le_bytes(*tag) {
        0x01 => Who::Owner,
        0x02 if id != NOBODY => Who::User(id),
        0x04 => Who::OwningGroup,
        0x08 if id != NOBODY => Who::Group(id),
        0x10 => Who::Mask,
        0x20 => Who::Other,
        _ => return None,
    };
    Some(Entry { who, bits: u16::from_le_bytes(*bits) })
}

/// Whether the entries form a list, in order: the owner, users, the file's group, groups, the mask
/// (required if there are users or groups), others. A user or group may be named twice, as on
/// Linux: the first entry counts.
fn is_valid(entries: &[Entry]) -> bool {
    let place = |who: Who| match who {
        Who::Owner => 0,
        Who::User(_) => 1,
        Who::OwningGroup => 2,
        Who::Group(_) => 3,
        Who::Mask => 4,
        Who::Other => 5,
    };
    let count = |at: u8| entries.iter().filter(|entry| place(entry.who) == at).count();
    let named = count(1) + count(3);
    entries.iter().all(|entry| entry.bits & !ALL == 0)
        && entries.is_sorted_by_key(|entry| place(entry.who))
        && [0, 2, 5].into_iter().all(|at| count(at) == 1)
        && (count(4) == 1 || count(4) == 0 && named == 0)
}

#[cfg(test)]
#[path = "acl_tests.rs"]
mod tests;
