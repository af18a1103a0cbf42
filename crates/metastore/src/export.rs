//! The file of an export: all records of a snapshot, in chunks with checksums, and an end mark that
//! proves completeness. Drawn in `docs/format-metastore.md`; change both together.
//!
//! A reader refuses a file that is truncated, changed or out of order, or that has no end mark.

use crate::engine::{Key, MAX_KEY_BYTES, MAX_REQUEST_BYTES, Sequence};
use std::io::{self, Read, Write};
use weir_types::checksum::crc32c;
use weir_types::{Error, ErrorKind, Result};

/// The version that this program writes, and the only one it reads.
const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"WEIRMEXP";
const CHUNK_MAGIC: [u8; 4] = *b"CHNK";
const END_MAGIC: [u8; 4] = *b"DONE";
const HEADER_BYTES: usize = 40;
/// Bytes of the header of a chunk, and of the end mark.
const FRAME_BYTES: usize = 32;
/// A chunk is written when its records have at least this many bytes.
const CHUNK_BYTES: usize = 1 << 20;
/// The most bytes of a chunk: the last record may have the maximum length.
const MAX_CHUNK_BYTES: usize = CHUNK_BYTES + MAX_REQUEST_BYTES + RECORD_HEADER_BYTES;
const RECORD_HEADER_BYTES: usize = 8;

const _: () = assert!(MAX_CHUNK_BYTES <= u32::MAX as usize);

/// The origin of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportHeader {
    /// Id of the cluster.
    pub cluster: [u8; 16],
    /// The last commit in the export.
    pub sequence: Sequence,
}

/// The size of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportTotals {
    /// Number of records.
    pub records: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
}

/// Writes an export.
pub struct ExportWriter<W> {
    out: W,
    chunk: Vec<u8>,
    chunk_records: u32,
    chunks: u64,
    totals: ExportTotals,
    last: Option<Key>,
    /// Checksum over the checksums of all chunks.
    running: u32,
}

impl<W: Write> ExportWriter<W> {
    /// Begins an export.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(mut out: W, header: ExportHeader) -> io::Result<Self> {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[12..16].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&header.cluster);
        bytes[32..40].copy_from_slice(&header.sequence.0.to_le_bytes());
        let sum = crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&sum.to_le_bytes());
        out.write_all(&bytes)?;
        Ok(Self {
            out,
            chunk: Vec::new(),
            chunk_records: 0,
            chunks: 0,
            totals: ExportTotals::default(),
            last: None,
            running: sum,
        })
    }

    /// Adds a record; its key is greater than the one before.
    ///
    /// # Errors
    /// Those of `out`; `InvalidInput` for what no engine holds.
    pub fn record(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let sound = (1..=MAX_KEY_BYTES).contains(&key.len())
            && value.len() <= MAX_REQUEST_BYTES
            && self.last.as_ref().is_none_or(|last| &**last < key);
        if !sound {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no record, or out of order"));
        }
        self.last = Some(key.into());
        self.chunk.extend_from_slice(&(key.len() as u32).to_le_bytes());
        self.chunk.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.chunk.extend_from_slice(key);
        self.chunk.extend_from_slice(value);
        self.chunk_records += 1;
        self.totals.records += 1;
        self.totals.bytes += (key.len() + value.len()) as u64;
        if self.chunk.len() >= CHUNK_BYTES { self.write_chunk() } else { Ok(()) }
    }

    fn write_chunk(&mut self) -> io::Result<()> {
        let mut frame = [0; FRAME_BYTES];
        frame[..4].copy_from_slice(&CHUNK_MAGIC);
        frame[8..12].copy_from_slice(&(self.chunk.len() as u32).to_le_bytes());
        frame[12..16].copy_from_slice(&self.chunk_records.to_le_bytes());
        frame[16..24].copy_from_slice(&self.chunks.to_le_bytes());
        frame[24..28].copy_from_slice(&crc32c(&self.chunk).to_le_bytes());
        self.write_frame(&mut frame)?;
        self.out.write_all(&self.chunk)?;
        self.chunk.clear();
        self.chunk_records = 0;
        self.chunks += 1;
        Ok(())
    }

    /// Completes a frame with the running checksum of all frames, and writes it.
    fn write_frame(&mut self, frame: &mut [u8; FRAME_BYTES]) -> io::Result<()> {
        frame[28..32].copy_from_slice(&self.running.to_le_bytes());
        self.running = crc32c(&frame[8..]);
        frame[4..8].copy_from_slice(&self.running.to_le_bytes());
        self.out.write_all(frame)
    }

    /// Writes the end mark. Without it the export is refused.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn finish(mut self) -> io::Result<(W, ExportTotals)> {
        if self.chunk_records > 0 {
            self.write_chunk()?;
        }
        let mut frame = [0; FRAME_BYTES];
        frame[..4].copy_from_slice(&END_MAGIC);
        frame[8..16].copy_from_slice(&self.chunks.to_le_bytes());
        frame[16..24].copy_from_slice(&self.totals.records.to_le_bytes());
        self.write_frame(&mut frame)?;
        self.out.flush()?;
        Ok((self.out, self.totals))
    }
}

/// Reads an export.
pub struct ExportReader<R> {
    from: R,
    header: ExportHeader,
    offset: u64,
    chunks: u64,
    totals: ExportTotals,
    last: Option<Key>,
    running: u32,
}

impl<R: Read> ExportReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported` (another version), those of `from`.
    pub fn new(mut from: R) -> Result<Self> {
        let mut bytes = [0; HEADER_BYTES];
        from.read_exact(&mut bytes).map_err(|e| read_error(e, 0))?;
        let sum = crc32c(&bytes[12..]);
        if bytes[..8] != MAGIC || number(&bytes[8..12]) != u64::from(sum) {
            return Err(damaged(0, "it is no export of metadata"));
        }
        let version = number(&bytes[12..16]);
        if version != u64::from(VERSION) {
            let what = format!(
                "export of version {version}; this program knows only {VERSION}: use the version \
                 of weir that wrote it, or a newer one"
            );
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        let mut cluster = [0; 16];
        cluster.copy_from_slice(&bytes[16..32]);
        let header = ExportHeader { cluster, sequence: Sequence(number(&bytes[32..40])) };
        let offset = HEADER_BYTES as u64;
        let (chunks, totals, last) = (0, ExportTotals::default(), None);
        Ok(Self { from, header, offset, chunks, totals, last, running: sum })
    }

    /// The origin of the export.
    pub fn header(&self) -> ExportHeader {
        self.header
    }

    /// The next records, in order; `None` after the last one, when the whole export has been
    /// verified.
    ///
    /// # Errors
    /// `Corrupt`, those of the source.
    #[expect(clippy::type_complexity, reason = "keys and values")]
    pub fn next_chunk(&mut self) -> Result<Option<Vec<(Key, Vec<u8>)>>> {
        let mut frame = [0; FRAME_BYTES];
        self.read(&mut frame)?;
        let at = self.offset - FRAME_BYTES as u64;
        let sum = crc32c(&frame[8..]);
        if number(&frame[4..8]) != u64::from(sum)
            || number(&frame[28..32]) != u64::from(self.running)
        {
            return Err(damaged(at, "a chunk header"));
        }
        self.running = sum;
        match frame[..4] {
            [b'C', b'H', b'N', b'K'] if number(&frame[16..24]) == self.chunks => {}
            [b'D', b'O', b'N', b'E'] => return self.end(&frame, at).map(|()| None),
            _ => return Err(damaged(at, "a chunk header")),
        }
        let bytes = number(&frame[8..12]) as usize;
        if bytes > MAX_CHUNK_BYTES {
            return Err(damaged(at, "the length of a chunk"));
        }
        // The buffer grows as bytes arrive: a length from the file is not trusted for an
        // allocation.
        let mut chunk = Vec::new();
        let read = self.from.by_ref().take(bytes as u64).read_to_end(&mut chunk);
        self.offset += read.map_err(|e| read_error(e, self.offset))? as u64;
        if chunk.len() < bytes {
            return Err(damaged(self.offset, "it is cut short"));
        }
        if number(&frame[24..28]) != u64::from(crc32c(&chunk)) {
            return Err(damaged(at, "a chunk"));
        }
        let records = self
            .records(&chunk, number(&frame[12..16]))
            .ok_or_else(|| damaged(at, "the records of a chunk"))?;
        self.chunks += 1;
        Ok(Some(records))
    }

    fn records(&mut self, mut rest: &[u8], count: u64) -> Option<Vec<(Key, Vec<u8>)>> {
        let mut records = Vec::new();
        while !rest.is_empty() {
            let (lengths, after) = rest.split_at_checked(RECORD_HEADER_BYTES)?;
            let (key, after) = after.split_at_checked(number(&lengths[..4]) as usize)?;
            let (value, after) = after.split_at_checked(number(&lengths[4..]) as usize)?;
            let in_order = self.last.as_ref().is_none_or(|last| &**last < key);
            if !in_order || !crate::engine::is_key(key) || value.len() > MAX_REQUEST_BYTES {
                return None;
            }
            self.last = Some(key.into());
            self.totals.records += 1;
            self.totals.bytes += (key.len() + value.len()) as u64;
            records.push((key.into(), value.to_vec()));
            rest = after;
        }
        (records.len() as u64 == count).then_some(records)
    }

    fn end(&mut self, frame: &[u8; FRAME_BYTES], at: u64) -> Result<()> {
        let whole =
            number(&frame[8..16]) == self.chunks && number(&frame[16..24]) == self.totals.records;
        let more = self.from.read(&mut [0]).map_err(|e| read_error(e, self.offset))?;
        if !whole || more > 0 {
            return Err(damaged(at, "the end"));
        }
        Ok(())
    }

    /// Records and bytes read so far.
    pub fn totals(&self) -> ExportTotals {
        self.totals
    }

    fn read(&mut self, into: &mut [u8]) -> Result<()> {
        self.from.read_exact(into).map_err(|e| read_error(e, self.offset))?;
        self.offset += into.len() as u64;
        Ok(())
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn read_error(e: io::Error, offset: u64) -> Error {
    if e.kind() == io::ErrorKind::UnexpectedEof {
        return damaged(offset, "it is cut short");
    }
    Error::from(e)
}

fn damaged(offset: u64, what: &str) -> Error {
    let what = format!(
        "the export is damaged at byte {offset} ({what}): use another one; nothing is lost"
    );
    Error::new(ErrorKind::Corrupt, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: ExportHeader = ExportHeader { cluster: [7; 16], sequence: Sequence(42) };

    fn export(records: &[(Key, Vec<u8>)]) -> Vec<u8> {
        let mut writer = ExportWriter::new(Vec::new(), HEADER).unwrap();
        for (key, value) in records {
            writer.record(key, value).unwrap();
        }
        writer.finish().unwrap().0
    }

    fn import(bytes: &[u8]) -> Result<Vec<(Key, Vec<u8>)>> {
        let mut reader = ExportReader::new(bytes)?;
        assert_eq!(reader.header(), HEADER);
        let mut all = Vec::new();
        while let Some(records) = reader.next_chunk()? {
            all.extend(records);
        }
        assert_eq!(reader.totals().records, all.len() as u64);
        Ok(all)
    }

    fn rows(count: u32, bytes: usize) -> Vec<(Key, Vec<u8>)> {
        (0..count).map(|n| (n.to_be_bytes().as_slice().into(), vec![n as u8; bytes])).collect()
    }

    #[test]
    fn what_is_exported_is_imported_in_as_many_chunks_as_it_takes() {
        for (count, bytes) in [(0, 0), (1, 0), (5, 10), (5000, 1000), (3, MAX_REQUEST_BYTES)] {
            let rows = rows(count, bytes);
            assert!(import(&export(&rows)).unwrap() == rows, "{count} of {bytes}");
        }
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_noticed() {
        let whole = export(&rows(6, 5));
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(
                ExportReader::new(&flipped[..]).and_then(|_| import(&flipped)).unwrap_err().kind,
                ErrorKind::Corrupt | ErrorKind::Unsupported
            ));
        }
        for len in 0..whole.len() {
            assert!(import(&whole[..len]).unwrap_err().message.contains("damaged at byte"));
        }
        assert!(import(&[&whole[..], b"x"].concat()).is_err());
    }

    #[test]
    fn chunks_that_are_missing_twice_there_or_of_another_export_are_noticed() {
        let rows = rows(2500, 1000);
        let whole = export(&rows);
        let header = &whole[..HEADER_BYTES];
        let mut parts = Vec::new();
        let mut at = HEADER_BYTES;
        while whole[at..].starts_with(&CHUNK_MAGIC) {
            let end = at + FRAME_BYTES + number(&whole[at + 8..at + 12]) as usize;
            parts.push(&whole[at..end]);
            at = end;
        }
        let end = &whole[at..];
        assert_eq!(parts.len(), 3);
        assert!(import(&[header, parts[0], parts[1], parts[2], end].concat()).is_ok());
        for order in [&[0, 1][..], &[1, 2], &[0, 2], &[0, 0, 1, 2], &[1, 0, 2], &[]] {
            let chosen: Vec<&[u8]> = order.iter().map(|&n| parts[n]).collect();
            assert!(import(&[header, &chosen.concat(), end].concat()).is_err(), "{order:?}");
        }
        let other = ExportHeader { cluster: [8; 16], ..HEADER };
        let other = ExportWriter::new(Vec::new(), other).unwrap().finish().unwrap().0;
        let mixed = [&other[..HEADER_BYTES], &whole[HEADER_BYTES..]].concat();
        let mut reader = ExportReader::new(&mixed[..]).unwrap();
        assert!(reader.next_chunk().is_err());
    }
}
