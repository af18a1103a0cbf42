//! The file of a log: slots of [`SLOT_BYTES`], each with one record, in any order.
//! A slot is the CRC-32C of what follows it, the length of the record (u16), and the record. A slot
//! that was being written when the machine stopped does not match its checksum, and is empty.

use rustix::io::Errno;
use weir_host::fs::{Directory, OpenHow};
use weir_types::checksum::crc32c;
use weir_types::{Decode, Encode};
use weir_wire::audit::AuditRecord;

/// Name of the file.
const NAME: &str = "audit";
/// Bytes of a slot.
const SLOT_BYTES: usize = 192;
/// Checksum and length.
const HEAD_BYTES: usize = 6;

/// A record and its slot.
pub(crate) type Slotted = (usize, AuditRecord);

/// Reads the records, by ascending number, at most `most` slots of them; and says whether the file has
/// no more than `capacity` slots.
pub(crate) fn load(
    directory: &Directory,
    capacity: usize,
    most: usize,
) -> Result<(Vec<Slotted>, bool), Errno> {
    let file = match directory.open_file(NAME, OpenHow::READ) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok((Vec::new(), true)),
        Err(error) => return Err(error),
    };
    let size = usize::try_from(file.size()?).unwrap_or(usize::MAX);
    let mut bytes = vec![0; size.min(most * SLOT_BYTES)];
    let len = file.read_full(&mut bytes, 0)?;
    bytes.truncate(len);
    let slots = bytes.chunks_exact(SLOT_BYTES).enumerate();
    let mut records: Vec<Slotted> =
        slots.filter_map(|(at, slot)| Some((at, decode(slot)?))).collect();
    records.sort_by_key(|(_, record)| record.number);
    records.dedup_by_key(|(_, record)| record.number);
    Ok((records, size <= capacity * SLOT_BYTES))
}

/// Writes records to their slots. With `anew` the file is emptied first.
pub(crate) fn write(directory: &Directory, records: &[Slotted], anew: bool) -> Result<(), Errno> {
    let how = if anew { OpenHow::REPLACE } else { OpenHow::CREATE };
    let file = directory.open_file(NAME, how)?;
    let mut by_slot: Vec<&Slotted> = records.iter().collect();
    by_slot.sort_by_key(|(slot, _)| *slot);
    // Slots that follow one another are written in one go.
    for run in by_slot.chunk_by(|(slot, _), (next, _)| *next == slot + 1) {
        let start = run.first().map_or(0, |(slot, _)| *slot);
        let bytes: Vec<u8> = run.iter().flat_map(|(_, record)| encode(record)).collect();
        file.write_full(&bytes, (start * SLOT_BYTES) as u64)?;
    }
    Ok(())
}

fn encode(record: &AuditRecord) -> [u8; SLOT_BYTES] {
    let body = record.to_bytes();
    let mut slot = [0; SLOT_BYTES];
    // A record of the longest text fits: see the test.
    let len = body.len().min(SLOT_BYTES - HEAD_BYTES);
    slot[4..HEAD_BYTES].copy_from_slice(&(len as u16).to_le_bytes());
    slot[HEAD_BYTES..HEAD_BYTES + len].copy_from_slice(&body[..len]);
    let sum = crc32c(&slot[4..]);
    slot[..4].copy_from_slice(&sum.to_le_bytes());
    slot
}

fn decode(slot: &[u8]) -> Option<AuditRecord> {
    let (sum, rest) = slot.split_first_chunk::<4>()?;
    if crc32c(rest) != u32::from_le_bytes(*sum) {
        return None;
    }
    let (len, body) = rest.split_first_chunk::<2>()?;
    AuditRecord::from_bytes(body.get(..usize::from(u16::from_le_bytes(*len)))?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::codec::Bytes;
    use weir_types::{ClientId, FileId, SessionId};
    use weir_wire::Rights;
    use weir_wire::audit::MAX_ABOUT_BYTES;

    fn record(number: u64) -> AuditRecord {
        AuditRecord {
            number,
            client: ClientId(1),
            session: SessionId(2),
            user: 3,
            file: FileId(4),
            op: 5,
            rights: Rights::NONE,
            status: 0,
            about: Bytes(vec![b'x'; MAX_ABOUT_BYTES]),
            count: 6,
            bytes: 7,
            first_unix_ms: 8,
            last_unix_ms: 9,
        }
    }

    fn numbers(records: &[Slotted]) -> Vec<u64> {
        records.iter().map(|(_, record)| record.number).collect()
    }

    #[test]
    fn a_record_replaces_the_one_in_its_slot_and_the_file_does_not_grow() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        assert_eq!(load(&directory, 8, 100).unwrap(), (Vec::new(), true));
        write(&directory, &[(0, record(1)), (2, record(2)), (1, record(3))], false).unwrap();
        write(&directory, &[(7, record(4)), (2, record(5))], false).unwrap();
        let (found, in_place) = load(&directory, 8, 100).unwrap();
        let all = [(0, record(1)), (1, record(3)), (7, record(4)), (2, record(5))];
        assert!(in_place && found == all, "{:?}", numbers(&found));
        let size = directory.stat(NAME).unwrap().size;
        assert_eq!(size, 8 * SLOT_BYTES as u64);
        let (found, in_place) = load(&directory, 4, 100).unwrap();
        assert!(!in_place && found.len() == 4, "it has more slots");
        write(&directory, &[(3, record(4)), (2, record(5))], true).unwrap();
        let (found, in_place) = load(&directory, 4, 100).unwrap();
        assert!(in_place && found == [(3, record(4)), (2, record(5))]);
    }

    #[test]
    fn a_torn_or_damaged_slot_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::open(dir.path()).unwrap();
        let all: Vec<Slotted> = (0..3).map(|at| (at, record(at as u64 + 1))).collect();
        write(&directory, &all, false).unwrap();
        let file = directory.open_file(NAME, OpenHow::WRITE).unwrap();
        file.write_full(b"?", SLOT_BYTES as u64 + 50).unwrap();
        file.set_len(2 * SLOT_BYTES as u64 + 10).unwrap();
        assert_eq!(numbers(&load(&directory, 8, 100).unwrap().0), [1]);
    }
}
