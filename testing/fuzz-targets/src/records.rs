//! The records and keys that the metadata server keeps in its engine.

use crate::random::Gen;
use crate::sample::Sample;
use weir_metaserver::keys::WorkingKeys;
use weir_metaserver::schema::{
    self, Body, ClientRecord, DeadList, Dentry, Directory, FormatRecord, Inode, ListEntry, Orphan,
    Past, QuotaRecord, RegularFile, SegmentPage, ServerRecord, SessionRecord, SlotRecord,
    TargetRecord, WrittenPage, key,
};
use weir_metaserver::target_keys::TargetKeys;
use weir_types::limits::MAX_PAST;
use weir_types::{Decode, Encode, FileKind, FileLayout, ObjectId, TargetId};

/// Decodes a record with its version byte.
fn canonical<T: Decode + Encode>(data: &[u8]) {
    if let Ok(record) = schema::decode::<T>(data, "under test") {
        assert_eq!(schema::encode(&record), data, "decoded, and encoded to other bytes");
    }
}

fn stored<T: Sample + Encode + Decode>(g: &mut Gen) -> Vec<u8> {
    let bytes = schema::encode(&T::sample(g));
    assert!(schema::decode::<T>(&bytes, "under test").is_ok(), "a valid record was refused");
    bytes
}

/// Every kind of record, one after the other: none knows another's bytes from
/// its own, so all must bear all.
macro_rules! records {
    ($($ty:ident)*) => {
        /// Decodes a record as each kind of record.
        pub(crate) fn record(data: &[u8]) {
            $(canonical::<$ty>(data);)*
        }

        const EXAMPLES: &[fn(&mut Gen) -> Vec<u8>] = &[$(stored::<$ty>),*];
    };
}
records! {
    Inode Dentry ListEntry SegmentPage WrittenPage DeadList Orphan SessionRecord SlotRecord ServerRecord
    ClientRecord FormatRecord QuotaRecord WorkingKeys TargetKeys
}

pub(crate) fn record_example(g: &mut Gen) -> Vec<u8> {
    g.pick(EXAMPLES)(g)
}

/// Takes keys apart.
pub(crate) fn record_key(data: &[u8]) {
    if let (Some(target), Ok(object)) = (data.get(2..6), key::garbage_object(data)) {
        let target = TargetId(u32::from_be_bytes([target[0], target[1], target[2], target[3]]));
        assert_eq!(key::garbage(target, object)[2..], data[2..]);
    }
    if let Ok(file) = key::orphan_file(data) {
        assert_eq!(key::orphan(file)[2..], data[2..]);
    }
    if let Ok((file, list)) = key::dead_list(data) {
        assert_eq!(key::dead(file, list)[2..], data[2..]);
    }
    if let Ok(server) = key::server_id(data) {
        assert_eq!(key::server(server)[2..], data[2..]);
    }
    if let Ok(cookie) = key::listing_cookie(data) {
        assert_eq!(key::listing(weir_types::FileId(0), cookie)[10..], data[10..]);
    }
}

pub(crate) fn record_key_example(g: &mut Gen) -> Vec<u8> {
    match g.below(5) {
        0 => key::garbage(Sample::sample(g), ObjectId::sample(g)),
        1 => key::orphan(Sample::sample(g)),
        2 => key::dead(Sample::sample(g), Sample::sample(g)),
        3 => key::server(Sample::sample(g)),
        _ => key::listing(Sample::sample(g), Sample::sample(g)),
    }
}

impl Sample for Inode {
    fn sample(g: &mut Gen) -> Self {
        let kind = FileKind::sample(g);
        let body = match kind {
            FileKind::Directory => Body::Directory(Sample::sample(g)),
            FileKind::File => Body::File(Sample::sample(g)),
            _ => Body::Other,
        };
        let mut inode = Inode::new(kind, Sample::sample(g), Sample::sample(g), body);
        inode.mode = Sample::sample(g);
        inode.nlink = Sample::sample(g);
        inode.size = Sample::sample(g);
        inode.generation = Sample::sample(g);
        inode.xattrs = Sample::sample(g);
        inode.birth = Sample::sample(g);
        inode.has_acl = Sample::sample(g);
        inode
    }
}

impl Sample for SegmentPage {
    fn sample(g: &mut Gen) -> Self {
        SegmentPage { segments: FileLayout::sample(g).segments }
    }
}

impl Sample for QuotaRecord {
    fn sample(g: &mut Gen) -> Self {
        QuotaRecord {
            limits: Sample::sample(g),
            used_bytes: u128::from(g.number()) << g.below(64),
            used_files: Sample::sample(g),
            counted_to: Sample::sample(g),
        }
    }
}

impl Sample for WorkingKeys {
    fn sample(g: &mut Gen) -> Self {
        let of = [TargetId(1), TargetId::sample(g)];
        let (then, now) = (g.number(), g.number());
        WorkingKeys::default().rotated(&of, then, now, |_| true).unwrap_or_default()
    }
}

impl Sample for TargetKeys {
    fn sample(g: &mut Gen) -> Self {
        let (target, now) = (TargetId::sample(g), g.one_in(2));
        let begun = TargetKeys::default().begun(target, now, |_| true).unwrap_or_default();
        let has = (Sample::sample(g), Sample::sample(g));
        begun.switched(TargetId(1), has, Sample::sample(g), |_| true).unwrap_or_default()
    }
}

impl Sample for Past {
    fn sample(g: &mut Gen) -> Self {
        let online = (0..g.below(MAX_PAST as u64 + 2)).map(|_| Sample::sample(g));
        online.fold(Past::default(), Past::and)
    }
}

crate::sample::sample_struct! {
    WrittenPage { columns }
    Directory { next_cookie, default_layout }
    RegularFile { spec, base, epoch, list, next_segment, io_bytes, pending_truncate }
    Dentry { file, kind, cookie }
    ListEntry { name, file, kind }
    Orphan { counted_in }
    DeadList { xattrs, objects_done }
    SessionRecord { client, name, ended }
    SlotRecord { sequence, status, body }
    TargetRecord { target, state, since, draining, joins, past, run, anew }
    ServerRecord { host, domain, tcp, unix, targets }
    ClientRecord { standing, name, restrictions }
    FormatRecord { cluster, key_check, default_layout }
}
