//! Keys of the engine. The first byte gives the kind of a key.

use weir_types::codec::{DecodeError, Reader};
use weir_types::{ClientId, ColumnIndex, CopyIndex, FileId, ObjectId, SegmentIndex};
use weir_types::{ServerId, SessionId, SlotId, TargetId};
use weir_wire::quota::QuotaSubject;

/// The next free ids of files and sessions.
pub const IDS: &[u8] = b"m/ids";
/// Format and cluster of this store.
pub const FORMAT: &[u8] = b"m/format";
/// The epoch of the cluster map.
pub const MAP_EPOCH: &[u8] = b"m/epoch";
/// Exists if any file ever had several copies.
pub const MIRRORED: &[u8] = b"m/mirrored";
/// The generations of working keys: [`crate::keys::WorkingKeys`].
pub const WORKING_KEYS: &[u8] = b"m/keys";
/// The generations of targets' own keys: [`crate::target_keys::TargetKeys`].
pub const TARGET_KEYS: &[u8] = b"m/target-keys";
/// The id of the journal that the metadata follows from (16 bytes).
pub const JOURNAL: &[u8] = b"m/journal";
/// Until when capabilities that were revoked may not have run out by themselves.
pub const REVOKED: &[u8] = b"m/revoked";
/// The longest validity that capabilities and tickets ever had, milliseconds.
pub const LASTED: &[u8] = b"m/lasted";
/// Written by every move of a directory to another one: two concurrent moves could make a loop that
/// neither of them sees.
pub const DIRECTORY_MOVES: &[u8] = b"m/moves";

/// A key under construction; the longest has a name of 255 bytes.
struct Build(Vec<u8>);

impl Build {
    fn new(prefix: &[u8; 2]) -> Self {
        let mut bytes = Vec::with_capacity(40);
        bytes.extend_from_slice(prefix);
        Self(bytes)
    }
    fn u64(mut self, n: u64) -> Self {
        self.0.extend_from_slice(&n.to_be_bytes());
        self
    }
    fn u32(mut self, n: u32) -> Self {
        self.0.extend_from_slice(&n.to_be_bytes());
        self
    }
    fn u16(mut self, n: u16) -> Self {
        self.0.extend_from_slice(&n.to_be_bytes());
        self
    }
    fn bytes(mut self, b: &[u8]) -> Self {
        self.0.extend_from_slice(b);
        self
    }
}

/// The range of all keys of one kind, or of one kind and owner: start and end.
pub type Span = (Vec<u8>, Vec<u8>);

fn all(prefix: &[u8; 2]) -> Span {
    (prefix.to_vec(), vec![prefix[0], prefix[1] + 1])
}

fn owned(prefix: &[u8; 2], owner: u64) -> Span {
    let start = Build::new(prefix).u64(owner).0;
    // Ids are handed out from 1 on and cannot come near the last number.
    (start, Build::new(prefix).u64(owner.wrapping_add(1)).0)
}

/// `i/` file: its [`super::Inode`].
pub fn inode(file: FileId) -> Vec<u8> {
    Build::new(b"i/").u64(file.0).0
}

/// All inodes.
pub fn inodes() -> Span {
    all(b"i/")
}

/// The file of a key made by [`inode`].
pub fn inode_file(key: &[u8]) -> Result<FileId, DecodeError> {
    orphan_file(key)
}

/// `d/` directory, name: the [`super::Dentry`].
pub fn dentry(dir: FileId, name: &[u8]) -> Vec<u8> {
    Build::new(b"d/").u64(dir.0).bytes(name).0
}

/// `c/` directory, cookie: the [`super::ListEntry`], in the order of listings.
pub fn listing(dir: FileId, cookie: u64) -> Vec<u8> {
    Build::new(b"c/").u64(dir.0).u64(cookie).0
}

/// All entries of a directory, in the order of listings.
pub fn listing_of(dir: FileId) -> Span {
    owned(b"c/", dir.0)
}

/// The cookie in a key made by [`listing`].
pub fn listing_cookie(key: &[u8]) -> Result<u64, DecodeError> {
    let mut r = Reader::new(key);
    r.take(10)?;
    let cookie = u64::from_be_bytes(r.array()?);
    r.finish()?;
    Ok(cookie)
}

/// `s/` file, list, complement of the first byte: a [`super::SegmentPage`]. Because of the
/// complement, the first key at or after that of an offset is the page with the offset.
pub fn segments(file: FileId, list: u32, start: u64) -> Vec<u8> {
    Build::new(b"s/").u64(file.0).u32(list).u64(!start).0
}

/// All pages of segments of all files.
pub fn all_segments() -> Span {
    all(b"s/")
}

/// All pages of a list of segments, the last page first.
pub fn segments_of(file: FileId, list: u32) -> Span {
    let prefix = Build::new(b"s/").u64(file.0).u32(list).0;
    (prefix, Build::new(b"s/").u64(file.0).u32(list.wrapping_add(1)).0)
}

/// `w/` file, list, complement of the first byte: the [`super::WrittenPage`] of the page of
/// segments with the same numbers.
pub fn written(file: FileId, list: u32, page_start: u64) -> Vec<u8> {
    Build::new(b"w/").u64(file.0).u32(list).u64(!page_start).0
}

/// `x/` file, name: the value of an extended attribute, unencoded.
pub fn xattr(file: FileId, name: &[u8]) -> Vec<u8> {
    Build::new(b"x/").u64(file.0).bytes(name).0
}

/// All extended attributes of a file.
pub fn xattrs_of(file: FileId) -> Span {
    owned(b"x/", file.0)
}

/// Bytes in front of the name in a key made by [`xattr`].
pub const XATTR_NAME_AT: usize = 10;

/// `l/` file: the target of a symbolic link, unencoded.
pub fn symlink(file: FileId) -> Vec<u8> {
    Build::new(b"l/").u64(file.0).0
}

/// `b/` file, directory: number of its names there (u32, as a record). Only for files with several
/// names, not for directories.
pub fn in_directory(file: FileId, dir: FileId) -> Vec<u8> {
    Build::new(b"b/").u64(file.0).u64(dir.0).0
}

/// All directories of a file with several names.
pub fn directories_of(file: FileId) -> Span {
    owned(b"b/", file.0)
}

/// The directories of all files with several names.
pub fn all_directories_of() -> Span {
    all(b"b/")
}

/// The file and directory of a key made by [`in_directory`].
pub fn file_and_directory(key: &[u8]) -> Result<(FileId, FileId), DecodeError> {
    let (file, rest) = owner_and_rest(key)?;
    let mut r = Reader::new(rest);
    let dir = FileId(u64::from_be_bytes(r.array()?));
    r.finish()?;
    Ok((file, dir))
}

/// All names.
pub fn dentries() -> Span {
    all(b"d/")
}

/// `o/` file: a file without names that may be open ([`super::Orphan`]).
pub fn orphan(file: FileId) -> Vec<u8> {
    Build::new(b"o/").u64(file.0).0
}

/// All orphans.
pub fn orphans() -> Span {
    all(b"o/")
}

/// `q/` file, list: a [`super::DeadList`] to be turned into garbage.
pub fn dead(file: FileId, list: u32) -> Vec<u8> {
    Build::new(b"q/").u64(file.0).u32(list).0
}

/// All dead lists.
pub fn dead_lists() -> Span {
    all(b"q/")
}

/// The file of a key made by [`orphan`].
pub fn orphan_file(key: &[u8]) -> Result<FileId, DecodeError> {
    let mut r = Reader::new(key);
    r.take(2)?;
    let file = FileId(u64::from_be_bytes(r.array()?));
    r.finish()?;
    Ok(file)
}

/// The file and list of a key made by [`dead`].
pub fn dead_list(key: &[u8]) -> Result<(FileId, u32), DecodeError> {
    let mut r = Reader::new(key);
    r.take(2)?;
    let file = FileId(u64::from_be_bytes(r.array()?));
    let list = u32::from_be_bytes(r.array()?);
    r.finish()?;
    Ok((file, list))
}

/// The number after the prefix of a key (mostly a file or directory), and the rest.
pub fn owner_and_rest(key: &[u8]) -> Result<(FileId, &[u8]), DecodeError> {
    let mut r = Reader::new(key);
    r.take(2)?;
    let owner = FileId(u64::from_be_bytes(r.array()?));
    let rest = r.remaining();
    Ok((owner, r.take(rest)?))
}

/// File, list and first byte of a key made by [`segments`] or [`written`].
pub fn list_page(key: &[u8]) -> Result<(FileId, u32, u64), DecodeError> {
    let (file, rest) = owner_and_rest(key)?;
    let mut r = Reader::new(rest);
    let list = u32::from_be_bytes(r.array()?);
    let start = !u64::from_be_bytes(r.array()?);
    r.finish()?;
    Ok((file, list, start))
}

/// The target of a key made by [`garbage`].
pub fn garbage_target(key: &[u8]) -> Result<TargetId, DecodeError> {
    server_id(key.get(..6).unwrap_or(key)).map(|server| TargetId(server.0))
}

/// `g/` target, object: an object to remove. No value.
pub fn garbage(target: TargetId, object: ObjectId) -> Vec<u8> {
    Build::new(b"g/")
        .u32(target.0)
        .u64(object.file.0)
        .u32(object.segment.0)
        .u16(object.column.0)
        .bytes(&[object.copy.0])
        .0
}

/// All garbage of a target.
pub fn garbage_of(target: TargetId) -> Span {
    let start = Build::new(b"g/").u32(target.0).0;
    let end = match target.0.checked_add(1) {
        Some(next) => Build::new(b"g/").u32(next).0,
        None => b"g0".to_vec(),
    };
    (start, end)
}

/// The object of a key made by [`garbage`].
pub fn garbage_object(key: &[u8]) -> Result<ObjectId, DecodeError> {
    let mut r = Reader::new(key);
    r.take(6)?;
    let object = ObjectId {
        file: FileId(u64::from_be_bytes(r.array()?)),
        segment: SegmentIndex(u32::from_be_bytes(r.array()?)),
        column: ColumnIndex(u16::from_be_bytes(r.array()?)),
        copy: CopyIndex(r.array::<1>()?[0]),
    };
    r.finish()?;
    Ok(object)
}

/// `n/` session: its [`super::SessionRecord`].
pub fn session(session: SessionId) -> Vec<u8> {
    Build::new(b"n/").u64(session.0).0
}

/// All sessions.
pub fn sessions() -> Span {
    all(b"n/")
}

/// The session of a key made by [`session`].
pub fn session_id(key: &[u8]) -> Result<SessionId, DecodeError> {
    orphan_file(key).map(|file| SessionId(file.0))
}

/// `r/` session, slot: the [`super::SlotRecord`] of its last mutation.
pub fn slot(session: SessionId, slot: SlotId) -> Vec<u8> {
    Build::new(b"r/").u64(session.0).u16(slot.0).0
}

/// All slots of a session.
pub fn slots_of(session: SessionId) -> Span {
    owned(b"r/", session.0)
}

/// `t/` server: its [`super::ServerRecord`].
pub fn server(server: ServerId) -> Vec<u8> {
    Build::new(b"t/").u32(server.0).0
}

/// All servers, in order.
pub fn servers() -> Span {
    all(b"t/")
}

/// The server of a key made by [`server`].
pub fn server_id(key: &[u8]) -> Result<ServerId, DecodeError> {
    let mut r = Reader::new(key);
    r.take(2)?;
    let server = ServerId(u32::from_be_bytes(r.array()?));
    r.finish()?;
    Ok(server)
}

/// `u/` target: a removed target (an [`weir_types::Epoch`]), whose id is not used again.
pub fn removed_target(target: TargetId) -> Vec<u8> {
    Build::new(b"u/").u32(target.0).0
}

/// All targets that were removed.
pub fn removed_targets() -> Span {
    all(b"u/")
}

/// The target of a key made by [`removed_target`].
pub fn removed_target_id(key: &[u8]) -> Result<TargetId, DecodeError> {
    server_id(key).map(|server| TargetId(server.0))
}

/// `y/` server: a removed server (an [`weir_types::Epoch`]), whose key is refused.
pub fn removed_server(server: ServerId) -> Vec<u8> {
    Build::new(b"y/").u32(server.0).0
}

/// All servers that were removed.
pub fn removed_servers() -> Span {
    all(b"y/")
}

/// `v/` target, object: a copy there may lack bytes of which only a removed target knew, and its
/// server was not told yet. No value.
pub fn distrust(target: TargetId, object: ObjectId) -> Vec<u8> {
    let mut key = garbage(target, object);
    key[0] = b'v';
    key
}

/// All of a target.
pub fn distrust_of(target: TargetId) -> Span {
    let (mut start, mut end) = garbage_of(target);
    (start[0], end[0]) = (b'v', b'v');
    (start, end)
}

/// The object of a key made by [`distrust`].
pub fn distrust_object(key: &[u8]) -> Result<ObjectId, DecodeError> {
    garbage_object(key)
}

/// `k/` client: its [`super::ClientRecord`].
pub fn client(client: ClientId) -> Vec<u8> {
    Build::new(b"k/").u64(client.0).0
}

/// All clients that have a record, in order.
pub fn clients() -> Span {
    all(b"k/")
}

/// The client of a key made by [`client`].
pub fn client_id(key: &[u8]) -> Result<ClientId, DecodeError> {
    orphan_file(key).map(|file| ClientId(file.0))
}

/// `p/` kind u8, number u64: the [`super::QuotaRecord`] of a user, a group or a directory.
pub fn quota(subject: QuotaSubject) -> Vec<u8> {
    let (kind, number) = subject.parts();
    Build::new(b"p/").bytes(&[kind]).u64(number).0
}

/// All quotas, in the order of their subjects.
pub fn quotas() -> Span {
    all(b"p/")
}

/// The subject of a key made by [`quota`].
pub fn quota_subject(key: &[u8]) -> Result<QuotaSubject, DecodeError> {
    let mut r = Reader::new(key);
    r.take(2)?;
    let kind = r.array::<1>()?[0];
    let number = u64::from_be_bytes(r.array()?);
    r.finish()?;
    QuotaSubject::of_parts(kind, number).ok_or(DecodeError::BadValue)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_page_of_an_offset_is_the_first_key_at_or_after_it(
            mut starts in proptest::collection::btree_set(0u64..1 << 62, 1..20), offset in 0u64..1 << 62,
        ) {
            starts.insert(0);
            let mut keys: Vec<_> = starts.iter().map(|&s| (segments(FileId(7), 3, s), s)).collect();
            keys.sort();
            let wanted = segments(FileId(7), 3, offset);
            let (_, end) = segments_of(FileId(7), 3);
            let found = keys.iter().find(|(key, _)| *key >= wanted && *key < end).unwrap();
            prop_assert_eq!(found.1, *starts.range(..=offset).next_back().unwrap());
        }

        #[test]
        fn keys_with_contents_give_them_back(t: u32, f: u64, s: u32, c: u16, k: u8) {
            let object = ObjectId {
                file: FileId(f), segment: SegmentIndex(s), column: ColumnIndex(c), copy: CopyIndex(k),
            };
            let key = garbage(TargetId(t), object);
            let (start, end) = garbage_of(TargetId(t));
            prop_assert!(start <= key && key < end);
            prop_assert_eq!(garbage_object(&key), Ok(object));
            prop_assert_eq!(garbage_target(&key), Ok(TargetId(t)));
            let page = segments(FileId(f), s, u64::from(t));
            prop_assert_eq!(list_page(&page), Ok((FileId(f), s, u64::from(t))));
            prop_assert_eq!(list_page(&written(FileId(f), s, 7)), Ok((FileId(f), s, 7)));
            let name = dentry(FileId(f), b"name");
            prop_assert_eq!(owner_and_rest(&name), Ok((FileId(f), &b"name"[..])));
            prop_assert_eq!(listing_cookie(&listing(FileId(f), u64::from(s))), Ok(u64::from(s)));
            let within = in_directory(FileId(f), FileId(u64::from(t)));
            prop_assert_eq!(file_and_directory(&within), Ok((FileId(f), FileId(u64::from(t)))));
            prop_assert_eq!(dead_list(&dead(FileId(f), s)), Ok((FileId(f), s)));
            for subject in [QuotaSubject::User(s), QuotaSubject::Group(t), QuotaSubject::Directory(FileId(f))] {
                let key = quota(subject);
                let (start, end) = quotas();
                prop_assert!(start <= key && key < end);
                prop_assert_eq!(quota_subject(&key), Ok(subject));
            }
        }
    }
}
