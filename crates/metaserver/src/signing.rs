//! Signs capabilities and tickets.

use std::collections::BTreeMap;
use weir_types::{FileId, KeyGeneration, Segment, ServerId, SessionId, TargetId};
use weir_wire::key::MasterKey;
use weir_wire::ticket::OF_SERVERS;
use weir_wire::{Capability, Key, Mac, Rights, SignedCapability};

/// The generation of all keys; keys are not rotated yet.
pub const KEY_GENERATION: KeyGeneration = KeyGeneration(1);

/// Holds the master key, and derived keys of targets.
#[derive(Debug)]
pub struct Signer {
    master: MasterKey,
    targets: BTreeMap<TargetId, Key>,
    /// Validity of capabilities, milliseconds.
    capability_ms: u64,
}

/// The contents of a capability.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    /// The file whose objects may be used.
    pub file: FileId,
    /// The version of the file's capabilities.
    pub version: u64,
    /// The session that may use it.
    pub session: SessionId,
    /// The granted rights.
    pub rights: Rights,
    /// The present time, milliseconds since 1970.
    pub now_unix_ms: u64,
}

impl Signer {
    /// Signs with keys derived from the master key.
    pub fn new(master: MasterKey, capability_ms: u64) -> Self {
        Self { master, targets: BTreeMap::new(), capability_ms }
    }

    /// Derives the keys of these targets in advance.
    pub fn prepare(&mut self, targets: impl Iterator<Item = TargetId>) {
        for target in targets {
            let key = || self.master.target(target, KEY_GENERATION);
            self.targets.entry(target).or_insert_with(key);
        }
    }

    /// The master key.
    pub fn master(&self) -> &MasterKey {
        &self.master
    }

    /// The key of a data server.
    pub fn server_key(&self, server: ServerId) -> Key {
        self.master.server(server, KEY_GENERATION)
    }

    /// A capability with a signature for each target of the segments.
    pub fn sign(&self, grant: Grant, segments: &[Segment]) -> SignedCapability {
        let capability = self.capability(grant);
        let copies = segments.iter().flat_map(Segment::members).flat_map(|(_, c)| &c.targets);
        let mut targets: Vec<TargetId> = copies.copied().collect();
        targets.sort_unstable();
        targets.dedup();
        let macs = targets.into_iter().map(|t| (t, self.code(&capability, t))).collect();
        SignedCapability { capability, macs }
    }

    /// A capability for all objects of these targets, for an administrator's session: the only one
    /// here with [`Rights::ADMIN`].
    pub fn sign_for_administrator(
        &self,
        session: SessionId,
        now_unix_ms: u64,
        targets: impl Iterator<Item = TargetId>,
    ) -> SignedCapability {
        let expires_unix_ms = now_unix_ms.saturating_add(self.capability_ms);
        let capability = Capability::of_administrator(session, KEY_GENERATION, expires_unix_ms);
        let mut targets: Vec<TargetId> = targets.collect();
        targets.sort_unstable();
        let macs = targets.into_iter().map(|t| (t, self.code(&capability, t))).collect();
        SignedCapability { capability, macs }
    }

    /// A capability for a file that only data servers can use.
    pub fn for_servers(&self, grant: Grant) -> Capability {
        self.capability(Grant { session: OF_SERVERS, ..grant })
    }

    fn capability(&self, grant: Grant) -> Capability {
        Capability {
            file: grant.file,
            session: grant.session,
            rights: grant.rights,
            version: grant.version,
            key_generation: KEY_GENERATION,
            expires_unix_ms: grant.now_unix_ms.saturating_add(self.capability_ms),
        }
    }

    /// The signature of a capability for one target.
    pub fn code(&self, capability: &Capability, target: TargetId) -> Mac {
        match self.targets.get(&target) {
            Some(key) => capability.sign(target, key),
            None => capability.sign(target, &self.master.target(target, KEY_GENERATION)),
        }
    }
}
