//! The format of a file of transactions: chunks of 2 MiB, each with whole transactions. Numbers are
//! little-endian.
//!
//! ```text
//! of a chunk        bytes 0..8     "WEIRTXN1"
//!                         8..12    number of its transactions
//!                        12..16    bytes in use, these 16 included
//!                         16..      the transactions; behind them zeros up to 2 MiB
//! of a transaction  bytes 0..4     customer
//!                         4..8     number of the transaction
//!                         8..12    number of its items, at least 1
//!                        12..      the items in ascending order, 4 bytes each
//! ```
//!
//! The last chunk ends with the bytes in use.

use std::fmt;

/// Bytes of a chunk.
pub const CHUNK_BYTES: usize = 2 << 20;
/// Upper limit of item numbers, exclusive.
pub const ITEM_LIMIT: u32 = 1 << 20;
/// Maximum number of items in a transaction.
pub const MAX_TRANSACTION: usize = 1 << 16;

const MAGIC: &[u8; 8] = b"WEIRTXN1";
const HEADER_BYTES: usize = 16;
const TRANSACTION_HEADER_BYTES: usize = 12;

const _: () = assert!(HEADER_BYTES + TRANSACTION_HEADER_BYTES + 4 * MAX_TRANSACTION <= CHUNK_BYTES);

/// Why a chunk is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// The magic bytes are wrong.
    NotAChunk,
    /// The byte at this offset of the chunk is wrong.
    At(usize),
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::NotAChunk => f.write_str("is no file of transactions"),
            Damage::At(at) => write!(f, "is damaged at byte {at} of the chunk"),
        }
    }
}

/// Collects transactions in chunks.
pub struct Chunks {
    chunk: Vec<u8>,
    transactions: u32,
}

impl Default for Chunks {
    fn default() -> Self {
        Self { chunk: vec![0; HEADER_BYTES], transactions: 0 }
    }
}

impl Chunks {
    /// Adds a transaction, whose items must ascend. If the present chunk is full, returns it.
    ///
    /// # Errors
    /// What is wrong with the items.
    pub fn add(
        &mut self,
        customer: u32,
        number: u32,
        items: &[u32],
    ) -> Result<Option<Vec<u8>>, String> {
        if items.is_empty() || items.len() > MAX_TRANSACTION {
            return Err(format!(
                "a transaction has 1 to {MAX_TRANSACTION} items, not {}",
                items.len()
            ));
        }
        if items.is_sorted_by(|a, b| a < b) && items[items.len() - 1] < ITEM_LIMIT {
            let bytes = TRANSACTION_HEADER_BYTES + 4 * items.len();
            let full = (self.chunk.len() + bytes > CHUNK_BYTES).then(|| {
                let mut full = std::mem::take(self).finish();
                full.resize(CHUNK_BYTES, 0);
                full
            });
            let numbers = [customer, number, items.len() as u32];
            for number in numbers.iter().chain(items) {
                self.chunk.extend_from_slice(&number.to_le_bytes());
            }
            self.transactions += 1;
            return Ok(full);
        }
        Err(format!("items are different numbers below {ITEM_LIMIT} in ascending order"))
    }

    /// Bytes in the present chunk.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.chunk.len()
    }

    /// The last chunk, up to its bytes in use.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        let used = self.chunk.len() as u32;
        self.chunk[..8].copy_from_slice(MAGIC);
        self.chunk[8..12].copy_from_slice(&self.transactions.to_le_bytes());
        self.chunk[12..16].copy_from_slice(&used.to_le_bytes());
        self.chunk
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// Passes the items of each transaction of a chunk to `each`; returns the number of transactions.
///
/// # Errors
/// The chunk is damaged; `each` may have been called for a part of it.
pub fn read(chunk: &[u8], mut each: impl FnMut(&[u32])) -> Result<u64, Damage> {
    if chunk.get(..8) != Some(MAGIC) {
        return Err(Damage::NotAChunk);
    }
    let (expected, used) = number(chunk, 8).zip(number(chunk, 12)).ok_or(Damage::NotAChunk)?;
    let body = chunk.get(..used as usize).ok_or(Damage::At(12))?;
    let (mut at, mut found, mut items) = (HEADER_BYTES, 0u64, Vec::new());
    while at < body.len() {
        let count = number(body, at + 8).ok_or(Damage::At(at))? as usize;
        if count == 0 || count > MAX_TRANSACTION {
            return Err(Damage::At(at + 8));
        }
        let first = at + TRANSACTION_HEADER_BYTES;
        let list = body.get(first..first + 4 * count).ok_or(Damage::At(at + 8))?;
        items.clear();
        items.extend(list.as_chunks::<4>().0.iter().map(|item| u32::from_le_bytes(*item)));
        if !items.is_sorted_by(|a, b| a < b) || items[count - 1] >= ITEM_LIMIT {
            return Err(Damage::At(first));
        }
        each(&items);
        found += 1;
        at = first + 4 * count;
    }
    if found == u64::from(expected) { Ok(found) } else { Err(Damage::At(8)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file_of(transactions: &[Vec<u32>]) -> Vec<u8> {
        let (mut chunks, mut file) = (Chunks::default(), Vec::new());
        for (n, items) in transactions.iter().enumerate() {
            file.extend(chunks.add(7, n as u32, items).unwrap().unwrap_or_default());
        }
        file.extend(chunks.finish());
        file
    }

    fn read_all(file: &[u8]) -> Vec<Vec<u32>> {
        let mut found = Vec::new();
        for chunk in file.chunks(CHUNK_BYTES) {
            read(chunk, |items| found.push(items.to_vec())).unwrap();
        }
        found
    }

    #[test]
    fn no_transaction_crosses_a_chunk() {
        // Each takes 48 bytes, so the last one of a chunk does not fit by 16 bytes.
        let all: Vec<Vec<u32>> = (0..100_000).map(|n| (n..n + 9).collect()).collect();
        let file = file_of(&all);
        assert!(file.len() > 2 * CHUNK_BYTES);
        // Each chunk can be read alone.
        assert!(read_all(&file) == all);
        assert_eq!(&file[CHUNK_BYTES - 16..CHUNK_BYTES], [0; 16], "padding");
    }

    #[test]
    fn what_cannot_be_stored_is_refused() {
        let mut chunks = Chunks::default();
        let long: Vec<u32> = (0..=MAX_TRANSACTION as u32).collect();
        for bad in [&[][..], &[2, 1], &[1, 1], &[ITEM_LIMIT], &long] {
            assert!(chunks.add(1, 1, bad).is_err());
        }
        assert_eq!(read(b"something else", |_| ()), Err(Damage::NotAChunk));
        assert_eq!(read(b"", |_| ()), Err(Damage::NotAChunk));
    }

    proptest! {
        #[test]
        fn damage_is_an_error_or_other_numbers_and_never_a_panic(at in 0usize..60, to: u8) {
            let mut chunk = file_of(&[vec![1, 5, 9], vec![2]]);
            let end = chunk.len();
            chunk[at.min(end - 1)] = to;
            let _ = read(&chunk, |items| assert!(!items.is_empty()));
            let _ = read(&chunk[..at.min(end)], |_| ());
        }
    }
}
