//! Valid values of every type on the wire, made from a seed: property-style
//! generators whose encodings the fuzzers start from.

use crate::random::Gen;
use weir_layout::{Region, RegionList};
use weir_types::codec::Bytes;
use weir_types::limits::{MAX_CODED_COLUMNS, MAX_PARITIES, MIN_CODED_COLUMNS};
use weir_types::{
    Attr, Caller, ClientId, ClientStanding, Column, ColumnIndex, Consistency, CopyIndex, DiskId,
    Duplication, Epoch, Error, ErrorKind, Extras, FileId, FileKind, FileLayout, Filling, FsUsage,
    Generation, JobId, KeyGeneration, LayoutKind, LayoutSpec, ObjectId, Placement, Rank,
    Restrictions, Scheme, Segment, SegmentIndex, SegmentState, ServerId, SessionId, SlotId,
    SlotSequence, Squash, StripeMap, TargetId, Timestamp,
};
use weir_wire::audit::{AuditPage, AuditRecord, ListAuditRequest, ListMetaAuditRequest};
use weir_wire::capability::{Capability, Rights, SignedCapability};
use weir_wire::data::{
    AcceptLossRequest, Access, AdminAccess, AlignRequest, AllocateRequest, Copied, CopyAccess,
    CopyPiece, CopyRequest, Damage, FenceRequest, ForwardRequest, Lacking, LackingPage,
    ListLackingRequest, ListObjectsRequest, ListReadersRequest, LoadRequest, Mended,
    NoteGapRequest, ObjectEntry, ObjectLen, ObjectPage, ObjectStat, PingRequest, PunchRequest,
    ReadFlags, ReadRequest, ReaderEntry, ReadersPage, Relay, RemoveObjectsRequest, RepairRequest,
    ScrubCursor, ScrubFinding, ScrubPage, ScrubRequest, SeekRequest, ServerStatus, StageRequest,
    Staged, StatObjectRequest, StatusRequest, SyncRequest, TargetStatus, TruncateRequest,
    WriteFlags, WriteRequest,
};
use weir_wire::handshake::{Attempt, Challenge, Hello, Identity, KeyAnswer, Proof, Welcome};
use weir_wire::holders::{
    Hold, HoldKind, HoldPage, HoldPlace, ListHoldsRequest, ListSessionsRequest, SessionPage,
    SessionStanding, SessionView,
};
use weir_wire::lease::{
    AckEventsRequest, AcquireRequest, Also, EndSessionRequest, Event, EventAck, EventKind, Events,
    Granted, HeldLease, LeaseMode, LeaseRange, PollEventsRequest, RecoveredRequest,
};
use weir_wire::lock::{
    CancelLockRequest, Lock, LockMode, LockOutcome, LockWait, ReassertLocksRequest, SetLockRequest,
    TestLockRequest,
};
use weir_wire::map::{ClusterMap, Online, ServerEntry, Standing, TargetEntry, TargetState};
use weir_wire::meta::{
    AccessedRequest, AdminCapabilityRequest, ClientInfo, ClientPage, CloseRequest,
    CommitSizeRequest, CountOpensRequest, CreateRequest, DirEntry, DirPage, ExportMetaRequest,
    ExportPage, ExportPlace, ExportRecord, ExtendRequest, FileAccess, GetAttrRequest,
    GetDefaultLayoutRequest, GetLayoutRequest, GetMapRequest, GetTicketsRequest, GetXattrRequest,
    LayoutPage, LinkRequest, ListClientsRequest, ListXattrRequest, LookupRequest, MetaPrefix,
    MkdirRequest, MutationId, OpenFile, OpenRequest, PendingTruncate, ReaddirRequest,
    ReadlinkRequest, ReassertRequest, RebalanceRequest, RemoveXattrRequest, Removed, RenameRequest,
    RmdirRequest, SetAttrRequest, SetClientRequest, SetLayoutRequest, SetTime, SetXattrRequest,
    StatfsRequest, SymlinkRequest, SyncMetaRequest, TargetLoad, TruncateDoneRequest, UnlinkRequest,
    VerifiedMeta, VerifyMetaRequest, WrittenColumns, XattrMode,
};
use weir_wire::peer::{
    Build, Copies, CopyPage, Fill, FindCopiesRequest, FindPeerRequest, HeartbeatReply,
    HeartbeatRequest, ListCopiesRequest, OwnKey, Peer, RegisterRequest, Revocation, Revocations,
    TargetReport,
};
use weir_wire::quota::{
    ListQuotasRequest, QuotaChange, QuotaInfo, QuotaLimits, QuotaPage, QuotaSubject, Room,
    RoomRequest, SetQuotaRequest,
};
use weir_wire::targets::{
    AcceptLossesRequest, CountCopiesRequest, FreeNumbersRequest, KeyRotation, ListTargetsRequest,
    LossPage, LostColumn, MachineLoad, Numbers, Removal, RemovalPlace, RemoveServerRequest,
    RemoveTargetRequest, RotateKeysRequest, SetTargetRequest, TargetPage, TargetView, TargetWork,
};
use weir_wire::ticket::{SealedTicket, Ticket};
use weir_wire::{Key, Level, Mac};

/// The key of every sample that needs one, and of the targets that check MACs.
pub fn key() -> Key {
    Key::from_bytes([0x5a; 32])
}

/// A type that valid values can be made of.
pub trait Sample {
    /// A value that its decoder accepts.
    fn sample(g: &mut Gen) -> Self;
}

macro_rules! sample_int {
    ($($t:ty)*) => {$(
        impl Sample for $t {
            fn sample(g: &mut Gen) -> Self {
                g.number() as $t
            }
        }
    )*};
}
sample_int!(u8 u16 u32 u64 i64);

macro_rules! sample_newtype {
    ($($t:ident)*) => {$(
        impl Sample for $t {
            fn sample(g: &mut Gen) -> Self {
                $t(Sample::sample(g))
            }
        }
    )*};
}
sample_newtype!(
    FileId TargetId DiskId ServerId ClientId SessionId Epoch Generation KeyGeneration
    SegmentIndex ColumnIndex CopyIndex JobId Rank SlotId SlotSequence Timestamp Mac
);

macro_rules! sample_one_of {
    ($($t:ident: $values:expr;)*) => {$(
        impl Sample for $t {
            fn sample(g: &mut Gen) -> Self {
                g.pick(&$values)
            }
        }
    )*};
}
sample_one_of! {
    bool: [false, true];
    FileKind: [
        FileKind::File, FileKind::Directory, FileKind::Symlink, FileKind::Fifo, FileKind::Socket,
        FileKind::CharDevice, FileKind::BlockDevice,
    ];
    Consistency: Consistency::ALL;
    Level: Level::ALL;
    Rights: [Rights::READ, Rights::WRITE, Rights::READ_WRITE];
    Scheme: [Scheme::Copies, Scheme::Coded];
    Placement: [
        Placement::Usual,
        Placement::Chained,
        Placement::Groups,
        Placement::Random,
        Placement::Graduated,
    ];
    Duplication: [
        Duplication::ServerSync,
        Duplication::ServerAsync,
        Duplication::ClientSync,
        Duplication::ClientAsync,
        Duplication::Hybrid,
    ];
    SegmentState: [SegmentState::Open, SegmentState::Sealed];
    LayoutKind: [LayoutKind::Striped, LayoutKind::Fragments, LayoutKind::Chunked];
    XattrMode: [XattrMode::Any, XattrMode::Create, XattrMode::Replace];
    LeaseMode: [LeaseMode::Read, LeaseMode::Write];
    LockMode: [LockMode::Unlock, LockMode::Shared, LockMode::Exclusive];
    LockWait: [LockWait::No, LockWait::Yes, LockWait::UnlessDeadlock];
    LockOutcome: [LockOutcome::Granted, LockOutcome::Conflict, LockOutcome::Waiting];
    SessionStanding: [SessionStanding::Live, SessionStanding::Silent, SessionStanding::CutOff];
    HoldKind: [HoldKind::Posix, HoldKind::Flock, HoldKind::Lease];
    ClientStanding: [
        ClientStanding::Ordinary, ClientStanding::Administrator, ClientStanding::Revoked,
    ];
    Squash: [Squash::None, Squash::Root, Squash::All];
    TargetState: [
        TargetState::Online, TargetState::Offline, TargetState::OutOfService, TargetState::Syncing, TargetState::Suspect
    ];
    Mended: [Mended::No, Mended::Done, Mended::UnderWay, Mended::Failed,];
    Damage: [
        Damage::Block, Damage::Header, Damage::BehindEnd, Damage::Unreadable, Damage::Stranger,
        Damage::Superblock, Damage::IntentLog,
    ];
    ErrorKind: ErrorKind::ALL;
}

impl Sample for () {
    fn sample(_: &mut Gen) -> Self {}
}
impl<const N: usize> Sample for [u8; N] {
    fn sample(g: &mut Gen) -> Self {
        std::array::from_fn(|_| g.any() as u8)
    }
}
impl Sample for Bytes {
    fn sample(g: &mut Gen) -> Self {
        Bytes(g.bytes(40))
    }
}
impl Sample for String {
    fn sample(g: &mut Gen) -> Self {
        (0..g.below(20)).map(|_| g.pick(&['a', '7', ':', '.', '/', 'é', '水'])).collect()
    }
}
impl<T: Sample> Sample for Option<T> {
    fn sample(g: &mut Gen) -> Self {
        (!g.one_in(3)).then(|| T::sample(g))
    }
}
impl<T: Sample> Sample for Vec<T> {
    fn sample(g: &mut Gen) -> Self {
        (0..g.below(4)).map(|_| T::sample(g)).collect()
    }
}
impl<A: Sample, B: Sample> Sample for (A, B) {
    fn sample(g: &mut Gen) -> Self {
        (A::sample(g), B::sample(g))
    }
}

impl Sample for Error {
    fn sample(g: &mut Gen) -> Self {
        Error { at: Sample::sample(g), ..Error::new(ErrorKind::sample(g), String::sample(g)) }
    }
}

impl Sample for StripeMap {
    fn sample(g: &mut Gen) -> Self {
        StripeMap { unit_bytes: 4096 << g.below(6), columns: 1 + g.below(9) as u16 }
    }
}

impl Sample for Region {
    fn sample(g: &mut Gen) -> Self {
        let (size, reach) = (1 + g.below(40_000), 1 << g.below(40));
        Region {
            offset: g.below(reach),
            size,
            stride: if g.one_in(3) { size } else { g.below(100_000) },
            count: 1 + g.below(20) as u32,
        }
    }
}

impl Sample for RegionList {
    fn sample(g: &mut Gen) -> Self {
        let regions = (0..=g.below(4)).map(|_| Region::sample(g)).collect();
        RegionList::new(regions).unwrap_or_else(|e| panic!("a sample is invalid: {e}"))
    }
}

impl Sample for FileLayout {
    fn sample(g: &mut Gen) -> Self {
        let count = 1 + g.below(4);
        let mut start = 0;
        let mut segments = Vec::new();
        for number in 0..count {
            let open = number + 1 == count && g.one_in(2);
            let segment = sample_segment(g, number as u32, start, open);
            start = segment.end();
            segments.push(segment);
        }
        FileLayout {
            kind: Sample::sample(g),
            base: Sample::sample(g),
            epoch: Sample::sample(g),
            duplication: Sample::sample(g),
            acting: Sample::sample(g),
            placement: Sample::sample(g),
            segments,
        }
    }
}

impl Sample for LayoutSpec {
    fn sample(g: &mut Gen) -> Self {
        let parities = g.below(MAX_PARITIES as u64 + 1) as u8;
        LayoutSpec {
            kind: Sample::sample(g),
            base: Sample::sample(g),
            count: Sample::sample(g),
            stripe_unit_bytes: Sample::sample(g),
            segment_bytes: Sample::sample(g),
            fragment_bytes: Sample::sample(g),
            copies: g.below(9) as u8,
            duplication: Sample::sample(g),
            placement: Sample::sample(g),
            parities,
            mirrors: parities > 0 && g.one_in(2),
            encode_after_s: if parities > 0 { Sample::sample(g) } else { 0 },
        }
    }
}

fn sample_segment(g: &mut Gen, number: u32, start: u64, open: bool) -> Segment {
    let stripe = StripeMap::sample(g);
    let copies = 1 + g.below(2) as u32;
    let filling = Filling { column: ColumnIndex(0), copy: CopyIndex(0) };
    let column = |i: u16| Column {
        targets: (0..copies).map(|copy| TargetId(u32::from(i) * copies + copy)).collect(),
    };
    let coded = (MIN_CODED_COLUMNS..=MAX_CODED_COLUMNS).contains(&usize::from(stripe.columns));
    let parities = if coded { g.below(MAX_PARITIES as u64 + 1) as u16 } else { 0 };
    let (scheme, state) = match parities {
        0 => (Scheme::Copies, SegmentState::Open),
        _ => (Sample::sample(g), SegmentState::Sealed),
    };
    Segment {
        index: SegmentIndex(number),
        start,
        len: (!open).then(|| 1 + g.below(1 << 30)),
        stripe_unit_bytes: stripe.unit_bytes,
        columns: (0..stripe.columns).map(column).collect(),
        scheme,
        state,
        parities: (0..parities).map(|j| column(stripe.columns + j)).collect(),
        epoch: Sample::sample(g),
        filling: (0..copies.min(2) - 1).filter(|_| g.one_in(2)).map(|_| filling).collect(),
    }
}

impl Sample for SealedTicket {
    fn sample(g: &mut Gen) -> Self {
        SealedTicket::seal(Ticket::sample(g), &key(), &key())
    }
}

impl Sample for SignedCapability {
    fn sample(g: &mut Gen) -> Self {
        let capability = Capability::sample(g);
        let sign = |i| (TargetId(i), capability.sign(TargetId(i), &key()));
        let macs = (0..g.below(5) as u32).map(sign).collect();
        SignedCapability { capability, macs }
    }
}

impl Sample for Identity {
    fn sample(g: &mut Gen) -> Self {
        match g.below(4) {
            0 => Identity::Client(Sample::sample(g)),
            1 => Identity::Ticket(Sample::sample(g), Sample::sample(g)),
            2 => Identity::Server(Sample::sample(g)),
            _ => Identity::Metadata,
        }
    }
}

impl Sample for EventKind {
    fn sample(g: &mut Gen) -> Self {
        match g.below(5) {
            0 => EventKind::Name { dir: Sample::sample(g), name: Sample::sample(g) },
            1 => EventKind::Attributes { file: Sample::sample(g) },
            2 => EventKind::Recall(Sample::sample(g)),
            3 => EventKind::Removal { file: Sample::sample(g) },
            _ => EventKind::Report { file: Sample::sample(g) },
        }
    }
}

impl Sample for SetTime {
    fn sample(g: &mut Gen) -> Self {
        if g.one_in(2) { SetTime::Now } else { SetTime::At(Sample::sample(g)) }
    }
}

impl Sample for QuotaSubject {
    fn sample(g: &mut Gen) -> Self {
        let which =
            [QuotaSubject::User(0), QuotaSubject::Group(0), QuotaSubject::Directory(FileId(0))];
        match g.pick(&which) {
            QuotaSubject::User(_) => QuotaSubject::User(Sample::sample(g)),
            QuotaSubject::Group(_) => QuotaSubject::Group(Sample::sample(g)),
            QuotaSubject::Directory(_) => QuotaSubject::Directory(Sample::sample(g)),
        }
    }
}

impl Sample for QuotaChange {
    fn sample(g: &mut Gen) -> Self {
        match g.pick(&[0, 1, 2]) {
            0 => QuotaChange::Set(Sample::sample(g)),
            1 => QuotaChange::Remove,
            _ => QuotaChange::Recount,
        }
    }
}

/// Samples of structs, field by field.
macro_rules! sample_struct {
    ($($t:ident { $($field:ident),* })*) => {$(
        impl $crate::sample::Sample for $t {
            fn sample(g: &mut $crate::random::Gen) -> Self {
                let _ = &g;
                $t { $($field: $crate::sample::Sample::sample(g)),* }
            }
        }
    )*};
}
pub(crate) use sample_struct;

sample_struct! {
    Attr {
        file, kind, mode, nlink, uid, gid, rdev, size, atime, mtime, ctime, change, generation,
        preferred_io_bytes, birth, extras, sparse
    }
    Extras { any, acl, default_acl }
    FsUsage { total_bytes, free_bytes, total_files, free_files }
    Caller { uid, gid, groups }
    ObjectId { file, segment, column, copy }
    Capability { file, session, user, rights, version, key_generation, expires_unix_ms }
    Ticket { server, client, session, expires_unix_ms, nonce }
    MutationId { slot, sequence }
    MetaPrefix { caller, mutation }
    ReadFlags { locked, unchecked, as_is, near }
    WriteFlags { sync, later }
    Access { target, object, generation, capability, mac, copies, relay }
    CopyAccess { target, mac, filling }
    Relay { by, epoch, lacking, alone, vouched, way }
    NoteGapRequest { target, object, behind, copy, start, end, told, first, filled, epoch }
    AlignRequest { access, len }
    RepairRequest { access, copy, start, end }
    Filling { column, copy }
    ObjectLen { len }
    ObjectStat { exists, len, generation, allocated }
    TargetStatus { target, dir, usage, in_flight, queue_depth, trouble }
    ServerStatus { version, uptime_ms, connections, counters, targets }
    ReadRequest { access, stripe, flags, regions }
    WriteRequest { access, stripe, flags, regions, staged }
    StageRequest { access, stripe, regions, ticket }
    ForwardRequest { access, to }
    Staged { ticket, copies }
    SyncRequest { access }
    TruncateRequest { access, len }
    StatObjectRequest { access }
    AdminAccess { target, capability, mac }
    ObjectEntry { object, len }
    ObjectPage { objects, strays, next }
    ScrubCursor { hash, done, offset }
    ScrubFinding { object, path, offset, len, damage, what, mended }
    ScrubPage { findings, objects, bytes, next }
    ListObjectsRequest { access, after, max_objects }
    ScrubRequest { access, cursor, budget_bytes }
    RemoveObjectsRequest { access, objects }
    PunchRequest { access, offset, len }
    AllocateRequest { access, offset, len }
    SeekRequest { access, offset, hole }
    FenceRequest { access }
    CopyPiece { from, to, len }
    Copied { len, written }
    CopyRequest { access, source, pieces }
    PingRequest {}
    LoadRequest { target, first }
    ListReadersRequest { target, after, max_readers }
    ReaderEntry { job, rank, progress, work_mib, age_ms, first_bytes, other_bytes, near_bytes }
    ReadersPage { readers, end }
    StatusRequest {}
    PendingTruncate { generation, size }
    TargetLoad { target, us_per_mib, in_flight }
    FileAccess { file, at, always }
    OpenFile { attr, consistency, layout, more_segments, capability, pending_truncate, loads }
    DirEntry { name, file, kind, cookie, attr, layout }
    DirPage { entries, end, last }
    LayoutPage { layout, more_segments, generation, capability }
    Removed { attr }
    GetMapRequest { have }
    GetTicketsRequest { servers }
    LookupRequest { parent, name }
    GetAttrRequest { file }
    SetAttrRequest { file, mode, uid, gid, size, atime, mtime }
    CreateRequest { parent, name, kind, mode, umask, rdev, exclusive, truncate, rights, layout }
    MkdirRequest { parent, name, mode, umask }
    UnlinkRequest { parent, name, hold }
    RmdirRequest { parent, name }
    RenameRequest { parent, name, new_parent, new_name, no_replace, exchange, whiteout, hold }
    LinkRequest { file, parent, name }
    SymlinkRequest { parent, name, target }
    ReadlinkRequest { file }
    ReaddirRequest { dir, cookie, last, max_entries, attributes, layouts }
    GetXattrRequest { file, name }
    SetXattrRequest { file, name, value, mode }
    ListXattrRequest { file }
    RemoveXattrRequest { file, name }
    StatfsRequest { file }
    OpenRequest { file, rights }
    CloseRequest { files, unconfirmed, written }
    AccessedRequest { files }
    ReassertRequest { first, files, held, leases, last }
    LeaseRange { file, start, end, mode }
    HeldLease { lease, generation }
    Event { number, what }
    EventAck { number, forgotten, unconfirmed, holds }
    Events { events, lease_ms, lapsed }
    Also { attributes }
    Granted { lease, attr, pending_truncate }
    PollEventsRequest { have }
    AckEventsRequest { acks }
    AcquireRequest { lease }
    RecoveredRequest { file, generation, size }
    EndSessionRequest {}
    Lock { file, owner, flock, start, last, mode, pid }
    SetLockRequest { lock, number, floor, wait }
    TestLockRequest { lock }
    CancelLockRequest { number, floor }
    ReassertLocksRequest { locks }
    GetLayoutRequest { file, offset, rights }
    ExtendRequest { file, offset, from, waits }
    WrittenColumns { segment, start, columns }
    CommitSizeRequest { file, size, generation, mtime, written, ranges, sparse, durable }
    TruncateDoneRequest { file, generation }
    SetLayoutRequest { file, layout }
    GetDefaultLayoutRequest { dir }
    SyncMetaRequest {}
    AdminCapabilityRequest {}
    CountOpensRequest { files }
    ExportPlace { key, offset }
    ExportRecord { key, value }
    ExportPage { snapshot, cluster, sequence, records, next }
    ExportMetaRequest { snapshot, place }
    VerifiedMeta { damage, bytes, next }
    VerifyMetaRequest { place }
    Restrictions { read_only, squash, anon_uid, anon_gid, subtree }
    ClientInfo { client, name, standing, restrictions }
    ClientPage { clients, end }
    SetClientRequest { info }
    ListClientsRequest { after }
    SessionView {
        session, client, key_name, program, host, since_ms, silent_ms, open_files, leased_files,
        locks, waiting, standing
    }
    SessionPage { sessions, lease_ms, timeout_ms, end }
    ListSessionsRequest { after }
    HoldPlace { file, skip }
    Hold { session, file, path, kind, exclusive, start, last, pid, waits_ms }
    HoldPage { holds, next }
    ListHoldsRequest { place, file, session, kind, waiting }
    QuotaLimits { bytes, files }
    Room { up_to }
    QuotaInfo { subject, limits, used_bytes, used_files, granted_bytes, counting }
    QuotaPage { quotas, end }
    RoomRequest { file, end }
    SetQuotaRequest { subject, change }
    ListQuotasRequest { after, own }
    TargetWork { read_bytes, written_bytes, queued, in_flight, us_per_mib, piece_kib, serves_us_per_mib }
    MachineLoad { cpu_permille, received_bytes_per_s, sent_bytes_per_s }
    TargetView {
        target, server, host, domain, state, suspect, draining, since_ms, silent_ms, held_ms, usage,
        disk, behind, behind_per_s, behind_expected_s, trouble, hangs_ms, given_up, work, machine,
        slow
    }
    TargetPage { targets, end }
    RemovalPlace { key, last, files }
    Removal { files, next }
    ListTargetsRequest { after }
    SetTargetRequest { target, draining }
    RemoveTargetRequest { target, force, place }
    Numbers { server, target }
    KeyRotation { generation, old_until_unix_ms }
    RotateKeysRequest { target, now, own }
    CountCopiesRequest { targets, place }
    FreeNumbersRequest {}
    RemoveServerRequest { server }
    RebalanceRequest { within_percent, stop }
    Online { from, until }
    TargetEntry { target, state, since, past, anew, draining, usage, disk }
    ServerEntry { server, host, domain, tcp, unix, targets }
    ClusterMap { epoch, servers }
    LostColumn { segment, start, column, targets }
    LossPage { columns, next }
    AcceptLossesRequest { file, from, accept }
    Lacking { object, ranges }
    LackingPage { objects, next }
    ListLackingRequest { access, from, max_objects }
    ListAuditRequest { access, after }
    ListMetaAuditRequest { after }
    AuditPage { records, more }
    AuditRecord {
        number, client, session, user, file, op, rights, status, about, count, bytes,
        first_unix_ms, last_unix_ms
    }
    AcceptLossRequest { access, object, start, end }
    TargetReport {
        target, usage, disk, trouble, removed, gaps, filled, built, unreachable, distrusted,
        hangs_ms, given_up, work, own_key, own_key_from
    }
    Fill { from, object, to, generation }
    Build { object, to, generation, columns, parities, coded, len }
    Copies { copies, generation, fence, sealed, columns, parities, capability }
    FindCopiesRequest { objects }
    CopyPage { objects, next }
    ListCopiesRequest { target, start, end, after }
    Standing { target, state, since, forgot }
    Revocation { number, client, file, until_unix_ms }
    Revocations { list, upto, more }
    HeartbeatReply { epoch, in_effect, standings, serve_ms, remove, fill, build, distrust, give_up, busy_percent, protection, oldest_keys, own_keys, revoked, interval_ms }
    OwnKey { target, generation, from, nonce, hidden_key }
    RegisterRequest { host, domain, tcp, unix, first, runs, targets }
    HeartbeatRequest { acting, revoked, machine, targets }
    Peer { entry, ticket }
    FindPeerRequest { target }
    Attempt { run, number }
    Hello { version, identity, nonce, session, name, host, protection }
    Challenge { nonce, protection, proof }
    Proof { opening, proof }
    KeyAnswer { message }
    Welcome { session, cluster, instance, runs }
}
