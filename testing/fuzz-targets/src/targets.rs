//! The table of targets. One entry for each decoder; the names are those of
//! the fuzzing binaries too.

use crate::random::Gen;
use crate::sample::Sample;
use crate::{c, disk, frames, fuse, layouts, records, sio};
use weir_types::codec::Bytes;
use weir_types::{Attr, Decode, Encode, Error, FileLayout};
use weir_wire::Request;
use weir_wire::audit::{ListAuditRequest, ListMetaAuditRequest};
use weir_wire::data::*;
use weir_wire::handshake::{Challenge, Hello, Proof, Welcome};
use weir_wire::holders::{ListHoldsRequest, ListSessionsRequest};
use weir_wire::lease::*;
use weir_wire::lock::{CancelLockRequest, ReassertLocksRequest, SetLockRequest, TestLockRequest};
use weir_wire::map::ClusterMap;
use weir_wire::message::Op;
use weir_wire::meta::*;
use weir_wire::peer::*;
use weir_wire::quota::{ListQuotasRequest, RoomRequest, SetQuotaRequest};
use weir_wire::targets::{
    AcceptLossesRequest, CountCopiesRequest, FreeNumbersRequest, ListTargetsRequest,
    RemoveServerRequest, RemoveTargetRequest, RotateKeysRequest, SetTargetRequest,
};

/// A decoder under test.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, which is that of its function.
    pub name: &'static str,
    /// Decodes bytes and panics if a promise of the decoder is broken.
    pub run: fn(&[u8]),
    /// Makes valid bytes.
    pub example: fn(&mut Gen) -> Vec<u8>,
}

/// The targets of an operation's messages.
#[derive(Clone, Copy, Debug)]
pub struct OpTargets {
    /// The operation.
    pub op: Op,
    /// The target of the message that asks.
    pub request: &'static str,
    /// The target of the message that answers.
    pub reply: &'static str,
}

/// What decodes encodes to the same bytes again: there is one way to write a
/// value, so what a MAC or checksum covers cannot be said in other bytes.
fn canonical<T: Decode + Encode>(data: &[u8]) {
    if let Ok(value) = T::from_bytes(data) {
        assert_eq!(value.to_bytes(), data, "decoded, and encoded to other bytes");
    }
}

fn example<T: Sample + Encode + Decode>(g: &mut Gen) -> Vec<u8> {
    let bytes = T::sample(g).to_bytes();
    assert!(T::from_bytes(&bytes).is_ok(), "a valid value was refused");
    bytes
}

/// Declares the functions and the two tables.
macro_rules! targets {
    (
        messages { $($name:ident: $ty:ty;)* }
        requests { $($ask:ident / $answer:ident: $request:ident;)* }
        metadata { $($mask:ident / $manswer:ident: $mrequest:ident;)* }
        others { $($other:ident: $run:path, $example:path;)* }
    ) => {
        $(
            #[doc = concat!("Decodes `", stringify!($ty), "`.")]
            pub fn $name(data: &[u8]) {
                canonical::<$ty>(data);
            }
        )*
        $(
            #[doc = concat!("Decodes [`", stringify!($request), "`].")]
            pub fn $ask(data: &[u8]) {
                canonical::<$request>(data);
            }
            #[doc = concat!("Decodes what answers [`", stringify!($request), "`].")]
            pub fn $answer(data: &[u8]) {
                canonical::<<$request as Request>::Reply>(data);
            }
        )*
        $(
            #[doc = concat!("Decodes [`", stringify!($mrequest), "`] behind its [`MetaPrefix`].")]
            pub fn $mask(data: &[u8]) {
                canonical::<(MetaPrefix, $mrequest)>(data);
            }
            #[doc = concat!("Decodes what answers [`", stringify!($mrequest), "`].")]
            pub fn $manswer(data: &[u8]) {
                canonical::<<$mrequest as Request>::Reply>(data);
            }
        )*
        $(
            #[doc = concat!("See [`", stringify!($run), "`].")]
            pub fn $other(data: &[u8]) {
                $run(data);
            }
        )*

        /// Every decoder.
        pub const TARGETS: &[Target] = &[
            $(Target { name: stringify!($name), run: $name, example: example::<$ty> },)*
            $(
                Target { name: stringify!($ask), run: $ask, example: example::<$request> },
                Target {
                    name: stringify!($answer),
                    run: $answer,
                    example: example::<<$request as Request>::Reply>,
                },
            )*
            $(
                Target {
                    name: stringify!($mask),
                    run: $mask,
                    example: example::<(MetaPrefix, $mrequest)>,
                },
                Target {
                    name: stringify!($manswer),
                    run: $manswer,
                    example: example::<<$mrequest as Request>::Reply>,
                },
            )*
            $(Target { name: stringify!($other), run: $other, example: $example },)*
        ];

        /// The messages of every operation.
        pub const OPS: &[OpTargets] = &[
            OpTargets { op: Op::Hello, request: "hello", reply: "challenge" },
            OpTargets { op: Op::Challenge, request: "challenge", reply: "proof" },
            OpTargets { op: Op::Proof, request: "proof", reply: "welcome" },
            $(OpTargets {
                op: <$request as Request>::OP,
                request: stringify!($ask),
                reply: stringify!($answer),
            },)*
            $(OpTargets {
                op: <$mrequest as Request>::OP,
                request: stringify!($mask),
                reply: stringify!($manswer),
            },)*
        ];
    };
}

targets! {
    messages {
        hello: Hello;
        challenge: Challenge;
        proof: Proof;
        welcome: Welcome;
        error: Error;
        cluster_map: ClusterMap;
        attr: Attr;
        also: Also;
        names: Vec<Bytes>;
    }
    requests {
        ping_request / ping_reply: PingRequest;
        load_request / load_reply: LoadRequest;
        list_readers_request / list_readers_reply: ListReadersRequest;
        status_request / status_reply: StatusRequest;
        read_request / read_reply: ReadRequest;
        write_request / write_reply: WriteRequest;
        sync_request / sync_reply: SyncRequest;
        truncate_request / truncate_reply: TruncateRequest;
        stat_object_request / stat_object_reply: StatObjectRequest;
        list_objects_request / list_objects_reply: ListObjectsRequest;
        scrub_request / scrub_reply: ScrubRequest;
        remove_objects_request / remove_objects_reply: RemoveObjectsRequest;
        punch_request / punch_reply: PunchRequest;
        allocate_request / allocate_reply: AllocateRequest;
        seek_request / seek_reply: SeekRequest;
        fence_request / fence_reply: FenceRequest;
        copy_request / copy_reply: CopyRequest;
        register_request / register_reply: RegisterRequest;
        heartbeat_request / heartbeat_reply: HeartbeatRequest;
        find_peer_request / find_peer_reply: FindPeerRequest;
        find_copies_request / find_copies_reply: FindCopiesRequest;
        list_copies_request / list_copies_reply: ListCopiesRequest;
        align_request / align_reply: AlignRequest;
        note_gap_request / note_gap_reply: NoteGapRequest;
        repair_request / repair_reply: RepairRequest;
        stage_request / stage_reply: StageRequest;
        forward_request / forward_reply: ForwardRequest;
        list_lacking_request / list_lacking_reply: ListLackingRequest;
        accept_loss_request / accept_loss_reply: AcceptLossRequest;
        list_audit_request / list_audit_reply: ListAuditRequest;
    }
    metadata {
        get_map_request / get_map_reply: GetMapRequest;
        get_tickets_request / get_tickets_reply: GetTicketsRequest;
        lookup_request / lookup_reply: LookupRequest;
        getattr_request / getattr_reply: GetAttrRequest;
        setattr_request / setattr_reply: SetAttrRequest;
        create_request / create_reply: CreateRequest;
        mkdir_request / mkdir_reply: MkdirRequest;
        unlink_request / unlink_reply: UnlinkRequest;
        rmdir_request / rmdir_reply: RmdirRequest;
        rename_request / rename_reply: RenameRequest;
        link_request / link_reply: LinkRequest;
        symlink_request / symlink_reply: SymlinkRequest;
        readlink_request / readlink_reply: ReadlinkRequest;
        readdir_request / readdir_reply: ReaddirRequest;
        getxattr_request / getxattr_reply: GetXattrRequest;
        setxattr_request / setxattr_reply: SetXattrRequest;
        listxattr_request / listxattr_reply: ListXattrRequest;
        removexattr_request / removexattr_reply: RemoveXattrRequest;
        statfs_request / statfs_reply: StatfsRequest;
        open_request / open_reply: OpenRequest;
        close_request / close_reply: CloseRequest;
        reassert_request / reassert_reply: ReassertRequest;
        poll_events_request / poll_events_reply: PollEventsRequest;
        ack_events_request / ack_events_reply: AckEventsRequest;
        acquire_request / acquire_reply: AcquireRequest;
        recovered_request / recovered_reply: RecoveredRequest;
        end_session_request / end_session_reply: EndSessionRequest;
        set_lock_request / set_lock_reply: SetLockRequest;
        test_lock_request / test_lock_reply: TestLockRequest;
        cancel_lock_request / cancel_lock_reply: CancelLockRequest;
        reassert_locks_request / reassert_locks_reply: ReassertLocksRequest;
        get_layout_request / get_layout_reply: GetLayoutRequest;
        extend_request / extend_reply: ExtendRequest;
        commit_size_request / commit_size_reply: CommitSizeRequest;
        truncate_done_request / truncate_done_reply: TruncateDoneRequest;
        set_layout_request / set_layout_reply: SetLayoutRequest;
        get_default_layout_request / get_default_layout_reply: GetDefaultLayoutRequest;
        sync_meta_request / sync_meta_reply: SyncMetaRequest;
        accessed_request / accessed_reply: AccessedRequest;
        admin_capability_request / admin_capability_reply: AdminCapabilityRequest;
        count_opens_request / count_opens_reply: CountOpensRequest;
        export_meta_request / export_meta_reply: ExportMetaRequest;
        verify_meta_request / verify_meta_reply: VerifyMetaRequest;
        set_client_request / set_client_reply: SetClientRequest;
        list_clients_request / list_clients_reply: ListClientsRequest;
        list_sessions_request / list_sessions_reply: ListSessionsRequest;
        list_holds_request / list_holds_reply: ListHoldsRequest;
        room_request / room_reply: RoomRequest;
        set_quota_request / set_quota_reply: SetQuotaRequest;
        list_quotas_request / list_quotas_reply: ListQuotasRequest;
        list_targets_request / list_targets_reply: ListTargetsRequest;
        set_target_request / set_target_reply: SetTargetRequest;
        remove_target_request / remove_target_reply: RemoveTargetRequest;
        remove_server_request / remove_server_reply: RemoveServerRequest;
        rebalance_request / rebalance_reply: RebalanceRequest;
        accept_losses_request / accept_losses_reply: AcceptLossesRequest;
        free_numbers_request / free_numbers_reply: FreeNumbersRequest;
        rotate_keys_request / rotate_keys_reply: RotateKeysRequest;
        count_copies_request / count_copies_reply: CountCopiesRequest;
        list_meta_audit_request / list_meta_audit_reply: ListMetaAuditRequest;
    }
    others {
        frame_header: frames::header, frames::header_example;
        frame_checks: frames::checks, frames::checks_example;
        sealed_frame: frames::sealed, frames::sealed_example;
        coded_payload: frames::coded_payload, frames::coded_payload_example;
        private_records: frames::private_records, frames::private_records_example;
        key_agreement: frames::key_agreement, frames::key_agreement_example;
        server_handshake: frames::server_handshake, frames::server_handshake_example;
        client_handshake: frames::client_handshake, frames::client_handshake_example;
        capability: frames::capability, frames::capability_example;
        sealed_ticket: frames::sealed_ticket, frames::sealed_ticket_example;
        key_file: frames::key_file, frames::key_file_example;
        regions: layouts::regions, layouts::regions_example;
        file_layout: layouts::file_layout, example::<FileLayout>;
        layout_spec: layouts::layout_spec, layouts::layout_spec_example;
        object_header: disk::object_header, disk::object_header_example;
        superblock: disk::superblock, disk::superblock_example;
        intent_sector: disk::intent_sector, disk::intent_sector_example;
        gap_sector: disk::gap_sector, disk::gap_sector_example;
        object_name: disk::object_name, disk::object_name_example;
        log_record: disk::log_record, disk::log_record_example;
        log_segment_header: disk::log_segment_header, disk::log_segment_header_example;
        metadata_export: disk::metadata_export, disk::metadata_export_example;
        metadata_record: records::record, records::record_example;
        metadata_key: records::record_key, records::record_key_example;
        c_boundary: c::boundary, c::calls;
        fuse_request: fuse::request, fuse::request_example;
        sio_calls: sio::calls, sio::calls_example;
    }
}
