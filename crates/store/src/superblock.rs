//! The identity of a target: a small file `superblock`, written when the target
//! is made and when it gets a gap log.

use crate::site::os_error;
use weir_host::fs::{Directory, OpenHow};
use weir_types::checksum::crc32c;
use weir_types::{Decode, DecodeError, Encode, Error, ErrorKind, Reader, Result};
use weir_types::{ServerId, TargetId};

/// Name of the file.
pub(crate) const SUPERBLOCK: &str = "superblock";
const MAGIC: [u8; 8] = *b"WEIRTGT\0";
/// The format that this program writes.
pub(crate) const FORMAT_VERSION: u32 = 2;
/// The oldest format that this program reads, and upgrades: it has no intent log.
const OLDEST_VERSION: u32 = 1;
/// Flag of a target that has a gap log. Such a target must not be served without its log.
const GAP_LOG: u32 = 1;
const SUPERBLOCK_BYTES: usize = 512;
const CHECK_AT: usize = SUPERBLOCK_BYTES - 4;

/// Identity of a target: its own id, its server and its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetIdentity {
    /// Id of the cluster: random bytes, drawn when the cluster was made.
    pub cluster: [u8; 16],
    /// Id of the target.
    pub target: TargetId,
    /// Id of the server that serves the target.
    pub server: ServerId,
}
weir_types::codec_struct!(TargetIdentity { cluster, target, server });

/// The contents of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) identity: TargetIdentity,
    pub(crate) version: u32,
    /// Whether the target has a gap log. If the log is missing then, it was lost.
    pub(crate) gap_log: bool,
}

pub(crate) fn to_disk(identity: TargetIdentity, gap_log: bool) -> [u8; SUPERBLOCK_BYTES] {
    let mut fields = Vec::with_capacity(SUPERBLOCK_BYTES);
    (MAGIC, (FORMAT_VERSION, if gap_log { GAP_LOG } else { 0 })).encode(&mut fields);
    identity.encode(&mut fields);
    let mut bytes = [0; SUPERBLOCK_BYTES];
    bytes[..fields.len()].copy_from_slice(&fields);
    let check = crc32c(&bytes[..CHECK_AT]);
    bytes[CHECK_AT..].copy_from_slice(&check.to_le_bytes());
    bytes
}

/// Decodes a superblock.
pub(crate) fn from_disk(bytes: &[u8]) -> Result<Superblock> {
    let damaged = || Error::new(ErrorKind::Corrupt, format!("the file `{SUPERBLOCK}` is damaged"));
    if bytes.len() != SUPERBLOCK_BYTES {
        return Err(damaged());
    }
    let (body, check) = bytes.split_at(CHECK_AT);
    if crc32c(body).to_le_bytes() != *check {
        return Err(damaged());
    }
    let parse = || -> Result<_, DecodeError> {
        let mut r = Reader::new(body);
        let magic: [u8; 8] = r.array()?;
        let (version, flags) = <(u32, u32)>::decode(&mut r)?;
        let identity = TargetIdentity::decode(&mut r)?;
        let reserved = r.take(r.remaining())?;
        let gap_log = version == FORMAT_VERSION && flags == GAP_LOG;
        let known = (flags == 0 || gap_log) && reserved.iter().all(|&b| b == 0);
        Ok((magic, known, Superblock { identity, version, gap_log }))
    };
    match parse() {
        Ok((MAGIC, known, block)) if (OLDEST_VERSION..=FORMAT_VERSION).contains(&block.version) => {
            if known {
                Ok(block)
            } else {
                Err(unknown_features())
            }
        }
        Ok((MAGIC, _, Superblock { version, .. })) => Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "the target has format version {version}, this program knows version \
                 {FORMAT_VERSION}: use the program that made it, or a later one"
            ),
        )),
        _ => Err(damaged()),
    }
}

fn unknown_features() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "the target has features that this program does not know: use the program that made it, or a \
         later one",
    )
}

/// Writes the superblock of a target without a gap log, durably.
pub(crate) fn write(dir: &Directory, identity: TargetIdentity) -> Result<()> {
    replace(dir, identity, false).map_err(|e| os_error(e).context(format!("write `{SUPERBLOCK}`")))
}

/// Replaces the superblock atomically. It is durable when this returns.
pub(crate) fn replace(
    dir: &Directory,
    identity: TargetIdentity,
    gap_log: bool,
) -> rustix::io::Result<()> {
    const TEMPORARY: &str = "superblock.tmp";
    let file = dir.open_file(TEMPORARY, OpenHow::REPLACE)?;
    file.write_full(&to_disk(identity, gap_log), 0)?;
    file.sync("superblock")?;
    dir.rename(TEMPORARY, SUPERBLOCK)?;
    dir.sync("target-directory")
}

/// Reads the superblock. The error is `NotFound` if there is none.
pub(crate) fn read(dir: &Directory) -> Result<Superblock> {
    let context = || format!("read `{SUPERBLOCK}`");
    let file =
        dir.open_file(SUPERBLOCK, OpenHow::READ).map_err(|e| os_error(e).context(context()))?;
    // Reads one byte more than a superblock has, to notice a longer file.
    let mut bytes = [0; SUPERBLOCK_BYTES + 1];
    let len = file.read_full(&mut bytes, 0).map_err(|e| os_error(e).context(context()))?;
    from_disk(&bytes[..len])
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: TargetIdentity =
        TargetIdentity { cluster: [9; 16], target: TargetId(3), server: ServerId(2) };

    fn block(version: u32, gap_log: bool) -> Superblock {
        Superblock { identity: IDENTITY, version, gap_log }
    }

    #[test]
    fn the_fields_are_where_the_format_document_says() {
        let bytes = to_disk(IDENTITY, false);
        assert_eq!(&bytes[..16], b"WEIRTGT\0\x02\0\0\0\0\0\0\0");
        assert_eq!(bytes[16..32], [9; 16]);
        assert_eq!(bytes[32..40], [3, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(from_disk(&bytes).unwrap(), block(2, false));
        let bytes = to_disk(IDENTITY, true);
        assert_eq!(bytes[8..16], [2, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(from_disk(&bytes).unwrap(), block(2, true));
    }

    fn changed(at: usize, value: u8) -> [u8; SUPERBLOCK_BYTES] {
        let mut bytes = to_disk(IDENTITY, false);
        bytes[at] = value;
        let check = crc32c(&bytes[..CHECK_AT]);
        bytes[CHECK_AT..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    #[test]
    fn unknown_flags_and_fields_are_refused() {
        for (at, value) in [(12, 2), (12, 3), (15, 1), (40, 1), (500, 1)] {
            let error = from_disk(&changed(at, value)).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Unsupported, "byte {at}");
        }
        assert_eq!(from_disk(&changed(8, 1)).unwrap(), block(1, false));
    }

    #[test]
    fn damage_and_other_versions_are_told_apart() {
        let mut bytes = to_disk(IDENTITY, false);
        bytes[33] ^= 1;
        assert_eq!(from_disk(&bytes).unwrap_err().kind, ErrorKind::Corrupt);
        assert_eq!(from_disk(&bytes[..100]).unwrap_err().kind, ErrorKind::Corrupt);
        let error = from_disk(&changed(8, 9)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unsupported);
        assert!(error.message.contains("format version 9"), "{error}");
    }
}
