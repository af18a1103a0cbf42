//! Reading the log back when the engine opens.
//!
//! What counts as damage. A process that dies leaves at most one torn record at
//! the very end. A power cut may lose or tear anything that was not yet synced,
//! also in the middle of the unsynced part, because the kernel writes pages out
//! in any order. So at the first record that is not intact the log ends, unless
//! that record was certainly complete once, which is damage and an error:
//! - a record after it, or an earlier one, says that it was durable; or
//! - an intact record follows it and the machine has not restarted since.

use crate::directory::SegmentFile;
use crate::engine::Sequence;
use crate::overlay::Overlay;
use crate::record::{
    ALIGNMENT, BootId, HeaderFault, Record, SEGMENT_HEADER_BYTES, SegmentHeader, decode_record,
};
use std::path::Path;
use weir_types::{Error, ErrorKind, Result};

/// The log that redb does not hold yet.
pub(crate) struct Replayed {
    /// Its writes.
    pub overlay: Overlay,
    /// Its last commit.
    pub last: Sequence,
    /// Segments beyond the end of the log; to be removed before anything else.
    pub beyond: Vec<SegmentFile>,
}

/// Where the log stops being intact.
struct Fault {
    segment: usize,
    offset: usize,
    boot: BootId,
}

/// Reads every record after `applied`. `boot` is this run of the machine.
pub(crate) fn replay(
    dir: &Path,
    segments: &[SegmentFile],
    applied: Sequence,
    boot: BootId,
) -> Result<Replayed> {
    // redb takes in whole segments, so those it holds are only leftovers.
    let pending: Vec<&SegmentFile> = segments.iter().filter(|s| s.first > applied).collect();
    if pending.first().is_none_or(|s| s.first != applied.next()) {
        let what = format!(
            "metadata directory {}: the log segment that begins with operation {} is missing",
            dir.display(),
            applied.next()
        );
        return Err(Error::new(ErrorKind::Corrupt, what));
    }
    let mut contents = Vec::with_capacity(pending.len());
    for segment in &pending {
        let bytes = std::fs::read(&segment.path)
            .map_err(|e| Error::from(e).context(segment.path.display()))?;
        contents.push(bytes);
    }
    let mut scan = Scan {
        overlay: Overlay::default(),
        last: applied,
        proven: applied,
        last_end: (0, SEGMENT_HEADER_BYTES, [0; 16]),
    };
    let fault = scan.run(&pending, &contents)?;
    let mut beyond = Vec::new();
    if let Some(fault) = fault {
        scan.judge(&fault, &pending, &contents, boot)?;
        beyond = pending[fault.segment + 1..].iter().map(|s| (*s).clone()).collect();
    }
    Ok(Replayed { overlay: scan.overlay, last: scan.last, beyond })
}

struct Scan {
    overlay: Overlay,
    /// The last commit read.
    last: Sequence,
    /// The last commit that some record says was durable.
    proven: Sequence,
    /// Segment, offset and run after the last record read.
    last_end: (usize, usize, BootId),
}

impl Scan {
    /// Reads records in order up to the first fault.
    fn run(&mut self, pending: &[&SegmentFile], contents: &[Vec<u8>]) -> Result<Option<Fault>> {
        for (number, (file, bytes)) in pending.iter().zip(contents).enumerate() {
            let header = match SegmentHeader::decode(bytes) {
                Ok(header) if header.first == file.first => header,
                Err(HeaderFault::UnknownVersion(version)) => {
                    let what = format!(
                        "{}: log of version {version}, which this program does not know",
                        file.path.display()
                    );
                    return Err(Error::new(ErrorKind::Unsupported, what));
                }
                // redb never gets ahead of a durable header, so that of the
                // first pending segment was.
                _ if number == 0 => return Err(damage(&file.path, 0, "segment header")),
                _ => return Ok(Some(Fault { segment: number, offset: 0, boot: self.last_end.2 })),
            };
            if header.first != self.last.next() {
                let (segment, offset, boot) = self.last_end;
                return Ok(Some(Fault { segment, offset, boot }));
            }
            let mut offset = SEGMENT_HEADER_BYTES;
            while offset < bytes.len() {
                match decode_record(&bytes[offset..]) {
                    Some((record, len)) if record.sequence == self.last.next() => {
                        self.last = record.sequence;
                        self.proven = self.proven.max(record.synced);
                        for write in record.writes {
                            self.overlay.write(write.key, write.value, record.sequence);
                        }
                        offset += len;
                    }
                    _ => return Ok(Some(Fault { segment: number, offset, boot: header.boot })),
                }
            }
            self.last_end = (number, offset, header.boot);
        }
        Ok(None)
    }

    /// Decides whether a fault is the end of the log or damage.
    fn judge(
        &mut self,
        fault: &Fault,
        pending: &[&SegmentFile],
        contents: &[Vec<u8>],
        boot: BootId,
    ) -> Result<()> {
        let path = &pending[fault.segment].path;
        let mut followed = false;
        let mut lost_bytes = 0;
        for (number, bytes) in contents.iter().enumerate().skip(fault.segment) {
            let from = if number == fault.segment { fault.offset } else { 0 };
            lost_bytes += bytes.len().saturating_sub(from);
            let mut offset = from;
            while let Some(rest) = bytes.get(offset..).filter(|rest| !rest.is_empty()) {
                let (record, len) = match decode_record(rest) {
                    Some((record, len)) => (Some(record), len),
                    None => (None, ALIGNMENT),
                };
                offset += len;
                // Bytes of a torn record's values may look like a record; one
                // that could not stand here proves nothing.
                let believable = |r: &Record| r.sequence > self.last && r.synced < r.sequence;
                if let Some(record) = record.filter(believable) {
                    followed = true;
                    self.proven = self.proven.max(record.synced);
                }
            }
        }
        let same_boot = fault.boot == boot && boot != [0; 16];
        if self.proven > self.last {
            return Err(damage(path, fault.offset, "a record that was durable"));
        }
        if followed && same_boot {
            return Err(damage(path, fault.offset, "a record that others follow"));
        }
        tracing::warn!(
            file = %path.display(),
            offset = fault.offset,
            lost_bytes,
            last_operation = self.last.0,
            "the metadata log ends in a torn record, which was never durable; cut it there"
        );
        Ok(())
    }
}

fn damage(path: &Path, offset: usize, what: &str) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!(
            "{}: damaged at byte {offset} ({what}); restore the metadata directory from a backup",
            path.display()
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Write;
    use crate::record::encode_record;

    const BOOT: BootId = [1; 16];

    /// A segment with so many commits, and the offset of each.
    fn segment(first: u64, commits: u64, synced: u64) -> (Vec<u8>, Vec<usize>) {
        let header = SegmentHeader { first: Sequence(first), boot: BOOT };
        let (mut bytes, mut offsets) = (header.encode().to_vec(), Vec::new());
        for n in first..first + commits {
            offsets.push(bytes.len());
            let value = Some(n.to_be_bytes().as_slice().into());
            let write = Write { key: format!("key{n}").into_bytes().into(), value };
            encode_record(&mut bytes, Sequence(n), Sequence(synced), &[write]);
        }
        (bytes, offsets)
    }

    fn replay_bytes(contents: &[(u64, &[u8])], applied: u64, boot: BootId) -> Result<Replayed> {
        let dir = tempfile::tempdir().unwrap();
        let mut files = Vec::new();
        for (first, bytes) in contents {
            let first = Sequence(*first);
            let path = crate::log::segment_path(dir.path(), first);
            std::fs::write(&path, bytes).unwrap();
            files.push(SegmentFile { first, path });
        }
        replay(dir.path(), &files, Sequence(applied), boot)
    }

    #[test]
    fn any_flipped_byte_is_damage_or_the_end_but_never_another_log() {
        let (bytes, offsets) = segment(4, 6, 0);
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x40;
            let result = replay_bytes(&[(4, &flipped)], 3, BOOT);
            let last = offsets.len() - 1;
            match offsets.iter().rposition(|&offset| at >= offset) {
                Some(record) if record == last => assert_eq!(result.unwrap().last, Sequence(8)),
                record => {
                    let offset = record.map_or(0, |r| offsets[r]);
                    let message = result.err().expect("an error").message;
                    assert!(message.contains(&format!("damaged at byte {offset} ")), "{message}");
                }
            }
        }
    }

    #[test]
    fn segments_that_redb_holds_are_not_read() {
        let (bytes, _) = segment(4, 6, 0);
        let replayed = replay_bytes(&[(1, b"rubbish"), (4, &bytes)], 3, BOOT).unwrap();
        assert_eq!(replayed.last, Sequence(9));
        assert!(replayed.beyond.is_empty());
    }

    #[test]
    fn a_missing_segment_between_two_is_damage() {
        let ((a, _), (c, _)) = (segment(1, 3, 0), segment(7, 3, 0));
        let error = replay_bytes(&[(1, &a), (7, &c)], 0, BOOT).err().unwrap();
        assert!(error.message.contains(&format!("damaged at byte {}", a.len())), "{error}");
    }

    #[test]
    fn a_later_segment_that_was_torn_at_birth_is_the_end() {
        let (a, _) = segment(1, 3, 0);
        for torn in [&b""[..], &b"WEIR"[..], &[0; 40][..]] {
            let replayed = replay_bytes(&[(1, &a), (4, torn)], 0, [2; 16]).unwrap();
            assert_eq!(replayed.last, Sequence(3));
        }
    }

    #[test]
    fn after_a_power_cut_what_looks_like_a_record_inside_a_value_proves_nothing() {
        // A value that holds a record of a time long past, and one that claims
        // to be durable itself.
        let (mut bytes, offsets) = segment(5, 2, 4);
        let mut value = Vec::new();
        encode_record(&mut value, Sequence(2), Sequence(1), &[]);
        encode_record(&mut value, Sequence(90), Sequence(99), &[]);
        bytes.extend_from_slice(&[0; 16]);
        bytes.extend_from_slice(&value);
        let replayed = replay_bytes(&[(5, &bytes)], 4, BOOT).unwrap();
        assert_eq!(replayed.last, Sequence(6));
        assert_eq!(offsets.len(), 2);
    }
}
