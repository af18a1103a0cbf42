//! Records of sets: JSON files, named by their own hash, on every target of the set. So a record is
//! never incomplete, and a changed byte in it is noticed.

use crate::failure::{Done, Failure, is_unreadable};
use blake3::Hash;
use serde::{Deserialize, Serialize};
use std::path::{Component, Path};
use weir_layout::set::{Member, Parity, Set, SetCode};
use weir_types::TargetId;

/// The directory in each target that has the state of the tree instead of users' files.
pub const STATE: &str = ".weir-reduce";
const FORMAT: u32 = 1;
/// Longest record, bytes: 32 members with the longest possible paths.
const MAX_RECORD_BYTES: u64 = 1 << 20;

/// The id of a set: the hash of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SetId([u8; 32]);

impl SetId {
    fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// Parses the id at the beginning of a file name.
    pub fn parse(text: &str) -> Option<Self> {
        Hash::from_hex(text).ok().map(|hash| Self(*hash.as_bytes()))
    }
}

impl std::fmt::Display for SetId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&Hash::from_bytes(self.0).to_hex())
    }
}

/// Facts about a member, except where its copies are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFacts {
    /// Its path in each target.
    pub path: String,
    /// Hash of the bytes.
    #[serde(with = "hex")]
    pub hash: Hash,
    /// Permissions.
    pub mode: u32,
    /// Its owner and group.
    pub owner: (u32, u32),
    /// Modification time of each copy: seconds since 1970, and nanoseconds.
    pub modified: Vec<(i64, u32)>,
}

/// A set of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Id of the set.
    pub id: SetId,
    /// The bytes on disk.
    pub bytes: Vec<u8>,
    /// Members and parities.
    pub set: Set<FileFacts>,
    /// Hashes of the parities.
    pub parities: Vec<Hash>,
    /// More than `again` of every earlier set that contained one of the files.
    pub again: u64,
}

#[derive(Serialize, Deserialize)]
struct OnDisk {
    format: u32,
    code: String,
    members: Vec<MemberOnDisk>,
    parities: Vec<ParityOnDisk>,
    /// `None` stands for 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    again: Option<u64>,
}

#[derive(Serialize, Deserialize)]
struct MemberOnDisk {
    #[serde(flatten)]
    facts: FileFacts,
    len: u64,
    targets: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
struct ParityOnDisk {
    target: u32,
    #[serde(with = "hex")]
    hash: Hash,
}

/// The version of a file or parity: a part of its hash.
pub fn generation(hash: &Hash) -> u64 {
    let bytes = hash.as_bytes();
    u64::from_le_bytes([
        bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7],
    ])
}

impl Record {
    /// The record of a set. Records with different `again` differ.
    pub fn new(set: Set<FileFacts>, parities: Vec<Hash>, again: u64) -> Done<Self> {
        let members = set.members.iter().map(|member| MemberOnDisk {
            facts: member.what.clone(),
            len: member.len,
            targets: member.targets.iter().map(|target| target.0).collect(),
        });
        let places = set.parities.iter().zip(&parities);
        let on_disk = OnDisk {
            format: FORMAT,
            code: set.code.to_string(),
            members: members.collect(),
            parities: places
                .map(|(parity, hash)| ParityOnDisk { target: parity.target.0, hash: *hash })
                .collect(),
            again: (again > 0).then_some(again),
        };
        let bytes = serde_json::to_vec(&on_disk);
        let bytes = bytes.map_err(|e| Failure::other(format!("the record of a set: {e}")))?;
        Ok(Self { id: SetId::of(&bytes), bytes, set, parities, again })
    }

    /// Reads and checks a record. `None` if it is rotten.
    pub fn read(path: &Path) -> Done<Option<Self>> {
        let size = std::fs::metadata(path).map_err(|e| Failure::file(path, e))?.len();
        if size > MAX_RECORD_BYTES {
            return Ok(None);
        }
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if is_unreadable(&error) => return Ok(None),
            Err(error) => return Err(Failure::file(path, error)),
        };
        let id = SetId::of(&bytes);
        if path.file_stem() != Some(id.to_string().as_ref()) {
            return Ok(None);
        }
        Self::parse(id, bytes).map(Some).map_err(|why| {
            Failure::other(format!("{}: {why}: was it written by a newer Weir?", path.display()))
        })
    }

    fn parse(id: SetId, bytes: Vec<u8>) -> Result<Self, String> {
        let on_disk: OnDisk = serde_json::from_slice(&bytes).map_err(|e| e.to_string())?;
        if on_disk.format != FORMAT {
            return Err(format!("format {} is not known", on_disk.format));
        }
        let code: SetCode = on_disk.code.parse().map_err(|e| format!("{e}"))?;
        let mut members = Vec::new();
        for MemberOnDisk { facts, len, targets } in on_disk.members {
            let inside = |part| matches!(part, Component::Normal(name) if name != STATE);
            if facts.path.is_empty() || !Path::new(&facts.path).components().all(inside) {
                return Err(format!("`{}` is no path inside a target", facts.path));
            }
            let targets: Vec<TargetId> = targets.into_iter().map(TargetId).collect();
            if targets.len() != code.copies() || facts.modified.len() != targets.len() {
                return Err(format!("{} copies under {code}", targets.len()));
            }
            members.push(Member { generation: generation(&facts.hash), what: facts, len, targets });
        }
        let parity = |parity: &ParityOnDisk| Parity {
            generation: generation(&parity.hash),
            target: TargetId(parity.target),
        };
        let set = Set { code, members, parities: on_disk.parities.iter().map(parity).collect() };
        if set.members.len() > code.members() || set.parities.len() != code.parities() {
            return Err(format!("not a set of {code}"));
        }
        let parities = on_disk.parities.iter().map(|parity| parity.hash).collect();
        Ok(Self { id, bytes, set, parities, again: on_disk.again.unwrap_or(0) })
    }

    /// The file name of the record.
    pub fn name(&self) -> String {
        format!("{}.set", self.id)
    }

    /// The file name of a parity.
    pub fn parity_name(&self, row: usize) -> String {
        format!("{}.p{row}", self.id)
    }

    /// The new file name of a removed member, in the targets that have a copy of it.
    pub fn dead_name(&self, member: usize) -> String {
        format!("{}.m{member}", self.id)
    }

    /// The file name of the mark of a removed member, in every target of the set.
    pub fn mark_name(&self, member: usize) -> String {
        format!("{}.dead{member}", self.id)
    }

    /// The targets that have a block of the set, each once.
    pub fn targets(&self) -> std::collections::BTreeSet<TargetId> {
        self.set.blocks().map(|(_, target)| target).collect()
    }
}

/// Serialises hashes as text.
mod hex {
    use blake3::Hash;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(hash: &Hash, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&hash.to_hex())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Hash, D::Error> {
        let text = String::deserialize(from)?;
        Hash::from_hex(&text).map_err(D::Error::custom)
    }
}
