//! Reading the log back when the engine opens.
//!
//! What counts as damage. A process that dies leaves at most one record that is
//! cut short, at the very end. A power cut may lose or tear anything that was
//! not yet synced, also in the middle of the unsynced part, because the kernel
//! writes pages out in any order. So at the first record that is not intact the
//! log ends, unless that record was certainly complete once, which is damage
//! and an error:
//! - a mark, or a record before or after it, says that it was durable; or
//! - the machine has not restarted since, and an intact record follows it, or
//!   it is as long as it should be, or the log went on in another segment.

use crate::directory::{Home, Segment, damage, missing};
use crate::engine::Sequence;
use crate::overlay::Overlay;
use crate::record::{
    ALIGNMENT, BootId, HeaderFault, NEXT_MARK_OFFSET, RECORDS_START, Record, SYNCED_MARK_OFFSET,
    SegmentHeader, decode_mark, decode_record, is_cut_short,
};
use weir_types::{Error, ErrorKind, Result};

/// The log that redb does not hold yet.
pub(crate) struct Replayed {
    /// The writes of the replayed records.
    pub overlay: Overlay,
    /// The last replayed commit.
    pub last: Sequence,
    /// Segments beyond the end of the log. They must be removed before anything else.
    pub beyond: Vec<Segment>,
}

/// A position in the log.
#[derive(Clone, Copy)]
struct Place {
    segment: usize,
    offset: usize,
    boot: BootId,
}

/// Reads every record after `applied`. `boot` is this run of the machine.
pub(crate) fn replay(
    home: &Home,
    segments: &[Segment],
    applied: Sequence,
    boot: BootId,
) -> Result<Replayed> {
    // redb takes in whole segments, so that the ones it holds are only leftovers.
    let pending: Vec<&Segment> = segments.iter().filter(|s| s.first > applied).collect();
    if pending.first().is_none_or(|s| s.first != applied.next()) {
        return Err(segment_missing(home, applied.next()));
    }
    let mut contents = Vec::with_capacity(pending.len());
    for segment in &pending {
        let bytes = home.read(&segment.name)?;
        contents.push(bytes.ok_or_else(|| segment_missing(home, segment.first))?);
    }
    let mut scan = Scan {
        home,
        pending: &pending,
        contents: &contents,
        overlay: Overlay::default(),
        last: applied,
        proven: contents
            .iter()
            .filter_map(|bytes| decode_mark(bytes, SYNCED_MARK_OFFSET))
            .fold(applied, Sequence::max),
        end: Place { segment: 0, offset: RECORDS_START, boot: [0; 16] },
    };
    let fault = scan.run()?;
    scan.judge(fault, boot)?;
    let beyond = match fault {
        None => &[][..],
        // A segment without a header is removed too, whatever its name.
        Some(Place { segment, offset: 0, .. }) => &pending[segment..],
        Some(Place { segment, .. }) => &pending[segment + 1..],
    };
    let beyond = beyond.iter().map(|s| (*s).clone()).collect();
    Ok(Replayed { overlay: scan.overlay, last: scan.last, beyond })
}

fn segment_missing(home: &Home, first: Sequence) -> Error {
    let dir = home.path().display();
    missing(format!("metadata directory {dir}: the log segment that begins with operation {first}"))
}

struct Scan<'a> {
    home: &'a Home,
    pending: &'a [&'a Segment],
    contents: &'a [Vec<u8>],
    overlay: Overlay,
    /// The last commit read.
    last: Sequence,
    /// The last commit that a mark or a record proves to be durable.
    proven: Sequence,
    /// The end of the last record read.
    end: Place,
}

impl Scan<'_> {
    /// Reads records in order up to the first fault.
    fn run(&mut self) -> Result<Option<Place>> {
        for (number, (segment, bytes)) in self.pending.iter().zip(self.contents).enumerate() {
            let header = match SegmentHeader::decode(bytes) {
                Ok(header) if header.first == segment.first => header,
                Err(HeaderFault::UnknownVersion(version)) => {
                    let what = format!(
                        "{}: log of version {version}, which this program does not know",
                        self.home.display(&segment.name)
                    );
                    return Err(Error::new(ErrorKind::Unsupported, what));
                }
                // redb never gets ahead of a durable header, so the header of the first pending
                // segment was durable.
                _ if number == 0 => {
                    return Err(damage(self.home.display(&segment.name), 0, "segment header"));
                }
                _ => return Ok(Some(Place { segment: number, offset: 0, ..self.end })),
            };
            if header.first != self.last.next() {
                return Ok(Some(self.end));
            }
            let mut offset = RECORDS_START;
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
                    _ => return Ok(Some(Place { segment: number, offset, boot: header.boot })),
                }
            }
            self.end = Place { segment: number, offset, boot: header.boot };
        }
        Ok(None)
    }

    /// Decides whether the log ends here or is damaged.
    fn judge(&mut self, fault: Option<Place>, boot: BootId) -> Result<()> {
        let place = fault.unwrap_or(self.end);
        let (followed, lost_bytes) = self.look_beyond(place);
        let damage = |what| {
            let name = &self.pending[place.segment].name;
            Err(damage(self.home.display(name), place.offset as u64, what))
        };
        if self.proven > self.last {
            return damage("a record that was durable");
        }
        let same_boot = place.boot == boot && boot != [0; 16];
        if same_boot && followed {
            return damage("a record that others follow");
        }
        let rest = self.contents[place.segment].get(place.offset..).unwrap_or_default();
        if same_boot && place.offset >= RECORDS_START && !is_cut_short(rest) && !rest.is_empty() {
            return damage("a record that was complete");
        }
        let next = decode_mark(&self.contents[self.end.segment], NEXT_MARK_OFFSET);
        let there = self.pending.get(self.end.segment + 1).map(|s| s.first);
        if same_boot && next == Some(self.last.next()) && next != there {
            return Err(segment_missing(self.home, self.last.next()));
        }
        if fault.is_some() {
            tracing::warn!(
                file = %self.home.display(&self.pending[place.segment].name),
                offset = place.offset,
                lost_bytes,
                last_operation = self.last.0,
                "the metadata log ends in a torn record, which was never durable; cut it there"
            );
        }
        Ok(())
    }

    /// Whether an intact record stands behind a place, and the bytes there.
    fn look_beyond(&mut self, place: Place) -> (bool, usize) {
        let (mut followed, mut bytes_beyond) = (false, 0);
        for (number, bytes) in self.contents.iter().enumerate().skip(place.segment) {
            let from = if number == place.segment { place.offset } else { 0 };
            bytes_beyond += bytes.len().saturating_sub(from);
            let mut offset = from;
            while let Some(rest) = bytes.get(offset..).filter(|rest| !rest.is_empty()) {
                let (record, len) = match decode_record(rest) {
                    Some((record, len)) => (Some(record), len),
                    None => (None, ALIGNMENT),
                };
                offset += len;
                // The values of a torn record may contain bytes that look like a record. A record
                // that could not be at this place proves nothing.
                let believable = |r: &Record| r.sequence > self.last && r.synced < r.sequence;
                if let Some(record) = record.filter(believable) {
                    followed = true;
                    self.proven = self.proven.max(record.synced);
                }
            }
        }
        (followed, bytes_beyond)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests look from outside")]
mod tests {
    use super::*;
    use crate::engine::Write;
    use crate::record::encode_record;

    const BOOT: BootId = [1; 16];

    /// A segment with `commits` commits, and the offset of each.
    fn segment(first: u64, commits: u64, synced: u64) -> (Vec<u8>, Vec<usize>) {
        let header = SegmentHeader { first: Sequence(first), boot: BOOT };
        let (mut bytes, mut offsets) = (header.encode().to_vec(), Vec::new());
        bytes.resize(RECORDS_START, 0);
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
            let name = crate::log::segment_name(first);
            std::fs::write(dir.path().join(&name), bytes).unwrap();
            files.push(Segment { first, name });
        }
        let home = Home::open_or_make(dir.path()).unwrap();
        replay(&home, &files, Sequence(applied), boot)
    }

    #[test]
    fn any_flipped_bit_is_damage_while_the_machine_runs() {
        let (bytes, offsets) = segment(4, 6, 0);
        let marks = SYNCED_MARK_OFFSET..RECORDS_START;
        for bit in 0..bytes.len() * 8 {
            let at = bit / 8;
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (bit % 8);
            let result = replay_bytes(&[(4, &flipped)], 3, BOOT);
            if marks.contains(&at) {
                // There is no mark, and no flipped bit makes one.
                assert_eq!(result.unwrap().last, Sequence(9));
                continue;
            }
            let offset = offsets.iter().rev().find(|&&offset| at >= offset).unwrap_or(&0);
            let message = result.err().expect("an error").message;
            assert!(message.contains(&format!("damaged at byte {offset} ")), "{message}");
        }
    }

    #[test]
    fn a_record_that_a_kill_cut_short_is_the_end() {
        let (bytes, offsets) = segment(4, 6, 0);
        for len in offsets[5]..bytes.len() {
            assert_eq!(replay_bytes(&[(4, &bytes[..len])], 3, BOOT).unwrap().last, Sequence(8));
        }
    }

    #[test]
    fn after_a_power_cut_a_flipped_bit_is_damage_up_to_the_mark() {
        let (mut bytes, offsets) = segment(4, 6, 0);
        let mark = crate::record::encode_mark(SYNCED_MARK_OFFSET, Sequence(7));
        bytes[SYNCED_MARK_OFFSET..][..mark.len()].copy_from_slice(&mark);
        for (record, &offset) in offsets.iter().enumerate() {
            let mut flipped = bytes.clone();
            flipped[offset + 20] ^= 1;
            let result = replay_bytes(&[(4, &flipped)], 3, [2; 16]);
            if record < 4 {
                assert_eq!(result.err().unwrap().kind, ErrorKind::Corrupt);
            } else {
                assert_eq!(result.unwrap().last, Sequence(3 + record as u64));
            }
        }
        // A missing end is damage, too.
        assert!(replay_bytes(&[(4, &bytes[..offsets[3]])], 3, [2; 16]).is_err());
        assert!(replay_bytes(&[(4, &bytes[..offsets[4]])], 3, [2; 16]).is_ok());
    }

    #[test]
    fn a_last_segment_that_is_gone_is_missed() {
        let (mut bytes, _) = segment(4, 6, 0);
        let mark = crate::record::encode_mark(NEXT_MARK_OFFSET, Sequence(10));
        bytes[NEXT_MARK_OFFSET..][..mark.len()].copy_from_slice(&mark);
        let error = replay_bytes(&[(4, &bytes)], 3, BOOT).err().unwrap();
        assert!(error.message.contains("begins with operation 10 is missing"), "{error}");
        // A power cut may have removed a segment in which nothing was durable.
        assert_eq!(replay_bytes(&[(4, &bytes)], 3, [2; 16]).unwrap().last, Sequence(9));
        let (next, _) = segment(10, 0, 0);
        assert_eq!(replay_bytes(&[(4, &bytes), (10, &next)], 3, BOOT).unwrap().last, Sequence(9));
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
            for first in [4, 9] {
                let replayed = replay_bytes(&[(1, &a), (first, torn)], 0, [2; 16]).unwrap();
                assert_eq!(replayed.last, Sequence(3));
                assert_eq!(replayed.beyond.len(), 1, "its name may be needed");
            }
        }
    }

    #[test]
    fn after_a_power_cut_what_looks_like_a_record_inside_a_value_proves_nothing() {
        // A value that contains an old record, and a record that claims to be durable itself.
        let (mut bytes, offsets) = segment(5, 2, 4);
        let mut value = Vec::new();
        encode_record(&mut value, Sequence(2), Sequence(1), &[]);
        encode_record(&mut value, Sequence(90), Sequence(99), &[]);
        bytes.extend_from_slice(&[0; 16]);
        bytes.extend_from_slice(&value);
        let replayed = replay_bytes(&[(5, &bytes)], 4, [2; 16]).unwrap();
        assert_eq!(replayed.last, Sequence(6));
        assert_eq!(offsets.len(), 2);
    }
}
