//! The model: an array of bytes, and the choice of calls.

use crate::Outcome;

const PAGE: u64 = 4096;

/// A call on the file. Offsets and lengths in bytes.
#[allow(missing_docs)] // The fields are what the calls take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// `pwrite`.
    Write { at: u64, len: u64 },
    /// `write` to a descriptor with `O_APPEND`.
    Append { len: u64 },
    /// `pread`.
    Read { at: u64, len: u64 },
    /// `ftruncate`, or `truncate` of the path.
    Truncate { to: u64, by_path: bool },
    /// `fallocate`.
    Allocate { at: u64, len: u64, keep_size: bool },
    /// `fallocate` with `PUNCH_HOLE`.
    Punch { at: u64, len: u64 },
    /// `fallocate` with `ZERO_RANGE`.
    Zero { at: u64, len: u64, keep_size: bool },
    /// Reads of a shared mapping.
    MapRead { at: u64, len: u64 },
    /// Stores into a shared mapping, with or without `msync`.
    MapWrite { at: u64, len: u64, sync: bool },
    /// `copy_file_range` within the file; the ranges do not overlap.
    Copy { from: u64, to: u64, len: u64 },
    /// `SEEK_DATA`.
    SeekData { at: u64 },
    /// `SEEK_HOLE`.
    SeekHole { at: u64 },
    /// `close` and `open`.
    Reopen,
    /// `fsync` or `fdatasync`.
    Sync { data_only: bool },
}

impl Op {
    /// Bytes of data that the call needs.
    pub fn data_len(&self) -> usize {
        match *self {
            Self::Write { len, .. } | Self::Append { len } | Self::MapWrite { len, .. } => {
                len as usize
            }
            _ => 0,
        }
    }
}

/// Bytes that are unique to a stamp.
pub fn contents(stamp: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fastrand::Rng::with_seed(stamp).fill(&mut bytes);
    // Never zero, because zeros mean a hole or lost bytes.
    for byte in &mut bytes {
        *byte |= 1;
    }
    bytes
}

/// The expected contents of the file.
pub struct Model {
    bytes: Vec<u8>,
    max_file: u64,
    max_call: u64,
}

impl Model {
    /// An empty file with a maximum size.
    pub fn new(max_file: u64, max_call: u64) -> Self {
        Self { bytes: Vec::new(), max_file, max_call }
    }

    /// The expected bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// A length: short, whole pages, or long.
    fn len(&self, rng: &mut fastrand::Rng) -> u64 {
        match rng.u32(..4) {
            0 => rng.u64(1..=64),
            1 => rng.u64(1..=3 * PAGE),
            2 => PAGE * rng.u64(1..=(self.max_call / PAGE).max(1)),
            _ => rng.u64(1..=self.max_call),
        }
        .min(self.max_call)
    }

    /// An offset below `end`: anywhere, at a page border, or beside one.
    fn place(&self, rng: &mut fastrand::Rng, end: u64) -> u64 {
        let at = rng.u64(..=end);
        match rng.u32(..4) {
            0 => at / PAGE * PAGE,
            1 => (at / PAGE * PAGE).saturating_sub(rng.u64(..3)),
            _ => at,
        }
    }

    /// A range within the file, or reaching beyond its end.
    fn range(&self, rng: &mut fastrand::Rng, beyond: bool) -> (u64, u64) {
        let len = self.len(rng);
        // Mostly near the present end; rarely leaving a large hole.
        let end = if beyond && rng.u32(..6) == 0 { self.max_file } else { self.size() };
        let at = self.place(rng, end).min(self.max_file - len);
        (at, len)
    }

    /// A range of existing bytes; the file must not be empty.
    fn inside(&self, rng: &mut fastrand::Rng) -> (u64, u64) {
        let at = self.place(rng, self.size() - 1);
        (at, self.len(rng).min(self.size() - at))
    }

    /// Chooses the next call.
    pub fn choose(&self, rng: &mut fastrand::Rng) -> Op {
        if self.bytes.is_empty() {
            return Op::Write { at: 0, len: self.len(rng) };
        }
        match rng.u32(..100) {
            0..20 => {
                let (at, len) = self.range(rng, true);
                Op::Write { at, len }
            }
            20..26 if self.size() + self.max_call <= self.max_file => {
                Op::Append { len: self.len(rng) }
            }
            26..32 => {
                let to = self.place(rng, (self.size() + self.max_call).min(self.max_file));
                Op::Truncate { to, by_path: rng.bool() }
            }
            32..36 => {
                let (at, len) = self.range(rng, true);
                Op::Allocate { at, len, keep_size: rng.bool() }
            }
            36..42 => {
                let (at, len) = self.range(rng, false);
                Op::Punch { at, len }
            }
            42..46 => {
                let (at, len) = self.range(rng, true);
                Op::Zero { at, len, keep_size: rng.bool() }
            }
            46..54 => {
                let (at, len) = self.inside(rng);
                Op::MapRead { at, len }
            }
            54..62 => {
                let (at, len) = self.inside(rng);
                Op::MapWrite { at, len, sync: rng.bool() }
            }
            62..66 => self.copy(rng),
            66..69 => Op::SeekData { at: self.place(rng, self.size() + 10) },
            69..72 => Op::SeekHole { at: self.place(rng, self.size() + 10) },
            72..76 => Op::Reopen,
            76..80 => Op::Sync { data_only: rng.bool() },
            _ => {
                let (at, len) = self.range(rng, false);
                Op::Read { at, len }
            }
        }
    }

    fn copy(&self, rng: &mut fastrand::Rng) -> Op {
        let (from, len) = self.inside(rng);
        let to = self.place(rng, self.size()).min(self.max_file - len);
        let len = len.min(from.abs_diff(to));
        if len == 0 { Op::Reopen } else { Op::Copy { from, to, len } }
    }

    fn put(&mut self, at: u64, data: &[u8]) {
        let end = at as usize + data.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[at as usize..end].copy_from_slice(data);
    }

    fn clear(&mut self, at: u64, len: u64) {
        let end = (at + len).min(self.size());
        if at < end {
            self.bytes[at as usize..end as usize].fill(0);
        }
    }

    /// Applies a call that changes the file.
    pub fn apply(&mut self, op: &Op, data: &[u8]) {
        match *op {
            Op::Write { at, .. } | Op::MapWrite { at, .. } => self.put(at, data),
            Op::Append { .. } => self.put(self.size(), data),
            Op::Truncate { to, .. } => self.bytes.resize(to as usize, 0),
            Op::Allocate { at, len, keep_size } => {
                if !keep_size {
                    self.bytes.resize(self.bytes.len().max((at + len) as usize), 0);
                }
            }
            Op::Punch { at, len } => self.clear(at, len),
            Op::Zero { at, len, keep_size } => {
                if !keep_size {
                    self.bytes.resize(self.bytes.len().max((at + len) as usize), 0);
                }
                self.clear(at, len);
            }
            Op::Copy { from, to, len } => {
                let copied = self.bytes[from as usize..(from + len) as usize].to_vec();
                self.put(to, &copied);
            }
            Op::Read { .. }
            | Op::MapRead { .. }
            | Op::SeekData { .. }
            | Op::SeekHole { .. }
            | Op::Reopen
            | Op::Sync { .. } => {}
        }
    }

    /// Checks the bytes of a read.
    pub fn check_read(&self, op: &Op, got: &[u8]) -> Outcome {
        let (Op::Read { at, len } | Op::MapRead { at, len }) = *op else {
            return Err(format!("{op:?} reads nothing"));
        };
        let from = at.min(self.size()) as usize;
        let want = &self.bytes[from..(at + len).min(self.size()).max(from as u64) as usize];
        if got == want {
            return Ok(());
        }
        if got.len() != want.len() {
            return Err(format!("{op:?} gave {} bytes, not {}", got.len(), want.len()));
        }
        let wrong = |i: &usize| got[*i] != want[*i];
        let first = (0..got.len()).find(wrong).unwrap_or(0);
        let last = (0..got.len()).rfind(wrong).unwrap_or(0);
        Err(format!(
            "{op:?} differs in {} bytes from {} to {}: first is {:#04x}, not {:#04x}",
            (0..got.len()).filter(wrong).count(),
            at + first as u64,
            at + last as u64,
            got[first],
            want[first]
        ))
    }

    /// Checks the result of a seek. Zeros may count as data.
    pub fn check_seek(&self, op: &Op, found: Option<u64>) -> Outcome {
        let wrong = |why: &str| {
            Err(format!("{op:?} of a file of {} bytes found {found:?}: {why}", self.size()))
        };
        let (Op::SeekData { at } | Op::SeekHole { at }) = *op else {
            return Err(format!("{op:?} seeks nothing"));
        };
        match (op, found) {
            (_, Some(found)) if found < at || found > self.size() => wrong("out of range"),
            (_, Some(_)) if at >= self.size() => wrong("there is nothing at the end"),
            (Op::SeekHole { .. }, None) if at < self.size() => wrong("the end is a hole"),
            (Op::SeekData { .. }, found) => {
                let until = found.unwrap_or(self.size()).max(at.min(self.size()));
                let skipped = &self.bytes[at.min(self.size()) as usize..until as usize];
                if skipped.iter().all(|b| *b == 0) { Ok(()) } else { wrong("data was skipped") }
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(data: &[u8]) -> Model {
        let mut model = Model::new(1 << 20, 1 << 16);
        model.apply(&Op::Write { at: 0, len: data.len() as u64 }, data);
        model
    }

    #[test]
    fn a_stale_byte_and_a_short_read_are_refused() {
        let model = written(b"abcdef");
        let op = Op::Read { at: 1, len: 3 };
        assert!(model.check_read(&op, b"bcd").is_ok());
        assert!(model.check_read(&op, b"bxd").unwrap_err().contains("from 2 to 2"));
        assert!(model.check_read(&op, b"bc").is_err());
        assert!(model.check_read(&Op::Read { at: 4, len: 9 }, b"ef").is_ok());
        assert!(model.check_read(&Op::Read { at: 9, len: 9 }, b"").is_ok());
    }

    #[test]
    fn a_seek_may_not_skip_data() {
        let mut model = written(&[1; 10]);
        model.apply(&Op::Truncate { to: 10_000, by_path: false }, &[]);
        assert!(model.check_seek(&Op::SeekData { at: 20 }, None).is_ok());
        assert!(model.check_seek(&Op::SeekData { at: 5 }, None).is_err());
        assert!(model.check_seek(&Op::SeekData { at: 5 }, Some(5)).is_ok());
        assert!(model.check_seek(&Op::SeekHole { at: 5 }, Some(10_000)).is_ok());
        assert!(model.check_seek(&Op::SeekHole { at: 5 }, None).is_err());
        assert!(model.check_seek(&Op::SeekHole { at: 10_000 }, None).is_ok());
    }

    #[test]
    fn calls_stay_within_the_file_and_its_bound() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut model = Model::new(100_000, 30_000);
        for step in 0..5000 {
            let op = model.choose(&mut rng);
            let data = contents(step, op.data_len());
            model.apply(&op, &data);
            assert!(model.size() <= 100_000, "{op:?}");
        }
    }
}
