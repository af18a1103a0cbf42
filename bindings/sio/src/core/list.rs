//! Scatter-gather lists: strided entries become checked spans, the spans of file and memory become
//! pieces, and pieces are cut into batches for a backend.
//!
//! Invariant: no result is longer than [`MAX_COUNT`] elements of a list, or than the elements of
//! both lists together, and no sum overflows.

use crate::core::codes::{Code, Failure, Result};
use crate::core::limits::{BATCH_BYTES, BATCH_SPANS, MAX_COUNT, MAX_OFFSET, MAX_TRANSFER_LEN};

/// `count` elements of `size` bytes, `stride` bytes from the start of one to the start of the next.
/// `start` is an offset in the file or an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Start of the first element.
    pub start: u64,
    /// Bytes of each element.
    pub size: u64,
    /// Bytes from the start of one element to the start of the next.
    pub stride: u64,
    /// Number of elements.
    pub count: u32,
}

/// A contiguous range: of a file, or of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: u64,
    /// Length, bytes.
    pub len: u64,
}

impl Span {
    /// The first byte after the span.
    pub fn end(self) -> u64 {
        self.start + self.len
    }
}

/// A contiguous range of a file and the memory for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Offset in the file.
    pub offset: u64,
    /// Address of the memory.
    pub address: u64,
    /// Length, bytes.
    pub len: u64,
}

/// Direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From file to memory.
    Read,
    /// From memory to file.
    Write,
}

/// The spans of a list of file ranges. Empty entries are dropped; adjacent spans are joined.
///
/// # Errors
/// `InvalidFileList`.
pub fn file_spans(entries: &[Entry]) -> Result<Vec<Span>> {
    spans(entries, MAX_OFFSET, Code::InvalidFileList)
}

/// The spans of a list of memory ranges.
///
/// # Errors
/// `InvalidMemoryList`.
pub fn memory_spans(entries: &[Entry]) -> Result<Vec<Span>> {
    let null = entries.iter().any(|e| e.start == 0 && e.size > 0 && e.count > 0);
    if null {
        return Err(Failure::new(Code::InvalidMemoryList, "an address is NULL"));
    }
    spans(entries, isize::MAX as u64, Code::InvalidMemoryList)
}

fn spans(entries: &[Entry], end: u64, code: Code) -> Result<Vec<Span>> {
    let fail = |what: String| Err(Failure::new(code, what));
    if entries.len() > MAX_COUNT as usize {
        return fail(format!("{} entries, the most is {MAX_COUNT}", entries.len()));
    }
    let (mut elements, mut bytes) = (0u64, 0u64);
    for (at, entry) in entries.iter().enumerate() {
        if entry.size == 0 || entry.count == 0 {
            continue;
        }
        let last = (u64::from(entry.count) - 1)
            .checked_mul(entry.stride)
            .and_then(|gap| entry.start.checked_add(gap))
            .and_then(|last| last.checked_add(entry.size));
        if last.is_none_or(|last| last > end) {
            return fail(format!("entry {at} ends behind the last possible byte"));
        }
        elements += u64::from(entry.count);
        bytes = entry.size.saturating_mul(u64::from(entry.count)).saturating_add(bytes);
    }
    if elements > u64::from(MAX_COUNT) {
        return fail(format!("{elements} elements, the most is {MAX_COUNT}"));
    }
    if bytes > MAX_TRANSFER_LEN {
        return fail(format!("{bytes} bytes, the most is {MAX_TRANSFER_LEN}"));
    }
    let mut spans = Vec::new();
    for entry in entries.iter().filter(|e| e.size > 0) {
        for element in 0..u64::from(entry.count) {
            let start = entry.start + element * entry.stride;
            push(&mut spans, Span { start, len: entry.size });
        }
    }
    Ok(spans)
}

/// Adds a span; joins it to the last one if there is no gap.
fn push(spans: &mut Vec<Span>, span: Span) {
    match spans.last_mut() {
        Some(last) if last.end() == span.start => last.len += span.len,
        _ => spans.push(span),
    }
}

/// Whether any byte is in two spans.
pub fn overlap(spans: impl Iterator<Item = Span>) -> bool {
    let mut sorted: Vec<Span> = spans.collect();
    sorted.sort_unstable_by_key(|span| span.start);
    sorted.windows(2).any(|pair| pair[0].end() > pair[1].start)
}

/// The spans before the first byte at or beyond `end`, and their total length.
pub fn before(spans: &[Span], end: u64) -> (Vec<Span>, u64) {
    let (mut kept, mut total) = (Vec::new(), 0);
    for span in spans {
        let len = span.len.min(end.saturating_sub(span.start));
        if len > 0 {
            kept.push(Span { len, ..*span });
        }
        total += len;
        if len < span.len {
            break;
        }
    }
    (kept, total)
}

/// Pairs the spans of both lists, in order. The changed side must not name a byte twice: memory for
/// a read, the file for a write.
///
/// # Errors
/// `UnequalLists`; `InvalidFileList` or `InvalidMemoryList` if the changed side names a byte twice.
pub fn pieces(file: &[Span], memory: &[Span], direction: Direction) -> Result<Vec<Piece>> {
    let total = |spans: &[Span]| spans.iter().map(|span| span.len).sum::<u64>();
    let (of_file, of_memory) = (total(file), total(memory));
    if of_file != of_memory {
        let what = format!("{of_file} bytes of the file, {of_memory} bytes of memory");
        return Err(Failure::new(Code::UnequalLists, what));
    }
    let (changed, code) = match direction {
        Direction::Read => (memory, Code::InvalidMemoryList),
        Direction::Write => (file, Code::InvalidFileList),
    };
    if overlap(changed.iter().copied()) {
        return Err(Failure::new(code, "a byte that changes is named twice"));
    }
    let mut pieces = Vec::with_capacity(file.len().max(memory.len()));
    let (mut spans, mut rest) = (memory.iter(), Span { start: 0, len: 0 });
    for span in file {
        let mut done = 0;
        while done < span.len {
            if rest.len == 0 {
                // There is another span, because the totals are equal.
                let Some(next) = spans.next() else { break };
                rest = *next;
            }
            let len = rest.len.min(span.len - done);
            pieces.push(Piece { offset: span.start + done, address: rest.start, len });
            rest = Span { start: rest.start + len, len: rest.len - len };
            done += len;
        }
    }
    Ok(pieces)
}

/// The arguments of one call of a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Ranges of the file, in the order of the bytes.
    pub file: Vec<Span>,
    /// The same bytes in memory.
    pub memory: Vec<Span>,
    /// Total bytes.
    pub bytes: u64,
}

/// Cuts pieces into batches.
#[derive(Debug)]
pub struct Batches<'a> {
    pieces: &'a [Piece],
    done: u64,
}

impl<'a> Batches<'a> {
    /// Batches of these pieces, in order.
    pub fn new(pieces: &'a [Piece]) -> Self {
        Self { pieces, done: 0 }
    }
}

impl Iterator for Batches<'_> {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        let mut batch = Batch::default();
        while let Some((piece, rest)) = self.pieces.split_first() {
            let start = piece.offset + self.done;
            let joins = batch.file.last().is_some_and(|last| last.end() == start);
            if batch.bytes == BATCH_BYTES || (!joins && batch.file.len() == BATCH_SPANS) {
                break;
            }
            let len = (piece.len - self.done).min(BATCH_BYTES - batch.bytes);
            push(&mut batch.file, Span { start, len });
            push(&mut batch.memory, Span { start: piece.address + self.done, len });
            batch.bytes += len;
            self.done += len;
            if self.done == piece.len {
                (self.pieces, self.done) = (rest, 0);
            }
        }
        (batch.bytes > 0).then_some(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(start: u64, size: u64, stride: u64, count: u32) -> Entry {
        Entry { start, size, stride, count }
    }

    #[test]
    fn lists_that_reach_too_far_are_refused() {
        let bad = [
            entry(MAX_OFFSET, 1, 0, 1),
            entry(0, u64::MAX, 0, 1),
            entry(1, 1, u64::MAX, 2),
            entry(0, 1, u64::MAX / 2, 3),
            entry(0, 1, 1, MAX_COUNT + 1),
            entry(0, MAX_TRANSFER_LEN, 0, 2),
        ];
        for entry in bad {
            assert_eq!(file_spans(&[entry]).unwrap_err().code, Code::InvalidFileList, "{entry:?}");
        }
        let null = memory_spans(&[entry(0, 1, 1, 1)]).unwrap_err();
        assert_eq!(null.code, Code::InvalidMemoryList);
        assert_eq!(memory_spans(&[entry(u64::MAX - 5, 1, 1, 1)]).unwrap_err().code, null.code);
        assert_eq!(file_spans(&[entry(u64::MAX, 0, 0, 5), entry(9, 9, 9, 0)]), Ok(vec![]));
        assert!(file_spans(&vec![entry(0, 0, 0, 0); MAX_COUNT as usize + 1]).is_err());
    }

    #[test]
    fn what_changes_is_named_once() {
        let (once, twice) = ([Span { start: 8, len: 8 }], [Span { start: 8, len: 4 }; 2]);
        assert!(pieces(&twice, &once, Direction::Read).is_ok());
        assert!(pieces(&once, &twice, Direction::Write).is_ok());
        let read = pieces(&once, &twice, Direction::Read).unwrap_err();
        assert_eq!(read.code, Code::InvalidMemoryList);
        let write = pieces(&twice, &once, Direction::Write).unwrap_err();
        assert_eq!(write.code, Code::InvalidFileList);
        let unequal = pieces(&once, &[], Direction::Read).unwrap_err();
        assert_eq!(unequal.code, Code::UnequalLists);
    }

    #[test]
    fn a_list_ends_at_the_first_byte_behind_the_end() {
        let spans = [Span { start: 8, len: 4 }, Span { start: 0, len: 2 }];
        assert_eq!(before(&spans, 20), (spans.to_vec(), 6));
        assert_eq!(before(&spans, 12), (spans.to_vec(), 6));
        assert_eq!(before(&spans, 10), (vec![Span { start: 8, len: 2 }], 2));
        assert_eq!(before(&spans, 5), (vec![], 0));
    }

    /// The offset of every byte.
    fn bytes(entries: &[Entry]) -> Vec<u64> {
        let elements = |e: &Entry| {
            let e = *e;
            (0..u64::from(e.count))
                .flat_map(move |i| (0..e.size).map(move |b| e.start + i * e.stride + b))
        };
        entries.iter().flat_map(elements).collect()
    }

    proptest! {
        #[test]
        fn pieces_and_batches_name_the_bytes_of_the_lists_in_order(
            list in prop::collection::vec((0u64..5000, 0u64..40, 0u64..90, 0u32..6), 0..20),
        ) {
            let entries: Vec<Entry> =
                list.iter().map(|&(a, b, c, d)| entry(a, b, c, d)).collect();
            let file = file_spans(&entries).unwrap();
            let want = bytes(&entries);
            let total = want.len() as u64;
            // Memory in pieces of seven bytes with gaps.
            let memory = [
                entry(1 << 20, 7, 11, (total / 7) as u32),
                entry(1 << 30, total % 7, 0, 1),
            ];
            let addresses = bytes(&memory);
            let memory = memory_spans(&memory).unwrap();
            let pieces = pieces(&file, &memory, Direction::Read).unwrap();
            let named = pieces.iter().flat_map(|p| (0..p.len).map(|b| (p.offset + b, p.address + b)));
            prop_assert!(named.eq(want.iter().copied().zip(addresses.iter().copied())));
            let batches: Vec<Batch> = Batches::new(&pieces).collect();
            let of = |spans: &[Span]| {
                spans.iter().flat_map(|s| s.start..s.end()).collect::<Vec<_>>()
            };
            prop_assert_eq!(batches.iter().flat_map(|b| of(&b.file)).collect::<Vec<_>>(), want);
            prop_assert_eq!(batches.iter().flat_map(|b| of(&b.memory)).collect::<Vec<_>>(), addresses);
        }
    }

    #[test]
    fn a_batch_has_a_bound() {
        let long = [Piece { offset: 3, address: 9, len: 2 * BATCH_BYTES + 1 }];
        let sizes: Vec<u64> = Batches::new(&long).map(|batch| batch.bytes).collect();
        assert_eq!(sizes, [BATCH_BYTES, BATCH_BYTES, 1]);
        let many: Vec<Piece> =
            (0..5000).map(|i| Piece { offset: i * 10, address: 1 + i * 3, len: 3 }).collect();
        let batches: Vec<Batch> = Batches::new(&many).collect();
        assert_eq!(batches.iter().map(|b| b.file.len()).collect::<Vec<_>>(), [2048, 2048, 904]);
        assert!(batches.iter().all(|batch| batch.memory.len() == 1));
    }
}
