//! Signs capabilities and tickets.

use crate::keys::KEYS_IN_FILES;
use std::collections::BTreeMap;
use weir_types::{FileId, KeyGeneration, Segment, ServerId, SessionId, TargetId};
use weir_wire::key::MasterKey;
use weir_wire::ticket::OF_SERVERS;
use weir_wire::{Capability, Key, Mac, Rights, SignedCapability};

/// Holds the master key, and the present working keys of targets.
#[derive(Debug)]
pub struct Signer {
    master: MasterKey,
    /// Generation of the working keys.
    generation: KeyGeneration,
    /// Generations of targets' own keys that are not those in their files.
    own: BTreeMap<TargetId, KeyGeneration>,
    targets: BTreeMap<TargetId, Key>,
    /// Validity of capabilities, milliseconds.
    capability_ms: u64,
    /// Number of the last revocation.
    version: u64,
}

/// The contents of a capability.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    /// The file whose objects may be used.
    pub file: FileId,
    /// The session that may use it.
    pub session: SessionId,
    /// The user that it is for.
    pub user: u32,
    /// The granted rights.
    pub rights: Rights,
    /// The present time, milliseconds since 1970.
    pub now_unix_ms: u64,
}

impl Signer {
    /// Signs with keys derived from the master key.
    pub fn new(master: MasterKey, generation: KeyGeneration, capability_ms: u64) -> Self {
        let (own, targets) = Default::default();
        Self { master, generation, own, targets, capability_ms, version: 0 }
    }

    /// The number of the last revocation. Capabilities that are made from now on have it.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Records a revocation. Numbers ascend.
    pub fn revoked(&mut self, number: u64) {
        self.version = self.version.max(number);
    }

    /// Derives the keys of these targets in advance.
    pub fn prepare(&mut self, targets: impl Iterator<Item = TargetId>) {
        for target in targets {
            if !self.targets.contains_key(&target) {
                self.targets.insert(target, self.working(target));
            }
        }
    }

    /// Sets the generations of targets' own keys.
    pub fn set_own(&mut self, own: impl Iterator<Item = (TargetId, KeyGeneration)>) {
        self.own = own.collect();
        self.targets.clear();
    }

    /// Signs with the working keys of a later generation from now on.
    pub fn rotate(&mut self, generation: KeyGeneration) {
        self.generation = generation;
        self.targets.clear();
    }

    fn working(&self, target: TargetId) -> Key {
        let own = self.own.get(&target).copied().unwrap_or(KEYS_IN_FILES);
        self.master.target(target, own).working(self.generation)
    }

    /// The master key.
    pub fn master(&self) -> &MasterKey {
        &self.master
    }

    /// The key of a data server.
    pub fn server_key(&self, server: ServerId) -> Key {
        self.master.server(server, KEYS_IN_FILES)
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
        let capability =
            Capability::of_administrator(session, self.version, self.generation, expires_unix_ms);
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
            user: grant.user,
            rights: grant.rights,
            version: self.version,
            key_generation: self.generation,
            expires_unix_ms: grant.now_unix_ms.saturating_add(self.capability_ms),
        }
    }

    /// The signature of a capability for one target.
    pub fn code(&self, capability: &Capability, target: TargetId) -> Mac {
        match self.targets.get(&target) {
            Some(working) => capability.sign_with(target, working),
            None => capability.sign_with(target, &self.working(target)),
        }
    }
}
