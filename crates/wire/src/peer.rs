//! Messages between data servers and the metadata server.

use crate::capability::Capability;
use crate::data::CopyAccess;
use crate::key::Key;
use crate::map::{ServerEntry, Standing};
use crate::message::{records, requests};
use crate::protection::Level;
use crate::targets::{MachineLoad, TargetWork};
use crate::ticket::SealedTicket;
use weir_types::{
    ClientId, DiskId, Epoch, FileId, FsUsage, Generation, KeyGeneration, ObjectId, TargetId,
};

records! {
    /// Report of one target.
    TargetReport {
        /// The target.
        target: TargetId,
        /// Space and files.
        usage: FsUsage,
        /// The disk of the target. Other targets may be on the same disk.
        disk: DiskId,
        /// Why the target is out of service; empty if it is not.
        trouble: String,
        /// Objects of [`HeartbeatReply::remove`] that were removed or did not exist.
        removed: Vec<ObjectId>,
        /// Targets that lack something of what this one has, each with its number of noted gaps.
        /// The target itself is among them if it has gaps of its own, which it does not serve until
        /// they are filled. [`TargetId::NONE`] is among them if the target has lost its gap log, so
        /// that any other target may lack something.
        gaps: Vec<(TargetId, u64)>,
        /// Copies that were made as [`HeartbeatReply::fill`] has ordered.
        filled: Vec<Fill>,
        /// Objects that were computed as [`HeartbeatReply::build`] has ordered, and are durable.
        built: Vec<Build>,
        /// Targets that could not be reached for too long, although they should have taken changes
        /// of this one.
        unreachable: Vec<TargetId>,
        /// Objects of [`HeartbeatReply::distrust`] that are durably noted as not current, and not
        /// served.
        distrusted: Vec<ObjectId>,
        /// Duration of the disk's present operation, milliseconds; 0 if it is too short to count as
        /// hanging.
        hangs_ms: u64,
        /// The disk hangs and the server has given the target up: until the server restarts, the
        /// target serves and applies nothing that has several copies.
        given_up: bool,
        /// Work that the target has done.
        work: TargetWork,
        /// Generation of the target's latest own key that its server has on disk; 0 if the target is
        /// not served.
        own_key: KeyGeneration,
        /// The first generation of working keys that follow from that key; 0 if the server has not
        /// heard of it, or if it is the key in the target's file.
        own_key_from: KeyGeneration,
    }
    /// A target's own key, for its server. Repeated until it is reported.
    OwnKey {
        /// The target.
        target: TargetId,
        /// Generation of the key.
        generation: KeyGeneration,
        /// The first generation of working keys that follow from it; 0 if none do yet.
        from: KeyGeneration,
        /// Random bytes, never used twice.
        nonce: [u8; 16],
        /// The key, encrypted under the server's key.
        hidden_key: [u8; 32],
    }
    /// An order to make a copy of a column from the copy on a target. If the copy is whole already,
    /// the order is to report when it has everything, before another copy is removed.
    Fill {
        /// The target with the whole copy. It orders changes.
        from: TargetId,
        /// The object to make.
        object: ObjectId,
        /// The target of the new copy.
        to: TargetId,
        /// The file's generation at the time of the order. An earlier order for the same object is
        /// a different one.
        generation: Generation,
    }
    /// An order to compute a column or a parity of a segment from others of it. Nobody writes the
    /// segment.
    Build {
        /// The object to make. Parities are numbered behind the columns.
        object: ObjectId,
        /// The target of the object.
        to: TargetId,
        /// The file's generation at the time of the order.
        generation: Generation,
        /// Columns of the segment.
        columns: u16,
        /// Parities of the segment.
        parities: u8,
        /// Whether the parities that are not being made count. Otherwise it is made from columns
        /// alone, as soon as each of them is fenced against changes from before `generation`.
        coded: bool,
        /// The most bytes that the object may have.
        len: u64,
    }
    /// Access to the copies of a column.
    Copies {
        /// All copies, in the order of the layout.
        copies: Vec<CopyAccess>,
        /// The file's generation.
        generation: Generation,
        /// Changes from before this generation may be directed to other copies. It is below the
        /// generation of a pending truncation, which would otherwise count as done. 0 if no change
        /// may be.
        fence: Generation,
        /// Whether nobody may write: the column is to be fenced, and durable.
        sealed: bool,
        /// Columns of the segment if its parities count; else 0.
        columns: u16,
        /// Parities of the segment if they count; else 0.
        parities: u8,
        /// The capability to read and write them, for servers.
        capability: Capability,
    }
    /// A page of the copies that a target should have.
    CopyPage {
        /// At most [`weir_types::limits::MAX_OBJECT_PAGE`] objects, ascending; possibly none.
        objects: Vec<ObjectId>,
        /// Where the next page begins; `None` at the end.
        next: Option<ObjectId>,
    }
    /// Access to another data server.
    Peer {
        /// Its entry in the map.
        entry: ServerEntry,
        /// A data server's ticket for it. With this ticket a server may read what a capability
        /// permits, whatever session the capability belongs to, and change nothing.
        ticket: SealedTicket,
    }
    /// Rights that have ended before their time: of a client, of a file, or, if it names neither, all
    /// capabilities.
    Revocation {
        /// Its number. Capabilities with a lower version, and sessions with this id or a lower one,
        /// were made before.
        number: u64,
        /// All sessions of this client that were made before are over.
        client: Option<ClientId>,
        /// All capabilities for this file that were made before are void.
        file: Option<FileId>,
        /// Until then they may not have run out by themselves, in milliseconds since 1970.
        until_unix_ms: u64,
    }
    /// A page of the revocations.
    #[derive(Default)]
    Revocations {
        /// At most [`MAX_REVOCATIONS`](crate::revoked::MAX_REVOCATIONS), by ascending number.
        list: Vec<Revocation>,
        /// All with this number or a lower one were told.
        upto: u64,
        /// Whether there are more.
        more: bool,
    }
    /// Instructions for a data server.
    HeartbeatReply {
        /// Epoch of the newest map.
        epoch: Epoch,
        /// Every server acts under this epoch or a later one, or has no lease.
        in_effect: Epoch,
        /// The state of all targets, if the server acts under an older epoch; else none.
        standings: Vec<Standing>,
        /// Length of the server's lease to serve columns with several copies, milliseconds, counted
        /// from when it sent the request.
        serve_ms: u32,
        /// Objects that no file uses any more. They are to be removed.
        remove: Vec<(TargetId, ObjectId)>,
        /// Copies to be made. Each is repeated until it is reported. One from a target to itself
        /// asks for the fence of a sealed column.
        fill: Vec<Fill>,
        /// Objects to be computed. Each is repeated until it is reported.
        build: Vec<Build>,
        /// Copies that may lack bytes which only a removed target had. Each is repeated until it is
        /// reported.
        distrust: Vec<(TargetId, ObjectId)>,
        /// Targets to give up if their disks still hang: other targets have their data.
        give_up: Vec<TargetId>,
        /// Share of the time for making and updating copies while clients have requests, percent.
        busy_percent: u8,
        /// The lowest level of protection at which the server accepts connections.
        protection: Level,
        /// Of targets of the server whose working keys were replaced, the lowest generation that
        /// counts. Of others every generation does.
        oldest_keys: Vec<(TargetId, KeyGeneration)>,
        /// Own keys of targets that the server lacks.
        own_keys: Vec<OwnKey>,
        /// Revocations that the server does not know yet; after a registration the first of all.
        revoked: Revocations,
        /// Time until the next report, milliseconds.
        interval_ms: u32,
    }
}

impl OwnKey {
    /// Encrypts a target's own key for its server.
    pub fn seal(
        target: TargetId,
        (generation, from): (KeyGeneration, KeyGeneration),
        key: &Key,
        nonce: [u8; 16],
        server_key: &Key,
    ) -> Self {
        let mut hidden_key = *key.expose();
        server_key.mask(&nonce, &mut hidden_key);
        Self { target, generation, from, nonce, hidden_key }
    }

    /// Decrypts the key, in the server.
    pub fn open(&self, server_key: &Key) -> Key {
        let mut key = self.hidden_key;
        server_key.mask(&self.nonce, &mut key);
        Key::from_bytes(key)
    }
}

requests! {
    /// Registers a data server with its address and its targets.
    RegisterRequest(Register) -> HeartbeatReply {
        /// Its host.
        host: String,
        /// Its failure domain: hosts that fail together, such as those of a rack. If empty, its
        /// host alone.
        domain: String,
        /// `address:port` for TCP.
        tcp: String,
        /// Path of its Unix socket; may be empty.
        unix: String,
        /// Whether the process has just started and has no reply yet: it has no changes under way
        /// and no lease.
        first: bool,
        /// The run of each of its targets, as in [`Welcome`](crate::handshake::Welcome).
        runs: Vec<(TargetId, u64)>,
        /// Its targets.
        targets: Vec<TargetReport>,
    }
    /// A data server asks for the server of a target. The error is `TargetMissing` if there is
    /// none.
    FindPeerRequest(FindPeer) -> Peer {
        /// The target.
        target: TargetId,
    }
    /// A data server asks for the locations of the copies of columns. The copy index of each object
    /// is ignored. The reply has `None` for an object without a file.
    FindCopiesRequest(FindCopies) -> Vec<Option<Copies>> {
        /// At most [`weir_types::limits::MAX_FIND_COPIES`].
        objects: Vec<ObjectId>,
    }
    /// A data server that has lost its gap log asks which copies it should have, among columns with
    /// several copies.
    ListCopiesRequest(ListCopies) -> CopyPage {
        /// A target of the server.
        target: TargetId,
        /// First file.
        start: FileId,
        /// End of the files, exclusive.
        end: FileId,
        /// Objects after this one, ascending. It need not exist.
        after: Option<ObjectId>,
    }
    /// A data server reports that it is alive.
    HeartbeatRequest(Heartbeat) -> HeartbeatReply {
        /// The epoch under which it acts; 0 for none yet.
        acting: Epoch,
        /// It knows all revocations up to this number: [`Revocations::upto`] of the last reply.
        revoked: u64,
        /// Load of its machine.
        machine: MachineLoad,
        /// Reports of its targets.
        targets: Vec<TargetReport>,
    }
}

const RECOVERING: &str = "recovering, ";

/// The [`TargetReport::trouble`] of a target that is being recovered. Its server does not serve it
/// yet.
pub fn recovering(percent: u8) -> String {
    format!("{RECOVERING}{percent} %")
}

/// Whether a trouble means that the target is being recovered.
pub fn is_recovering(trouble: &str) -> bool {
    trouble.starts_with(RECOVERING)
}
